"""SLURM's commands as scripts on PATH that answer from files, so that tests need no SLURM."""

import os
from pathlib import Path

SCRIPT = """#!/bin/sh
echo "$@" >> {folder}/{name}.calls
n=$(grep -c '' {folder}/{name}.calls)
[ -e {folder}/{name}.$n.code ] || n=last
cat {folder}/{name}.$n.err >&2
cat {folder}/{name}.$n.out
exit $(cat {folder}/{name}.$n.code)
"""
NO_SUCH_JOB = "slurm_load_jobs error: Invalid job id specified"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
NO_ACCOUNTS = "Slurm accounting storage is disabled"


class FakeSlurm:
    """A cluster that takes each array as job 12 and, unless told otherwise, keeps no accounts and knows no job."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("sbatch", "srun", "squeue", "sacct", "scancel"):
            script = folder / name
            script.write_text(SCRIPT.format(folder=folder, name=name))
            script.chmod(0o755)
            self.answers(name)
        self.answers("sbatch", "Submitted batch job 12")
        self.answers("squeue", err=NO_SUCH_JOB, code=1)
        self.answers("sacct", err=NO_ACCOUNTS, code=1)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def answers(self, name: str, out: str = "", err: str = "", code: int = 0, call: int | str = "last") -> None:
        """What a command says. call: at which call, from 1, where it is another answer than at all others."""
        for ending, text in (("out", out), ("err", err), ("code", code)):
            (self.folder / f"{name}.{call}.{ending}").write_text(f"{text}\n")

    def calls(self, name: str) -> list[str]:
        """The arguments of each call of a command."""
        file = self.folder / f"{name}.calls"
        return file.read_text().splitlines() if file.is_file() else []
