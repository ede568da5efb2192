"""What people read about a scored file of answers or corrections: a page with its items, and a description.

The page is the template `task.html` with the run's data in it.

The figure of a scored file of a text task. It is drawn without global state and without a display.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.measures.scores import Summary
from harness.reports.figure import FONT, WIDTH, label_rows, new_figure, with_fonts
from harness.reports.markup import (
    bullets,
    description,
    grid,
    interval,
    marked,
    result,
    rounded_interval,
    rounded_or_none,
)
from harness.reports.page import TEMPLATES, fill_page
from harness.tasks.scored_file import ScoredFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATE = TEMPLATES / "task.html"
LIMIT = 1000  # items on a page
FILES = {
    "report.html": "the page of this run: measures, counts, the worst items; opens without a network",
    "measures.png": "measures with their intervals, and by kind of item",
    "items.json": "the worst items, one row each",
    "items.csv": "every item: its texts and measures",
    "metrics.json": "every number of this run",
    "tallies.csv": "the counts of every item: all that a comparison needs",
    "predictions": "the predictions as they were given",  # whatever its suffix
    "config.yaml": "the resolved configuration",
    "requirements.txt": "versions of all installed packages",
}


def task_page(scored: ScoredFile, facts: Mapping[str, str]) -> str:
    """The whole page as HTML, with at most the LIMIT worst items; those without a value come last.

    facts: what was scored, name -> text.
    """
    judged, shown = scored.judged, scored.shown
    data = {
        "title": scored.task.name,
        "facts": list(facts.items()),
        "notes": judged.notes,
        "nouns": ["item", "items"],
        "shown": shown,
        "headline": _headline(scored),
        "measures": [_measure(name, scored) for name in dict.fromkeys([shown, *scored.summary, *judged.absent])],
        "counts": [(name, float(value)) for name, value in scored.totals.items()],
        "kinds": _kinds(scored),
        "items": _items(scored),
        "total": len(judged.item_ids),
    }
    return fill_page(TEMPLATE, data)


def task_note(scored: ScoredFile, facts: Mapping[str, str], files: Iterable[str]) -> str:
    """The description of a run in Markdown.

    facts: what was scored, name -> text. files: names of the files that the run leaves.
    """
    order = sorted(scored.summary, key=lambda name: name != scored.shown)
    known = {name: scored.summary[name] for name in order if scored.summary[name].mean == scored.summary[name].mean}
    public, private = (scored.parts[part] for part in ("public", "private"))
    rows = [
        (
            marked(name),
            _mean(one),
            interval(one.low, one.high),
            _mean(public.get(name)),
            _mean(private.get(name)),
            f"{one.n:,}",
        )
        for name, one in known.items()
    ]
    left = {"predictions" if name.startswith("predictions.") else name: name for name in files}
    return description(
        [
            result(scored.headline) if scored.headline else "Nothing could be scored.",
            f"[report.html](report.html): {FILES['report.html']}" if "report.html" in left else "",
            bullets(f"**{marked(name)}**: {marked(text)}" for name, text in facts.items()),
            grid(("measure", "value", "95 % interval", "public", "private", "items"), rows) if known else "",
            bullets(f"**{marked(name)}** is absent: {marked(why)}" for name, why in scored.judged.absent.items()),
            ", ".join(f"{marked(name)} {value:,.10g}" for name, value in scored.totals.items()),
            bullets(map(marked, scored.judged.notes)),
            bullets(
                f"`{left[name]}`: {text}" for name, text in FILES.items() if name in left and name != "report.html"
            ),
        ]
    )


def _headline(scored: ScoredFile) -> dict[str, Any] | None:
    """What the page begins with; None where nothing has a value."""
    one = scored.headline
    if one is None:
        return None
    summaries = scored.parts["public"] if one.select_on == "public" else scored.summary
    about = {"name": one.name, "kind": one.kind, "n": summaries[one.name].n}
    return about | rounded_interval(one.value, one.low, one.high)


def _measure(name: str, scored: ScoredFile) -> dict[str, Any]:
    """A measure for the page; the mean of an absent one is null, and `why` gives the reason."""
    none = Summary(np.nan, 0)
    one, absent = scored.summary.get(name, none), scored.judged.absent
    return {
        "name": name,
        **rounded_interval(np.nan if name in absent else one.mean, one.low, one.high),
        "n": one.n,
        "public": rounded_or_none(scored.parts["public"].get(name, none).mean),
        "private": rounded_or_none(scored.parts["private"].get(name, none).mean),
        "why": absent.get(name, one.note),
    }


def _kinds(scored: ScoredFile) -> dict[str, Any]:
    """The measures that are defined for some kind of items, and one row per kind: [kind, *(items, mean)]."""
    by_kind = {name: scored.means_by_kind(name) for name in scored.summary}
    known = {name: kinds for name, kinds in by_kind.items() if any(mean == mean for _, mean in kinds.values())}
    rows = [
        [kind, *((n, rounded_or_none(mean)) for n, mean in (kinds[kind] for kinds in known.values()))]
        for kind in (scored.by_kind if known else ())
    ]
    return {"measures": list(known), "rows": rows}


def _items(scored: ScoredFile) -> dict[str, Any]:
    """The worst items, the worst first: names of the columns of texts and of numbers, and one row per item.

    A row is [id, kind, *texts, *numbers]; a text with marks is a list of pieces, each [text, mark].
    """
    judged, values, shown = scored.judged, scored.values, scored.shown
    worst = np.argsort(values, kind="stable")[:LIMIT].tolist()
    table = {shown: [None if value != value else value for value in values.tolist()]}
    table |= {name: cells for name, cells in judged.table.items() if name not in ("id", "kind", shown)}
    table = {name: cells for name, cells in table.items() if any(cell is not None for cell in cells)}
    texts = [name for name, cells in table.items() if any(isinstance(cell, str) for cell in cells)]
    numbers = [name for name in table if name not in texts]
    columns: list[Sequence[Any]] = [judged.item_ids, judged.kinds]
    columns += [judged.marked.get(name, table[name]) for name in texts] + [table[name] for name in numbers]
    return {
        "texts": texts,
        "numbers": numbers,
        "rows": [[_cell(column[row]) for column in columns] for row in worst],
    }


def _cell(value: Any) -> Any:
    """A text, the pieces of a text, or None unchanged; a number as JSON has it."""
    if value is None or isinstance(value, str):
        return value
    return [tuple(piece) for piece in value] if isinstance(value, Iterable) else rounded_or_none(value)


def _mean(one: Summary | None) -> str:
    return f"{one.mean:.4f}" if one and one.mean == one.mean else "–"


VALUE, INTERVAL, ABSENT = "#2e5eaa", "#8fa8c8", "#8b929a"
MARKS = {"tp": "#1d7a4f", "fp": "#c22f44", "fn": "#b05c00", "fr": "#7a4fa3"}
MOST = 20  # kinds in a figure
ROW = 0.3  # inches


def draw_scored(
    summary: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    counts: Mapping[str, float],
) -> Figure:
    """Draw measures with their intervals, sums of counts, and the objective of each kind of item.

    summary: measure -> its value, NaN if it is absent; at least one measure. by_kind: kind -> (number of items, their
    objective); drawn if there are several kinds. counts: name -> sum over all items.
    """
    kinds = sorted(by_kind.items(), key=lambda one: -one[1][0])[:MOST] if len(by_kind) > 1 else []
    heights = [len(rows) + 1.5 for rows in (summary, counts) if rows]
    heights.append(max(len(kinds) + 1.5 - sum(heights), 0.01))  # below the measures, where there are many kinds
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
    """One dot and whisker per measure, its value beside it; grey if it is absent."""
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
    """One bar per value, with its label at the end."""
    bars = panel.barh(range(len(values)), np.nan_to_num([*values.values()]), 0.65, color=VALUE)
    panel.bar_label(bars, labels, fontsize=FONT, padding=3)
    panel.margins(x=0.2)
    label_rows(panel, values)
    panel.set_title(title, fontsize=9)
