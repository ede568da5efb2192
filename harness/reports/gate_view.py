"""How the threshold of a gate changes the score: data for the page of a run and for its figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.experiment.plan import Plan
from harness.experiment.steps import Outcome, payoff_of
from harness.gates import calibration
from harness.gates.calibration import Curve
from harness.gates.gate import NoGate, ScoreGate
from harness.gates.payoff import Payoff
from harness.gates.rule import FittedGate, Rule
from harness.measures.measures import MeasureFamily
from harness.measures.scores import Summary
from harness.reports.figure import COLOURS, FONT, WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ends = tuple[float, float]
FALLBACK = "modified_map@3"  # drawn instead of an objective that is no mean over queries or needs the gate
CURVE, PLATEAU, INTERVAL, THRESHOLD = "#2e5eaa", "#d3e0f2", "#8fa8c8", "#333333"
NO_GATE, OUT_OF_FOLD = "#66717e", "#8d6a9f"
SHOWN, WITHHELD = "#2a7f62", "#869a92"
BINS = 60


@dataclass(frozen=True)
class SignalRule:
    """The signal of a gate, and the rule that turns it into a number of documents to show.

    levels: numbers of documents to show; the first is for the highest signals, the last for the lowest.
    thresholds: borders between neighbouring levels; () if the signal does not decide which documents are shown.
    single: the signal's (source, name, k) if a single signal decides; otherwise None.
    """

    name: str
    levels: tuple[int, ...]
    thresholds: tuple[float, ...]
    single: tuple[str | None, str, int] | None = field(default=None, kw_only=True, compare=False)

    @classmethod
    def of(cls, rule: Rule) -> SignalRule:
        if rule.plain:
            [(source, signal)] = rule.features
            return SignalRule(
                f"{source} {signal}" if source else signal,
                rule.levels,
                rule.thresholds,
                single=(source, signal, rule.k),
            )
        several = f"{counted(len(rule.features), 'signal')}{' and the embedding' if rule.embedding else ''}"
        return SignalRule(f"the logit of {several}", rule.levels, rule.thresholds)


@dataclass(frozen=True, eq=False)
class GateView(SignalRule):
    """A gate's signal and decisions for n labelled queries, and the objective at each threshold.

    public: whether the n queries are the public part; otherwise they are all labelled queries.
    learnt: whether the thresholds were fitted to these labels.
    signal: float64 [n].
    needs, shown: bool [n], whether a query needs retrieval, and whether it gets documents.
    curve: the objective at each threshold, if queries whose signal reaches the threshold get the largest number of
        documents and all other queries get none.
    in_use: the mean objective with the actual decisions.
    held_out: the out-of-fold objective; None if it was not measured.
    ranges: "plateau" or "95 % interval" -> the ends of this range of the last threshold.
    counts: (the number of queries behind the curve, the number of these queries that need no retrieval).
    """

    objective: str
    public: bool
    learnt: bool
    signal: np.ndarray
    needs: np.ndarray
    shown: np.ndarray
    curve: Curve
    in_use: float
    held_out: Summary | None
    ranges: Mapping[str, Ends]
    counts: tuple[int, int]
    notes: tuple[str, ...] = ()


def signal_axis(signal: np.ndarray, thresholds: Sequence[float]) -> Ends:
    """Return the ends of the signal's axis. The axis covers finite thresholds and all queries except outliers."""
    low, high = np.quantile(signal, [0.05, 0.95])
    reach = (high - low) or np.ptp(signal)
    finite = [threshold for threshold in thresholds if math.isfinite(threshold)]
    low = min(max(low - reach, signal.min()), *finite, math.inf)
    high = max(min(high + reach, signal.max()), *finite, -math.inf)
    margin = 0.05 * (high - low) or 0.5
    return float(low - margin), float(high + margin)


def view_payoff(outcome: Outcome, plan: Plan, dataset: Dataset) -> Payoff | None:
    """Return the objective (or FALLBACK) of each query with 0, 1, ... top_k documents shown; None without labels."""
    mean = plan.measure.family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED)
    return payoff_of(plan, plan.objective if mean else FALLBACK, outcome.candidates, dataset)


def gate_view(outcome: Outcome, plan: Plan, payoff: Payoff | None) -> GateView | None:
    """Return the view of a run's gate; None without a signal or labels. payoff: from `view_payoff`."""
    if payoff is None or outcome.decision.signal is None or not len(payoff.rows):
        return None
    public = plan.split.select_on == "public"
    return learnt_view(outcome, public) if outcome.decision.fitted else _given_view(outcome, plan, payoff, public)


def learnt_view(outcome: Outcome, public: bool) -> GateView:
    """Return the view of a gate fitted to labels. public: whether gate and view use only the public part."""
    fitted, curve, held_out = outcome.decision.fitted, outcome.decision.curve, outcome.held_out
    assert fitted is not None
    assert curve is not None
    learnt = fitted["learnt_from"]
    keys = {"plateau": "plateau", "95 % interval": "threshold_interval"}
    return GateView(
        **vars(SignalRule.of(Rule.from_json(fitted["rule"]))),
        objective=fitted["objective"],
        public=public,
        learnt=True,
        curve=curve,
        in_use=fitted["in_sample"],
        held_out=(held_out.public if public else held_out.summary).get(fitted["objective"]) if held_out else None,
        ranges={name: (float(fitted[key][0]), float(fitted[key][1])) for name, key in keys.items() if key in fitted},
        counts=(learnt["queries"], learnt["needs_no_retrieval"]),
        notes=tuple(fitted["notes"]),
        **_labelled(outcome, public),
    )


def _given_view(outcome: Outcome, plan: Plan, payoff: Payoff, public: bool) -> GateView:
    assert outcome.decision.signal is not None
    rows, rule = payoff.rows, given(outcome, plan)
    signal, earned = outcome.decision.signal[rows], payoff.levels((plan.top_k, 0))
    return GateView(
        **vars(rule),
        objective=payoff.name,
        public=public,
        learnt=False,
        curve=calibration.curve(signal, earned),
        in_use=float(payoff.values[rows, np.minimum(outcome.decision.shown[rows], plan.top_k)].mean()),
        held_out=None,
        ranges={"plateau": calibration.threshold_plateau(signal, earned)},
        counts=(len(rows), int((~payoff.needs[rows]).sum())),
        **_labelled(outcome, public),
    )


def given(outcome: Outcome, plan: Plan) -> SignalRule:
    """Return the rule of a gate that has a signal but learnt nothing in this run."""
    gate, levels, names = plan.made("gate"), (plan.top_k, 0), list(outcome.rankings)
    match gate:
        case FittedGate():
            return SignalRule.of(gate.rule)
        case NoGate():
            return SignalRule(f"{names[0]} top_score", levels, (-math.inf,), single=(None, "top_score", ScoreGate().k))
        case ScoreGate():
            source = gate.source or (names[0] if len(names) == 1 else None)
            name, single = " ".join(filter(None, (source, gate.signal))), (gate.source, gate.signal, gate.k)
            return SignalRule(name, levels, (gate.threshold,), single=single)
    signal, keep = outcome.decision.signal, outcome.decision.keep
    assert signal is not None
    if keep.all() or not keep.any():
        return SignalRule("signal", levels, (-math.inf if keep.all() else math.inf,))
    low, high = float(signal[~keep].max()), float(signal[keep].min())
    return SignalRule("signal", levels, (low + (high - low) / 2,) if low < high else ())


def _labelled(outcome: Outcome, public: bool) -> dict[str, Any]:
    decision, scores = outcome.decision, outcome.scores
    assert decision.signal is not None
    assert scores is not None
    place = {query.query_id: row for row, query in enumerate(outcome.queries)}
    part = scores.in_public if public else np.ones(len(scores.query_ids), bool)
    rows = np.array([place[query_id] for query_id in scores.query_ids], int)[part]
    return {"signal": decision.signal[rows], "needs": scores.needs[part], "shown": decision.keep[rows]}


def draw_gate(view: GateView) -> Figure:
    """Draw the objective by threshold, the thresholds with their intervals, and a histogram of each kind of query."""
    ends = signal_axis(view.signal, view.thresholds)
    heights = (2.7, 0.19 * (len(view.ranges) + max(len(view.thresholds), 1)), 1.0, 1.0)
    lines = _title(view)
    head = 0.22 + 0.16 * len(lines)
    tall = sum(heights) + head + 0.7
    figure = new_figure(WIDTH, tall, constrained=False)
    figure.subplots_adjust(left=0.08, right=0.73, top=1 - head / tall, bottom=0.5 / tall, hspace=0.1)
    upper, strip, *lower = figure.subplots(4, 1, sharex=True, height_ratios=heights)

    figure.text(0.02, 1 - 0.1 / tall, lines[0], va="top", fontsize=10)
    figure.text(0.02, 1 - 0.32 / tall, "\n".join(lines[1:]), va="top", fontsize=FONT)
    _curve(upper, view, ends)
    _thresholds(strip, view, ends)
    _distribution(lower, view, ends)
    for panel in (upper, strip, *lower):
        for threshold in filter(math.isfinite, view.thresholds):
            panel.axvline(threshold, color=THRESHOLD, lw=1, ls="-" if threshold == view.thresholds[-1] else ":")
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=FONT)
    for panel in (upper, strip, lower[0]):
        panel.xaxis.set_visible(False)
    upper.set_xlim(ends)
    lower[-1].set_xlabel(view.name + _beyond(view.signal, ends), fontsize=FONT)
    return figure


def _title(view: GateView) -> list[str]:
    queries, none = view.counts
    return [
        f"Gate on {view.name}{', fitted to' if view.learnt else ':'} {view.objective} on {counted(queries, 'query')}"
        f"{' of the public part' if view.public else ''} ({none:,} need no retrieval)",
        f"curve: objective if queries that reach a threshold get {counted(max(view.levels), 'document')}, others none",
        *view.notes,
    ]


def _curve(panel: Axes, view: GateView, ends: Ends) -> None:
    curve, oof = view.curve, view.held_out
    first, last = min(ends[0], curve.edges[-1]), max(ends[1], curve.edges[0])
    panel.stairs(curve.values[::-1], [first, *curve.edges[::-1], last], baseline=None, color=CURVE, lw=1.5)
    means = {"no gate": (curve.values[-1], NO_GATE)}
    if view.learnt or view.thresholds[-1:] != (-math.inf,):
        means["in sample" if view.learnt else "as it is"] = (view.in_use, CURVE)
    low = high = math.nan
    if oof:
        means["out of fold"] = (oof.mean, OUT_OF_FOLD)
        low, high = oof.low, oof.high
        panel.plot([0.994] * 2, [low, high], color=OUT_OF_FOLD, lw=3, transform=panel.get_yaxis_transform())
    seen = [*curve.values, *(mean for mean, _ in means.values()), low, high]
    margin = 0.05 * (np.nanmax(seen) - np.nanmin(seen)) or 0.05
    panel.set_ylim(np.nanmin(seen) - margin, np.nanmax(seen) + margin)
    panel.set_ylabel(view.objective, fontsize=FONT)
    if "plateau" in view.ranges:
        panel.axvspan(*np.clip(view.ranges["plateau"], *ends), color=PLATEAU, lw=0, zorder=0)
    bottom, top = panel.get_ylim()
    heights = [(mean - bottom) / (top - bottom) for mean, _ in means.values()]
    for (name, (mean, colour)), height in zip(means.items(), _apart(heights, 0.075), strict=True):
        panel.axhline(mean, color=colour, lw=1, ls="--")
        interval = f" [{low:.4f}, {high:.4f}]" if name == "out of fold" and low == low else ""
        panel.annotate(
            f"{name} {mean:.4f}{interval}", (1, mean), (1.03, height), xycoords=panel.get_yaxis_transform(),
            textcoords="axes fraction", va="center", fontsize=FONT, color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _thresholds(panel: Axes, view: GateView, ends: Ends) -> None:
    labels: list[str] = []
    for name, (low, high) in view.ranges.items():
        colour = INTERVAL if labels else PLATEAU
        panel.plot(np.clip([low, high], *ends), [len(labels)] * 2, color=colour, lw=6, solid_capstyle="butt")
        labels.append(f"{name} {_number(low)} to {_number(high)}")
    above = math.inf
    for level, threshold in zip(view.levels, view.thresholds, strict=False):
        condition = f"from {_number(threshold)}" if threshold < above else "never"
        if threshold < above:
            marker = "d" if math.isfinite(threshold) else "<"
            panel.plot([max(threshold, ends[0])], [len(labels)], marker, color=THRESHOLD, ms=5, clip_on=False)
        labels.append(f"{counted(level, 'document')} {condition}")
        above = threshold
    panel.set_ylim(max(len(labels), 1) - 0.5, -0.5)
    panel.set_yticks([])
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for row, label in enumerate(labels):
        panel.text(1.03, row, label, transform=panel.get_yaxis_transform(), va="center", fontsize=FONT)


def _distribution(panels: Sequence[Axes], view: GateView, ends: Ends) -> None:
    """Draw two histograms: queries that need retrieval above, all others below. No bin spans the last threshold."""
    from matplotlib.ticker import MaxNLocator

    width = (ends[1] - ends[0]) / BINS
    origin = next(filter(math.isfinite, view.thresholds[-1:]), ends[0])
    bins = origin + width * np.arange(math.floor((ends[0] - origin) / width), (ends[1] - origin) / width + 1)
    place = np.clip(view.signal, ends[0] + width / 2, ends[1] - width / 2)  # moves outliers into the visible bins
    for panel, needs in zip(panels, (True, False), strict=True):
        mine = view.needs == needs
        parts = [place[mine & view.shown], place[mine & ~view.shown]]
        wrong = COLOURS["wrongly_withheld" if needs else "wrongly_returned"]
        colours = [SHOWN, wrong] if needs else [wrong, WITHHELD]
        below = np.zeros(len(bins) - 1)
        for part, colour in zip(parts, colours, strict=True):
            above = below + np.histogram(part, bins)[0]
            panel.stairs(above, bins, baseline=below, fill=True, color=colour)
            below = above
        most = max(below.max(), 1)
        panel.set_ylim((0, 1.05 * most) if needs else (1.05 * most, 0))
        panel.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        panel.set_ylabel("queries", fontsize=FONT)
        words = ["need retrieval:" if needs else "need none:"]
        words += [f"{len(part):,} {name}" for part, name in zip(parts, ("shown", "withheld"), strict=True)]
        for height, text, colour in zip((0.8, 0.5, 0.2), words, ("black", *colours), strict=True):
            panel.text(1.03, height, text, transform=panel.transAxes, va="center", fontsize=FONT, color=colour)


def _apart(heights: Sequence[float], least: float) -> np.ndarray:
    """Return heights that are at least `least` apart and at most 1, as near as possible to the given heights."""
    order, steps = np.argsort(heights, kind="stable"), least * np.arange(len(heights))
    moved = np.maximum.accumulate(np.array(heights, float)[order] - steps)  # adding `steps` keeps them `least` apart
    moved = np.minimum(moved, 1 - steps[-1])  # adding `steps` gives at most 1
    apart: np.ndarray = (moved + steps)[np.argsort(order)]
    return apart


def _beyond(signal: np.ndarray, ends: Ends) -> str:
    count = int(((signal < ends[0]) | (signal > ends[1])).sum())
    return f" ({counted(count, 'query')} beyond the ends of the axis are counted at the ends)" if count else ""


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "−∞" if value < 0 else "∞"
