"""Vector search against plain float64 products, and the approximate indexes against the exact one."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import BadInput
from retrievers.dense import vectors as module
from retrievers.dense.vectors import HNSW, IVFPQ, Flat, IVFFlat


def built(index, vectors, folder):
    folder.mkdir(exist_ok=True)
    index.build(vectors, folder)
    return index


def searched(vectors, queries, k, folder, index=None):
    return built(index or Flat(), vectors, folder).search(queries, vectors, k)


def random(rows, width, seed, length=1.0):
    vectors = np.random.default_rng(seed).standard_normal((rows, width))
    return (length * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def clustered(rows, width, seed, centres=40, spread=0.3):
    """Unit vectors around some centres."""
    places = np.random.default_rng(seed).integers(centres, size=rows)
    vectors = random(centres, width, seed=77)[places] + spread * random(rows, width, seed)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def whole(values):
    """float32 of small whole numbers: every sum of products is exact, whatever its order."""
    return np.array(values, np.float32)


def sorted_out(queries, vectors, k):
    """By numpy alone: the products in float64, sorted by (score descending, document ascending)."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def assert_exact(found, queries, vectors, k):
    docs, scores, measured = found
    order, expected = sorted_out(queries, vectors, k)
    assert (docs.dtype, scores.dtype, measured) == (np.int32, np.float64, {})
    np.testing.assert_array_equal(docs, order)
    reach = np.prod([np.linalg.norm(one.astype(np.float64), axis=1).max() for one in (queries, vectors)])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-13 * reach)


def test_flat_by_hand(tmp_path):
    vectors = whole([[1, 0], [0, 2], [1, 0], [-1, 0], [0, 0]])
    queries = whole([[1, 0], [0, 0], [0, -1]])
    docs, scores, measured = searched(vectors, queries, 3, tmp_path)
    # [1, 0]: documents 0 and 2 score 1 and tie, 1 and 4 score 0 and tie; 1 is the first. A query of zeros finds
    # nothing. [0, -1]: document 1 scores -2, all others 0.
    assert docs.tolist() == [[0, 2, 1], [-1, -1, -1], [0, 2, 3]]
    assert scores.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert measured == {}


@pytest.mark.parametrize(("rows", "width"), [(1, 3), (70, 1), (5000, 17), (9000, 384)])
def test_the_k_best_of_all(tmp_path, rows, width):
    vectors, queries = random(rows, width, seed=1), random(7, width, seed=2)
    if width == 1:  # all products are 1 or -1: nothing but ties
        queries, vectors = np.sign(queries), np.sign(vectors)
    for k in (1, 10, 100):
        assert_exact(searched(vectors, queries, k, tmp_path), queries, vectors, k)


def test_vectors_of_any_length(tmp_path):
    """Very long and very short vectors of different lengths; products in float32 overflow or underflow."""
    for size in (1e-30, 1e-3, 1e4, 1e25):
        vectors = random(5000, 24, seed=3, length=size) * np.random.default_rng(4).random((5000, 1), np.float32)
        queries = random(5, 24, seed=5, length=size)
        assert_exact(searched(vectors, queries, 20, tmp_path), queries, vectors, 20)
    # One long vector among short ones: the error bound depends on it, and all other scores differ by less.
    vectors, queries = random(6000, 16, seed=6), random(4, 16, seed=7)
    vectors[17] *= np.float32(1e9)
    assert_exact(searched(vectors, queries, 30, tmp_path), queries, vectors, 30)


def test_thousands_of_equal_vectors(tmp_path):
    """Thousands of copies, better and worse ones among them, and thousands of zeros."""
    vectors = np.repeat(whole([[1, 1, 0], [0, 0, 0], [1, 0, 1]]), 4000, axis=0)
    vectors[[5000, 11999]] = whole([3, 0, 0])
    queries = whole([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [1, 1, 1]])
    for k in (1, 100, 5000, 12000):
        assert_exact(searched(vectors, queries, k, tmp_path), queries, vectors, k)


def test_near_ties_that_float32_cannot_distinguish(tmp_path):
    """Copies that differ in the last bit of one component: the products in float32 are mostly equal or disordered."""
    draw = np.random.default_rng(10)
    vectors = np.repeat(random(1, 256, seed=11), 10000, axis=0)
    rows, columns = np.arange(10000), draw.integers(256, size=10000)
    vectors[rows, columns] = np.nextafter(vectors[rows, columns], draw.choice([-9, 9], 10000).astype(np.float32))
    queries = random(6, 256, seed=12)
    products = queries @ vectors.T
    assert len(np.unique(products[0])) < 1000, "float32 distinguishes them"
    docs, scores, _ = searched(vectors, queries, 50, tmp_path)
    # Sums in float64 differ in their last bits by the order of summation: the tolerance is far below the differences
    # between vectors, which are 1e-10 and more.
    expected = np.sort(queries.astype(np.float64) @ vectors.astype(np.float64).T, axis=1)[:, ::-1][:, :50]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-14)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == 50 for row in docs.tolist())


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_small_whole_numbers(tmp_path, data):
    """Sums are exact, so documents, ties and scores are known to the last bit; blocks are small."""
    width, k = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 40))
    numbers = st.lists(st.integers(-2, 2), min_size=width, max_size=width)
    vectors = whole(data.draw(st.lists(numbers, max_size=60))).reshape(-1, width)
    queries = whole(data.draw(st.lists(numbers.filter(any), max_size=6))).reshape(-1, width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DOCUMENTS", 7)
        patch.setattr(module, "QUERIES", 2)
        docs, scores, _ = searched(vectors, queries, k, tmp_path)
    order, expected = sorted_out(queries, vectors, k)
    assert docs.tolist() == order.tolist()
    assert scores.tolist() == expected.tolist()


def test_flat_needs_no_faiss(tmp_path, monkeypatch):
    vectors, queries = random(500, 8, seed=15), random(5, 8, seed=16)
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert_exact(searched(vectors, queries, 10, tmp_path), queries, vectors, 10)
    for kind in (HNSW, IVFFlat, IVFPQ):
        with pytest.raises(BadInput, match=r"pip install 'retrieval-harness\[dense\]', or use index=flat"):
            kind()


# All kinds

KINDS = {
    "flat": Flat,
    "hnsw": HNSW,
    "ivf_flat": lambda: IVFFlat(nprobe=4),
    "ivf_pq": lambda: IVFPQ(nprobe=4, m=8, bits=4, candidates=150),
}


def assert_same(found, docs, scores):
    assert (found.docs.tolist(), found.scores.tolist()) == (docs.tolist(), scores.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_index_scores_as_flat_does_and_gives_the_same_again(tmp_path, kind):
    """With a smaller k, for a single query, from another build, and from a loaded index."""
    vectors = clustered(3000, 32, seed=20)
    vectors[1000:1400] = vectors[0]  # copies around the k-th best
    queries = np.vstack([clustered(20, 32, seed=21), vectors[:1]])
    index = built(KINDS[kind](), vectors, tmp_path / "a")
    docs, scores, measured = index.search(queries, vectors, 150)
    best, values, _ = searched(vectors, queries, 3000, tmp_path / "flat")
    for row, found in enumerate(docs):
        known = dict(zip(best[row].tolist(), values[row].tolist(), strict=True))
        assert [known[doc] for doc in found[found >= 0].tolist()] == scores[row, found >= 0].tolist()
        assert found[found >= 0].tolist() == sorted(found[found >= 0].tolist(), key=lambda doc: (-known[doc], doc))
    for k in (1, 7, 149):
        assert_same(index.search(queries, vectors, k), docs[:, :k], scores[:, :k])
    for row in (0, 9, 20):
        alone = slice(row, row + 1)
        assert_same(index.search(queries[alone], vectors, 150), docs[alone], scores[alone])
    again, reader = searched(vectors, queries, 150, tmp_path / "b", KINDS[kind]()), KINDS[kind]()
    reader.load(tmp_path / "a")
    for other in (again, reader.search(queries, vectors, 150)):
        assert_same(other, docs, scores)
        assert other.measured == measured


@pytest.mark.parametrize("kind", KINDS)
def test_bad_queries_and_vectors_are_rejected(tmp_path, kind):
    vectors = clustered(500, 16, seed=28)
    index = built(KINDS[kind](), vectors, tmp_path)
    for queries in (whole([[1] * 15]), whole([1] * 16), np.ones((1, 16))):
        with pytest.raises(ValueError, match=r"queries must be float32 \[Q, 16\]"):
            index.search(queries, vectors, 3)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            index.search(np.full((1, 16), value, np.float32), vectors, 3)
    assert index.search(whole([]).reshape(0, 16), vectors, 3)[0].shape == (0, 3)
    assert index.search(vectors[:2], vectors, 0)[0].shape == (2, 0)
    with pytest.raises(ValueError, match="finite"):
        KINDS[kind]().build(whole([[1, np.nan]] * 40), tmp_path)


def test_recall_by_hand(tmp_path):
    """Two lists: documents 0 to 2 around [1, 0], documents 3 and 4 around [0, 1]; a query searches one."""
    vectors = whole([[9, 0], [9, 1], [9, 2], [0, 9], [1, 9]])
    queries = whole([[9, 1], [0, 1], [0, 0]])
    docs, _, measured = searched(vectors, queries, 4, tmp_path, IVFFlat(nlist=2, nprobe=1))
    # [9, 1] scores 81, 82, 83, 9, 18: Flat finds 2, 1, 0, 4, the index three of them. [0, 1] scores 0, 1, 2, 9, 9: Flat
    # finds 3, 4, 2, 1, the index two. The query of zeros is left out.
    assert docs.tolist() == [[2, 1, 0, -1], [3, 4, -1, -1], [-1, -1, -1, -1]]
    assert measured == {"index_recall": (3 / 4 + 2 / 4) / 2}


@pytest.mark.slow
def test_generous_settings_find_nearly_all(tmp_path):
    vectors, queries = clustered(2000, 48, seed=30), clustered(50, 48, seed=31)
    generous = HNSW(ef_search=400), IVFFlat(nprobe=20), IVFPQ(nprobe=20, m=24, bits=4, candidates=1000)
    for index in generous:
        docs, _, measured = searched(vectors, queries, 50, tmp_path, index)
        best, _, _ = searched(vectors, queries, 50, tmp_path)
        shares = [len(set(a) & set(b)) / 50 for a, b in zip(docs.tolist(), best.tolist(), strict=True)]
        assert measured["index_recall"] == pytest.approx(np.mean(shares))
        assert measured["index_recall"] > 0.9


def test_all_lists_are_all_documents(tmp_path):
    vectors, queries = clustered(4000, 24, seed=32), clustered(30, 24, seed=33)
    vectors[::50] = 0  # nearest to no centroid, yet in a list
    docs, scores, measured = searched(vectors, queries, 4000, tmp_path, IVFFlat(nlist=30, nprobe=30))
    assert_same(searched(vectors, queries, 4000, tmp_path), docs, scores)
    assert measured == {"index_recall": 1.0}


def test_arguments_that_do_not_fit_k_or_the_corpus_are_rejected(tmp_path):
    vectors = clustered(500, 16, seed=36)
    for index, name in ((HNSW(ef_search=40), "ef_search"), (IVFPQ(m=4, bits=4, candidates=40), "candidates")):
        built(index, vectors, tmp_path)
        index.search(vectors[:2], vectors, 40)
        with pytest.raises(BadInput, match=f"index.{name} is 40: raise it to at least 41"):
            index.search(vectors[:2], vectors, 41)
    assert searched(vectors[:30], vectors[:2], 41, tmp_path, HNSW(ef_search=30))[0].shape == (2, 30)
    for index, rows, message in [
        (IVFFlat(nlist=31), 30, r"index.nlist is 31, more than the 30 documents"),
        (IVFPQ(m=4), 255, r"index.bits=8 needs 256 documents or more, not 255: use index=flat"),
        (IVFPQ(m=4), 0, r"needs 256 documents or more, not 0"),
        (IVFPQ(m=5, bits=4), 30, r"index.m is 5, which does not divide 12 dimensions: use one of \[1, 2, 3"),
    ]:
        with pytest.raises(BadInput, match=message):
            built(index, random(rows, 12, seed=37), tmp_path)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (HNSW, {"m": 1}, "index.m is 1: give a whole number from 2 to 512"),
        (HNSW, {"ef_search": 2.5}, "index.ef_search is 2.5"),
        (IVFFlat, {"nlist": 0}, "index.nlist is 0"),
        (IVFFlat, {"nlist": 8, "nprobe": 9}, r"index.nprobe is 9, more than nlist \(8\)"),
        (IVFPQ, {"m": 0}, "index.m is 0"),
        (IVFPQ, {"bits": 3}, "index.bits is 3: give a whole number from 4 to 12"),
        (IVFPQ, {"nprobe": "all"}, "index.nprobe is 'all'"),
    ],
)
def test_bad_arguments(kind, arguments, message):
    with pytest.raises(BadInput, match=message):
        kind(**arguments)
