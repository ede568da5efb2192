"""Scored files of a text task, read from the tracking store and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.components import build, check_component
from harness.data.tables import AGAIN, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput
from harness.measures.objective import Kind
from harness.recording import task_run
from harness.recording.logged_run import logged_config, logged_value
from harness.runs.comparison.comparison import (
    LISTED,
    ChangedItem,
    ComparedItem,
    Pair,
    PairedResult,
    PartDifference,
    RunScores,
    Settings,
    TaskComparison,
    most_changed,
    pair_verdict,
    standings,
)
from harness.statistics.split import Score
from harness.tasks.scored_file import check_measure, task_rules
from harness.tasks.statistics import measure_all, measure_kind, strata, summaries, task_differences
from harness.tasks.task import TextTask
from harness.tracking.tracker import LoggedRun, NoFile, Tracker

SHOWN = ("kind", "question", "source", "reference")  # columns of an item that all submissions share

Pairs = Mapping[tuple[int, int], Pair]  # rows of two runs -> their labels


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

    @property
    def rules(self) -> dict[str, Any]:
        """The arguments of the task that decide how it scores."""
        return task_rules(self.config["task"])


def read_task_runs(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> list[ComparedFile]:
    """Download the runs. chosen: label -> run. BadInput unless all were scored by the same rules."""
    files = [_read(tracker, run, label, folder / label) for label, run in chosen.items()]
    first = files[0]
    for other in files[1:]:
        if other.item_ids != first.item_ids:
            raise BadInput(f"Runs {other.run.named} and {first.run.named} have tallies of other items. {AGAIN}")
        for name, rule in first.rules.items():
            if other.rules.get(name) != rule:
                raise BadInput(
                    f"Run {other.run.named} was scored with task.{name}={other.rules.get(name)}, "
                    f"run {first.run.named} with {rule}: such scores cannot be compared. Score "
                    f"both files with the same task.{name}."
                )
        if (other.public != first.public).any():
            raise BadInput(
                f"Run {other.run.named} has another public part than {first.run.short_id} "
                f"({first.run.name}). Score both with the same `public` and `seed`."
            )
    return files


def compare_tasks(files: Sequence[ComparedFile], settings: Settings) -> TaskComparison:
    """Compare files that were scored on the same items. Raises BadInput unless every file has the metric."""
    first, metric, labels = files[0], settings.metric, [file.label for file in files]
    task: TextTask = build(first.config["task"], where="task")
    check_measure(task, "metric", metric)
    ranked = standings(_scorer(task, files, metric), first.public, strata(first.kinds), labels, settings)
    judges = settings.judging(first.public, "items")
    chose = first.public if settings.judges else np.ones(len(first.public), bool)
    best = int(np.argmax([measure_all(task, file.counts, chose)[metric] for file in files]))
    tested = settings.tested(len(files), best)
    files = [file.take(judges) for file in files]
    means = [measure_all(task, file.counts) for file in files]
    shared = _shared_measures(task, files, means, metric)
    found = task_differences(task, [file.counts for file in files], shared, settings.seed, settings.resamples, tested)
    pairs = {rows: Pair(*(labels[row] for row in rows)) for rows in found}
    notes = [*settings.judged_by(judges, "items"), *ranked.notes]
    if bare := [file.label for file in files if not file.items]:
        notes.append(f"No texts of {', '.join(bare)}: trials of a sweep keep none. Score their files to see them.")
    kind: Kind = "held out" if settings.judges else "in sample"
    return TaskComparison(
        task=task.name,
        metric=metric,
        best=labels[best],
        count=len(files[0].item_ids),
        judges=settings.judges,
        verdicts=[
            pair_verdict(pair, found[rows][metric], metric, len(pairs), f"{settings.judges}items")
            for rows, pair in pairs.items()
        ],
        notes=notes,
        runs=[
            RunScores(
                file.label,
                file.run,
                {name: mean[name] for name in shared},
                _intervals(task, file, shared, settings),
                kind,
                board,
            )
            for file, mean, board in zip(files, means, ranked.boards, strict=True)
        ],
        differences=[
            PairedResult(pair, name, one) for rows, pair in pairs.items() for name, one in found[rows].items()
        ],
        splits=_splits(task, files, pairs, metric),
        changed=_changed(task, files, pairs, metric),
        shake_up=ranked.shake_up,
        pairs=len(pairs),
        items=_most_different(task, files, metric),
    )


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
        task: TextTask = build(config["task"], where="task")
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


def _shared_measures(
    task: TextTask, files: Sequence[ComparedFile], means: Sequence[Mapping[str, float]], metric: str
) -> list[str]:
    """The measures that every file has. BadInput if the metric is not among them."""
    shared = [name for name in task.measures if all(mean[name] == mean[name] for mean in means)]
    if metric not in shared:
        lacking = next(file.run for file, mean in zip(files, means, strict=True) if mean[metric] != mean[metric])
        raise BadInput(f"metric={metric} is absent from run {lacking.named}. All runs have: {', '.join(shared)}.")
    return shared


def _scorer(task: TextTask, files: Sequence[ComparedFile], metric: str) -> Score:
    """The metric of every file over some of the items."""
    names = list(files[0].counts)
    tables = [np.stack(list(file.counts.values()), axis=1) for file in files]

    def score(rows: np.ndarray) -> np.ndarray:
        summed = [dict(zip(names, (rows @ table).T, strict=True)) for table in tables]
        return np.stack([task.measure(sums)[metric] for sums in summed])

    return score


def _intervals(
    task: TextTask, file: ComparedFile, names: Sequence[str], settings: Settings
) -> dict[str, tuple[float, float]]:
    found = summaries(task, file.counts, names, settings.seed, settings.resamples)
    return {name: (one.low, one.high) for name, one in found.items() if one.low == one.low}


def _splits(task: TextTask, files: Sequence[ComparedFile], pairs: Pairs, metric: str) -> list[PartDifference]:
    """The differences of each pair in the metric by kind of item and by part."""
    kinds = np.array(files[0].kinds, dtype=object)
    names = sorted(set(files[0].kinds))
    parts = {kind: kinds == kind for kind in names} if len(names) > 1 else {}
    parts |= {"public": files[0].public, "private": ~files[0].public} if files[0].public.any() else {}
    found = []
    for rows, pair in pairs.items():
        for part, inside in parts.items():
            measure = measure_kind if part in names else measure_all
            ours, theirs = (measure(task, files[row].counts, inside)[metric] for row in rows)
            mean = ours - theirs if inside.any() else np.nan
            found.append(PartDifference(pair, metric, part, n=int(inside.sum()), mean=float(mean)))
    return found


def _changed(task: TextTask, files: Sequence[ComparedFile], pairs: Pairs, metric: str) -> list[ChangedItem]:
    """The items on which each pair differs most, with both predictions."""
    found = []
    for rows, pair in pairs.items():
        values = {files[row].label: task.measure(files[row].counts)[metric] for row in rows}
        gaps = np.nan_to_num(values[pair.first] - values[pair.second])
        for place in most_changed(gaps):
            item_id = files[0].item_ids[place]
            items = {files[row].label: files[row].items.get(item_id, {}) for row in rows}
            found.append(
                ChangedItem(
                    pair,
                    item_id,
                    difference=float(gaps[place]),
                    values={label: float(of[place]) for label, of in values.items()},
                    texts={name: item[name] for item in reversed(items.values()) for name in SHOWN if name in item},
                    predictions={label: item.get("prediction") for label, item in items.items()},
                )
            )
    return found


def _most_different(task: TextTask, files: Sequence[ComparedFile], metric: str) -> list[ComparedItem]:
    """The items on which the submissions differ most come first."""
    values = np.stack([task.measure(file.counts)[metric] for file in files])
    spread = np.nan_to_num(values.max(axis=0) - values.min(axis=0))
    found = []
    for place in np.argsort(-spread, kind="stable")[:LISTED].tolist():
        item_id = files[0].item_ids[place]
        items = {file.label: file.items.get(item_id, {}) for file in files}
        found.append(
            ComparedItem(
                item_id,
                values={file.label: float(value) for file, value in zip(files, values[:, place], strict=True)},
                texts={name: item[name] for item in reversed(items.values()) for name in SHOWN if name in item},
                predictions={label: task.marked(item) if item else None for label, item in items.items()},
            )
        )
    return found
