"""The result of a comparison of runs, and a verdict of one sentence on each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.board.expected import Expected
from harness.config.text import counted
from harness.data.attributes import Slice
from harness.measures.measures import LOSING
from harness.measures.objective import Kind
from harness.measures.scores import UNANSWERABLE
from harness.reports.markup import raw_share
from harness.statistics.prediction_powered import NO_ESTIMATE, NO_INTERVAL, Estimate, EstimatedDifference
from harness.statistics.significance import ALPHA, FEW, TRUST_P, Difference
from harness.statistics.split import ShakeUpSummary, Standing
from harness.storage.typed import HIDDEN, INLINE, OPTIONAL, encoded, key_named
from harness.tracking.tracker import LoggedRun

TESTED = ("p", "p_holm", "p_t", "exact")  # the fields of `Difference` that describe its test


@dataclass(frozen=True)
class Pair:
    """The labels of two runs. Differences are first − second."""

    first: str = field(metadata=key_named("a"))
    second: str = field(metadata=key_named("b"))

    def __str__(self) -> str:
        return f"{self.first} − {self.second}"


@dataclass(frozen=True)
class PairedResult:
    """The difference of a pair in one measure.

    found: the difference by the labels as they are, including labels by a model.
    estimate: the difference that people's labels would give; None if no label comes from a model.
    slice: the queries that were compared; None for all. p is then corrected over all pairs and slices.
    """

    pair: Pair
    measure: str
    found: Difference
    estimate: EstimatedDifference | None = None
    slice: Slice | None = None

    @property
    def p_holm(self) -> float:
        return self.estimate.p_holm if self.estimate else self.found.p_holm

    @property
    def value(self) -> float:
        """The estimated difference if there is an estimate, or else the difference by the labels as they are."""
        return self.estimate.found.value if self.estimate else self.found.mean

    @property
    def note(self) -> str:
        """What limits the interval or the test; or ""."""
        if self.estimate:
            return self.estimate.found.note
        differ = self.found.wins + self.found.losses
        if self.slice is None or not differ:
            return self.found.note
        if 2.0 ** (1 - differ) > ALPHA:  # even if all differences agree, p is not smaller
            return "so few queries differ that no difference can be significant"
        return TRUST_P if differ < FEW else self.found.note

    @property
    def better(self) -> str | None:
        """The label of the better run; None if the difference is not significant."""
        return (self.pair.first if self.value > 0 else self.pair.second) if self.p_holm <= ALPHA else None

    def as_json(self, tested: bool) -> dict[str, Any]:
        """Return the difference and its estimate. tested: return the numbers of the test instead."""
        numbers = {
            name: one for name, one in vars(self.found).items() if one is not None and (name in TESTED) == tested
        }
        found = {**encoded(self.pair), "measure": self.measure, **numbers}
        if self.slice:
            found |= {"attribute": self.slice.attribute, "value": self.slice.value, "note": self.note}
        if self.estimate and not tested:
            found["estimate"] = {**encoded(self.estimate.found), "p_holm": self.estimate.p_holm}
        return encoded(found)


@dataclass(frozen=True)
class PartDifference:
    """The mean difference of a pair over the n queries or items of a part; NaN if n is 0."""

    pair: Pair = field(metadata=INLINE)
    measure: str
    part: str
    n: int
    mean: float


@dataclass(frozen=True, kw_only=True)
class RunScores:
    """The scores of a run. For text tasks, `out_of_fold`, `as_written`, `losses` and `unanswerable` are None.

    metrics: measure -> mean over the compared queries or items, not corrected for errors in a model's labels.
    intervals: measure -> 95 % bootstrap interval of the mean. Measures without an interval are left out.
    estimates: measure -> the mean that people's labels would give; None unless labels come partly from a model.
    out_of_fold: whether `metrics` and `losses` are out of fold, because the run learnt from the labels.
    as_written: measure -> mean over the logged lists.
    losses: kind of loss -> its part of 1 − modified_map@3.
    unanswerable: the share of empty lists among the unanswerable queries; None if every query has an answer.
    """

    json_too = ("run_id", "name", "experiment")
    label: str
    run: LoggedRun = field(metadata=HIDDEN)
    kind: Kind
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    board: Standing | None = field(metadata=INLINE)
    estimates: Mapping[str, Estimate] | None = field(default=None, metadata=OPTIONAL)
    out_of_fold: bool | None = field(default=None, metadata=OPTIONAL)
    as_written: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)
    losses: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)
    unanswerable: float | None = field(default=None, metadata={**key_named(UNANSWERABLE), **OPTIONAL})

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def experiment(self) -> str:
        return self.run.experiment


@dataclass(frozen=True)
class ShownDocument:
    """A document that a run returned. relevant: None if the labels are unknown."""

    doc_id: str
    snippet: str | None = None
    relevant: bool | None = None


@dataclass(frozen=True)
class Changed:
    """A query or item on which the metric differs much between the runs of a pair.

    values, documents, predictions: label of a run -> its value, documents or prediction. Text tasks have no documents;
        retrieval has no predictions.
    about: the id and the text of a query; the id, kind, question, source and reference of an item, if known.
    """

    pair: Pair = field(metadata=INLINE)
    item_id: str = field(metadata=HIDDEN)
    values: Mapping[str, float]
    about: Mapping[str, str | None] = field(metadata=INLINE)
    documents: Mapping[str, Sequence[ShownDocument]] | None = field(default=None, metadata=OPTIONAL)
    predictions: Mapping[str, str | None] | None = field(default=None, metadata=OPTIONAL)
    json_too = ("difference",)

    @property
    def difference(self) -> float:
        return self.values[self.pair.first] - self.values[self.pair.second]


@dataclass(frozen=True)
class UnjudgedDocument:
    """An unjudged document that a run shows for a query. run: the label of the run."""

    run: str
    query_id: str
    doc_id: str
    rank: int


@dataclass(frozen=True)
class Unjudged:
    """The share of judged documents among the first k documents of each run.

    judged: label of a run -> mean share over the queries with returned documents; NaN without such queries.
    documents: the documents to judge first, from runs with a smaller share of judged documents than another run.
    """

    k: int
    judged: Mapping[str, float]
    documents: Sequence[UnjudgedDocument]


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Two or more runs, compared pair by pair.

    noun, unit: the plural names of the runs and of the scored queries or items, such as "runs" and "queries".
    task: the name of a text task; None for retrieval.
    best: the label of the run with the best score on all queries or items; with select_on=public, on the public ones.
    count: the number of compared queries or items: with select_on=public, the private ones; otherwise all.
    judges: the word that goes before `unit`: "private " with select_on=public; otherwise "".
    left_out: sentences about measures that are not compared.
    splits: differences by part. changed: the queries or items with the largest differences of each pair.
    shake_up: how ranks shift over new draws of the public part; None if a part is empty, or if the runs have different
        public parts.
    pairs: the number of pairs that p of the metric is corrected for.
    slices: differences in the metric by slice, of the pairs in order. reversals: a sentence for each slice in which a
        run is significantly worse, though it is better on average.
    expected: what to expect of the experiment's best run on new queries; None if unknown or if the run is not compared.
    unjudged: None if the labels do not say which documents were judged.
    """

    noun: str
    unit: str
    metric: str
    best: str
    count: int
    judges: str
    runs: Sequence[RunScores]
    verdicts: Sequence[str]
    notes: Sequence[str]
    differences: Sequence[PairedResult]
    splits: Sequence[PartDifference]
    changed: Sequence[Changed]
    shake_up: ShakeUpSummary | None
    pairs: int
    left_out: Sequence[str] = ()
    expected: Expected | None = None
    unjudged: Unjudged | None = None
    task: str | None = None
    slices: Sequence[PairedResult] = ()
    reversals: Sequence[str] = ()

    @property
    def several(self) -> bool:
        return len(self.runs) > 2

    @property
    def first_pair(self) -> Pair:
        return self.differences[0].pair

    @property
    def correction(self) -> str:
        """The correction of p for the metric, such as `Holm, 4 pairs`; "" for a single pair."""
        part = f", {self.judges.strip()}" if self.judges else ""
        return f"Holm, {self.pairs:,} pairs{part}" if self.pairs > 1 else ""

    @property
    def in_metric(self) -> list[PairedResult]:
        return [one for one in self.differences if one.measure == self.metric]

    @property
    def estimated(self) -> bool:
        """Whether labels come partly from a model."""
        return any(one.estimate for one in self.differences)

    @property
    def loses(self) -> bool:
        """Whether losses are known and add up to 1 minus the metric."""
        return self.metric == LOSING and any(run.losses for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        others = len(self.in_metric)
        found = {
            "metric": self.metric,
            "best": self.best,
            self.unit: self.count,
            "judged_on": "private" if self.judges else "all",
            "verdicts": self.verdicts,
            "expected": self.expected,
            "notes": [*self.notes, *self.left_out],
            "runs": self.runs,
            "differences": [one.as_json(tested=False) for one in self.differences],
            "tests": [
                one.as_json(tested=True) | {"pairs": self.pairs if one.measure == self.metric else others}
                for one in self.differences
            ],
            "splits": self.splits,
            "changed": self.changed,
            "shake_up": self.shake_up,
        }
        optional = {"unjudged": self.unjudged, "task": self.task}
        if self.slices:
            sliced = [one.as_json(tested=False) | one.as_json(tested=True) for one in self.slices]
            found |= {"slices": sliced, "reversals": self.reversals}
        return encoded(found | {name: one for name, one in optional.items() if one is not None})


def kinds_in_words(whose: Mapping[str, str]) -> str:
    """Return for example `out of fold`, or `in sample (A) or out of fold (B, C)`. whose: kind -> labels of runs."""
    return next(iter(whose)) if len(whose) == 1 else " or ".join(f"{kind} ({who})" for kind, who in whose.items())


def pair_verdict(one: PairedResult, pairs: int, unit: str) -> str:
    """Return a sentence about a pair. pairs: how many pairs p is corrected for. unit: "queries" or "items"."""
    found, metric, a, b = one.found, one.measure, one.pair.first, one.pair.second
    if one.estimate and found.ties < found.n:
        return _estimated_verdict(one, one.estimate, pairs)
    if found.n < 2:
        return f"{a} and {b} cannot be told apart: {metric} applies to {found.n:,} of the {unit}."
    if found.wins + found.losses == 0:
        return f"{a} and {b} have the same {metric} on each of {found.n:,} {unit}."
    p = p_in_words(found.p_holm, pairs)
    if found.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told on {found.n:,} {unit}: {metric} of {a} − {b} is "
            f"{found.mean:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}."
        )
    return f"{_better(one)} in {metric}, {p}."


def _estimated_verdict(one: PairedResult, estimate: EstimatedDifference, pairs: int) -> str:
    found, metric, raw, a, b = estimate.found, one.measure, one.found.mean, one.pair.first, one.pair.second
    beside = f"the raw difference, {raw_share(found)}, is {raw:+.3f}"
    if math.isnan(found.low):
        known = "" if math.isnan(found.value) else f"the estimate of {metric} of {a} − {b} is {found.value:+.3f}; "
        reason = found.note.removeprefix(NO_ESTIMATE).removeprefix(NO_INTERVAL)
        return f"{a} and {b} cannot be told apart: {reason}; {known}{beside}."
    p = p_in_words(estimate.p_holm, pairs)
    checked = f"{counted(found.checked, 'checked query')} of {found.checked + found.others:,}"
    if estimate.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told from {checked}: the estimate of {metric} of {a} − {b} is "
            f"{found.value:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}; {beside}."
        )
    better = _better(one)
    return f"{better} in {metric}, estimated from {checked}, {p}; {beside}."


def p_in_words(p: float, pairs: int = 1) -> str:
    return f"p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}" + (f" after Holm over {pairs} pairs" if pairs > 1 else "")


def _better(one: PairedResult) -> str:
    a, b = (one.pair.first, one.pair.second)[:: 1 if one.value >= 0 else -1]
    value, low, high = better_by(one)
    return f"{a} is better than {b} by {value:.3f} (95 % {low:.3f} to {high:.3f})"


def better_by(one: PairedResult) -> tuple[float, float, float]:
    """Return by how much the better run of a pair is better, and the ends of the 95 % interval."""
    found = one.estimate.found if one.estimate else one.found
    return (one.value, found.low, found.high) if one.value >= 0 else (-one.value, -found.high, -found.low)
