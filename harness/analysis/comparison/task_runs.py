"""Scored files of a text task, read from the tracking store to be compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.comparison.comparison import Changed, Pair, Rows, RunScores, ScoredRuns
from harness.config.commands import CompareConfig
from harness.config.components import check_component
from harness.data.tables import AGAIN, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput
from harness.measures.objective import Kind
from harness.recording import task_run
from harness.recording.logged_run import logged_config, logged_value
from harness.statistics.significance import Difference, tally_differences
from harness.statistics.split import Score, Standing
from harness.tasks.scored_file import (
    GIVEN,
    check_measure,
    measure_all,
    measure_kind,
    strata,
    summaries,
    tallied,
    task_of,
    task_rules,
)
from harness.tasks.task import Marked, TextTask
from harness.tracking.tracker import LoggedRun, NoFile, Tracker


@dataclass(frozen=True, eq=False)
class ComparedFile:
    """A scored file to compare; its N items are in ascending order of their ids.

    label:   its name in tables and figures.
    config:  the run's config.
    kinds:   kind of each item. public: bool [N].
    counts: what is counted -> float64 [N].
    items:   id -> the row of `items.csv`; empty if the run has no such file.
    """

    label: str
    run: LoggedRun
    config: Mapping[str, Any]
    item_ids: tuple[str, ...]
    kinds: tuple[str, ...]
    public: np.ndarray
    counts: dict[str, np.ndarray]
    items: Mapping[str, Mapping[str, str]]

    def take(self, rows: np.ndarray) -> ComparedFile:
        """The file with some of its items. rows: bool [N]."""
        places = np.flatnonzero(rows)
        return replace(
            self,
            item_ids=tuple(self.item_ids[place] for place in places),
            kinds=tuple(self.kinds[place] for place in places),
            public=self.public[rows],
            counts={name: values[rows] for name, values in self.counts.items()},
        )


def read_task_runs(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> TaskRuns:
    """Download the runs. chosen: label -> run. BadInput unless all were scored by the same rules."""
    files = [_read(tracker, run, label, folder / label) for label, run in chosen.items()]
    first = files[0]
    same = task_rules(first.config["task"])
    for other in files[1:]:
        own = task_rules(other.config["task"])
        if other.item_ids != first.item_ids:
            raise BadInput(f"Runs {other.run.named} and {first.run.named} have tallies of other items. {AGAIN}")
        for name, rule in same.items():
            if own.get(name) != rule:
                raise BadInput(
                    f"Run {other.run.named} was scored with task.{name}={own.get(name)}, "
                    f"run {first.run.named} with {rule}: such scores cannot be compared. Score "
                    f"both files with the same task.{name}."
                )
        if (other.public != first.public).any():
            raise BadInput(
                f"Run {other.run.named} has another public part than {first.run.short_id} "
                f"({first.run.name}). Score both with the same `public` and `seed`."
            )
    return TaskRuns(files)


def _read(tracker: Tracker, run: LoggedRun, label: str, folder: Path) -> ComparedFile:
    folder.mkdir()
    config = logged_config(tracker, run)
    tallies = tracker.download(run, task_run.TABLE, folder)
    try:
        texts = tracker.download(run, "items.csv", folder)
    except NoFile:  # trials of a sweep do not save texts
        texts = None
    try:
        check_component(logged_value(config, "task", dict), "task")
        columns = read_columns(tallies)
        ids, kinds = taken_ids(columns, "id", tallies), taken(columns, "kind", tallies)
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.intp)
        public = number_column(taken(columns, "public", tallies), "public", tallies)[order] == 1
        counts = {name: number_column(cells, name, tallies)[order] for name, cells in columns.items()}
        task = task_of(config["task"])
        for name in task.counts:
            if name not in counts:
                taken(columns, name, tallies)
        items = _items(texts, task) if texts else {}
    except BadInput as error:
        raise BadInput(f"Run {run.named}: {error}") from None
    return ComparedFile(
        label,
        run,
        config,
        item_ids=tuple(ids[row] for row in order),
        kinds=tuple(kinds[row] for row in order),
        public=public,
        counts=counts,
        items=items,
    )


def _items(file: Path, task: TextTask) -> dict[str, dict[str, str]]:
    """id -> column -> cell, of an `items.csv`. BadInput unless it has the columns that the task shows."""
    columns = read_columns(file)
    rows = zip(*columns.values(), strict=True)
    ids = taken_ids(dict(columns), "id", file)
    try:
        task.marked(dict.fromkeys(columns, ""))
    except KeyError as error:
        raise BadInput(f"{file}:1: there is no column {error}. {AGAIN}") from None
    return {item_id: dict(zip(columns, cells, strict=True)) for item_id, cells in zip(ids, rows, strict=True)}


@dataclass(frozen=True, eq=False)
class TaskRuns(ScoredRuns):
    """Files that were scored on the same items by the same rules."""

    noun, unit = "submissions", "items"
    files: Sequence[ComparedFile]

    @cached_property
    def rules(self) -> TextTask:
        return task_of(self.files[0].config["task"])

    @property
    def task(self) -> str:
        return self.rules.name

    @property
    def labels(self) -> list[str]:
        return [file.label for file in self.files]

    @property
    def public(self) -> np.ndarray:
        return self.files[0].public

    @property
    def strata(self) -> np.ndarray:
        return strata(self.files[0].kinds)

    def take(self, rows: np.ndarray) -> TaskRuns:
        return self if rows.all() else replace(self, files=[file.take(rows) for file in self.files])

    def measures(self, metric: str, judges: np.ndarray) -> tuple[list[str], list[str]]:
        """Those that every file has."""
        check_measure(self.rules, "metric", metric)
        means = [measure_all(self.rules, file.counts, judges) for file in self.files]
        shared = [name for name in self.rules.measures if all(mean[name] == mean[name] for mean in means)]
        if metric not in shared:
            lacking = next(file.run for file, of in zip(self.files, means, strict=True) if of[metric] != of[metric])
            raise BadInput(f"metric={metric} is absent from run {lacking.named}. All runs have: {', '.join(shared)}.")
        return shared, []

    def score(self, metric: str) -> Score:
        tallies = [tallied(self.rules, file.counts, [metric]) for file in self.files]
        return lambda rows: np.vstack([one.measure(rows @ one.table) for one in tallies])

    def values(self, metric: str) -> np.ndarray:
        return np.stack([self.rules.measure(file.counts)[metric] for file in self.files])

    def differences(
        self, names: Sequence[str], config: CompareConfig, pairs: Sequence[Rows]
    ) -> dict[Rows, list[Difference]]:
        tallies = [tallied(self.rules, file.counts, names) for file in self.files]
        return tally_differences(tallies, config.seed, config.resamples, pairs)

    def part_gaps(self, names: Sequence[str], pair: Rows) -> Iterator[tuple[str, str, int, float]]:
        kinds = np.array(self.files[0].kinds, dtype=object)
        every = sorted({*self.files[0].kinds})
        parts = [(kind, kinds == kind, measure_kind) for kind in every] if len(every) > 1 else []
        if self.public.any():
            parts += [("public", self.public, measure_all), ("private", ~self.public, measure_all)]
        for part, inside, measure in parts:
            ours, theirs = (measure(self.rules, self.files[row].counts, inside) for row in pair)
            for name in names:
                gap = ours[name] - theirs[name] if inside.any() else math.nan
                yield name, part, int(inside.sum()), float(gap)

    def scores(self, names: Sequence[str], config: CompareConfig, boards: Sequence[Standing | None]) -> list[RunScores]:
        found = []
        for file, board in zip(self.files, boards, strict=True):
            known = summaries(self.rules, file.counts, names, config.seed, config.resamples)
            ends = {name: (one.low, one.high) for name, one in known.items() if one.low == one.low}
            kind: Kind = "held out" if config.select_on == "public" else "in sample"
            means = {name: one.mean for name, one in known.items()}
            found.append(
                RunScores(label=file.label, run=file.run, kind=kind, metrics=means, intervals=ends, board=board)
            )
        return found

    def changed(self, pair: Pair, row: int, values: Mapping[str, float]) -> Changed:
        item_id = self.files[0].item_ids[row]
        items = {file.label: file.items.get(item_id, {}) for file in self.files if file.label in values}
        said = {label: item.get("prediction") for label, item in items.items()}
        about = {"id": item_id, **_shared_texts(items.values())}
        return Changed(pair, item_id, values, about, predictions=said)

    def notes(self) -> list[str]:
        if bare := [file.label for file in self.files if not file.items]:
            return [f"No texts of {', '.join(bare)}: trials of a sweep keep none. Score their files to see them."]
        return []

    def most_different(self, metric: str, most: int) -> list[ComparedItem]:
        """Return so many items, those first on which the submissions differ most."""
        values = self.values(metric)
        spread = np.nan_to_num(values.max(axis=0) - values.min(axis=0))
        found = []
        for place in np.argsort(-spread, kind="stable")[:most].tolist():
            item_id = self.files[0].item_ids[place]
            items = [file.items.get(item_id, {}) for file in self.files]
            said = [self.rules.marked(item) if item else None for item in items]
            found.append(ComparedItem(item_id, values[:, place].tolist(), _shared_texts(items), said))
        return found


@dataclass(frozen=True)
class ComparedItem:
    """An item of a text task in all submissions.

    values: the metric of each. texts: kind, question, source and reference, as far as known.
    said: each prediction in pieces with marks; None if unknown.
    """

    item_id: str
    values: Sequence[float]
    texts: Mapping[str, str]
    said: Sequence[Marked | None]


def _shared_texts(items: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {name: item[name] for item in reversed([*items]) for name in GIVEN if name in item}
