"""How ranks may move between the public and the private part of a leaderboard, as a figure."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.reports.figure import FONT, QUICK, _figure, _rows, with_fonts
from harness.reports.task_figures import INTERVAL, MARKS, ROW, VALUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NARROW = 15  # columns of shifts that leave room for numbers


def shake_up(document: Mapping[str, Any]) -> bytes:
    """What becomes of the ranks of submissions between the public and the private part, as PNG.

    document: a comparison, of which are told: metric; runs, with label, public, private, public_rank and private_rank
    each; shake_up, with draws, and of each run its shifts, ranks lost -> in how many draws.
    """
    written = io.BytesIO()
    draw_shake_up(document).savefig(written, dpi=120, pil_kwargs=QUICK)
    return written.getvalue()


def draw_shake_up(document: Mapping[str, Any]) -> Figure:
    runs, draws = document["runs"], document["shake_up"]["draws"]
    rows = range(len(runs))
    public, private = (np.array([one[part] for one in runs], np.float64) for part in ("public", "private"))  # None: NaN
    figure = _figure(1.2 + ROW * len(runs))
    left, right = figure.subplots(1, 2, sharey=True)
    left.hlines(rows, np.minimum(public, private), np.maximum(public, private), color=INTERVAL, linewidth=2, zorder=1)
    left.plot(public, rows, "o", color=VALUE, markerfacecolor="white", label="public")
    left.plot(private, rows, "o", color=VALUE, markersize=4, label="private")
    left.set_title(f"{document['metric']} in the split that counts", fontsize=9)
    figure.legend(loc="outside lower left", ncols=2, fontsize=FONT, frameon=False)
    shares = [
        {int(move): count / draws for move, count in one["shifts"].items()} for one in document["shake_up"]["runs"]
    ]
    _shifts(right, shares, [one["private_rank"] - one["public_rank"] for one in runs])
    right.set_title(f"How ranks move in {draws:,} random splits", fontsize=9)
    _rows(left, [one["label"] for one in runs])
    right.tick_params(labelsize=FONT)
    return with_fonts(figure)


def _shifts(panel: Axes, shares: Sequence[Mapping[int, float]], actual: Sequence[int]) -> None:
    """A row for each submission: how often its rank moves by how much; outlined, by how much it did."""
    from matplotlib.patches import Rectangle

    most = max(abs(move) for moves in [actual, *shares] for move in moves)
    moves = range(-most, most + 1)
    cells = [[of.get(move, 0) for move in moves] for of in shares]
    panel.imshow(cells, cmap="Blues", vmin=0, aspect="auto",
                 extent=(-most - 0.5, most + 0.5, len(shares) - 0.5, -0.5))  # fmt: skip
    for row, (of, moved) in enumerate(zip(shares, actual, strict=True)):
        for move, share in of.items() if len(moves) <= NARROW else ():
            ink = "white" if 2 * share > np.max(cells) else "black"
            panel.text(move, row, f"{share:.0%}", ha="center", va="center", fontsize=7, color=ink)
        panel.add_patch(Rectangle((moved - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=MARKS["fp"], linewidth=1.5))
    step = 1 + most // 8
    panel.set_xticks([move for move in moves if move % step == 0])
    panel.set_xlabel("private − public rank; outlined: the split that counts", fontsize=FONT)
