"""The format of a Korean retrieval contest (documents, conversations, labels in JSON lines), and the shipped sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.config.schema import ReadPath
from harness.data.attributes import given_attributes
from harness.data.files import field, json_lines, optional_text, unique_rows
from harness.data.labels import qrels_of, read_label
from harness.data.qrels import Qrels
from harness.data.source import Streamed, source_path, turns
from retrievers.base import Document, Query


class Contest:
    """JSON lines in the format of a Korean retrieval contest on scientific questions.

    documents.jsonl: {docid, title, src, content}; title and src are optional. Title and content are indexed.
    eval.jsonl:      {eval_id, msg: [{role, content}, ...]}, a question or a conversation. Further fields are
                     attributes of the query.
    qrels.jsonl:     {eval_id, relevant: [docid, ...] or {docid: grade}}, or a row of `harness.data.labels`.
                     Grades are finite and > 0. An empty `relevant` means that the query needs no retrieval.

    path: the folder with these files; qrels.jsonl may be missing. documents, queries, qrels: files to use instead of
        those in the folder.
    """

    recorded_as = "dataset/contest"

    def __init__(
        self,
        *,
        path: ReadPath | None = None,
        documents: ReadPath | None = None,
        queries: ReadPath | None = None,
        qrels: ReadPath | None = None,
    ) -> None:
        self._path, self._documents, self._queries, self._qrels = path, documents, queries, qrels

    @property
    def qrels_file(self) -> Path | None:
        if not self._qrels and not self._path:
            return None
        file = source_path("qrels", self._qrels, self._path, "qrels.jsonl")
        return file if self._qrels or file.exists() else None

    def documents(self) -> Streamed:
        path = source_path("documents", self._documents, self._path, "documents.jsonl")
        return Streamed(path, "contest", "docid", lambda: json_lines(path), _document)

    def queries(self) -> list[Query]:
        path = source_path("queries", self._queries, self._path, "eval.jsonl")
        rows = unique_rows(path, "eval_id")
        return [
            Query(query_id, turns(row, where), native, given_attributes(row, "eval_id", "msg"))
            for where, query_id, native, row in rows
        ]

    def qrels(self) -> Qrels | None:
        path = self.qrels_file
        if path is None:
            return None
        rows = unique_rows(path, "eval_id")
        return qrels_of(read_label(row, where, query_id) for where, query_id, _, row in rows)


def _document(row: dict[str, Any], where: str, doc_id: str, native: int | None) -> Document:
    title, source = optional_text(row, "title", where), optional_text(row, "src", where)
    return Document(doc_id, field(row, "content", str, where), title, source, native)


class Sample(Contest):
    """The small Korean dataset that ships with the package."""

    recorded_as = "dataset/sample"

    def __init__(self) -> None:
        super().__init__(path=str(Path(__file__).parents[1] / "sample"))
