"""What the trials of a sweep's job do: conclude from rankings that they share, or score files made elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from harness.commands.sweep.plan import Job, Trial
from harness.config.canonical import digest
from harness.config.components import build
from harness.data.dataset import Dataset, load
from harness.pipeline import steps
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import Clock, open_session
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
        first = job.trials[0]
        config = RunConfig.of(first.config)
        asked = json.dumps([config.dataset, dict(first.fingerprints)])
        dataset = _dataset(asked, first.choices["dataset"] or "")
        self.session = open_session(config, dataset)
        index = steps.index_identity(next(iter(config.retriever.values())), dataset)
        if digest(steps.ranking_identity(index, self.session.queries_digest)) != first.needs[0]:
            raise RuntimeError(CHANGED)
        self._deep: list[Ranking] = []
        for (name, node), depth in zip(config.retriever.items(), job.depths, strict=True):
            self._deep += steps.retrieve({name: node}, self.session, depth).values()
        self._at: dict[int, list[Ranking]] = {}
        self._ordered: tuple[steps.Ordering, Ranking] | None = None  # of the trial before: they come sorted by it

    def light(self, trial: Trial, folder: Path) -> tuple[dict[str, str], dict[str, float]]:
        config, dataset = RunConfig.of(trial.config), self.session.dataset
        outcome = self._outcome(config, [config.objective])
        tags = retrieval_run.write_files(folder, config, dataset, outcome, light=True)
        return tags, retrieval_run.logged(outcome, config, light=True)

    def full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None:
        config, dataset = RunConfig.of(trial.config), self.session.dataset
        outcome = self._outcome(config)
        record.end_tags |= retrieval_run.write_files(folder, config, dataset, outcome)
        retrieval_run.write_page(folder, record, run_id, config, dataset, outcome)
        record.metrics |= retrieval_run.logged(outcome, config)

    def _outcome(self, config: RunConfig, detailed: list[str] | None = None) -> steps.Outcome:
        """The outcome of a trial. detailed: as in `steps.conclude`."""
        depth = config.depth
        if depth not in self._at:
            self._at[depth] = [ranking.top(depth) for ranking in self._deep]
        rankings = dict(zip(config.retriever, self._at[depth], strict=True))
        session = replace(self.session, clock=Clock())
        ordering = steps.Ordering.of(config)
        if self._ordered is None or self._ordered[0] != ordering:
            self._ordered = ordering, steps.order(ordering, rankings, session)
        return steps.conclude(config, rankings, session, detailed=detailed, candidates=self._ordered[1])


@lru_cache(maxsize=2)  # the jobs of a process mostly share their data
def _dataset(asked: str, name: str) -> Dataset:
    node, fingerprints = json.loads(asked)
    dataset = load(build(node, where="dataset"), name)
    if dataset.fingerprints != fingerprints:
        raise RuntimeError(CHANGED)
    return dataset
