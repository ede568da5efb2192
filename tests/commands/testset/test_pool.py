"""`harness testset pool` from runs that are logged: what is pooled, added and said, and what is refused."""

import json

import pytest
from documents_folders import lines
from judged_sets import judged_set

from harness.testset.pool import pool as pools

RUN = ("dataset=testset", "dataset.path=ts", "tokenizer=word", "metrics=[map@3,ndcg@3]", "objective=map@3", "depth=9")
POOL = ("testset=ts", "experiment_name=e", "metric=map@3", "pool.depth=3", "pool.sample=2", "format=json")


@pytest.fixture
def made(harness, tmp_path):
    """A test set of 8 queries, without runs."""
    return judged_set(tmp_path, topics=8)


@pytest.fixture
def first(harness, made):
    """The same with a run of BM25 in the experiment `e`."""
    assert harness("run", *RUN, "retriever=bm25", "experiment_name=e").code == 0
    return made


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def lists_of(folder):
    """query_id -> documents of the run in this folder, as it logged them."""
    found = {}
    for line in (folder / "run.trec").read_text().splitlines():
        found.setdefault(line.split()[0], []).append(line.split()[2])
    return found


@pytest.mark.slow
def test_a_pool_of_runs_evidence_and_a_sample_that_grows(harness, first, tmp_path):
    found = harness("testset pool", *POOL).json
    [folder] = (tmp_path / "outputs" / "runs").iterdir()
    bm25, pool = lists_of(folder), pools.read_pool(tmp_path / "ts")
    [run_id] = pool.about.runs
    assert pool.about.runs[run_id].depth == 3
    assert list(pool.by_query) == first.query_ids, "queries of all kinds"
    for topic, (query_id, pairs) in enumerate(pool.by_query.items()):
        retrieved = bm25.get(query_id, [])
        ranked = {pair.doc_id: pair.ranks[run_id] for pair in pairs if pair.ranks}
        assert ranked == {doc_id: rank for rank, doc_id in enumerate(retrieved[:3], start=1)}
        answered = first.kinds[query_id] not in ("none", "unanswerable")
        seeds, copies = [first.doc_ids[topic][1]] * answered, [first.doc_ids[topic][3]] * (answered and topic % 3 == 0)
        assert [pair.doc_id for pair in pairs if pair.seed] == seeds
        assert [pair.doc_id for pair in pairs if pair.near_duplicate] == copies
        known = {*retrieved[:3], *seeds, *copies}
        rest = [doc_id for doc_id in retrieved[3:] if doc_id not in known]
        drawn = [pair for pair in pairs if pair.doc_id not in known]
        assert len(drawn) == min(2, len(rest))
        assert all(pair.doc_id in rest and pair.pi == len(drawn) / len(rest) for pair in drawn)
    assert found["pairs"] == found["new"] == len(pool.pairs) == sum(found["origins"].values())
    assert found["unjudged"] == {"needs_retrieval": len(pool.pairs) - len(pool.by_query["q00006"]),
                                 "needs_none": len(pool.by_query["q00006"])}  # fmt: skip

    written = (tmp_path / "ts" / "pool.jsonl").read_bytes()
    assert harness("testset pool", *POOL).json["new"] == 0
    assert (tmp_path / "ts" / "pool.jsonl").read_bytes() == written

    words = ("retriever=bm25", "retriever.bm25.k1=9", "experiment_name=other", "format=json")
    other = harness("run", *RUN, *words).json["run_id"]
    added = harness("testset pool", *POOL, f"runs=[{other[:8]}]").json
    assert len(added["runs"]) == 2
    later = pools.read_pool(tmp_path / "ts")
    assert {(one.query_id, one.doc_id) for one in pool.pairs} <= {(one.query_id, one.doc_id) for one in later.pairs}
    assert added["new"] == len(later.pairs) - len(pool.pairs)

    first.judge("human:kim", queries=first.query_ids)
    said = harness("testset pool", *POOL[:-1]).out
    assert "Not judged: 0." in said
    assert "Reusability: without the documents that no other run pooled, a run's ndcg@3 would change by" in said
    assert "harness testset freeze testset=ts" in said, "nothing is left to judge"
    assert harness("testset pool", *POOL).json["reusability"]["queries"] == 6


def test_edited_queries(harness, first, tmp_path):
    pairs = harness("testset pool", *POOL).json["pairs"]
    judged = first.judge("human:kim")
    queries = rows(first.folder / "queries.jsonl")
    queries[0]["msg"][0]["content"] += " 정말?"
    (first.folder / "queries.jsonl").write_text(lines(queries[:-1]))
    refused = harness("testset pool", *POOL)
    assert refused.code == 2
    assert "not made with the queries that the test set has now (they may have been edited). Repeat" in refused.err

    assert harness("run", *RUN, "retriever=bm25", "experiment_name=e").code == 0
    found = harness("testset pool", *POOL).json
    gone, void = (sum(one.query_id == query_id for one in judged) for query_id in ("q00007", "q00000"))
    assert found["notes"][-2:] == [
        "No longer in the test set: 1 query of the former pool (q00007).",
        f"Edited after judging: 1 query (q00000), so {void} judgements no longer count.",
    ]
    assert found["pairs"] == pairs - gone + found["new"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["testset=nowhere"], "testset=nowhere: there is no such folder"),
        (["tracking=none"], "tracking=none keeps no runs to choose from"),
        (["runs=[0123abcd]"], "run=0123abcd"),
        ([], "`harness run dataset=testset dataset.path=ts experiment_name=e retriever=bm25`"),
    ],
)
def test_bad_input(harness, made, words, message):
    refused = harness("testset pool", *POOL[:-1], *words)
    assert refused.code == 2
    assert message in refused.err
    assert not (made.folder / "pool.jsonl").exists()


def test_a_pool_that_does_not_fit_is_refused(harness, made, tmp_path):
    made.pool()
    pool, manifest = made.folder / "pool.jsonl", made.folder / "pool.json"
    written, about = pool.read_text(), json.loads(manifest.read_text())
    gone = written.replace(made.doc_ids[0][1], "gone", 1)
    for changed, text, message in (
        ({"queries": {"elsewhere": "ab"}}, "", "the pool has none of the queries of ts (elsewhere)"),
        ({}, gone, "docs lacks 1 pooled document: gone. Were the files prepared again?"),
        ({"documents": {"path": "../none", "sha256": "ab"}}, written, "pool.json: documents.path="),
    ):
        manifest.write_text(json.dumps(about | changed))
        pool.write_text(text)
        refused = harness("testset pool", *POOL[:-1])
        assert (refused.code, message in refused.err) == (2, True), refused.err
        assert pool.read_text() == text
