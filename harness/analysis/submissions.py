"""Submissions to a text task: scored files from the tracking store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.components import check_component
from harness.data.tables import AGAIN, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput
from harness.progress import watch
from harness.recording import task_run
from harness.recording.logged_run import Ahead, logged_value, read_config
from harness.statistics.bootstrap import Tallies
from harness.tasks.scored_file import tallied, task_of, task_rules
from harness.tasks.task import GIVEN, TextTask
from harness.tracking.tracker import LoggedRun, NoFile, Tracker

ItemRow = Mapping[str, str]  # column -> cell


@dataclass(frozen=True, eq=False)
class ScoredSubmission:
    """A scored file with N items in the order of their ids.

    node: the logged config of the task. public: bool [N]. counts: name of a count -> float64 [N].
    items: id -> row of `items.csv`; {} if the run has no such file.
    """

    run: LoggedRun
    node: dict[str, Any]
    item_ids: tuple[str, ...]
    kinds: tuple[str, ...]
    public: np.ndarray
    counts: dict[str, np.ndarray]
    items: Mapping[str, ItemRow]

    def take(self, rows: np.ndarray) -> ScoredSubmission:
        places = np.flatnonzero(rows)
        return replace(
            self,
            item_ids=tuple(self.item_ids[place] for place in places),
            kinds=tuple(self.kinds[place] for place in places),
            public=self.public[rows],
            counts={name: values[rows] for name, values in self.counts.items()},
        )


@dataclass(frozen=True, eq=False)
class Submissions:
    """Submissions with the same items, scored by the same rules."""

    files: Sequence[ScoredSubmission]

    @cached_property
    def task(self) -> TextTask:
        return task_of(self.files[0].node)

    @property
    def item_ids(self) -> tuple[str, ...]:
        return self.files[0].item_ids

    def take(self, rows: np.ndarray) -> Submissions:
        return self if rows.all() else Submissions([file.take(rows) for file in self.files])

    def values(self, metric: str) -> np.ndarray:
        """Return the metric of each of R submissions on each item, float64 [R, N]."""
        return np.stack([self.task.measure(file.counts)[metric] for file in self.files])

    def tallies(self, names: Sequence[str]) -> list[Tallies]:
        return [tallied(self.task, file.counts, names) for file in self.files]

    def texts(self, item_id: str) -> tuple[dict[str, str], list[ItemRow]]:
        """Return (the texts of an item that all submissions share, the row of the item in each submission)."""
        items = [file.items.get(item_id, {}) for file in self.files]
        return {name: item[name] for item in reversed(items) for name in GIVEN if name in item}, items


def read_submissions(tracker: Tracker, runs: Sequence[LoggedRun], folder: Path) -> Submissions:
    """Read the submissions. Raise BadInput unless all were scored on the same items by the same rules."""
    files: list[ScoredSubmission] = []
    wanted = [(run, name) for run in runs for name in ("config.yaml", task_run.TABLE, "items.csv")]
    with watch("scores by item") as progress, Ahead(tracker, wanted, folder) as downloads:
        for run in runs:
            files.append(_read(downloads, run))
            _check_same(files[0], files[-1])
            progress(len(files), len(runs), "runs")
    return Submissions(files)


def _check_same(first: ScoredSubmission, other: ScoredSubmission) -> None:
    same, own = task_rules(first.node), task_rules(other.node)
    if other.item_ids != first.item_ids:
        raise BadInput(f"Runs {other.run.named} and {first.run.named} have tallies of other items. {AGAIN}")
    for name, rule in same.items():
        if own.get(name) != rule:
            raise BadInput(
                f"Run {other.run.named} was scored with task.{name}={own.get(name)}, run {first.run.named} with "
                f"{rule}: such scores cannot be compared. Score both files with the same task.{name}."
            )
    if (other.public != first.public).any():
        raise BadInput(
            f"Run {other.run.named} does not have the public part of {first.run.named}. Score both with the same "
            "`public` and `seed`."
        )


def _read(downloads: Ahead, run: LoggedRun) -> ScoredSubmission:
    node = logged_value(read_config(downloads.download(run, "config.yaml")), "task", dict)
    tallies = downloads.download(run, task_run.TABLE)
    try:
        texts = downloads.download(run, "items.csv")
    except NoFile:  # the trials of a sweep do not log texts
        texts = None
    try:
        check_component(node, "task")
        columns = read_columns(tallies)
        ids, kinds = taken_ids(columns, "id", tallies), taken(columns, "kind", tallies)
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.intp)
        public = number_column(taken(columns, "public", tallies), "public", tallies)[order] == 1
        counts = {name: number_column(cells, name, tallies)[order] for name, cells in columns.items()}
        task = task_of(node)
        for name in task.counts:
            if name not in counts:
                taken(columns, name, tallies)
        items = _items(texts, task) if texts else {}
    except BadInput as error:
        raise BadInput(f"Run {run.named}: {error}") from None
    return ScoredSubmission(
        run,
        node,
        item_ids=tuple(ids[row] for row in order),
        kinds=tuple(kinds[row] for row in order),
        public=public,
        counts=counts,
        items=items,
    )


def _items(file: Path, task: TextTask) -> dict[str, dict[str, str]]:
    """Return id -> column -> cell. Raise BadInput if the file lacks a column that the task shows."""
    columns = read_columns(file)
    ids = taken_ids(dict(columns), "id", file)
    try:
        task.marked(dict.fromkeys(columns, ""))
    except KeyError as error:
        raise BadInput(f"{file}:1: there is no column {error}. {AGAIN}") from None
    rows = zip(*columns.values(), strict=True)
    return {item_id: dict(zip(columns, cells, strict=True)) for item_id, cells in zip(ids, rows, strict=True)}
