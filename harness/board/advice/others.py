"""The other runs that compare with one: their settings, and their values on its queries."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.board.advice.evidence import Evidence
from harness.board.advice.ideas import Beyond
from harness.board.plateau import plateau
from harness.board.varied import varied
from harness.config.text import counted
from harness.evaluation.measures import grows_with
from harness.evaluation.score_table import read_table
from harness.evaluation.significance import ALPHA, sign_flip_test
from harness.tracking.ranking import is_same
from harness.tracking.reading_ahead import Ahead
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import BadInput

MOST = 100  # runs whose scores by query are read, the best first
SCORES = "scores.csv"
KNOWN = ("top_k", "depth", "seed", "public")  # numbers of which more is known than how runs with them scored


@dataclass(frozen=True, eq=False)
class Others:
    """Runs, the best first. values: float64 [R, Q], on the queries of the evidence; NaN for those not scored.

    unread: why others are not among them -> how many.
    """

    runs: Sequence[LoggedRun]
    values: np.ndarray
    unread: Mapping[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Which runs that compare were left out, and why."""
        return [f"Left out: {counted(count, 'other run')} {why}." for why, count in self.unread.items()]

    @property
    def best(self) -> np.ndarray | None:
        """The best value of each query, float64 [Q]; None without runs."""
        return np.fmax.reduce(self.values) if len(self.runs) else None


def read(tracker: Tracker, runs: Sequence[LoggedRun], evidence: Evidence) -> Others:
    """The runs with scores by query, the best first."""
    name, found, values, unread = evidence.measure.name, [], [], Counter[str]()
    ranked = sorted(runs, key=lambda one: -one.objective.value if one.objective else 0.0)
    if len(ranked) > MOST:
        unread[f"that scored lower than the {MOST} best"] = len(ranked) - MOST
    wanted = [(run, SCORES) for run in ranked[:MOST]]
    with tempfile.TemporaryDirectory() as folder, Ahead(tracker, wanted, Path(folder)) as files:
        for run in ranked[:MOST]:
            try:
                table = read_table(files.download(run, SCORES), name)
            except BadInput:  # of an earlier version, or damaged
                unread[f"whose {SCORES} is missing or damaged"] += 1
                continue
            if name not in table.values:
                unread[f"without {name} by query"] += 1
                continue
            of = dict(zip(table.query_ids, (table.oof or table.values)[name].tolist(), strict=True))
            found.append(run)
            values.append([of.get(query_id, np.nan) for query_id in evidence.query_ids])
    return Others(found, np.array(values).reshape(len(found), len(evidence.query_ids)), unread)


def tried_values(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Group or key -> how many other values of it have been tried. own: params of the best run. others: of the rest."""
    found: dict[str, set[str]] = {}
    for params in others:
        for key, value in params.items():
            if value != own.get(key, value):
                found.setdefault(key, set()).add(value)
    return {key: len(values) for key, values in found.items()}


def edges(own: Mapping[str, str], evidence: Evidence, others: Others) -> list[Beyond]:
    """The numbers whose best value lies at the end of what was tried, with one step beyond it."""
    whole = ~np.isnan(others.values).any(axis=1) & np.array([run.has_settings for run in others.runs], bool)
    rows = np.vstack([evidence.values[None], others.values[whole]])
    keys = varied([own, *(run.params for run, kept in zip(others.runs, whole, strict=True) if kept)])
    found = []
    for key in keys:
        grows = grows_with(evidence.measure.name, key.name)
        shape = plateau(key, keys, rows, None, grows) if key.places[0] >= 0 and key.name not in KNOWN else None
        if shape and shape.at_end and shape.values[shape.best] == key.values[key.places[0]]:
            beside = shape.values[1] if shape.at_end == "least" else shape.values[-2]
            found.append(Beyond(key.name, _beyond(shape.values[shape.best], beside), shape.sentence(key.name)))
    return found


@dataclass(frozen=True)
class Untold:
    """A run that the queries do not tell from another. p: of the pair alone."""

    run: LoggedRun
    p: float


def untold(one: LoggedRun, evidence: Evidence, others: Others) -> Untold | None:
    """The best of the other runs if the queries do not tell it apart from this one, and they differ at all."""
    by_id = sorted(range(len(evidence.query_ids)), key=evidence.query_ids.__getitem__)  # as everywhere, for one p
    for run, values in zip(others.runs, others.values, strict=True):
        gaps = np.nan_to_num(evidence.values - values)[by_id]
        if gaps.any() and not is_same(one, run):
            (p,), _ = sign_flip_test(gaps[None])
            return Untold(run, float(p)) if p > ALPHA else None
    return None


def _beyond(best: str, beside: str) -> str:
    """One more step from the value beside the best: by the same factor where both are above 0, else by as much."""
    last, before = float(best), float(beside)
    if best.lstrip("-").isdigit() and beside.lstrip("-").isdigit():
        return str(int(2 * last - before))
    return f"{last * last / before if last > 0 and before > 0 else 2 * last - before:.4g}"
