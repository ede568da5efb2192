"""MLflow's store: opened quietly, fast on SQLite, without showing a password, and what it means when it is down."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from retrievers.base import BadInput

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


# MLflow draws bars for a handful of files, prints addresses to standard output, reports its use over the network and
# waits long for a server.
QUIET = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # 12 s; its 7 take minutes, and what a server does not take is not lost
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

AGAIN_SECONDS = 60.0  # before a store that did not answer is asked again
P = ParamSpec("P")
T = TypeVar("T")


class Unreachable(RuntimeError):
    """The store did not take what it was told, or did not answer."""


def redacted(uri: str | None) -> str:
    """An address as it may be shown: without the user and password that it may carry."""
    parts = urlsplit(uri or "")
    if "@" not in parts.netloc:
        return uri or ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def without_secrets(uri: str) -> str:
    """A server's address without user and password, which go to MLflow by its environment variables instead.

    So no message, log or artifact can show them. A database's address must keep them.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return redacted(uri)


def open_client(uri: str) -> MlflowClient:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import logging

    from mlflow.exceptions import MlflowException

    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # each of its retries
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    from mlflow.tracking import MlflowClient

    _write_lazily()

    try:
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    except MlflowException as error:
        raise BadInput(f"tracking.uri={redacted(uri)} cannot be used: {_first_line(error)}") from error
    return client


def make_database(database: Path) -> None:
    """Make MLflow's SQLite database, under another name first: one whose tables are half made is broken for good."""
    import sqlite3

    unfinished = database.with_name(f"{database.name}.unfinished")
    for left in database.parent.glob(f"{unfinished.name}*"):  # by a killed process, its journal included
        left.unlink()
    open_client(f"sqlite:///{unfinished}")
    unfinished.rename(database)
    # Readers and a writer at a time: cuts the worst case with many processes from 8 s to 5 s.
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


@functools.cache
def _write_lazily() -> None:
    """A commit need not wait for the disk: with write-ahead logging a killed process loses nothing all the same."""
    import sqlite3

    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def on_connect(connection: Any, _: Any) -> None:
        wal = ("wal",)
        if isinstance(connection, sqlite3.Connection) and connection.execute("PRAGMA journal_mode").fetchone() == wal:
            connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(Engine, "connect", on_connect)


def reaching(method: Callable[P, T]) -> Callable[P, T]:
    """Unreachable instead of what MLflow raises where its store is down; then the store is let alone for a while."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        from mlflow.exceptions import MlflowException

        tracker: Any = args[0]
        if time.monotonic() < tracker.down_until:
            raise Unreachable(f"{redacted(tracker.uri)} did not answer a moment ago")
        try:
            return method(*args, **kwargs)
        except (MlflowException, OSError) as error:  # requests' errors are OSErrors
            answers = isinstance(error, MlflowException) and error.get_http_status_code() < 500
            if answers:  # and says that the mistake is ours
                raise
            tracker.down_until = time.monotonic() + AGAIN_SECONDS
            raise Unreachable(f"{redacted(tracker.uri)}: {_first_line(error)}") from error

    return call


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
