"""The value of a configuration for every query, also where the labels of some queries are hidden from what learns.

Component rankings come from the cache, where the trials have left them; everything else is arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from harness.commands.sweep.auto.ascent import Words
from harness.commands.sweep.plan import Planner, Trial
from harness.commands.sweep.work import dataset_of, expected_data
from harness.config.components import build
from harness.evaluation.split import Split
from harness.gates.payoff import Payoff
from harness.pipeline import ordering, steps
from harness.pipeline.ordering import Ordered, Ordering
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import Session, open_session
from retrievers.base import Ranking


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A configuration whose component rankings are known. key: of what decides the order of its candidates."""

    config: RunConfig
    rankings: Mapping[str, Ranking]
    session: Session
    key: str

    @property
    def fusion_learns(self) -> bool:
        return ordering.learns(self.config)


@dataclass(eq=False)
class Bench:
    """Values of configurations, each computed once.

    planner: makes the trials; they have been run, or could be.
    """

    planner: Planner
    _prepared: dict[Words, _Prepared] = field(default_factory=dict)
    _sessions: dict[str, Session] = field(default_factory=dict)
    _rankings: dict[tuple[str, int], Ranking] = field(default_factory=dict)
    _orders: dict[tuple[str, bytes], tuple[Ordered, Payoff]] = field(default_factory=dict)
    _values: dict[tuple[Words, bytes], np.ndarray] = field(default_factory=dict)

    def labelled(self, words: Words) -> Payoff:
        """A payoff whose `rows` are the queries that choose, and whose `needs` say which queries need retrieval."""
        made = self._prepare(words)
        return self._payoff(made, next(iter(made.rankings.values())))

    def values(self, words: Words, known: np.ndarray) -> np.ndarray:
        """The objective of each query, float64 [Q]; NaN for queries that are not part of its mean.

        known: int [n], the queries whose labels may be learnt from. Where the gate or the fusion learns, each of them
        has the value of what was learnt without its own label, as the run of a trial has it, and every other query that
        of what was learnt from all of `known`.
        """
        made = self._prepare(words)
        gate = build(made.config.gate, where="gate")
        key = (words, known.tobytes() if gate.learns or made.fusion_learns else b"")
        if key not in self._values:
            learnt = self._gated if gate.learns else self._fused if made.fusion_learns else self._fixed
            self._values[key] = learnt(made, known)
        return self._values[key]

    def _fixed(self, made: _Prepared, known: np.ndarray) -> np.ndarray:
        """Nothing is learnt."""
        ordered, payoff = self._ordered(made, known)
        return _earned(payoff, steps.decide(made.config, made.rankings, ordered, made.session).shown)

    def _fused(self, made: _Prepared, known: np.ndarray) -> np.ndarray:
        """Only the fusion learns."""
        ordered, payoff = self._ordered(made, known)
        shown = steps.decide(made.config, made.rankings, ordered, made.session).shown
        assert ordered.learnt is not None
        apart = [_earned(self._payoff(made, candidates), shown) for candidates in ordered.learnt.held_out]
        return _with(_earned(payoff, shown), known, apart)

    def _gated(self, made: _Prepared, known: np.ndarray) -> np.ndarray:
        """The gate learns, and perhaps the fusion."""
        ordered, payoff = self._ordered(made, known)
        inputs = steps.gate_inputs(made.config, made.rankings, made.session)
        unseen = ordered.learnt.unseen if ordered.learnt else None
        gate = build(made.config.gate, where="gate")
        rule, out_of_fold, folds = gate.learn(inputs, replace(payoff, rows=known, unseen=unseen))
        values = _earned(payoff, rule.shown(rule.signal(inputs)))
        if out_of_fold is None:
            return values
        orders = [self._payoff(made, ordered.learnt.crossed(fold)) if ordered.learnt else payoff for fold in folds]
        return _with(values, known, [_earned(one, shown) for one, shown in zip(orders, out_of_fold, strict=True)])

    def _prepare(self, words: Words) -> _Prepared:
        if words not in self._prepared:
            trial = self.planner.trial(0, words)
            if trial.error:
                raise trial.error
            config = RunConfig.of(trial.config)
            session = self._session(config, trial)
            rankings = {}
            for (name, node), key in zip(config.retriever.items(), trial.ranking_keys, strict=True):
                if (place := (key, config.depth)) not in self._rankings:
                    self._rankings |= {place: steps.retrieve({name: node}, session, config.depth)[name]}
                rankings[name] = self._rankings[place]
            decides = [trial.ranking_keys, asdict(Ordering.of(config)), config.top_k]
            self._prepared[words] = _Prepared(config, rankings, session, json.dumps(decides, sort_keys=True))
        return self._prepared[words]

    def _session(self, config: RunConfig, trial: Trial) -> Session:
        key = json.dumps([config.dataset, config.document["query"], dict(trial.fingerprints)], sort_keys=True)
        if key not in self._sessions:
            dataset = dataset_of(expected_data(config, trial.fingerprints), trial.choices["dataset"] or "")
            self._sessions[key] = replace(open_session(config, dataset), timed="never")
        return self._sessions[key]

    def _ordered(self, made: _Prepared, known: np.ndarray) -> tuple[Ordered, Payoff]:
        """The candidates, in an order learnt from the labels of `known` alone where it is learnt, and what showing them
        earns each query by all labels. Configurations that differ in the gate alone share them."""
        key = (made.key, known.tobytes() if made.fusion_learns else b"")
        if key not in self._orders:
            config, session = made.config, made.session
            if made.fusion_learns:  # the labels of the other queries are not there
                config = replace(config, split=Split(config.split.public, config.split.seed, "all"))
                session = _hidden(session, known)
            ordered = ordering.order(Ordering.of(config), made.rankings, session)
            self._orders[key] = ordered, self._payoff(made, ordered.candidates)
        return self._orders[key]

    def _payoff(self, made: _Prepared, candidates: Ranking) -> Payoff:
        """What showing candidates earns each query, by all labels."""
        payoff = steps.payoff_of(made.config, made.config.objective, candidates, made.session.dataset)
        assert payoff is not None, "the planner refuses trials without labels"
        return payoff


def _hidden(session: Session, known: np.ndarray) -> Session:
    """The session without the labels of other queries. known: int [n]."""
    dataset = session.dataset
    assert dataset.qrels is not None
    kept = {dataset.queries[row].query_id for row in known}
    grades = {query_id: grades for query_id, grades in dataset.qrels.grades.items() if query_id in kept}
    return replace(session, dataset=replace(dataset, qrels=replace(dataset.qrels, grades=grades)))


def _earned(payoff: Payoff, shown: np.ndarray) -> np.ndarray:
    """What each query earns if it is shown so many documents, float64 [Q]."""
    most = payoff.values.shape[1] - 1
    return payoff.values[np.arange(len(shown)), np.minimum(shown, most)]


def _with(values: np.ndarray, known: np.ndarray, apart: Sequence[np.ndarray]) -> np.ndarray:
    """The values, but of `known` their mean in all repetitions. apart: empty where none could be held out."""
    if apart:
        values = values.copy()
        values[known] = np.mean([one[known] for one in apart], axis=0)
    return values
