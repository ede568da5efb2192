"""dataset=chunked: files prepared in the cache, once for the same content and settings."""

import pytest
from documents_folders import folder_of_testset, query, quoted

from harness.corpus import chunked
from harness.corpus.chunked import Chunked
from harness.data.dataset import checked_dataset
from harness.data.spans import cover
from harness.data.testset import read_queries
from harness.errors import BadInput

SEA = "해달은 조개를 돌로 깬다. 문어는 다리가 여덟이다. 고래는 젖을 먹인다."
OCTOPUS = "문어는 다리가 여덟이다."


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A folder with files, a test set, and an empty cache; Chunked with its paths, and the number of preparations."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "sea.txt").write_text(SEA)
    folder_of_testset(tmp_path / "ts", [query("q1", "문어의 다리", [quoted(SEA, OCTOPUS)]), query("q2", "안녕")])
    calls = []
    prepare = chunked.prepare_documents
    monkeypatch.setattr(chunked, "prepare_documents", lambda *given: calls.append(given[1]) or prepare(*given))

    def read(**chunk):
        return checked_dataset(Chunked(store="store", files="corpus/*.txt", testset="ts", chunk=chunk), "chunked")

    return read, calls


def test_files_are_prepared_once(made):
    read, calls = made
    dataset = read(size=16, overlap=0)
    [label] = dataset.qrels.grades["q1"]
    assert dataset.by_id[label].text == OCTOPUS
    assert dataset.qrels.grades["q2"] == {}
    assert {one.text for one in dataset.documents} == {"해달은 조개를 돌로 깬다.", OCTOPUS, "고래는 젖을 먹인다."}
    assert read(size=16, overlap=0).fingerprints == dataset.fingerprints
    assert len(calls) == 1
    whole = read(size=100, overlap=0)
    assert [one.text for one in whole.documents] == [SEA]
    assert len(calls) == 2
    assert whole.fingerprints["evidence"] == dataset.fingerprints["evidence"]
    assert whole.fingerprints["qrels"] != dataset.fingerprints["qrels"]


def test_an_edited_file_is_prepared_again(made, tmp_path):
    read, calls = made
    read(size=16, overlap=0)
    (tmp_path / "corpus" / "sea.txt").write_text("게는 옆으로 걷는다. " + SEA)
    dataset = read(size=16, overlap=0)
    assert len(calls) == 2
    assert [one.what for one in dataset.qrels.findings] == ["moved"]
    assert {dataset.by_id[doc_id].text for doc_id in dataset.qrels.grades["q1"]} == {OCTOPUS}


def test_names_do_not_depend_on_where_a_command_runs(made, tmp_path, monkeypatch):
    read, _ = made
    (tmp_path / "note.txt").write_text("{path}")
    (tmp_path / "corpus" / "sky").mkdir()
    (tmp_path / "corpus" / "sky" / "swallow.txt").write_text("제비는 처마에 집을 짓는다.")
    here = read(note="note.txt")
    assert {one.title for one in here.documents} == {"corpus/sea.txt"}
    chunk = {"note": str(tmp_path / "note.txt")}
    files, testset = [str(tmp_path / "corpus" / "**" / "*.txt")], str(tmp_path / "ts")
    monkeypatch.chdir(tmp_path / "corpus" / "sky")
    there = checked_dataset(Chunked(store="store", files=files, testset=testset, chunk=chunk), "chunked")
    assert {one.title for one in there.documents} == {"corpus/sea.txt", "corpus/sky/swallow.txt"}
    assert here.documents[0] in there.documents


@pytest.mark.parametrize("chunk", [None, {"size": 100, "overlap": 20}, {"size": 300, "overlap": 60}])
def test_every_cut_of_the_sample_has_all_labels(tmp_path, chunk):
    """19 queries have evidence; each chunk that contains half of a piece is labelled, and no other."""
    dataset = checked_dataset(Chunked(store=str(tmp_path), chunk=chunk), "chunked")
    qrels, queries = dataset.qrels, read_queries(chunked.SAMPLE / "testset")
    assert (len(queries), len(qrels.evidence), len(qrels.unanswerable), qrels.findings) == (24, 19, 2, ())
    for one in queries:
        expected = {
            doc_id
            for doc_id, places in qrels.places.items()
            if any(cover(place, piece.span) >= 0.5 for place in places for piece in one.evidence)
        }
        assert set(qrels.grades.get(one.query.query_id, {})) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"files": "corpus/*.txt"}, "dataset.files needs dataset.testset"),
        ({"testset": "ts"}, "dataset.testset needs dataset.files"),
        ({"chunk": {"size": 50}}, r"dataset\.chunk\.overlap=80 is not below dataset\.chunk\.size=50"),
        ({"files": "corpus/*.md", "testset": "ts"}, r"no file matches corpus/\*\.md"),
        ({"files": "corpus/*.txt", "testset": "no"}, r"dataset\.testset=no: there is no such folder"),
    ],
)
def test_what_is_refused(made, given, message):
    with pytest.raises(BadInput, match=message):
        checked_dataset(Chunked(store="store", **given), "chunked")


def test_files_that_cannot_be_read_are_left_out_by_the_key_that_the_error_names(made, tmp_path):
    (tmp_path / "corpus" / "broken.txt").write_bytes(b"\x00\xff binary")
    words = {"store": "store", "files": "corpus/*.txt", "testset": "ts"}
    with pytest.raises(BadInput, match=r"leave them out of dataset\.files, or set dataset\.unreadable=skip") as refused:
        checked_dataset(Chunked(**words), "chunked")
    assert "corpus/broken.txt" in str(refused.value)
    dataset = checked_dataset(Chunked(**words, unreadable="skip"), "chunked")
    assert [one.text for one in dataset.documents] == [SEA]
    assert "1 file cannot be read and is left out: corpus/broken.txt." in dataset.notes
    with pytest.raises(BadInput, match="unreadable=skip"):  # nor does an entry that was made by skipping
        checked_dataset(Chunked(**words), "chunked")
