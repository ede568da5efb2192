"""Commands in a folder: in a child of this process, which has imported everything already, or in a shell."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

BIN = Path(sysconfig.get_path("scripts"))
SECONDS = 120.0  # the most that a command may take
AGAIN = 10.0  # seconds after which a server is interrupted once more
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+\S*")
INTERRUPTED = 130
FOR_A_SHELL = {"|", ">", "<", ";", "&", "&&", "||", ">>"}


@dataclass(frozen=True)
class Done:
    """A command that has ended. code: None if it took too long. out, err: what it printed. seconds: of a processor."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return f"{self.out}\n{self.err}"


def warm_up(folder: Path) -> None:
    """Import what `harness run` imports, in a child first, so that nothing has run in this process."""
    names = folder / "modules"

    def run() -> int:
        code = _main(["run"])
        names.write_text("\n".join(sorted(sys.modules)))
        return code

    with (folder / "log").open("wb") as log:
        child = os.fork()
        if not child:
            _in_child(run, folder, log.fileno(), log.fileno(), dict(os.environ))
        if os.waitpid(child, 0)[1]:
            raise RuntimeError((folder / "log").read_text("utf-8"))
    for name in names.read_text().split():
        try:
            importlib.import_module(name)
        except ImportError:  # made by another module when it is imported, not by a file
            continue


def call(command: str, folder: Path, environment: Mapping[str, str], *, shell: bool = False) -> Done:
    """Run a command line as a shell in this folder would. A server is stopped once it answers.

    shell: whether a shell runs it; one with pipes and variables always runs there.
    """
    words = shlex.split(command, comments=True)
    own = program(words[0], folder, environment)
    if shell or not own or FOR_A_SHELL & {*shlex.shlex(command, posix=True, punctuation_chars=True)} or "$" in command:
        return _in_shell(command, folder, environment)
    return _forked(words[1:], folder, environment)


def program(word: str, folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether the first word of a command line is this installation's `harness` in this folder."""
    path = environment["PATH"] if "/" not in word else None
    found = shutil.which(word if path else str(folder / word), path=path)
    return bool(found) and Path(found).resolve() == (BIN / "harness").resolve()


def _in_shell(command: str, folder: Path, environment: Mapping[str, str]) -> Done:
    return _child(lambda: os.execve("/bin/sh", ["sh", "-c", command], environment), folder, environment, serves=False)


def _forked(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
    return _child(lambda: _main(words), folder, environment, serves=serves(words))


def _child(function: Callable[[], int], folder: Path, environment: Mapping[str, str], *, serves: bool) -> Done:
    with (
        tempfile.TemporaryDirectory() as said,
        (Path(said) / "out").open("w+b") as out,
        (Path(said) / "err").open("w+b") as err,
    ):
        child = os.fork()
        if not child:
            _in_child(function, folder, out.fileno(), err.fileno(), environment)
        code, seconds = _ended(child, Path(out.name), serves=serves)
        printed = ((Path(said) / name).read_text("utf-8", "replace") for name in ("out", "err"))
        return Done(code, *printed, seconds)


def _in_child(
    function: Callable[[], int], folder: Path, out: int, err: int, environment: Mapping[str, str]
) -> NoReturn:
    """Call a function in this folder, and end the process with the code that it returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        code = function()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _main(words: Sequence[str]) -> int:
    """The `harness` command; its exit code."""
    sys.argv = [str(BIN / "harness"), *words]
    try:
        from harness import cli

        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def serves(words: Sequence[str]) -> bool:
    """Whether a command runs until it is interrupted."""
    return words[:1] == ["ui"] or (
        words[:2] == ["testset", "review"] and not any(one.startswith("via=") for one in words)
    )


def _ended(child: int, said: Path, *, serves: bool) -> tuple[int | None, float]:
    """(exit code, seconds of a processor) of a child; the code is 0 for a server that has answered and was then
    interrupted, and None if it was killed since it took too long."""
    until, interrupt = time.monotonic() + SECONDS, 0.0
    while not (ended := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None, SECONDS
        found = ADDRESS.findall(said.read_text("utf-8")) if serves and time.monotonic() > interrupt else []
        if found and (interrupt or _answers(found[0])):
            os.killpg(child, signal.SIGINT)
            interrupt = time.monotonic() + AGAIN
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(ended[1])
    used = ended[2].ru_utime + ended[2].ru_stime
    return 0 if interrupt and code == INTERRUPTED else code, used


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10) as page:
            return bool(page.read(1))
    except (OSError, urllib.error.URLError):
        return False
