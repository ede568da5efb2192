"""What is known of a judge: written, read, and compared with the models that it may be."""

import dataclasses
import json

import pytest
from fuzzing.kept import JUDGE as RECORD

from harness.errors import BadInput
from harness.testset.judge.judge_record import circular, read_records, write_record
from harness.testset.pool.pool import About, Pool, PooledRun


def test_records_of_several_judges_stand_side_by_side(tmp_path):
    assert read_records(tmp_path) == {}
    other = dataclasses.replace(RECORD, by="llm:other#1", model="other", seeds=None, controls={})
    for one in (other, RECORD, other):
        write_record(tmp_path, one)
    assert read_records(tmp_path) == {RECORD.by: RECORD, other.by: other}
    assert RECORD.judged == 11
    content = json.loads((tmp_path / "judge.json").read_text())
    assert content["judges"][RECORD.by]["controls"]["stuffed"]["high"] == pytest.approx(0.48989, abs=1e-5)  # 0 of 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 1', '"version": 2', "reads version 1"),
        ('"judges"', '"models"', "judges is missing"),
        ('"null": 1', '"nul": 1', "grades is"),
        ('"0": 3', '"0": -3', "grades is"),
        ('"stuffed"', '"stuffing"', "controls has"),
        ('"count": 0', '"count": 5', "0 <= count <= of"),
        ('"of": 4', '"of": 0', "0 <= count <= of"),
        ('"model": "tiny"', '"model": 3', "model"),
    ],
)
def test_damaged_records_are_refused(tmp_path, old, new, message):
    write_record(tmp_path, RECORD)
    path = tmp_path / "judge.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(BadInput, match=message) as found:
        read_records(tmp_path)
    assert "judge.json" in str(found.value)


def test_a_judge_that_judges_itself_is_named():
    runs = {
        "a": PooledRun("gated", 10, {"llm.model": "Big-1"}),
        "b": PooledRun("reranked", 10, {"rerank.model": "BAAI/bge"}),
        "c": PooledRun("rewritten", 10, {"llm.model": "acme/big-1"}),
        "d": PooledRun("plain", 10),
    }
    pool = Pool((), About("docs", "ab", runs))
    drafted = {"settings": {"llm": {"model": "big-1"}}}
    drafts, asked = circular("big-1", drafted, pool)
    assert "has drafted the queries" in drafts
    assert "llm.model of a, c" in asked
    (reranker,) = circular("bge", drafted, pool)
    assert "rerank.model of b)" in reranker
    assert circular("other", drafted, pool) == []
    for manifest in ({}, {"settings": None}, {"settings": {"llm": None}}, {"settings": {"llm": {"model": None}}}):
        assert circular("other", manifest, pool) == []
