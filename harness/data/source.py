"""The protocol of dataset formats, and helpers for reading a format.

To add a format, write a class like `Source` in a module of this folder, and a file in conf/dataset/. The constructor's
arguments are the keys under `dataset.` in a config. An error in a file raises BadInput, which names file and line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.data.files import field, identifier, no_rows, unique_rows
from harness.data.qrels import Qrels
from harness.errors import BadInput, did_you_mean
from retrievers.base import Document, Query, Turn

ROLES = ("user", "assistant", "system")

Grades = dict[str, dict[str, float]]  # query_id -> doc_id -> grade
MOST_GRADE = 1_000_000  # maximum grade, so that sums over the longest list neither overflow nor lose small grades


class Source(Protocol):
    """The files of a dataset. Each method reads files, and raises BadInput for errors in a file."""

    @property
    def qrels_file(self) -> Path | None:
        """The file with the labels, for error messages; None without labels."""
        ...

    def documents(self) -> Iterable[Document]:
        """Return each document once, in any order. Return `Streamed` if a corpus may be larger than memory."""
        ...

    def queries(self) -> list[Query]:
        """Return all queries with their turns, in the order of the file."""
        ...

    def qrels(self) -> Qrels | None:
        """Return the labels; None if the dataset has none."""
        ...


@dataclass(frozen=True, eq=False)
class Streamed(Iterable[Document]):
    """The documents of a file, read again for each iteration. The first error in the file raises BadInput.

    form: name of the format; together with the file's content, it determines the documents.
    key: the field with the ids. rows: returns (position, row) of every row.
    document: makes a document from (row, file:position, id, the id as a number or None).
    """

    path: Path
    form: str
    key: str
    rows: Callable[[], Iterable[tuple[int | str, dict[str, Any]]]]
    document: Callable[[dict[str, Any], str, str, int | None], Document]

    def __iter__(self) -> Iterator[Document]:
        for where, doc_id, native, row in unique_rows(self.path, self.key, self.rows()):
            yield self.document(row, where, doc_id, native)

    def placed(self) -> Iterator[tuple[str, Document]]:
        """Yield (position in the file, document). The caller must check for repeated ids."""
        position: int | str | None = None
        for position, row in self.rows():
            where = f"{self.path}:{position}"
            yield str(position), self.document(row, where, *identifier(row, self.key, where))
        if position is None:
            raise no_rows(self.path)


def grade_of(value: Any, what: str, where: str, remedy: str = "") -> float:
    """Return a grade. Raise BadInput unless it is in (0, MOST_GRADE]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise BadInput(f"{where}: {what} is {value!r:.60}, but must be a finite number > 0.{remedy}")
    if value > MOST_GRADE:
        raise BadInput(
            f"{where}: grade {value:.6g} is too large: the maximum is {MOST_GRADE:,}, since measures sum grades. "
            "Divide all grades by the same number."
        )
    return float(value)


def turns(row: Mapping[str, Any], where: str, key: str = "msg") -> tuple[Turn, ...]:
    """Return the conversation in row[key], a list of {role, content}. Raise BadInput if it has no turn by the user."""
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


def source_path(key: str, given: str | None, folder: str | None, name: str) -> Path:
    """Return the path of a file, which need not exist: `given`, or else `name` or `name`.gz in `folder`.

    given: value of `dataset.<key>`. folder: value of `dataset.path`.
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
