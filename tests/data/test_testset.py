"""Test sets with evidence: labels that follow the documents, and what is refused."""

import json
import shutil

import pytest
from documents_folders import documents_folder, folder_of_testset, lines, pieces, query, quoted

from harness.data.dataset import checked_dataset
from harness.data.testset import SpanLabelled
from harness.errors import BadInput

#       0         10        20        30        40
SEA = "해달은 조개를 돌로 깬다. 문어는 다리가 여덟이다. 고래는 젖을 먹인다. "  # three sentences of 15, 14 and 13
SKY = "제비는 처마에 집을 짓는다. 두루미는 겨울에 온다. "
OTTER, OCTOPUS, CRANE = "해달은 조개를 돌로 깬다.", "문어는 다리가 여덟이다.", "두루미는 겨울에 온다."
QUERIES = [
    query("q1", "해달은 무엇을 깨?", [quoted(SEA, OTTER)]),
    query(2, "문어와 두루미", [quoted(SEA, OCTOPUS, grade=2), quoted(SKY, CRANE)]),
    query("q3", "안녕"),
    query("q4", "상어는 몇 살까지 살아?", kind="unanswerable"),
]


@pytest.fixture
def made(tmp_path):
    documents_folder(tmp_path / "docs", {"sea.txt": SEA, "sky.txt": SKY}, lambda text: pieces(text, 15))
    folder_of_testset(tmp_path / "ts", QUERIES, "../docs")
    return tmp_path


def read(made, **more):
    return checked_dataset(SpanLabelled(path=str(made / "ts"), **more), "testset")


def cut(made, texts, spans):
    """Put other documents in the place of those that were made."""
    shutil.rmtree(made / "docs")
    documents_folder(made / "docs", texts, spans)


def contents(dataset, query_id):
    return {dataset.by_id[doc_id].text: grade for doc_id, grade in dataset.qrels.grades[query_id].items()}


def test_labels_are_made_of_spans(made):
    dataset = read(made)
    assert contents(dataset, "q1") == {SEA[:15]: 1.0}  # [0, 14) of [0, 15)
    # [15, 28) is all in [15, 30); of the crane's [16, 28), 12 characters, [15, 29) has all
    assert contents(dataset, "2") == {SEA[15:30]: 2.0, SKY[15:]: 1.0}
    assert dataset.qrels.grades["q3"] == {}
    assert "q4" not in dataset.qrels.grades
    assert dataset.qrels.unanswerable == ("q4",)
    assert dataset.by_id[next(iter(dataset.qrels.grades["q1"]))].indexed_text == f"sea.txt {SEA[:15]}"
    assert dataset.queries[1].native_id == 2
    assert "1 query without an answer in the documents, scored separately: q4." in dataset.notes


def test_split_evidence_is_labelled_where_most_of_it_stands(made):
    cut(made, {"sea.txt": SEA, "sky.txt": SKY}, lambda text: pieces(text, 5))
    dataset = read(made)
    # [0, 14) lies in [0, 5), [5, 10) and [10, 15), which contain 5, 5 and 4 of its 14 characters: none has 7
    assert contents(dataset, "q1") == {SEA[:5]: 1.0}
    assert [(one.query_id, one.what) for one in dataset.qrels.findings] == [(one, "split") for one in ("q1", "2", "2")]
    assert any(note.startswith("3 pieces of evidence split between documents") for note in dataset.notes)


def rewritten(path, change):
    """Change the rows of queries.jsonl. change: row -> row."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    path.write_text(lines(map(change, rows)))


def evidence(**changes):
    """A change of the first piece of evidence of q1."""

    def change(row):
        return row | {"evidence": [row["evidence"][0] | changes]} if row["eval_id"] == "q1" else row

    return change


def first(**changes):
    return lambda row: row | changes if row["eval_id"] == "q1" else row


WRONG_ROWS = [
    (first(kind="facts"), r"queries\.jsonl:1: kind 'facts' is not one of fact, .*Did you mean 'fact'"),
    (first(needs=1), r"needs is 1, but must be true or false"),
    (first(needs=False), r"needs is false, but kind fact means the opposite"),
    (first(kind="unanswerable"), r"of kind unanswerable has evidence, but nothing answers it"),
    (first(evidence=[]), r"of kind fact has no evidence, but something must answer it"),
    (first(eval_id=2), r"queries\.jsonl:2: eval_id '2' is already at .*queries\.jsonl:1"),
    (evidence(start=1.5), r"start 1\.5 and end 14 must be whole numbers"),
    (evidence(exact="해달"), r"`exact` has 2 characters, but start 0 and end 14 are 14 apart"),
    (evidence(exact="문어는 조개를 돌로 깬다."), r"from 0 to 14 differs from `exact`, '문어는"),
    (evidence(start=9000, end=9014), r"from 9000 to 9014 differs from `exact`"),
    (evidence(grade=0), r"grade is 0, but must be a finite number > 0"),
    (evidence(prefix=3), r"prefix is 3, but must be text"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_ROWS)
def test_wrong_rows_are_refused(made, change, message):
    rewritten(made / "ts" / "queries.jsonl", change)
    with pytest.raises(BadInput, match=message):
        read(made)


def manifest(text):
    return lambda folder: (folder / "ts" / "testset.json").write_text(text)


def documents(change):
    """A change of the rows of documents.jsonl. change: row -> row."""
    return lambda folder: rewritten(folder / "docs" / "documents.jsonl", change)


def moved_by_one(row):
    return row | {"spans": [one | {"start": one["start"] + 1, "end": one["end"] + 1} for one in row["spans"]]}


WRONG_FOLDERS = [
    (lambda folder: (folder / "ts" / "testset.json").unlink(), r"testset\.json is missing, so this folder is not"),
    (lambda folder: (folder / "ts" / "queries.jsonl").unlink(), r"queries\.jsonl: there is no such file"),
    (manifest('{"version": 2}'), r"version is 2, but this harness reads version 1"),
    (manifest('{"version": 1}'), r"testset\.json names no documents folder\. Give one: dataset\.documents=FOLDER"),
    (manifest('{"version": 1, "documents": "docs"}'), r"documents is 'docs', but must be an object"),
    (manifest('{"version": 1, "documents": {"path": "../no"}}'), r"documents\.path=.*no: there is no such folder"),
    (
        lambda folder: [path.write_bytes(b"\x1f\x8bx") for path in (folder / "docs" / "texts").iterdir()],
        r"\.txt: cannot be read \(.*\)\. Prepare the files again",
    ),
    (documents(lambda row: row | {"content": row["content"] + "!"}), r"differs from text \w{20} at 0 to 15"),
    (documents(moved_by_one), r"documents\.jsonl: document '\w{20}' differs from text \w{20} at 1 to 16"),
]


@pytest.mark.parametrize(("damage", "message"), WRONG_FOLDERS)
def test_damaged_folders_are_refused(made, damage, message):
    damage(made)
    with pytest.raises(BadInput, match=message):
        read(made)


def test_a_text_that_is_gone_takes_its_labels_with_it(made):
    """Evidence is never labelled by its place in another text, and its query is no abstention."""
    edited = SEA.replace(OTTER, "수달은 물고기를 잡는다.")
    cut(made, {"sea.txt": edited, "sky.txt": SKY}, lambda text: pieces(text, 15))
    dataset = read(made)
    assert [(one.query_id, one.what) for one in dataset.qrels.findings] == [("q1", "lost"), ("2", "moved")]
    assert "q1" not in dataset.qrels.grades
    assert dataset.qrels.grades["q3"] == {}
    assert any(note.startswith("1 piece of evidence lost:") and "q1" in note for note in dataset.notes)
    assert sum(contents(dataset, "2").values()) == 3.0  # the octopus, found again, and the crane


def test_what_the_documents_leave_out_is_not_labelled(made):
    cut(made, {"sea.txt": SEA, "sky.txt": SKY}, lambda text: [(15, len(text))])
    dataset = read(made)
    assert [(one.query_id, one.what) for one in dataset.qrels.findings] == [("q1", "uncovered")]
    assert dataset.qrels.grades.keys() == {"2", "q3"}


def test_equal_documents_are_labelled_by_any_of_their_places(made):
    """The same sentence twice in a text: one document, whose second place has the evidence."""
    twice = OTTER + " " + OTTER
    cut(made, {"a.txt": twice}, lambda text: [(0, 14), (15, 29)])
    place = quoted(twice, OTTER) | {"start": 15, "end": 29}
    rewritten(
        made / "ts" / "queries.jsonl",
        lambda row: query("q1", "?", [place]) if row["eval_id"] == "q1" else query(row["eval_id"], "안녕"),
    )
    dataset = read(made)
    assert contents(dataset, "q1") == {OTTER: 1.0}


def test_fingerprints_see_places_and_evidence(made):
    first = read(made).fingerprints
    documents_folder(made / "other", {"sea.txt": SEA, "sky.txt": SKY}, lambda text: pieces(text, 20, 5))
    other = read(made, documents=str(made / "other")).fingerprints
    assert {name for name in first if first[name] != other[name]} == {"documents", "qrels"}
    rewritten(made / "ts" / "queries.jsonl", evidence(grade=3))
    graded = read(made, documents=str(made / "other")).fingerprints
    assert {name for name in other if other[name] != graded[name]} == {"qrels", "evidence"}
