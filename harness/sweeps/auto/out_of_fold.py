"""The score of `sweep=auto` on queries that it has not seen: nested cross-validation.

For each fold, the whole procedure is repeated without the fold's labels: gates learn, and a configuration is chosen.
The choice is then scored on the fold. Component rankings do not depend on labels, so folds take them from the cache.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.analysis.board.expected import Replay
from harness.config.commands import SweepConfig
from harness.config.text import counted
from harness.experiment import steps
from harness.experiment.plan import Plan
from harness.experiment.session import Session, open_session
from harness.gates.calibration import folds
from harness.gates.payoff import Payoff
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.significance import sign_flip_test
from harness.statistics.split import Split
from harness.storage.typed import HIDDEN
from harness.sweeps.auto.budget import seconds_text
from harness.sweeps.auto.space import SearchSpace, Untried, Words, best_of
from harness.sweeps.plan import Planner
from harness.sweeps.trials import dataset_of
from retrievers.base import Progress, Ranking

FOLDS = 10
REPEATS = 3  # the maximum number of repeats of the cross-validation; the budget may allow fewer
LEAST = 20  # with fewer labelled queries, intervals and tests mean little
RESAMPLES = 10_000
SHOWN = 12  # the maximum number of lines about systems that were not tried
_SPLITS = 500  # added to the seeds of the folds, since gates use lower seeds for their own folds

# (configuration, queries with known labels) -> the objective of each query. See `Arithmetic.values`.
ByQuery = Callable[[Words, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class _Retrieved:
    plan: Plan
    rankings: Mapping[str, Ranking]
    session: Session

    @property
    def learns(self) -> bool:
        return bool(self.plan.made("gate").learns) or self.plan.fusion_learns

    def payoff(self, candidates: Ranking) -> Payoff:
        payoff = steps.payoff_of(self.plan, self.plan.objective, candidates, self.session.dataset)
        assert payoff is not None, "the planner refuses trials without labels"
        return payoff

    def with_labels_of(self, known: np.ndarray) -> _Retrieved:
        """Return a copy that keeps only the labels of some queries. known: their positions, int [n]."""
        dataset, split = self.session.dataset, self.plan.split
        assert dataset.qrels is not None
        kept = {dataset.queries[row].query_id for row in known}
        grades = {query_id: grades for query_id, grades in dataset.qrels.grades.items() if query_id in kept}
        session = replace(self.session, dataset=replace(dataset, qrels=replace(dataset.qrels, grades=grades)))
        return replace(self, session=session, plan=replace(self.plan, split=Split(split.public, split.seed, "all")))


@dataclass(eq=False)
class Arithmetic:
    """Computes and keeps the values of configurations, with all labels or with some labels hidden."""

    planner: Planner
    _retrieved: dict[Words, _Retrieved] = field(default_factory=dict)
    _sessions: dict[str, Session] = field(default_factory=dict)
    _rankings: dict[tuple[str, int], Ranking] = field(default_factory=dict)
    _values: dict[tuple[Words, bytes], np.ndarray] = field(default_factory=dict)

    def labelled(self, words: Words) -> Payoff:
        """Return a ranking's `Payoff`: its `rows` are the queries to score, its `needs` say which need retrieval."""
        made = self._retrieve(words)
        return made.payoff(next(iter(made.rankings.values())))

    def values(self, words: Words, known: np.ndarray) -> np.ndarray:
        """Return the objective of each query, float64 [Q]; NaN for queries that the objective's mean omits.

        known: int [n], the queries whose labels a gate or fusion may learn from. For a query in `known`, the gate or
        fusion learns without the query's own label, as in a trial. For any other query, it learns from all of `known`.
        """
        made = self._retrieve(words)
        key = (words, known.tobytes() if made.learns else b"")
        if key not in self._values:
            hidden = made.with_labels_of(known) if made.learns else made
            outcome = steps.conclude(hidden.plan, hidden.rankings, hidden.session, detailed=())
            payoff, shown = made.payoff(outcome.candidates), outcome.decision.shown
            values = payoff.values[np.arange(len(shown)), np.minimum(shown, payoff.values.shape[1] - 1)]
            if apart := outcome.held_out:
                row_of = {query.query_id: row for row, query in enumerate(outcome.queries)}
                rows = [row_of[query_id] for query_id in apart.query_ids]
                values[rows] = apart.values[made.plan.objective]
            self._values[key] = values
        return self._values[key]

    def _retrieve(self, words: Words) -> _Retrieved:
        if words not in self._retrieved:
            trial = self.planner.trial(0, words)
            if trial.error:
                raise trial.error
            plan = trial.retrieval
            key = json.dumps([plan.dataset, plan.document["query"], dict(trial.fingerprints)], sort_keys=True)
            if key not in self._sessions:
                self._sessions[key] = replace(open_session(plan, dataset_of(trial)), timed="never")
            rankings = {}
            for (name, node), of in zip(plan.retriever.items(), trial.ranking_keys, strict=True):
                if (place := (of, plan.depth)) not in self._rankings:
                    self._rankings |= {place: steps.retrieve({name: node}, self._sessions[key], plan.depth)[name]}
                rankings[name] = self._rankings[place]
            plan = replace(plan, metrics=(plan.objective,))
            self._retrieved[words] = _Retrieved(plan, rankings, self._sessions[key])
        return self._retrieved[words]


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    values: each query's score under the configuration that was chosen without the labels of the query's fold.
    chosen: for each fold, the configuration that was chosen without the fold's labels.
    """

    values: tuple[float, ...]
    chosen: tuple[Words, ...]


def replay(
    space: SearchSpace, by_query: ByQuery, labelled: Payoff, seed: int, number: int, progress: Progress | None = None
) -> Replayed:
    """For each fold, choose a configuration without its labels, and score it on the fold. `number` varies the folds."""
    rows = labelled.rows
    fold = folds(labelled.needs[rows], min(FOLDS, len(rows)), 1000 * seed + _SPLITS + number)
    values, chosen = np.full(len(rows), np.nan), []
    for one in range(fold.max() + 1):
        known, own = rows[fold != one], fold == one

        def means(asked: list[Words], known: np.ndarray = known) -> dict[Words, float]:
            return {words: float(by_query(words, known)[known].mean()) for words in asked}

        words = best_of(space, means)
        values[own] = by_query(words, known)[rows[own]]
        chosen.append(words)
        if progress:
            progress(len(chosen), int(fold.max()) + 1, "folds")
    return Replayed(tuple(values.tolist()), tuple(chosen))


@dataclass(frozen=True)
class Procedure:
    """The score of the automatic choice on queries whose labels it has not seen, and the score of the baseline.

    value: the mean over queries and repeats. low, high: the 95 % interval of `value`; NaN if there is none.
    winner: the value of the configuration that was chosen with all labels. The same labels score it.
    baseline: the value of the first configuration. difference: value - baseline.
    p: the p-value of a paired randomisation test. agreement: the share of folds that chose the winner.
    """

    objective: str
    value: float
    low: float
    high: float
    kind: str
    folds: int
    repeats: int
    queries: int
    winner: float
    baseline: float
    baseline_words: str
    difference: float
    difference_low: float
    difference_high: float
    p: float
    agreement: float
    notes: tuple[str, ...] = ()
    json_too = ("sentence",)

    @property
    def sentence(self) -> str:
        interval = "" if math.isnan(self.low) else f" ({self.low:.3f} to {self.high:.3f})"
        than = "better" if self.difference >= 0 else "worse"
        apart = f"{abs(self.difference):.4f} {than} than {self.baseline_words} ({self.baseline:.4f})"
        if not math.isnan(self.p):
            apart += f", 95 % interval {self.difference_low:+.3f} to {self.difference_high:+.3f}, p = {self.p:.2g}"
        scores = f"this procedure scores {self.objective} {self.value:.4f}{interval}"
        return " ".join([f"On queries that it has not seen, {scores}: {apart}.", *self.notes])


def judge_procedure(
    config: SweepConfig,
    replays: Sequence[Replayed],
    winner: tuple[Words, float],
    baseline: tuple[Words, np.ndarray],
    raw: bool,
) -> Procedure:
    """Sum up the replays. winner: (configuration, value). baseline: (configuration, value of each query [n]).

    raw: whether some labels come from a model. If so, there is no interval and no test.
    """
    values = np.mean([one.values for one in replays], axis=0)
    rows = np.stack([values, values - baseline[1]])
    n = len(values)
    (low, gap_low), (high, gap_high) = bootstrap_means(rows, config.seed)[:2]
    p = float(sign_flip_test(rows[1:], config.seed, RESAMPLES)[0][0])
    notes = []
    if n < LEAST:
        notes.append(f"Only {n} labelled queries decide. With fewer than {LEAST}, intervals and tests mean little.")
    if raw:
        notes.append("Some labels come from a model: values are raw means, without an interval or a test.")
    if notes:
        low = high = gap_low = gap_high = p = math.nan
    counts = Counter(words for one in replays for words in one.chosen)
    return Procedure(
        objective=config.objective,
        value=float(values.mean()),
        low=float(low),
        high=float(high),
        kind="public, out of fold" if config.select_on == "public" else "out of fold",
        folds=len(replays[0].chosen),
        repeats=len(replays),
        queries=n,
        winner=winner[1],
        baseline=float(baseline[1].mean()),
        baseline_words=" ".join(baseline[0]) or "the run as it is",
        difference=float(rows[1].mean()),
        difference_low=float(gap_low),
        difference_high=float(gap_high),
        p=p,
        agreement=counts[winner[0]] / counts.total(),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class Budget:
    """A time budget. seconds: the limit. spent: part of the work -> seconds taken in all starts of the sweep."""

    seconds: float
    spent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Automatic:
    """The findings of an automatic sweep, apart from its trials. systems: the number of systems tried."""

    procedure: Procedure
    systems: int = field(metadata=HIDDEN)
    budget: Budget
    untried: tuple[Untried, ...] = ()

    def lines(self) -> list[str]:
        spent, allowed = self.budget.spent, seconds_text(self.budget.seconds)
        parts = ", ".join(f"{part} {seconds_text(seconds)}" for part, seconds in spent.items())
        took = seconds_text(sum(spent.values()))
        tried = f"{counted(self.systems, 'system')} tried in {took} of {allowed} ({parts})."
        return [self.procedure.sentence, tried, *untried_lines(self.untried)]

    def replay(self, sweep_id: str) -> Replay:
        found = self.procedure
        return Replay(sweep_id, found.winner, found.value, found.low, found.high)

    def metrics(self) -> dict[str, float]:
        names = ("value", "low", "high", "baseline", "difference", "p", "agreement")
        found = {f"procedure/{name}": float(getattr(self.procedure, name)) for name in names}
        return {name: value for name, value in found.items() if not math.isnan(value)}


def untried_lines(untried: Sequence[Untried]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for one in untried:
        reasons.setdefault(one.reason, []).append(one.overrides)
    return [f"not tried: {'; '.join(words)}: {why}" for why, words in reasons.items()][:SHOWN]
