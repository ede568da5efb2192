"""Opening MLflow's store: quietly, fast on SQLite, and without showing a password."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from retrievers.base import BadInput

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# MLflow draws bars for a handful of files, prints addresses to standard output and reports its use over the network.
QUIET = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


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

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    from mlflow.tracking import MlflowClient

    _write_lazily()

    try:
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    except MlflowException as error:
        raise BadInput(f"tracking.uri={redacted(uri)} cannot be used: {str(error).splitlines()[0]}") from error
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
