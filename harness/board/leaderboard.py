"""Runs in the order of their scores: what each costs, which the queries cannot tell from the best, which to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.board.optimism import Optimism, optimism
from harness.board.recommendation import Candidate, Pick, pick
from harness.board.runs import BoardRun, BoardRuns
from harness.board.settings import changed_settings
from harness.config.components import WRITTEN
from harness.evaluation.scores import plain
from harness.evaluation.significance import holm, sign_flip_test
from harness.pipeline.timing import MS
from harness.tracking.tracker import LoggedRun

ALPHA = 0.05  # a run is told apart from the best one below this p
RESAMPLES = 10_000  # sign flips of a test, where there are too many to enumerate
SEED = 0  # of the flips
_ROWS = 512  # runs tested at once, so that their sums fit into memory
INDEX = "index_mb"


@dataclass(frozen=True)
class Part:
    """What a run scores on the public or the private part, and its rank there among the runs of the board."""

    value: float
    rank: int


@dataclass(frozen=True)
class Changed:
    """A setting in which a run differs from the one above it; None where a run has none."""

    key: str
    above: str | None
    here: str | None


@dataclass(frozen=True)
class Row:
    """A run on the leaderboard.

    run: its place in `BoardRuns.runs`.
    difference: its mean minus that of the best run, over the queries that count in both.
    p, p_holm: of the paired randomisation test against the best run; None for the best itself, and where labels come
        partly from a model.
    tied: whether it is the best run or not told apart from it; None where nothing was tested.
    ms: milliseconds per query, None if unknown. index_mb: size of its indexes, None if unknown.
    asks_model: whether it asks a language model about each query, which the time leaves out.
    changed: what differs from the run above it.
    public, private: None unless asked for.
    """

    run: int
    difference: float
    p: float | None
    p_holm: float | None
    tied: bool | None
    ms: float | None
    index_mb: float | None
    asks_model: bool
    changed: tuple[Changed, ...]
    public: Part | None = None
    private: Part | None = None


@dataclass(frozen=True)
class Leaderboard:
    """rows: the best first. pick: the run to take. luck: how much of the best score is luck, None if unknown.

    notes: what a reader must know besides.
    """

    rows: tuple[Row, ...]
    pick: Pick
    luck: Optimism | None
    notes: tuple[str, ...] = ()

    @property
    def tied(self) -> tuple[Row, ...]:
        """The best run and those not told apart from it."""
        return tuple(row for row in self.rows if row.tied)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain({
            "alpha": ALPHA,
            "rows": [asdict(row) for row in self.rows],
            "pick": asdict(self.pick),
            "luck": self.luck.to_json() if self.luck else None,
            "notes": list(self.notes),
        })  # fmt: skip
        return found


def leaderboard(runs: BoardRuns, *, parts: bool = False) -> Leaderboard:
    """The leaderboard of the runs. parts: whether it shows public and private scores."""
    estimated = any(one.score.estimate for one in runs.runs)
    values = runs.values if runs.select_on == "all" else runs.values[:, runs.public]
    gaps = values - values[0]
    p = np.full(len(values), np.nan) if estimated else against_best(values)
    corrected = np.concatenate([[np.nan], holm(p[1:])]) if not estimated else p
    rows = []
    public = _parts(runs.values[:, runs.public]) if parts else [None] * len(values)
    private = _parts(runs.values[:, ~runs.public]) if parts else [None] * len(values)
    above: Sequence[LoggedRun] = [runs.runs[0].run, *(one.run for one in runs.runs[:-1])]
    for place, one in enumerate(runs.runs):
        rows.append(
            Row(
                run=place,
                difference=_mean(gaps[place]),
                p=_known(p[place]),
                p_holm=_known(corrected[place]),
                tied=None if estimated else bool(place == 0 or corrected[place] > ALPHA),
                ms=_logged(one, MS),
                index_mb=_logged(one, INDEX),
                asks_model=asks_model(one.run.params),
                changed=changed(above[place], one.run),
                public=public[place],
                private=private[place],
            )
        )
    luck = optimism(
        runs.metric,
        dict(enumerate(runs.values)),
        runs.needs,
        runs.public if runs.select_on == "public" else np.ones(len(runs.public), bool),
        SEED,
        best=0,
    )
    candidates = [
        Candidate(one.name, one.score.value, row.tied is True, row.ms, row.index_mb, row.asks_model)
        for one, row in zip(runs.runs, rows, strict=True)
    ]
    return Leaderboard(tuple(rows), pick(candidates, runs.metric, values.shape[1], estimated), luck, _notes(estimated))


def against_best(values: np.ndarray) -> np.ndarray:
    """p of the paired randomisation test of the first run against each other one, float64 [R]; NaN for the first.

    Two-sided, as `significance.differences` has it for two runs, with RESAMPLES flips that are the same for all pairs.

    values: float64 [R, Q], NaN where the measure does not apply.
    """
    found = [np.array([np.nan])]
    for start in range(1, len(values), _ROWS):
        p, _ = sign_flip_test(values[0] - values[start : start + _ROWS], SEED, RESAMPLES)
        found.append(p)
    return np.concatenate(found)


def changed(above: LoggedRun, here: LoggedRun) -> tuple[Changed, ...]:
    """The settings in which a run differs from the one above it."""
    found = changed_settings([above.params, here.params])
    return tuple(Changed(key, before, after) for key, (before, after) in found.items())


def asks_model(params: Mapping[str, str]) -> bool:
    """Whether a run with these params asks a language model about each query."""
    return params.get("gate") == "llm" or params.get("query.text") in WRITTEN


def _parts(values: np.ndarray) -> list[Part | None]:
    """The mean of each run over a part, and its rank: 1 + the number of runs that are better. values: [R, n]."""
    means = [_mean(row) for row in values]
    return [None if math.isnan(one) else Part(one, 1 + sum(other > one for other in means)) for one in means]


def _notes(estimated: bool) -> tuple[str, ...]:
    if not estimated:
        return ()
    return (
        "The labels come partly from a model: estimates of what people's labels would give stand beside the raw means "
        "that rank the runs, and nothing is tested by query. `harness compare` tests pairs of these runs.",
    )


def _logged(one: BoardRun, name: str) -> float | None:
    return one.run.metrics.get(name)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _mean(values: np.ndarray) -> float:
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else math.nan
