"""The effect of a threshold on a gate's signal, for the figures and the page of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.evaluation.measures import MeasureFamily, parse
from harness.evaluation.scores import Summary
from harness.gates import calibration
from harness.gates.calibration import Curve
from harness.gates.gate import NoGate, ScoreGate
from harness.gates.payoff import Payoff
from harness.gates.rule import FittedGate, Rule
from harness.pipeline.plan import Plan
from harness.pipeline.steps import Outcome, payoff_of

Ends = tuple[float, float]
FALLBACK = "modified_map@3"  # for an objective that is no mean over queries or depends on the gate itself


@dataclass(frozen=True, eq=False)
class GateView:
    """How a gate separates the n labelled queries, or those of the public part.

    name: of the signal.
    objective: the measure of the curve.
    public: whether only the public part is shown.
    learnt: whether the thresholds were fitted to these labels.
    levels, thresholds: as in a Rule; no threshold where the signal does not decide.
    signal: float64 [n].
    needs, shown: bool [n], whether a query needs retrieval, and whether it gets documents.
    curve: the objective by threshold, between withholding and the largest number of documents.
    in_use: the mean objective of the actual decisions.
    held_out: the same out of fold; None where it was not measured.
    ranges: name -> interval of the last threshold.
    counts: queries behind the curve, and how many of them need no retrieval.
    notes: remarks of the fit.
    """

    name: str
    objective: str
    public: bool
    learnt: bool
    levels: tuple[int, ...]
    thresholds: tuple[float, ...]
    signal: np.ndarray
    needs: np.ndarray
    shown: np.ndarray
    curve: Curve
    in_use: float
    held_out: Summary | None
    ranges: Mapping[str, Ends]
    counts: tuple[int, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SignalRule:
    """The signal a gate decides by, and its thresholds.

    name: of the signal.
    levels, thresholds: as in a Rule; no threshold where the signal does not decide.
    """

    name: str
    levels: tuple[int, ...]
    thresholds: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class GatedQueries:
    """The n labelled queries behind a view: signal float64 [n]; needs, shown bool [n]. As in GateView."""

    signal: np.ndarray
    needs: np.ndarray
    shown: np.ndarray


def axis_of(signal: np.ndarray, thresholds: Sequence[float]) -> Ends:
    """Ends of the signal's axis: it covers all finite thresholds and all queries except outliers."""
    low, high = np.quantile(signal, [0.05, 0.95])
    reach = (high - low) or np.ptp(signal)
    finite = [threshold for threshold in thresholds if math.isfinite(threshold)]
    low = min(max(low - reach, signal.min()), *finite, math.inf)
    high = max(min(high + reach, signal.max()), *finite, -math.inf)
    margin = 0.05 * (high - low) or 0.5
    return float(low - margin), float(high + margin)


def objective_of(plan: Plan) -> str:
    """The measure of the curve: the run's objective if it is a mean over queries that does not depend on the gate."""
    mean = parse(plan.objective).family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED)
    return plan.objective if mean else FALLBACK


def view_payoff(outcome: Outcome, plan: Plan, dataset: Dataset) -> Payoff | None:
    """The score of each query with 0 to top_k of its documents; None without labels."""
    return payoff_of(plan, objective_of(plan), outcome.candidates, dataset)


def gate_view(outcome: Outcome, plan: Plan, payoff: Payoff | None) -> GateView | None:
    """The view of a run's gate; None where there is no signal or no label to compare it with.

    payoff: from `view_payoff`.
    """
    public = plan.split.select_on == "public"
    if payoff is None or outcome.decision.signal is None or not len(payoff.rows):
        return None
    return learnt_view(outcome, public) if outcome.decision.fitted else given_view(outcome, plan, payoff)


def learnt_view(outcome: Outcome, public: bool) -> GateView:
    """The view of a gate fitted to labels.

    public: whether it was fitted to the public part only; then only that part is shown.
    """
    fitted, curve, held_out = outcome.decision.fitted, outcome.decision.curve, outcome.held_out
    assert fitted is not None
    assert curve is not None
    rule, learnt = Rule.from_json(fitted["rule"]), fitted["learnt_from"]
    keys = {"plateau": "plateau", "95 % interval": "threshold_interval"}
    queries = _queries(outcome, public)
    return GateView(
        name=signal_name(rule),
        objective=fitted["objective"],
        public=public,
        learnt=True,
        levels=rule.levels,
        thresholds=rule.thresholds,
        signal=queries.signal,
        needs=queries.needs,
        shown=queries.shown,
        curve=curve,
        in_use=fitted["in_sample"],
        held_out=(held_out.public if public else held_out.summary).get(fitted["objective"]) if held_out else None,
        ranges={name: (float(fitted[key][0]), float(fitted[key][1])) for name, key in keys.items() if key in fitted},
        counts=(learnt["queries"], learnt["needs_no_retrieval"]),
        notes=tuple(fitted["notes"]),
    )


def given_view(outcome: Outcome, plan: Plan, payoff: Payoff) -> GateView:
    """The view of a gate whose thresholds were set by hand or learned elsewhere."""
    public, rows = plan.split.select_on == "public", payoff.rows
    queries = _queries(outcome, public)
    rule = given(outcome, plan)
    assert outcome.decision.signal is not None
    signal, earned = outcome.decision.signal[rows], payoff.levels((plan.top_k, 0))
    shown = np.minimum(outcome.decision.shown[rows], plan.top_k)
    return GateView(
        name=rule.name,
        objective=payoff.name,
        public=public,
        learnt=False,
        levels=rule.levels,
        thresholds=rule.thresholds,
        signal=queries.signal,
        needs=queries.needs,
        shown=queries.shown,
        curve=calibration.curve(signal, earned),
        in_use=float(payoff.values[rows, shown].mean()),
        held_out=None,
        ranges={"plateau": calibration.plateau(signal, earned)},
        counts=(len(rows), int((~payoff.needs[rows]).sum())),
    )


def signal_name(rule: Rule) -> str:
    """The name of the signal that the rule's thresholds apply to."""
    if rule == rule.plain():
        source, signal = rule.features[0]
        return f"{source} {signal}" if source else signal
    count = len(rule.features)
    return f"the logit of {counted(count, 'signal')}{' and the embedding' if rule.embedding else ''}"


def given(outcome: Outcome, plan: Plan) -> SignalRule:
    """The rule of a gate that has a signal and learned nothing in this run."""
    gate, levels, names = plan.made("gate"), (plan.top_k, 0), list(outcome.rankings)
    match gate:
        case FittedGate():
            return SignalRule(signal_name(gate.rule), gate.rule.levels, gate.rule.thresholds)
        case NoGate():
            return SignalRule(f"{names[0]} top_score", levels, (-math.inf,))
        case ScoreGate():
            source = gate.source or (names[0] if len(names) == 1 else None)
            return SignalRule(" ".join(filter(None, (source, gate.signal))), levels, (gate.threshold,))
    signal, keep = outcome.decision.signal, outcome.decision.keep
    assert signal is not None
    if keep.all() or not keep.any():
        return SignalRule("signal", levels, (-math.inf if keep.all() else math.inf,))
    low, high = float(signal[~keep].max()), float(signal[keep].min())
    return SignalRule("signal", levels, (low + (high - low) / 2,) if low < high else ())


def _queries(outcome: Outcome, public: bool) -> GatedQueries:
    """The labelled queries, or those of the public part only."""
    decision, scores = outcome.decision, outcome.scores
    assert decision.signal is not None
    assert scores is not None
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    part = scores.in_public if public else np.ones(len(scores.query_ids), bool)
    rows = np.array([place[query_id] for query_id in scores.query_ids], int)[part]
    return GatedQueries(decision.signal[rows], scores.needs[part], decision.keep[rows])
