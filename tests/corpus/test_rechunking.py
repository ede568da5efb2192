"""Labels survive another cut of the same texts, and an edit of one."""

import shutil

import pytest

from harness.corpus.chunked import SAMPLE
from harness.corpus.chunking import Chunking
from harness.corpus.files import find_files
from harness.corpus.preparation import prepare_documents
from harness.data.dataset import checked_dataset
from harness.data.documents_folder import DocumentsFolder
from harness.data.spans import cover
from harness.data.testset import SpanLabelled, read_queries

OVERLAP = {40: 0, 100: 20, 300: 60}  # characters of a chunk -> overlap
TESTSET, PROFILES = SAMPLE / "testset", SAMPLE / "profiles"
QUERIES = read_queries(TESTSET)
PIECES = [(one.query.query_id, piece) for one in QUERIES for piece in one.evidence]


def prepared(folder, size, profiles=PROFILES):
    prepare_documents(find_files(f"{profiles}/*.txt"), Chunking(size=size, overlap=OVERLAP[size]), folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """size -> the folder of the sample's profiles, cut into chunks of this size."""
    return {size: prepared(tmp_path_factory.mktemp(f"docs{size}") / "docs", size) for size in OVERLAP}


def labelled(folder):
    return checked_dataset(SpanLabelled(path=str(TESTSET), documents=str(folder)), "profiles")


def spans(folder):
    return [span for chunk in DocumentsFolder(folder).chunks() for span in chunk.spans]


@pytest.mark.parametrize("size", [100, 300])
def test_another_cut_keeps_all_labels(folders, size):
    """19 queries have 25 pieces of evidence; each chunk that contains half of a piece is labelled, and no other."""
    dataset = labelled(folders[size])
    assert len(PIECES) == 25
    assert dataset.qrels.findings == ()
    assert len(dataset.qrels.evidence) == 19
    where = dataset.qrels.places
    for one in QUERIES:
        shares = {
            doc_id: max((cover(span, piece.span) for span in places for piece in one.evidence), default=0.0)
            for doc_id, places in where.items()
        }
        expected = {doc_id for doc_id, share in shares.items() if share >= 0.5}
        assert set(dataset.qrels.grades.get(one.query.query_id, {})) == expected


def test_back_and_forth_gives_the_same_labels(folders, tmp_path):
    again = labelled(prepared(tmp_path / "docs", 100))
    first, other = labelled(folders[100]), labelled(folders[300])
    assert again.qrels == first.qrels
    assert again.fingerprints == first.fingerprints
    assert first.fingerprints["evidence"] == other.fingerprints["evidence"]
    assert first.fingerprints["qrels"] != other.fingerprints["qrels"]


def test_evidence_longer_than_two_chunks_is_listed(folders):
    """Chunks of 40 characters cut most sentences: no chunk has half of a piece of more than 80 characters."""
    dataset = labelled(folders[40])
    split = {one.evidence.exact for one in dataset.qrels.findings if one.what == "split"}
    assert {piece.exact for _, piece in PIECES if len(piece.exact) > 80} <= split
    assert len(dataset.qrels.evidence) == 19  # each of them still has a label
    expected = {piece.exact for _, piece in PIECES if all(cover(span, piece.span) < 0.5 for span in spans(folders[40]))}
    assert split == expected


def test_an_edit_loses_what_it_removes_and_nothing_else(tmp_path):
    """One file gets a new first line and loses a sentence that is evidence; the other stays."""
    profiles = tmp_path / "profiles"
    shutil.copytree(PROFILES, profiles)
    file = profiles / "saeron_battery_KR.txt"
    text = file.read_text("utf-8")
    removed = "나트륨 이온 전지는 리튬을 쓰지 않아 값이 싸지만, 같은 용량이면 무게가 약 1.4배이다."
    assert removed in text
    file.write_text("2025년 판\n\n" + text.replace(removed, ""), "utf-8")
    before, after = labelled(prepared(tmp_path / "old", 300)), labelled(prepared(tmp_path / "new", 300, profiles))
    lost = [one for one in after.qrels.findings if one.what == "lost"]
    assert [(one.query_id, one.evidence.exact) for one in lost] == [("9f03bcec2fbf", removed)]
    assert before.qrels.grades.keys() - after.qrels.grades.keys() == {"9f03bcec2fbf"}
    edited = {piece.span.text for _, piece in PIECES if text[piece.span.start : piece.span.end] == piece.exact}
    moved = {one.evidence.exact for one in after.qrels.findings if one.what == "moved"}
    assert moved == {piece.exact for _, piece in PIECES if piece.span.text in edited} - {removed}
    assert any(note.startswith("1 piece of evidence lost") for note in after.notes)
