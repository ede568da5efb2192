"""What a comparison of submissions to a text task says: differences, tests, and how the leaderboard may shift."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.commands.compare.retrieval_runs import verdict
from harness.config.components import arguments, build, check_component
from harness.evaluation.leaderboard import Score, leaderboards
from harness.tasks import scored_file
from harness.tasks.statistics import Gap, gaps, measured, strata
from harness.tasks.task import TextTask
from harness.tracking import task_run
from harness.tracking.logged_run import logged_config
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import BadInput

CHANGED = 10  # items shown of each pair
SHOWN = ("kind", "question", "source", "reference")  # columns of an item that all submissions share
ELSEWHERE = ("columns", "runtime")  # of a task: where things are found, no rule of scoring


@dataclass(frozen=True, eq=False)
class Compared:
    """A submission as it is compared: N items by ascending id. items: id -> the row of `items.csv`, if it is there."""

    label: str
    run: LoggedRun
    config: Mapping[str, Any]
    item_ids: tuple[str, ...]
    kinds: tuple[str, ...]
    public: np.ndarray
    tallies: dict[str, np.ndarray]
    items: Mapping[str, Mapping[str, str]]

    @property
    def rules(self) -> dict[str, Any]:
        """What decides how it was scored."""
        return {name: one for name, one in arguments(self.config["task"]).items() if name not in ELSEWHERE}


def read(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> list[Compared]:
    """The submissions, by label, with their tallies; refused unless they were scored by the same rules."""
    runs = [_read(tracker, run, label, folder / label) for label, run in chosen.items()]
    first = runs[0]
    for one in runs[1:]:
        for name, rule in first.rules.items():
            if one.rules.get(name) != rule:
                raise BadInput(
                    f"run {one.run.run_id} ({one.run.name}) was scored with task.{name}={one.rules.get(name)}, run "
                    f"{first.run.run_id} ({first.run.name}) with {rule}: such scores cannot be compared."
                )
        if (one.public != first.public).any():
            raise BadInput(
                f"run {one.run.run_id} ({one.run.name}) has another public part than {first.run.run_id} "
                f"({first.run.name}). Score both with the same `public` and `seed`."
            )
    return runs


def comparison(runs: Sequence[Compared], config: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison as one JSON document. config: metric, seed, resamples."""
    metric, first = config["metric"], runs[0]
    check_component(first.config["task"], "task")
    task: TextTask = build(first.config["task"], where="task")
    scored_file.check_measure(task, "metric", metric)
    means = [measured(task, run.tallies) for run in runs]
    shared = [name for name in task.measures if all(mean[name] == mean[name] for mean in means)]
    if metric not in shared:
        lacking = next(run for run, mean in zip(runs, means, strict=True) if mean[metric] != mean[metric])
        raise BadInput(
            f"metric={metric} is absent from run {lacking.run.run_id} ({lacking.run.name}). "
            f"All runs have: {', '.join(shared)}."
        )
    found = gaps(task, [run.tallies for run in runs], shared, config["seed"], config["resamples"])
    pairs = {pair: {"a": runs[pair[0]].label, "b": runs[pair[1]].label} for pair in found}
    differs = [
        pairs[pair] | {"measure": name} | _numbers(gap)
        for pair, measures in found.items()
        for name, gap in measures.items()
    ]
    tested = ("p", "p_holm", "exact")
    verdicts = [
        verdict(pairs[pair]["a"], pairs[pair]["b"], measures[metric], metric, len(found), "items")
        for pair, measures in found.items()
    ]
    labels = [run.label for run in runs]
    boards, shifts, notes = leaderboards(
        _scorer(task, runs, metric), first.public, strata(first.kinds), labels, metric, config["seed"]
    )
    if bare := [run.label for run in runs if not run.items]:
        notes.append(f"No texts of {', '.join(bare)}: trials of a sweep keep none. Score their files to see them.")
    return {
        "task": task.name,
        "metric": metric,
        "items": len(first.item_ids),
        "verdicts": verdicts,
        "notes": notes,
        "runs": [
            {
                "label": run.label,
                "run_id": run.run.run_id,
                "name": run.run.name,
                "experiment": run.run.experiment,
                "metrics": {name: mean[name] for name in shared},
                **board,
            }
            for run, mean, board in zip(runs, means, boards, strict=True)
        ],
        "differences": [{k: v for k, v in one.items() if k not in tested} for one in differs],
        "tests": [
            {k: v for k, v in one.items() if k in ("a", "b", "measure", *tested)} | {"pairs": len(found)}
            for one in differs
        ],
        "splits": _splits(task, runs, pairs, metric),
        "changed": _changed(task, runs, pairs, metric),
        "shake_up": shifts,
    }


def _read(tracker: Tracker, run: LoggedRun, label: str, folder: Path) -> Compared:
    folder.mkdir()
    config = logged_config(tracker, run)
    columns = _columns(tracker.download(run.run_id, task_run.TABLE, folder))
    try:
        items = _columns(tracker.download(run.run_id, "items.csv", folder))
    except BadInput:  # a trial of a sweep keeps no texts
        items = {"id": []}
    rows = {row[0]: dict(zip(items, row, strict=True)) for row in zip(*items.values(), strict=True)}
    ids, kinds = columns.pop("id"), columns.pop("kind")
    order = sorted(range(len(ids)), key=ids.__getitem__)
    values = {name: np.array([float(cells[i]) for i in order]) for name, cells in columns.items()}
    public = values.pop("public") == 1
    return Compared(
        label, run, config, tuple(ids[i] for i in order), tuple(kinds[i] for i in order), public, values, rows
    )


def _columns(file: Path) -> dict[str, list[str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _scorer(task: TextTask, runs: Sequence[Compared], metric: str) -> Score:
    """The metric of every run over some of the items."""
    names = list(runs[0].tallies)
    tables = [np.stack(list(run.tallies.values()), axis=1) for run in runs]

    def score(rows: np.ndarray) -> np.ndarray:
        summed = [dict(zip(names, (rows @ table).T, strict=True)) for table in tables]
        return np.stack([task.measure(sums)[metric] for sums in summed])

    return score


def _splits(
    task: TextTask, runs: Sequence[Compared], pairs: Mapping[tuple[int, int], Mapping[str, str]], metric: str
) -> list[dict[str, Any]]:
    """Each pair's difference in the metric by kind of item and by part."""
    kinds = np.array(runs[0].kinds, dtype=object)
    parts = {kind: kinds == kind for kind in sorted(set(runs[0].kinds))} if len(set(runs[0].kinds)) > 1 else {}
    parts |= {"public": runs[0].public, "private": ~runs[0].public}
    found = []
    for (i, j), labels in pairs.items():
        for part, rows in parts.items():
            ours, theirs = (measured(task, runs[n].tallies, rows)[metric] for n in (i, j))
            value = ours - theirs if rows.any() else np.nan
            n = int(rows.sum())
            found.append({**labels, "measure": metric, "part": part, "n": n, "mean": _finite(value)})
    return found


def _changed(
    task: TextTask, runs: Sequence[Compared], pairs: Mapping[tuple[int, int], Mapping[str, str]], metric: str
) -> list[dict[str, Any]]:
    """The items on which two submissions differ most, with what both said."""
    found = []
    for (i, j), labels in pairs.items():
        values = [task.measure(runs[n].tallies)[metric] for n in (i, j)]
        gap = np.nan_to_num(values[0] - values[1])
        for row in np.argsort(-np.abs(gap), kind="stable")[:CHANGED]:
            if gap[row] == 0:
                break
            item_id = runs[i].item_ids[row]
            items = [runs[n].items.get(item_id, {}) for n in (i, j)]
            shown = {name: one[name] for one in reversed(items) for name in SHOWN if name in one}
            said = {runs[n].label: one.get("prediction") for n, one in zip((i, j), items, strict=True)}
            scored = {runs[n].label: float(value[row]) for n, value in zip((i, j), values, strict=True)}
            found.append(
                {**labels, "id": item_id, "difference": float(gap[row]), "values": scored, **shown, "predictions": said}
            )
    return found


def _numbers(gap: Gap) -> dict[str, Any]:
    """As JSON takes them: NaN becomes None."""
    return {name: _finite(value) if isinstance(value, float) else value for name, value in asdict(gap).items()}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
