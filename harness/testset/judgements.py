"""Who has judged what: an append-only file, `judgements.jsonl`, which every label comes from.

{query, text, doc, grade, needs, by, round, sample, pi, blind, quote, withdrawn, at}, one line per judgement. A line
is on the disk before `append` returns. Nothing is ever changed: a later judgement by the same judge of the same pair in
the same round replaces the earlier one, and `withdrawn` takes it back. Several processes may append at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from harness.data.files import (
    as_id,
    field,
    is_packed,
    is_torn,
    json_line,
    json_lines,
    json_rows,
    opened,
    optional_text,
    required,
)
from retrievers.base import BadInput, Query

JUDGEMENTS = "judgements.jsonl"
GRADES = (0, 1, 2, 3)  # UMBRELA's: unrelated, related without an answer, answers in part, answers
HUMAN, LLM, ADJUDICATED = "human", "llm", "adjudicated"
BASES = (ADJUDICATED, HUMAN, LLM)  # the first decides
BLOCK = 1 << 16  # bytes that are read at a time, from the end of the file
SAMPLES = ("audit", "repair", "all", "")  # why a pair was judged; only `audit` enters estimates. "": by a model

Pair = tuple[str, str | None]  # query_id, doc_id; None: whether the query needs retrieval


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one judge says of one pair of a query and a document, or of a query's need for retrieval.

    query_id, text: the query, and `text_digest` of it as it was judged.
    doc_id: None: the judgement is of the query's need for retrieval, in `needs`; otherwise it is in `grade`.
    grade: 0 to 3; None: the judge cannot tell, which is an open question.
    by: `human:NAME`, `llm:MODEL#PROMPT` (the beginning of the sha256 of the prompt) or `adjudicated:NAME`.
    round: 2 where the same pair is judged a second time on purpose, to see whether people agree with themselves.
    sample: of SAMPLES. pi: the probability with which the query was drawn; 1 where nothing was drawn.
    blind: whether the judge saw no other judgement, rank, score or name of a retriever.
    quote: the passage that the judge rests the grade on; "" if none.
    at: when, as ISO 8601 in UTC, such as 2026-11-22T09:30:00Z.
    """

    query_id: str
    text: str
    doc_id: str | None
    grade: int | None
    by: str
    at: str
    needs: bool | None = None
    round: int = 1
    sample: str = ""
    pi: float = 1.0
    blind: bool = True
    quote: str = ""
    withdrawn: bool = False

    @property
    def pair(self) -> Pair:
        return self.query_id, self.doc_id

    @property
    def basis(self) -> str:
        """Of BASES: what kind of judge this is."""
        return self.by.partition(":")[0]

    @property
    def judge(self) -> str:
        """The name of the person or model."""
        return self.by.partition(":")[2]


@dataclass(frozen=True)
class Place:
    """A place in the log between two lines. size: bytes before it. lines: lines before it."""

    size: int = 0
    lines: int = 0


def text_digest(query: Query) -> str:
    """12 hexadecimal digits of the sha256 of a query's turns: a judgement holds for the text that was judged alone."""
    turns = [[turn.role, turn.content] for turn in query.turns]
    return hashlib.sha256(json.dumps(turns, ensure_ascii=False).encode()).hexdigest()[:12]


class JudgementLog:
    """The judgements of a test set. folder: of the test set."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JUDGEMENTS
        self._lock = FileLock(folder / f".{JUDGEMENTS}.lock")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the log, so that no other process adds to it between a look at it and `append`."""
        with self._lock:
            yield

    def append(self, judgements: Iterable[Judgement]) -> None:
        """Add judgements; they are on the disk when this returns."""
        text = "".join(json_line(_row(one)) for one in judgements).encode()
        if not text:
            return
        self._check()
        with self.held(), self.path.open("a+b") as file:
            _end_line(file)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Judgement]:
        """All judgements in the order in which they were made; none without the file. BadInput for wrong rows.

        What a killed process left of a last line is passed over: it was never acknowledged.
        """
        if not os.path.lexists(self.path):
            return []
        return [_judgement(row, f"{self.path}:{number}") for number, row in json_lines(self.path, appended=True)]

    def since(self, place: Place) -> tuple[list[Judgement], Place]:
        """(the judgements in the lines that have been finished after a place, the place after them), for whoever
        follows the log as it grows. BadInput for wrong rows, and where the file has been shortened."""
        if not self.path.exists():
            return [], place
        self._check()
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < place.size:
                raise BadInput(f"{self.path} was shortened while it was read, but is only ever added to. Start again.")
            file.seek(place.size)
            text, end, _ = file.read().rpartition(b"\n")
        rows = json_rows(text, self.path, place.lines + 1)
        found = [_judgement(row, f"{self.path}:{number}") for number, row in rows]
        return found, Place(place.size + len(text) + len(end), place.lines + text.count(b"\n") + len(end))

    def _check(self) -> None:
        """BadInput unless lines can be added: the file is new, or is a file of lines."""
        if os.path.lexists(self.path):
            with opened(self.path) as file:
                if is_packed(file):
                    raise BadInput(f"{self.path} is packed, so that nothing can be added. Unpack it with gunzip.")


def current(judgements: Iterable[Judgement], queries: Mapping[str, Query]) -> list[Judgement]:
    """The judgements that hold: the last of each judge, pair and round, unless withdrawn, of queries as they are now.

    queries: query_id -> query, of the test set.
    """
    digests = {query_id: text_digest(query) for query_id, query in queries.items()}
    last: dict[tuple[Pair, str, int], Judgement] = {}
    for one in judgements:
        if digests.get(one.query_id) == one.text:
            key = one.pair, one.by, one.round
            last.pop(key, None)
            last[key] = one
    return [one for one in last.values() if not one.withdrawn]


def by_pair(judgements: Sequence[Judgement]) -> dict[Pair, list[Judgement]]:
    """Pair -> its judgements, in their order."""
    found: dict[Pair, list[Judgement]] = {}
    for one in judgements:
        found.setdefault(one.pair, []).append(one)
    return found


def _end_line(file: IO[bytes]) -> None:
    """Cut what a killed process left of a last line; give its end to one that is whole, as an editor may leave it."""
    end = size = file.seek(0, os.SEEK_END)
    tail = b""
    while end and b"\n" not in tail:
        end = max(0, end - BLOCK)
        file.seek(end)
        tail = file.read(size - end)
    last = tail[tail.rfind(b"\n") + 1 :]
    if last and is_torn(last):
        file.truncate(size - len(last))
    elif last:
        file.write(b"\n")


def _row(one: Judgement) -> dict[str, Any]:
    return {
        "query": one.query_id,
        "text": one.text,
        "doc": one.doc_id,
        "grade": one.grade,
        "needs": one.needs,
        "by": one.by,
        "round": one.round,
        "sample": one.sample,
        "pi": one.pi,
        "blind": one.blind,
        "quote": one.quote,
        "withdrawn": one.withdrawn,
        "at": one.at,
    }


def _judgement(row: Mapping[str, Any], where: str) -> Judgement:
    doc_id = None if required(row, "doc", where) is None else as_id(row["doc"], "doc", where)[0]
    grade, needs, by = required(row, "grade", where), row.get("needs"), field(row, "by", str, where)
    if grade is not None and (isinstance(grade, bool) or grade not in GRADES):
        raise BadInput(f"{where}: grade is {grade!r:.60}, but must be 0, 1, 2, 3 or null.")
    for key in ("blind", "withdrawn"):
        if not isinstance(row.get(key, False), bool):
            raise BadInput(f"{where}: {key} is {row[key]!r:.60}, but must be true or false.")
    if needs is not None and not isinstance(needs, bool):
        raise BadInput(f"{where}: needs is {needs!r:.60}, but must be true, false or null.")
    if by.partition(":")[0] not in BASES or not by.partition(":")[2]:
        raise BadInput(f"{where}: by is {by!r:.60}, but must be human:NAME, llm:MODEL#PROMPT or adjudicated:NAME.")
    if (sample := optional_text(row, "sample", where)) not in SAMPLES:
        raise BadInput(f"{where}: sample is {sample!r:.60}, but must be audit, repair, all or empty.")
    if (again := row.get("round", 1)) not in (1, 2) or isinstance(again, bool):
        raise BadInput(f"{where}: round is {again!r:.60}, but must be 1 or 2.")
    pi = row.get("pi", 1.0)
    if isinstance(pi, bool) or not isinstance(pi, int | float) or not 0 < pi <= 1:
        raise BadInput(f"{where}: pi is {pi!r:.60}, but a probability above 0 and up to 1 is needed.")
    return Judgement(
        query_id=as_id(required(row, "query", where), "query", where)[0],
        text=field(row, "text", str, where),
        doc_id=doc_id,
        grade=grade,
        by=by,
        at=field(row, "at", str, where),
        needs=needs,
        round=again,
        sample=sample,
        pi=float(pi),
        blind=row.get("blind", True),
        quote=optional_text(row, "quote", where),
        withdrawn=row.get("withdrawn", False),
    )
