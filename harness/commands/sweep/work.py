"""Runs one trial of a sweep's job: gates and scores the rankings that the job shares, or scores a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from harness.commands.sweep.plan import Job, Trial
from harness.config.canonical import digest
from harness.data.dataset import Dataset
from harness.errors import BadInput
from harness.pipeline import steps
from harness.pipeline.ordering import Ordered, Ordering, order
from harness.pipeline.plan import Plan
from harness.pipeline.query_texts import QueryWriter
from harness.pipeline.session import Clock, Session, open_session, queries_digest, read_dataset
from harness.tasks import scored_file
from harness.tracking import retrieval_run, task_run
from harness.tracking.run_kind import Retrieval, Text, kind_of
from harness.tracking.tracker import RunRecord
from retrievers.base import Ranking

CHANGED = "The data or the queries have changed since the sweep was planned. Start it again."


class TrialRunner(Protocol):
    """Runs trials of a job: writes a trial's files into `folder`, and its tags and metrics into `record`."""

    def write_light(self, trial: Trial, folder: Path, record: RunRecord) -> None:
        """Means, the objective's interval and parts, config and predictions."""

    def write_full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None:
        """Everything that a single run logs. run_id: of the trial's run, if it is logged."""


class FileTrials:
    """Trials that score files of predictions; those of a job have nothing in common."""

    def __init__(self, job: Job) -> None: ...

    def write_light(self, trial: Trial, folder: Path, record: RunRecord) -> None:
        self._write(trial, folder, record, light=True)

    def write_full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None:
        self._write(trial, folder, record, light=False)

    def _write(self, trial: Trial, folder: Path, record: RunRecord, light: bool) -> None:
        scored = scored_file.judge(trial.config)
        if reason := scored.judged.absent.get(objective := trial.config["objective"]):
            raise BadInput(f"objective={objective} is absent: {reason}")
        tags = task_run.tags(trial.config, scored)
        task_run.write(folder, record, trial.config, scored, light)
        record.end_tags |= {name: value for name, value in tags.items() if name != "harness.verb"}


class RetrievalTrials:
    """Trials that gate and score the rankings of a job, which are retrieved once for all of them."""

    def __init__(self, job: Job) -> None:
        first = job.trials[0]
        plan = Plan.of(first.config)
        dataset = dataset_of(expected_data(plan, first.fingerprints), first.choices["dataset"] or "")
        session = open_session(plan, dataset)
        self.session = replace(session, timed="always") if job.timed else session
        index = steps.index_identity(next(iter(plan.retriever.values())), dataset)
        if first.ranking_keys[0] not in _planned(plan, session, index):
            raise RuntimeError(CHANGED)
        self._deepest: list[Ranking] = []
        for (name, node), depth in zip(plan.retriever.items(), job.depths, strict=True):
            self._deepest += steps.retrieve({name: node}, self.session, depth).values()
        self._sizes = retrieval_run.index_sizes(plan, session)
        self._at_depth: dict[int, list[Ranking]] = {}
        self._last_order: tuple[Ordering, Ordered] | None = None  # jobs are sorted by it: one is enough

    def write_light(self, trial: Trial, folder: Path, record: RunRecord) -> None:
        config, dataset = Plan.of(trial.config), self.session.dataset
        outcome = self._outcome(config, [config.objective])
        record.end_tags |= retrieval_run.write_files(folder, config, dataset, outcome, light=True)
        retrieval_run.log_numbers(folder, record, outcome, self._sizes, light=True)

    def write_full(self, trial: Trial, folder: Path, record: RunRecord, run_id: str | None) -> None:
        config, dataset = Plan.of(trial.config), self.session.dataset
        outcome = self._outcome(config)
        record.end_tags |= retrieval_run.write_files(folder, config, dataset, outcome)
        retrieval_run.write_page(folder, record, run_id, config, dataset, outcome)
        retrieval_run.log_numbers(folder, record, outcome, self._sizes)

    def _outcome(self, plan: Plan, detailed: list[str] | None = None) -> steps.Outcome:
        """The outcome of a trial. detailed: as in `steps.conclude`."""
        depth = plan.depth
        if depth not in self._at_depth:
            self._at_depth[depth] = [ranking.top(depth) for ranking in self._deepest]
        rankings = dict(zip(plan.retriever, self._at_depth[depth], strict=True))
        session = replace(self.session, clock=Clock())
        ordering = Ordering.of(plan)
        if self._last_order is None or self._last_order[0] != ordering:
            self._last_order = ordering, order(ordering, rankings, session)
        return steps.conclude(plan, rankings, session, detailed=detailed, ordered=self._last_order[1])


def _planned(plan: Plan, session: Session, index: Mapping[str, Any]) -> set[str]:
    """Digests of a component ranking, one of which a plan has: of the queries, and of what stood for them until a
    language model had written them. index: what decides the retriever's index."""
    writer, known = QueryWriter.of(plan), {session.queries_digest}
    if writer:
        known.add(queries_digest(writer.stand_ins(session.dataset.queries)))
    return {digest(steps.ranking_identity(index, one)) for one in known}


_RUNNERS: dict[type, Callable[[Job], TrialRunner]] = {Retrieval: RetrievalTrials, Text: FileTrials}


def trial_runner(job: Job) -> TrialRunner:
    """The runner for the kind of run that the job's trials are. It retrieves what they share."""
    return _RUNNERS[type(kind_of(job.trials[0].config))](job)


def expected_data(plan: Plan, fingerprints: Mapping[str, str | None]) -> str:
    """What decides the dataset of a trial, as JSON. fingerprints: part of the data -> sha256."""
    return json.dumps([plan.dataset, plan.cluster, plan.cache, dict(fingerprints)])


@lru_cache(maxsize=2)  # the jobs of a process mostly share their dataset
def dataset_of(expected: str, name: str) -> Dataset:
    """The dataset, read once per process. expected: what `expected_data` returns. name: as logs call it."""
    node, cluster, cache, fingerprints = json.loads(expected)
    dataset = read_dataset(node, cluster, cache, name)
    if dataset.fingerprints != fingerprints:
        raise RuntimeError(CHANGED)
    return dataset
