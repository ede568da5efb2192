"""The score of the procedure: no held-out label reaches what scores it, and chance is not taken for a gain."""

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.commands.sweep.auto.ascent import Menu, System
from harness.commands.sweep.auto.procedure import FOLDS, Replay, judged, replay
from harness.gates.calibration import folds

PLAIN = ("gate=none",)
SYSTEMS = tuple(System((f"retriever=r{number}",), ("r",), fusible=False) for number in range(30))
MENU = Menu(SYSTEMS, (PLAIN,), ((),), weigh=False)
ROWS = np.arange(60)
NEEDS = np.ones(60, bool)


class Noted:
    """Values that are given, and what was asked for."""

    def __init__(self, table):
        self.table, self.asked = table, []

    def values(self, words, known):
        self.asked.append((words, known))
        return self.table[words]


def made(values):
    return Noted(dict(zip([(*one.words, *PLAIN) for one in SYSTEMS], values, strict=True)))


def test_equally_good_systems_bring_no_gain():
    """30 systems whose values are drawn alike: the best of them looks good by luck, the procedure does not."""
    gains, lucks = [], []
    for draw in range(60):
        values = np.random.default_rng(draw).random((30, 60))
        found = replay(MENU, made(values), ROWS, NEEDS, seed=0, number=draw % 3)
        gains.append(np.mean(found.values) - values[0].mean())
        lucks.append(values.mean(axis=1).max() - values[0].mean())
    # The mean of 60 gains, each with a standard deviation of about .05: .02 is three standard errors.
    assert abs(np.mean(gains)) < 0.02
    assert np.mean(lucks) > 0.06


def test_a_system_that_is_better_is_found():
    values = (
        np.random.default_rng(0).random((30, 60)) + np.array([0.3 * (number == 7) for number in range(30)])[:, None]
    )
    found = replay(MENU, made(values), ROWS, NEEDS, seed=0, number=0)
    assert set(found.chosen) == {("retriever=r7", "gate=none")}
    assert found.values == tuple(values[7])


def test_no_fold_sees_its_own_labels():
    bench = made(np.random.default_rng(1).random((30, 60)))
    replay(MENU, bench, ROWS, NEEDS, seed=0, number=0)
    fold = folds(NEEDS, FOLDS, 500)
    known = {tuple(rows) for _, rows in bench.asked}
    assert known == {tuple(np.flatnonzero(fold != one)) for one in range(FOLDS)}


def test_few_queries_have_as_many_folds():
    bench = made(np.random.default_rng(1).random((30, 60)))
    found = replay(MENU, bench, ROWS[:3], NEEDS, seed=0, number=0)
    assert len(found.chosen) == len(found.values) == 3


def test_a_replay_survives_its_file(tmp_path):
    found = Replay((0.5, 1 / 3), (("a=1", "b=2"), ("a=1",)))
    found.write(tmp_path / "replay.json", "these labels")
    assert Replay.read(tmp_path / "replay.json", "these labels") == found
    assert Replay.read(tmp_path / "replay.json", "other labels") is None
    assert Replay.read(tmp_path / "none.json", "these labels") is None


def numbers(values, baseline, **named):
    replays = [Replay(tuple(row), (("a",), ("b",))) for row in values]
    asked = {"objective": "map", "select_on": "all", "seed": 0, "raw": False} | named
    return judged(
        asked["objective"], asked["select_on"], replays, (("a",), 0.9), (("base",), np.array(baseline)), asked["seed"],
        asked["raw"],
    )  # fmt: skip


def test_the_numbers_by_hand():
    values = [[1.0, 0.5] * 20, [1.0, 0.0] * 20]  # of each query on average: 1, .25
    found = numbers(values, [0.5, 0.25] * 20)
    assert (found.value, found.baseline, found.winner) == (0.625, 0.375, 0.9)
    assert (found.queries, found.repeats, found.folds) == (40, 2, 2)
    assert found.difference == pytest.approx(0.25)
    assert found.difference_low < 0.25 < found.difference_high
    # 20 queries of 40 differ, all in one direction: of 10,000 ways to swap, none is as far apart but by chance 2^-19.
    assert found.p < 0.001
    assert found.agreement == 0.5  # two of four folds chose the winner
    assert found.kind == "out of fold"
    assert numbers(values, [0.5, 0.25] * 20, select_on="public").kind == "public, out of fold"


@pytest.mark.parametrize(
    ("count", "named", "note"), [(10, {}, "Only 10 labelled queries"), (40, {"raw": True}, "model")]
)
def test_numbers_without_intervals(count, named, note):
    found = numbers([[1.0, 0.5] * (count // 2)], [0.5, 0.5] * (count // 2), **named)
    assert math.isnan(found.low)
    assert math.isnan(found.p)
    assert note in found.notes[0]
    assert found.to_json()["p"] is None
    assert "p =" not in found.sentence()
    assert "procedure/p" not in found.metrics()
    assert found.metrics()["procedure/value"] == 0.75


def test_the_sentence_says_what_the_procedure_brings():
    found = numbers([[1.0, 0.5] * 20], [0.5, 0.5] * 20)
    assert "scores map 0.7500" in found.sentence()
    assert "0.2500 better than base (0.5000)" in found.sentence()
    assert "worse than base" in replace(found, difference=-0.1).sentence()
