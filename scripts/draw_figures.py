"""Draw the figures of docs/explanation/ from runs on the shipped sample; check that the pages quote their numbers.

    python scripts/draw_figures.py [NAME ...]     # NAME: out-of-fold, intervals, winners, labels, identity

Exit code 1 if a page lacks a number that its figure or its example rests on. All figures take about three minutes.
"""

from __future__ import annotations

import contextlib
import csv
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measuring import ROOT, SAMPLE, called
from simulations import checked_labels

import harness
from harness.config.composing import compose
from harness.experiment.ordering import order
from harness.experiment.plan import Plan
from harness.experiment.session import open_dataset, open_session
from harness.experiment.steps import CachedInputs, payoff_of, retrieve
from harness.gates.calibration import CLOSE, folds
from harness.statistics.power import telling_apart
from harness.statistics.significance import RESAMPLES, SEED, randomisation_test
from harness.statistics.split import shake_up
from harness.storage.cache import open_cache

# Readable on light and on dark pages
INK, GOOD, BAD, NEW, PALE = "#77808a", "#2f9474", "#d1495b", "#4f86c6", "#77808a55"
STYLE = {
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "svg.hashsalt": "retrieval-harness",
}  # fmt: skip
WIDTH = 5.0  # inches: 11 pt are readable where the figure is 358 pixels wide
MEASURE = "modified_map@3"
Drawn = tuple[Figure, Sequence[str]]  # a figure, and the numbers that its page must quote
HALVES = 50  # random divisions of the queries, for `out_of_fold`


def canvas(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def sample_run(*words: str) -> harness.Result:
    return harness.run("dataset=sample", "tracking=none", *words)


def out_of_fold() -> Drawn:
    """Gates learn on a random half of the queries, and are scored three times: twice there, once on the other half."""
    rows = {
        "one signal of one ranking": ("gate.signals=[top_score]",),
        "all fast signals of one ranking": (),
        "all fast signals of two rankings": ("retriever=hybrid_lexical",),
    }
    figure, axes = canvas(3.1)
    quoted = []
    for place, (name, words) in enumerate(rows.items()):
        seen, unseen, new, none = _halves(*words)
        axes.plot([none, seen], [place, place], color=PALE, linewidth=2, zorder=1)
        for value, style in ((none, "|"), (seen, "o"), (unseen, "s"), (new, "D")):
            axes.plot(value, place, style, **MARKS[style])
        axes.text(0.575, place - 0.28, name, va="bottom")
        quoted += [f"{value:.3f}" for value in (none, seen, unseen, new)]
    for style, label in zip("|osD", ("no gate", "in sample", "out of fold", "on new queries"), strict=True):
        axes.plot([], [], style, label=label, **MARKS[style])
    axes.set(ylim=(2.4, -0.75), yticks=[], xlabel=MEASURE)
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2)
    return figure, quoted


MARKS: dict[str, dict[str, Any]] = {
    "|": {"color": INK, "markersize": 14, "markeredgewidth": 2},
    "o": {"color": BAD, "markersize": 10},
    "s": {"color": GOOD, "markersize": 9},
    "D": {"color": INK, "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 2},
}


def _halves(*words: str) -> np.ndarray:
    """Return means over halves: in sample, out of fold, on the other half, and without a gate."""
    plan = Plan.of(compose("run", ["dataset=sample", "gate=auto", *words])[0])
    session = open_session(plan, open_dataset(plan, "sample"))
    rankings = retrieve(plan.retriever, session, plan.depth)
    inputs = CachedInputs(plan, rankings, session)
    payoff = payoff_of(plan, plan.objective, order(plan, rankings, session).candidates, session.dataset)
    values, gate = payoff.values, plan.made("gate")
    every = np.full(len(values), values.shape[1] - 1)
    found = []
    for number in range(HALVES):
        half = folds(payoff.needs[payoff.rows], 2, number)
        for which in (0, 1):
            mine, others = payoff.rows[half == which], payoff.rows[half != which]
            rule, apart, _ = gate.learn(inputs, replace(payoff, rows=mine, seed=number))
            shown = rule.shown(rule.signal(inputs))
            parts = [(mine, shown), *((mine, one) for one in apart), (others, shown), (mine, every)]
            means = [float(values[rows, np.minimum(docs, every)[rows]].mean()) for rows, docs in parts]
            found.append((means[0], np.mean(means[1:-2]), *means[-2:]))
    return np.mean(found, axis=0)


def intervals() -> Drawn:
    """The difference of two runs among the differences that chance alone makes, and its interval."""
    runs = [sample_run(f"retriever={name}").per_query[MEASURE].sort_index() for name in ("hybrid_lexical", "bm25")]
    gaps = (runs[0] - runs[1]).to_numpy()
    told = telling_apart(gaps)
    found, chance = told.found, list[np.ndarray]()

    def mean_after(swaps: np.ndarray) -> np.ndarray:
        chance.append((1 - 2.0 * swaps) @ gaps / len(gaps))
        return chance[-1][None]

    randomisation_test(mean_after, len(gaps), 0.0, seed=SEED, resamples=RESAMPLES)
    drawn = np.concatenate(chance[1:])  # the first one swaps nothing
    figure, axes = canvas(3.0)
    width = 0.98 * found.mean / 4.5  # bars end just inside the measured difference
    edges = (np.arange(-16, 16) + 0.5) * width
    inside = np.abs(drawn) < found.mean - CLOSE
    axes.hist([drawn[inside], drawn[~inside]], edges, stacked=True, color=[PALE, BAD])
    top = axes.get_ylim()[1]
    axes.errorbar(found.mean, -0.16 * top, xerr=[[found.mean - found.low], [found.high - found.mean]],
                  fmt="o", color=GOOD, capsize=5, linewidth=2, markersize=8)  # fmt: skip
    axes.text(-0.1, -0.16 * top, "measured", color=GOOD, va="center")
    axes.text(-0.1, 0.75 * top, "by luck alone", va="center")
    axes.text(0.052, 0.5 * top, f"as large:\np = {found.p:.2f}", color=BAD, va="center")
    axes.axvline(0, color=INK, linewidth=1)
    axes.set(
        xlim=(-0.105, 0.115),
        ylim=(-0.32 * top, top),
        yticks=[],
        xticks=(-0.1, -0.05, 0, 0.05, 0.1),
        xlabel=f"difference in {MEASURE}",
    )
    axes.spines["left"].set_visible(False)
    numbers = (found.mean, found.low, found.high, told.smallest_difference)
    counts = (found.wins, found.losses, found.ties, told.queries_needed)
    return figure, [*(f"{value:.3f}" for value in numbers), f"{found.p:.2f}", *(f"{count:,}" for count in counts)]


def winners() -> Drawn:
    """The best of n runs, on the half of the queries that chose it and on the other half."""
    words = ("fusion.weights.bm25=0.5,1,2", "gate.source=bm25,bigram", "gate.threshold=range(0,10)", "top_k=1,2,3")
    swept = harness.sweep("dataset=sample", "tracking=none", "retriever=hybrid_lexical", "gate=score", *words)
    tables = Path("outputs/sweeps", swept["sweep_id"], "trials").glob("*/scores.csv")
    rows = [[*csv.DictReader(io.StringIO(table.read_text("utf-8")))] for table in sorted(tables)]
    values = np.array([[float(row[MEASURE]) for row in trial] for trial in rows])
    needs = np.array([row["needs"] == "1" for row in rows[0]])
    parts = shake_up(lambda drawn: values @ drawn.T / drawn.sum(axis=1), needs.astype(int), 0.5, SEED)
    generator = np.random.default_rng(SEED)
    counts = (1, 2, 3, 5, 10, 20, 50, 100, len(values))
    means = np.array([_winner(parts.public, parts.private, count, generator) for count in counts])
    figure, axes = canvas(3.0)
    axes.fill_between(counts, *means.T, color=PALE, linewidth=0)
    for column, colour, label, above in ((0, BAD, "on the queries\nthat chose it", 1), (1, GOOD, "on new queries", -1)):
        axes.plot(counts, means[:, column], "o-", color=colour)
        axes.text(12, means[4, column] + 0.02 * above, label, color=colour, ha="right" if above > 0 else "left",
                  va="bottom" if above > 0 else "top")  # fmt: skip
    axes.set(xscale="log", xlabel="runs tried", ylabel=f"{MEASURE} of the best")
    axes.set_xticks((1, 10, 100, len(values)), labels=("1", "10", "100", str(len(values))))
    axes.minorticks_off()
    expected = swept["expected"]
    quoted = [len(values), *means[0], *means[4], *means[-1], expected["best"], expected["value"]]
    return figure, [f"{one:.3f}" if isinstance(one, float) else str(one) for one in quoted]


def _winner(public: np.ndarray, private: np.ndarray, count: int, generator: np.random.Generator) -> list[float]:
    """Return the mean public and private score of the publicly best of `count` random runs."""
    found = []
    for shown, hidden in zip(public.T, private.T, strict=True):
        some = generator.choice(len(shown), count, replace=False)
        best = shown[some] > shown[some].max() - CLOSE
        found.append((shown[some][best].mean(), hidden[some][best].mean()))
    return [float(mean) for mean in np.mean(found, axis=0)]


def labels() -> Drawn:
    """Intervals from three kinds of labels, for twelve simulated test sets of which people check 40 queries."""
    sets = [*checked_labels.drawn_sets(checked_labels.population(), 40, 12, stratified=False)]
    sample, found, truth = sets[0]["ndcg@10"]
    figure, axes = canvas(4.0)
    names = {"a model's labels alone": BAD, "40 checked queries alone": INK, "both together": GOOD}
    quoted = [truth, sample.model.mean(), sample.model[sample.checked].mean(), sample.people[sample.checked].mean()]
    quoted += [found.value, found.weight]
    for place, parts in enumerate(sets):
        rows = checked_labels.ways(*parts["ndcg@10"][:2], place)
        for block, ((_, low, high), colour) in enumerate(zip(rows, names.values(), strict=True)):
            axes.plot([low, high], [16 * block + place] * 2, color=colour, linewidth=2.5)
            quoted += [] if place else [low, high]
    for block, (name, colour) in enumerate(names.items()):
        axes.text(0.46, 16 * block - 1.2, name, color=colour)
    axes.axvline(truth, color=INK, linestyle="--", linewidth=1)
    axes.text(truth, 46, " the truth", ha="left")
    axes.set(ylim=(47, -4), xlim=(0.46, 0.84), yticks=[], xlabel="ndcg@10")
    axes.spines["left"].set_visible(False)
    return figure, [f"{value:.2f}" for value in quoted]


def identity() -> Drawn:
    """What a run computes after a run that differs in one thing."""
    shutil.copytree(SAMPLE, "data")
    kinds = {"tokens": "words", "indexes": "indexes", "rankings": "rankings"}
    first = ("dataset=contest", "dataset.path=data", "retriever=hybrid_lexical", "gate=score", "gate.source=bm25",
             "gate.threshold=2", "tracking=none", "store.path=fresh")  # fmt: skip
    before, key = set[tuple[str, str]](), ""
    figure, axes = canvas(4.2)
    for place, (change, edit) in enumerate(CHANGES.items()):
        if edit:
            path = Path("data", edit[0])
            path.write_text(path.read_text("utf-8").replace(*edit[1:], 1), "utf-8")
        result = harness.run(*first, *([change] if "=" in change else []))
        held = {(entry.kind, entry.key) for entry in open_cache("fresh").entries() if entry.kind in kinds}
        key = key or result.trial_key
        new = [sum(kind == one for one, _ in held - before) for kind in kinds]
        for column, count in enumerate([*new, int(result.trial_key != key or not place)]):
            axes.plot(column, place, "s", color=NEW if count else PALE, markersize=15)
        axes.text(-0.6, place, change, ha="right", va="center")
        before = held
    axes.set(xlim=(-5.2, 3.5), ylim=(len(CHANGES) - 0.5, -0.6), yticks=[])
    axes.xaxis.tick_top()
    axes.set_xticks(range(4), labels=[*kinds.values(), "a new run"], rotation=30, ha="left")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for colour, label in ((NEW, "new"), (PALE, "known already")):
        axes.plot([], [], "s", color=colour, markersize=11, label=label)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, [key[:8]]


Edit = tuple[str, str, str]  # a file of the data, a text in it, and what replaces this text
CHANGES: dict[str, Edit | None] = {
    "the first run": None,
    "the same again": None,
    "tokenizer.runtime.workers=2": None,
    "gate.threshold=3": None,
    "fusion.weights.bm25=2": None,
    "retriever.bm25.k1=0.9": None,
    "tokenizer=word": None,
    "query.text=last": None,
    "a label changed": ("qrels.jsonl", '"med-016": 2', '"med-016": 1'),
    "a document changed": ("documents.jsonl", "관성은", "관성이란"),
}
FIGURES: dict[str, Callable[[], Drawn]] = {
    "out-of-fold": out_of_fold, "intervals": intervals, "winners": winners, "labels": labels, "identity": identity,
}  # fmt: skip


def draw(name: str, folder: Path) -> list[str]:
    """Draw a figure into a folder; say which of its numbers its English page and its Korean page lack."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch), rc_context(STYLE):
        figure, quoted = FIGURES[name]()
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
    print(f"{name}: {' '.join(quoted)}", flush=True)
    said = []
    for page in (f"docs/explanation/{name}.md", f"docs/explanation/{name}.ko.md"):
        text = (ROOT / page).read_text("utf-8")
        if lacking := [number for number in quoted if number not in text]:
            said.append(f"{page} lacks {', '.join(lacking)}.")
    return said


def main(*names: str) -> int:
    said = [line for name in names or FIGURES for line in draw(name, ROOT / "docs" / "pictures")]
    for line in said:
        print(line, file=sys.stderr)
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(called(main, sys.argv[1:], "draw_figures.py"))
