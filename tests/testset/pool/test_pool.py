"""The files of a pool: what is written is read, and what is wrong is said."""

import json
from dataclasses import replace

import pytest
from documents_folders import lines
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_sets import judged_set

from harness.errors import BadInput
from harness.testset.pool import pool as pools
from harness.testset.pool.pool import About, DocumentsPlace, Pool, PooledPair, PooledRun

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
flags, ranks = st.booleans(), st.dictionaries(ids, st.integers(1, 1000))
pairs = st.builds(PooledPair, ids, ids, ranks, flags, flags, st.floats(0, 1, exclude_min=True))
ROW = {"query_id": "q1", "doc_id": "d1", "ranks": {"r": 1}, "seed": True, "near_duplicate": False, "pi": 1.0}
ABOUT = {
    "version": 1,
    "documents": {"path": "../docs", "sha256": "ab"},
    "runs": {"r": {"name": "bm25", "depth": 10, "models": {"encoder.model": "small"}}},
    "sample": 5,
    "seed": 0,
    "queries": {"q1": "ab"},
}


@pytest.fixture
def folder(tmp_path):
    """A test set with a pool of one pair; its queries are not read here."""
    (tmp_path / "testset.json").write_text('{"version": 1, "documents": {"path": "drafted"}}')
    (tmp_path / "pool.json").write_text(json.dumps(ABOUT))
    (tmp_path / "pool.jsonl").write_text(lines([ROW]))
    return tmp_path


@settings(max_examples=30)
@given(st.lists(pairs, unique_by=lambda pair: (pair.query_id, pair.doc_id)))
def test_what_is_written_is_read(tmp_path_factory, found):
    folder = tmp_path_factory.mktemp("ts")
    (folder / "testset.json").write_text('{"version": 1}')
    found = sorted(found, key=lambda pair: (pair.query_id, pair.doc_id))
    runs = {"r": PooledRun("bm25", 10, {"llm.model": "m"})}
    about = About(DocumentsPlace("../docs", "ab"), runs, 5, 7, {pair.query_id: "text" for pair in found})
    made = Pool(tuple(found), about)
    pools.write_pool(folder, made)
    assert pools.read_pool(folder) == made


def test_pairs_by_query(tmp_path):
    made = judged_set(tmp_path, topics=8)
    pool = made.pool()
    assert list(pool.by_query) == made.query_ids
    assert tuple(pair for pairs in pool.by_query.values() for pair in pairs) == pool.pairs
    assert not any(replace(pool, pairs=()).by_query.values())
    killed = replace(pool, about=replace(pool.about, queries={}))  # between the two files, of a first pool
    assert killed.by_query == {query_id: pairs for query_id, pairs in pool.by_query.items() if pairs}


def test_where_the_documents_are(folder):
    for name in ("given", "pooled", "drafted"):
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_text('{"version": 1}')
    (folder / "pool.json").write_text(json.dumps(ABOUT | {"documents": {"path": "pooled", "sha256": "ab"}}))
    assert pools.pooled_documents(folder, folder / "given").path == folder / "given"
    assert pools.pooled_documents(folder, None).path == folder / "pooled"
    (folder / "pool.json").unlink()
    assert pools.pooled_documents(folder, None).path == folder / "drafted"
    for wrong, message in {
        "": r"names no documents folder\. Give one: documents=FOLDER",
        ', "documents": 3': "is 3",
    }.items():
        (folder / "testset.json").write_text(f'{{"version": 1{wrong}}}')
        with pytest.raises(BadInput, match=message):
            pools.pooled_documents(folder, None)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("pool.jsonl", {"ranks": {"r": 0}}, "pool.jsonl:2: ranks is {'r': 0}"),
        ("pool.jsonl", {"pi": 0}, "pool.jsonl:2: pi is 0, but a probability"),
        ("pool.jsonl", {"doc_id": "d0"}, "pool.jsonl:2: the pair ('q1', 'd0') is already at"),
        ("pool.json", {"version": 2}, "pool.json: version is 2, but must be 1"),
        ("pool.json", None, "nothing is pooled. Run `harness testset pool testset="),
    ],
)
def test_wrong_files_are_refused(folder, name, change, message):
    if change is None:
        (folder / name).unlink()
    else:
        rows = [ABOUT | change] if name == "pool.json" else [ROW | {"doc_id": "d0"}, ROW | change]
        (folder / name).write_text(lines(rows))
    with pytest.raises(BadInput) as refused:
        pools.read_pool(folder)
    assert message in str(refused.value)
