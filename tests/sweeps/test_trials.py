"""The journal of a sweep's trials."""

import dataclasses
import math

from ended_trials import append, ended

from harness.measures.objective import Objective
from harness.statistics.prediction_powered import Estimate
from harness.storage.append_log import START
from harness.sweeps.trials import Context, claim_sweep, read_journal


def test_a_journal_holds_trials_as_they_were_written_by_the_current_start(tmp_path):
    mine, ranked = (
        Context("id", "e", tmp_path, claim_sweep(tmp_path), {}),
        Objective("map@3", 0.5, estimate=Estimate(0.5, 0.4, 0.6, 30, 70)),
    )
    told = [
        ended(0, "a", metrics={"x": math.nan}, objective=ranked, params={"depth": 20, "on": None}),
        ended(1, "b", "FAILED", error="OSError: b\udcff.jsonl\n"),
    ]
    assert read_journal(mine) == ([], START)
    for one in told:
        assert append(mine, one)
        assert not append(dataclasses.replace(mine, token="other"), one)
    found, position = read_journal(mine)
    assert repr(found) == repr(told)  # NaN is not itself
    assert read_journal(mine, position) == ([], position)
    assert sorted(path.name for path in (tmp_path / "trials").iterdir()) == ["0", "1.failed"]
