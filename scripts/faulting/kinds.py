"""Ways to disturb a command. Each undoes its disturbance: the command can be run again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measuring import watched

if TYPE_CHECKING:
    from faulting.campaign import Outcome, World
    from faulting.commands import Command

CROWD = 8  # processes at once
LOGGED = (".csv", ".json", ".jsonl", ".trec", ".yaml")  # endings of the files of a run that commands read
SLOWEST_END = 20.0  # seconds from the first of two signals, on a busy machine
REQUESTS = 25  # the server is disturbed after at most so many
NEW = 0.25  # share of commands that are killed in a new interpreter, not in a fork


@dataclass(frozen=True)
class Case:
    """A command about to be disturbed. chance: draws the moment. reference: the undisturbed result."""

    world: World
    words: list[str]
    command: Command
    chance: random.Random
    reference: Outcome

    def run(self, moment: str = "", **about: Any) -> Outcome:
        return self.world.run(self.words, moment, **about)


@dataclass(frozen=True)
class Fault:
    """A way to disturb a command.

    disturb: disturb the command, and undo the disturbance. codes: right exit codes. used: whether the folder must be
        used.
    only, never: names of commands that can, or cannot, be disturbed in this way; empty: no restriction.
    leaves: whether the disturbed command may leave things for the next one to put in order.
    mounts: whether it needs a file system that can be limited.
    """

    disturb: Callable[[Case], list[Outcome]]
    codes: frozenset[int] = frozenset({0, 1, 2})
    used: bool = False
    only: Sequence[str] = ()
    never: Sequence[str] = ()
    leaves: bool = True
    mounts: bool = False

    def fits(self, name: str, command: Command) -> bool:
        served = command.server or self.disturb is not server
        return served and name not in self.never and (not self.only or name in self.only)


def by_signal(number: signal.Signals, case: Case) -> list[Outcome]:
    """Send a signal at a random moment to the process or, like a terminal, to its workers too."""
    chance = case.chance
    moment, new = chance.uniform(0, case.reference.seconds), chance.random() < NEW
    whole = number == signal.SIGINT or chance.random() < 0.5
    child = case.world.start(case.words, fresh_interpreter=new)
    if number != signal.SIGKILL:  # the interpreter itself is still starting
        watched(lambda: child.ended() or _listens(child.pid), 60)
    if not watched(child.ended, moment):
        child.kill(number, whole or number == signal.SIGKILL)
    about = f"{number.name} after {moment:.2f} s{' of a new interpreter' if new else ''}"
    return [case.world.outcome(child, about + (", to its workers too" if whole else ""))]


def full_disk(case: Case) -> list[Outcome]:
    """Leave too little space for a random part of the files that the command writes."""
    folder, written = case.world.folder, case.reference.bytes
    about = os.statvfs(folder)
    taken, room = (about.f_blocks - about.f_bfree) * about.f_frsize, int(case.chance.uniform(0, written))
    try:
        _mount("-o", f"remount,size={max(taken + room, 1)}", folder)  # 0 would be no limit
        return [case.run(f"{room / 1000:,.0f} kB left of {written / 1000:,.0f}")]
    finally:
        _mount("-o", "remount,size=50%", folder)


def read_only(case: Case) -> list[Outcome]:
    """Make the outputs, the cache, or the whole folder read-only."""
    folder = case.world.folder
    place = case.chance.choice([folder / "outputs", folder / "cache", folder])
    _mount("--bind", place, place)
    try:
        _mount("-o", "remount,bind,ro", place)
        return [case.run(f"{place.name} read-only")]
    finally:
        subprocess.run(["umount", place], check=True)


def damaged_cache(case: Case) -> list[Outcome]:
    """Damage a file of a cache that has all that the command needs. It must be noticed and made again."""
    case.run()
    files = (path for path in (case.world.folder / "cache").rglob("*") if path.is_file() and path.suffix != ".lock")
    path, harm = case.chance.choice(sorted(files)), case.chance.choice([*CACHE_HARMS])
    CACHE_HARMS[harm](path, case.chance)
    moment = f"{path.parent.parent.name}/{path.name} {harm}"
    return [case.world.run(["doctor cache"], moment, compared=False), case.run(moment)]


def edited(case: Case) -> list[Outcome]:
    """Edit a logged file of a run, and put it back afterwards. The command refuses it by name, or does not need it."""
    files = (path for path in (case.world.folder / "outputs").rglob("artifacts/*") if path.suffix in LOGGED)
    path, harm = case.chance.choice(sorted(files)), case.chance.choice([*FILE_HARMS])
    before = path.read_bytes()
    FILE_HARMS[harm](path, case.chance)
    outcome = case.run(f"{path.name} of a run {harm}")
    if path.is_dir():
        path.rmdir()
    path.write_bytes(before)
    return [outcome]


def silent_service(case: Case) -> list[Outcome]:
    """Let a search service fall silent; send the waiting command a signal, and soon another."""
    number, gap = case.chance.choice([signal.SIGINT, signal.SIGTERM]), case.chance.uniform(0, 2)
    world = case.world
    shutil.rmtree(world.folder / "cache", ignore_errors=True)  # or the service would not be needed
    world.asked.clear()
    world.answers.clear()
    child = world.start(case.words, fresh_interpreter=case.chance.random() < NEW)
    watched(lambda: world.asked.is_set() or child.ended(), 60)
    began = time.monotonic()
    for pause in (case.chance.uniform(0, 1), gap):
        time.sleep(pause)
        if not child.ended():
            child.kill(number, whole=False)
    outcome = world.outcome(child)
    took = time.monotonic() - began
    world.answers.set()
    outcome.moment = f"{number.name} twice within {gap:.1f} s, ended after {took:.1f} s"
    outcome.code = outcome.code if took < SLOWEST_END else 124
    return [outcome]


def damaged_database(case: Case) -> list[Outcome]:
    """Damage MLflow's database, and put it back afterwards."""
    database = case.world.folder / "outputs" / "mlflow.db"
    harm = case.chance.choice([*FILE_HARMS, "another program's"])
    if harm in FILE_HARMS:
        FILE_HARMS[harm](database, case.chance)
    else:
        database.unlink()
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE notes (text)")
    outcome = case.run(f"database {harm}", compared=False)  # a flipped bit may be in a name or a number
    for path in database.parent.glob("mlflow.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (case.world.template / "outputs").glob("mlflow.db*"):
        shutil.copyfile(path, database.parent / path.name)
    return [outcome]


def crowd(case: Case) -> list[Outcome]:
    children = [case.world.start(case.words) for _ in range(CROWD)]
    alone = case.words[0] in ("sweep", "prepare")  # only one process at a time may do these
    allowed = frozenset({0, 2} if alone else {0})
    return [case.world.outcome(child, f"{CROWD} at once", allowed=allowed) for child in children]


def server(case: Case) -> list[Outcome]:
    """Let a tracking server, after some requests, die, fail, slow down or not answer."""
    from faulting.proxy import MODES

    proxy, after = case.world.proxy, case.chance.randrange(REQUESTS)
    case.world.environment = {
        "MLFLOW_TRACKING_URI": proxy.address, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    }  # fmt: skip
    proxy.mode, proxy.after = case.chance.choice(MODES), after
    outcome = case.run(f"{proxy.mode} after {after} requests")
    proxy.mode = ""
    return [outcome, case.world.run(["doctor sync"], "doctor sync", allowed=frozenset({0}), compared=False)]


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    for _ in range(chance.choice([1, 1, 8, 200])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _to_folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


FILE_HARMS: dict[str, Callable[[Path, random.Random], Any]] = {
    "cut": lambda path, chance: os.truncate(path, int(path.stat().st_size * chance.random())),
    "empty": lambda path, _: path.write_bytes(b""),
    "with flipped bits": _flip,
    "a folder": _to_folder,
    "another text": lambda path, _: path.write_text("[]"),
    "not UTF-8": lambda path, _: path.write_bytes(b"\xff\xfe{}"),
    "with more at its end": lambda path, _: path.write_bytes(path.read_bytes() + b"more"),
}
CACHE_HARMS = FILE_HARMS | {"gone": lambda path, _: path.unlink()}


def _listens(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


def _signal(number: signal.Signals, code: int) -> Fault:
    return Fault(partial(by_signal, number), frozenset({0, -number, code}), leaves=number == signal.SIGKILL)


CACHED = ["run", "hybrid", "dense", "sweep", "search", "cache", "model", "draft", "chunked", "judge", "advise", "auto"]
FAULTS = {
    "sigkill": _signal(signal.SIGKILL, -9),
    "sigterm": _signal(signal.SIGTERM, 143),
    "sigint": _signal(signal.SIGINT, 130),
    "full": Fault(full_disk, frozenset({0, 1}), mounts=True),
    "readonly": Fault(read_only, mounts=True),
    "server": Fault(server),
    "cache": Fault(damaged_cache, frozenset({0}), used=True, only=[*CACHED, "sharded"]),
    "database": Fault(
        damaged_database, used=True, never=["search", "cache", "prepare", "draft", "judge", "freeze"]
    ),
    "edited": Fault(
        edited, frozenset({0, 2}), used=True,
        only=["compare", "export", "model", "reproduce", "pool", "board", "advise", "power", "standings"],
    ),
    "silence": Fault(
        silent_service, frozenset({130, 143, -signal.SIGINT, -signal.SIGTERM}), only=["remote"], leaves=False
    ),
    "crowd": Fault(crowd, never=["joblib"], leaves=False),
}  # fmt: skip
