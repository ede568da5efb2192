"""The ways in which a command is disturbed. Each undoes its disturbance, so that the command can be run again."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from faulting.campaign import Outcome, Reference, World
    from faulting.commands import Command

CROWD = 8  # processes at once
LOGGED = (".csv", ".json", ".jsonl", ".trec", ".yaml")  # endings of files that commands read of a run
SLOWEST_END = 20.0  # seconds from the first of two signals, on a busy machine
LIMIT_OF_SILENCE = 300.0  # seconds
REQUESTS = 25  # the server is disturbed at the latest after so many
NEW = 0.25  # share of commands that are killed in a new interpreter, not in a fork


class Skipped(Exception):
    """The fault is not possible here; the message says why."""


class Fault:
    """codes: exit codes that a disturbed command may have. used: whether it needs a used folder."""

    codes = frozenset({0, 1, 2})
    used = False

    def fits(self, name: str, command: Command) -> bool:
        return True

    def words(self, command: Command, case: str) -> list[str]:
        """The command line in a case."""
        return command.words

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        """Run the command disturbed, and undo the disturbance."""
        raise NotImplementedError

    def left_at_once(self, world: World, command: Command) -> list[str]:
        """What the disturbed command must not have left, before anything is run again."""
        return []

    def close(self) -> None:
        """Stop what was started for all cases."""


class Signal(Fault):
    """A signal at a random moment: to the process, or as a terminal sends it, to its workers as well."""

    def __init__(self, number: signal.Signals, code: int) -> None:
        self.number, self.codes = number, frozenset({0, -number, code})

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        moment, new = chance.uniform(0, reference.seconds), chance.random() < NEW
        whole = self.number == signal.SIGINT or chance.random() < 0.5
        child = world.start(words, fresh_interpreter=new)
        while self.number != signal.SIGKILL and not child.ended() and not _listens(child.pid):
            time.sleep(0.005)  # the interpreter itself is still starting
        began = time.monotonic()
        while not child.ended() and time.monotonic() < began + moment:
            time.sleep(0.005)
        if not child.ended():
            (os.killpg if whole or self.number == signal.SIGKILL else os.kill)(child.pid, self.number)
        about = f"{self.number.name} after {moment:.2f} s{' of a new interpreter' if new else ''}"
        return [child.outcome(about + (", to its workers too" if whole else ""))]

    def left_at_once(self, world: World, command: Command) -> list[str]:
        return [] if self.number == signal.SIGKILL else world.left(temporary=True, cached=not command.resumes)


class FullDisk(Fault):
    """So little space that a random part of what the command writes does not fit."""

    codes = frozenset({0, 1})

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        _require_mounts(world)
        about = os.statvfs(world.folder)
        taken, room = (about.f_blocks - about.f_bfree) * about.f_frsize, int(chance.uniform(0, reference.bytes))
        try:
            _mount("-o", f"remount,size={max(taken + room, 1)}", world.folder)  # 0 would be no limit
            outcome = world.run(words)
        finally:
            _mount("-o", "remount,size=50%", world.folder)
        outcome.moment = f"{room / 1000:,.0f} kB left of {reference.bytes / 1000:,.0f}"
        return [outcome]


class ReadOnly(Fault):
    """A read-only folder of outputs, of the cache, or all together."""

    codes = frozenset({0, 1, 2})  # 2: of a folder that the user names

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        _require_mounts(world)
        place = chance.choice([world.folder / "outputs", world.folder / "cache", world.folder])
        _mount("--bind", place, place)
        try:
            _mount("-o", "remount,bind,ro", place)
            outcome = world.run(words)
        finally:
            subprocess.run(["umount", place], check=True)
        outcome.moment = f"{place.name} read-only"
        return [outcome]


class DamagedCache(Fault):
    """A file of a cache that has all that the command needs is damaged. It must be noticed and made again."""

    codes = frozenset({0})
    used = True

    def fits(self, name: str, command: Command) -> bool:
        return name in (
            *("run", "hybrid", "dense", "sweep", "search", "cache", "model", "draft", "chunked"),
            *("judge", "advise", "auto", "sharded"),
        )

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        world.run(words)
        files = sorted(
            path for path in (world.folder / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"
        )
        path, harm = chance.choice(files), chance.choice([*CACHE_HARMS])
        CACHE_HARMS[harm](path, chance)
        outcomes = [world.run(["doctor cache"]), world.run(words)]
        for outcome in outcomes:
            outcome.moment = f"{path.parent.parent.name}/{path.name} {harm}"
        outcomes[0].compared = False
        return outcomes


class Edited(Fault):
    """A file that a run has logged is edited, and afterwards put back. It is refused by name, or not needed."""

    codes = frozenset({0, 2})
    used = True

    def fits(self, name: str, command: Command) -> bool:
        return name in ("compare", "export", "model", "reproduce", "pool", "board", "advise", "power", "standings")

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        files = sorted(path for path in (world.folder / "outputs").rglob("artifacts/*") if path.suffix in LOGGED)
        path, harm = chance.choice(files), chance.choice([*FILE_HARMS])
        before = path.read_bytes()
        FILE_HARMS[harm](path, chance)
        outcome = world.run(words)
        outcome.moment = f"{path.name} of a run {harm}"
        if path.is_dir():
            path.rmdir()
        path.write_bytes(before)
        return [outcome]


class SilentService(Fault):
    """A search service stops answering, and the command that waits for it gets a signal, and soon another."""

    codes = frozenset({130, 143, -signal.SIGINT, -signal.SIGTERM})

    def fits(self, name: str, command: Command) -> bool:
        return name == "remote"

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        number, gap = chance.choice([signal.SIGINT, signal.SIGTERM]), chance.uniform(0, 2)
        shutil.rmtree(world.folder / "cache", ignore_errors=True)  # so that the service is needed
        SERVICE.asked.clear()
        SERVICE.answers.clear()
        child = world.start(words, fresh_interpreter=chance.random() < NEW)
        while not SERVICE.asked.wait(0.05) and not child.ended():
            pass
        began = time.monotonic()
        for pause in (chance.uniform(0, 1), gap):
            time.sleep(pause)
            if not child.ended():
                os.kill(child.pid, number)
        outcome = child.outcome()
        took = time.monotonic() - began
        SERVICE.answers.set()
        outcome.moment = f"{number.name} twice within {gap:.1f} s, ended after {took:.1f} s"
        outcome.code = outcome.code if took < SLOWEST_END else 124
        return [outcome]

    def left_at_once(self, world: World, command: Command) -> list[str]:
        return world.left(temporary=True)


@dataclass(frozen=True)
class Service:
    """What the stand-in of a search service does. asked: it has got a request. answers: whether it answers."""

    asked: threading.Event = field(default_factory=threading.Event)
    answers: threading.Event = field(default_factory=threading.Event)

    def wait(self, _: Any) -> None:
        """For a moment in which a command can be interrupted; without end while the service is silent."""
        self.asked.set()
        time.sleep(0.01)
        self.answers.wait(LIMIT_OF_SILENCE)


SERVICE = Service()
SERVICE.answers.set()


class DamagedDatabase(Fault):
    """MLflow's database is damaged, and afterwards put back."""

    used = True

    def fits(self, name: str, command: Command) -> bool:
        return name not in ("search", "cache", "prepare", "draft", "judge", "freeze")

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        database = world.folder / "outputs" / "mlflow.db"
        harm = chance.choice([*FILE_HARMS, "another program's"])
        if harm in FILE_HARMS:
            FILE_HARMS[harm](database, chance)
        else:
            database.unlink()
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("CREATE TABLE notes (text)")
        outcome = world.run(words)
        outcome.moment, outcome.compared = f"database {harm}", False  # a flipped bit may be in a name or a number
        for path in database.parent.glob("mlflow.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (world.template / "outputs").glob("mlflow.db*"):
            shutil.copyfile(path, database.parent / path.name)
        return [outcome]


class Crowd(Fault):
    """The same command eight times at once."""

    def fits(self, name: str, command: Command) -> bool:
        return name != "joblib"

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        children = [world.start(words) for _ in range(CROWD)]
        outcomes = [child.outcome(f"{CROWD} at once") for child in children]
        refused = {0, 2} if words[0] in ("sweep", "prepare") else {0}  # which only one process may do at a time
        for outcome in outcomes:
            outcome.allowed = frozenset(refused)
        return outcomes

    def left_at_once(self, world: World, command: Command) -> list[str]:
        return world.left(temporary=True)


class Server(Fault):
    """A tracking server that, after some requests, dies, fails, slows down or does not answer."""

    codes = frozenset({0, 1, 2})

    def __init__(self) -> None:
        self._open = ExitStack()
        self._proxy: Proxy | None = None

    def fits(self, name: str, command: Command) -> bool:
        return command.server

    def words(self, command: Command, case: str) -> list[str]:
        return [*(word for word in command.words if not word.startswith("experiment_name=")), f"experiment_name={case}"]

    def disturb(self, world: World, words: list[str], chance: random.Random, reference: Reference) -> list[Outcome]:
        if self._proxy is None:
            self._proxy = self._start(world)
        proxy = self._proxy
        world.environment = {
            "MLFLOW_TRACKING_URI": proxy.address, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
        }  # fmt: skip
        after = chance.randrange(REQUESTS)
        proxy.mode, proxy.after = chance.choice(PROXY_MODES), after
        outcome = world.run(words)
        outcome.moment = f"{proxy.mode} after {after} requests"
        proxy.mode = ""
        synced = world.run(["doctor sync"])
        synced.moment, synced.allowed, synced.compared = "doctor sync", frozenset({0}), False
        return [outcome, synced]

    def _start(self, world: World) -> Proxy:
        from mlflow_server import serving

        os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
        (world.base / "server").mkdir()
        address, _ = self._open.enter_context(serving(world.base / "server"))
        world.databases.append(world.base / "server" / "server.db")
        return self._open.enter_context(_proxying(address))

    def close(self) -> None:
        self._open.close()


PROXY_MODES = ("dies", "fails", "slows down", "does not answer")


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a server; in a mode, only the first `after` of them."""

    daemon_threads = True
    mode, after, behind = "", 0, ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        proxy: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.after -= bool(proxy.mode)
        mode = proxy.mode if proxy.after < 0 else ""
        if mode == "dies":
            self.connection.close()
            return
        if mode in ("slows down", "does not answer"):
            time.sleep(0.3 if mode == "slows down" else 3.0)
        status, headers, content = (500, {}, b"broken") if mode == "fails" else self._answer(proxy.behind, body)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, behind: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection(urlsplit(behind).netloc, timeout=60)) as connection:
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")
            }
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() == "content-type"}
            return response.status, kept, response.read()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client has given up
            self.close_connection = True


@contextmanager
def _proxying(address: str) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", 0), _Handler) as proxy:
        proxy.behind = address
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()


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
    """Whether a process has begun to handle SIGTERM."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _require_mounts(world: World) -> None:
    if not world.mounts:
        raise Skipped("needs `unshare --mount`, with root or user namespaces")


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


FAULTS: dict[str, Fault] = {
    "sigkill": Signal(signal.SIGKILL, -9),
    "sigterm": Signal(signal.SIGTERM, 143),
    "sigint": Signal(signal.SIGINT, 130),
    "full": FullDisk(),
    "readonly": ReadOnly(),
    "server": Server(),
    "cache": DamagedCache(),
    "database": DamagedDatabase(),
    "edited": Edited(),
    "silence": SilentService(),
    "crowd": Crowd(),
}
