"""A predictions file of a text task, scored against its references."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest
from harness.config.components import arguments, build
from harness.errors import BadInput, did_you_mean
from harness.measures.objective import Objective, from_summary, score_kind
from harness.measures.scores import Summary
from harness.storage.cache import open_cache
from harness.tasks.statistics import entering, in_public, measure_all, measure_kind, summaries
from harness.tasks.task import JudgedItems, TextTask

GIVEN = ("kind", "question", "source", "reference")  # columns of items that come from the references
FILES = ("predictions", "references")
ELSEWHERE = ("columns", "runtime")  # arguments of a task that do not decide how it scores


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """Predictions with their scores.

    task:      what scored them.
    judged:    their N items.
    public:    bool [N], the items of the public part.
    summary:   measure -> its value over all items, with its interval.
    objective: the measure that submissions are ranked by.
    ranked_by: its value, over the public part with select_on=public; None where it is absent.
    """

    task: TextTask
    judged: JudgedItems
    public: np.ndarray
    summary: dict[str, Summary]
    objective: str
    ranked_by: Objective | None = None

    @cached_property
    def parts(self) -> dict[str, dict[str, Summary]]:
        """ "public" and "private" -> measure -> Summary without interval."""
        parts = {"public": self.public, "private": ~self.public}
        return {name: self._over(rows, measure_all) for name, rows in parts.items()}

    @cached_property
    def by_kind(self) -> dict[str, dict[str, Summary]]:
        """Kind of items -> measure -> Summary without interval; {} if all items are of one kind."""
        kinds = np.array(self.judged.kinds, dtype=object)
        names = sorted(set(self.judged.kinds))
        return {name: self._over(kinds == name, measure_kind) for name in names} if len(names) > 1 else {}

    @cached_property
    def totals(self) -> dict[str, int]:
        """Count -> its sum over all items, of the counts that the task shows to people."""
        return {name: round(self.judged.item_counts[name].sum()) for name in self.task.counts}

    @cached_property
    def counts(self) -> dict[str, int]:
        """The numbers of items, all and public, and the totals."""
        return {"items": len(self.judged.item_ids), "public": int(self.public.sum())} | self.totals

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        return fingerprints(self.judged)

    @cached_property
    def shown(self) -> str:
        """The measure that items are sorted by: the objective, or the first measure that is defined."""
        known = [name for name, one in self.summary.items() if one.mean == one.mean]
        return self.objective if self.objective in known else known[0] if known else self.objective

    @property
    def headline(self) -> Objective | None:
        """What ranks the run; where that is absent, the first measure that is defined. None if there is none."""
        return self.ranked_by or from_summary(self.shown, self.summary.get(self.shown), "in sample")

    @cached_property
    def values(self) -> np.ndarray:
        """float64 [N]: the measure `shown` of each item alone; NaN where an item has none."""
        return self.task.measure(self.judged.item_counts)[self.shown]

    def means_by_kind(self, measure: str) -> dict[str, tuple[int, float]]:
        """Kind of items -> (how many enter the measure, its value)."""
        return {kind: (means[measure].n, means[measure].mean) for kind, means in self.by_kind.items()}

    def _over(self, rows: np.ndarray, measure: Callable[..., dict[str, float]]) -> dict[str, Summary]:
        """measure -> Summary without interval, over the items of `rows`, bool [N]."""
        means = measure(self.task, self.judged.item_counts, rows)
        n = {name: entering(self.task, self.judged.item_counts, name, rows) for name in self.summary}
        return {name: Summary(means[name] if rows.any() else np.nan, n[name]) for name in self.summary}


def fingerprints(judged: JudgedItems) -> dict[str, str]:
    """sha256 of the contents of references and predictions, whatever the format and the order of their files."""
    table, ids = judged.table, judged.item_ids
    order = sorted(range(len(ids)), key=ids.__getitem__)

    def digest_of(*names: str) -> str:
        return digest({name: [table[name][row] for row in order] for name in names if name in table})

    return {"references": digest_of("id", *GIVEN), "predictions": digest_of("id", "prediction")}


def with_absolute_files(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with absolute paths of its two files, so that a run is found again from any folder."""
    for name in FILES:
        if config.get(name) is None:
            raise BadInput(f"{name} is missing. Give it on the command line: {name}=FILE.")
    return {**config} | {name: os.path.abspath(config[name]) for name in FILES}  # noqa: PTH100


def judge_files(config: Mapping[str, Any]) -> ScoredFile:
    """Read, pair and score the two files of a checked config."""
    task = task_of(config)
    wanted = requested_measures(task, config)
    predictions, references = (Path(config[name]) for name in FILES)
    judged = task.judge(predictions, references, wanted, open_cache(config["store"]["path"]))
    public = in_public(judged, config["seed"], config["public"])
    summary = summaries(task, judged.item_counts, wanted, config["seed"])
    objective, select_on, chosen = config["objective"], config.get("select_on", "all"), summary
    if select_on == "public":
        counts = {name: of[public] for name, of in judged.item_counts.items()}
        chosen = summaries(task, counts, [objective], config["seed"]) if public.any() else {}
    return ScoredFile(
        task=task,
        judged=judged,
        public=public,
        summary=summary,
        objective=objective,
        ranked_by=from_summary(objective, chosen.get(objective), score_kind(False, select_on)),
    )


def task_of(config: Mapping[str, Any]) -> TextTask:
    """The task of a config."""
    task: TextTask = build(config["task"], where="task")
    return task


def rules(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a config's task that decide how it scores."""
    return {name: value for name, value in arguments(config["task"]).items() if name not in ELSEWHERE}


def requested_measures(task: TextTask, config: Mapping[str, Any]) -> Sequence[str]:
    """The measures that the config requests, the objective among them."""
    wanted: Sequence[str] = config["metrics"] or task.measures
    for name in wanted:
        check_measure(task, "metrics", name)
    if config["objective"] not in wanted:
        raise BadInput(f"objective={config['objective']} is not among the metrics: add it to metrics=[...].")
    return wanted


def check_measure(task: TextTask, key: str, name: str) -> None:
    """BadInput, which names the config key, unless the task has the measure."""
    if name not in task.measures:
        known = ", ".join(task.measures)
        hint = did_you_mean(name, task.measures)
        raise BadInput(f"{key}: task={task.name} has no measure {name!r}.{hint} It has {known}.")
