"""What the trials of a sweep's job do: conclude from rankings that they share, or score files made elsewhere."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from harness.commands.sweep.plan import Job, Trial, cache_of
from harness.config.canonical import digest
from harness.config.components import build
from harness.data.dataset import Dataset, load, search_queries
from harness.pipeline import steps
from harness.tasks import scored_file
from harness.tracking import retrieval_run, task_run
from harness.tracking.tracker import RunRecord
from retrievers.base import BadInput, Ranking

CHANGED = "The data or the queries have changed since the sweep was planned. Start it again."


class Work(Protocol):
    """What the trials of a job do: write a trial's files, and give (tags that are found, metrics by our names)."""

    def light(self, trial: Trial, folder: Path) -> tuple[dict[str, str], dict[str, float]]: ...
    def full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None: ...


class Scoring:
    """Predictions made elsewhere, scored as text."""

    def light(self, trial: Trial, folder: Path) -> tuple[dict[str, str], dict[str, float]]:
        record = RunRecord("", "")
        self._write(trial, folder, record, light=True)
        return record.end_tags, record.metrics

    def full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None:
        self._write(trial, folder, record)

    def _write(self, trial: Trial, folder: Path, record: RunRecord, light: bool = False) -> None:
        submission = scored_file.judge(trial.config)
        if lacking := submission.judged.absent.get(objective := trial.config["objective"]):
            raise BadInput(f"objective={objective} is absent: {lacking}")
        record.end_tags |= {k: v for k, v in task_run.tags(trial.config, submission).items() if k != "harness.verb"}
        task_run.write(folder, record, trial.config, submission, light)


class Retrieving:
    """The rankings of a job, which its trials conclude from."""

    def __init__(self, job: Job) -> None:
        config = job.trials[0].config
        self.cache = cache_of(job.trials[0])
        asked = json.dumps([config["dataset"], dict(job.trials[0].fingerprints)])
        self.dataset = _dataset(asked, job.trials[0].choices["dataset"] or "")
        self.queries = search_queries(self.dataset, config["query"]["text"], config["query"]["file"])
        node, need = next(iter(config["retriever"].values())), job.trials[0].needs[0]
        index = steps.index_identity(node, self.dataset)
        if digest(steps.ranking_identity(index, steps.asked_of(self.queries))) != need:
            raise RuntimeError(CHANGED)
        clock = steps.Clock()
        self._deep: list[Ranking] = []
        for (name, node), depth in zip(config["retriever"].items(), job.depths, strict=True):
            found = steps.retrieve({name: node}, self.dataset, self.queries, depth, self.cache, clock)
            self._deep += found.values()
        self._at: dict[int, list[Ranking]] = {}
        self._ordered: tuple[dict[str, Any], Ranking] | None = None  # of the trial before: they come sorted by it

    def light(self, trial: Trial, folder: Path) -> tuple[dict[str, str], dict[str, float]]:
        outcome = self._outcome(trial, [trial.config["objective"]])
        found = retrieval_run.write_files(folder, trial.config, self.dataset, outcome, light=True)
        return found, retrieval_run.logged(outcome, trial.config, light=True)

    def full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None:
        outcome = self._outcome(trial)
        record.end_tags |= retrieval_run.write_files(folder, trial.config, self.dataset, outcome)
        retrieval_run.write_page(folder, record, run_id, trial.config, self.dataset, outcome)
        record.metrics |= retrieval_run.logged(outcome, trial.config)

    def _outcome(self, trial: Trial, detailed: list[str] | None = None) -> steps.Outcome:
        """What the pipeline gives for the trial. detailed: as in `pipeline.conclude`."""
        config = trial.config
        depth = config["depth"]
        if depth not in self._at:
            self._at[depth] = [ranking.top(depth) for ranking in self._deep]
        rankings = dict(zip(config["retriever"], self._at[depth], strict=True))
        clock = steps.Clock()
        asked = steps.ordering(config)
        if self._ordered is None or self._ordered[0] != asked:
            self._ordered = asked, steps.order(asked, rankings, self.dataset, self.queries, self.cache, clock)
        road = (self.dataset, self.queries, self.cache, clock, detailed)
        return steps.conclude(config, rankings, *road, self._ordered[1])


@lru_cache(maxsize=2)  # the jobs of a process mostly share their data
def _dataset(asked: str, name: str) -> Dataset:
    node, fingerprints = json.loads(asked)
    dataset = load(build(node, where="dataset"), name)
    if dataset.fingerprints != fingerprints:
        raise RuntimeError(CHANGED)
    return dataset
