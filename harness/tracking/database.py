"""MLflow's database in a local file: what is wrong with it, found before MLflow tries for minutes to open it."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from retrievers.hosts import host_of

SCHEME = "sqlite:///"
HEADER = b"SQLite format 3\0"
JOURNAL = slice(18, 20)  # bytes of the header, 2 with a write-ahead log: https://www.sqlite.org/fileformat.html
TABLES = {"alembic_version", "experiments", "runs"}  # some that every version of MLflow makes
# (table, column, condition) of what says where files are, as of MLflow 3.
LOCATIONS = (
    ("experiments", "artifact_location", "1"),
    ("runs", "artifact_uri", "1"),
    ("logged_models", "artifact_location", "1"),
    ("model_versions", "source", "1"),
    ("model_versions", "storage_location", "1"),
    ("workspaces", "trace_archival_location", "1"),
    ("trace_tags", "value", "key = 'mlflow.artifactLocation'"),
    ("webhooks", "url", "1"),
)
STEPS = 100_000  # of SQLite, between two looks at the clock
CHECK_SECONDS = 20.0  # limit of a thorough check, which reads about a gigabyte in it
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # the low byte of an error code; the others are details


def place_of(uri: str | None) -> Path | None:
    """The file that a `sqlite:///` URI names, percent-encoded as SQLAlchemy reads it; None for another URI."""
    return Path(unquote(uri.removeprefix(SCHEME))) if uri and uri.startswith(SCHEME) else None


def uri_of(database: Path) -> str:
    """The URI of a file, which SQLAlchemy reads as the same name."""
    return SCHEME + re.sub(r"%(?=[0-9A-Fa-f]{2})|\?", lambda found: f"%{ord(found[0]):02X}", str(database))


def fault(database: Path, thorough: bool = False) -> str | None:
    """What is wrong with a file that should be MLflow's database, as the end of a sentence; None if nothing is found.

    thorough: read the whole file; without it a look takes milliseconds, whatever the size of the file.
    """
    if not database.is_file():
        return "is not a file"
    with database.open("rb") as file:
        if (start := file.read(len(HEADER))) != HEADER:
            return "is not a database" if start else "is empty"
    try:
        with closing(_reading(database)) as connection:
            return _first_fault(connection, thorough)
    except sqlite3.DatabaseError as error:  # others, such as a lock, are no damage: MLflow will say what they are
        return f"is damaged ({error})" if is_damage(error) else None
    except UnicodeDecodeError:  # of names in it, or of SQLite's message about them
        return "is damaged (it holds text that is not UTF-8)"


def addresses(database: Path) -> list[str]:
    """The addresses of other machines at which MLflow would read and write files of runs, since a database says so."""
    with closing(_reading(database)) as connection:
        known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        found = [
            value
            for table, column, which in LOCATIONS
            if table in known
            for (value,) in connection.execute(
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} NOT GLOB 'file:///*' AND {which}"  # noqa: S608
            )
        ]
    return sorted({value for value in found if isinstance(value, str) and host_of(value)})


def _reading(database: Path) -> sqlite3.Connection:
    """A connection that only reads.

    One to a database with a write-ahead log makes files beside it, and leaves them. Where there is no log, nobody has
    the database open, and it is read as a file that does not change, which needs none.
    """
    with database.open("rb") as file:
        logged = 2 in file.read(JOURNAL.stop)[JOURNAL]
    alone = logged and not database.with_name(f"{database.name}-wal").exists()
    options = "mode=ro&immutable=1" if alone else "mode=ro"
    return sqlite3.connect(f"{database.absolute().as_uri()}?{options}", uri=True)


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says by an error, or by one that caused it, that the file is damaged."""
    while error is not None:
        if (
            isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE
        ):  # others: details
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_fault(connection: sqlite3.Connection, thorough: bool) -> str | None:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names >= TABLES:
        return "is not a database of MLflow"
    if not thorough:
        return None
    deadline = time.monotonic() + CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    return None if found == "ok" else f"is damaged ({' '.join(found.split())})"
