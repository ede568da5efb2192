"""Score a predictions file of a text task against its references."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.components import arguments, build
from harness.config.schema import Node
from harness.errors import BadInput, did_you_mean
from harness.measures.objective import Objective, from_summary, score_kind
from harness.measures.scores import RESAMPLES, Summary
from harness.statistics.bootstrap import Tallies, bootstrap_sums
from harness.statistics.split import Split, draw_public
from harness.storage.cache import open_cache
from harness.tasks.task import ItemCounts, JudgedItems, TextTask

FILES = ("predictions", "references")
ELSEWHERE = ("columns", "runtime")  # arguments of a task that do not change scores


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """Predictions with their scores.

    public: bool [N], whether an item is in the public part.
    summary: the measures of all items, with intervals.
    objective: the measure by which submissions are ranked.
    ranked_by: the objective's value, over the public part if select_on=public; None if the measure is absent.
    """

    task: TextTask
    judged: JudgedItems
    public: np.ndarray
    summary: dict[str, Summary]
    objective: str
    ranked_by: Objective | None = None

    @cached_property
    def parts(self) -> dict[str, dict[str, Summary]]:
        """Part ("public" or "private") -> measure -> Summary without an interval."""
        parts = {"public": self.public, "private": ~self.public}
        return {name: self._over(rows, measure_all) for name, rows in parts.items()}

    @cached_property
    def by_kind(self) -> dict[str, dict[str, Summary]]:
        """Kind of items -> measure -> Summary without an interval; {} if all items are of one kind."""
        kinds = np.array(self.judged.kinds, dtype=object)
        names = sorted(set(self.judged.kinds))
        return {name: self._over(kinds == name, measure_kind) for name in names} if len(names) > 1 else {}

    @cached_property
    def totals(self) -> dict[str, int]:
        return {name: round(self.judged.item_counts[name].sum()) for name in self.task.counts}

    @cached_property
    def counts(self) -> dict[str, int]:
        return {"items": len(self.judged.item_ids), "public": int(self.public.sum())} | self.totals

    @cached_property
    def shown(self) -> str:
        """The measure by which items are sorted: the objective, or if it is undefined, the first defined measure."""
        known = [name for name, one in self.summary.items() if one.mean == one.mean]
        return self.objective if self.objective in known else known[0] if known else self.objective

    @property
    def headline(self) -> Objective | None:
        """The value that ranks the run; if missing, the first defined measure's value; None without such a measure."""
        return self.ranked_by or from_summary(self.shown, self.summary.get(self.shown), "in sample")

    @cached_property
    def values(self) -> np.ndarray:
        """The value of the measure `shown` for each single item, float64 [N]; NaN if undefined."""
        return self.task.measure(self.judged.item_counts)[self.shown]

    def means_by_kind(self, measure: str) -> dict[str, tuple[int, float]]:
        return {kind: (means[measure].n, means[measure].mean) for kind, means in self.by_kind.items()}

    def _over(self, rows: np.ndarray, measure: Callable[..., dict[str, float]]) -> dict[str, Summary]:
        means = measure(self.task, self.judged.item_counts, rows)
        n = {name: entering(self.task, self.judged.item_counts, name, rows) for name in self.summary}
        return {name: Summary(means[name] if rows.any() else np.nan, n[name]) for name in self.summary}


@dataclass(frozen=True, eq=False)
class TextPlan:
    document: Mapping[str, Any]
    node: Node
    predictions: Path
    references: Path
    objective: str
    split: Split
    store: str
    experiment_name: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TextPlan:
        """Read a composed config. Raise BadInput if a file is not named or a measure is unknown."""
        for name in FILES:
            if document.get(name) is None:
                raise BadInput(f"{name} is missing. Give it on the command line: {name}=FILE.")
        document = {**document} | {name: os.path.abspath(document[name]) for name in FILES}  # noqa: PTH100
        predictions, references = (Path(document[name]) for name in FILES)
        split = Split(document["public"], document["seed"], document.get("select_on", "all"))
        rest = document["objective"], split, document["store"]["path"], document["experiment_name"]
        plan = cls(document, document["task"], predictions, references, *rest)
        for name in plan.measures:
            check_measure(plan.task, "metrics", name)
        if plan.objective not in plan.measures:
            raise BadInput(f"objective={plan.objective} is not among the metrics: add it to metrics=[...].")
        return plan

    @cached_property
    def task(self) -> TextTask:
        return task_of(self.node)

    @property
    def measures(self) -> Sequence[str]:
        wanted: Sequence[str] = self.document["metrics"] or self.task.measures
        return wanted

    @property
    def components(self) -> list[Node]:
        return [self.node]


def judge_files(plan: TextPlan) -> ScoredFile:
    task, split, objective = plan.task, plan.split, plan.objective
    judged = task.judge(plan.predictions, plan.references, plan.measures, open_cache(plan.store))
    public = in_public(judged, split.seed, split.public)
    chosen = summary = summaries(task, judged.item_counts, plan.measures, split.seed)
    if split.select_on == "public":
        counts = {name: of[public] for name, of in judged.item_counts.items()}
        chosen = summaries(task, counts, [objective], split.seed) if public.any() else {}
    return ScoredFile(
        task=task,
        judged=judged,
        public=public,
        summary=summary,
        objective=objective,
        ranked_by=from_summary(objective, chosen.get(objective), score_kind(False, split.select_on)),
    )


def task_of(node: Node) -> TextTask:
    task: TextTask = build(node, where="task")
    return task


def task_rules(node: Node) -> dict[str, Any]:
    return {name: value for name, value in arguments(node).items() if name not in ELSEWHERE}


def check_measure(task: TextTask, key: str, name: str) -> None:
    """Raise BadInput unless the task has the measure `name`. key: the config key to name in the message."""
    if name not in task.measures:
        known = ", ".join(task.measures)
        hint = did_you_mean(name, task.measures)
        raise BadInput(f"{key}: task={task.name} has no measure {name!r}.{hint} It has {known}.")


def strata(kinds: Sequence[str]) -> np.ndarray:
    return np.unique(np.array(kinds, dtype=object), return_inverse=True)[1]


def in_public(judged: JudgedItems, seed: int, public: float) -> np.ndarray:
    """Return the public part, bool [N]. It depends only on ids and kinds, so it is the same for all submissions."""
    return draw_public(judged.item_ids, strata(judged.kinds), seed, public)


def measure_all(task: TextTask, counts: ItemCounts, rows: np.ndarray | None = None) -> dict[str, float]:
    return {name: float(value) for name, value in task.measure(_sums(counts, rows)).items()}


def measure_kind(task: TextTask, counts: ItemCounts, rows: np.ndarray) -> dict[str, float]:
    """Return all measures of items of one kind (rows: bool [N]); NaN for those that these items leave undefined."""
    silent = task.says_nothing({name: float(total) for name, total in _sums(counts, rows).items()})
    return {name: np.nan if name in silent else value for name, value in measure_all(task, counts, rows).items()}


def _sums(counts: ItemCounts, rows: np.ndarray | None) -> dict[str, np.ndarray]:
    return {name: np.asarray(one.sum() if rows is None else one[rows].sum()) for name, one in counts.items()}


def entering(task: TextTask, counts: ItemCounts, measure: str, rows: np.ndarray | None = None) -> int:
    """Return how many items enter a measure. rows: count only these items, bool [N]; None: all."""
    subset = counts[task.subset[measure]] if measure in task.subset else np.ones(len(next(iter(counts.values()))))
    return int((subset if rows is None else subset[rows]).sum())


def tallied(task: TextTask, counts: ItemCounts, wanted: Sequence[str]) -> Tallies:
    names = list(counts)

    def measure(sums: np.ndarray) -> np.ndarray:
        found = task.measure(dict(zip(names, sums.T, strict=True)))
        return np.stack([found[name] for name in wanted])

    entered = np.array([entering(task, counts, name) for name in wanted])
    return Tallies(np.stack(list(counts.values()), axis=1), measure, entered)


def summaries(
    task: TextTask, counts: ItemCounts, wanted: Sequence[str], seed: int, resamples: int = RESAMPLES
) -> dict[str, Summary]:
    """Return the wanted measures with BCa intervals; an absent measure is NaN, without an interval."""
    means = measure_all(task, counts)
    found = {name: Summary(means[name], entering(task, counts, name)) for name in wanted}
    if known := [name for name in wanted if means[name] == means[name]]:
        ends = bootstrap_sums(tallied(task, counts, known), seed, resamples)
        for name, low, high, note in zip(known, *ends, strict=True):
            found[name] = Summary(means[name], found[name].n, float(low), float(high), note)
    return found
