"""Jobs that submitit starts, on SLURM or as processes of this machine, and the wait for them, which always ends.

submitit itself waits until `sacct` says that a job is over: for ever where a cluster keeps no accounts and the job was
killed. Here a job is over once it has a result, or once SLURM's queue says so, or no longer knows it.

What SLURM says of a job array, asked of its own commands: which elements wait, run or are over, and why.

`squeue` knows every element until some minutes after its end (SLURM's MinJobAge), with or without accounting; `sacct`
knows older ones, where a cluster keeps accounts. So an element that neither knows is over.
"""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness import interruption
from harness.children import SAFE
from harness.config.text import counted
from harness.errors import BadInput, Failed
from harness.sweeps.definition import JobsLost
from harness.sweeps.execution import tell

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher
    from submitit import Job

SECONDS = 60.0  # after which a command of SLURM counts as one without an answer
COMMANDS = ("sbatch", "srun", "squeue", "scancel")
UNKNOWN_JOB = "Invalid job id specified"
NO_ACCOUNTS = "accounting storage is disabled"

ENDS = {  # SLURM's state of a job that is over -> (what it means, what to do)
    "BOOT_FAIL": ("its node did not start", "To keep jobs off a node: hydra.launcher.exclude=NODE."),
    "CANCELLED": ("it was cancelled", ""),
    "COMPLETED": ("SLURM says that it completed", "All nodes must share the outputs folder."),
    "DEADLINE": ("its deadline had passed", ""),
    "FAILED": ("its process ended or was killed", "The log may say why."),
    "NODE_FAIL": ("its node failed", "To keep jobs off a node: hydra.launcher.exclude=NODE."),
    "OUT_OF_MEMORY": ("it needed more memory than it had", "Give more memory: hydra.launcher.mem_gb=32."),
    "PREEMPTED": (
        "jobs of higher priority took its place",
        "A calmer place may be another hydra.launcher.partition or qos.",
    ),
    "TIMEOUT": (
        "it ran out of time",
        "Give more time or smaller jobs: hydra.launcher.timeout_min=240 trials_per_job=5.",
    ),
}
ADVICE = {  # words of a refusal or of a reason to wait, without blanks -> what to do
    "partitionname": "`sinfo` lists the partitions: hydra.launcher.partition=NAME.",
    "account": "`sacctmgr show associations user=$USER` lists your accounts: hydra.launcher.account=NAME.",
    "qos": "`sacctmgr show qos` lists them: hydra.launcher.qos=NAME.",
    "feature": "`sinfo -o %f` lists what nodes have: hydra.launcher.constraint=NAME.",
    "constraint": "`sinfo -o %f` lists what nodes have: hydra.launcher.constraint=NAME.",
    "(gres)": "`sinfo -o %G` lists what nodes have: hydra.launcher.gres=NAME.",
    "array": "Put more trials into a job: trials_per_job=100.",
    "timelimit": "`sinfo -o '%P %l'` lists the limits: hydra.launcher.timeout_min=MINUTES.",
    "nodeconfig": "`sinfo -o '%P %c %m'` lists CPUs and MB of nodes: hydra.launcher.cpus_per_task and mem_gb.",
    "configurationsource": "Start the sweep on a machine of the cluster, or set SLURM_CONF.",
    "contact": "Is this a machine of the cluster, and its controller up? `scontrol ping` tells.",
}
NEVER = (  # reasons for which a job waits for ever, unless somebody changes the cluster
    "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS",
    "PartitionNodeLimit", "PartitionTimeLimit", "not permitted to use this partition",
)  # fmt: skip
FOR_NOW = ("not available now", "down, drained", "partition not available", "is busy")  # sbatch: a job would wait
RETURNING = "node configuration is not available"  # sbatch: of too large a job, and until a controller's nodes are back
TRIES, PAUSE_SECONDS = 4, 5.0  # of a job that no node seems to be made for
SILENT = ("contact slurm controller", "timed out")  # what commands say when the controller is silent


class SlurmSilent(Exception):
    """SLURM did not answer, such as while its controller restarts; the text is its own message."""


@dataclass(frozen=True)
class State:
    """Where an element of an array is.

    name: as SLURM calls it, such as RUNNING or OUT_OF_MEMORY. nodes: where it runs or ran. reason: why it waits.
    """

    name: str
    nodes: str = ""
    reason: str = ""

    @property
    def is_over(self) -> bool:
        return self.name in ENDS or self.name == "REVOKED"

    @property
    def is_held(self) -> bool:
        return "held" in self.reason.lower()

    @property
    def never_starts(self) -> bool:
        return self.name == "PENDING" and any(word in self.reason for word in NEVER)


def check_slurm() -> None:
    """BadInput unless SLURM's commands are on this machine."""
    if missing := [name for name in COMMANDS if shutil.which(name) is None]:
        raise BadInput(
            f"hydra/launcher=submitit_slurm needs SLURM's commands, and PATH has no {' or '.join(missing)}. Start the "
            "sweep on a machine of the cluster, or choose hydra/launcher=submitit_local, joblib or ray."
        )


def try_submission(script: str) -> None:
    """Ask SLURM whether it would take a job, without submitting one. script: for sbatch.

    BadInput with its answer if it would never; Failed if it does not answer.
    """
    for left in reversed(range(TRIES)):
        try:
            asked = _run(["sbatch", "--test-only"], script)
        except SlurmSilent as error:
            raise Failed(f"SLURM does not answer: {error}.") from None
        said = last_words(asked.stderr)
        if asked.returncode == 0 or any(one in said for one in FOR_NOW):
            return
        if RETURNING not in said or not left:
            break
        time.sleep(PAUSE_SECONDS)
    if any(one in said for one in SILENT):
        raise Failed(f"SLURM does not answer: {said}. {advice(said)}".rstrip())
    raise BadInput(f"SLURM would not take a job of this sweep: {said}. {advice(said)}".rstrip())


def advice(said: str) -> str:
    """What to do about a message of SLURM; "" where nothing is known."""
    blank_free = "".join(said.lower().split())
    return next((text for one, text in ADVICE.items() if one in blank_free), "")


def states(job: str) -> dict[str, State]:
    """Element -> its state; `12_3` of an array, `12` of a single job. Without those that SLURM has forgotten.

    job: the id of the array. NoAnswer where SLURM does not answer.
    """
    asked = _run(["squeue", "--array", "--noheader", "--states=all", f"--jobs={job}", "--format=%i|%T|%N|%r"])
    if asked.returncode == 0:
        return _parsed(asked.stdout)
    if UNKNOWN_JOB not in asked.stderr:
        raise SlurmSilent(last_words(asked.stderr))
    return {}


def ended(job: str) -> dict[str, State]:
    """Element -> how it ended, from the accounts of the cluster; {} where it keeps none."""
    columns = "--format=JobID,State,NodeList"
    try:
        asked = _run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", columns])
    except (FileNotFoundError, SlurmSilent):
        return {}
    if asked.returncode or NO_ACCOUNTS in asked.stderr:
        return {}
    return _parsed(asked.stdout)


def cancel(job: str) -> str:
    """Cancel all elements of an array. Returns "", or what SLURM said where it did not."""
    try:
        asked = _run(["scancel", job])
    except SlurmSilent as error:
        return str(error)
    gone = asked.returncode == 0 or UNKNOWN_JOB in asked.stderr
    return "" if gone else last_words(asked.stderr)


def _parsed(lines: str) -> dict[str, State]:
    """The states in lines of element|state|nodes|reason, of which `CANCELLED by 1000` has a word too many."""
    found = {}
    for line in lines.splitlines():
        fields = [field.strip() for field in line.split("|", maxsplit=3)]
        if len(fields) >= 3 and fields[1]:
            found[fields[0]] = State(fields[1].split()[0].rstrip("+"), *fields[2:])
    return found


def last_words(said: str) -> str:
    """The last line of what a command said on standard error, without the name of the command."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Try ")]
    if not lines:
        return "no message"
    return re.sub(r"^(\w+: (error|fatal): |allocation failure: |Batch job submission failed: )+", "", lines[-1]).rstrip(
        "."
    )


def _run(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM; NoAnswer after a minute."""
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise SlurmSilent(f"{command[0]} gave no answer in {SECONDS:.0f} s") from None


LOOK_SECONDS = 1.0  # between two looks for results
ASK_SECONDS = 10.0  # between two questions to SLURM, whose controller serves many
GRACE_SECONDS = 15.0  # for the result of a job that is over: file systems of clusters show files late
SAY_SECONDS = 10.0  # between two lines on how many jobs wait
REPEAT_SECONDS = 300.0  # after which a line that has not changed is said again
CANCEL_SECONDS = 8.0  # for a cancelled job to end: its process stops within one or two
AGAIN = "Repeat the same command to run what is missing."


class Scheduler(Protocol):
    """What runs the jobs."""

    def states(self) -> Mapping[str, State]:
        """Job's id -> its state, of the jobs that it knows. NoAnswer where it cannot tell."""

    def ended(self) -> Mapping[str, State]:
        """Job's id -> its state, of jobs that it no longer knows, as far as that is kept somewhere."""

    def cancel(self) -> None:
        """End all jobs that wait or run."""


@dataclass(frozen=True)
class Array:
    """A job array of SLURM. number: its id."""

    number: str

    def states(self) -> Mapping[str, State]:
        return states(self.number)

    def ended(self) -> Mapping[str, State]:
        return ended(self.number)

    def cancel(self) -> None:
        if said := cancel(self.number):
            tell([f"SLURM did not cancel job {self.number}: {said}. Do it by hand: scancel {self.number}"])

    def __str__(self) -> str:
        return f"SLURM job {self.number}"


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, each with a submitit controller above it."""

    jobs: Sequence[Job[Any]]

    def states(self) -> Mapping[str, State]:
        names = {"RUNNING": "RUNNING", "FINISHED": "FAILED"}  # a job with a result is not asked for its state
        return {job.job_id: State(names.get(job.state, "CANCELLED")) for job in self.jobs}

    def ended(self) -> Mapping[str, State]:
        return {}

    def cancel(self) -> None:
        for job in self.jobs:
            with suppress(ProcessLookupError):
                job.cancel(check=False)

    def __str__(self) -> str:
        return "processes of submitit"


@dataclass(frozen=True)
class Element:
    """What submitit sends to a worker and calls there: one job of the sweep.

    SLURM warns a job of its end by SIGTERM (cancelled, preempted) and SIGUSR2 (its time is over). submitit ignores the
    first, and raises the second as an error that a trial would take for its own.
    """

    launcher: BaseSubmititLauncher

    def __call__(self, overrides: list[str], number: int, state: Any) -> JobReturn:
        interruption.listen()
        over = _Time.watch()
        try:
            return self.launcher(overrides, "hydra.sweep.dir", number, f"job_id_for_{number}", state)
        except interruption.Terminated:
            if over.reason:
                raise Failed(f"its time was over ({over.reason})") from None
            raise

    def checkpoint(self, *arguments: Any) -> Any:
        """What submitit runs after SLURM has put the job back into the queue: the same, without what is finished."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)


@dataclass
class _Time:
    """reason: why submitit did not put the job back into the queue when its time was over."""

    reason: str = ""

    @classmethod
    def watch(cls) -> _Time:
        """Let SIGUSR2 end the trial in progress, as SIGTERM does."""
        from submitit import JobEnvironment
        from submitit.core.utils import UncompletedJobError

        over, number = cls(), JobEnvironment._usr_sig()
        plain = signal.getsignal(number)

        def warned(received: int, frame: Any) -> None:
            try:
                if callable(plain):
                    plain(received, frame)  # puts the job back into the queue, and exits
            except UncompletedJobError as error:
                over.reason = str(error)
                raise interruption.Terminated from None

        signal.signal(number, warned)
        return over


class Submitted:
    """Launches the jobs of a sweep by submitit. launcher: as Hydra's plugin has set it up."""

    def __init__(self, launcher: BaseSubmititLauncher) -> None:
        self._launcher = launcher
        self._on_slurm = launcher._EXECUTOR == "slurm"

    def check(self) -> None:
        """BadInput unless SLURM is there and would take such jobs; Failed if it does not answer."""
        if self._on_slurm:
            check_slurm()
            try_submission(self._executor()._executor._make_submission_file_text("true", "try"))

    def launch(self, overrides: list[list[str]], first: int) -> list[JobReturn]:
        """Submit the jobs and wait for all of them.

        overrides: of each job. first: number of the first job. JobsLost after the last one has ended, if any ended
        without a result; the jobs are cancelled if this is interrupted.
        """
        from hydra.core.singleton import Singleton

        numbers = range(first, first + len(overrides))
        state = [Singleton.get_state() for _ in numbers]
        jobs = self._submit(self._executor(), (overrides, numbers, state))
        scheduler: Scheduler = Array(jobs[0].job_id.partition("_")[0]) if self._on_slurm else Processes(jobs)
        waiting = _Waiting(scheduler, dict(zip(numbers, jobs, strict=True)))
        try:
            waiting.wait()
        except BaseException:
            _cancelled(scheduler)
            raise
        if waiting.lost:
            raise JobsLost(_summary(waiting.lost, len(jobs)), {n: one.line for n, one in waiting.lost.items()})
        return [waiting.results[number] for number in numbers]

    def _submit(self, executor: Any, columns: Sequence[Iterable[Any]]) -> list[Job[Any]]:
        from submitit.core.utils import FailedJobError

        try:
            jobs: list[Job[Any]] = executor.map_array(Element(self._launcher), *columns)
        except FailedJobError as error:  # of sbatch
            said = last_words(str(error))
            raise Failed(f"SLURM does not take the jobs: {said}. {advice(said)}".strip()) from None
        return jobs

    def _executor(self) -> Any:
        """submitit's executor, set up as Hydra's plugin does: resources by common names, the rest by SLURM's."""
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
        from submitit import AutoExecutor

        kind, given = self._launcher._EXECUTOR, dict(self._launcher.params)
        place = Path(given.pop("submitit_folder"))
        folder = place.parent / secrets.token_hex(4) / place.name  # new: what it reads there, submitit executes
        if self._on_slurm:  # whose jobs may begin without this environment
            given["setup"] = [*(f"export {name}={value}" for name, value in SAFE.items()), *(given.get("setup") or ())]
        retries = {f"{kind}_{name}": given.pop(name) for name in ("max_num_timeout",) if name in given}
        executor = AutoExecutor(folder=folder, cluster=kind, **retries)
        common = BaseQueueConf.__dataclass_fields__
        executor.update_parameters(
            **{name if name in common else f"{kind}_{name}": value for name, value in given.items()}
        )
        return executor


@dataclass(frozen=True)
class _Loss:
    """How a job ended without a result. line: in one line. advice: what to do; "" where nothing is known."""

    line: str
    advice: str = ""


@dataclass
class _Waiting:
    """The wait for jobs. jobs: number -> job.

    results, lost: number -> what came of it. over: number -> when SLURM first said so, or knew it no more.
    """

    scheduler: Scheduler
    jobs: Mapping[int, Job[Any]]
    results: dict[int, Any] = field(default_factory=dict)
    lost: dict[int, _Loss] = field(default_factory=dict)
    over: dict[int, float] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict)
    answers: bool = True

    def wait(self) -> None:
        """Collect results until every job has one or is lost."""
        began = time.monotonic()
        asked, said = began - ASK_SECONDS + 2 * LOOK_SECONDS, _Said()
        while self.open:
            self._collect()
            now = time.monotonic()
            if self.open and now - asked >= ASK_SECONDS:
                asked = now
                self._ask(now)
                said.say(self._counts(), now)
            self._give_up(now)
            if self.open:
                time.sleep(LOOK_SECONDS)

    @property
    def open(self) -> list[int]:
        return [number for number in self.jobs if number not in self.results and number not in self.lost]

    def _collect(self) -> None:
        """Read the results that are there."""
        from submitit.core.utils import FailedJobError, UncompletedJobError

        for number in self.open:
            job = self.jobs[number]
            if not any(job.paths.folder.glob("*_result.pkl")):  # listing a folder lets NFS look for new files
                continue
            try:
                self.results[number] = job.result()
            except (FailedJobError, UncompletedJobError) as error:
                self._lose(number, _last_words(str(error)))

    def _ask(self, now: float) -> None:
        """Ask where the jobs are, and note which are over."""
        try:
            self.states = self.scheduler.states()
        except SlurmSilent as error:
            if self.answers:
                tell([f"SLURM does not answer ({error}): waiting. Results that come meanwhile are taken."])
            self.answers = False
            return
        if not self.answers:
            tell(["SLURM answers again."])
        self.answers = True
        for number in self.open:
            state = self.states.get(self.jobs[number].job_id)
            if state is None or state.is_over or state.never_starts:
                self.over.setdefault(number, now)
            else:
                self.over.pop(number, None)  # such as one that SLURM starts again

    def _give_up(self, now: float) -> None:
        """The jobs that are over and still have no result, after a while, are lost."""
        late = [number for number in self.open if now - self.over.get(number, now) >= GRACE_SECONDS]
        if not late:
            return
        kept = self.scheduler.ended()
        for number in late:
            job_id = self.jobs[number].job_id
            state = self.states.get(job_id) or kept.get(job_id) or State("")
            self._lose(number, *_how(state))
        if not self.open:
            self.scheduler.cancel()  # those that would never start

    def _lose(self, number: int, how: str, advice: str = "") -> None:
        job = self.jobs[number]
        log: Path = next((path for path in (job.paths.stderr, job.paths.stdout) if path.exists()), job.paths.folder)
        self.lost[number] = _Loss(f"{how}; job {job.job_id}, log {log}", advice)
        tell([f"Job {job.job_id} ended without a result: {how}. Log: {log}"])

    def _counts(self) -> str:
        """How many jobs wait, run and are over, such as `5 pending (Resources), 2 running, 1 done`."""
        states = [state for number in self.open if (state := self.states.get(self.jobs[number].job_id))]
        held = [state for state in states if state.is_held]
        pending = [state for state in states if state.name == "PENDING" and not state.is_held]
        reasons = ", ".join(sorted({state.reason for state in pending if state.reason not in ("", "None")}))
        counts = {
            "held: they start after `scontrol release`": len(held),
            f"pending{f' ({reasons})' if reasons else ''}": len(pending),
            "running": sum(state.name == "RUNNING" for state in states),
            "ending": len(self.open) - sum(state.name in ("PENDING", "RUNNING") for state in states),
            "done": len(self.results),
            "lost": len(self.lost),
        }
        return f"{self.scheduler}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


@dataclass
class _Said:
    """A line that is said when it changes, now and then. line: the last one, at that time."""

    line: str = ""
    at: float = -REPEAT_SECONDS

    def say(self, line: str, now: float) -> None:
        pause = SAY_SECONDS if line != self.line else REPEAT_SECONDS
        if now - self.at >= pause:
            self.line, self.at = line, now
            tell([line])


def _how(state: State) -> tuple[str, str]:
    """(how a job ended, what to do about it)."""
    if state.never_starts:
        return f"SLURM would never start it ({state.reason})", advice(state.reason)
    where = f" on {state.nodes}" if state.nodes and state.nodes not in ("None assigned", "(null)") else ""
    what, remedy = ENDS.get(state.name, ("SLURM no longer knows it", ""))
    return f"{what}{where}" + (f" ({state.name})" if state.name in ENDS else ""), remedy


def _summary(lost: Mapping[int, _Loss], jobs: int) -> str:
    """What to do about lost jobs. jobs: how many there were."""
    advice = list(dict.fromkeys(one.advice for one in lost.values() if one.advice))
    head = f"{len(lost)} of {counted(jobs, 'job')} ended without a result."
    return " ".join([head, *advice, AGAIN])


def _last_words(trace: str) -> str:
    """The message at the end of a traceback in submitit's error."""
    lines = [line.strip() for line in trace.splitlines()]
    inside = lines[: lines.index("-" * 22, 2)] if lines.count("-" * 22) > 1 else lines
    last = next((line for line in reversed(inside) if line), "no message")
    return last.removeprefix("retrievers.base.Failed: ")


def _cancelled(scheduler: Scheduler) -> None:
    """Cancel the jobs and wait for their end, a little: what they leave unfinished is closed after it."""
    scheduler.cancel()
    until = time.monotonic() + CANCEL_SECONDS
    with suppress(SlurmSilent):
        while time.monotonic() < until and not all(state.is_over for state in scheduler.states().values()):
            time.sleep(LOOK_SECONDS / 2)
