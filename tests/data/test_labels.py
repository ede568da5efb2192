"""Labels with holes: rows are read as written, contradictions are refused, and what is written is read back."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.contest import Contest
from harness.data.files import json_text
from harness.data.labels import ROW as WHOLE
from harness.data.labels import Label, label_row, qrels_of, read_label
from harness.data.qrels import Qrels
from harness.data.trec import Trec, judged_pairs, trec_qrels_lines
from harness.errors import BadInput


def contest(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return Contest(qrels=str(path)).qrels()


def test_rows_of_both_forms_in_one_file(tmp_path):
    found = contest(
        tmp_path / "labels.jsonl",
        {"eval_id": 1, "needs": True, "kind": "fact", "relevant": {"a": 3}, "not_relevant": ["b", 7], "basis": "human"},
        {"eval_id": 2, "needs": True, "relevant": {}, "not_relevant": ["a"]},  # nothing that was judged is relevant
        {"eval_id": 3, "needs": False, "kind": "none", "relevant": [], "not_relevant": ["c"]},
        {"eval_id": 4, "needs": True, "kind": "unanswerable", "relevant": {}, "not_relevant": ["c"]},
        {"eval_id": 5, "relevant": ["a"], "kind": 8, "needless": 1},  # the contest's form, whatever else it has
        {"eval_id": 6, "relevant": []},
    )
    assert found == Qrels(
        {"1": {"a": 3.0}, "2": {}, "3": {}, "5": {"a": 1.0}, "6": {}},
        not_relevant={"1": frozenset({"b", "7"}), "2": frozenset({"a"}), "3": frozenset({"c"})},
        unmet=frozenset({"2"}),
        unanswerable=("4",),
    )
    assert [found.needs_retrieval(query_id) for query_id in found.grades] == [True, True, False, True, False]


def test_rows_of_the_contest_do_not_say_what_was_judged(tmp_path):
    rows = [{"eval_id": 1, "relevant": ["a"]}, {"eval_id": 2, "relevant": []}]
    assert contest(tmp_path / "f", *rows).not_relevant is None
    with_need = {"eval_id": 1, "needs": True, "relevant": []}  # nor does this one; yet it needs retrieval
    assert contest(tmp_path / "f", with_need) == Qrels({"1": {}}, unmet=frozenset({"1"}))


ROW = {"needs": True, "kind": "fact", "relevant": {"a": 2}, "not_relevant": ["b"], "basis": "human"}
ALL = re.escape(WHOLE) + "$"
WRONG = [
    ({"needs": 1}, r"needs is 1, but must be true or false\."),
    ({"needs": ...}, rf"the row has the field not_relevant, but lacks the field needs\. .*, as in {ALL}"),
    ({"needs": ..., "not_relevant": ..., "kind": "unanswerable"}, r"the row has the field kind, but lacks the field"),
    ({"needs": False}, r"needs is false, but kind fact means the opposite\. Correct one"),
    ({"needs": False, "kind": ""}, r"needs is false, but the field relevant names a\. Write needs: true, or move"),
    ({"kind": "none"}, r"needs is true, but kind none means the opposite"),
    ({"kind": "unanswerable"}, r"the kind is unanswerable, but the field relevant names a\. Change the kind"),
    ({"kind": "unanswerble"}, r"kind 'unanswerble' is not one of fact, .* Did you mean 'unanswerable'"),
    ({"relevant": {"a": 0}}, rf"the grade of 'a' is 0, but .* Put documents judged not relevant into .*: {ALL}"),
    ({"relevant": {"a": float("inf")}}, r"the grade of 'a' is inf"),
    ({"relevant": {"a": 2_000_000}}, r"grade 2e\+06 is too large: the maximum is 1,000,000, .* Divide all grades"),
    ({"not_relevant": ["a"]}, r"the fields relevant and not_relevant both name a\. Keep each"),
    ({"not_relevant": ["1", 1]}, r"the field not_relevant names '1' twice"),
    ({"not_relevant": {"b": 0}}, r"not_relevant is \{'b': 0\}, but must be a list"),
    ({"not_relevant": [""]}, r"an id in not_relevant is ''"),
]


@pytest.mark.parametrize(("change", "expected"), WRONG)
def test_rows_that_contradict_themselves_are_refused(change, expected):
    row = {key: value for key, value in (ROW | change).items() if value is not ...}
    with pytest.raises(BadInput, match="^f:1: " + expected):
        read_label(row, "f:1", "q")


IDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=3).filter(str.strip)
GRADES = st.floats(min_value=0, max_value=1e6, exclude_min=True) | st.integers(1, 3).map(float)


@st.composite
def labels(draw):
    query_id, needs = draw(IDS), draw(st.booleans())
    relevant = draw(st.dictionaries(IDS, GRADES, max_size=3)) if needs else {}
    others = draw(st.none() | st.frozensets(IDS, max_size=3))
    kind = draw(st.sampled_from(("", "fact", "search") if relevant else ("", "fact", "unanswerable")) if needs else
                st.sampled_from(("", "none")))  # fmt: skip
    return Label(query_id, needs, relevant, others and others - set(relevant), kind, draw(st.sampled_from(("", "llm"))))


@given(labels())
def test_a_label_is_read_as_it_was_written(label):
    row = json.loads(json_text([label_row(label)]))
    assert read_label(row, "f:1", row["eval_id"]) == label
    assert label_row(label, 7) == row | {"eval_id": 7}, "a number stays a number"


WORDS = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=3)
PAIRS = st.dictionaries(st.tuples(WORDS, WORDS), st.sampled_from((-1.0, 0.0, 1.0, 2.0, 0.5, 1e6)), min_size=1)


@given(PAIRS)
def test_trec_labels_are_read_as_they_were_written(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "qrels"
    path.write_text("".join(f"{query} 0 {doc} {grade}\n" for (query, doc), grade in pairs.items()), "utf-8")
    qrels = Trec(qrels=str(path)).qrels()
    assert {(query, doc): grade for query, doc, grade in judged_pairs(qrels)} == pairs
    path.write_text("".join(line + "\n" for line in trec_qrels_lines(qrels)), "utf-8")
    assert Trec(qrels=str(path)).qrels() == qrels


def test_what_trec_labels_cannot_say_is_left_out():
    rows = [
        Label("q 1", True, {"b c": 2.0, "a": 0.5}, frozenset({"d"})),
        Label("q2", False, {}, frozenset({"a"})),  # a line would say that it needs retrieval
        Label("q3", True, {}, frozenset({"a"})),
        Label("q4", True, {}, frozenset({"a"}), "unanswerable"),
    ]
    assert list(trec_qrels_lines(qrels_of(rows))) == ["q%201 0 a 0.5", "q%201 0 b%20c 2", "q%201 0 d 0", "q3 0 a 0"]
