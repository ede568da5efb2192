"""What people see of a sweep: a line for each trial, the table of the best, the parent run's numbers and pictures."""

from __future__ import annotations

import csv
import json
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.commands.sweep.optimism import Optimism
from harness.commands.sweep.plan import Trial
from harness.commands.sweep.trials import Context, Result, read_journal
from harness.reports.terminal import peeked
from harness.tracking.tracker import LESS_IS_BETTER, mlflow_name, ranked_by

if TYPE_CHECKING:
    from rich.console import Console


SHOWN = 10  # of the best trials
QUIET_SECONDS = 10.0  # between two lines where nobody watches
POLL_SECONDS = 0.2


@dataclass(frozen=True, eq=False)
class Summary:
    """A sweep by its trials, in their order. objectives: (name, "maximize" or "minimize"), the first decides.

    Measures count as `metrics.ranked_by` says: out of fold where a gate was fitted, on the public part with
    select_on=public. optimism: how much of the best is luck, where there are several trials.
    best: number of the best finished trial, the first of equals; None without one. front: numbers of the trials that
    no other beats in all objectives.
    """

    sweep_id: str
    run_id: str | None
    experiment: str
    trials: Mapping[int, Trial]
    results: Mapping[int, Result]
    skipped: Collection[str]  # trial keys that finished before
    objectives: Sequence[tuple[str, str]]
    select_on: str = "all"
    optimism: Optimism | None = None

    @property
    def finished(self) -> list[int]:
        """Numbers of the finished trials, the best first."""
        value = {n: self.values(n)[0] for n, result in self.results.items() if result.status == "FINISHED"}
        return sorted((n for n in value if value[n] == value[n]), key=lambda n: (-value[n], n))

    @property
    def best(self) -> int | None:
        return next(iter(self.finished), None)

    @property
    def front(self) -> list[int]:
        whole = [number for number in self.finished if np.isfinite(self.values(number)).all()]
        points = np.array([self.values(number) for number in whole]).reshape(-1, len(self.objectives))
        points *= [1 if direction == "maximize" else -1 for _, direction in self.objectives]
        beaten = [bool(((points >= p).all(axis=1) & (points > p).any(axis=1)).any()) for p in points]
        return [number for number, worse in zip(whole, beaten, strict=True) if not worse]

    def values(self, number: int) -> list[float]:
        """The objectives of a trial, NaN where it has none."""
        found = self.results[number].metrics if number in self.results else {}
        return objective_values(found, self.objectives, self.select_on)

    def interval(self, number: int) -> tuple[float, float]:
        """Ends of the interval of what `values` gives first; NaN where it has none, as on the public part."""
        found, name = self.results[number].metrics, self.objectives[0][0]
        ranked = ranked_by(found, name, self.select_on) or ""
        prefix = ranked.removesuffix(mlflow_name(name))
        low, high = (found.get(mlflow_name(f"{prefix}interval_{end}/{name}"), np.nan) for end in ("low", "high"))
        return low, high

    def counts(self) -> dict[str, int]:
        """Trials by what became of them. skipped: of the finished, those of an earlier start. same: as another."""
        keys = [result.key for result in self.results.values() if result.key]
        found = dict.fromkeys(("finished", "failed", "killed"), 0)
        for result in self.results.values():
            found[result.status.lower()] += 1
        skipped = sum(result.key in self.skipped for result in self.results.values())
        return {"asked": len(self.trials), **found, "skipped": skipped, "same": len(keys) - len(set(keys))}

    @property
    def peeks(self) -> int:
        """Runs of this start whose private scores are seen: all, or the best alone where the public part chooses."""
        if self.select_on == "public":
            return int(self.best is not None)
        return sum(self.results[number].key not in self.skipped for number in self.finished)

    def axes(self) -> dict[str, list[float | str]]:
        """Swept key -> its value in each trial, as numbers where all are."""
        rows = [dict(_split(word) for word in trial.words) for trial in self.trials.values()]
        return {key: _numbers([row.get(key, "") for row in rows]) for key in (rows[0] if rows else {})}

    def table(self) -> dict[str, list[Any]]:
        """column -> values, one row a trial."""
        numbers = list(self.trials)
        results = [self.results.get(number) for number in numbers]
        values = [self.values(number) for number in numbers]
        ends = [self.interval(number) if number in self.results else (np.nan, np.nan) for number in numbers]
        columns: dict[str, list[Any]] = {"trial": numbers}
        columns |= {"status": [result.status if result else "" for result in results]}
        for i, (name, _) in enumerate(self.objectives):
            columns[name] = [_plain(value[i]) for value in values]
        columns |= {"low": [_plain(low) for low, _ in ends], "high": [_plain(high) for _, high in ends]}
        columns |= {key: list(values) for key, values in self.axes().items()}
        columns["seconds"] = [round(result.seconds, 3) if result else None for result in results]
        columns["run_id"] = [result.run_id if result else None for result in results]
        columns["error"] = [result.error if result else "" for result in results]
        return columns

    def parent_metrics(self) -> dict[str, float]:
        """What the parent run carries: the best trial's metrics, and the counts."""
        found = dict(self.results[self.best].metrics) if self.best is not None else {}
        if self.optimism:
            found |= {f"optimism/{name}": getattr(self.optimism, name) for name in ("luck", "unseen")}
        return found | {f"trials/{name}": float(count) for name, count in self.counts().items()}

    def parent_tags(self, page: str) -> dict[str, str]:
        """What the parent run says of the sweep. page: where its trials are listed."""
        if self.best is None:
            return {}
        run_id = self.results[self.best].run_id
        said, name = " ".join(self.trials[self.best].words), self.objectives[0][0]
        low, high = self.interval(self.best)
        interval = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
        note = (
            f"Best of {len(self.trials)} trials: {name} **{self.values(self.best)[0]:.4f}**{interval} "
            f"with `{said}`, run {run_id}. All trials: trials.json, trials.csv"
            + (f", and [their runs, the best first]({page})." if page else ".")
        ) + (f"\n\n{self.optimism.sentence()}" if self.optimism else "")
        tags = {"best.trial": str(self.best), "best.overrides": said, "mlflow.note.content": note}
        return tags | ({"best.run_id": run_id} if run_id else {}) | ({"sweep.page": page} if page else {})

    def to_json(self) -> dict[str, Any]:
        name = self.objectives[0][0]
        failed = [number for number, result in self.results.items() if result.status == "FAILED"]
        return {
            "run_id": self.run_id,
            "experiment": self.experiment,
            "sweep_id": self.sweep_id,
            "objective": name,
            "trials": self.counts(),
            "best": None if self.best is None else self._told(self.best),
            "top": [self._told(number) for number in self.finished[:SHOWN]],
            "optimism": self.optimism.to_json() if self.optimism else None,
            "front": [self._told(number) for number in self.front] if len(self.objectives) > 1 else None,
            "failed": [
                {"trial": n, "overrides": list(self.trials[n].words), "error": self.results[n].error} for n in failed
            ],
        }

    def _told(self, number: int) -> dict[str, Any]:
        low, high = self.interval(number)
        values = dict(zip((name for name, _ in self.objectives), map(_plain, self.values(number)), strict=True))
        return {
            "trial": number,
            "run_id": self.results[number].run_id,
            "overrides": list(self.trials[number].words),
            "value": values[self.objectives[0][0]],
            "interval": [_plain(low), _plain(high)],
            "objectives": values,
        }


def objective_values(logged: Mapping[str, float], objectives: Sequence[tuple[str, str]], select_on: str) -> list[float]:
    """The objectives of a run as runs are ranked by them, by MLflow's names; NaN where it has none."""
    keys = [ranked_by(logged, name, "all" if name.startswith(LESS_IS_BETTER) else select_on) for name, _ in objectives]
    return [logged[key] if key else np.nan for key in keys]


def show(console: Console, summary: Summary, document: Mapping[str, Any]) -> None:
    """The ten best with intervals, what failed, and what to do next."""
    from rich.table import Table

    counts = summary.counts()
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "asked")
    console.print(f"Sweep {summary.sweep_id}: {counts['asked']} trials ({said}), {document['seconds']:.1f} s.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    keys = list(summary.axes())
    for name in ("", *(name for name, _ in summary.objectives), "95 % interval", *keys, "run"):
        table.add_column(name, justify="left" if name in (*keys, "run") else "right", overflow="fold")
    for place, number in enumerate(summary.finished[:SHOWN], start=1):
        low, high = summary.interval(number)
        swept = dict(_split(word) for word in summary.trials[number].words)
        table.add_row(
            str(place),
            *(f"{value:.4f}" for value in summary.values(number)),
            "" if np.isnan(low) else f"{low:.3f} – {high:.3f}",
            *(swept.get(key, "") for key in keys),
            (summary.results[number].run_id or f"trial {number}")[:12],
        )
    console.print(table)
    if summary.optimism:
        console.print(summary.optimism.sentence())
    if summary.select_on == "public" and summary.run_id:
        console.print(peeked(summary.experiment, document["private_peeks"]))
    if len(summary.objectives) > 1:
        console.print("No trial is as good in every objective and better in one than:", style="bold")
        for number in summary.front:
            values = ", ".join(f"{value:.4f}" for value in summary.values(number))
            console.print(f"  {values}  {' '.join(summary.trials[number].words)}")
    for failed in document["failed"]:
        console.print(f"failed: {' '.join(failed['overrides'])}: {failed['error']}", style="red")
    console.print(f"Files: {document['files']['folder']}")
    if summary.run_id:
        console.print(f"Parent run {summary.run_id} of experiment {summary.experiment!r}. Next:")
        console.print(f"  harness ui experiment_name='{summary.experiment}'")
    if summary.best is not None and (run_id := summary.results[summary.best].run_id):
        task = summary.trials[summary.best].choices.get("task")
        console.print(f"  harness export {'' if task in (None, 'retrieval') else f'task={task} '}run={run_id}")


def write_files(summary: Summary, folder: Path) -> Path:
    """The sweep's files: trials.csv, summary.json and, where there is something to draw, pictures."""
    from harness.commands.sweep import figures

    folder.mkdir(parents=True, exist_ok=True)
    table = summary.table()
    with (folder / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    (folder / "summary.json").write_text(json.dumps(summary.to_json(), ensure_ascii=False, indent=2), "utf-8")
    axes = summary.axes()
    values = np.array([summary.values(number) for number in summary.trials]).reshape(-1, len(summary.objectives))
    if axes and np.isfinite(values[:, 0]).any():
        name, numbers = summary.objectives[0][0], list(summary.trials)
        best = None if summary.best is None else numbers.index(summary.best)
        figures.objective_by_key(axes, name, values[:, 0], best, folder / "objective.png")
        figures.overview(axes, name, values[:, 0], best, folder / "overview.png")
        if len(summary.objectives) == 2:
            (first, _), (second, _) = summary.objectives
            figures.pareto(values, (first, second), np.isin(numbers, summary.front), folder / "front.png")
    return folder


@contextmanager
def watch(context: Context, total: int, objective: str, trials: Mapping[int, Trial], select_on: str) -> Iterator[None]:
    """Follow the journal while jobs run: on a terminal a line for each trial, otherwise one now and then."""
    over = threading.Event()
    place = read_journal(context)[1]
    told = (context, place, total, objective, trials, select_on, over)
    follower = threading.Thread(target=_follow, args=told, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _follow(
    context: Context,
    place: int,
    total: int,
    objective: str,
    trials: Mapping[int, Trial],
    select_on: str,
    over: threading.Event,
) -> None:
    terminal = sys.stderr.isatty()
    done, best, last = 0, -np.inf, False
    said = began = 0.0
    while not last:
        last = over.wait(POLL_SECONDS)  # what was written before the end is read once more
        results, place = read_journal(context, place)
        if results and not done:
            said = began = time.monotonic()  # what was retrieved before the first trial says nothing of the next
        for result in results:
            done += 1
            [value] = objective_values(result.metrics, [(objective, "maximize")], select_on)
            best = max(best, value) if value == value else best
            if terminal:
                told = f"{objective} {value:.4f}  best {best:.4f}" if result.status == "FINISHED" else result.status
                print(f"[{done}/{total}] {told}  {' '.join(trials[result.number].words)}", file=sys.stderr)  # noqa: T201
        now = time.monotonic()
        if not terminal and results and now - said >= QUIET_SECONDS:
            said, rate = now, done / (now - began)
            left = f"{rate:,.1f}/s, {(total - done) / rate:,.0f} s left"
            print(f"sweep: {done:,}/{total:,} trials ({left}), best {objective} {best:.4f}", file=sys.stderr)  # noqa: T201


def _split(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value.strip("'\"")


def _numbers(values: list[str]) -> list[float | str]:
    try:
        return [float(value) for value in values]
    except ValueError:
        return list(values)


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
