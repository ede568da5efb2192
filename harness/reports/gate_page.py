"""What the page of a run needs to move the threshold of its gate, and to say how to run it with another."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.config.components import build
from harness.config.program import runnable
from harness.data.dataset import Dataset
from harness.gates.gate import NoGate, ScoreGate
from harness.gates.rule import FittedGate, Rule, json_number
from harness.gates.signals import signal_spec
from harness.pipeline.run_config import RunConfig
from harness.pipeline.steps import Outcome
from harness.reports.gate_view import GateView, axis_of, given, view_payoff
from harness.reports.markup import finite
from harness.reports.query_table import judged


def gate_data(
    outcome: Outcome, config: RunConfig, dataset: Dataset, view: GateView | None, overrides: Sequence[str] | None
) -> dict[str, Any] | None:
    """The gate as JSON has it; None where it reads no signal. Without a view, it lacks what takes labels.

    overrides: of the command that made the run; None if they are unknown.

    command: runs the gate with the threshold that is put behind it; None where `gate=score` cannot.
    Keys that hold one value per query:
    most: number of documents it would be shown.
    shows, withholds: its objective with and without documents, null where it does not count.
    lost, hits: its kind of loss, and its number of relevant documents, where it is shown documents; null if unlabelled.
    counts: whether it enters the counts.
    """
    signal = outcome.decision.signal
    if signal is None or not len(signal):
        return None
    rule = view or given(outcome, config)
    level = min(max(rule.levels), config.top_k)
    data: dict[str, Any] = {
        "name": rule.name,
        "levels": rule.levels,
        "thresholds": [json_number(value) for value in rule.thresholds],
        "ends": axis_of(signal, rule.thresholds),
        "most": np.minimum(outcome.candidates.lengths, level).tolist(),
        "command": _command(outcome, config, overrides) if level == config.top_k else None,
    }
    if view is None:
        return data
    held_out = view.held_out
    return data | {
        "objective": view.objective,
        "public": view.public,
        "learnt": view.learnt,
        "in_use": view.in_use,
        "held_out": [finite(one) for one in (held_out.mean, held_out.low, held_out.high)] if held_out else None,
        "plateau": [json_number(end) for end in view.ranges["plateau"]] if "plateau" in view.ranges else None,
        "counts": _counts(outcome, view.public),
        **_if_shown(outcome, config, dataset, level),
    }


def _if_shown(outcome: Outcome, config: RunConfig, dataset: Dataset, level: int) -> dict[str, list[Any]]:
    """What showing each query its first `level` documents means, and what withholding them earns."""
    payoff, scores = view_payoff(outcome, config, dataset), outcome.scores
    assert payoff is not None
    assert scores is not None
    earned = np.full((len(outcome.queries), 2), np.nan)
    earned[payoff.rows] = payoff.values[payoff.rows][:, [level, 0]]
    kept = np.ones(len(outcome.queries), bool)
    kinds, hits = judged(outcome, dataset, scores.query_ids, outcome.candidates.top(level), kept)
    lost = dict(zip(scores.query_ids, zip(kinds, hits.tolist(), strict=True), strict=True))
    of_each = [lost.get(query.query_id, (None, None)) for query in outcome.queries]
    return {
        "shows": [finite(value) for value in earned[:, 0]],
        "withholds": [finite(value) for value in earned[:, 1]],
        "lost": [kind for kind, _ in of_each],
        "hits": [count for _, count in of_each],
    }


def _counts(outcome: Outcome, public: bool) -> list[bool]:
    """For each query, whether it may influence a threshold; private labels may not where the public part selects."""
    scores = outcome.scores
    private = set()
    if public and scores:
        rows = zip(scores.query_ids, scores.in_public, strict=True)
        private = {query_id for query_id, in_public in rows if not in_public}
    return [query.query_id not in private for query in outcome.queries]


def _command(outcome: Outcome, config: RunConfig, overrides: Sequence[str] | None) -> str | None:
    """A shell command that ends in `gate.threshold=`; None unless the gate decides by a single signal.

    Without the overrides, only its words about the gate.
    """
    names, found = list(outcome.rankings), _single_signal(outcome, config)
    if found is None:
        return None
    source, signal, k = found
    spec = signal_spec(signal)
    words = ["gate=score", f"gate.signal={signal}"]
    if spec.reads != "query" and len(names) > 1:
        words.append(f"gate.source={source or names[0]}")
    if spec.places:
        words.append(f"gate.k={k}")
    if overrides is not None:
        others = (word for word in overrides if word.lstrip("+~").partition("=")[0].partition(".")[0] != "gate")
        words = ["harness", "run", *others, *words]
    return runnable(shlex.join([*words, "gate.threshold="]))


def _single_signal(outcome: Outcome, config: RunConfig) -> tuple[str | None, str, int] | None:
    """Source, name and k of the signal that alone decides; None if several do."""
    match build(config.gate, where="gate"):
        case NoGate():
            return None, "top_score", ScoreGate().k
        case ScoreGate() as gate:
            return gate.source, gate.signal, gate.k
        case FittedGate() as gate:
            rule = gate.rule
        case _ if outcome.decision.fitted:
            rule = Rule.from_json(outcome.decision.fitted["rule"])
        case _:
            return None
    alone = rule == rule.plain() and len(rule.features) == 1
    return (*rule.features[0], rule.k) if alone else None
