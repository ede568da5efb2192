"""What a Hydra job of a sweep does: retrieve once, then run all of its trials, each a run of its own.

A worker gets everything it needs with the job; what it found goes back as return value, and line by line into the
sweep's journal, which the sweep watches and an interrupted one reads again.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.commands.sweep.plan import Job, Trial
from harness.commands.sweep.work import Retrieving, Scoring, Work
from harness.config.canonical import digest
from harness.tracking import provenance, recording, retrieval_run, task_run
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker, mlflow_name
from retrievers.base import BadInput

Status = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class Result:
    """What became of a trial. metrics: by MLflow's names. error: in one line; "" without one."""

    number: int
    key: str
    run_id: str | None
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Context:
    """What all trials of a sweep have in common.

    folder: of the sweep. token: of this start of it; when another start has taken over, workers stop. tags: of every
    trial's run. tracking: digest of where runs are logged.
    """

    sweep_id: str
    experiment: str
    folder: Path
    token: str
    tags: Mapping[str, str]
    tracking: str

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def owner(self) -> Path:
        """Holds the token of the start that owns the sweep."""
        return self.folder / "owner"

    def left_running(self, tracker: Tracker) -> dict[str, LoggedRun]:
        """trial key -> its run of this sweep that is RUNNING, though nobody may be at work on it any more."""
        runs = tracker.runs(self.experiment, {"harness.verb": "run", "sweep.id": self.sweep_id}, "RUNNING")
        return {run.tags["trial_key"]: run for run in runs if "trial_key" in run.tags}


class Jobs:
    """The task of a sweep's Hydra jobs: called with a composed config, it runs the job of Hydra's job number.

    It is sent to every worker, and so carries no trials: a worker reads those of its job in the sweep's folder. They
    are written there without the tracking address, which may hold a password: a worker has it from its own config.
    """

    def __init__(self) -> None:
        self.context: Context | None = None

    def hand_out(self, context: Context, jobs: Mapping[int, Job]) -> None:
        self.context = context
        context.jobs.mkdir(exist_ok=True)
        for number, job in jobs.items():
            content = asdict(job)
            for trial in content["trials"]:
                del trial["config"]["tracking"]
            (context.jobs / f"{number}.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")

    def __call__(self, config: Any) -> list[Result]:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        if self.context is None:
            raise RuntimeError("hand_out() comes first")
        tracking = OmegaConf.to_container(config.tracking, resolve=True)
        if digest(tracking) != self.context.tracking:
            raise RuntimeError("This worker would log elsewhere than the sweep: set MLFLOW_TRACKING_URI there as here.")
        content = json.loads((self.context.jobs / f"{HydraConfig.get().job.num}.json").read_text("utf-8"))
        trials = [Trial(**fields | {"words": tuple(fields["words"])}) for fields in content["trials"]]
        for trial in trials:
            trial.config["tracking"] = tracking
        return run_job(Job(trials, tuple(content["depths"])), self.context)


def run_job(job: Job, context: Context) -> list[Result]:
    """Retrieve, and run the trials. One that fails does not keep the others from running.

    A launcher may start a job again whose worker died: what is in the journal is not done twice, and what was left
    RUNNING, by this start or an earlier one, is taken up.
    """
    gc.set_threshold(50_000)  # logging makes many objects: looking for cycles so often took 6 % of the time
    first = job.trials[0]
    tracker = recording.open_tracker(first.config)
    adopted = context.left_running(tracker)
    done = {result.number: result for result in read_journal(context)[0] if result.status != "KILLED"}
    runner, failed = None, None
    try:
        runner = Runner(job, tracker, context)
    except Exception as error:  # the trials are recorded as failed by it
        failed = error
    for trial in job.trials:
        if context.owner.read_text() != context.token:
            break
        if trial.number not in done:
            run = adopted.get(trial.key)
            result = runner.run(trial, run) if runner else fail(trial, failed, tracker, context, run)
            done[trial.number] = result
            write_journal(context, result)
    return [done[trial.number] for trial in job.trials if trial.number in done]


class Runner:
    """Runs the trials of a job, each a run of its own."""

    def __init__(self, job: Job, tracker: Tracker, context: Context) -> None:
        self.tracker, self.context = tracker, context
        self.work: Work = Scoring() if "task" in job.trials[0].config else Retrieving(job)

    def run(self, trial: Trial, adopted: LoggedRun | None = None) -> Result:
        """One trial, from its rankings to its record. What goes wrong is recorded and told, not raised."""
        began = time.perf_counter()
        record = _record(trial, self.context)
        run_id = None
        folder = self.context.folder / "trials" / str(trial.number)
        _remove(folder)
        try:
            with recording.live_run(self.tracker, record, folder, adopted=adopted, direct=True) as live:
                run_id = live.run_id
                found, metrics = self.work.light(trial, live.folder)
                record.end_tags |= found
                record.metrics |= metrics
                record.metrics["seconds/trial"] = time.perf_counter() - began
        except Exception as error:
            return _failed(trial, error, run_id, time.perf_counter() - began)
        except (KeyboardInterrupt, SystemExit):  # the latter is how Ray stops a worker
            seconds = time.perf_counter() - began
            write_journal(self.context, Result(trial.number, trial.key, run_id, "KILLED", {}, seconds))
            raise
        finally:
            if self.tracker.keeps_files:
                _remove(folder)
        logged = {mlflow_name(name): value for name, value in record.metrics.items()}
        return Result(trial.number, trial.key, run_id, "FINISHED", logged, time.perf_counter() - began)

    def full_record(self, trial: Trial, run_id: str | None, folder: Path) -> RunRecord:
        """What the record of a light trial, `run_id`, lacks of a full one. folder: made anew, for the files."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        record = RunRecord(self.context.experiment, " ".join(trial.words) or "trial", folder=folder)
        self.work.full(trial, folder, record, run_id)
        return record


def fail(
    trial: Trial, error: Exception | None, tracker: Tracker, context: Context, adopted: LoggedRun | None = None
) -> Result:
    """Record a trial that could not even begin."""
    record = _record(trial, context)
    folder = context.folder / "trials" / str(trial.number)
    _remove(folder)
    run_id = None
    try:
        with recording.live_run(tracker, record, folder, adopted=adopted) as live:
            run_id = live.run_id
            raise error or RuntimeError("unknown")
    except Exception as raised:
        result = _failed(trial, raised, run_id, 0.0)
    finally:
        if tracker.keeps_files:
            _remove(folder)
    return result


@contextmanager
def owned(folder: Path) -> Iterator[tuple[Path, str]]:
    """(folder of a sweep, token of this start): one process sweeps at a time; workers of an earlier one stop."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            (folder / "journal.jsonl").unlink(missing_ok=True)  # of an earlier start
            yield folder, take(folder)
    except Timeout:
        raise BadInput(f"This sweep is running already: {folder / 'lock'} is held. Wait for it, or stop it.") from None


def take(folder: Path) -> str:
    """Make a sweep ours: workers that hold another token than this one stop before their next trial."""
    token = secrets.token_hex(8)
    (folder / "owner.new").write_text(token)
    (folder / "owner.new").replace(folder / "owner")
    return token


def write_journal(context: Context, result: Result) -> None:
    """Append a result, in one write, so that workers do not mix their lines; a line that was broken off ends first."""
    line = "\n" + json.dumps({"token": context.token, **asdict(result)}) + "\n"
    with context.journal.open("ab", buffering=0) as file:
        file.write(line.encode("ascii"))


def read_journal(context: Context, start: int = 0) -> tuple[list[Result], int]:
    """(results of this start of the sweep from byte `start` on, where the next call goes on)."""
    if not context.journal.exists():
        return [], start
    with context.journal.open("rb") as file:
        file.seek(start)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    found = []
    for line in whole.splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # blank, or broken off when its writer was killed
            continue
        if row.pop("token") == context.token:
            found.append(Result(**row))
    return found, start + len(whole)


def _record(trial: Trial, context: Context) -> RunRecord:
    swept = {key: value for key, _, value in (word.partition("=") for word in trial.words)}
    tags = {"trial_key": trial.key} if trial.key else {}
    text = "task" in trial.config
    tags |= {} if text else {f"data.{name}": sha256 for name, sha256 in trial.fingerprints.items() if sha256}
    asked = task_run.params(trial.config, trial.choices["task"]) if text else {}
    tags |= provenance.versions(provenance.packages(trial.config)) if trial.key else {}
    return RunRecord(
        context.experiment,
        " ".join(trial.words) or "trial",
        params=asked or (retrieval_run.params(trial.config, trial.choices) if trial.key else swept),
        tags=tags | dict(context.tags) | {"sweep.trial": str(trial.number)},
    )


def _failed(trial: Trial, error: Exception, run_id: str | None, seconds: float) -> Result:
    said = traceback.format_exception_only(error)[-1].strip()
    return Result(trial.number, trial.key, run_id, "FAILED", {}, seconds, said)


def _remove(folder: Path) -> None:
    for ending in ("", ".failed", ".killed", ".unfinished"):
        if (place := folder.with_name(folder.name + ending)).exists():
            shutil.rmtree(place)
