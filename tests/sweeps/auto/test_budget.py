"""Times as text, and the log of what was spent, whole and damaged."""

import pytest

from harness.errors import BadInput
from harness.sweeps.auto.budget import StepLog, seconds_of, seconds_text


def test_budgets_and_seconds_by_hand():
    budgets = {"90s": 90, "10m": 600, "2h": 7200, "1.5m": 90, "1s": 1, "168h": 604_800}
    assert {text: seconds_of(text) for text in budgets} == budgets
    shown = {0.25: "0.2 s", 42: "42 s", 120: "2.0 min", 7199: "120.0 min", 7200: "2.0 h"}
    assert {seconds: seconds_text(seconds) for seconds in shown} == shown


@pytest.mark.parametrize("text", ["10", "m", "10 m", "-5m", "10min", "1e3s", "10M", "", "nanm", "٣m", None, 600,
                                  "0s", "0.5s", "169h", "999999999h"])  # fmt: skip
def test_texts_that_are_no_budget(text):
    with pytest.raises(BadInput, match=r"is not a time: give a number and its unit, such as 90s|give 1s to 168h"):
        seconds_of(text)


def test_a_ledger_is_read_again(tmp_path):
    log = StepLog(tmp_path / "steps.jsonl")
    log.note("system a", 3.0, 2.0)
    log.note("system b", 1.0, 0.5)
    log.note("replay 0", 5.0)
    log.note("system a", 99.0, 99.0)  # done before: what it took then counts
    for one in (log, StepLog(tmp_path / "steps.jsonl")):
        assert (one.spent, one.seconds("system"), one.seconds("replay")) == (9.0, 4.0, 5.0)
        assert ["system a" in one, "system c" in one] == [True, False]
        assert one.pace == 1.5  # of the first step alone, which was expected to take a second or more
    # One strange step does not spoil all estimates.
    strange = StepLog(tmp_path / "strange.jsonl")
    assert strange.pace == 1.0
    strange.note("system a", 1000.0, 1.0)
    assert strange.pace == 5.0
