"""The page, the description and the figure of a scored file of answers or corrections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.measures.scores import Summary
from harness.reports.figure import FONT, WIDTH, label_rows, new_figure, with_fonts
from harness.reports.markup import (
    TEMPLATES,
    bullets,
    fill_page,
    grid,
    interval,
    marked,
    number,
    result,
    rounded_or_none,
)
from harness.reports.run_page import Facts, first_number, measure_row, scored_note
from harness.storage.typed import encoded
from harness.tasks.scored_file import ScoredFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATE = TEMPLATES / "task.html"
LIMIT = 1000  # a page shows at most this many items
VALUE, INTERVAL, ABSENT = "#2e5eaa", "#8fa8c8", "#8b929a"
MARKS = {"tp": "#1d7a4f", "fp": "#c22f44", "fn": "#b05c00", "fr": "#7a4fa3"}
MOST = 20  # a figure shows at most this many kinds
ROW = 0.3  # inches for each row of a figure


def task_page(scored: ScoredFile, facts: Facts) -> str:
    """Return the page with at most LIMIT items, the worst first. Items without a value come last."""
    names = dict.fromkeys([scored.shown, *scored.summary, *scored.judged.absent])
    data = {
        "title": scored.task.name,
        "facts": facts,
        "nouns": ["item", "items"],
        "ranked_by": first_number(scored.headline, scored.summary, scored.parts["public"]),
        "columns": ["", "public", "private"],
        "measures": [_measure(name, scored) for name in names],
        "notes": scored.judged.notes,
        "objective": scored.shown,
        "counts": [(name, float(value)) for name, value in scored.totals.items()],
        "kinds": _kinds(scored),
        "items": _items(scored),
        "total": len(scored.judged.item_ids),
    }
    return fill_page(TEMPLATE, data)


def _measure(name: str, scored: ScoredFile) -> dict[str, Any]:
    none = Summary(np.nan, 0)
    one, absent = scored.summary.get(name, none), scored.judged.absent
    known = name not in absent and one.mean == one.mean
    cells = [one.mean, *(scored.parts[part].get(name, none).mean for part in ("public", "private"))]
    return measure_row(name, one.n, cells, {name: one} if known else {}, absent.get(name, one.note))


def task_note(scored: ScoredFile, facts: Facts, files: Iterable[str]) -> str:
    """Return the description of a run in Markdown. facts, files: see `scored_note`."""
    order = sorted(scored.summary, key=lambda name: name != scored.shown)
    public, private = (scored.parts[part] for part in ("public", "private"))
    rows = []
    for name in order:
        if (one := scored.summary[name]).mean == one.mean:
            parts = [number(part[name].mean if name in part else None) for part in (public, private)]
            rows.append((marked(name), number(one.mean), interval(one.low, one.high), *parts, f"{one.n:,}"))
    found = [
        grid(("measure", "value", "95 % interval", "public", "private", "items"), rows) if rows else "",
        bullets(f"**{marked(name)}** is absent: {marked(why)}" for name, why in scored.judged.absent.items()),
        ", ".join(f"{marked(name)} {value:,.10g}" for name, value in scored.totals.items()),
    ]
    first = result(scored.headline) if scored.headline else "Nothing could be scored."
    return scored_note(first, facts, found, scored.judged.notes, files)


def _kinds(scored: ScoredFile) -> dict[str, Any]:
    """Return the measures that have a mean for some kind of item, and the rows of the table of kinds.

    A row is [kind, (number of items, mean) of each measure].
    """
    by_kind = {name: scored.means_by_kind(name) for name in scored.summary}
    known = {name: kinds for name, kinds in by_kind.items() if any(mean == mean for _, mean in kinds.values())}
    rows = [
        [kind, *((n, rounded_or_none(mean)) for n, mean in (kinds[kind] for kinds in known.values()))]
        for kind in (scored.by_kind if known else ())
    ]
    return {"measures": list(known), "rows": rows}


def _items(scored: ScoredFile) -> dict[str, Any]:
    """Return the names of the text columns and of the number columns, and the rows [id, kind, *texts, *numbers].

    The worst items come first. A marked text is a list of pieces [text, mark].
    """
    judged, values, shown = scored.judged, scored.values, scored.shown
    worst = np.argsort(values, kind="stable")[:LIMIT].tolist()
    table: dict[str, Any] = {shown: encoded(values)}
    table |= {name: cells for name, cells in judged.table.items() if name not in ("id", "kind", shown)}
    table = {name: cells for name, cells in table.items() if any(cell is not None for cell in cells)}
    texts = [name for name, cells in table.items() if any(isinstance(cell, str) for cell in cells)]
    numbers = [name for name in table if name not in texts]
    columns: list[Sequence[Any]] = [judged.item_ids, judged.kinds]
    columns += [judged.marked.get(name, table[name]) for name in texts] + [table[name] for name in numbers]
    rows = [[_cell(column[row]) for column in columns] for row in worst]
    return {"texts": texts, "numbers": numbers, "rows": rows}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return [tuple(piece) for piece in value] if isinstance(value, Iterable) else rounded_or_none(value)


def draw_scored(
    summary: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    counts: Mapping[str, float],
) -> Figure:
    """Draw the measures with their intervals, the sums of counts, and the objective of each kind of item.

    summary: name -> measure, at least one; the mean of an absent measure is NaN.
    by_kind: kind -> (number of items, objective of these items); a single kind is not drawn.
    counts: name -> sum over all items.
    """
    kinds = sorted(by_kind.items(), key=lambda one: -one[1][0])[:MOST] if len(by_kind) > 1 else []
    heights = [len(rows) + 1.5 for rows in (summary, counts) if rows]
    heights.append(max(len(kinds) + 1.5 - sum(heights), 0.01))  # room below the measures if there are many kinds
    figure = new_figure(WIDTH, 0.4 + ROW * sum(heights))
    names = ["measures", "counts", "."] if counts else ["measures", "."]
    mosaic: list[Any] = [[name, "kinds"] if kinds else [name] for name in names]
    panels = figure.subplot_mosaic(mosaic, height_ratios=heights)
    _measures(panels["measures"], summary)
    if counts:
        _bars(panels["counts"], counts, [f"{value:,.10g}" for value in counts.values()], "Counts")
        for bar, name in zip(panels["counts"].patches, counts, strict=True):
            bar.set_color(MARKS.get(name, VALUE))
    if kinds:
        labels = [f"{value:.4f} ({n:,})" if value == value else f"none ({n:,})" for _, (n, value) in kinds]
        means = {kind: value for kind, (_, value) in kinds}
        _bars(panels["kinds"], means, labels, f"{objective} by kind (items)")
        panels["kinds"].set_xlim(0, 1)
        if len(by_kind) > MOST:
            panels["kinds"].set_xlabel(f"the {MOST} largest of {len(by_kind)} kinds", fontsize=FONT)
    return with_fonts(figure)


def _measures(panel: Axes, summary: Mapping[str, Summary]) -> None:
    label_rows(panel, summary)
    for row, (one, label) in enumerate(zip(summary.values(), panel.get_yticklabels(), strict=True)):
        defined = one.mean == one.mean
        panel.plot([one.low, one.high], [row, row], color=INTERVAL, linewidth=2.2)
        panel.plot([one.mean], [row], "o", color=VALUE, clip_on=False)
        label.set_color("black" if defined else ABSENT)
        panel.text(1.03, row, f"{one.mean:.4f}" if defined else "absent", transform=panel.get_yaxis_transform(),
                   va="center", fontsize=FONT, color=label.get_color())  # fmt: skip
    panel.set_xlim(0, 1)
    panel.set_title("Measures with their 95 % intervals", fontsize=9)


def _bars(panel: Axes, values: Mapping[str, float], labels: Sequence[str], title: str) -> None:
    bars = panel.barh(range(len(values)), np.nan_to_num([*values.values()]), 0.65, color=VALUE)
    panel.bar_label(bars, labels, fontsize=FONT, padding=3)
    panel.margins(x=0.2)
    label_rows(panel, values)
    panel.set_title(title, fontsize=9)
