"""Retrieval shard by shard gives the documents and scores of one index, and nothing that is finished is done twice."""

import re
from dataclasses import replace

import pytest
from fakes import TrigramEncoder

from harness.cluster.cluster import Local
from harness.config.canonical import digest
from harness.config.components import component_identity
from harness.data.contest import Sample
from harness.data.dataset import Dataset, checked_dataset, in_memory
from harness.errors import BadInput, Failed
from harness.experiment import sharded, steps
from harness.experiment.ingest import sharded as ingested
from harness.experiment.plan import Plan
from harness.experiment.session import Session
from harness.storage.cache import Cache
from retrievers.dense.dense import Dense
from retrievers.lexical.bm25 import BM25
from retrievers.testing import same

WORD = {"_target_": "retrievers.lexical.tokenize.Word"}
LEXICAL = {"_target_": "retrievers.lexical.bm25.BM25", "tokenizer": WORD}
FLAT = {"_target_": "retrievers.dense.vectors.Flat"}
LSA = {"_target_": "retrievers.dense.lsa.LSA", "dimensions": 16}
USE = {"_target_": "retrievers.dense.encoders.UseMultilingual"}
DENSE = {"_target_": "retrievers.dense.dense.Dense", "encoder": USE, "index": FLAT}
TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "tracking=none", "format=json")


class Counting(Local):
    """Counts the jobs by name."""

    def __init__(self, shard=None):
        super().__init__(shard)
        self.done = []

    def run(self, work, progress=None):
        self.done += [work.do.__name__] * len(work.jobs)
        return super().run(work, progress)


@pytest.fixture(scope="module")
def sample():
    return checked_dataset(Sample(), "sample")


@pytest.fixture
def own(tmp_path):
    return Cache(tmp_path / "cache")


def session(sample, cache, size, documents=None):
    """A session on the sample in shards of about `size` documents; None: whole."""
    documents = documents or (ingested(Sample().documents(), size, cache) if size else in_memory(Sample().documents()))
    data = Dataset("sample", documents, sample.queries, None)
    return Session(data, sample.queries, cache, timed="never", cluster=Counting(size))


def ranked(node, opened, depth=20):
    return steps.retrieve({"one": node}, opened, depth)["one"]


@pytest.mark.parametrize("variant", ["lucene", "okapi", "l", "plus"])
def test_bm25_ranks_as_one_index_does(sample, own, tmp_path, variant):
    node = LEXICAL | {"variant": variant}
    opened = session(sample, own, 20)
    assert len(opened.dataset.documents.shards) > 3
    assert same(ranked(node, opened), ranked(node, session(sample, Cache(tmp_path / "other"), None)))


def test_a_ranking_by_shards_is_found_by_a_run_on_the_whole_and_the_other_way_round(sample, own, monkeypatch):
    whole, cut = session(sample, own, None), session(sample, own, 20)
    assert digest(steps.index_identity(LEXICAL, whole.dataset)) == digest(steps.index_identity(LEXICAL, cut.dataset))
    first = ranked(LEXICAL, cut)
    monkeypatch.setattr(BM25, "search", None)
    assert same(ranked(LEXICAL, whole), first)
    other = LEXICAL | {"k1": 0.9}
    monkeypatch.undo()
    first = ranked(other, whole)
    cut.cluster.done.clear()
    assert same(ranked(other, cut), first)
    assert cut.cluster.done == []


def test_nothing_that_is_finished_is_done_twice(sample, own):
    opened = session(sample, own, 20)
    shards = len(opened.dataset.documents.shards)
    ranked(LEXICAL, opened)
    passes = ["survey"] * shards + ["index"] * shards + ["search_shards"] * shards
    assert opened.cluster.done == passes
    opened.cluster.done.clear()
    ranked(LEXICAL | {"k1": 0.9}, opened)
    assert opened.cluster.done == ["index"] * shards + ["search_shards"] * shards, "of the same survey"
    opened.cluster.done.clear()
    ranked(LEXICAL, opened, depth=30)
    assert opened.cluster.done == ["search_shards"] * shards


def test_a_killed_search_and_a_damaged_index_are_made_up_for(sample, own, monkeypatch):
    opened = session(sample, own, 20)
    plain, calls = BM25.search, []

    def dying(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise Failed("the node died")
        return plain(self, *arguments)

    monkeypatch.setattr(BM25, "search", dying)
    with pytest.raises(Failed, match="the node died"):
        ranked(LEXICAL, opened)
    shards = len(opened.dataset.documents.shards)
    opened.cluster.done.clear()
    job = sharded.Shards(LEXICAL, opened.dataset.documents.shards, own, opened.cluster, lambda *_: None).jobs[3]
    (own.found("indexes", job.index) / "scores.npy").write_bytes(b"")
    found = ranked(LEXICAL, opened)
    assert opened.cluster.done == ["search_shards"] * shards, "no index is built again, but the damaged one"
    assert same(found, ranked(LEXICAL, session(sample, Cache(own.root / "other"), None)))


@pytest.fixture
def trigrams(monkeypatch):
    made = TrigramEncoder()
    for name in ("encode_documents", "encode_queries"):
        monkeypatch.setattr(f"retrievers.dense.encoders.UseMultilingual.{name}", getattr(made, name))


def test_dense_ranks_the_same_vectors_as_one_index_does(sample, own, tmp_path, trigrams):
    cut, whole = session(sample, own, 20), session(sample, Cache(tmp_path / "other"), None)
    assert same(ranked(DENSE, cut), ranked(DENSE, whole))
    shards = len(cut.dataset.documents.shards)
    assert cut.cluster.done == ["index"] * shards + ["ask"] + ["search_shards"] * shards
    assert digest(steps.index_identity(DENSE, cut.dataset)) != digest(steps.index_identity(DENSE, whole.dataset))


def test_one_shard_is_the_whole(sample, own):
    one = session(sample, own, 100_000)
    assert len(one.dataset.documents.shards) == 1
    assert steps.index_identity(DENSE, one.dataset) == steps.index_identity(DENSE, session(sample, own, None).dataset)


def test_more_documents_change_the_index_of_few_shards(sample, own, trigrams):
    """Where shards are independent: BM25 weighs each anew, since a document changes the mean length."""
    everything = in_memory(Sample().documents())

    class Fewer(Sample):
        def documents(self):
            return [one for one in everything if one is not everything[40]]

    ranked(DENSE, session(sample, own, 20, ingested(Fewer().documents(), 20, own)))
    more = session(sample, own, 20)
    ranked(DENSE, more)
    assert more.cluster.done.count("index") == 1


def test_a_job_without_its_shard_and_a_node_that_would_give_other_scores_are_refused(sample, own):
    job = sharded.ShardJob(str(own.root), LEXICAL, "0" * 64, digest(component_identity(LEXICAL)))
    with pytest.raises(Failed, match=r"The shard 000000000000… of the documents is no longer in the cache"):
        sharded.survey(job)
    shard = session(sample, own, 20).dataset.documents.shards[0].fingerprint
    with pytest.raises(Failed, match=r"retriever/bm25 would give other scores on this node"):
        sharded.survey(replace(job, shard=shard, expected="of another node"))


FITTED = ("retriever=dense", "encoder=use_multilingual", "index=ivf_flat", "index.nlist=16", "index.nprobe=1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("retriever=dense", "encoder=lsa"), "LSA learns from all documents.*use cluster.shard=null, or another"),
        (("retriever.bm25.engine=rank_bm25", "retriever.bm25.variant=okapi"), "cluster.shard=null, or engine=sparse"),
        (FITTED, "A shard has .* raise cluster.shard"),
    ],
)
def test_what_cannot_be_cut_is_refused_before_the_run_begins(harness, toy, words, said):
    done = harness("run", *TOY, "cluster.shard=2", *words)
    assert done.code == 2
    assert re.search(said, done.err)


def test_a_search_of_shards_finds_what_a_search_of_the_whole_finds(harness):
    words = ("dataset=sample", "tokenizer=word", "query=달은 왜 빛나지", "format=json", "retriever=hybrid_lexical")
    assert harness("search", *words, "cluster.shard=30").json == harness("search", *words).json


@pytest.mark.slow
def test_runs_with_shards_reproduce_and_have_the_key_of_the_whole(harness, toy):
    words = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json", "tracking.detail=light")
    cut = harness("run", *words, "cluster.shard=1").json
    assert harness("reproduce", f"run={cut['run_id']}", "format=json").json["reproduced"]
    swept = harness("sweep", *words[:-1], "cluster.shard=1", "top_k=1,3").json
    assert swept["trials"]["skipped"] == 1, "the run above"
    assert not [name for name in cut["measured"] if name.startswith("ms_per_query")]


def test_the_size_of_shards_is_in_the_key_where_it_decides_numbers():
    def deciding(node):
        return Plan({}, {}, {"one": node}, {}, 3, 10, cluster={"shard": 50}).deciding_shard

    assert deciding(DENSE) == 50
    assert deciding(LEXICAL) is None
    assert Dense.sharding == "independent"
    with pytest.raises(BadInput, match="learns from all documents"):
        sharded.check_cut(DENSE | {"encoder": LSA})


def test_one_index_of_documents_on_disk_is_the_index_of_documents_in_memory(sample, own, tmp_path):
    on_disk = session(sample, own, None, ingested(Sample().documents(), 20, own, whole=True))
    whole = session(sample, Cache(tmp_path / "other"), None)
    assert same(ranked(LEXICAL, on_disk), ranked(LEXICAL, whole))
    assert steps.index_identity(DENSE, on_disk.dataset) == steps.index_identity(DENSE, whole.dataset)
    assert on_disk.cluster.done == []


def test_a_ranking_found_in_parts_is_the_one_found_at_once(sample, own, tmp_path, monkeypatch):
    at_once = ranked(LEXICAL, session(sample, own, None))
    monkeypatch.setattr(steps, "SEARCHED", 60)
    in_parts = session(sample, Cache(tmp_path / "other"), None)
    assert same(at_once, ranked(LEXICAL, in_parts))
    files = [next(cache.root.glob("rankings/*-20")) for cache in (own, in_parts.cache)]
    for name in ("ids.json", "docs.npy", "scores.npy"):
        assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()
    assert sorted(one.name for one in files[0].iterdir()) == sorted(one.name for one in files[1].iterdir())
