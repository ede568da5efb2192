"""TREC runs and qrels, and BEIR folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.schema import ReadPath
from harness.data.attributes import given_attributes
from harness.data.files import (
    as_id,
    field,
    finite_number,
    json_lines,
    no_rows,
    numbered_lines,
    once,
    optional_text,
    unique_rows,
)
from harness.data.qrels import Qrels
from harness.data.source import Grades, Streamed, grade_of, source_path
from harness.errors import BadInput
from retrievers.base import Document, Query, one_word

_NO_TEXT = (
    "dataset=trec has only labels, no documents and no queries: use it with `harness score`. To search, use "
    "dataset=beir or dataset=contest."
)


class Beir:
    """A BEIR folder: corpus.jsonl {_id, title, text}, queries.jsonl {_id, text}, qrels/SPLIT.tsv with a header.

    Only queries with labels in the split are used, or all queries if there is no qrels folder. Grades mean the same as
    in `Trec`. Further fields of a query, and the fields in its `metadata`, are its attributes. documents, queries,
    qrels: files to use instead of those in the folder.
    """

    recorded_as = "dataset/beir"

    def __init__(
        self,
        *,
        path: ReadPath | None = None,
        split: str = "test",
        documents: ReadPath | None = None,
        queries: ReadPath | None = None,
        qrels: ReadPath | None = None,
    ) -> None:
        self._path, self._split = path, split
        self._documents, self._queries, self._qrels = documents, queries, qrels

    @property
    def qrels_file(self) -> Path | None:
        if not self._qrels and not self._path:
            return None
        file = source_path("qrels", self._qrels, self._path, f"qrels/{self._split}.tsv")
        if self._qrels or file.exists():
            return file
        if not file.parent.is_dir():
            return None
        splits = sorted({entry.name.partition(".tsv")[0] for entry in file.parent.glob("*.tsv*")})
        raise BadInput(f"{file}: there is no such file. Choose dataset.split from: {', '.join(splits) or 'none'}.")

    def documents(self) -> Streamed:
        path = source_path("documents", self._documents, self._path, "corpus.jsonl")
        return Streamed(path, "beir", "_id", lambda: json_lines(path), _document)

    def queries(self) -> list[Query]:
        path = source_path("queries", self._queries, self._path, "queries.jsonl")
        return [
            Query.of(query_id, field(row, "text", str, where), native, given_attributes(row, "_id", "text"))
            for where, query_id, native, row in unique_rows(path, "_id")
            if self._labels is None or query_id in self._labels.grades
        ]

    def qrels(self) -> Qrels | None:
        return self._labels

    @cached_property
    def _labels(self) -> Qrels | None:
        return _judgements(self.qrels_file, _tsv_rows(self.qrels_file)) if self.qrels_file else None


class Trec:
    """TREC labels without texts, in lines `query_id iteration doc_id grade`, for scoring a TREC run.

    As in trec_eval, grade 0 means judged not relevant, and a grade < 0 means pooled but not judged. These labels cannot
    express that a query needs no retrieval.
    """

    recorded_as = "dataset/trec"

    def __init__(self, *, qrels: ReadPath) -> None:
        self.qrels_file = Path(qrels)

    def documents(self) -> list[Document]:
        raise BadInput(_NO_TEXT)

    def queries(self) -> list[Query]:
        raise BadInput(_NO_TEXT)

    def qrels(self) -> Qrels:
        return _judgements(self.qrels_file, _trec_rows(self.qrels_file))


def _document(row: dict[str, Any], where: str, doc_id: str, native: int | None) -> Document:
    return Document(doc_id, field(row, "text", str, where), optional_text(row, "title", where), native_id=native)


def _tsv_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    for row, (number, line) in enumerate(numbered_lines(path)):
        fields = line.split("\t")
        if len(fields) != 3:
            raise BadInput(
                f"{path}:{number}: {len(fields)} fields, but three are needed, separated by tabs: query-id, "
                "corpus-id, score."
            )
        if row:
            yield number, fields[0], fields[1], fields[2]
        elif re.fullmatch(r"\s*[-+.\d]+\s*", fields[2]):
            raise BadInput(
                f"{path}:{number}: this is a label, but the first line must be the header query-id, corpus-id, score."
            )


def _trec_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != 4:
            raise BadInput(
                f"{path}:{number}: {len(fields)} fields, but four are needed: query_id iteration doc_id grade."
            )
        yield number, fields[0], fields[2], fields[3]


def _judgements(path: Path, rows: Iterable[tuple[int, str, str, str]]) -> Qrels:
    grades: Grades = {}
    not_relevant: dict[str, set[str]] = {}
    pooled: dict[str, set[str]] = {}
    seen: dict[tuple[str, str], int] = {}
    for number, query_id, doc_id, grade in rows:
        where = f"{path}:{number}"
        as_id(query_id, "the query id", where)
        as_id(doc_id, "the document id", where)
        once(seen, (query_id, doc_id), "the label of", path, number)
        relevant = grades.setdefault(query_id, {})
        if (value := finite_number(grade, "grade", where)) > 0:
            relevant[doc_id] = grade_of(value, "grade", where)
        else:
            (pooled if value < 0 else not_relevant).setdefault(query_id, set()).add(doc_id)
    if not grades:
        raise no_rows(path)
    return Qrels(
        grades,
        abstention=False,
        not_relevant={query_id: frozenset(ids) for query_id, ids in not_relevant.items()},
        pooled={query_id: frozenset(ids) for query_id, ids in pooled.items()},
        unmet=frozenset(query_id for query_id, relevant in grades.items() if not relevant),
    )


def judged_pairs(qrels: Qrels) -> Iterator[tuple[str, str, float]]:
    """Yield (query_id, doc_id, grade) by ascending doc_id: grade 0 if judged not relevant, -1 if only pooled.

    Leave out queries that need no retrieval, and queries without labelled documents: TREC and BEIR files cannot express
    them.
    """
    for query_id, grades in qrels.grades.items():
        if not qrels.needs_retrieval(query_id):
            continue
        unjudged = dict.fromkeys(qrels.pooled.get(query_id, ()), -1.0)
        judged = dict.fromkeys((qrels.not_relevant or {}).get(query_id, ()), 0.0)
        yield from ((query_id, doc_id, grade) for doc_id, grade in sorted((unjudged | judged | {**grades}).items()))


def trec_qrels_lines(qrels: Qrels) -> Iterator[str]:
    """Yield a line `query_id 0 doc_id grade` per pair of `judged_pairs`, with white space in ids percent-encoded."""
    for query_id, doc_id, grade in judged_pairs(qrels):
        yield f"{one_word(query_id)} 0 {one_word(doc_id)} {grade_text(grade)}"


def grade_text(grade: float) -> str:
    """Return a grade as text that reads back as the same number, without a decimal point if it is whole."""
    return str(int(grade)) if grade.is_integer() else repr(grade)
