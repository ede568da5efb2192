"""The loop over all commands and all ways to disturb them."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stand_ins
from chat_server import ChatServer
from measuring import HARNESS, Child, Table, harness_here, warm_up, watched
from search_server import SearchServer

from faulting.commands import COMMANDS, FILES, LANGUAGE_MODEL, PREPARED, SEARCH_SERVICE, Command
from faulting.kinds import FAULTS, Case
from faulting.proxy import Proxy, proxied

IN_NAMESPACE = "HARNESS_FAULTS_NAMESPACE"  # environment variable of this script within its own mounts
LIMIT = 300  # seconds of a command; more is a hang
TWICE = """
    SELECT key_tag.value FROM runs JOIN tags key_tag USING (run_uuid) JOIN tags trial_tag USING (run_uuid)
    WHERE key_tag.key = 'trial_key' AND trial_tag.key = 'sweep.trial' AND status = 'FINISHED'
    GROUP BY experiment_id, key_tag.value HAVING count(*) > 1
"""
NOT_COMPARED = ("trial", "run_id", "reused", "seconds")  # in the values of `numbers`


@dataclass
class Outcome:
    """How a command ended.

    moment: the disturbance, in words. allowed: exit codes, if they differ from the fault's.
    compared: whether its numbers must equal an undisturbed run's if it has finished.
    seconds, bytes: how long an undisturbed command took, and what it wrote and kept.
    """

    code: int
    out: str
    err: str
    moment: str = ""
    allowed: frozenset[int] | None = None
    compared: bool = True
    seconds: float = 0.0
    bytes: int = 0

    def problems(self, allowed: frozenset[int]) -> list[str]:
        found = [f"exit code {self.code}"] if self.code not in (self.allowed or allowed) else []
        if "Traceback" in self.err or "Exception ignored" in self.err:
            found.append("a traceback")
        if self.code in (1, 2) and not self.err.strip():
            found.append("no message")
        return found

    def numbers(self, keys: tuple[str, ...]) -> Any:
        document = json.loads(self.out)
        return _comparable({key: document[key] for key in keys})


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _comparable(one) for key, one in value.items() if key not in NOT_COMPARED}
    return [_comparable(one) for one in value] if isinstance(value, list) else value


@dataclass
class World:
    """The folder that commands run in, always at the same path, and copies of it that hold a used state.

    mounts: whether it is a separate file system, whose size can be limited. environment: variables of the case.
    opened: closes everything at the end. services: word of a command line -> the address that it stands for.
    """

    base: Path
    mounts: bool
    opened: ExitStack
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder, self.template, self.logs = (self.base / name for name in ("world", "template", "logs"))
        for folder in (self.folder, self.logs):
            folder.mkdir()
        if self.mounts:
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.folder], check=True)
        self.asked, self.answers = threading.Event(), threading.Event()  # has the search service a request, and a voice
        self.answers.set()
        servers = {
            LANGUAGE_MODEL: ChatServer(model=stand_ins.language_model, delay=0.02),
            SEARCH_SERVICE: SearchServer(stand_ins.search, fault=self._delay),
        }
        self.services = {word: self.opened.enter_context(one).url for word, one in servers.items()}

    def _delay(self, _: Any) -> None:
        self.asked.set()
        time.sleep(0.01)
        self.answers.wait(LIMIT)

    @functools.cached_property
    def proxy(self) -> Proxy:
        os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
        return self.opened.enter_context(proxied(self.base / "server"))

    def reset(self, used: bool) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if used:
            shutil.copytree(self.template, self.folder, symlinks=True, dirs_exist_ok=True)
        for name in ("outputs", "cache", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)

    def start(self, words: list[str], fresh_interpreter: bool = False) -> Child:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")} | {
            "HARNESS_CACHE": str(self.folder / "cache"), "TMPDIR": str(self.folder / "tmp"), "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(self.base / "torch"),
        } | self.environment  # fmt: skip
        for word, address in self.services.items():
            words = [one.replace(f"={word}", f"={address}") for one in words]
        words = [*words[0].split(), *words[1:], "format=json"]
        fresh = fresh_interpreter or "hydra/launcher=joblib" in words  # whose workers would outlive a fork
        anew = lambda: os.execve(HARNESS[0], [*HARNESS, *words], environment)  # noqa: E731
        return Child.start(anew if fresh else lambda: harness_here(words), self.folder, environment, self.logs)

    def outcome(self, child: Child, moment: str = "", **about: Any) -> Outcome:
        if not watched(child.ended, LIMIT):
            child.kill()
            watched(child.ended, LIMIT)
            child.code = 124
        watched(lambda: not _lives(child.pid), LIMIT)
        said = child.said()
        child.out.unlink()
        child.err.unlink()
        return Outcome(child.code or 0, *said, moment, **about)

    def run(self, words: list[str], moment: str = "", **about: Any) -> Outcome:
        return self.outcome(self.start(words), moment, **about)

    def left(self, temporary: bool, cached: bool = True) -> list[str]:
        """Return the things that an ended command must not leave.

        temporary, cached: also look in the system's folder, and for unfinished cache entries and documents.
        """
        outputs, cache = self.folder / "outputs", self.folder / "cache"
        unfinished = [*outputs.rglob("*.unfinished*"), *(cache.rglob("*.unfinished") if cached else ())]
        if not cached:
            unfinished = [path for path in unfinished if "documents.unfinished" not in path.parts]
        found = [path for path in unfinished if path.exists()]
        found += [*(outputs / ".claims").glob("*"), *outputs.glob("scratch-*"), *self.folder.glob(".*.unfinished")]
        found += list((self.folder / "tmp").iterdir()) if temporary else []
        said = [f"left {path.relative_to(self.folder)}" for path in found]
        for database in (self.folder / "outputs" / "mlflow.db", self.base / "server" / "server.db"):
            if database.is_file():
                with closing(sqlite3.connect(database)) as connection:
                    rows = connection.execute("SELECT name FROM runs WHERE status = 'RUNNING'").fetchall()
                    said += [f"left RUNNING: {name}" for (name,) in rows]
                    said += [f"trial {key[:12]} is FINISHED twice" for (key,) in connection.execute(TWICE)]
        return said


def _lives(session: int) -> bool:
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass
class Campaign:
    world: World
    seed: int
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)
    references: dict[tuple[str, bool], Outcome] = field(default_factory=dict)

    def begin(self, used: bool) -> None:
        if used and not self.world.template.exists():
            self.world.reset(used=False)
            for name, text in FILES.items():
                (self.world.folder / name).write_text(text, "utf-8")
            for words in PREPARED:
                self._undisturbed(words)
            with closing(sqlite3.connect(self.world.folder / "outputs" / "mlflow.db")) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # or damage to the file would spare its content
            shutil.copytree(self.world.folder, self.world.template, symlinks=True)
        self.world.reset(used)

    def _undisturbed(self, words: list[str]) -> Outcome:
        done = self.world.run(words)
        if done.code != 0:
            sys.exit(f"An undisturbed {' '.join(words)} failed:\n{done.err}")
        return done

    def reference(self, name: str, used: bool) -> Outcome:
        if (name, used) not in self.references:
            self.begin(used)
            before, began = _size(self.world.folder), time.monotonic()
            done = self._undisturbed(COMMANDS[name].words)
            done.seconds, done.bytes = time.monotonic() - began, max(_size(self.world.folder) - before, 1)
            self.references[name, used] = done
        return self.references[name, used]

    def case(self, name: str, fault: str, number: int) -> None:
        label, command, kind = f"{name}/{fault}/{number}", COMMANDS[name], FAULTS[fault]
        chance, words = random.Random(f"{self.seed}/{label}"), command.words
        if fault == "server":
            words = [*(word for word in words if not word.startswith("experiment_name=")), f"experiment_name={label}"]
        if kind.mounts and not self.world.mounts:
            print(f"{label}: skipped, needs `unshare --mount`, with root or user namespaces", flush=True)
            return
        used = command.used or kind.used or chance.random() < 0.5
        reference = self.reference(name, used)
        self.begin(used)
        disturbed = kind.disturb(Case(self.world, words, command, chance, reference))
        wrong = self._judged(disturbed, kind.codes, command, reference)
        if not kind.leaves:
            left = self.world.left(temporary=True, cached=fault == "crowd" or not command.resumes)
            wrong += [f"at once {one}" for one in left]
        again = self.world.run(words)
        found = self._judged([again], frozenset({0}), command, reference) + self.world.left(fault != "sigkill")
        wrong += [f"the next time {one}" for one in found]
        self.world.environment = {}
        self.results[name, fault] += 1
        moments = "; ".join(dict.fromkeys(f"{one.moment} -> {one.code}" for one in disturbed))
        print(f"{label} ({'used' if used else 'empty'}): {moments}: {'; '.join(wrong) or 'ok'}", flush=True)
        if wrong:
            self.wrong[name, fault] += 1
            said = "\n".join(one.err for one in (*disturbed, again) if one.err.strip())
            print(f"    again: python scripts/faults.py --seed {self.seed} --only {label}")
            print("    " + said[-6000:].replace("\n", "\n    "), flush=True)

    @staticmethod
    def _judged(outcomes: list[Outcome], codes: frozenset[int], command: Command, reference: Outcome) -> list[str]:
        found = [problem for one in outcomes for problem in one.problems(codes)]
        finished = [one.numbers(command.numbers) for one in outcomes if one.code == 0 and one.compared]
        return found + ["other numbers" for one in finished if one != reference.numbers(command.numbers)]

    def table(self) -> None:
        faults = [fault for fault in FAULTS if any(other == fault for _, other in self.results)]
        table = Table("", *faults)
        for name in dict.fromkeys(name for name, _ in self.results):
            wrong = [f" ({n} wrong)" if (n := self.wrong[name, fault]) else "" for fault in faults]
            table.row(
                name, *(f"{self.results[name, fault] or ''}{one}" for fault, one in zip(faults, wrong, strict=True))
            )
        print(f"{self.results.total()} cases, {self.wrong.total()} wrong")


def _size(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.exists())


def enter_namespace() -> bool:
    """Return whether this script may mount. Start the script again in a separate namespace if that is possible."""
    if IN_NAMESPACE in os.environ:
        return True
    for command in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        probe = [*command, "sh", "-c", 'mount -t tmpfs tmpfs "$0"', tempfile.gettempdir()]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
            os.environ[IN_NAMESPACE] = "1"
            os.execvp(command[0], [*command, sys.executable, *sys.argv])
    return False


def chosen_cases(only: Sequence[str], seed: int, most: int | None) -> Iterator[tuple[str, str, int]]:
    """Yield the cases that the patterns name: numbered ones first, then rounds of all others in random order.

    most: number of rounds; None: for ever.
    """
    numbered, others = list[tuple[str, str, int]](), list[tuple[str, str]]()
    for pattern in only or ("*",):
        name, fault, number = (*pattern.split("/"), "", "")[:3]
        for kind in fnmatch.filter(FAULTS, fault or "*"):
            names = [one for one in fnmatch.filter(COMMANDS, name) if FAULTS[kind].fits(one, COMMANDS[one])]
            numbered += [(one, kind, int(number)) for one in names if number]
            others += [(one, kind) for one in names if not number]
    if not numbered and not others:
        sys.exit(f"--only: no such case. Commands: {', '.join(COMMANDS)}. Faults: {', '.join(FAULTS)}.")
    yield from numbered
    for number in (itertools.count() if most is None else range(most)) if others else ():
        random.Random(f"{seed}/{number}").shuffle(others)
        yield from ((name, fault, number) for name, fault in others)


def commands(*, minutes: float = 10.0, only: tuple[str, ...] = (), seed: int = 0, cases: int | None = None) -> int:
    """Disturb every command in every way at random moments; check that the next run ends as if undisturbed.

    A case begins with empty or used `outputs` and cache, on the shipped sample. A command meets SIGKILL, SIGTERM or
    SIGINT; a full disk or read-only folders; a tracking server that dies, fails, slows down or does not answer; a
    silent search service; damage in the cache, the database or a run's files; or seven processes like it. It must
    finish, or end with a message (no traceback) and exit code 1, 2, 130 or 143. It then runs undisturbed, and must
    finish with the numbers of a run that was never disturbed and leave no RUNNING run, no claim and nothing unfinished.
    Commands run in forks of this process; one in four signals meets a new interpreter.

    --minutes: no case begins later. --only: COMMAND/FAULT[/NUMBER] with * and ?, such as 'run/*' '*/full'.
    --seed: decides all moments. --cases: at most so many of each command and fault.

    Full disks and read-only folders need mounts in a separate namespace: `unshare`, with root or user namespaces.
    Without these they are skipped. The table at the end counts the cases; the exit code is 1 if one went wrong.
    """
    chosen = chosen_cases(only, seed, cases)
    mounts = enter_namespace()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands ignore it
    warm_up()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))  # no TemporaryDirectory: every fork would remove it
    deadline = time.monotonic() + 60 * minutes
    try:
        with ExitStack() as opened:
            campaign = Campaign(World(folder, mounts, opened), seed)
            for case in itertools.takewhile(lambda _: time.monotonic() <= deadline, chosen):
                campaign.case(*case)
    finally:
        if mounts:
            subprocess.run(["umount", "--recursive", "--lazy", folder / "world"], check=True)
        shutil.rmtree(folder)
    campaign.table()
    return 1 if campaign.wrong else 0
