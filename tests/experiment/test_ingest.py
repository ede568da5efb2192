"""Documents read into shards of the cache: as those in memory, once, and again only where something is lost."""

import gzip
import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.config.canonical import digest
from harness.data.contest import Contest, Sample
from harness.data.dataset import Dataset, checked_dataset, in_memory
from harness.data.files import json_text
from harness.data.qa import Autorag, Squad
from harness.data.shards import ShardedDocuments
from harness.data.trec import Beir, Trec
from harness.errors import BadInput
from harness.experiment import ingest
from harness.experiment.ingest import sharded
from harness.experiment.session import read_dataset
from harness.experiment.sharded import shards_of
from harness.storage.cache import Cache
from retrievers.base import Document


@pytest.fixture
def own(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture(params=[10**9, 300])
def in_runs(request, monkeypatch):
    """Sorted in memory, and by runs on disk."""
    monkeypatch.setattr(ingest, "RUN_CHARACTERS", request.param)
    monkeypatch.setattr(ingest, "RUNS_AT_ONCE", 2)


def corpus(path, rows):
    """A BEIR corpus of these {id: text}."""
    path.write_text(json_text({"_id": doc_id, "text": text} for doc_id, text in rows.items()), "utf-8")
    return Beir(documents=str(path))


def kept(cache, kind="documents"):
    return {entry.key: entry.state for entry in cache.entries() if entry.kind == kind}


def written(cache, keys):
    """When the shards with these keys were written."""
    return {key: (cache.root / "documents" / key / "documents.txt").stat().st_mtime_ns for key in keys}


def parquet(path, ids):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"doc_id": ids, "contents": [f"x{one}" for one in ids]}), path)
    return Autorag(corpus=str(path))


def test_a_dataset_is_the_one_in_memory(own, in_runs):
    whole = checked_dataset(Sample(), "sample")
    cut = checked_dataset(Sample(), "sample", sharded(Sample().documents(), 20, own))
    assert len(cut.documents.shards) > 3
    assert tuple(cut.documents) == whole.documents
    assert cut.fingerprints == whole.fingerprints
    assert dict(cut.by_id) == whole.by_id
    assert (cut.notes, repr(cut)) == (whole.notes, repr(whole))


def test_notes_and_dangling_labels_are_those_of_memory(tmp_path, own):
    (tmp_path / "documents.jsonl").write_text(json_text({"docid": f"e{i}", "content": " " * i} for i in range(8)))
    (tmp_path / "eval.jsonl").write_text(json_text([{"eval_id": 1, "msg": [{"role": "user", "content": "x"}]}]))
    row = {"eval_id": 1, "needs": True, "relevant": ["e1"], "not_relevant": ["e9"]}
    (tmp_path / "qrels.jsonl").write_text(json_text([row]))
    source = Contest(path=str(tmp_path))
    notes = checked_dataset(source, "x").notes
    assert "8 of 8 documents are empty: e0, e1, e2, e3, e4 and 3 more." in notes
    assert any("e9" in note for note in notes)
    assert checked_dataset(source, "x", sharded(source.documents(), 2, own)).notes == notes
    (tmp_path / "qrels.jsonl").write_text(json_text([{"eval_id": 1, "relevant": ["e1", "f"]}]))
    with pytest.raises(BadInput) as whole:
        checked_dataset(source, "x")
    with pytest.raises(BadInput) as cut:
        checked_dataset(source, "x", sharded(source.documents(), 2, own))
    assert str(cut.value) == str(whole.value)


@pytest.mark.parametrize("kind", ["contest", "parquet", "list"])
def test_every_format_comes_back_whole(tmp_path, own, in_runs, kind):
    file = str(tmp_path / "f")
    if kind == "contest":
        rows = [(10, "a", "s"), (9, "b", ""), ("d", "", "s"), *((-i, "x" * 99, "") for i in range(1, 9))]
        content = json_text({"docid": i, "title": "t", "content": c, "src": s} for i, c, s in rows)
        (tmp_path / "f.gz").write_bytes(gzip.compress(content.encode()))
        source = Contest(documents=f"{file}.gz")
    elif kind == "parquet":
        source = parquet(file, [3, 1, 20])
    else:
        qas = [{"id": "q", "question": "?"}]
        paragraphs = [{"context": f"c{i}", "qas": qas * (not i)} for i in range(12)]
        (tmp_path / "f").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
        source = Squad(path=file)
    for _ in range(2):
        assert tuple(sharded(source.documents(), 1, own)) == in_memory(source.documents())


@pytest.fixture
def fifty(tmp_path):
    """A corpus of fifty short documents in the file `f`."""
    return corpus(tmp_path / "f", {f"d{i}": f"t{i}" for i in range(50)})


def test_a_second_start_reads_no_documents_and_another_size_shares_nothing_but_them(tmp_path, own, fifty, monkeypatch):
    first = sharded(fifty.documents(), 5, own)
    assert sharded(fifty.documents(), 7, own).fingerprint == first.fingerprint
    monkeypatch.setattr(ingest, "DocumentSort", None)
    moved = tmp_path / "g.gz"
    moved.write_bytes(gzip.compress((tmp_path / "f").read_bytes()))
    for path in (tmp_path / "f", moved):  # the same content elsewhere
        again = sharded(Beir(documents=str(path)).documents(), 5, own)
        assert (again.shards, tuple(again)) == (first.shards, tuple(first))


def test_a_changed_corpus_shares_most_shards(tmp_path, own):
    rows = {f"d{i * 7919 % 10_007}": f"text {i}" for i in range(600)}
    before = {one.fingerprint for one in sharded(corpus(tmp_path / "f", rows).documents(), 20, own).shards}
    changes = {"d7919": "changed", "new": "added"}
    after = {one.fingerprint for one in sharded(corpus(tmp_path / "g", rows | changes).documents(), 20, own).shards}
    assert len(before) > 20
    assert len(after - before) <= 5
    assert len(kept(own)) == len(before | after)


@settings(max_examples=40, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(
    st.dictionaries(st.text("ab가1", min_size=1, max_size=4), st.text(max_size=8), min_size=1, max_size=15),
    st.integers(1, 6),
    st.integers(1, 2000),
    st.integers(2, 4),
)
def test_any_corpus_is_as_in_memory(tmp_path, monkeypatch, rows, size, run, at_once):
    monkeypatch.setattr(ingest, "RUN_CHARACTERS", run)
    monkeypatch.setattr(ingest, "RUNS_AT_ONCE", at_once)
    source = corpus(tmp_path / "f", rows)
    found = sharded(source.documents(), size, Cache(tmp_path / "cache"))
    assert tuple(found) == in_memory(source.documents())
    assert found.fingerprint == Dataset("", in_memory(source.documents()), (), None).fingerprints["documents"]


BROKEN = {
    "no JSON": ('{"_id": "a", "text": ""}\n{', "broken JSON"),
    "no rows": ("\n", "holds no rows"),
    "no id": ('{"text": ""}', "_id is missing"),
    "no text": ('{"_id": "a"}', "text is missing"),
    "an id twice": (
        '{"_id": "b", "text": ""}\n{"_id": 1, "text": ""}\n\n{"_id": "1", "text": "x"}',
        ":4: _id '1' is already at .*f:2",
    ),
    "an id often": ('{"_id": "b", "text": ""}\n' * 9, ":2: _id 'b' is already at .*f:1"),
    "no UTF-8": ("\udcff", "is not UTF-8"),
}


@pytest.mark.parametrize(("content", "said"), BROKEN.values(), ids=BROKEN)
def test_errors_have_the_messages_of_memory_and_leave_nothing(tmp_path, own, in_runs, content, said):
    (tmp_path / "f").write_bytes(content.encode("utf-8", "surrogateescape"))
    source = Beir(documents=str(tmp_path / "f"))
    with pytest.raises(BadInput, match=said) as cut:
        sharded(source.documents(), 2, own)
    with pytest.raises(BadInput) as whole:
        in_memory(source.documents())
    assert str(cut.value) == str(whole.value)
    assert own.entries() == []


def test_what_cannot_be_read_is_refused(tmp_path, own):
    class Plugged:
        def documents(self):
            return [Document("b", ""), Document("a", ""), Document("b", "x")]

    for source, said in (
        (parquet(tmp_path / "f", [1, 2, 1]), r":row 3: doc_id '1' is already at .*f:row 1\. Remove one of them\."),
        (Beir(documents=str(tmp_path / "g")), "there is no such file"),
        (Trec(qrels="x"), "has only labels"),
        (Plugged(), "two documents with the id 'b'"),
    ):
        with pytest.raises(BadInput, match=said):
            sharded(source.documents(), 2, own)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, own, monkeypatch):
    source, read = corpus(tmp_path / "f", {"a": "x", "b": "y"}), ingest.sha256_of

    def changing(path):
        found = read(path)
        corpus(path, {"a": "other", "b": "y"})
        return found

    monkeypatch.setattr(ingest, "sha256_of", changing)
    with pytest.raises(BadInput, match=r"f has changed while it was read\. Repeat the command"):
        sharded(source.documents(), 2, own)
    monkeypatch.undo()
    assert own.entries() == []
    assert next(iter(sharded(source.documents(), 2, own))).text == "other"


def test_an_interrupted_ingest_leaves_what_is_finished_and_goes_on_from_it(own, fifty, monkeypatch):
    folder, made = Cache.folder, []

    def killed(self, kind, *arguments):
        if kind == "documents" and len(made) == 3:
            raise KeyboardInterrupt
        made.append(kind)
        return folder(self, kind, *arguments)

    monkeypatch.setattr(Cache, "folder", killed)
    with pytest.raises(KeyboardInterrupt):
        sharded(fifty.documents(), 5, own)
    monkeypatch.undo()
    before = kept(own)
    assert len(before) == len(made) - 1  # those finished; the first is the table, which is not there
    assert {*before.values()} == {"finished"}
    assert not kept(own, "corpora")
    times = written(own, before)
    assert tuple(sharded(fifty.documents(), 5, own)) == in_memory(fifty.documents())
    assert written(own, before) == times


HARMS = {
    "changed": lambda path: path.write_bytes(path.read_bytes()[::-1]),
    "lost": lambda path: path.unlink(),
    "without a manifest": lambda path: (path.parent / "manifest.json").unlink(),
}


@pytest.mark.parametrize("how", HARMS)
def test_a_damaged_shard_is_made_again_from_the_source(tmp_path, own, fifty, how, caplog):
    opened = sharded(fifty.documents(), 5, own)

    def harm(shard):
        HARMS[how](own.root / "documents" / digest({"documents": shard.fingerprint}) / "documents.txt")

    harm(opened.shards[2])
    with caplog.at_level(logging.WARNING):
        assert tuple(opened) == in_memory(fifty.documents())
    assert "is damaged and will be built again" in caplog.text
    harm(opened.shards[1])
    assert tuple(sharded(fifty.documents(), 5, own)) == in_memory(fifty.documents())
    harm(opened.shards[2])
    corpus(tmp_path / "f", {"a": "x"})
    with pytest.raises(BadInput, match="f has changed while it was read"):
        tuple(opened)


def test_a_cluster_chooses_and_a_large_corpus_in_memory_is_noted(tmp_path, monkeypatch):
    source, cache = Sample(), str(tmp_path / "cache")
    whole, cut = (read_dataset(source, shard, cache, "sample") for shard in (None, 20))
    assert isinstance(whole.documents, tuple)
    assert cut.notes == whole.notes
    monkeypatch.setattr("harness.experiment.session.IN_MEMORY", 30)
    note = f"{len(whole.documents)} documents are in memory. cluster.shard=50000 reads them from the cache."
    assert read_dataset(source, None, cache, "sample").notes == (*whole.notes, note)
    assert read_dataset(source, 20, cache, "sample").notes == whole.notes


def test_the_documents_of_a_large_file_are_read_from_the_cache_for_one_index(tmp_path, monkeypatch):
    corpus(tmp_path / "f", {f"d{n}": f"본문 {n}" for n in range(50)})
    source, cache = Beir(documents=str(tmp_path / "f"), queries=str(tmp_path / "f")), str(tmp_path / "cache")
    small = read_dataset(source, None, cache, "x")
    monkeypatch.setattr("harness.experiment.session.LARGE", 10)
    large = read_dataset(source, None, cache, "x")
    assert isinstance(small.documents, tuple)
    assert isinstance(large.documents, ShardedDocuments)
    assert (tuple(large.documents), large.fingerprints) == (small.documents, small.fingerprints)
    assert shards_of(large.documents) == ()
    assert shards_of(read_dataset(source, 10, cache, "x").documents)
