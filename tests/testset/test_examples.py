"""Real queries as examples of style."""

import json

import pytest

from harness.testset.examples import read_examples, read_labels, shown
from retrievers.base import BadInput, Query


def test_one_query_per_line(tmp_path):
    (tmp_path / "real.txt").write_text("달은 왜 둥글어\n\n  끓는점 물 \n")
    assert [query.text for query in read_examples(tmp_path / "real.txt")] == ["달은 왜 둥글어", "끓는점 물"]


def test_the_format_of_the_contest(tmp_path):
    rows = [{"eval_id": 1, "msg": [{"role": "user", "content": "달은?"}, {"role": "assistant", "content": "위성."},
                                   {"role": "user", "content": "크기는?"}]},
            {"eval_id": 2, "msg": [{"role": "user", "content": "물은\n몇 도에?"}]}]  # fmt: skip
    (tmp_path / "real.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_examples(tmp_path / "real.jsonl")
    assert shown(found, "conversation") == "- user: 달은? / assistant: 위성. / user: 크기는?"
    assert sorted(shown(found, "fact").split("\n")) == ["- 물은 몇 도에?", "- 크기는?"]


def test_a_few_are_drawn_for_each_prompt():
    found = [Query.of(str(number), f"query {number}") for number in range(40)]
    assert shown([], "fact", 0) == ""
    assert len(shown(found, "fact", 0).split("\n")) == 5
    assert shown(found, "fact", 0, "a") == shown(found[::-1], "fact", 0, "a") != shown(found, "fact", 0, "b")
    assert shown(found, "conversation", 0, "a") == shown(found, "fact", 0, "a")  # there are no conversations


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


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (["달은 왜 둥글어"], {}),
        (['{"eval_id": 1, "msg": []}'], {}),
        (
            [
                '{"eval_id": 1, "relevant": ["a", "b"]}',
                '{"eval_id": "x", "relevant": {"c": 2}}',
                '{"eval_id": 3, "relevant": []}',
            ],
            {"1": {"a", "b"}, "x": {"c"}, "3": set()},
        ),
    ],
)
def test_labels_of_examples(tmp_path, rows, labels):
    (tmp_path / "real").write_text("\n".join(rows))
    assert read_labels(tmp_path / "real") == labels


def test_labels_are_those_of_all_examples_or_of_none(tmp_path):
    (tmp_path / "real").write_text('{"eval_id": 1}\n{"eval_id": 2, "relevant": []}\n')
    with pytest.raises(BadInput, match=r"examples: .*real:1: relevant is missing"):
        read_labels(tmp_path / "real")
