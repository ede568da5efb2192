"""Readers of the files that people bring: one source class for each format.

A source has three lazy methods, `documents()`, `queries()` and `qrels()`, and `qrels_file`, which names the labels in
messages; its constructor's arguments are the keys of `dataset.` in a config. What is wrong with a file is a BadInput
that names file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.data.files import field
from retrievers.base import BadInput, Document, Qrels, Query, Turn, did_you_mean

ROLES = ("user", "assistant", "system")

Grades = dict[str, dict[str, float]]


class Source(Protocol):
    """Where a data set comes from. Methods raise BadInput for what is wrong within one file."""

    @property
    def qrels_file(self) -> Path | None:
        """The file of the labels; None where there are none."""
        ...

    def documents(self) -> list[Document]: ...

    def queries(self) -> list[Query]: ...

    def qrels(self) -> Qrels | None: ...


def _question(query_id: str, text: str, native_id: int | None) -> Query:
    return Query(query_id, (Turn("user", text),), native_id)


def turns(row: Mapping[str, Any], where: str, key: str = "msg") -> tuple[Turn, ...]:
    """The conversation in row[key]: objects {role, content}, of which the user says at least one."""
    found = tuple(_turn(turn, where, key) for turn in field(row, key, list, where))
    if not any(turn.role == "user" for turn in found):
        raise BadInput(f"{where}: {key} has no turn of the user. Add one, or remove the query.")
    return found


def _turn(turn: Any, where: str, key: str) -> Turn:
    if not isinstance(turn, dict):
        raise BadInput(f"{where}: {key} holds {turn!r:.60}, but a turn is an object {{role, content}}.")
    role = field(turn, "role", str, where)
    if role not in ROLES:
        raise BadInput(f"{where}: role {role!r:.60} is none of {', '.join(ROLES)}.{did_you_mean(role, ROLES)}")
    return Turn(role, field(turn, "content", str, where))


def _locate(key: str, given: str | None, folder: str | None, name: str) -> Path:
    """The file of `dataset.<key>`: the one given, else `name` in the folder of `dataset.path`, gzipped or not."""
    if given:
        return Path(given)
    if not folder:
        raise BadInput(
            f"dataset.{key} is not given. Give dataset.{key}=FILE, or dataset.path=FOLDER with {name} in it."
        )
    if not Path(folder).is_dir():
        parent = Path(folder).absolute().parent
        near = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
        hint = did_you_mean(Path(folder).name, near) or f" Give the folder that holds {name}."
        what = "this is a file, not a folder" if Path(folder).exists() else "there is no such folder"
        raise BadInput(f"dataset.path={folder}: {what}.{hint}")
    path = Path(folder) / name
    zipped = path.with_name(path.name + ".gz")
    return zipped if zipped.exists() and not path.exists() else path
