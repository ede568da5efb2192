"""The Hydra jobs of a sweep. In a large sweep, other processes of this machine take some of the trials of each job.

python -m harness.sweeps.jobs is such a process. Each line of its standard input names a job. When all trials of the job
are taken, it answers with a line.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from harness import children
from harness.config import plugins
from harness.experiment.plan import Plan
from harness.storage.append_log import START, AppendLog
from harness.storage.typed import encoded
from harness.sweeps.plan import Job, Trial
from harness.sweeps.trials import Context, Runner, read_journal
from harness.tasks.scored_file import TextPlan
from harness.tracking.tracker import EndedRun, RunRecord
from retrievers.base import cores

BLOCK = 10  # number of trials that a process takes at a time
MANY = 400  # number of trials for which one more process is started at once
LONG = 2.0  # seconds of work left in a job for which one more process is started; starting one takes about one second

FullRecord = Callable[[], RunRecord | None]  # see `Helpers.begin_in_full`

log = logging.getLogger(__name__)


class Jobs:
    """The task function of a sweep's Hydra jobs: runs the job whose number is in Hydra's config.

    A worker reads its trials from the sweep's folder. The tracking address may contain a password, so it is not in this
    folder; the worker takes it from its own config.

    helpers: processes that take some of the trials; None: the launcher runs jobs in parallel or elsewhere.
    """

    def __init__(self) -> None:
        self.context: Context | None = None
        self.helpers: Helpers | None = None
        self._allowed = plugins.permitted()

    @property
    def serial(self) -> bool:
        """Whether the launcher runs one job at a time, in this process."""
        return self.helpers is not None

    def write(self, context: Context, jobs: Mapping[int, Job]) -> None:
        self.context = context
        context.jobs.mkdir(exist_ok=True)
        for number, job in jobs.items():
            content = _job_document(job)
            (context.jobs / f"{number}.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")

    def __call__(self, config: Any) -> None:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        if self.context is None:
            raise RuntimeError("write() comes first")
        plugins.permit(self._allowed)
        number, tracking = HydraConfig.get().job.num, OmegaConf.to_container(config.tracking, resolve=True)
        job = _read_job(self.context, number, tracking)
        request = {"context": vars(self.context), "number": number, "tracking": tracking, "allowed": self._allowed}
        can_share = not job.timed and not any(_loads_model(trial) for trial in job.trials)
        run_job(job, self.context, number, self.helpers if can_share else None, json.dumps(encoded(request)))


def _loads_model(trial: Trial) -> bool:
    return isinstance(trial.plan, Plan) and (trial.asks_model or "rerank" in trial.plan.active)


def _job_document(job: Job) -> Any:
    """Return a job as JSON. Most parts of its trials' configs are the same; `parts` has each of them once."""
    parts: list[Any] = []
    numbers: dict[int, int] = {}  # id of a part -> its place in `parts`
    trials = []
    for trial in job.trials:
        assert trial.plan is not None
        own = {name: part for name, part in trial.plan.document.items() if name != "tracking"}
        for part in own.values():
            if numbers.setdefault(id(part), len(parts)) == len(parts):
                parts.append(part)
        trials.append(vars(trial) | {"plan": {name: numbers[id(part)] for name, part in own.items()}})
    return encoded({"parts": parts, "trials": trials, "depths": job.depths, "timed": job.timed, "cached": job.cached})


def _read_job(context: Context, number: int, tracking: Any) -> Job:
    content = json.loads((context.jobs / f"{number}.json").read_text("utf-8"))
    trials = []
    for values in content["trials"]:
        lists = {name: tuple(values[name]) for name in ("overrides", "ranking_keys", "unwritten")}
        document = {name: content["parts"][part] for name, part in values["plan"].items()} | {"tracking": tracking}
        plan = TextPlan.of(document) if "task" in document else Plan.of_full(document)
        trials.append(Trial(**values | lists | {"plan": plan}))
    return Job(trials, tuple(content["depths"]), content["timed"], content["cached"])


class Helpers:
    """Processes that take some of the trials of jobs. They end with the `with` block."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self._request = ""  # the line of the latest job

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for one in self._running:
            one.kill()  # a killed process loses only its present trial
            one.communicate()
        self._running = []

    def start(self, count: int) -> None:
        """Start so many processes, at most one per core. Do nothing if some run."""
        if not self._running:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            words = ["-m", "harness.sweeps.jobs"]
            few = range(min(count, cores()) if cores() > 1 else 0)
            self._running = [children.start(words, stderr=subprocess.DEVNULL, **pipes) for _ in few]

    def run(self, runner: Runner, blocks: TrialBlocks, request: str) -> bool:
        """Run a job's trials here and in the processes. Return False if one of them has failed.

        request: the line that tells a process which job to run.
        """
        self._request = request
        if not runner.job.cached:
            _ = runner.shared  # or each process would compute the same rankings
        asked = self._ask(request)
        began = time.monotonic()
        try:
            _ = runner.shared  # the best trial is written here in the end
            # With a process on each core, this one only logs: its trials would keep the log waiting.
            for part in blocks.run(runner) if len(asked) < cores() else ():
                left = (time.monotonic() - began) * (1 - part) / part
                if not asked and left > LONG:
                    self.start(int(left / LONG))
                    asked = self._ask(request)
            failed = [one for one in asked if one.stdout is None or not one.stdout.readline()]
        except BaseException:
            self.stop()
            raise
        for one in failed:
            self._running.remove(one)
            log.warning("A process that ran trials ended with exit code %d. Its trials run again here.", one.wait())
        return not failed

    def begin_in_full(self, number: int, trial: int, run_id: str | None, folder: Path) -> FullRecord:
        """Let a process write all that a run can log of a trial. Return a function that waits for the record.

        The function returns None if no process runs, or if it fails. number: of the trial's job. See
        `Runner.full_record` for `run_id` and `folder`.
        """
        if not (self._running and self._request):
            return lambda: None
        one, target = self._running[0], {"trial": trial, "run_id": run_id, "folder": str(folder)}
        request = json.loads(self._request) | {"number": number, "full": target}
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=one.stdin, flush=True)

        def record() -> RunRecord | None:
            if one.stdout is None or not one.stdout.readline():
                return None
            [ended], _ = _full_log(folder).since(START)
            return ended.record

        return record

    def _ask(self, request: str) -> list[subprocess.Popen[str]]:
        for one in self._running:
            with suppress(BrokenPipeError):  # the process has ended; `run` notices that
                print(request, file=one.stdin, flush=True)
        return [*self._running]


@dataclass(frozen=True)
class TrialBlocks:
    """A job's trials in blocks that processes take in turns. A file in `folder` says that a block is taken."""

    trials: Sequence[Trial]
    folder: Path

    @staticmethod
    def of(job: Job, context: Context, number: int) -> TrialBlocks:
        folder = context.jobs / f"{number}-{context.token}"
        folder.mkdir(exist_ok=True)
        return TrialBlocks(job.trials, folder)

    def run(self, runner: Runner) -> Iterator[float]:
        """Run the blocks that no process has taken. After each, yield the part of all blocks that is taken, (0, 1].

        Stop if another start of the sweep has taken over.
        """
        done = _done(runner.context)
        for first in range(0, len(self.trials), BLOCK):
            if not self._take(first):
                continue
            block = self.trials[first : first + BLOCK]
            if not all(runner.run(trial) for trial in block if trial.number not in done):
                return
            yield (first + len(block)) / len(self.trials)

    def _take(self, first: int) -> bool:
        try:
            (self.folder / str(first)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def run_job(job: Job, context: Context, number: int = 0, helpers: Helpers | None = None, request: str = "") -> None:
    """Run the trials of a job, and append them to the journal. Skip trials that the journal has: a job may restart.

    helpers, request: see `Helpers.run`.
    """
    if not context.is_current:  # another start of the sweep took over while this job was queued
        return
    gc.set_threshold(50_000)  # trials make many objects; with the default, garbage collection took 6 % of the time
    runner = Runner(job, context)
    try:
        if helpers and helpers.run(runner, TrialBlocks.of(job, context, number), request):
            return
        runner.append()
        done = _done(context)
        for trial in job.trials:
            if trial.number not in done and not runner.run(trial):
                break
    finally:
        runner.append()


def _done(context: Context) -> set[int]:
    """Return the numbers of the trials in the journal, without those that were stopped."""
    return {one.number for one in read_journal(context)[0] if one.run.status != "KILLED"}


def _help() -> None:
    """Run some trials of each job that standard input names. End when the sweep's process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the sweep's process ends this one
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=[requests], daemon=True).start()
    gc.set_threshold(50_000)
    import scipy.special  # noqa: F401  (takes .2 s, which the sweep's process now needs for other work)

    answers, sys.stdout = sys.stdout, sys.stderr  # what trials print is no answer
    while line := requests.get():
        request = json.loads(line)
        plugins.permit(request["allowed"])
        context = Context(**request["context"] | {"folder": Path(request["context"]["folder"])})
        job = _read_job(context, request["number"], request["tracking"])
        runner = Runner(job, context)
        if full := request.get("full"):
            _write_in_full(runner, **full)
        else:
            try:
                deque(TrialBlocks.of(job, context, request["number"]).run(runner), maxlen=0)
            finally:
                runner.append()
        print("done", file=answers, flush=True)


def _write_in_full(runner: Runner, trial: int, run_id: str | None, folder: str) -> None:
    [wanted] = (one for one in runner.job.trials if one.number == trial)
    record = runner.full_record(wanted, run_id, Path(folder))
    record.folder = None  # the process that reads the record knows it
    (log := _full_log(Path(folder))).path.unlink(missing_ok=True)
    with log.appending() as add:
        add(EndedRun(run_id or "", "FINISHED", record))


def _full_log(folder: Path) -> AppendLog[EndedRun]:
    return AppendLog(folder.parent / "jobs" / f"{folder.name}.jsonl", EndedRun)


def _listen(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(1)  # the sweep's process has ended


if __name__ == "__main__":
    os.nice(5)  # the sweep's process comes first, so that its log does not fall behind
    _help()
