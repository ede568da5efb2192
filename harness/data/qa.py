"""Question answering datasets as retrieval datasets: SQuAD (KorQuAD) and AutoRAG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.schema import ReadPath
from harness.data.attributes import given_attributes
from harness.data.files import (
    DAMAGED,
    as_id,
    field,
    identifier,
    json_file,
    no_rows,
    once,
    open_unpacked,
    optional_text,
    required,
    unique_rows,
)
from harness.data.qrels import Qrels
from harness.data.source import Grades, Streamed, source_path
from harness.errors import BadInput
from retrievers.base import Document, Query

_OF_QUESTION = ("id", "question", "is_impossible")  # fields that are not attributes


class Squad:
    """JSON files of SQuAD 1 and 2 and KorQuAD 1. The task is to find the paragraph that each question is about.

    Each distinct context is a document `title#n`; n counts the contexts of the title. A context under several titles
    belongs to the first. A question marked `is_impossible` (SQuAD 2) is unlabelled. Further fields of a question are
    its attributes.
    """

    recorded_as = "dataset/squad"

    def __init__(self, *, path: ReadPath) -> None:
        self.qrels_file = Path(path)

    def documents(self) -> list[Document]:
        return self._read[0]

    def queries(self) -> list[Query]:
        return self._read[1]

    def qrels(self) -> Qrels:
        return Qrels(self._read[2], abstention=False)

    @cached_property
    def _read(self) -> tuple[list[Document], list[Query], Grades]:
        path = self.qrels_file
        documents, queries, grades = dict[str, Document](), list[Query](), Grades()
        counts, seen = Counter[str](), dict[str, str]()
        for title, context, paragraph, position in _paragraphs(path):
            if context not in documents:
                name = "_".join(title.split()) or "untitled"
                counts[name] += 1
                documents[context] = Document(f"{name}#{counts[name]}", context, title)
            for at, question in _objects(path, paragraph, "qas", f"{position}."):
                where = f"{path}:{at}"
                query_id, native = identifier(question, "id", where)
                once(seen, query_id, "question id", path, at)
                text, more = field(question, "question", str, where), given_attributes(question, *_OF_QUESTION)
                queries.append(Query.of(query_id, text, native, more))
                if "is_impossible" not in question or not field(question, "is_impossible", bool, where):
                    grades[query_id] = {documents[context].doc_id: 1.0}
        if not documents or not queries:
            raise no_rows(path)
        return list(documents.values()), queries, grades


class Autorag:
    """AutoRAG's parquet files: corpus.parquet {doc_id, contents}, qa.parquet {qid, query, retrieval_gt}.

    retrieval_gt: a list of ids, or a list of lists of ids, all relevant. If it has no id, the query needs no retrieval.
    Further columns of qa.parquet are attributes of the queries.
    path: the folder with these files. corpus, qa: files to use instead of those in the folder.
    """

    recorded_as = "dataset/autorag"

    def __init__(
        self, *, path: ReadPath | None = None, corpus: ReadPath | None = None, qa: ReadPath | None = None
    ) -> None:
        self._path, self._corpus, self._qa = path, corpus, qa

    @property
    def qrels_file(self) -> Path:
        return source_path("qa", self._qa, self._path, "qa.parquet")

    def documents(self) -> Streamed:
        path = source_path("corpus", self._corpus, self._path, "corpus.parquet")
        return Streamed(path, "autorag", "doc_id", lambda: _parquet_rows(path, "doc_id", "contents"), _document)

    def queries(self) -> list[Query]:
        rows = unique_rows(self.qrels_file, "qid", _parquet_rows(self.qrels_file, "qid", "query", others=True))
        return [
            Query.of(one, field(row, "query", str, where), native, given_attributes(row, "qid", "query"))
            for where, one, native, row in rows
        ]

    def qrels(self) -> Qrels:
        path, grades = self.qrels_file, Grades()
        for where, query_id, _, row in unique_rows(path, "qid", _parquet_rows(path, "qid", "retrieval_gt")):
            groups = [ids if isinstance(ids, list) else [ids] for ids in field(row, "retrieval_gt", list, where)]
            ids = [as_id(one, "an id in retrieval_gt", where)[0] for group in groups for one in group]
            grades[query_id] = dict.fromkeys(ids, 1.0)
        return Qrels(grades)


def _document(row: dict[str, Any], where: str, doc_id: str, native: int | None) -> Document:
    return Document(doc_id, field(row, "contents", str, where), native_id=native)


def _paragraphs(path: Path) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    for at, article in _objects(path, json_file(path), "data", ""):
        title = optional_text(article, "title", f"{path}:{at}")
        for place, paragraph in _objects(path, article, "paragraphs", f"{at}."):
            where = f"{path}:{place}"
            yield title, field(paragraph, "context", str, where), paragraph, place


def _objects(path: Path, row: Mapping[str, Any], key: str, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, item in enumerate(field(row, key, list, f"{path}:{prefix}".rstrip(".:"))):
        if not isinstance(item, dict):
            raise BadInput(f"{path}:{prefix}{key}[{i}] is {item!r:.60}, but must be an object.")
        yield f"{prefix}{key}[{i}]", item


def _parquet_rows(path: Path, *columns: str, others: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("row N", row), each with the named columns, or with all. others: whether to read all columns."""
    from pyarrow import ArrowException, parquet

    try:
        with open_unpacked(path) as file, parquet.ParquetFile(file) as table:
            names = dict.fromkeys(table.schema_arrow.names)
            for column in columns:
                required(names, column, str(path))
            rows = (
                row for batch in table.iter_batches(columns=None if others else [*columns]) for row in batch.to_pylist()
            )
            yield from ((f"row {number}", row) for number, row in enumerate(rows, start=1))
    except (ArrowException, UnicodeDecodeError, *DAMAGED) as error:
        raise BadInput(f"{path}: this is not a readable parquet file ({error!s:.120}). Is it the right one?") from None
