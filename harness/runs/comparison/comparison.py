"""The result of a comparison as values, with its JSON document.

Documents that compared runs show and nobody has judged: which runs the holes in the labels punish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from harness.config.text import counted
from harness.data.files import some
from harness.data.predictions import read_predictions
from harness.errors import BadInput
from harness.measures.judged import judge_lists
from harness.measures.measures import LOSING, SHOWN, parse_measure
from harness.measures.objective import Kind
from harness.measures.scores import UNANSWERABLE, plain
from harness.recording.logged_run import load_unchanged, logged_value, read_config
from harness.runs.board.expected import Expected
from harness.statistics.prediction_powered import Estimate, EstimatedDifference
from harness.statistics.significance import ALPHA, Difference, pairs_of
from harness.statistics.significance import Pair as Rows
from harness.statistics.split import Score, leaderboards
from harness.tasks.task import Marked
from harness.tracking.tracker import LoggedRun
from retrievers.base import Qrels

GAP = 0.05  # difference in the share of judged documents from which on it is said
NAMED = 10  # documents named in a sentence


@dataclass(frozen=True)
class ScoredLists:
    """What is read of a run. query_ids: those that are compared. predictions, config: its files."""

    label: str
    run: LoggedRun
    query_ids: Sequence[str]
    predictions: Path
    config: Path


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
    documents: to judge first, those of runs of which less was judged than of another by more than GAP.
    notes: what a reader must know, in sentences.
    """

    k: int
    judged: Mapping[str, float]
    documents: Sequence[UnjudgedDocument]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain({"k": self.k, "judged": dict(self.judged)})
        return found | {"documents": [asdict(one) for one in self.documents]}


def unjudged(runs: Sequence[ScoredLists]) -> tuple[Unjudged | None, list[str]]:
    """(what the labels leave open; None where they do not say which documents were judged, notes)."""
    try:
        labels = _labels(runs)
    except (BadInput, OSError) as error:
        return None, [f"How much of the documents shown was judged is unknown, since labels could not be read: {error}"]
    notes = _unmet(labels[runs[0].label], runs[0].query_ids)
    if not all(any((qrels.not_relevant or {}).values()) for qrels in labels.values()):
        return None, notes
    k = min(int(read_config(run.config).get("top_k", SHOWN)) for run in runs)
    judged: dict[str, float] = {}
    documents: dict[str, list[UnjudgedDocument]] = {}
    for run in runs:
        judged[run.label], documents[run.label] = _shown(run, labels[run.label], k)
    punished, warnings = _warnings(judged, k)
    listed = [one for label in punished for one in documents[label]]
    named = [_named(label, documents[label]) for label in punished]
    return Unjudged(k, judged, listed, [*warnings, *named]), notes


def _labels(runs: Sequence[ScoredLists]) -> dict[str, Qrels]:
    """label -> the labels of the run, read once for all runs with the same. BadInput if they have changed since."""
    found: dict[str, Qrels] = {}
    for run in runs:
        digest = run.run.tags["data.qrels"]
        if digest not in found:
            source = logged_value(read_config(run.config), "dataset", dict)
            qrels = load_unchanged(run.run, source, ("qrels",)).qrels
            assert qrels is not None  # its fingerprint is that of the run's
            found[digest] = qrels
    return {run.label: found[run.run.tags["data.qrels"]] for run in runs}


def _unmet(qrels: Qrels, query_ids: Sequence[str]) -> list[str]:
    """A note on queries that every run fails."""
    unmet = [query_id for query_id in query_ids if query_id in qrels.unmet]
    if not unmet:
        return []
    need = "needs" if len(unmet) == 1 else "need"
    return [
        f"{counted(len(unmet), 'query')} {need} retrieval, and no document that was judged is relevant, so that every "
        f"run scores 0 there: {some(unmet)}."
    ]


def _shown(run: ScoredLists, qrels: Qrels, k: int) -> tuple[float, list[UnjudgedDocument]]:
    """(mean share of judged documents among the first k, those that nobody has judged)."""
    lists = read_predictions(run.predictions)
    found = judge_lists(lists, qrels, [query_id for query_id in run.query_ids if query_id in qrels.grades])
    assert found.holes is not None
    shares = parse_measure(f"judged@{k}").values(found)
    known = shares[~np.isnan(shares)]
    holes = found.holes
    documents = []
    for row, column in np.argwhere((holes.first & ~found.known & found.needs[:, None])[:, :k]).tolist():
        doc_id = holes.doc_ids[holes.docs[row, column]]
        documents.append(UnjudgedDocument(run.label, holes.query_ids[row], doc_id, column + 1))
    return float(known.mean()) if len(known) else np.nan, documents


def _warnings(judged: Mapping[str, float], k: int) -> tuple[list[str], list[str]]:
    """(labels of the runs that the labels punish, a sentence for each pair that differs by more than GAP)."""
    punished: dict[str, None] = {}
    said = []
    for pair in combinations(judged, 2):
        less, more = sorted(pair, key=judged.__getitem__)
        if judged[more] - judged[less] > GAP:
            punished[less] = None
            said.append(
                f"Warning: less of {less} was judged than of {more}: judged@{k} is {judged[less]:.3f} against "
                f"{judged[more]:.3f}. Documents that nobody has judged count as not relevant, which punishes {less}."
            )
    return [*punished], said


def _named(label: str, documents: Sequence[UnjudgedDocument]) -> str:
    pairs = [f"{one.doc_id} for query {one.query_id}" for one in documents]
    whole = " All are in comparison.json." if len(pairs) > NAMED else ""
    return f"Documents of {label} to judge: {some(pairs, NAMED)}.{whole}"


CHANGED = 10  # queries or items shown of each pair
LISTED = 1000  # queries or items on a page
TESTED = ("p", "p_holm", "p_t", "exact")  # fields of a Difference that belong to its test


@dataclass(frozen=True)
class Settings:
    """metric: what the verdicts go by. resamples: of the tests and intervals. seed: of both, and of the draws.

    select_on: what has chosen the runs, "all" or "public" queries; the public ones do not judge what they chose.
    pairs: which are tested: "best", those of the best run with each other one, or "all".
    """

    metric: str
    resamples: int
    seed: int
    select_on: str = "all"
    pairs: str = "best"

    def tested(self, runs: int, best: int) -> list[Rows]:
        """The pairs of so many runs that are tested."""
        return pairs_of(runs, best if self.pairs == "best" else None)

    @property
    def judges(self) -> str:
        """Which queries or items judge: "private " where the public ones have chosen, "" for all."""
        return "private " if self.select_on == "public" else ""

    def judged_by(self, judges: np.ndarray, unit: str) -> list[str]:
        """A note, if not all judge. judges: bool [N]. unit: what is scored, in the plural."""
        if not self.judges:
            return []
        count = int(judges.sum())
        return [
            f"select_on=public: the {len(judges) - count:,} public {unit} choose and have no part in what follows; the "
            f"{count:,} private ones judge."
        ]

    def judging(self, public: np.ndarray, unit: str) -> np.ndarray:
        """bool [N], the queries or items that judge. BadInput if the public ones choose, and there are no others.

        public: bool [N], the public part. unit: what is scored, in the plural.
        """
        if not self.judges:
            return np.ones(len(public), bool)
        if public.all():
            raise BadInput(
                f"select_on=public: all {len(public):,} {unit} of these runs are public, so that none are left to "
                "judge. Score the runs with a smaller share: public=0.4."
            )
        judges: np.ndarray = ~public
        return judges


@dataclass(frozen=True)
class Pair:
    """The labels of two runs; their differences are first − second."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.first} − {self.second}"

    def to_json(self) -> dict[str, Any]:
        return {"a": self.first, "b": self.second}


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
    def better(self) -> str | None:
        """The label of the run that the verdict calls better; None if it tells no difference."""
        value, p = self.found.mean, self.found.p_holm
        if self.estimate:
            value, p = self.estimate.found.value, self.estimate.p_holm
        return (self.pair.first if value > 0 else self.pair.second) if p <= ALPHA else None

    def difference_json(self) -> dict[str, Any]:
        found = self._json(lambda name: name not in TESTED)
        if one := self.estimate:
            found["estimate"] = plain(asdict(one.found) | {"p_holm": one.p_holm})
        return found

    def test_json(self) -> dict[str, Any]:
        return self._json(lambda name: name in TESTED)

    def _json(self, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """NaN becomes None; what the measure does not have is left out."""
        numbers = {name: value for name, value in asdict(self.found).items() if wanted(name) and value is not None}
        return self.pair.to_json() | {"measure": self.measure} | plain(numbers)


@dataclass(frozen=True)
class PartDifference:
    """The difference of a pair in one measure over the n queries or items of a part. mean: NaN if there are none."""

    pair: Pair
    measure: str
    part: str
    n: int
    mean: float

    def to_json(self) -> dict[str, Any]:
        numbers = {"n": self.n, "mean": plain(self.mean)}
        return self.pair.to_json() | {"measure": self.measure, "part": self.part} | numbers


@dataclass(frozen=True)
class Standing:
    """What a run scores on the public and the private part, None where a part is empty, and its ranks there."""

    public: float | None
    public_rank: int
    private: float | None
    private_rank: int


@dataclass(frozen=True)
class RunShifts:
    """shifts: ranks lost from the public to the private part -> in how many draws. mean_shift: of their sizes."""

    label: str
    mean_shift: float
    shifts: Mapping[str, int]


@dataclass(frozen=True)
class ShakeUpSummary:
    """How ranks shift if the public part is drawn anew. winner_loses: share of draws with another private winner."""

    draws: int
    winner_loses: float
    runs: tuple[RunShifts, ...]


@dataclass(frozen=True)
class Standings:
    """boards: one per run; None if the runs have different public parts."""

    boards: tuple[Standing | None, ...]
    shake_up: ShakeUpSummary | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunScores:
    """A run in numbers.

    metrics: measure -> mean over what judges, of the measures that are compared. kind: what the means rest on.
    intervals: measure -> the ends of the mean's 95 % bootstrap interval; none where there is no interval.
    """

    label: str
    run: LoggedRun
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    kind: Kind
    board: Standing | None

    def to_json(self) -> dict[str, Any]:
        numbers = {"metrics": self.metrics, "intervals": self._ends()}
        return self._head() | {"kind": self.kind} | numbers | self._board()

    def _head(self) -> dict[str, Any]:
        run = self.run
        return {"label": self.label, "run_id": run.run_id, "name": run.name, "experiment": run.experiment}

    def _ends(self) -> dict[str, list[float]]:
        return {name: [*ends] for name, ends in self.intervals.items()}

    def _board(self) -> dict[str, Any]:
        return asdict(self.board) if self.board else {}


@dataclass(frozen=True)
class RetrievalScores(RunScores):
    """A retrieval run in numbers.

    out_of_fold: whether `metrics` and `losses` are out of fold, because the run learnt from the labels.
    as_written:  measure -> mean over the lists as written.
    losses:      the parts of 1 - modified_map@3.
    estimates:   measure -> estimate over what judges, where labels come partly from a model: `metrics` are then raw.
    """

    out_of_fold: bool
    as_written: Mapping[str, float]
    losses: Mapping[str, float]
    estimates: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def unanswerable(self) -> float | None:
        """The share of empty lists among the unanswerable queries, all of them; None if there are none."""
        return self.run.metrics.get(UNANSWERABLE)

    def to_json(self) -> dict[str, Any]:
        numbers: dict[str, Any] = {"metrics": self.metrics, "as_written": self.as_written, "losses": self.losses}
        ends = {"intervals": self._ends()}
        numbers |= {} if self.unanswerable is None else {UNANSWERABLE: self.unanswerable}
        head = self._head() | {"kind": self.kind, "out_of_fold": self.out_of_fold}
        estimates = {"estimates": {name: asdict(one) for name, one in self.estimates.items()}} if self.estimates else {}
        return head | plain(numbers | estimates) | ends | self._board()


@dataclass(frozen=True)
class Changed:
    """A query or item whose metric differs much between a pair. values: label -> the metric."""

    pair: Pair
    item_id: str
    difference: float
    values: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class ShownDocument:
    """snippet: None if the text is unknown. relevant: to the query; None if the labels are unknown."""

    doc_id: str
    snippet: str | None = None
    relevant: bool | None = None


@dataclass(frozen=True)
class ComparedQuery:
    """A query in all runs.

    text: None if unknown. values: label -> the metric, NaN where it does not apply. documents: label -> the first ones.
    """

    query_id: str
    text: str | None
    values: Mapping[str, float]
    documents: Mapping[str, Sequence[ShownDocument]]


@dataclass(frozen=True)
class ComparedItem:
    """An item of a text task in all submissions.

    values: label -> the metric. texts: kind, question, source and reference, as far as known.
    predictions: label -> the text in pieces with marks; None if unknown.
    """

    item_id: str
    values: Mapping[str, float]
    texts: Mapping[str, str]
    predictions: Mapping[str, Marked | None]


@dataclass(frozen=True)
class ChangedQuery(Changed):
    """documents: label -> the first documents. query: its text, None if unknown."""

    documents: Mapping[str, Sequence[ShownDocument]]
    query: str | None = None

    def to_json(self) -> dict[str, Any]:
        documents = {label: [asdict(one) for one in shown] for label, shown in self.documents.items()}
        numbers = {"query_id": self.item_id, "difference": self.difference, "values": self.values}
        return self.pair.to_json() | numbers | {"documents": documents, "query": self.query}


@dataclass(frozen=True)
class ChangedItem(Changed):
    """texts: kind, question, source and reference, as far as known. predictions: label -> text, None if unknown."""

    texts: Mapping[str, str]
    predictions: Mapping[str, str | None]

    def to_json(self) -> dict[str, Any]:
        numbers = {"id": self.item_id, "difference": self.difference, "values": self.values}
        return self.pair.to_json() | numbers | dict(self.texts) | {"predictions": self.predictions}


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Two or more runs, compared pair by pair.

    best:        the label of the best run, by what chooses.
    count:       how many queries or items judge.
    judges:      which these are: "" for all of them, or "private " with select_on=public.
    verdicts:    one sentence per pair. notes: what a reader must know besides. left_out: which measures are not
                 compared, and why.
    differences: one per pair and measure. splits: the same by part. changed: the largest differences of each pair.
    shake_up:    None if a part is empty, or if the runs have different public parts.
    pairs:       how many pairs p is corrected for by the metric, these among them.
    expected:    on new queries of the best run of the experiment, if it is among these; None if unknown.
    """

    noun: ClassVar[str]  # what is compared, in the plural
    unit: ClassVar[str]  # what is scored, in the plural

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
    expected: Expected | None = None
    left_out: Sequence[str] = ()

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

    def with_notes(self, notes: Sequence[str]) -> Self:
        """The comparison with more notes before its own."""
        return replace(self, notes=[*notes, *self.notes])

    def to_json(self) -> dict[str, Any]:
        others = len(self.in_metric)
        return {
            "metric": self.metric,
            "best": self.best,
            self.unit: self.count,
            "judged_on": "private" if self.judges else "all",
            "verdicts": [*self.verdicts],
            "expected": self.expected and self.expected.to_json(),
            "notes": [*self.notes, *self.left_out],
            "runs": [run.to_json() for run in self.runs],
            "differences": [one.difference_json() for one in self.differences],
            "tests": [
                one.test_json() | {"pairs": self.pairs if one.measure == self.metric else others}
                for one in self.differences
            ],
            "splits": [one.to_json() for one in self.splits],
            "changed": [one.to_json() for one in self.changed],
            "shake_up": plain(asdict(self.shake_up)) if self.shake_up else None,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class RetrievalComparison(Comparison):
    """by_query: float64 [runs, queries], the metric of each query; NaN where it does not apply.

    unjudged: what the labels leave open; None where they do not say which documents were judged.

    by_query is not in the JSON.
    """

    noun, unit = "runs", "queries"
    runs: Sequence[RetrievalScores]
    changed: Sequence[ChangedQuery]
    by_query: np.ndarray = field(repr=False)
    unjudged: Unjudged | None = None

    @property
    def loses(self) -> bool:
        """Whether the known losses are those of the metric."""
        return self.metric == LOSING and any(run.losses for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | ({"unjudged": self.unjudged.to_json()} if self.unjudged else {})


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskComparison(Comparison):
    """items: at most LISTED of them, those first on which the submissions differ most. Not in the JSON."""

    noun, unit = "submissions", "items"
    changed: Sequence[ChangedItem]
    task: str
    items: Sequence[ComparedItem] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task} | super().to_json()


def standings(
    score: Score, public: np.ndarray, strata: np.ndarray, labels: Sequence[str], settings: Settings
) -> Standings:
    """The runs on both parts of a leaderboard, and how their ranks may shift.

    score:  the metric of every run over some of the queries or items.
    public: bool [N]. strata: int [N], kinds of queries or items that the public part is drawn from alike.
    """
    boards, shifts, notes = leaderboards(score, public, strata, labels, settings.metric, settings.seed)
    shake_up = None
    if shifts:
        runs = tuple(RunShifts(**run) for run in shifts["runs"])
        shake_up = ShakeUpSummary(shifts["draws"], shifts["winner_loses"], runs)
    return Standings(tuple(Standing(**board) for board in boards), shake_up, tuple(notes))


def most_changed(gaps: np.ndarray) -> list[int]:
    """Rows of the largest differences [N], the largest first; none that are 0."""
    return [int(row) for row in np.argsort(-np.abs(gaps), kind="stable")[:CHANGED] if gaps[row]]


def pair_verdict(pair: Pair, found: Difference, metric: str, pairs: int, unit: str) -> str:
    """One sentence: which run of a pair is better by the metric, or that the data cannot tell.

    pairs: how many pairs p is corrected for. unit: what is scored, in the plural.
    """
    a, b = pair.first, pair.second
    if found.n < 2:
        return f"{a} and {b} cannot be told apart: {metric} applies to {found.n:,} of the {unit}."
    if found.wins + found.losses == 0:
        return f"{a} and {b} have the same {metric} on each of {found.n:,} {unit}."
    p = f"p {'< 0.001' if found.p_holm < 0.001 else f'= {found.p_holm:.2g}'}"
    p += f" after Holm over {pairs} pairs" if pairs > 1 else ""
    if found.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told on {found.n:,} {unit}: {metric} of {a} − {b} is "
            f"{found.mean:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}."
        )
    if found.mean < 0:
        a, b, low, high = b, a, -found.high, -found.low
    else:
        low, high = found.low, found.high
    return f"{a} is better than {b} by {abs(found.mean):.3f} (95 % {low:.3f} to {high:.3f}) in {metric}, {p}."
