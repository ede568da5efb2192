"""What a sweep shows and writes: its progress, the table of its best trials, and the files of its summary."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.text import counted, short_id
from harness.data.tables import csv_text
from harness.progress import silent, watch
from harness.reports.next_steps import Place, sample_note
from harness.reports.report import Report
from harness.reports.tables import Column, Number, Rows, Table
from harness.reports.terminal import peeked
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from harness.sweeps.plan import Trial, swept_values
from harness.sweeps.summary import SHOWN, SweepSummary
from harness.sweeps.trial_log import TrialLog
from harness.sweeps.trials import TrialResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Swept = Mapping[str, Sequence[str | float | None]]
Places = tuple[np.ndarray, list[str]]

ABSENT = "–"  # stands for the value of a key that a trial lacks
MOST_KEYS = 12  # the maximum number of keys in a figure
MOST_BINS = 8  # the maximum number of groups into which a key's values are put to estimate its effect
TRIAL, GOOD, BEST = "#8fa8c8", "#2e5eaa", "#d1495b"
POLL_SECONDS = 0.2


def sweep_report(summary: SweepSummary, document: Mapping[str, Any], place: Place, words: Sequence[str]) -> Report:
    """Return what a sweep prints. words: its overrides."""
    counts = summary.counts()
    statuses = ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "asked")
    asked = counted(counts["asked"], "trial")
    tables = [table for part in summary.parts for table in _ranking(part)]
    notes = [f"Data: {note}" for note in sample_note(place.config, words)]
    notes += [f"failed: {' '.join(failed['overrides'])}: {failed['error']}" for failed in document["failed"]]
    notes += filter(None, [summary.without_run])
    if summary.select_on == "public" and summary.run_id:
        notes.insert(0, peeked(summary.experiment, document["private_peeks"]))
    files = [f"Files: {document['files']['folder']}"]
    if summary.run_id:
        files.append(f"Parent run {short_id(summary.run_id)} of experiment {summary.experiment!r}.")
    return Report(
        f"Sweep {summary.sweep_id}: {asked} ({statuses}), {document['seconds']:.1f} s.",
        tables=[*tables, *([_systems(summary)] if summary.groups else [])],
        notes=notes,
        files=files,
        steps=[*_steps(summary, place)],
    )


def _ranking(summary: SweepSummary) -> Iterator[Table]:
    kinds = summary.kinds
    lines = [f"Ranked by {summary.objectives[0].name}, {' or '.join(kinds)}."] if kinds else []
    lines += [*summary.expectation, *summary.notes, *(summary.automatic.lines() if summary.automatic else [])]
    if (more := len(summary.finished) - SHOWN) > 0:
        lines.append(f"{more:,} more in trials.csv")
    if any(row.reused for row in summary.top):
        lines.append("* reused: an earlier run")
    yield replace(_best_trials(summary), caption=summary.label if summary.apart else "Best trials", notes=lines)
    if len(summary.objectives) > 1:
        columns = [*(Column(name, "value") for name, _ in summary.objectives), Column("trial")]
        front = [summary.rows[number] for number in summary.front]
        rows: Rows = [[*row.values, " ".join(row.overrides)] for row in front]
        yield Table("Pareto front", columns, rows)


def _systems(summary: SweepSummary) -> Table:
    names = [*(group.label for group in summary.groups), "mean"]
    rows: Rows = [[*system.values, system.mean, system.name] for system in summary.systems[:SHOWN]]
    columns = [*(Column(name, "value") for name in names), Column("system")]
    return Table("All groups", columns, rows, [" ".join(summary.notes)]).without_empty()


def _best_trials(summary: SweepSummary) -> Table:
    keys = [] if summary.automatic else list(summary.axes())
    several = len(summary.kinds) > 1
    names = [name for name, _ in summary.objectives] if len(summary.objectives) > 1 else ["value"]
    columns = [
        Column("", "count"),
        *(Column(name, "value") for name in names),
        *([Column("kind")] if several else []),
        *(Column(key) for key in ([*keys, "configuration"] if summary.automatic else keys)),
        Column("run"),
    ]
    rows: Rows = []
    for place, row in enumerate(summary.top, start=1):
        values, words = swept_values(row.overrides), [" ".join(row.overrides)]
        rows.append([
            place,
            Number(row.value, *row.interval),
            *row.values[1:],
            *([row.kind] if several else []),
            *(values.get(key, "") for key in keys),
            *(words if summary.automatic else []),
            (short_id(row.run_id) if row.run_id else f"trial {row.trial}") + (" *" if row.reused else ""),
        ])  # fmt: skip
    return Table("", columns, rows)


def _steps(summary: SweepSummary, place: Place) -> Iterator[str]:
    if summary.run_id:
        yield place.command("ui")
    for part in summary.parts:
        if part.best is not None and (run_id := part.results[part.best].run_id):
            of = f"  # the best with {part.label}" if part.apart else ""
            there = replace(place, choices=part.trials[part.best].choices)
            yield f"{there.command('export', f'run={short_id(run_id)}')}{of}"


def write_sweep_files(summary: SweepSummary, folder: Path) -> Path:
    """Write trials.csv and summary.json. If any trial has a value, also write figures."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "trials.csv", csv_text(summary.table()))
    write_text(folder / "summary.json", json.dumps(encoded(summary.document()), ensure_ascii=False, indent=2))
    for place, part in enumerate(summary.parts):
        _write_figures(part, folder, f"-{place}" if part.apart else "")
    return folder


def _write_figures(summary: SweepSummary, folder: Path, suffix: str) -> None:
    axes = summary.axes()
    values = np.array([row.values for row in summary.rows.values()]).reshape(-1, len(summary.objectives))
    if not axes or not np.isfinite(values[:, 0]).any():
        return
    from harness.reports.figure import save

    name, numbers = summary.objectives[0].name, list(summary.trials)
    name += f" ({summary.label})" if summary.apart else ""
    best = None if summary.best is None else numbers.index(summary.best)
    save(draw_by_key(axes, name, values[:, 0], best), folder / f"objective{suffix}.png", quick=False)
    if len(summary.objectives) == 2:
        (first, _), (second, _) = summary.objectives
        front = draw_pareto(values, (first, second), np.isin(numbers, summary.front))
        save(front, folder / f"front{suffix}.png", quick=False)


def draw_by_key(axes: Swept, objective: str, values: np.ndarray, best: int | None) -> Figure:
    """Draw a panel for each swept key. It shows all trials, and each value's best and median objective.

    If there are more than 12 keys, draw only the 12 with the largest effect.
    axes: swept key -> its value in each of T trials, all numbers or all texts; None if the trial lacks the key.
    values: the objective, float64 [T]; NaN if the trial failed. best: the position of the best trial.
    """
    from harness.reports.figure import new_figure, shortened, with_fonts

    keys = _strongest({name: _places(given) for name, given in axes.items()}, values)
    columns = {1: 1, 2: 2, 4: 2}.get(len(keys), 3)
    rows = -(-len(keys) // columns)
    figure = new_figure(max(5.2, 3.4 * columns), 0.7 + 2.6 * rows)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for panel, (name, (places, labels)) in zip(panels, keys.items(), strict=False):
        lines = ("" if labels else "-") if len(keys) == 1 or 2 * len(np.unique(places)) <= len(values) else None
        _draw_panel(panel, places, values, best, lines)
        _label_axis(panel, places, labels)
        panel.set_xlabel(shortened(name, 42))
        handles = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True)) | handles
    for panel in panels[len(keys) :]:
        panel.remove()
    for panel in panels[: len(keys) : columns]:
        panel.set_ylabel(objective)
    panels[0].ticklabel_format(axis="y", useOffset=False)
    top = "" if best is None else f": best {objective} {values[best]:.4f}"
    figure.suptitle(f"{counted(len(values), 'trial')}{top}{_failures(values)}", fontsize=10)
    if best is not None:
        shown: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles), "frameon": False, "fontsize": 8}
        figure.legend(handles.values(), handles.keys(), **shown)
    return with_fonts(figure)


def draw_pareto(values: np.ndarray, names: tuple[str, str], front: np.ndarray) -> Figure:
    """Draw T trials by two objectives. values: float64 [T, 2]; NaN if failed. front: bool [T], True on the front."""
    from harness.reports.figure import new_figure, with_fonts

    figure = new_figure(5.6, 4.2)
    panel = figure.subplots()
    panel.scatter(values[~front, 0], values[~front, 1], s=14, color=TRIAL, alpha=0.6, linewidths=0, label="trial")
    chosen = values[front][np.lexsort(values[front].T)]
    panel.plot(*chosen.T, "o-", color=BEST, markersize=5, linewidth=1.2, label="Pareto front")
    panel.set(xlabel=names[0], ylabel=names[1])
    panel.ticklabel_format(useOffset=False)
    title = f"{len(chosen)} of {len(values):,} trials on the Pareto front{_failures(values.sum(axis=1))}"
    figure.suptitle(title, fontsize=10)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return with_fonts(figure)


def _places(given: Sequence[str | float | None]) -> tuple[np.ndarray, list[str]]:
    from harness.reports.figure import drawable, shortened

    if all(isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value) for value in given):
        return np.array(given, np.float64), []
    numbers = sorted({value for value in given if isinstance(value, int | float)}) if None in given else []
    texts = [ABSENT if value is None else f"{value:.6g}" if numbers else str(value) for value in given]
    known = list(dict.fromkeys([f"{number:.6g}" for number in numbers] or texts)) + [ABSENT] * bool(numbers)
    labels = [drawable(text) for text in known]
    if len({shortened(label, 14) for label in labels}) < len(labels):
        labels = [f"{label} #{n}" for n, label in enumerate(labels, start=1)]
    return np.array([known.index(text) for text in texts], np.float64), labels


def _strongest(keys: dict[str, Places], values: np.ndarray) -> dict[str, Places]:
    """Return the MOST_KEYS keys whose values (or groups of values) differ most in mean objective. Keep the order."""
    done = np.isfinite(values)

    def effect(name: str) -> float:
        places = keys[name][0][done]
        if len(np.unique(places)) > MOST_BINS:
            places = np.searchsorted(np.quantile(places, np.arange(1, MOST_BINS) / MOST_BINS), places)
        means = [values[done][places == level].mean() for level in np.unique(places)]
        return float(np.ptp(means)) if means else 0.0

    strongest = sorted(keys, key=effect, reverse=True)[:MOST_KEYS]
    return {name: places for name, places in keys.items() if name in strongest}


def _draw_panel(panel: Axes, places: np.ndarray, values: np.ndarray, best: int | None, lines: str | None) -> None:
    done = np.isfinite(values)
    panel.scatter(places[done], values[done], s=12, color=TRIAL, alpha=0.5, linewidths=0, label="trial")
    if lines is not None:
        levels = np.unique(places[done])
        at_level = [values[done & (places == level)] for level in levels]
        tops = [np.max(some) for some in at_level]
        middles = [np.median(some) for some in at_level]
        panel.plot(levels, middles, "D", ls=lines, color=GOOD, ms=3.5, lw=0.8, alpha=0.45, label="median")
        panel.plot(levels, tops, "o", ls=lines, color=GOOD, ms=4, lw=1.3, label="best")
    if best is not None:
        panel.plot(places[best], values[best], "*", color=BEST, ms=12, mec="white", mew=0.7, label="best trial")
    if not done.any():
        panel.scatter(places, np.zeros(len(places)), alpha=0)  # invisible points set the range of the axis
        panel.set_yticks([])


def _label_axis(panel: Axes, places: np.ndarray, labels: Sequence[str]) -> None:
    from harness.reports.figure import shortened

    levels = np.unique(places)
    if labels:
        wide = sum(min(len(label), 18) + 2 for label in labels) > 40
        shown = range(0, len(labels), -(-len(labels) // 40))
        turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if wide else {}
        panel.set_xticks(shown, [shortened(labels[n], 18) for n in shown], fontsize=8, **turned)
        panel.set_xlim(-0.5, len(labels) - 0.5)
    elif levels[0] > 0 and levels[-1] >= 100 * levels[0] and 10 * levels[len(levels) // 2] <= levels[-1]:
        panel.set_xscale("log")
    elif len(levels) <= 6 and np.diff(levels).min(initial=np.inf) > 0.1 * np.ptp(levels):
        panel.set_xticks(levels, [f"{level:.6g}" for level in levels])
    else:
        panel.ticklabel_format(axis="x", useOffset=False)
        panel.locator_params(axis="x", nbins=6)


def _failures(values: np.ndarray) -> str:
    failed = int((~np.isfinite(values)).sum())
    return f" ({failed:,} failed)" if failed else ""


@contextmanager
def watch_trials(
    trial_log: TrialLog, known: Collection[TrialResult], total: int, trials: Mapping[int, Trial]
) -> Iterator[None]:
    """Log trials while jobs run. On a terminal, print a line for each trial; elsewhere, only counts."""
    over, terminal = threading.Event(), sys.stderr.isatty()

    def follow() -> None:
        done, best, last = len(known), max(map(_value, known), default=-math.inf), False
        with nullcontext(silent) if terminal else watch("sweep") as progress:
            while not last:
                last = over.wait(POLL_SECONDS)  # the journal is read once more after the end
                results = trial_log.read()
                for result in results:
                    done, best = done + 1, max(best, _value(result))
                    if terminal:
                        found = result.objective
                        status = f"{found.name} {found.value:.4f}  best {best:.4f}" if found else result.status
                        words = " ".join(trials[result.number].overrides)
                        print(f"[{done}/{total}] {status}  {words}", file=sys.stderr)  # noqa: T201
                if results:
                    progress(done, total, "trials")
                trial_log.log_groups()

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _value(result: TrialResult) -> float:
    return result.objective.value if result.objective else -math.inf
