"""Test sets with evidence: labels that follow the documents, and what is refused."""

import json
import shutil

import pytest
from documents_folders import documents_folder, folder_of_testset, lines, pieces, query, quoted

from harness.data.dataset import load
from harness.data.testset import SpanLabelled
from retrievers.base import BadInput

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


def contents(dataset, query_id):
    return {dataset.by_id[doc_id].text: grade for doc_id, grade in dataset.qrels.grades[query_id].items()}


def test_labels_are_made_of_spans(made):
    dataset = load(SpanLabelled(path=str(made / "ts")), "testset")
    assert contents(dataset, "q1") == {SEA[:15]: 1.0}  # [0, 14) of [0, 15)
    # [15, 28) is all in [15, 30); of the crane's [16, 28), 12 characters, [15, 29) has all
    assert contents(dataset, "2") == {SEA[15:30]: 2.0, SKY[15:]: 1.0}
    assert dataset.qrels.grades["q3"] == {}
    assert "q4" not in dataset.qrels.grades
    assert dataset.qrels.unanswerable == ("q4",)
    assert dataset.by_id[next(iter(dataset.qrels.grades["q1"]))].indexed_text == f"sea.txt {SEA[:15]}"
    assert dataset.queries[1].native_id == 2
    assert "1 query without an answer in the texts: q4." in dataset.notes


def test_the_documents_folder_may_be_another(made):
    documents_folder(made / "long", {"sea.txt": SEA, "sky.txt": SKY}, lambda text: [(0, len(text))])
    dataset = load(SpanLabelled(path=str(made / "ts"), documents=str(made / "long")), "testset")
    assert contents(dataset, "2") == {SEA: 2.0, SKY: 1.0}


def test_split_evidence_is_labelled_where_most_of_it_stands(made):
    shutil.rmtree(made / "docs")
    documents_folder(made / "docs", {"sea.txt": SEA, "sky.txt": SKY}, lambda text: pieces(text, 5))
    dataset = load(SpanLabelled(path=str(made / "ts")), "testset")
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
    (first(kind=None), r"queries\.jsonl:1: kind is None, but must be text"),
    (first(needs=1), r"needs is 1, but must be true or false"),
    (first(needs=False), r"needs is false, but a query of kind fact says the opposite"),
    (first(kind="none"), r"needs is true, but a query of kind none says the opposite"),
    (first(kind="unanswerable"), r"of kind unanswerable has evidence, but nothing answers it"),
    (first(evidence=[]), r"of kind fact has no evidence, but something must answer it"),
    (first(evidence={}), r"evidence is \{\}, but must be a list"),
    (first(evidence=["x"]), r"'x' is not a span"),
    (first(msg=[]), r"msg has no user turn"),
    (first(msg=[{"role": "bot", "content": ""}]), r"role 'bot' is not one of"),
    (first(eval_id=" "), r"eval_id is ' ', but an id must be"),
    (first(eval_id=2), r"queries\.jsonl:2: eval_id '2' is already at .*queries\.jsonl:1"),
    (evidence(text="ABC"), r"text is 'ABC', but the id of a text is 20 hexadecimal digits"),
    (evidence(start=-1), r"start -1 and end 14 must be whole numbers"),
    (evidence(start=1.5), r"start 1\.5 and end 14 must be whole numbers"),
    (evidence(end=0), r"start 0 and end 0 must be whole numbers, 0 <= start < end"),
    (evidence(exact=5), r"exact is 5, but must be text"),
    (evidence(exact="해달"), r"exact has 2 characters, but start 0 and end 14 are 14 apart"),
    (
        evidence(exact="문어는 조개를 돌로 깬다."),
        r"other characters from 0 to 14 than exact, '문어는",
    ),
    (evidence(start=9000, end=9014), r"other characters from 9000 to 9014 than exact"),
    (evidence(grade=0), r"grade is 0, but must be a finite number > 0"),
    (evidence(grade="1"), r"grade is '1', but must be"),
    (evidence(prefix=3), r"prefix is 3, but must be text"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_ROWS)
def test_wrong_rows_are_refused(made, change, message):
    rewritten(made / "ts" / "queries.jsonl", change)
    with pytest.raises(BadInput, match=message):
        load(SpanLabelled(path=str(made / "ts")), "testset")
