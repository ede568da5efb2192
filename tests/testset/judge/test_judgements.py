"""Judgements: the last word of each judge holds."""

from dataclasses import replace

import pytest

from harness.testset.judge.judgements import Judgement, JudgementLog, by_pair, current, text_digest
from retrievers.base import Query, Turn

MOON, SEA = Query.of("q1", "달은 왜 둥글어?"), Query.of("q2", "바다")
AT = "2026-11-22T09:30:00Z"
ONE = Judgement("q1", text_digest(MOON), "d1", 2, "human:kim", AT)


def test_judgements_are_kept_and_the_last_word_of_each_judge_holds(tmp_path):
    said = [
        ONE,
        replace(ONE, doc_id=None, grade=None, needs=False, by="adjudicated:lee", round=2, sample="audit", pi=0.5),
    ]
    JudgementLog(tmp_path).append(said)
    assert JudgementLog(tmp_path).read() == said
    lee, model = replace(ONE, by="human:lee", grade=0), replace(ONE, by="llm:m#01", grade=3)
    second, changed = replace(ONE, round=2, grade=1), replace(ONE, grade=3)
    said = [ONE, lee, model, second, changed, replace(lee, withdrawn=True)]
    assert current(said, {"q1": MOON}) == [model, second, changed]
    assert by_pair(current(said, {"q1": MOON})) == {("q1", "d1"): [model, second, changed]}
    assert current([*said, lee], {"q1": MOON})[-1] == lee  # taken back, and said again


def test_a_judgement_holds_for_the_text_that_was_judged():
    asked = Query("q1", (*MOON.turns, Turn("assistant", "돌아서."), Turn("user", "왜?")))
    assert current([ONE], {"q1": asked}) == []
    assert current([ONE], {"q2": SEA}) == []
    assert text_digest(Query.of("other", "달은 왜 둥글어?")) == ONE.text  # whatever the id is


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grade": 7}, "grade is 7, but must be one of"),
        ({"by": "kim"}, "by is 'kim', but must be human:NAME"),
        ({"sample": "audits"}, "sample is 'audits'"),
        ({"round": 3}, "round is 3"),
        ({"pi": 0}, "pi is 0, but a probability"),
    ],
)
def test_a_judgement_with_a_wrong_value_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(ONE, **change)
