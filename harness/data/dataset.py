"""A dataset, the checks of its parts, and the fingerprints of its content."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.text import counted, plural
from harness.data.files import field, numbered_lines, some, unique_rows
from harness.data.qrels import Qrels
from harness.data.shards import documents_by_id, empty_documents, fingerprint_of, json_row
from harness.data.source import Source
from harness.errors import BadInput, did_you_mean
from retrievers.base import Document, Query

_TEXTS = ("user_turns", "last", "file")


@dataclass(frozen=True, repr=False)
class Dataset:
    """Documents, queries and labels that fit together.

    documents: in ascending order of doc_id; a tuple, or `ShardedDocuments` on disk.
    queries: in the order of their file. notes: sentences about unusual content.
    """

    name: str
    documents: Sequence[Document]
    queries: tuple[Query, ...]
    qrels: Qrels | None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join([f"{self.name}: {', '.join(self._parts())}", *self.notes])

    def _repr_html_(self) -> str:
        lines = [f"<b>{html.escape(self.name)}</b>: {', '.join(self._parts())}", *map(html.escape, self.notes)]
        return f"<div>{''.join(f'<p>{line}</p>' for line in lines)}</div>"

    def _parts(self) -> list[str]:
        labelled = "no labels" if self.qrels is None else f"{len(self.qrels.grades):,} labelled"
        return [counted(len(self.documents), "document"), counted(len(self.queries), "query"), labelled]

    @cached_property
    def by_id(self) -> Mapping[str, Document]:
        return documents_by_id(self.documents)

    @cached_property
    def conversations(self) -> dict[str, bool]:
        return conversations(self.queries)

    @cached_property
    def fingerprints(self) -> dict[str, str | None]:
        """Part -> its sha256. Parts: "documents", "queries", "qrels" and "evidence" (the passages behind the labels).

        They depend on ids, titles, texts, turns, grades and the order of queries. They do not depend on line endings,
        on a document's `source`, on the order of keys, documents or labels, or on whether an id is written as a number.
        """
        queries = ((query.query_id, [(turn.role, turn.content) for turn in query.turns]) for query in self.queries)
        found = {"documents": fingerprint_of(self.documents), "queries": _sha256(queries), "qrels": None}
        if self.qrels is not None:
            found["qrels"] = _sha256(self.qrels.content())
            if sources := [*self.qrels.sources()]:
                found["evidence"] = _sha256(sources)
        return found


def checked_dataset(source: Source, name: str, documents: Sequence[Document] | None = None) -> Dataset:
    """Read a source. Raise BadInput if its labels name a query or a relevant document that the source lacks.

    Empty documents and unlabelled queries are kept, and `notes` reports them.
    documents: the source's documents in ascending order of doc_id; None to read them here.
    """
    if documents is None:
        documents = in_memory(source.documents())
    queries = tuple(source.queries())
    qrels, known = source.qrels(), documents_by_id(documents)
    if qrels is not None:
        relevant = {doc_id for grades in qrels.grades.values() for doc_id in grades}
        labelled = [*qrels.grades, *qrels.unanswerable]
        _refuse_dangling(source, "query", labelled, {query.query_id for query in queries})
        _refuse_dangling(source, "document", sorted(relevant), known)
    notes = (*getattr(source, "notes", ()), *_notes(documents, queries, qrels, known))
    return Dataset(name, documents, queries, qrels, notes)


def in_memory(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Return documents in ascending order of doc_id."""
    return tuple(sorted(documents, key=lambda document: document.doc_id))


def search_queries(dataset: Dataset, text: str = "user_turns", file: str | None = None) -> tuple[Query, ...]:
    """Return the queries to search, in order, each with one user turn.

    text: `user_turns` joins the user turns with spaces; `last` takes the last one; `file` reads the texts from a file,
    JSON lines {eval_id, standalone_query}. Raise BadInput unless the file has exactly the dataset's queries, each once.
    """
    if text not in _TEXTS:
        raise BadInput(f"query.text={text!r} is not one of {', '.join(_TEXTS)}.{did_you_mean(text, _TEXTS)}")
    if text == "file" and not file:
        raise BadInput("query.text=file needs query.file=FILE, JSON lines {eval_id, standalone_query}.")
    if text != "file" and file:
        raise BadInput(
            f"query.file={file} is not read with query.text={text}. Use query.text=file, or leave out query.file."
        )
    if file:
        texts = _rewritten(dataset, Path(file))
    elif text == "last":
        texts = {query.query_id: query.user_turns[-1] for query in dataset.queries}
    else:
        texts = {query.query_id: query.text for query in dataset.queries}
    return tuple(_asking(one, texts[one.query_id]) for one in dataset.queries)


def _asking(query: Query, text: str) -> Query:
    """Return the query with `text` as its only turn, without attributes. Return the query itself if it is the same."""
    made = Query.of(query.query_id, text, query.native_id)
    return query if query == made else made


def conversations(queries: Iterable[Query]) -> dict[str, bool]:
    """Return query_id -> whether the query has more than one user turn."""
    return {query.query_id: len(query.user_turns) > 1 for query in queries}


def _rewritten(dataset: Dataset, path: Path) -> dict[str, str]:
    expected = {query.query_id for query in dataset.queries}
    texts: dict[str, str] = {}
    for where, query_id, _, row in unique_rows(path, "eval_id"):
        if query_id not in expected:
            raise BadInput(f"{where}: the dataset has no query {query_id!r:.60}. Remove the line.")
        texts[query_id] = field(row, "standalone_query", str, where)
    missing = [query.query_id for query in dataset.queries if query.query_id not in texts]
    if missing:
        raise BadInput(f"{path} lacks {len(missing)} of {len(expected)} queries: {some(missing)}. Add a line for each.")
    return texts


def _refuse_dangling(source: Source, what: str, labelled: Iterable[str], known: Collection[str]) -> None:
    unknown = [item_id for item_id in labelled if item_id not in known]
    if unknown:
        raise BadInput(
            f"{_line_of(source.qrels_file, unknown[0])}: labels name {counted(len(unknown), what)} that the dataset "
            f"does not have: {some(unknown)}. Remove these labels, or add the {plural(what)} that they belong to."
        )


def _line_of(path: Path | None, wanted: str) -> str:
    if path is None or path.suffix in (".parquet", ".json"):
        return str(path)
    for number, line in numbered_lines(path):
        if wanted in re.split(r"[\s\",:{}\[\]]+", line):
            return f"{path}:{number}"
    return str(path)


def _notes(
    documents: Sequence[Document], queries: tuple[Query, ...], qrels: Qrels | None, known: Collection[str]
) -> Iterable[str]:
    count, first = empty_documents(documents)
    if count:
        yield f"{count:,} of {len(documents):,} documents are empty: {some(first, count=count)}."
    blank = [query.query_id for query in queries if not query.text.strip()]
    if blank:
        yield f"{len(blank)} of {len(queries)} queries are empty: {some(blank)}."
    if qrels is None:
        return
    unlabelled = len(queries) - len(qrels.grades) - len(qrels.unanswerable)
    if unlabelled:
        yield f"{unlabelled} of {len(queries)} queries are unlabelled: they are searched and exported, but not scored."
    if qrels.unanswerable:
        unanswered = counted(len(qrels.unanswerable), "query")
        yield f"{unanswered} without an answer in the documents, scored separately: {some(qrels.unanswerable)}."
    yield from qrels.remarks()
    needless = sum(not qrels.needs_retrieval(query_id) for query_id in qrels.grades)
    if needless:
        yield f"{needless} of {len(qrels.grades)} labelled queries need no retrieval."
    yield from _judgement_notes(qrels, known)


def _judgement_notes(qrels: Qrels, known: Collection[str]) -> Iterable[str]:
    if qrels.unmet:
        need = "query needs" if len(qrels.unmet) == 1 else "queries need"
        unmet = [query_id for query_id in qrels.grades if query_id in qrels.unmet]
        yield (
            f"{len(unmet)} labelled {need} retrieval, but no judged document is relevant, so every run scores 0 "
            f"for them: {some(unmet)}."
        )
    others = sum(map(len, (qrels.not_relevant or {}).values()))
    if others:
        relevant = sum(map(len, qrels.grades.values()))
        each = (relevant + others) / len(qrels.grades)
        judged = counted(relevant + others, "judged pair")
        yield f"{judged} of a query and a document, {each:.1f} per query; {relevant:,} of them relevant."
    if pooled := sum(map(len, qrels.pooled.values())):
        yield f"{counted(pooled, 'pair')} of a query and a document: pooled, but not judged."
    lists = [*(qrels.not_relevant or {}).values(), *qrels.pooled.values()]
    if lacking := sorted(one for one in set().union(*lists) if one not in known):
        there = counted(len(lacking), "document")
        yield f"{there} named in the labels, but missing from the dataset (none is relevant): {some(lacking)}."


def _sha256(rows: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json_row(row))
    return digest.hexdigest()
