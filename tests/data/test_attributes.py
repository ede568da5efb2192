"""Attributes of queries: what each format gives, what is derived, and the slices they make."""

import json

import numpy as np
import pytest
from logged_runs import DATA, write_toy

from harness.data.attributes import attributes_of, given_attributes, slices_by
from harness.data.contest import Contest
from harness.data.dataset import checked_dataset, search_queries
from harness.data.qa import Autorag, Squad
from harness.data.qrels import Qrels
from harness.data.trec import Beir
from harness.errors import BadInput
from retrievers.base import Query, Turn


def derived(name, *turns):
    query = Query("q", tuple(Turn("user", text) for text in turns))
    return attributes_of([query])[name]["q"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("en", "en"),
        ("  two\nwords ", "two words"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        ("x" * 100, "x" * 100),
        *((left, None) for left in ("", "  ", "x" * 101, None, ["a"], {"a": 1})),
    ],
)
def test_a_field_is_a_text_or_left_out(value, text):
    assert given_attributes({"id": 1, "lang": value}, "id") == ({} if text is None else {"lang": text})


def test_metadata_count_as_fields_and_fields_of_the_row_come_first():
    row = {"_id": 1, "lang": "ko", "metadata": {"lang": "en", "year": 1954, "spans": {"d1": []}}, "x" * 101: "long"}
    assert given_attributes(row, "_id") == {"lang": "ko", "year": "1954"}
    assert given_attributes({"metadata": "plain"}) == {"metadata": "plain"}


def test_each_format_gives_its_further_fields(tmp_path):
    import pyarrow
    from pyarrow import parquet

    (contest := tmp_path / "eval.jsonl").write_text(
        '{"eval_id": 1, "msg": [{"role": "user", "content": "a"}], "lang": "ko", "hard": false, "tags": ["x"]}\n'
    )
    assert Contest(queries=str(contest)).queries()[0].attributes == {"lang": "ko", "hard": "false"}
    (beir := tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "a", "metadata": {"lang": "en"}}\n')
    assert Beir(queries=str(beir)).queries()[0].attributes == {"lang": "en"}
    asked = {"id": "1", "question": "a?", "answers": [], "is_impossible": False, "type": "date"}
    data = {"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [asked]}]}]}
    (squad := tmp_path / "squad.json").write_text(json.dumps(data))
    assert Squad(path=str(squad)).queries()[0].attributes == {"type": "date"}
    columns = {"qid": ["1"], "query": ["a"], "retrieval_gt": [[["d"]]], "level": [2]}
    parquet.write_table(pyarrow.table(columns), qa := tmp_path / "qa.parquet")
    assert Autorag(qa=str(qa)).queries()[0].attributes == {"level": "2"}


def test_attributes_change_neither_fingerprints_nor_searched_queries(tmp_path):
    plain = checked_dataset(Contest(path=str(write_toy(tmp_path / "plain"))), "toy")
    rows = [one | {"lang": "ko"} for one in DATA["eval.jsonl"]]
    (write_toy(tmp_path / "more") / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = checked_dataset(Contest(path=str(tmp_path / "more")), "toy")
    assert {query.attributes["lang"] for query in more.queries} == {"ko"}
    assert more.fingerprints == plain.fingerprints
    assert search_queries(more) == search_queries(plain)  # so no retriever sees an attribute


@pytest.mark.parametrize(
    ("name", "turns", "value"),
    [
        ("length", ["one two three four five"], "short"),
        ("length", ["one two three four five six"], "medium"),
        ("length", ["one two three", "four five six seven eight nine ten"], "medium"),
        ("length", ["a " * 11], "long"),
        ("script", ["달은 왜 밝아? 1999"], "hangul"),
        ("script", ["Why? Ｗ"], "latin"),
        ("script", ["DNA는?"], "mixed"),
        ("script", ["月は?"], "other"),
        ("script", ["1 + 1"], "other"),
        ("turns", ["a", "b"], "2"),
    ],
)
def test_derived_attributes(name, turns, value):
    assert derived(name, *turns) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("300승을 한 투수는 누구인가?", "who"),
        ("누가 그렸나?", "who"),
        ("Whose idea was it?", "who"),
        ("언제 태어났나?", "when"),
        ("몇년도에 단종되었는가?", "when"),
        ("In what year did it end?", "when"),
        ("언제나 밝은 별은?", "none"),
        ("어디에서 끓어?", "where"),
        ("어느 나라가 이겼나?", "where"),
        ("몇 층으로 되어 있나?", "how many"),
        ("몇 년 동안 버텼나?", "how many"),
        ("How long does it take?", "how many"),
        ("이자는 얼마인가?", "how many"),
        ("몇몇 별은 밝다", "none"),
        ("달은 왜 변해?", "why"),
        ("역사 왜곡을 막으려면?", "none"),  # 왜 is not a word here
        ("어떻게 끓이나?", "how"),
        ("how does it work", "how"),
        ("무엇을 도나?", "what"),
        ("어떤 별인가?", "what"),
        ("What happened when it fell?", "what"),  # the first question word counts
        # Without a question word, the last noun decides.
        ("이를 처음 고안한 사람은?", "who"),
        ("기록된 장소는? ", "where"),
        ("태어난 해는?", "when"),
        ("말을 안 한 이유는?", "why"),
        ("그가 이해는?", "none"),  # 이해 does not end in the noun 해
        ("전체 학생의 수는?", "how many"),
        ("그래픽을 표현하는 방법은?", "how"),
        ("왕비의 이름은?", "what"),
        ("달의 모양", "none"),
        ("showhow", "none"),
    ],
)
def test_what_a_question_asks_for(text, value):
    assert derived("asks", "누구?", text) == value  # only the last turn is read


def test_the_number_of_relevant_documents():
    grades = {
        name: {f"d{i}": 1.0 for i in range(count)} for name, count in zip("abcdef", (0, 1, 2, 5, 6, 1), strict=True)
    }
    queries = [Query.of(name, "t") for name in "abcdeg"]  # f is not among them, g has no label
    found = attributes_of(queries, Qrels(grades))["relevant"]
    assert found == {"a": "0", "b": "1", "c": "2-5", "d": "2-5", "e": "6+"}
    assert "relevant" not in attributes_of(queries)


def test_given_attributes_replace_derived_ones():
    queries = [Query.of("a", "x", None, {"asks": "a date", "relevant": "many"}), Query.of("b", "who?")]
    found = attributes_of(queries, Qrels({"a": {}, "b": {}}))
    assert found["asks"] == {"a": "a date"}
    assert found["relevant"] == {"a": "many"}
    assert found["turns"] == {"a": "1", "b": "1"}


def test_slices_are_in_order_and_cover_all_queries():
    """Numbers by size, then `short` to `long`, then other texts; queries without a value come last."""
    known = {
        "year": {"a": "10", "b": "9", "c": "late"},
        "length": {"a": "long", "b": "short", "c": "medium", "d": "long"},
    }
    found = slices_by(["year", "length", "year"], known, ["a", "b", "c", "d"])
    assert [one.name for one in found] == [
        *("year=9", "year=10", "year=late", "year=(none)"),
        *("length=short", "length=medium", "length=long"),
    ]
    assert np.array([one.inside for one in found]).sum(axis=0).tolist() == [2, 2, 2, 2]
    assert found[6].inside.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lagn", ["no attribute 'lagn'", "Did you mean 'lang'?", "They have: lang, id, length", "relevant"]),
        ("id", ["id has 51 different values", "may have at most 50"]),
    ],
)
def test_bad_slices_are_refused(name, words):
    queries = [Query.of(str(i), "t", None, {"lang": "ko", "id": str(i)}) for i in range(51)]
    with pytest.raises(BadInput) as refused:
        slices_by([name], attributes_of(queries, Qrels({})), ())
    for word in words:
        assert word in str(refused.value)
