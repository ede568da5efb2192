"""A Hydra job of a sweep: retrieve once, then log each trial as a run.

A worker also appends each result to the sweep's journal. The journal shows progress, and keeps results if a job dies.
"""

from __future__ import annotations

import gc
import json
import secrets
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from harness.config import plugins
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
from harness.storage.typed import encoded
from harness.sweeps.plan import Job, Trial
from harness.tasks.scored_file import TextPlan, judge_files
from harness.tracking import file_hashes
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker, mlflow_name
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
        self._at_depth: dict[int, list[Ranking]] = {}
        self._last_order: tuple[str, Ordered] | None = None  # (`Plan.order_key`, result); trials come sorted by it

    def write(self, trial: Trial, folder: Path, record: RunRecord, full: bool, run_id: str | None) -> None:
        """Write a trial's files, tags and metrics. full: write all that a run logs, and the report on run `run_id`."""
        plan, dataset = trial.retrieval, self.session.dataset
        outcome = self._outcome(plan, None if full else [plan.objective])
        record.end_tags |= retrieval_run.write_run_files(folder, plan, dataset, outcome, light=not full)
        if full:
            retrieval_run.write_page(folder, record, run_id, plan, dataset, outcome)
        retrieval_run.log_numbers(folder, record, outcome, self._sizes, light=not full)

    def _outcome(self, plan: Plan, detailed: list[str] | None) -> steps.Outcome:
        depth = plan.depth
        if depth not in self._at_depth:
            self._at_depth[depth] = [ranking.top(depth) for ranking in self._deepest]
        rankings = dict(zip(plan.retriever, self._at_depth[depth], strict=True))
        session = replace(self.session, clock=Clock())
        if self._last_order is None or self._last_order[0] != plan.order_key:
            self._last_order = plan.order_key, order(plan, rankings, session)
        return steps.conclude(plan, rankings, session, detailed=detailed, ordered=self._last_order[1])


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


Status = Literal["FINISHED", "FAILED", "KILLED"]

PATIENCE = 60.0  # seconds that a job waits for a tracking server
JOURNAL = "journal.jsonl"  # the file in a sweep's folder to which workers append results
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
class Context:
    """What all trials of a sweep share.

    token: identifies this start of the sweep; workers stop if the file `owner` holds another token.
    tracking: digest of the tracker's config.
    """

    sweep_id: str
    experiment: str
    folder: Path
    token: str
    tags: Mapping[str, str]
    tracking: str

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def owner(self) -> Path:
        return self.folder / "owner"

    def left_running(self, tracker: Tracker) -> dict[str, LoggedRun]:
        """Return trial key -> RUNNING run of this sweep. The run's worker may have died."""
        runs = tracker.runs(self.experiment, {"harness.verb": "run", "sweep.id": self.sweep_id}, "RUNNING")
        return {run.tags["trial_key"]: run for run in runs if "trial_key" in run.tags}


class Jobs:
    """The task function of a sweep's Hydra jobs: runs the job whose number is in Hydra's config.

    A worker reads its trials from the sweep's folder. The tracking address may contain a password, so it is not in this
    folder; the worker takes it from its own config.
    """

    def __init__(self) -> None:
        self.context: Context | None = None
        self._allowed = plugins.permitted()

    def write(self, context: Context, jobs: Mapping[int, Job]) -> None:
        self.context = context
        context.jobs.mkdir(exist_ok=True)
        for number, job in jobs.items():
            documents = [dict(trial.plan.document) for trial in job.trials if trial.plan]
            trials = [vars(one) | {"plan": plan} for one, plan in zip(job.trials, documents, strict=True)]
            for document in documents:
                del document["tracking"]
            content = encoded({"trials": trials, "depths": job.depths, "timed": job.timed})
            (context.jobs / f"{number}.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")

    def __call__(self, config: Any) -> list[TrialResult]:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        if self.context is None:
            raise RuntimeError("write() comes first")
        plugins.permit(self._allowed)
        tracking = OmegaConf.to_container(config.tracking, resolve=True)
        if digest(tracking) != self.context.tracking:
            raise RuntimeError(
                "This worker would log to another place than the sweep: set MLFLOW_TRACKING_URI to the same value here."
            )
        content = json.loads((self.context.jobs / f"{HydraConfig.get().job.num}.json").read_text("utf-8"))
        trials = []
        for values in content["trials"]:
            lists = {name: tuple(values[name]) for name in ("overrides", "ranking_keys", "unwritten")}
            document = values["plan"] | {"tracking": tracking}
            plan = TextPlan.of(document) if "task" in document else Plan.of(document)
            trials.append(Trial(**values | lists | {"plan": plan}))
        return run_job(Job(trials, tuple(content["depths"]), content["timed"]), self.context)


def run_job(job: Job, context: Context) -> list[TrialResult]:
    """Run the trials of a job. If the job was restarted, skip trials in the journal and continue RUNNING runs."""
    if context.owner.read_text() != context.token:
        return []  # another start of the sweep took over while this job was queued
    gc.set_threshold(50_000)  # logging makes many objects; with the default, garbage collection took 6 % of the time
    first = job.trials[0]
    assert first.plan is not None
    document = first.plan.document
    tracker = recording.connected(build(document["tracking"], where="tracking"), Path(document["outputs"]), PATIENCE)
    adopted = context.left_running(tracker)
    done = {result.number: result for result in read_journal(context)[0] if result.status != "KILLED"}
    runner = Runner(job, tracker, context)
    for trial in job.trials:
        if context.owner.read_text() != context.token:
            break
        if trial.number not in done:
            done[trial.number] = runner.run(trial, adopted.get(trial.key))
            write_journal(context, done[trial.number])
    return [done[trial.number] for trial in job.trials if trial.number in done]


class Runner:
    """Logs each trial of a job as a run. Retrieves once for all trials."""

    def __init__(self, job: Job, tracker: Tracker, context: Context) -> None:
        self.tracker, self.context = tracker, context
        self._shared: RetrievalTrials | Exception | None = None
        try:
            self._shared = None if isinstance(job.trials[0].plan, TextPlan) else RetrievalTrials(job)
        except Exception as error:  # recorded as the error of every trial
            self._shared = error

    def _write(self, trial: Trial, folder: Path, record: RunRecord, full: bool, run_id: str | None) -> None:
        if isinstance(self._shared, Exception):
            raise self._shared
        if self._shared:
            self._shared.write(trial, folder, record, full, run_id)
        else:
            _write_scored_file(trial, folder, record, full)

    def run(self, trial: Trial, adopted: LoggedRun | None = None) -> TrialResult:
        """Run a trial and record it. An error is recorded and returned, not raised."""
        began = time.perf_counter()
        record = _record(trial, self.context)
        run_id = None
        folder = self.context.folder / "trials" / str(trial.number)
        _remove(folder)
        try:
            with recording.live_run(self.tracker, record, folder, adopted=adopted, direct=True) as live:
                run_id = live.run_id
                self._write(trial, live.folder, record, full=False, run_id=run_id)
                record.metrics["seconds/trial"] = time.perf_counter() - began
        except Exception as error:
            return failed(trial, error, run_id, time.perf_counter() - began)
        except (KeyboardInterrupt, SystemExit):  # Ray stops a worker with SystemExit
            seconds = time.perf_counter() - began
            write_journal(self.context, TrialResult(trial.number, trial.key, run_id, "KILLED", {}, seconds))
            raise
        finally:
            if self.tracker.keeps_runs:
                _remove(folder)
        logged = {mlflow_name(name): value for name, value in record.metrics.items()}
        took = time.perf_counter() - began
        hashes = record.end_tags[file_hashes.FILE_HASHES]
        return TrialResult(
            trial.number, trial.key, run_id, "FINISHED", logged, took, objective=record.objective, hashes=hashes
        )

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
            (folder / JOURNAL).unlink(missing_ok=True)  # the journal of an earlier start
            yield claim_sweep(folder)
    except Timeout:
        raise BadInput(
            f"This sweep is already running: {folder / 'lock'} is locked. Wait for the other process, or stop it."
        ) from None


def claim_sweep(folder: Path) -> str:
    """Claim a sweep with a new token, and return the token. Workers with an older token finish their trial and stop."""
    token = secrets.token_hex(8)
    write_text(folder / "owner", token)
    return token


@dataclass(frozen=True)
class JournalLine:
    """A trial's result. token: identifies the call of `harness sweep` whose worker wrote the line."""

    token: str
    result: TrialResult


def _journal(context: Context) -> AppendLog[JournalLine]:
    return AppendLog(context.folder / JOURNAL, JournalLine, lenient=True)


def write_journal(context: Context, result: TrialResult) -> None:
    _journal(context).append([JournalLine(context.token, result)])


def read_journal(context: Context, position: Position = START) -> tuple[list[TrialResult], Position]:
    """Return the results that this start of the sweep wrote after `position`, and the position to read from next."""
    lines, position = _journal(context).since(position)
    return [line.result for line in lines if line.token == context.token], position


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
    tags["sweep.trial"] = str(trial.number)
    return RunRecord(context.experiment, trial.name, params=params, tags=tags)


def failed(trial: Trial, error: Exception, run_id: str | None = None, seconds: float = 0.0) -> TrialResult:
    known = isinstance(error, BadInput | Failed)  # these errors have messages for users
    line = str(error).strip() if known else traceback.format_exception_only(error)[-1].strip()
    return TrialResult(trial.number, trial.key, run_id, "FAILED", {}, seconds, redacted(line))


def _remove(folder: Path) -> None:
    for ending in ("", ".failed", ".killed", ".unfinished"):
        if (place := folder.with_name(folder.name + ending)).exists():
            shutil.rmtree(place)
