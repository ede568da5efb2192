"""The objective: the value by which runs are ranked, with its interval and the queries and labels behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from harness.measures.measures import OOF
from harness.measures.scores import Scores, Summary
from harness.statistics.prediction_powered import Estimate
from harness.storage.typed import OPTIONAL

Kind = Literal["in sample", "out of fold", "public", "public, out of fold", "held out"]
SelectOn = Literal["all", "public"]


@dataclass(frozen=True)
class Objective:
    """The value of the measure by which a run is ranked.

    low, high: 95 % interval, NaN without one.
    kind: the queries that enter the mean, and how their lists were made:
        "in sample": all scored queries, with the lists that the run wrote.
        "out of fold": all scored queries, each fused and gated by a rule learnt without the query's label.
        "public", "public, out of fold": like the two kinds above, but with public queries only (select_on=public).
        "held out": queries whose labels had no part in any choice: with select_on=public, the private queries.
    estimate: if a model wrote some labels, an estimate of the mean by people's labels. `value` is then the raw mean
        over both kinds of labels, without an interval. Runs are still ranked by `value`: the highest of many
        estimates is often due to luck, and a run that shows unjudged documents may have no estimate.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    kind: Kind = "in sample"
    estimate: Estimate | None = field(default=None, metadata=OPTIONAL)

    @property
    def title(self) -> str:
        return f"{self.name}, {self.kind}"

    @property
    def select_on(self) -> SelectOn:
        return "public" if self.kind.startswith("public") else "all"


def score_kind(out_of_fold: bool, select_on: str) -> Kind:
    if select_on == "public":
        return "public, out of fold" if out_of_fold else "public"
    return "out of fold" if out_of_fold else "in sample"


def logged_name(name: str, kind: Kind) -> str:
    """Return the name under which a run logs a value of this kind, such as `oof/public/modified_map@3`."""
    return f"{OOF if kind.endswith('out of fold') else ''}{'public/' if kind.startswith('public') else ''}{name}"


def objective_of(name: str, scores: Scores | None, held_out: Scores | None, select_on: str) -> Objective | None:
    """Return the value by which a run is ranked; None without labels, or if the measure is undefined.

    held_out: out-of-fold scores, by which a run that learnt from labels is ranked; None if nothing was learnt.
    """
    if scores is None:
        return None
    # Measures that cannot be averaged over folds, such as abstention_auroc, have no out-of-fold value.
    read = held_out if held_out and name in held_out.summary else scores
    summary = (read.public if select_on == "public" else read.summary).get(name)
    estimate = read.estimate(name, public=select_on == "public")
    return from_summary(name, summary, score_kind(read is held_out, select_on), estimate)


def from_summary(name: str, summary: Summary | None, kind: Kind, estimate: Estimate | None = None) -> Objective | None:
    if summary is None or math.isnan(summary.known):
        return None
    return Objective(name, summary.mean, summary.low, summary.high, kind, estimate)
