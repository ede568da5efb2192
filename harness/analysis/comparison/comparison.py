"""Two or more runs, compared pair by pair: one comparison for runs of every kind, and what it finds as values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from harness.analysis.board.expected import Expected
from harness.analysis.board.runs import BoardRun, BoardRuns, judging
from harness.config.commands import CompareConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.measures.measures import LOSING
from harness.measures.objective import Kind
from harness.measures.scores import UNANSWERABLE
from harness.reports.markup import raw_share
from harness.statistics.prediction_powered import NO_ESTIMATE, NO_INTERVAL, Estimate, EstimatedDifference
from harness.statistics.significance import ALPHA, Difference, pairs_of
from harness.statistics.significance import Pair as Rows
from harness.statistics.split import Score, ShakeUpSummary, Standing, Standings, standings
from harness.storage.typed import HIDDEN, INLINE, OPTIONAL, encoded, key_named
from harness.tracking.tracker import LoggedRun

CHANGED = 10  # queries or items shown of each pair
TESTED = ("p", "p_holm", "p_t", "exact")  # fields of a Difference that belong to its test


@dataclass(frozen=True)
class Pair:
    """The labels of two runs; their differences are first − second."""

    first: str = field(metadata=key_named("a"))
    second: str = field(metadata=key_named("b"))

    def __str__(self) -> str:
        return f"{self.first} − {self.second}"


@dataclass(frozen=True)
class PairedResult:
    """The difference of a pair in one measure, with its interval and its test.

    estimate: of the same, where labels come partly from a model; then `found` is raw. None for other labels.
    """

    pair: Pair
    measure: str
    found: Difference
    estimate: EstimatedDifference | None = None

    @property
    def p_holm(self) -> float:
        return self.estimate.p_holm if self.estimate else self.found.p_holm

    @property
    def better(self) -> str | None:
        """The label of the run that the verdict calls better; None if it tells no difference."""
        value = self.estimate.found.value if self.estimate else self.found.mean
        return (self.pair.first if value > 0 else self.pair.second) if self.p_holm <= ALPHA else None

    def difference_json(self) -> dict[str, Any]:
        estimate = (
            {"estimate": {**encoded(self.estimate.found), "p_holm": self.estimate.p_holm}} if self.estimate else {}
        )
        return encoded(self._json(tested=False) | estimate)

    def test_json(self) -> dict[str, Any]:
        return encoded(self._json(tested=True))

    def _json(self, tested: bool) -> dict[str, Any]:
        """Without what the measure does not have."""
        numbers = {name: value for name, value in vars(self.found).items() if value is not None}
        own = {name: value for name, value in numbers.items() if (name in TESTED) == tested}
        return {**encoded(self.pair), "measure": self.measure, **own}


@dataclass(frozen=True)
class PartDifference:
    """The difference of a pair in one measure over the n queries or items of a part. mean: NaN if there are none."""

    pair: Pair = field(metadata=INLINE)
    measure: str
    part: str
    n: int
    mean: float


@dataclass(frozen=True, kw_only=True)
class RunScores:
    """A run in numbers.

    metrics:     measure -> mean over what judges, of the measures that are compared. kind: what the means rest on.
    intervals:   measure -> both ends of the mean's 95 % bootstrap interval. Measures without an interval are left out.
    estimates:   measure -> estimate over what judges, where labels come partly from a model: `metrics` are then raw.
    out_of_fold: whether `metrics` and `losses` are out of fold, because the run learnt from the labels.
    as_written:  measure -> mean over the lists as written.
    losses:      the parts of 1 - modified_map@3.

    unanswerable: the share of empty lists among the unanswerable queries, all of them.

    The last four are None for text tasks. `unanswerable` is None if every query has an answer.
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
    """snippet: None if the text is unknown. relevant: to the query; None if the labels are unknown."""

    doc_id: str
    snippet: str | None = None
    relevant: bool | None = None


@dataclass(frozen=True)
class Changed:
    """A query or item whose metric differs much between a pair.

    values:      label -> the metric.
    about:       its id; the query; kind, question, source and reference of an item, as far as known.
    documents:   label -> the first documents; None for a text task.
    predictions: label -> the text, None if unknown; None for retrieval.
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
    """A document that a run shows a query at a rank, and that nobody has judged. run: its label."""

    run: str
    query_id: str
    doc_id: str
    rank: int


@dataclass(frozen=True)
class Unjudged:
    """How much of the first k documents of each run was judged.

    judged: label -> the mean share over the queries that are shown documents, NaN if there are none.
    documents: to judge first, those of runs of which less was judged than of another.
    """

    k: int
    judged: Mapping[str, float]
    documents: Sequence[UnjudgedDocument]


class ScoredRuns(ABC):
    """Runs of one kind on the same N queries or items: what a comparison asks of them.

    noun: what is compared; unit: what is scored; both in the plural.
    """

    noun: ClassVar[str]
    unit: ClassVar[str]

    @property
    @abstractmethod
    def labels(self) -> list[str]:
        """The names of the runs in tables and figures."""

    @property
    @abstractmethod
    def public(self) -> np.ndarray:
        """bool [N], the public part."""

    @property
    def task(self) -> str | None:
        """The name of a text task."""
        return None

    @property
    @abstractmethod
    def strata(self) -> np.ndarray:
        """int [N], kinds of queries or items that the public part is drawn from alike."""

    @property
    def apart(self) -> tuple[LoggedRun, LoggedRun] | None:
        """A run with another public part than the first one, and that one; None if they have the same."""
        return None

    @abstractmethod
    def take(self, rows: np.ndarray) -> Self:
        """Return the runs on some of the queries or items. rows: bool [N]."""

    @abstractmethod
    def measures(self, metric: str, judges: np.ndarray) -> tuple[list[str], list[str]]:
        """Return the measures that compare, and notes on others. BadInput if the metric is not among them."""

    @abstractmethod
    def score(self, metric: str) -> Score:
        """Return what scores the runs over any of the queries or items."""

    @abstractmethod
    def values(self, metric: str) -> np.ndarray:
        """Return the metric of each run on each query or item, float64 [R, N]; NaN where it does not apply."""

    @abstractmethod
    def differences(
        self, names: Sequence[str], config: CompareConfig, pairs: Sequence[Rows]
    ) -> dict[Rows, list[Difference]]:
        """Return for each pair one Difference per measure."""

    @abstractmethod
    def part_gaps(self, names: Sequence[str], pair: Rows) -> Iterator[tuple[str, str, int, float]]:
        """Yield (measure, part, how many queries or items, mean difference) of a pair."""

    @abstractmethod
    def scores(self, names: Sequence[str], config: CompareConfig, boards: Sequence[Standing | None]) -> list[RunScores]:
        """Return each run in numbers."""

    @abstractmethod
    def changed(self, pair: Pair, row: int, values: Mapping[str, float]) -> Changed:
        """Return what a pair did on a query or item. values: label -> the metric."""

    @abstractmethod
    def on_board(self, metric: str, select_on: str, placed: Sequence[BoardRun], order: Sequence[int]) -> BoardRuns:
        """Return the runs of a board. placed: the best first; order: the place of each among these runs."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Return what a reader must know of these runs."""

    def estimated(self, names: Sequence[str], pairs: Sequence[Rows]) -> Mapping[Rows, Sequence[EstimatedDifference]]:
        """Return an estimate per measure for each pair, where labels come partly from a model; {} for others."""
        return {}

    def unjudged(self) -> Unjudged | None:
        """Return what the labels leave open; None where they do not say which documents were judged."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Two or more runs, compared pair by pair.

    noun, unit:  what is compared and what is scored, in the plural. task: the name of a text task.
    best:        the label of the best run, by what chooses.
    count:       how many queries or items judge.
    judges:      which these are: "" for all of them, or "private " with select_on=public.
    verdicts:    one sentence per pair. notes: what a reader must know besides. left_out: which measures are not
                 compared, and why.
    differences: one per pair and measure. splits: the same by part. changed: the largest differences of each pair.
    shake_up:    None if a part is empty, or if the runs have different public parts.
    pairs:       how many pairs p is corrected for by the metric, these among them.
    expected:    on new queries of the best run of the experiment, if it is among these; None if unknown.
    unjudged:    what the labels leave open; None where they do not say which documents were judged.
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

    @property
    def several(self) -> bool:
        """Whether there is more than one pair."""
        return len(self.runs) > 2

    @property
    def first_pair(self) -> Pair:
        return self.differences[0].pair

    @property
    def correction(self) -> str:
        """What p is corrected for by the metric: `Holm, 4 pairs`; "" for a single pair."""
        part = f", {self.judges.strip()}" if self.judges else ""
        return f"Holm, {self.pairs:,} pairs{part}" if self.pairs > 1 else ""

    @property
    def in_metric(self) -> list[PairedResult]:
        """The differences in the metric, one per pair."""
        return [one for one in self.differences if one.measure == self.metric]

    @property
    def estimated(self) -> bool:
        """Whether labels come partly from a model."""
        return any(one.estimate for one in self.differences)

    @property
    def loses(self) -> bool:
        """Whether the known losses are those of the metric."""
        return self.metric == LOSING and any(run.losses for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of what was found."""
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
            "differences": [one.difference_json() for one in self.differences],
            "tests": [
                one.test_json() | {"pairs": self.pairs if one.measure == self.metric else others}
                for one in self.differences
            ],
            "splits": self.splits,
            "changed": self.changed,
            "shake_up": self.shake_up,
        }
        optional = {"unjudged": self.unjudged, "task": self.task}
        return encoded(found | {name: one for name, one in optional.items() if one is not None})


def compare_runs(runs: ScoredRuns, config: CompareConfig, family: np.ndarray | None = None) -> Comparison:
    """Compare runs, the best first if there is a family. BadInput unless every run has the metric.

    config: `select_on` says what has chosen the runs; public queries or items do not judge what they chose.
    family: float64 [R], p by the metric of the first run against each of R runs, of which these are the first, after
    correction over all of them; None: over the pairs of these runs.
    """
    metric, labels, apart = config.metric, runs.labels, config.select_on == "public"
    judges = judging_of(runs, config)
    names, left_out = runs.measures(metric, judges)
    at, score = names.index(metric), runs.score(metric)
    ranked = Standings((None,) * len(labels))
    if not runs.apart:
        ranked = standings(score, runs.public, runs.strata, labels, metric, config.seed)
    chose = runs.public if apart else np.ones(len(judges))
    best = 0 if family is not None else int(np.argmax(score(chose[None].astype(np.float64))))
    tested = pairs_of(len(labels), best if config.pairs == "best" else None)
    runs = runs.take(judges)
    found, estimated = runs.differences(names, config, tested), runs.estimated(names, tested)
    corrected_for = len(tested)
    if estimated:  # raw intervals would ignore the model's errors
        found = {pair: [replace(one, low=math.nan, high=math.nan, note="") for one in of] for pair, of in found.items()}
    elif family is not None and config.pairs == "best":
        corrected_for = len(family) - 1
        for (_, other), of in found.items():
            of[at] = replace(of[at], p_holm=float(family[other]))
    pairs = {rows: Pair(*(labels[row] for row in rows)) for rows in found}
    private, values = "private " if apart else "", runs.values(metric)
    chosen = (
        f"select_on=public: the {int((~judges).sum()):,} public {runs.unit} choose and have no part in what follows; "
        f"the {int(judges.sum()):,} private ones judge."
    )
    return Comparison(
        noun=runs.noun,
        unit=runs.unit,
        task=runs.task,
        metric=metric,
        best=labels[best],
        count=int(judges.sum()),
        judges=private,
        verdicts=[
            estimated_verdict(pair, estimated[rows][at], metric, found[rows][at].mean, corrected_for)
            if estimated and found[rows][at].ties < found[rows][at].n
            else pair_verdict(pair, found[rows][at], metric, corrected_for, f"{private}{runs.unit}")
            for rows, pair in pairs.items()
        ],
        notes=[*([chosen] if apart else []), *runs.notes(), *ranked.notes],
        runs=runs.scores(names, config, ranked.boards),
        differences=[
            PairedResult(pair, name, one, estimated[rows][place] if estimated else None)
            for rows, pair in pairs.items()
            for place, (name, one) in enumerate(zip(names, found[rows], strict=True))
        ],
        splits=[PartDifference(pair, *one) for rows, pair in pairs.items() for one in runs.part_gaps(names, rows)],
        changed=[
            runs.changed(pair, row, {labels[run]: float(values[run, row]) for run in rows})
            for rows, pair in pairs.items()
            for row in _most_changed(values[rows[0]] - values[rows[1]])
        ],
        shake_up=ranked.shake_up,
        pairs=corrected_for,
        left_out=left_out,
        unjudged=runs.unjudged(),
    )


def judging_of(runs: ScoredRuns, config: CompareConfig) -> np.ndarray:
    """Return what judges, bool [N]. BadInput if the public part chooses, and is not the same in all runs or is all."""
    if config.select_on == "public" and runs.apart:
        other, first = runs.apart
        raise BadInput(
            f"select_on=public: run {other.named} has another public part than run {first.named}. Make both with the "
            "same `public` and `seed`, or use select_on=all."
        )
    return judging(runs.public, config.select_on or "all", runs.unit)


def _most_changed(gaps: np.ndarray) -> list[int]:
    """Return the rows of the largest differences [N], the largest first; none that are 0 or NaN."""
    sizes = np.abs(np.nan_to_num(gaps))
    return [int(row) for row in np.argsort(-sizes, kind="stable")[:CHANGED] if sizes[row]]


def pair_verdict(pair: Pair, found: Difference, metric: str, pairs: int, unit: str) -> str:
    """Return one sentence: which run of a pair is better by the metric, or that the data cannot tell.

    pairs: how many pairs p is corrected for. unit: what is scored, in the plural.
    """
    a, b = pair.first, pair.second
    if found.n < 2:
        return f"{a} and {b} cannot be told apart: {metric} applies to {found.n:,} of the {unit}."
    if found.wins + found.losses == 0:
        return f"{a} and {b} have the same {metric} on each of {found.n:,} {unit}."
    p = _said_p(found.p_holm, pairs)
    if found.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told on {found.n:,} {unit}: {metric} of {a} − {b} is "
            f"{found.mean:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}."
        )
    return f"{_better(pair, found.mean, found.low, found.high)} in {metric}, {p}."


def estimated_verdict(pair: Pair, one: EstimatedDifference, metric: str, raw: float, pairs: int) -> str:
    """Return one sentence: which run of a pair is better by the metric, or that the checked queries cannot tell.

    raw: the mean difference by labels of both origins. pairs: how many pairs p is corrected for.
    """
    a, b, found = pair.first, pair.second, one.found
    beside = f"the raw difference, {raw_share(found)}, is {raw:+.3f}"
    if math.isnan(found.low):
        known = "" if math.isnan(found.value) else f"the estimate of {metric} of {a} − {b} is {found.value:+.3f}; "
        reason = found.note.removeprefix(NO_ESTIMATE).removeprefix(NO_INTERVAL)
        return f"{a} and {b} cannot be told apart: {reason}; {known}{beside}."
    p = _said_p(one.p_holm, pairs)
    checked = f"{counted(found.checked, 'checked query')} of {found.checked + found.others:,}"
    if one.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told from {checked}: the estimate of {metric} of {a} − {b} is "
            f"{found.value:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}; {beside}."
        )
    better = _better(pair, found.value, found.low, found.high)
    return f"{better} in {metric}, estimated from {checked}, {p}; {beside}."


def _said_p(p: float, pairs: int) -> str:
    return f"p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}" + (f" after Holm over {pairs} pairs" if pairs > 1 else "")


def _better(pair: Pair, value: float, low: float, high: float) -> str:
    a, b = pair.first, pair.second
    if value < 0:
        a, b, low, high = b, a, -high, -low
    return f"{a} is better than {b} by {abs(value):.3f} (95 % {low:.3f} to {high:.3f})"
