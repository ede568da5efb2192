"""Run commands in a folder: in a fork of this process, with everything imported, or in a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring import Child, harness_here

BIN = Path(sysconfig.get_path("scripts"))
SECONDS = 120.0  # the most for a command
AGAIN = 10.0  # seconds after which a server is interrupted once more
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+\S*")
INTERRUPTED = 130
FOR_A_SHELL = {"|", ">", "<", ";", "&", "&&", "||", ">>"}


@dataclass(frozen=True)
class Done:
    """A command that has ended. code: None if it took too long. seconds: of a processor."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return f"{self.out}\n{self.err}"


def call(command: str, folder: Path, environment: Mapping[str, str], *, shell: bool = False) -> Done:
    """Run a command line like a shell in this folder. A server is stopped once it answers.

    shell: whether a shell runs it; pipes and variables always need one.
    """
    words = shlex.split(command, comments=True)
    marks = FOR_A_SHELL & {*shlex.shlex(command, posix=True, punctuation_chars=True)} or "$" in command
    shell = bool(shell or marks or not program(words[0], folder, environment))
    in_shell = lambda: os.execve("/bin/sh", ["sh", "-c", command], environment)  # noqa: E731
    run = in_shell if shell else lambda: harness_here(words[1:])
    with tempfile.TemporaryDirectory() as said:
        return _ended(Child.start(run, folder, environment, Path(said)), serves=not shell and serves(words[1:]))


def program(word: str, folder: Path, environment: Mapping[str, str]) -> bool:
    """Return whether the first word of a command line is this installation's `harness`, seen from this folder."""
    path = environment["PATH"] if "/" not in word else None
    found = shutil.which(word if path else str(folder / word), path=path)
    return bool(found) and Path(found).resolve() == (BIN / "harness").resolve()


def serves(words: Sequence[str]) -> bool:
    reviews = words[:2] == ["testset", "review"] and not any(one.startswith("via=") for one in words)
    return words[:1] == ["ui"] or reviews


def _ended(child: Child, *, serves: bool = False) -> Done:
    """Wait for a command; kill it if it takes too long. A server that answers is interrupted: code 0."""
    until, interrupt = time.monotonic() + SECONDS, 0.0
    while not child.ended():
        if time.monotonic() > until:
            child.kill()
            os.waitpid(child.pid, 0)
            return Done(None, *child.said(), SECONDS)
        found = ADDRESS.findall(child.said()[0]) if serves and time.monotonic() > interrupt else []
        if found and (interrupt or _answers(found[0])):
            child.kill(signal.SIGINT)
            interrupt = time.monotonic() + AGAIN
        time.sleep(0.02)
    code = 0 if interrupt and child.code == INTERRUPTED else child.code
    return Done(code, *child.said(), child.processor)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10) as page:
            return bool(page.read(1))
    except OSError:
        return False
