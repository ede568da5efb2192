"""Sweeps on a SLURM of this machine, with workers, jobs and nodes killed at random: what is left, and how soon it ends.

    python scripts/kill_slurm.py                              # 200 trials, no accounting
    python scripts/kill_slurm.py --accounting --kills=6 --seed=1
    python scripts/kill_slurm.py --trials=40 --kills=2        # a short one

Each start of the sweep suffers kills of three kinds, in turn: `kill -9` of a worker, `scancel` of an element of the
array, and a node whose `slurmd` and workers are killed and started again later. The same command follows until it ends
with 0, the last time without kills. Then every trial must have FINISHED once, none twice, and none be left RUNNING.
Before that, one start is interrupted by SIGINT, and one outlives a restart of SLURM's controller. Needs what
slurm_here.py needs, and the extra `slurm`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import slurm_here
from slurm_here import Place

from harness.tracking.mlflow_tracker import MlflowTracker

PATIENCE = 60.0  # seconds


@dataclass
class Campaign:
    """folder: of the sweep's outputs. place: of SLURM. dice: decides what is killed, and when."""

    folder: Path
    place: Place
    trials: int
    dice: random.Random

    def start(self) -> subprocess.Popen[str]:
        """The sweep, always the same command."""
        words = [
            "tokenizer=whitespace",
            "gate=score",
            f"gate.threshold=range(0,{self.trials})",
            "experiment_name=kills",
        ]
        launcher = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=20", "hydra.launcher.signal_delay_s=5"]
        program = [sys.executable, "-c", "from harness.cli import main; main()", "sweep"]
        with (self.folder / "sweep.log").open("a") as log:
            return subprocess.Popen(
                [*program, *words, *launcher, "trials_per_job=25"],
                cwd=self.folder, env=self.place.environment, stdout=log, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def log(self) -> str:
        """The end of what the sweep has printed."""
        return "".join((self.folder / "sweep.log").read_text().splitlines(keepends=True)[-60:])

    def statuses(self) -> Counter[str]:
        """Status -> runs of trials with it; `twice`: trials that have FINISHED more than once."""
        tracker = MlflowTracker()
        tracker.connect(self.folder / "outputs")
        runs = tracker.runs("kills", {"harness.verb": "run"})
        finished = Counter(run.tags["trial_key"] for run in runs if run.status == "FINISHED")
        return Counter(run.status for run in runs) + Counter(twice=sum(count > 1 for count in finished.values()))

    def workers(self) -> list[int]:
        """The processes that run trials."""
        return [
            pid
            for pid in slurm_here.processes()
            if slurm_here.content(pid, "comm").startswith("python")
            and "submitit.core._submit" in slurm_here.content(pid, "cmdline")
            and slurm_here.belongs(pid, self.place.folder)
        ]

    def elements(self) -> list[str]:
        """Elements of arrays that wait or run, such as 12_3."""
        return self.place.ask("squeue", "-h", "-r", "-o", "%i").stdout.split()

    def kill_worker(self) -> str:
        worker = self.dice.choice(self.workers())
        slurm_here.kill(worker)
        return f"kill -9 of worker {worker}"

    def cancel_element(self) -> str:
        element = self.dice.choice(self.elements())
        self.place.ask("scancel", element)
        return f"scancel {element}"

    def kill_node(self) -> str:
        """The node comes back two seconds later."""
        number = self.dice.randint(1, self.place.nodes)
        self.place.stop(f"slurmd{number}", signal.SIGKILL)
        for step in slurm_here.steps(self.place):
            if f"SLURMD_NODENAME=n{number}" in slurm_here.content(step, "environ"):
                slurm_here.kill(step)
        for worker in self.workers():
            if f"SLURMD_NODENAME=n{number}" in slurm_here.content(worker, "environ").split("\0"):
                slurm_here.kill(worker)
        time.sleep(2)
        self.place.start_node(number)
        return f"node n{number} killed and started again"

    def one_start(self, kills: int, kinds: list[str]) -> int:
        """Run the command once, with kills of these kinds in turn; returns its exit code."""
        child = self.start()
        began = time.monotonic()
        for _ in range(kills):
            if not slurm_here.with_patience(lambda: bool(self.workers()) or child.poll() is not None, 60):
                break
            self.wait_for_a_moment(child)
            if child.poll() is not None or not (self.workers() and self.elements()):
                break
            print(f"  {time.monotonic() - began:5.1f} s: {getattr(self, kinds[0])()}")
            kinds.append(kinds.pop(0))
        code = self.ended(child)
        print(f"  exit {code} after {time.monotonic() - began:.0f} s")
        return code

    def wait_for_a_moment(self, child: subprocess.Popen[str]) -> None:
        """Until workers are somewhere in their imports and retrieval, or have just ended a trial."""
        if self.dice.random() < 0.3:
            time.sleep(self.dice.uniform(0, 7))
            return
        before = self.written()
        slurm_here.with_patience(lambda: self.written() > before or child.poll() is not None, 30)
        time.sleep(self.dice.uniform(0, 0.5))

    def written(self) -> int:
        """Bytes that the workers have written to the sweep's journal."""
        return sum(path.stat().st_size for path in self.folder.glob("outputs/sweeps/*/journal.jsonl"))

    def ended(self, child: subprocess.Popen[str]) -> int:
        """The exit code. The sweep must end within a minute after its last job."""
        emptied = time.monotonic()
        while child.poll() is None:
            if self.elements():
                emptied = time.monotonic()
            elif time.monotonic() - emptied > PATIENCE:
                os.killpg(child.pid, signal.SIGKILL)
                sys.exit(f"{self.log()}The sweep still waits {PATIENCE:.0f} s after its last job.")
            time.sleep(0.5)
        print(f"  ended {time.monotonic() - emptied:.0f} s after its last job")
        return child.returncode

    def interrupt(self) -> None:
        """Ctrl-C while jobs run."""
        child = self.start()
        slurm_here.with_patience(lambda: len(self.workers()) > 1, 60)
        time.sleep(self.dice.uniform(1, 6))
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        slurm_here.with_patience(lambda: not self.elements(), 60)
        gone = time.monotonic() - began
        code = self.ended(child)
        print(f"  exit {code}; no job left after {gone:.1f} s, ended after {time.monotonic() - began:.1f} s")
        if code != 130 or self.workers():
            sys.exit("The interrupted sweep left workers, or ended with another code than 130.")

    def restart_controller(self) -> int:
        """The controller goes away for 20 seconds while jobs run."""
        child = self.start()
        slurm_here.with_patience(lambda: bool(self.workers()), 60)
        self.place.stop("slurmctld")
        time.sleep(20)
        self.place.start_controller()
        code = self.ended(child)
        print(f"  exit {code}")
        return code


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounting", action="store_true")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=3, help="at most, in each of the starts that suffer them")
    parser.add_argument("--starts", type=int, default=3, help="that suffer kills")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder / "slurm")
        slurm_here.up(place, given.accounting)
        try:
            run(Campaign(folder, place, given.trials, random.Random(given.seed)), given)
        finally:
            slurm_here.down(place)


def run(campaign: Campaign, given: argparse.Namespace) -> None:
    print("interrupted by SIGINT:")
    campaign.interrupt()
    print(f"  {dict(campaign.statuses())}")
    kinds = ["kill_worker", "cancel_element", "kill_node"]
    for number in range(1, given.starts + 1):
        print(f"start {number}, with kills:")
        code = campaign.one_start(given.kills, kinds)
        print(f"  {dict(campaign.statuses())}")
        if code == 0:
            break
    print("while the controller restarts:")
    campaign.restart_controller()
    print(f"  {dict(campaign.statuses())}")
    print("the same command, without kills:")
    code = campaign.one_start(0, kinds)
    found = campaign.statuses()
    print(f"  {dict(found)}")
    if code or found["FINISHED"] != given.trials or found["twice"] or found["RUNNING"]:
        sys.exit(f"{campaign.log()}Expected exit 0 and {given.trials} FINISHED once.")
    print(f"{given.trials} trials FINISHED once.")


if __name__ == "__main__":
    main(sys.argv[1:])
