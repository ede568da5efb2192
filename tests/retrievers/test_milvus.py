"""Vectors in Milvus against the exact index here, and collections that are half-filled, wrong, missing or contested.

In milvus-lite; with HARNESS_TEST_MILVUS=http://host:port also in that server.
"""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from fakes import TrigramEncoder

from retrievers.base import BadInput, Failed, Ranking
from retrievers.dense.dense import Dense
from retrievers.dense.milvus import MilvusIndex
from retrievers.dense.vectors import Flat
from retrievers.engines import collection, proposing
from retrievers.engines.milvus import Milvus, connect, is_unfinished
from retrievers.sharding import merged
from retrievers.testing import check_retriever


def random(rows, width, seed):
    vectors = np.random.default_rng(seed).standard_normal((rows, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def whole(rows, width, seed, most=3):
    """Small whole numbers: many products tie."""
    return np.random.default_rng(seed).integers(-most, most + 1, (rows, width)).astype(np.float32)


@pytest.fixture
def build(milvus, tmp_path):
    """Builds an index; its collection is dropped at the end."""
    folders = iter(range(100))
    made = []

    def built(vectors, index=None):
        folder = tmp_path / f"index{next(folders)}"
        folder.mkdir()
        index = index or MilvusIndex()
        made.append(folder)
        index.build(vectors, folder)
        return index, folder

    yield built
    for folder in made:
        with contextlib.suppress(FileNotFoundError):
            connect().drop(json.loads((folder / "engine.json").read_text())["collection"])


def flat(vectors, queries, k, tmp_path):
    index = Flat()
    index.build(vectors, tmp_path)
    return index.search(queries, vectors, k)


def assert_as_flat(found, vectors, queries, k, tmp_path):
    expected = flat(vectors, queries, k, tmp_path)
    np.testing.assert_array_equal(found.docs, expected.docs)
    np.testing.assert_array_equal(found.scores, expected.scores)  # in every bit


CASES = {
    "unit vectors": (random(700, 48, 1), random(20, 48, 2)),
    "ties": (whole(400, 3, 3), whole(20, 3, 4)),
    "one dimension": (whole(60, 1, 5), whole(4, 1, 6)),
    "fewer documents than asked for": (random(5, 8, 7), random(3, 8, 8)),
    "one document": (random(1, 8, 9), random(3, 8, 10)),
    "vectors of zeros": (np.zeros((40, 8), np.float32), random(3, 8, 11)),
    "long vectors": (1e15 * random(50, 8, 12), 1e15 * random(3, 8, 13)),
}


@pytest.mark.parametrize("case", CASES)
def test_it_finds_what_the_exact_index_finds(build, tmp_path, case):
    vectors, queries = CASES[case]
    index, folder = build(vectors)
    for k in (1, 10, 30):
        found = index.search(queries, vectors, k)
        assert_as_flat(found, vectors, queries, k, tmp_path)
        assert found.measured == {"certified": 1.0}
    other = MilvusIndex()
    other.load(folder)
    assert_as_flat(other.search(queries, vectors, 10, measure=False), vectors, queries, 10, tmp_path)


@pytest.mark.slow
def test_it_keeps_the_contract(milvus, tmp_path):
    before = set(connect().collections())
    check_retriever(lambda: Dense(TrigramEncoder(), MilvusIndex()), tmp_path)
    made = set(connect().collections()) - before
    assert not any(map(is_unfinished, made))
    for name in made:
        connect().drop(name)


def test_queries_of_zeros_find_nothing_and_are_not_counted(build):
    vectors = random(30, 4, 1)
    index, _ = build(vectors)
    queries = np.concatenate([np.zeros((1, 4), np.float32), vectors[:1]])
    found = index.search(queries, vectors, 2)
    assert found.docs[0].tolist() == [-1, -1]
    assert found.docs[1, 0] == 0
    assert found.measured == {"certified": 1.0}
    assert index.search(queries[:1], vectors, 2).measured == {}


def test_no_documents_and_no_queries_need_no_collection(build, tmp_path):
    nothing = np.zeros((0, 0), np.float32)
    index, folder = build(nothing)
    assert index.search(np.zeros((2, 0), np.float32), nothing, 5).docs.shape == (2, 0)
    assert json.loads((folder / "engine.json").read_text())["rows"] == 0


def test_what_is_not_finite_is_refused_before_it_is_sent(monkeypatch, build, tmp_path):
    vectors = random(10, 4, 1)
    index, _ = build(vectors)
    with monkeypatch.context() as nowhere:
        nowhere.delenv("HARNESS_MILVUS_URI")
        with pytest.raises(ValueError, match="queries must be finite"):
            index.search(np.full((1, 4), np.nan, np.float32), vectors, 2)
        with pytest.raises(ValueError, match="vectors must be finite"):
            MilvusIndex().build(np.full((1, 4), np.inf, np.float32), tmp_path)


def test_more_candidates_are_asked_for_until_ties_are_certain(monkeypatch, build, tmp_path):
    """60 equal vectors tie at the cut: 5 + 20 and 50 candidates leave out some of them, 100 do not."""
    vectors = np.repeat(np.float32([[2, 0], [1, 0]]), 60, axis=0)
    queries = vectors[:1]
    index, _ = build(vectors)
    asked = []
    search = collection.found_ids
    monkeypatch.setattr(
        "retrievers.dense.milvus.found_ids", lambda *words: (asked.append(words[-1]), search(*words))[1]
    )
    found = index.search(queries, vectors, 5)
    assert_as_flat(found, vectors, queries, 5, tmp_path)
    assert asked == [25, 50, 100]
    assert found.measured == {"certified": 1.0}


def test_what_the_limit_leaves_uncertain_is_measured(monkeypatch, build):
    monkeypatch.setattr(proposing, "LIMIT", 40)
    vectors = np.concatenate([np.repeat(whole(1, 4, 1), 60, axis=0), np.zeros((3, 4), np.float32)])
    index, _ = build(vectors)
    found = index.search(np.concatenate([vectors[:1], -vectors[:1]]), vectors, 5)
    # Of 60 equal documents 40 are proposed, and any 5 tie; for the other query three documents of 0 precede 60 ties.
    assert found.measured == {"certified": 0.0}
    assert (found.scores[0] == found.scores[0, 0]).all()
    with pytest.raises(BadInput, match="depth is 41: Milvus returns at most 40"):
        index.search(vectors[:1], vectors, 41)


def test_the_ceiling_is_two_roundings_above_the_worst_candidate(build):
    """A query that the rounding of float32 cannot tell apart is not certified by scores alone."""
    near = np.ones((40, 8), np.float32)
    near[:, 0] += np.arange(40, dtype=np.float32) * 2.0**-23  # scores 8 + i * 2^-23; the slack is about 8 * 8 * 2^-24
    index, _ = build(near)
    asked = np.ones((1, 8), np.float32)
    found = index.search(asked, near, 5)  # 25 candidates span 24 * 2^-23 = 48 * 2^-24, less than twice the slack
    assert found.docs.tolist() == [[39, 38, 37, 36, 35]]
    assert found.measured == {"certified": 1.0}  # by 50 candidates, which are all


def test_the_cache_keeps_neither_address_nor_token(monkeypatch, build):
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", "root:Sesam-77")
    _, folder = build(random(10, 4, 1))
    [file] = folder.iterdir()
    assert set(json.loads(file.read_text())) == {"collection", "rows", "longest"}


def test_equal_vectors_share_a_collection(monkeypatch, build):
    vectors = random(20, 4, 1)
    build(vectors)
    monkeypatch.setattr(collection, "_send", None)  # would be called
    build(vectors.copy())


def other_rows(engine, name):
    engine.client.upsert(name, [{"id": 0, "vector": [9.0] * 4}])


def fewer_rows(engine, name):
    engine.client.delete(name, ids=[3])


def more_rows(engine, name):
    engine.client.upsert(name, [{"id": 77, "vector": [9.0] * 4}])


def no_collection(engine, name):
    engine.drop(name)


SPOILT = {
    other_rows: "holds other vectors",
    fewer_rows: "has 19 rows instead of 20",
    more_rows: "has 21 rows instead of 20",
    no_collection: "is missing",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda one: one.__name__)
def test_a_collection_that_is_missing_or_wrong_is_filled_again(monkeypatch, build, tmp_path, caplog, spoil):
    monkeypatch.setattr(collection, "SETTLING", 0.5)
    vectors, queries = random(20, 4, 1), random(2, 4, 2)
    index, folder = build(vectors)
    spoil(connect(), index._stored.collection)
    other = MilvusIndex()
    other.load(folder)
    assert_as_flat(other.search(queries, vectors, 3), vectors, queries, 3, tmp_path)
    assert f"{SPOILT[spoil]}: it is filled again" in caplog.text
    assert connect().count(index._stored.collection) == 20


def test_an_index_of_another_kind_is_not_believed(build, caplog):
    vectors = random(20, 4, 1)
    index, _ = build(vectors)
    name, client = index._stored.collection, connect().client
    client.release_collection(name)
    client.drop_index(name, "vector")
    kind = client.prepare_index_params()
    kind.add_index("vector", index_type="FLAT", metric_type="L2")
    client.create_index(name, kind)
    build(vectors)
    assert "is indexed by FLAT and L2 instead of FLAT and IP: it is filled again" in caplog.text


class Stopped(Exception):
    pass


def test_what_an_interrupted_build_leaves_is_never_believed(monkeypatch, build, tmp_path):
    vectors, queries = random(20, 4, 1), random(2, 4, 2)
    before = connect().collections()
    monkeypatch.setattr(collection, "MESSAGE", 5 * 32)  # 5 rows a message

    def stop(done, total, unit):
        assert (total, unit) == (20, "documents sent to Milvus")
        if done >= 10:
            raise Stopped

    index = MilvusIndex()
    index.progress = stop
    with monkeypatch.context() as killed:
        killed.setattr(Milvus, "drop", lambda *_: None)  # as where the process is killed
        with pytest.raises(Stopped):
            build(vectors, index)
    [left] = set(connect().collections()) - set(before)
    assert is_unfinished(left)
    index, _ = build(vectors)
    assert_as_flat(index.search(queries, vectors, 3), vectors, queries, 3, tmp_path)
    connect().drop(left)


def test_a_build_that_fails_drops_what_it_began(monkeypatch, build):
    before = connect().collections()
    index = MilvusIndex()
    index.progress = lambda *_: (_ for _ in ()).throw(Stopped)
    with pytest.raises(Stopped):
        build(random(20, 4, 1), index)
    assert connect().collections() == before


def test_an_engine_without_room_says_so_and_keeps_nothing(monkeypatch, build):
    from pymilvus.exceptions import MilvusException

    def full(*_, **__):
        raise MilvusException(1, "write /data/segment: no space left on device")

    before, engine = connect().collections(), connect()
    with monkeypatch.context() as disk:
        disk.setattr(engine.client, "upsert", full)
        with pytest.raises(Failed, match=r"failed while receiving rows: .*no space left on device") as caught:
            build(random(20, 4, 1))
    assert "run the same command" in str(caught.value)
    assert connect().collections() == before


def test_shards_are_collections_of_their_own(build, tmp_path):
    """Adding a document to the last shard fills one collection more, and leaves the first as it is."""
    vectors, queries = random(31, 4, 1), random(3, 4, 2)
    (first, _), (last, _) = build(vectors[:20]), build(vectors[20:])
    names = {one._stored.collection for one in (first, last)}
    query_ids, found = ("a", "b", "c"), []
    for index, start in ((first, 0), (last, 20)):
        hits = index.search(queries, vectors[start : start + 20][: 31 - start], 5)
        table = tuple(f"d{row:02}" for row in range(start, min(start + 20, 31)))
        found.append(Ranking(query_ids, table, hits.docs, hits.scores, hits.measured))
    expected = flat(vectors, queries, 5, tmp_path)
    together = merged(found, 5)
    assert [[doc_id for doc_id, _ in together.row(row)] for row in range(3)] == [
        [f"d{row:02}" for row in docs] for docs in expected.docs.tolist()
    ]
    np.testing.assert_array_equal(together.scores, expected.scores)
    assert together.measured == {"certified": 1.0}
    more, _ = build(np.concatenate([vectors[20:], random(1, 4, 3)]))
    assert more._stored.collection not in names
    assert build(vectors[:20])[0]._stored.collection in names


def test_of_two_builders_the_first_wins(monkeypatch, build, tmp_path):
    vectors, queries = random(20, 4, 1), random(2, 4, 2)
    before, index = connect().collections(), MilvusIndex()
    index.progress = lambda *_: build(vectors)  # another one, from the beginning to the end
    _, folder = build(vectors, index)
    assert_as_flat(index.search(queries, vectors, 3), vectors, queries, 3, tmp_path)
    stored = json.loads((folder / "engine.json").read_text())
    assert set(connect().collections()) - set(before) == {stored["collection"]}


def test_too_many_dimensions_are_refused(milvus, tmp_path):
    with pytest.raises(BadInput, match="32,768 dimensions at most, not 32,769"):
        MilvusIndex().build(np.zeros((1, 32769), np.float32), tmp_path)


def test_an_engine_that_returns_too_few_is_a_failure(monkeypatch, build):
    vectors = random(20, 4, 1)
    index, _ = build(vectors)
    monkeypatch.setattr("retrievers.dense.milvus.found_ids", lambda *_: [np.zeros(20, np.int64)])
    with pytest.raises(Failed, match="returned 20 documents, not 20 different ones"):
        index.search(vectors[:1], vectors, 3)


def test_rows_are_compared_bit_by_bit(milvus):
    """0 and -0 are equal numbers, but not equal bits."""
    from retrievers.dense.milvus import _contents

    contents = _contents("rh_" + "0" * 40, np.array([[0.0, 1.0]], np.float32))
    assert contents.equal([0.0, 1.0], 0)
    assert not contents.equal([-0.0, 1.0], 0)
    assert replace(contents, rows=2).rows == 2
