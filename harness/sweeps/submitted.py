"""Start jobs with submitit, on SLURM or on this machine, and wait for them. The wait always ends.

submitit waits until `sacct` says that a job is over. Without SLURM's accounting, it never learns of a killed job.
This module asks `squeue`, which forgets a job some minutes after its end (SLURM's MinJobAge), and then `sacct`. A job
that is over, or that neither command knows, counts as lost if no result appears within GRACE_SECONDS.
"""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

SECONDS = 60.0  # time for a command of SLURM to answer
COMMANDS = ("sbatch", "srun", "squeue", "scancel")
UNKNOWN_JOB = "Invalid job id specified"
NO_ACCOUNTS = "accounting storage is disabled"
NODE = "To keep jobs off a node: hydra.launcher.exclude=NODE."

ENDS = {  # SLURM's state of a job that is over -> (meaning, what to do)
    "BOOT_FAIL": ("its node did not start", NODE),
    "CANCELLED": ("it was cancelled", ""),
    "COMPLETED": ("SLURM says that it completed", "All nodes must share the outputs folder."),
    "DEADLINE": ("its deadline had passed", ""),
    "FAILED": ("its process ended or was killed", "The log may say why."),
    "NODE_FAIL": ("its node failed", NODE),
    "OUT_OF_MEMORY": ("it needed more memory than it had", "Give more memory: hydra.launcher.mem_gb=32."),
    "PREEMPTED": ("jobs of higher priority took its place", "Try another hydra.launcher.partition or qos."),
    "TIMEOUT": (
        "it ran out of time",
        "Allow more time or make jobs smaller: hydra.launcher.timeout_min=240 trials_per_job=5.",
    ),
}
FEATURES = "`sinfo -o %f` lists the features of the nodes; require one with hydra.launcher.constraint=NAME."
ADVICE = {  # part of SLURM's message, in lower case and without blanks -> what to do
    "partitionname": "`sinfo` lists the partitions; choose one with hydra.launcher.partition=NAME.",
    "account": "`sacctmgr show associations user=$USER` lists your accounts; set hydra.launcher.account=NAME.",
    "qos": "`sacctmgr show qos` lists the qualities of service; choose one with hydra.launcher.qos=NAME.",
    "feature": FEATURES,
    "constraint": FEATURES,
    "(gres)": "`sinfo -o %G` lists the generic resources of the nodes; request one with hydra.launcher.gres=NAME.",
    "array": "Put more trials into a job: trials_per_job=100.",
    "timelimit": "`sinfo -o '%P %l'` lists the time limits; set hydra.launcher.timeout_min=MINUTES.",
    "nodeconfig": "`sinfo -o '%P %c %m'` lists CPUs and MB of nodes; set hydra.launcher.cpus_per_task and mem_gb.",
    "configurationsource": "Start the sweep on a machine of the cluster, or set SLURM_CONF.",
    "contact": "Use a machine of the cluster, and see whether its controller is up: `scontrol ping`.",
}
NEVER = (  # reasons why a job would never start, unless the cluster changes
    "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS",
    "PartitionNodeLimit", "PartitionTimeLimit", "not permitted to use this partition",
)  # fmt: skip
# Parts of sbatch's message about a job that SLURM takes but cannot start yet.
FOR_NOW = ("not available now", "down, drained", "partition not available", "is busy")
SILENT = ("contact slurm controller", "timed out")  # words that commands print if the controller does not answer

LOOK_SECONDS = 1.0  # time between two checks for results
ASK_SECONDS = 10.0  # time between two questions to SLURM's controller, which serves many users
GRACE_SECONDS = 15.0  # time for a finished job's result to appear, since clusters' file systems show files late
CANCEL_SECONDS = 8.0  # time for a cancelled job to end; its process stops within 1 or 2 s
AGAIN = "Repeat the same command to run the missing trials."


class SlurmSilent(Exception):
    """Raised if SLURM does not answer, for example while its controller restarts. The text is SLURM's message."""


@dataclass(frozen=True)
class State:
    """The state of a job. name: SLURM's word, such as RUNNING. nodes: the nodes of the job. reason: why it waits."""

    name: str
    nodes: str = ""
    reason: str = ""

    @property
    def is_over(self) -> bool:
        return self.name in ENDS or self.name == "REVOKED"

    @property
    def never_starts(self) -> bool:
        return self.name == "PENDING" and any(word in self.reason for word in NEVER)

    @property
    def how(self) -> tuple[str, str]:
        if self.never_starts:
            return f"SLURM would never start it ({self.reason})", advice(self.reason)
        if self.name not in ENDS:
            return "SLURM no longer knows it", ""
        what, remedy = ENDS[self.name]
        where = f" on {self.nodes}" if self.nodes not in ("", "None assigned", "(null)") else ""
        return f"{what}{where} ({self.name})", remedy


def try_submission(script: str) -> None:
    """Raise BadInput with SLURM's answer if SLURM would never take the job, and Failed if SLURM does not answer."""
    try:
        asked = _run(["sbatch", "--test-only"], script)
    except SlurmSilent as error:
        raise Failed(f"SLURM does not answer: {error}.") from None
    said = last_words(asked.stderr)
    if asked.returncode == 0 or any(one in said for one in FOR_NOW):
        return
    if any(one in said for one in SILENT):
        raise Failed(f"SLURM does not answer: {said}. {advice(said)}".rstrip())
    raise BadInput(f"SLURM would not take a job of this sweep: {said}. {advice(said)}".rstrip())


def advice(said: str) -> str:
    blank_free = "".join(said.lower().split())
    return next((text for one, text in ADVICE.items() if one in blank_free), "")


def states(array: str) -> dict[str, State]:
    """Return the state of each array element in the queue. Elements are named `12_3`; a single job is named `12`."""
    asked = _run(["squeue", "--array", "--noheader", "--states=all", f"--jobs={array}", "--format=%i|%T|%N|%r"])
    if asked.returncode == 0:
        return _parsed(asked.stdout)
    if UNKNOWN_JOB not in asked.stderr:
        raise SlurmSilent(last_words(asked.stderr))
    return {}


def ended(array: str) -> dict[str, State]:
    """Return the last state of each array element, from SLURM's accounting; {} if the cluster has no accounting."""
    columns = "--format=JobID,State,NodeList"
    try:
        asked = _run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={array}", columns])
    except (FileNotFoundError, SlurmSilent):
        return {}
    return {} if asked.returncode or NO_ACCOUNTS in asked.stderr else _parsed(asked.stdout)


def cancel(array: str) -> None:
    """Cancel all elements of an array. Tell the user if SLURM does not cancel them."""
    try:
        asked = _run(["scancel", array])
        said = "" if asked.returncode == 0 or UNKNOWN_JOB in asked.stderr else last_words(asked.stderr)
    except SlurmSilent as error:
        said = str(error)
    if said:
        tell([f"SLURM did not cancel job {array}: {said}. Do it by hand: scancel {array}"])


def _parsed(lines: str) -> dict[str, State]:
    """Parse lines of the form element|state|nodes|reason. A state may be `CANCELLED by 1000`."""
    found = {}
    for line in lines.splitlines():
        fields = [field.strip() for field in line.split("|", maxsplit=3)]
        if len(fields) >= 3 and fields[1]:
            found[fields[0]] = State(fields[1].split()[0].rstrip("+"), *fields[2:])
    return found


def last_words(said: str) -> str:
    """Return the last line of a command's standard error, without the command's name."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Try ")]
    words = "no message" if not lines else lines[-1]
    return re.sub(r"^(\w+: (error|fatal): |allocation failure: |Batch job submission failed: )+", "", words).rstrip(".")


def _run(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise SlurmSilent(f"{command[0]} gave no answer in {SECONDS:.0f} s") from None


@dataclass(frozen=True)
class Element:
    """One job of the sweep: submitit sends it to a worker and calls it there.

    Before SLURM ends a job, it sends SIGTERM (cancelled, preempted) or SIGUSR2 (out of time). submitit ignores SIGTERM.
    On SIGUSR2, it raises an error, which a trial would record as its own. With this class, both signals end the job.
    """

    launcher: BaseSubmititLauncher

    def __call__(self, overrides: list[str], number: int, state: Any) -> JobReturn:
        from submitit import JobEnvironment
        from submitit.core.utils import UncompletedJobError

        interruption.listen()
        warning = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
        plain, reasons = signal.getsignal(warning), list[str]()

        def warned(received: int, frame: Any) -> None:
            try:
                if callable(plain):
                    plain(received, frame)  # puts the job back into the queue and exits
            except UncompletedJobError as error:
                reasons.append(str(error))
                raise interruption.Terminated from None

        signal.signal(warning, warned)
        try:
            return self.launcher(overrides, "hydra.sweep.dir", number, f"job_id_for_{number}", state)
        except interruption.Terminated:
            if reasons:
                raise Failed(f"its time was over ({reasons[0]})") from None
            raise

    def checkpoint(self, *arguments: Any) -> Any:
        """Return the job for SLURM's next attempt, which skips finished trials."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)


class Submitted:
    """Launches the jobs of a sweep with submitit. launcher: set up by Hydra's plugin."""

    def __init__(self, launcher: BaseSubmititLauncher) -> None:
        self._launcher = launcher
        self._on_slurm = launcher._EXECUTOR == "slurm"

    def check(self) -> None:
        """Raise BadInput if SLURM is missing or would not take the jobs, and Failed if it does not answer."""
        if not self._on_slurm:
            return
        if missing := [name for name in COMMANDS if shutil.which(name) is None]:
            raise BadInput(
                f"hydra/launcher=submitit_slurm needs SLURM's commands, and PATH has no {' or '.join(missing)}. Start "
                "the sweep on a machine of the cluster, or choose hydra/launcher=submitit_local, joblib or ray."
            )
        try_submission(self._executor()._executor._make_submission_file_text("true", "try"))

    def launch(self, overrides: list[list[str]], first: int) -> list[JobReturn]:
        """Submit the jobs and wait for them. Cancel them on an interruption. first: the number of the first job."""
        from hydra.core.singleton import Singleton
        from submitit.core.utils import FailedJobError

        numbers = range(first, first + len(overrides))
        state = [Singleton.get_state() for _ in numbers]
        try:
            jobs = self._executor().map_array(Element(self._launcher), overrides, numbers, state)
        except FailedJobError as error:  # raised by sbatch
            said = last_words(str(error))
            raise Failed(f"SLURM does not take the jobs: {said}. {advice(said)}".strip()) from None
        waiting = Waiting(dict(zip(numbers, jobs, strict=True)), self._on_slurm)
        try:
            waiting.wait()
        except BaseException:
            waiting.cancel()
            raise
        if lost := waiting.lost:
            remedies = dict.fromkeys(remedy for _, remedy in lost.values() if remedy)
            head = f"{len(lost)} of {counted(len(jobs), 'job')} ended without a result."
            raise JobsLost(" ".join([head, *remedies, AGAIN]), {number: how for number, (how, _) in lost.items()})
        return [waiting.results[number] for number in numbers]

    def _executor(self) -> Any:
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
        from submitit import AutoExecutor

        kind, given = self._launcher._EXECUTOR, dict(self._launcher.params)
        place = Path(given.pop("submitit_folder"))
        folder = place.parent / secrets.token_hex(4) / place.name  # a new folder, since submitit executes files in it
        if self._on_slurm:  # jobs may not inherit this process's environment
            given["setup"] = [*(f"export {name}={value}" for name, value in SAFE.items()), *(given.get("setup") or ())]
        retries = {f"{kind}_{name}": given.pop(name) for name in ("max_num_timeout",) if name in given}
        executor = AutoExecutor(folder=folder, cluster=kind, **retries)
        common = BaseQueueConf.__dataclass_fields__
        executor.update_parameters(
            **{name if name in common else f"{kind}_{name}": value for name, value in given.items()}
        )
        return executor


@dataclass
class Waiting:
    """Waits for jobs, which are the elements of one SLURM array or processes of this machine.

    lost: job number -> (how the job ended without a result, what to do). said: the last printed line about states.
    over: job number -> when the job was first found to be over, unable to start, or missing from SLURM's list.
    """

    jobs: Mapping[int, Job[Any]]
    on_slurm: bool
    results: dict[int, Any] = field(default_factory=dict)
    lost: dict[int, tuple[str, str]] = field(default_factory=dict)
    over: dict[int, float] = field(default_factory=dict)
    answers: bool = True
    said: str = ""

    @property
    def open(self) -> list[int]:
        return [number for number in self.jobs if number not in self.results and number not in self.lost]

    @property
    def array(self) -> str:
        return next(iter(self.jobs.values())).job_id.partition("_")[0]

    def wait(self) -> None:
        """Collect results until every job has a result or is lost."""
        asking = time.monotonic() + 2 * LOOK_SECONDS
        while self.open:
            self._collect()
            if self.open and time.monotonic() >= asking:
                asking = time.monotonic() + ASK_SECONDS
                self._ask()
            if self.open:
                time.sleep(LOOK_SECONDS)

    def cancel(self) -> None:
        """Cancel the jobs, and wait up to CANCEL_SECONDS for their end. Then the caller can close their runs."""
        self._end()
        until = time.monotonic() + CANCEL_SECONDS
        with suppress(SlurmSilent):
            while time.monotonic() < until and not all(state.is_over for state in self._states().values()):
                time.sleep(LOOK_SECONDS / 2)

    def _end(self) -> None:
        if self.on_slurm:
            cancel(self.array)
            return
        for job in self.jobs.values():
            with suppress(ProcessLookupError):
                job.cancel(check=False)

    def _states(self) -> dict[str, State]:
        if self.on_slurm:
            return states(self.array)
        # Only the states of jobs without a result matter here: such a job failed if it has finished.
        names = {"RUNNING": "RUNNING", "FINISHED": "FAILED"}
        return {job.job_id: State(names.get(job.state, "CANCELLED")) for job in self.jobs.values()}

    def _collect(self) -> None:
        from submitit.core.utils import FailedJobError

        for number in self.open:
            job = self.jobs[number]
            if not any(job.paths.folder.glob("*_result.pkl")):  # listing the folder makes NFS look for new files
                continue
            try:
                self.results[number] = job.result()
            except FailedJobError as error:  # its text holds the traceback between two lines of dashes
                trace = str(error).split("-" * 22 + "\n")[1].strip()
                self._lose(number, trace.rpartition("\n")[2].removeprefix("harness.errors.Failed: "))

    def _ask(self) -> None:
        try:
            known = self._states()
        except SlurmSilent as error:
            if self.answers:
                tell([f"SLURM does not answer ({error}): waiting. Results are still collected."])
            self.answers = False
            return
        if not self.answers:
            tell(["SLURM answers again."])
        self.answers, now = True, time.monotonic()
        of = {number: known.get(self.jobs[number].job_id) for number in self.open}
        gone = [number for number, state in of.items() if state is None or state.is_over or state.never_starts]
        # A job that SLURM has started again is not in `gone`, so its time is dropped from `over`.
        self.over = {number: self.over.get(number, now) for number in gone}
        self._say({number: state for number, state in of.items() if state})
        if late := [number for number in gone if now - self.over[number] >= GRACE_SECONDS]:
            last = (ended(self.array) if self.on_slurm else {}) | known
            for number in late:
                self._lose(number, *last.get(self.jobs[number].job_id, State("")).how)
            if not self.open:
                self._end()  # cancels jobs that would never start

    def _lose(self, number: int, how: str, remedy: str = "") -> None:
        job = self.jobs[number]
        log: Path = next((path for path in (job.paths.stderr, job.paths.stdout) if path.exists()), job.paths.folder)
        self.lost[number] = f"{how}; job {job.job_id}, log {log}", remedy
        tell([f"Job {job.job_id} ended without a result: {how}. Log: {log}"])

    def _say(self, known: Mapping[int, State]) -> None:
        pending = [state for state in known.values() if state.name == "PENDING"]
        running = sum(state.name == "RUNNING" for state in known.values())
        reasons = ", ".join(sorted({state.reason for state in pending if state.reason not in ("", "None")}))
        counts = {
            f"pending{f' ({reasons})' if reasons else ''}": len(pending),
            "running": running,
            "ending": len(self.open) - len(pending) - running,
            "done": len(self.results),
            "lost": len(self.lost),
        }
        who = f"SLURM job {self.array}" if self.on_slurm else "processes of submitit"
        line = f"{who}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        if line != self.said:
            self.said = line
            tell([line])
