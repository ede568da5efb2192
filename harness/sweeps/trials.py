"""The trials of a sweep: retrieve once for all trials of a job, then run each trial.

A worker writes a trial's files and appends the trial to the sweep's journal. It logs nothing: the process of the
sweep logs the trials in the journal (see `trial_log`). So a worker or a job that dies loses only its present trial.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from harness.config.canonical import digest
from harness.config.components import build
from harness.data.dataset import Dataset
from harness.errors import BadInput, Failed
from harness.experiment import steps
from harness.experiment.ordering import Ordered, order
from harness.experiment.plan import Plan
from harness.experiment.session import Clock, open_session, queries_digest, read_dataset
from harness.measures.objective import Objective
from harness.recording import provenance, recording, retrieval_run, task_run
from harness.storage.append_log import START, AppendLog, Position
from harness.storage.atomic import write_text
from harness.sweeps.plan import Job, Trial
from harness.tasks.scored_file import TextPlan, judge_files
from harness.tracking import file_hashes
from harness.tracking.outbox import UNFINISHED
from harness.tracking.tracker import TRIAL, EndedRun, LoggedRun, RunRecord, Status, mlflow_name, now_ms
from retrievers.base import Ranking
from retrievers.redaction import redacted

CHANGED = "The data or the queries have changed since the sweep was planned. Start it again."


class RetrievalTrials:
    """The retrieval trials of a job. Retrieves once; each trial then has its own further steps, such as scoring."""

    def __init__(self, job: Job) -> None:
        first = job.trials[0]
        plan = first.retrieval
        dataset = dataset_of(first)
        session = open_session(plan, dataset)
        self.session = replace(session, timed="always") if job.timed else session
        index = steps.index_identity(next(iter(plan.retriever.values())), dataset)
        queries = {session.queries_digest}
        if plan.writer:  # When the sweep was planned, stand-ins may have replaced queries that a model writes.
            queries.add(queries_digest(plan.writer.stand_ins(session.dataset.queries)))
        if first.ranking_keys[0] not in {digest(steps.ranking_identity(index, one)) for one in queries}:
            raise RuntimeError(CHANGED)
        self._deepest: list[Ranking] = []
        for (name, node), depth in zip(plan.retriever.items(), job.depths, strict=True):
            self._deepest += steps.retrieve({name: node}, self.session, depth).values()
        self._sizes = retrieval_run.index_sizes(plan, session)
        # (`Plan.order_key`, component rankings, their order); trials come sorted by this key.
        self._last_order: tuple[str, dict[str, Ranking], Ordered] | None = None

    def write(self, trial: Trial, folder: Path, record: RunRecord, full: bool, run_id: str | None) -> None:
        """Write a trial's files, tags and metrics. full: write all that a run logs, and the report on run `run_id`."""
        plan, dataset = trial.retrieval, self.session.dataset
        outcome = self._outcome(plan, None if full else [plan.objective])
        record.end_tags |= retrieval_run.write_run_files(folder, plan, dataset, outcome, light=not full)
        if full:
            outcome = steps.with_slices(plan, dataset, outcome)
            retrieval_run.write_page(folder, record, run_id, plan, dataset, outcome)
        retrieval_run.log_numbers(folder, record, outcome, self._sizes, light=not full)

    def _outcome(self, plan: Plan, detailed: list[str] | None) -> steps.Outcome:
        session = replace(self.session, clock=Clock())
        if self._last_order is None or self._last_order[0] != plan.order_key:
            tops = [ranking.top(plan.depth) for ranking in self._deepest]
            rankings = dict(zip(plan.retriever, tops, strict=True))
            self._last_order = plan.order_key, rankings, order(plan, rankings, session)
        _, rankings, ordered = self._last_order
        return steps.conclude(plan, rankings, session, detailed=detailed, ordered=ordered)


def _write_scored_file(trial: Trial, folder: Path, record: RunRecord, full: bool) -> None:
    plan = trial.plan
    assert isinstance(plan, TextPlan)
    scored = judge_files(plan)
    if reason := scored.judged.absent.get(objective := plan.objective):
        raise BadInput(f"objective={objective} is absent: {reason}")
    tags = task_run.tags(plan, scored)
    task_run.write_task_run(folder, record, plan, scored, light=not full)
    record.end_tags |= {name: value for name, value in tags.items() if name != "harness.verb"}


def dataset_of(trial: Trial) -> Dataset:
    """Return the dataset of a trial. Raise RuntimeError if it has changed since the trial was planned."""
    plan = trial.retrieval
    expected = json.dumps([plan.dataset, plan.workers.shard, plan.store, dict(trial.fingerprints)])
    return _read_expected(expected, trial.choices["dataset"] or "")


@lru_cache(maxsize=2)  # most jobs of a process share a dataset
def _read_expected(expected: str, name: str) -> Dataset:
    node, shard, store, fingerprints = json.loads(expected)
    dataset = read_dataset(build(node, where="dataset"), shard, store, name)
    if dataset.fingerprints != fingerprints:
        raise RuntimeError(CHANGED)
    return dataset


APPEND_SECONDS = 0.1  # how long a trial that has ended may wait for others to be appended with
JOURNAL = "journal.jsonl"  # the file in a sweep's folder to which workers append trials
COMPUTED, REUSED = "computed", "reused"  # values of the tag `member_tag(sweep_id)`


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial. metrics: name in MLflow -> value. error: one line. reused: taken from an earlier run."""

    number: int
    key: str
    run_id: str | None
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    reused: bool = False
    objective: Objective | None = None
    hashes: str = "{}"

    def logged(self, context: Context) -> LoggedRun:
        tags = {file_hashes.FILE_HASHES: self.hashes}
        return LoggedRun(
            self.run_id or "", f"trial {self.number}", context.experiment, self.status, dict(self.metrics), {}, tags
        )


@dataclass(frozen=True)
class EndedTrial:
    """A trial in the journal, with all that its run logs except the files. error: one line."""

    number: int
    run: EndedRun
    seconds: float = 0.0
    error: str = ""

    def __post_init__(self) -> None:
        if "trial_key" not in self.run.record.tags:
            raise ValueError("the run has no tag trial_key.")

    @property
    def key(self) -> str:
        return self.run.record.tags["trial_key"]

    def result(self) -> TrialResult:
        """Return the trial's result, without the id of a run."""
        record, status = self.run.record, self.run.status
        if status != "FINISHED":
            return TrialResult(self.number, self.key, None, status, {}, self.seconds, self.error)
        metrics = {mlflow_name(name): value for name, value in record.metrics.items()}
        hashes = record.end_tags.get(file_hashes.FILE_HASHES, "{}")
        result = TrialResult(self.number, self.key, None, status, metrics, self.seconds, objective=record.objective)
        return replace(result, hashes=hashes)


@dataclass(frozen=True)
class Context:
    """What all trials of a sweep share.

    token: identifies this start of the sweep; workers stop if the file `owner` holds another token.
    """

    sweep_id: str
    experiment: str
    folder: Path
    token: str
    tags: Mapping[str, str]

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def owner(self) -> Path:
        return self.folder / "owner"

    @property
    def is_current(self) -> bool:
        """Whether no other start of the sweep has taken over."""
        return self.owner.read_text() == self.token

    def trial(self, number: int, status: str = "FINISHED") -> Path:
        """Return the folder of a trial that has ended."""
        return self.folder / "trials" / f"{number}{'' if status == 'FINISHED' else f'.{status.lower()}'}"


class Runner:
    """Runs the trials of a job. Retrieves once for all trials."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job, self.context = job, context
        self._new: list[tuple[EndedTrial, Path]] = []  # trials to append, and the folders of their files
        self._appended = time.monotonic()

    @cached_property
    def shared(self) -> RetrievalTrials | Exception | None:
        """The retrieval of all trials, or its error; None for a text task. The first access retrieves."""
        try:
            return None if isinstance(self.job.trials[0].plan, TextPlan) else RetrievalTrials(self.job)
        except Exception as error:  # recorded as the error of every trial
            return error

    def _write(self, trial: Trial, folder: Path, record: RunRecord, full: bool, run_id: str | None) -> None:
        if isinstance(self.shared, Exception):
            raise self.shared
        if self.shared:
            self.shared.write(trial, folder, record, full, run_id)
        else:
            _write_scored_file(trial, folder, record, full)

    def run(self, trial: Trial) -> bool:
        """Run a trial. Return False if another start of the sweep has taken over.

        An error is recorded, not raised. If the process is stopped, the trial is recorded as KILLED.
        """
        _ = self.shared  # not part of the trial's time
        record, began = _record(trial, self.context), time.perf_counter()
        record.began = now_ms()
        folder = self.context.trial(trial.number).with_name(f"{trial.number}-{self.context.token}{UNFINISHED}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        status: Status = "FINISHED"
        error: BaseException | None = None
        try:
            self._write(trial, folder, record, full=False, run_id=None)
            record.metrics["seconds/trial"] = time.perf_counter() - began
        except (Exception, KeyboardInterrupt, SystemExit) as raised:  # Ray stops a worker with SystemExit
            error, status = raised, recording.status_after(raised)
            recording.write_traceback(error, folder)
        file_hashes.seal(record, folder)
        record.ended = now_ms()
        run, line = EndedRun(uuid.uuid4().hex, status, record), error_line(error) if error else ""
        self._new.append((EndedTrial(trial.number, run, time.perf_counter() - began, line), folder))
        if error and not isinstance(error, Exception):
            raise error
        return time.monotonic() - self._appended < APPEND_SECONDS or self.append()

    def append(self) -> bool:
        """Append the new trials to the journal. Return False if another start of the sweep has taken over."""
        new, self._new, self._appended = self._new, [], time.monotonic()
        return write_journal(self.context, new)

    def full_record(self, trial: Trial, run_id: str | None, folder: Path) -> RunRecord:
        """Return all that a run can log, to add to the trial's run `run_id`. Empty the folder first."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        record = RunRecord(self.context.experiment, trial.name, folder=folder)
        self._write(trial, folder, record, full=True, run_id=run_id)
        file_hashes.seal(record, folder)
        return record


@contextmanager
def sweep_lock(folder: Path) -> Iterator[str]:
    """Lock a sweep's folder for this process, claim the sweep, and yield the token of this start."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            yield claim_sweep(folder)
    except Timeout:
        raise BadInput(
            f"This sweep is already running: {folder / 'lock'} is locked. Wait for the other process, or stop it."
        ) from None


def claim_sweep(folder: Path) -> str:
    """Claim a sweep with a new token, and return the token. Workers with an older token stop, and append no trial."""
    token = secrets.token_hex(8)
    with journal(folder).appending():  # a worker looks at the token and appends its trial under the same lock
        write_text(folder / "owner", token)
    return token


def journal(folder: Path) -> AppendLog[EndedTrial]:
    return AppendLog(folder / JOURNAL, EndedTrial, lenient=True)


def write_journal(context: Context, new: Sequence[tuple[EndedTrial, Path]]) -> bool:
    """Append trials, and give the folders of their files their final names. Return False if another start took over."""
    with journal(context.folder).appending() as add:
        current = context.is_current
        for ended, files in new:
            if current:
                shutil.rmtree(final := context.trial(ended.number, ended.run.status), ignore_errors=True)
                files.rename(final)
            else:
                shutil.rmtree(files, ignore_errors=True)
        if current:
            add(*(ended for ended, _ in new))
    return current


def read_journal(context: Context, position: Position = START) -> tuple[list[EndedTrial], Position]:
    """Return the trials in the journal after `position`, and the position to read from next."""
    return journal(context.folder).since(position)


def _record(trial: Trial, context: Context) -> RunRecord:
    plan = trial.plan
    assert plan is not None
    params: dict[str, Any] = (
        task_run.task_params(plan, trial.choices["task"])
        if isinstance(plan, TextPlan)
        else retrieval_run.retrieval_params(plan, trial.choices)
    )
    tags = {f"data.{name}": sha256 for name, sha256 in trial.fingerprints.items() if sha256}
    tags |= {"trial_key": trial.key} | provenance.of_components(plan) | dict(context.tags)
    tags[TRIAL] = str(trial.number)
    return RunRecord(context.experiment, trial.name, params=params, tags=tags)


def failed(trial: Trial, error: Exception) -> TrialResult:
    return TrialResult(trial.number, trial.key, None, "FAILED", error=error_line(error))


def error_line(error: BaseException) -> str:
    known = isinstance(error, BadInput | Failed)  # these errors have messages for users
    return redacted(str(error).strip() if known else traceback.format_exception_only(error)[-1].strip())
