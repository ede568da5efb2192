"""Commands that log runs are run once for all the tests that only read those runs: each test gets a copy."""

import hashlib
import io
import json
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import chdir, closing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from harness import cli

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
RUN = ("run", *TOY, "format=json")  # right for each of the three queries
WITHHELD = (*RUN, "gate=score", "gate.threshold=99")  # returns nothing, and scores 1/3
SWEEP = ("sweep", *TOY, "top_k=1,2,3", "gate=none,score", "gate.threshold=99", "format=json")  # six trials

DATA = {
    "documents.jsonl": [
        {"docid": "d1", "src": "toy", "content": "달은 지구의 위성이다"},
        {"docid": "d2", "src": "toy", "content": "물은 섭씨 100도에서 끓는다"},
        {"docid": "d3", "src": "toy", "content": "달의 모양은 한 달 동안 변한다"},
    ],
    "eval.jsonl": [
        {"eval_id": 7, "msg": [{"role": "user", "content": "달의 모양은 왜 변해?"}]},
        {"eval_id": 3, "msg": [{"role": "user", "content": "물은 몇 도에서 끓어?"}]},
        {"eval_id": 5, "msg": [{"role": "user", "content": "안녕"}]},
    ],
    "qrels.jsonl": [
        {"eval_id": 7, "relevant": {"d3": 2, "d1": 1}},
        {"eval_id": 3, "relevant": ["d2"]},
        {"eval_id": 5, "relevant": []},
    ],
}


def write_toy(folder: Path) -> Path:
    """Write a dataset of the contest: three documents, and three queries of which one needs no retrieval."""
    folder.mkdir(parents=True)
    for name, rows in DATA.items():
        (folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return folder


@dataclass
class Done:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The output of a command that must succeed."""
        assert self.code == 0, self.err
        return self.out

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def commands(self) -> list[list[str]]:
        """The commands that it proposes, as words without `harness`."""
        lines = [line.strip() for line in self.text.splitlines()]
        return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("harness ")]

    @property
    def refusal(self) -> str:
        """The message of a command that must refuse its input."""
        assert self.code == 2, self.out + self.err
        return self.err


def with_store(folder: Path, database: Path) -> Path:
    """Give a folder a tracking store without runs."""
    (folder / "outputs").mkdir()
    shutil.copyfile(database, folder / "outputs" / "mlflow.db")
    return folder


def told(folder: Path, *commands: Sequence[str]) -> list[Any]:
    """Return the JSON documents of commands that are run in a folder, for fixtures of modules."""
    with chdir(folder), redirect_stdout(io.StringIO()) as out:
        for name, *words in commands:
            assert cli.call(name, list(dict.fromkeys((*words, "format=json")))) == 0
    return [json.loads(line) for line in out.getvalue().splitlines() if line.startswith("{")]


class LoggedRuns:
    """A folder of templates, one for each sequence of commands, shared by the workers of a session."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.folder, self.database = folder, database
        folder.mkdir(exist_ok=True)

    def copy_to(self, target: Path, commands: Sequence[Sequence[str]], call: Callable[..., Done]) -> list[Done]:
        """Give `target` what the commands write into a fresh folder with the data in `toy`; return what they said."""
        name = hashlib.sha256(json.dumps(commands).encode()).hexdigest()[:16]
        template, notes = self.folder / name, self.folder / f"{name}.json"
        with FileLock(self.folder / f"{name}.lock"):
            if not notes.exists():
                self._make(template, commands, call, notes)
        said, files, columns = json.loads(notes.read_text("utf-8"))
        assert not (target / "outputs" / "mlflow.db-wal").exists(), "the test's own store is open: ask for it later"
        shutil.copytree(template, target, dirs_exist_ok=True)
        changed = {str(template): str(target)}  # paths, and the digests of files in which there are any
        for file in files:
            content = (target / file).read_bytes()
            moved = content.replace(os.fsencode(template), os.fsencode(target))
            (target / file).write_bytes(moved)
            changed[hashlib.sha256(content).hexdigest()] = hashlib.sha256(moved).hexdigest()
        with closing(sqlite3.connect(target / "outputs" / "mlflow.db")) as database, database:
            for table, column, old in columns:
                change = f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
                database.execute(change, (old, changed[old]))
        return [Done(code, *(text.replace(str(template), str(target)) for text in texts)) for code, *texts in said]

    def _make(self, template: Path, commands: Sequence[Sequence[str]], call: Callable[..., Done], notes: Path) -> None:
        shutil.rmtree(template, ignore_errors=True)
        write_toy(template / "toy")
        with_store(template, self.database)
        with chdir(template):
            said = [call(*command) for command in commands]
        assert not any(done.code for done in said), said
        files = [path for path in template.rglob("*") if path.is_file() and not path.name.startswith("mlflow.db")]
        named = [file for file in files if os.fsencode(template) in file.read_bytes()]
        old = [str(template), *(hashlib.sha256(file.read_bytes()).hexdigest() for file in named)]
        with closing(sqlite3.connect(template / "outputs" / "mlflow.db")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            columns = [(*place, text) for text in dict.fromkeys(old) for place in _columns_with(database, text)]
        for more in template.glob("outputs/mlflow.db-*"):
            more.unlink()
        written = (
            [[done.code, done.out, done.err] for done in said],
            [str(file.relative_to(template)) for file in named],
            columns,
        )
        notes.write_text(json.dumps(written, ensure_ascii=False), "utf-8")


def _columns_with(database: sqlite3.Connection, text: str) -> list[tuple[str, str]]:
    """Return the table and name of each column in which the text occurs."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info({table})")]
    return [
        (table, column)
        for table, column in columns
        if database.execute(f"SELECT 1 FROM {table} WHERE instr({column}, ?) LIMIT 1", (text,)).fetchone()
    ]
