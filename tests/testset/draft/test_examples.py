"""Real queries as examples of style."""

import json

import pytest
from documents_folders import documents_folder, folder_of_testset, pieces, query, quoted

from harness.data.documents_folder import DocumentsFolder
from harness.errors import BadInput
from harness.testset.draft.drafts import example_lines, read_examples
from retrievers.base import Query


def test_one_query_per_line(tmp_path):
    (tmp_path / "real.txt").write_text("달은 왜 둥글어\n\n  끓는점 물 \n")
    assert [query.text for query in read_examples(tmp_path / "real.txt").queries] == ["달은 왜 둥글어", "끓는점 물"]


def test_the_format_of_the_contest(tmp_path):
    rows = [{"eval_id": 1, "msg": [{"role": "user", "content": "달은?"}, {"role": "assistant", "content": "위성."},
                                   {"role": "user", "content": "크기는?"}]},
            {"eval_id": 2, "msg": [{"role": "user", "content": "물은\n몇 도에?"}]}]  # fmt: skip
    (tmp_path / "real.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_examples(tmp_path / "real.jsonl").queries
    assert example_lines(found, "conversation") == "- user: 달은? / assistant: 위성. / user: 크기는?"
    assert sorted(example_lines(found, "fact").split("\n")) == ["- 물은 몇 도에?", "- 크기는?"]


def test_a_few_are_drawn_for_each_prompt():
    found = [Query.of(str(number), f"query {number}") for number in range(40)]
    assert example_lines([], "fact", 0) == ""
    assert len(example_lines(found, "fact", 0).split("\n")) == 5
    assert (
        example_lines(found, "fact", 0, "a")
        == example_lines(found[::-1], "fact", 0, "a")
        != example_lines(found, "fact", 0, "b")
    )
    assert example_lines(found, "conversation", 0, "a") == example_lines(
        found, "fact", 0, "a"
    )  # there are no conversations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ('{"eval_id": 1}', "msg is missing"),
        ('{"query": "달"}', "eval_id is missing"),
        ("[1]", "array"),
        ('{"eval_id": 1, "msg": [', "broken JSON"),
        ('{"eval_id": 1, "msg": [{"role": "assistant", "content": "x"}]}', "no user turn"),
    ],
)
def test_files_that_are_refused(tmp_path, text, message):
    (tmp_path / "real").write_text(text)
    with pytest.raises(BadInput, match=f"examples.*{message}"):
        read_examples(tmp_path / "real")


def row(query_id, **given):
    return json.dumps({"eval_id": query_id, "msg": [{"role": "user", "content": "달은?"}], **given})


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (["달은 왜 둥글어"], {}),
        ([row(1)], {}),
        (
            [row(1, relevant=["a", "b"]), row("x", relevant={"c": 2}), row(3, relevant=[])],
            {"1": {"a", "b"}, "x": {"c"}, "3": set()},
        ),
    ],
)
def test_labels_of_examples(tmp_path, rows, labels):
    (tmp_path / "real").write_text("\n".join(rows))
    found = read_examples(tmp_path / "real")
    assert {query_id: set(ids) for query_id, ids in found.labels([], None).items()} == labels


def test_labels_are_those_of_all_examples_or_of_none(tmp_path):
    (tmp_path / "real").write_text(f"{row(1)}\n{row(2, relevant=[])}\n")
    with pytest.raises(BadInput, match=r"examples: .*real:1: relevant is missing"):
        read_examples(tmp_path / "real")


def test_a_test_set_brings_its_labels(tmp_path):
    text = "해달은 조개를 먹는다. 문어는 다리가 여덟이다."
    docs = documents_folder(tmp_path / "docs", {"sea.txt": text}, lambda text: pieces(text, 13))
    rows = [query("q1", "해달의 먹이는?", [quoted(text, "조개를 먹는다")]), query("q2", "안녕")]
    found = read_examples(folder_of_testset(tmp_path / "real", rows))
    folder = DocumentsFolder(docs)
    chunks = list(folder.chunks())
    assert [one.text for one in found.queries] == ["해달의 먹이는?", "안녕"]
    labels = found.labels(chunks, folder)
    assert {query_id: list(ids) for query_id, ids in labels.items()} == {"q1": [chunks[0].document.doc_id], "q2": []}
