"""What all dataset formats share: the protocol of a source, and helpers for reading one.

To add a format, write a class like `Source` in a module of this folder and a file in conf/dataset/. The arguments of
its constructor are the keys of `dataset.` in a config. Errors in files are BadInput and name file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.data.files import field
from retrievers.base import BadInput, Document, Qrels, Query, Turn, did_you_mean

ROLES = ("user", "assistant", "system")

Grades = dict[str, dict[str, float]]  # query_id -> doc_id -> grade


class Source(Protocol):
    """The files of a dataset, read when a method is called. Methods raise BadInput for errors within one file."""

    @property
    def qrels_file(self) -> Path | None:
        """The file with the labels, for error messages; None without labels."""
        ...

    def documents(self) -> list[Document]:
        """All documents, in any order."""
        ...

    def queries(self) -> list[Query]:
        """All queries with their turns, in the order of the file."""
        ...

    def qrels(self) -> Qrels | None:
        """The labels; None without labels."""
        ...


def single_turn(query_id: str, text: str, native_id: int | None) -> Query:
    """A query of one user turn. native_id: the id as a number, if it is one in the file."""
    return Query(query_id, (Turn("user", text),), native_id)


def turns(row: Mapping[str, Any], where: str, key: str = "msg") -> tuple[Turn, ...]:
    """The conversation in row[key]: objects {role, content}, at least one of them by the user."""
    conversation = tuple(_turn(turn, where, key) for turn in field(row, key, list, where))
    if not any(turn.role == "user" for turn in conversation):
        raise BadInput(f"{where}: {key} has no user turn. Add one, or remove the query.")
    return conversation


def _turn(turn: Any, where: str, key: str) -> Turn:
    if not isinstance(turn, dict):
        raise BadInput(f"{where}: {key} contains {turn!r:.60}, but a turn must be an object {{role, content}}.")
    role = field(turn, "role", str, where)
    if role not in ROLES:
        raise BadInput(f"{where}: role {role!r:.60} is not one of {', '.join(ROLES)}.{did_you_mean(role, ROLES)}")
    return Turn(role, field(turn, "content", str, where))


def locate(key: str, given: str | None, folder: str | None, name: str) -> Path:
    """The path of the file for `dataset.<key>`, which may not exist.

    given:  value of `dataset.<key>`, which takes precedence.
    folder: value of `dataset.path`.
    name:   of the file in that folder; a gzipped NAME.gz serves as well.
    """
    if given:
        return Path(given)
    if not folder:
        raise BadInput(
            f"dataset.{key} is not given. Give dataset.{key}=FILE, or dataset.path=FOLDER with {name} in it."
        )
    if not Path(folder).is_dir():
        parent = Path(folder).absolute().parent
        near = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
        hint = did_you_mean(Path(folder).name, near) or f" Give the folder that contains {name}."
        what = "this is a file, not a folder" if Path(folder).exists() else "there is no such folder"
        raise BadInput(f"dataset.path={folder}: {what}.{hint}")
    path = Path(folder) / name
    zipped = path.with_name(path.name + ".gz")
    return zipped if zipped.exists() and not path.exists() else path
