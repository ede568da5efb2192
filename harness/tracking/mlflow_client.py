"""Open MLflow's tracking store quietly and without showing passwords, and find faults of a local database."""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from harness import interruption
from harness.errors import BadInput, Failed
from retrievers.compiling import code_folder
from retrievers.hosts import host_of, name_host
from retrievers.redaction import redacted as without_keys

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

SCHEME = "sqlite:///"
ALIAS = "champion"  # of the best version of a registered model
HEADER = b"SQLite format 3\0"
JOURNAL = slice(18, 20)  # header bytes; 2 means a write-ahead log: https://www.sqlite.org/fileformat.html
TABLES = {"alembic_version", "experiments", "runs"}  # every version of MLflow makes these tables
# (table, column, condition) for each place where MLflow 3 records locations of files.
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
STEPS = 100_000  # number of SQLite's instructions between two looks at the clock
CHECK_SECONDS = 20.0  # time limit of a thorough check, enough for about a gigabyte
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # low bytes of error codes; higher bytes are details


def database_file(uri: str | None) -> Path | None:
    """Return the file of a `sqlite:///` URI, decoded the way SQLAlchemy does; None for another URI."""
    return Path(unquote(uri.removeprefix(SCHEME))) if uri and uri.startswith(SCHEME) else None


def uri_of(database: Path) -> str:
    """Return the URI that SQLAlchemy reads as this file."""
    return SCHEME + re.sub(r"%(?=[0-9A-Fa-f]{2})|\?", lambda found: f"%{ord(found[0]):02X}", str(database))


def fault(database: Path, thorough: bool = False) -> str | None:
    """Return the fault of MLflow's database as the end of a sentence; None if no fault is found.

    thorough: whether to read the whole file; if not, the check takes milliseconds for a file of any size.
    """
    if not database.is_file():
        return "is not a file"
    with database.open("rb") as file:
        if (start := file.read(len(HEADER))) != HEADER:
            return "is not a database" if start else "is empty"
    try:
        with closing(_reading(database)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not names >= TABLES:
                return "is not a database of MLflow"
            if not thorough:
                return None
            deadline = time.monotonic() + CHECK_SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
            [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
            return None if found == "ok" else f"is damaged ({' '.join(found.split())})"
    except sqlite3.DatabaseError as error:  # MLflow itself reports all other errors, such as a lock
        return f"is damaged ({error})" if is_damage(error) else None
    except UnicodeDecodeError:  # a table's name, or SQLite's message with the name, is not UTF-8
        return "is damaged (it holds text that is not UTF-8)"


def addresses(database: Path) -> list[str]:
    """Return the addresses of remote machines where MLflow keeps files of this database's runs."""
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
    """Return a read-only connection that makes no files next to the database.

    If a database in write-ahead mode has no -wal file, no process has it open, so it can be read as immutable.
    """
    with database.open("rb") as file:
        logged = 2 in file.read(JOURNAL.stop)[JOURNAL]
    alone = logged and not database.with_name(f"{database.name}-wal").exists()
    options = "mode=ro&immutable=1" if alone else "mode=ro"
    return sqlite3.connect(f"{database.absolute().as_uri()}?{options}", uri=True)


def is_damage(error: BaseException | None) -> bool:
    """Return whether this error, or an error that caused it, is SQLite's report of a damaged file."""
    while error is not None:
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE:
            return True
        error = error.__cause__ or error.__context__
    return False


# By default, MLflow draws progress bars even for a few files, prints addresses to standard output, sends telemetry, and
# waits minutes for a server.
QUIET = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # 3 retries take 12 s; the default of 7 takes minutes
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

ONCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}  # environment variables that make MLflow send each request once
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
AT_AN_END = 5  # seconds to wait for a server after Ctrl-C
OPENINGS = 3  # number of attempts to open a local database, 0.4 s in total; by default, MLflow tries for 103 s
HIDDEN = "/…"  # replaces the path of an address
AGAIN_SECONDS = 60.0  # seconds before a server that did not answer is called again
P = ParamSpec("P")
T = TypeVar("T")


class Unreachable(Failed):
    """The tracking server did not answer, or failed."""


class NoAnswer(Unreachable, BadInput):
    """The tracking server did not answer when it was opened. A later attempt may succeed."""


class Damaged(Unreachable, BadInput):
    """The file of a local tracking store is damaged, or is not a database of MLflow."""


def without_login(uri: str | None) -> str:
    """Return an address without user and password. Its path or query may still contain a secret."""
    parts = urlsplit(uri or "")
    if "@" not in parts.netloc:
        return uri or ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def shown_address(uri: str | None) -> str:
    """Return an address to print, without user, password and query. Addresses of servers also lose their path."""
    parts = urlsplit(without_login(uri))
    if not parts.netloc:
        return without_login(uri)
    if parts.scheme in ("http", "https") and parts.path.strip("/"):
        parts = parts._replace(path=HIDDEN)
    return urlunsplit(parts._replace(query="", fragment=""))


def without_secrets(uri: str) -> str:
    """Return a server's address without user and password. Pass these two to MLflow through the environment."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return without_login(uri)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection: looking at the half a million objects of MLflow's modules takes a quarter second.

    Where what is loaded has been frozen, as on the command line, freeze these objects too.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count():
            gc.freeze()
        if collects:
            gc.enable()


@_uncollected()
def open_client(uri: str) -> MlflowClient:
    """Return a client of a tracking store. Raise NoAnswer if the store does not answer, BadInput if it is unusable."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import logging

    import mlflow.store.db.utils
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # otherwise, each retry logs a warning
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # otherwise, it logs the errors it raises
    from mlflow.tracking import MlflowClient

    _write_lazily()

    if uri.startswith("sqlite:"):
        mlflow.store.db.utils.MAX_RETRY_COUNT = OPENINGS
    try:
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    except MlflowException as error:
        kind = BadInput if error.get_http_status_code() < 500 else NoAnswer
        raise kind(f"tracking.uri={shown_address(uri)} cannot be used: {_first_line(error, uri)}") from error
    except SQLAlchemyError as error:
        raise Unreachable(
            f"{shown_address(uri)} cannot be opened: {_first_line(error, uri)}. Is the disk full?"
        ) from error
    return client


def make_database(database: Path) -> None:
    """Make MLflow's SQLite database under a temporary name first, since an incomplete database cannot be repaired."""
    unfinished = database.with_name(f"{database.name}.unfinished")
    _remove(unfinished)  # left by a killed process
    for ending in ("-wal", "-shm"):  # left by a database that was moved; SQLite would write them into the new database
        database.with_name(database.name + ending).unlink(missing_ok=True)
    folder = code_folder()
    copy = folder / f"mlflow-{version('mlflow')}.db" if folder else None
    try:
        if copy and copy.exists():
            shutil.copyfile(copy, unfinished)
        open_client(uri_of(unfinished))
        if copy and not copy.exists():
            _keep_tables(unfinished, copy)
        unfinished.rename(database)
    except BaseException:
        _remove(unfinished)
        raise
    # With write-ahead logging, processes can read while another writes. This cuts the longest wait from 8 s to 5 s.
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _keep_tables(database: Path, copy: Path) -> None:
    """Copy a new database without its experiment: making its tables takes MLflow a second, copying them no time."""
    unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
    with suppress(OSError, sqlite3.Error):  # only the time is lost
        with closing(sqlite3.connect(database)) as made, closing(sqlite3.connect(unfinished)) as kept:
            made.backup(kept)
            kept.execute("DELETE FROM experiments")  # it names this database's folder
            kept.commit()
        unfinished.rename(copy)
    unfinished.unlink(missing_ok=True)


def _remove(database: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


def require_sound(database: Path, outputs: Path, thorough: bool = False) -> None:
    """Raise Damaged if the file of a local tracking store has a fault. thorough: see `fault`."""
    if found := fault(database, thorough):
        raise Damaged(
            f"{database} {found}, so no logged run can be read from it. The files of the runs are still in "
            f"{outputs / 'runs'}. To continue with a new database, move this file away (and "
            f"{database.name}-wal, if it exists). Or name another database: tracking.uri=sqlite:///FILE."
        )


def name_places(database: Path, chosen: bool) -> None:
    """Print the remote hosts where a database keeps files, or raise BadInput to ask for the user's consent.

    chosen: whether the user has named the database. Naming it counts as consent.
    """
    for address in addresses(database):
        if not chosen:
            raise BadInput(
                f"{database} keeps files of runs at {host_of(address)}. Runs, and secrets from environment variables, "
                f"would be sent there. If you trust this host, name the database: tracking.uri={uri_of(database)}"
            )
        name_host(address, database.name)


@functools.cache
def _write_lazily() -> None:
    """Make commits return before the data are on disk. With write-ahead logging, a killed process loses nothing."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def on_connect(connection: Any, _: Any) -> None:
        wal = ("wal",)
        if isinstance(connection, sqlite3.Connection) and connection.execute("PRAGMA journal_mode").fetchone() == wal:
            connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(Engine, "connect", on_connect)


def reaching(method: Callable[P, T]) -> Callable[P, T]:
    """Make a tracker's method raise `Unreachable` if the server is down.

    For `AGAIN_SECONDS` after a failure, the tracker's wrapped methods raise `Unreachable` without calling the server.
    """

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        from mlflow.exceptions import MlflowException

        tracker: Any = args[0]
        if time.monotonic() < tracker.down_until:
            raise Unreachable(f"{shown_address(tracker.uri)} did not answer a moment ago")
        interrupted = interruption.exit_code()
        try:
            return method(*args, **kwargs)
        except (MlflowException, OSError) as error:  # requests' errors are OSErrors
            if interruption.exit_code() and not interrupted:  # SQLAlchemy has turned the interruption into an error
                raise KeyboardInterrupt from error
            if tracker.database and is_damage(error):
                require_sound(tracker.database, tracker.outputs, thorough=True)
            if isinstance(error, MlflowException) and error.get_http_status_code() < 500:  # the request was wrong
                raise
            tracker.down_until = time.monotonic() + AGAIN_SECONDS
            raise Unreachable(f"{shown_address(tracker.uri)}: {_first_line(error, tracker.uri)}") from error

    return call


@contextmanager
def asked(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, such as `ONCE`, for requests to MLflow's server in this block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


def hurried() -> Mapping[str, str]:
    """Return variables that make MLflow send each request once and wait at most `AT_AN_END` seconds."""
    given = os.environ.get(TIMEOUT, "")
    return ONCE | {TIMEOUT: str(min(AT_AN_END, int(given)) if given.isdecimal() else AT_AN_END)}


def _first_line(error: Exception, uri: str) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        for secret in (parts.query, parts.path.strip("/"), quote(parts.path.strip("/"))):
            line = line.replace(secret, HIDDEN.strip("/")) if secret else line
    return without_keys(line)


def champion(client: MlflowClient, name: str) -> ModelVersion | None:
    """Return the version of a registered model that has the alias ALIAS; None if there is none."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, ALIAS)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        return None
