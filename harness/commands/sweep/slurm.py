"""What SLURM says of a job array, asked of its own commands: which elements wait, run or are over, and why.

`squeue` knows every element until some minutes after its end (SLURM's MinJobAge), with or without accounting; `sacct`
knows older ones, where a cluster keeps accounts. So an element that neither knows is over.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import BadInput, Failed

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


def check() -> None:
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
        said = words(asked.stderr)
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
        raise SlurmSilent(words(asked.stderr))
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
    return "" if gone else words(asked.stderr)


def _parsed(lines: str) -> dict[str, State]:
    """The states in lines of element|state|nodes|reason, of which `CANCELLED by 1000` has a word too many."""
    found = {}
    for line in lines.splitlines():
        fields = [field.strip() for field in line.split("|", maxsplit=3)]
        if len(fields) >= 3 and fields[1]:
            found[fields[0]] = State(fields[1].split()[0].rstrip("+"), *fields[2:])
    return found


def words(said: str) -> str:
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
