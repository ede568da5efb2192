"""Figures of a run. Drawn with matplotlib's object interface: no global state, no display."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.evaluation.scores import Scores
from harness.reports.figure import COLOURS, WIDTH, new_figure, save

BINS = ((1, 1, "1"), (2, 2, "2"), (3, 3, "3"), (4, 10, "4–10"), (11, None, "11+"))


def overview(scores: Scores, file: Path, held_out: Scores | None = None) -> None:
    """Left: rank of the first relevant document before the gate. Right: the score and where the rest of it is lost.

    held_out: the out-of-fold scores; None where nothing was learnt.
    """
    figure = new_figure(WIDTH, 3.4, constrained=False)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(left=0.07, right=0.99, top=0.9, bottom=0.15, wspace=0.15)

    hits = scores.first_hit[np.isfinite(scores.first_hit)]
    counts = [int(((hits >= low) & (hits <= (high or np.inf))).sum()) for low, high, _ in BINS]
    labels = [label for *_, label in BINS]
    bars = left.bar([*labels, "none"], [*counts, int((hits == 0).sum())], color="#2e5eaa")
    bars[-1].set_color(COLOURS["not_found"])
    left.bar_label(bars, fontsize=8)
    left.set(title="Rank of the first relevant document", xlabel="rank", ylabel="queries")

    lost = (held_out or scores).losses
    parts = {"modified_map@3": 1 - sum(lost[name] for name in COLOURS if name in lost)}
    parts |= {name: lost[name] for name in COLOURS if name in lost}
    below = 0.0
    for name, value in parts.items():
        right.bar(["run"], [value], bottom=below, width=0.5, color=COLOURS[name], label=f"{name} {value:.3f}")
        below += value
    right.set(title=f"Score and losses{', out of fold' if held_out else ''}", ylim=(0, 1), xlim=(-0.5, 2.2))
    right.legend(loc="center right", fontsize=8, frameon=False, reverse=True)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, file)
