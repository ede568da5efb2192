"""The compiled search of BM25 against plain sums in NumPy: the same documents, ties and bits, however it searches."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrievers.base import Document
from retrievers.lexical import _bm25_bounded, _bm25_frequent, _bm25_kernels, bm25_index
from retrievers.lexical.bm25 import BM25, DocIds
from retrievers.lexical.tokenize import Tokens

WAYS = {
    "postings": {"LEAST_WORK": 1 << 62},
    "bounds": {"LEAST_WORK": 0, "FILLING": 0},
}


@dataclass
class Searched:
    """An index of generated texts. Term 0 is in most of them, and the others become rarer."""

    engine: bm25_index.SparseEngine
    terms: int

    def rows(self, asked, k):
        ids, offsets = np.concatenate([*asked, []]).astype(np.int32), np.cumsum([0, *map(len, asked)])
        return self.engine.search(Tokens(names(self.terms), ids, offsets), k)

    def expected(self, asked, k):
        """Add up each query's scores in the order of its terms. Ties go to the smaller document number."""
        engine, floors = self.engine, self.engine._columns(names(self.terms)).floors
        docs, scores = np.full((len(asked), k), -1, np.int32), np.zeros((len(asked), k))
        for row, terms in enumerate(asked):
            sums, touched = np.full(engine._n_docs, -0.0), np.zeros(engine._n_docs, bool)
            for term in terms:
                span = slice(engine._starts[term], engine._starts[term + 1])
                sums[engine._docs[span]] += engine._scores[span]
                touched[engine._docs[span]] = True
            floor = 0.0
            for term in terms:
                floor += floors[term]
            found = np.flatnonzero(touched)
            best = found[np.lexsort([found, -(sums + floor)[found]])][:k]
            docs[row, : len(best)], scores[row, : len(best)] = best, (sums + floor)[best]
        return docs, scores


def names(count):
    return tuple(f"w{term}" for term in range(count))


def searched(folder, variant="lucene", n_docs=20_000, terms=60, seed=1, steep=1.2, same=0.0):
    """Index texts of 0 to 11 terms. same: the share, or each text's probability, of repeating the first text."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 12, n_docs)
    ids = np.minimum(generator.zipf(steep, lengths.sum()) - 1, terms - 1).astype(np.int32)
    texts = np.split(ids, np.cumsum(lengths)[:-1])
    texts = [texts[0] if copied else text for text, copied in zip(texts, generator.random(n_docs) < same, strict=True)]
    offsets = np.cumsum([0, *map(len, texts)])
    DocIds.save(folder, [Document(f"{n:07d}", "") for n in range(n_docs)])
    engine = bm25_index.SparseEngine(BM25(None, variant=variant)._engine._parameters, 2)
    engine.build(Tokens(names(terms), np.concatenate(texts).astype(np.int32), offsets), folder)
    engine.load(folder)
    return Searched(engine, terms)


def use(monkeypatch, way):
    monkeypatch.setattr(bm25_index, "is_small", lambda count: False)
    for name, value in WAYS[way].items():
        monkeypatch.setattr(_bm25_frequent, name, value)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))


ASKED = [
    [0],  # the term of most documents, with a negative idf in okapi
    [0, 1, 2, 3],
    [40, 0, 1],
    [3, 3, 0, 3],  # repeated terms count again
    [59, 58, 57, 0, 1, 0, 2],
    [0, 59],
    [],
    list(range(30)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("variant", ["lucene", "okapi", "l", "plus"])
def test_rows_are_the_same_bits_however_they_are_found(variant, way, tmp_path, monkeypatch):
    use(monkeypatch, way)
    index = searched(tmp_path, variant)
    for k in (1, 10, 100, 600):
        assert_same(index.rows(ASKED, k), index.expected(ASKED, k))


@pytest.mark.parametrize("way", WAYS)
def test_ties_of_equal_documents_go_to_the_first_ones(way, tmp_path, monkeypatch):
    use(monkeypatch, way)
    index = searched(tmp_path, same=0.3, seed=4)
    copied = [[term] for term in range(8)] + [[a, b, 0] for a in range(4) for b in range(4)]
    for k in (5, 50):
        assert_same(index.rows(copied, k), index.expected(copied, k))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(st.lists(st.integers(0, 59), max_size=12), min_size=1, max_size=6),
    k=st.sampled_from([1, 3, 20, 200]),
    variant=st.sampled_from(["lucene", "okapi", "plus"]),
    way=st.sampled_from([*WAYS]),
)
def test_any_queries(asked, k, variant, way, tmp_path_factory, monkeypatch):
    with monkeypatch.context() as patched:
        use(patched, way)
        if (index := BUILT.get((variant, way))) is None:
            index = BUILT[variant, way] = searched(tmp_path_factory.mktemp("index"), variant, n_docs=9000, same=0.1)
        assert_same(index.rows(asked, k), index.expected(asked, k))


BUILT = {}


def test_these_searches_use_bounds(tmp_path, monkeypatch):
    # With bounds that are too low, documents are lost: so the cases above do search by bounds.
    use(monkeypatch, "bounds")
    index = searched(tmp_path)
    index.rows(ASKED, 10)
    index.engine._frequent.table.bounds[:] //= 4
    lost = [(index.rows([asked], 10)[0] != index.expected([asked], 10)[0]).any() for asked in ASKED]
    assert sum(lost) >= 3


@pytest.mark.parametrize("first", [0, 17_000, 33_000])
def test_from_a_window_with_too_many_equal_documents_on_a_search_is_exhaustive(first, tmp_path, monkeypatch):
    use(monkeypatch, "bounds")
    index = searched(tmp_path, n_docs=40_000, same=np.arange(40_000) >= first, seed=4)
    asked = [*ASKED, [27, 42, 1]]  # the last one has terms of the first text
    assert_same(index.rows(asked, 30), index.expected(asked, 30))


@pytest.mark.parametrize("n_docs", [1, 511, 512, 513, 4095, 4096, 4097, 4608])
def test_the_last_block_ends_with_the_corpus(n_docs, tmp_path, monkeypatch):
    use(monkeypatch, "bounds")
    index = searched(tmp_path, n_docs=n_docs, terms=9)
    asked = [[0], [1, 0], [8, 2]]
    assert_same(index.rows(asked, min(n_docs, 7)), index.expected(asked, min(n_docs, 7)))


@pytest.mark.parametrize(
    ("frequent", "peak", "pays"),
    [
        (2_301, 1.0, True),
        (2_300, 1.0, False),
        (2_301, 0.0, False),  # scores may be negative
        (2_301, 9e4, False),  # a sum of bounds could exceed 16 bits
    ],
)
def test_bounds_are_used_where_they_are_possible_and_pay(frequent, peak, pays):
    # Term 1 has a row. Adding up this row costs 0.02 * 1,000 = 20, instead of the term's postings. The query costs
    # 1,200, and its candidates 4.5 * 2 terms * 120 = 1,080.
    columns = _bm25_frequent.Columns(
        np.array([0, 10]), np.array([10, 10 + frequent]), np.zeros(2), np.array([peak, 1.0])
    )
    queries = Tokens(names(2), np.array([1, 0, 0], np.int32), np.array([0, 2, 2, 3]))  # the others have no row
    found = _bm25_frequent.bounds_pay(columns, np.array([-1, 0]), queries, 120, 1000, 1.0)
    assert found.tolist() == [pays, False, False]


def test_searches_at_the_same_time_fill_rows_once(tmp_path, monkeypatch):
    use(monkeypatch, "bounds")
    index, filled, fill = searched(tmp_path), [], _bm25_bounded.fill_rows

    def slow(starts, ends, docs, scores, terms, rows, *table):
        time.sleep(0.01)
        filled.extend(rows[terms])
        fill(starts, ends, docs, scores, terms, rows, *table)

    monkeypatch.setattr(_bm25_bounded, "fill_rows", slow)
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: index.rows(ASKED, 10), range(4))]
    assert len(filled) == len(set(filled)) > 1
    for rows in found:
        assert_same(rows, index.expected(ASKED, 10))


def test_an_index_without_peaks_is_still_searched(tmp_path, monkeypatch):
    # Indexes made before version 0.10 have no such file.
    use(monkeypatch, "bounds")
    index = searched(tmp_path)
    rows = index.rows(ASKED, 10)
    (tmp_path / "peaks.npy").unlink()
    index.engine.load(tmp_path)
    assert_same(index.rows(ASKED, 10), rows)


def test_rows_of_frequent_terms_are_made_only_where_they_pay(tmp_path, monkeypatch):
    monkeypatch.setattr(bm25_index, "is_small", lambda count: False)
    monkeypatch.setattr(_bm25_frequent, "LEAST_WORK", 50_000)
    index = searched(tmp_path, n_docs=9000)
    index.rows([[0]], 10)
    assert not index.engine._frequent._filled.any()
    index.rows([[0]] * 20, 10)
    assert index.engine._frequent._filled.sum() == 1


NEAR = [0.0, -0.0, 1.0, *(1 + steps * 2.0**-52 for steps in range(1, 6)), -1.5, np.nextafter(-1.5, 0), 1e300, 3e-320]


@given(
    rows=st.lists(st.lists(st.sampled_from(NEAR) | st.floats(-9, 9), max_size=40), min_size=1, max_size=19),
    pads=st.integers(0, 3),
)
def test_rows_are_ordered_by_score_then_place(rows, pads):
    width = max(map(len, rows)) + pads
    docs, scores = np.full((len(rows) + 2, width), -1, np.int32), np.full((len(rows) + 2, width), -np.inf)
    for row, values in enumerate(rows, start=1):
        docs[row, : len(values)], scores[row, : len(values)] = np.arange(len(values)) * 3, values
    _bm25_kernels.order_rows(docs, scores, 1, len(rows) + 1)
    assert (scores[[0, -1]] == -np.inf).all()  # other rows stay
    for values, found, sums in zip(rows, docs[1:-1].tolist(), scores[1:-1].tolist(), strict=True):
        order = sorted(range(len(values)), key=lambda place, values=values: (-values[place], place))
        assert found == [3 * place for place in order] + [-1] * (width - len(values))
        assert sums == [values[place] for place in order] + [0.0] * (width - len(values))
