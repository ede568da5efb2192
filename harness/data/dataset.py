"""A dataset: documents, queries and labels that fit together, with fingerprints of its content."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.text import counted, plural
from harness.data.files import field, json_lines, numbered_lines, some, unique_rows
from harness.data.labels import Checked, FrozenQrels
from harness.data.shards import ShardedDocuments, fingerprint_of
from harness.data.source import Source
from harness.data.spans import Span, SpanQrels
from harness.errors import BadInput, did_you_mean
from retrievers.base import Document, Qrels, Query, Turn

_TEXTS = ("user_turns", "last", "file")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, repr=False)
class Dataset:
    """Documents, queries and labels.

    name:      of the dataset.
    documents: in ascending order of doc_id; a tuple, or `ShardedDocuments`, which memory need not hold.
    queries:   in the order of the file.
    qrels:     None without labels.
    notes:     sentences for the user about unusual content.
    """

    name: str
    documents: Sequence[Document]
    queries: tuple[Query, ...]
    qrels: Qrels | None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join([f"{self.name}: {', '.join(self._parts())}", *self.notes])

    def _repr_html_(self) -> str:
        """For notebooks."""
        lines = [f"<b>{html.escape(self.name)}</b>: {', '.join(self._parts())}", *map(html.escape, self.notes)]
        return f"<div>{''.join(f'<p>{line}</p>' for line in lines)}</div>"

    def _parts(self) -> list[str]:
        labelled = "no labels" if self.qrels is None else f"{len(self.qrels.grades):,} labelled"
        return [counted(len(self.documents), "document"), counted(len(self.queries), "query"), labelled]

    @cached_property
    def by_id(self) -> Mapping[str, Document]:
        """doc_id -> document."""
        if isinstance(self.documents, ShardedDocuments):
            return self.documents.by_id
        return {document.doc_id: document for document in self.documents}

    @cached_property
    def fingerprints(self) -> dict[str, str | None]:
        """sha256 of the content of "documents", "queries" and "qrels" (None without labels).

        Labels made of evidence also have "evidence": it is the same however the texts were cut into documents.
        They depend on ids, titles, texts, turns and grades, and on the order of the queries. Line ends, the order of
        keys, the order of documents and labels, `source`, and whether an id was a number make no difference.
        """
        queries = ((query.query_id, [(turn.role, turn.content) for turn in query.turns]) for query in self.queries)
        found = {
            "documents": self.documents.fingerprint
            if isinstance(self.documents, ShardedDocuments)
            else fingerprint_of(self.documents),
            "queries": _sha256(queries),
            "qrels": None if self.qrels is None else _sha256(_canonical(self.qrels)),
        }
        return found | ({"evidence": _sha256(_evidence(self.qrels))} if isinstance(self.qrels, SpanQrels) else {})


def checked_dataset(source: Source, name: str, documents: Sequence[Document] | None = None) -> Dataset:
    """Read a source and check that its parts fit together.

    documents: of the source, in ascending order of doc_id, if they have been read; None: they are read into memory.

    Raises BadInput for labels of unknown queries, and for relevant documents that are unknown. Empty documents,
    unlabelled queries, and unknown documents that were judged and are not relevant, or were pooled alone, stay and are
    reported in `notes`, with the notes of the source, if it has some.
    """
    if documents is None:
        documents = in_memory(source)
    queries = tuple(source.queries())
    qrels, known = source.qrels(), _ids(documents)
    if qrels is not None:
        relevant = {doc_id for grades in qrels.grades.values() for doc_id in grades}
        labelled = [*qrels.grades, *qrels.unanswerable]
        _refuse_dangling(source, "query", labelled, {query.query_id for query in queries})
        _refuse_dangling(source, "document", sorted(relevant), known)
    notes = (*getattr(source, "notes", ()), *_empty_notes(documents), *_notes(queries, qrels, known))
    return Dataset(name, documents, queries, qrels, notes)


def in_memory(source: Source) -> tuple[Document, ...]:
    """The documents of a source in ascending order of doc_id."""
    return tuple(sorted(source.documents(), key=lambda document: document.doc_id))


def search_queries(dataset: Dataset, text: str = "user_turns", file: str | None = None) -> tuple[Query, ...]:
    """The queries as they are searched: the same ids in the same order, each with one user turn.

    text: `user_turns`: all user turns, joined by a space; `last`: the last user turn; `file`: the text in `file`.
    file: JSON lines {eval_id, standalone_query}, one for each query of the dataset.

    Raises BadInput for other values of `text`, and unless the file has every query exactly once and no others.
    """
    if text not in _TEXTS:
        raise BadInput(f"query.text={text!r} is not one of {', '.join(_TEXTS)}.{did_you_mean(text, _TEXTS)}")
    if text == "file" and not file:
        raise BadInput("query.text=file needs query.file=FILE, JSON lines {eval_id, standalone_query}.")
    if text != "file" and file:
        raise BadInput(f"query.file={file} is not read with query.text={text}. Use query.text=file, or leave it out.")
    if file:
        texts = _rewritten(dataset, Path(file))
    elif text == "last":
        texts = {query.query_id: query.user_turns[-1] for query in dataset.queries}
    else:
        texts = {query.query_id: query.text for query in dataset.queries}
    return tuple(
        Query(query.query_id, (Turn("user", texts[query.query_id]),), query.native_id) for query in dataset.queries
    )


def conversations(queries: Iterable[Query]) -> dict[str, bool]:
    """query_id -> whether it has more than one user turn."""
    return {query.query_id: len(query.user_turns) > 1 for query in queries}


def _rewritten(dataset: Dataset, path: Path) -> dict[str, str]:
    """query_id -> its standalone form in the file `path`."""
    expected = {query.query_id for query in dataset.queries}
    texts: dict[str, str] = {}
    for where, query_id, _, row in unique_rows(path, json_lines(path), "eval_id"):
        if query_id not in expected:
            raise BadInput(f"{where}: the dataset has no query {query_id!r:.60}. Remove the line.")
        texts[query_id] = field(row, "standalone_query", str, where)
    missing = [query.query_id for query in dataset.queries if query.query_id not in texts]
    if missing:
        raise BadInput(f"{path} lacks {len(missing)} of {len(expected)} queries: {some(missing)}. Add a line for each.")
    return texts


def _refuse_dangling(source: Source, what: str, labelled: Iterable[str], known: Collection[str]) -> None:
    """Raise BadInput if a label names a query or document (`what`: "query" or "document") that is not `known`."""
    unknown = [item_id for item_id in labelled if item_id not in known]
    if unknown:
        raise BadInput(
            f"{_line_of(source.qrels_file, unknown[0])}: labels name {counted(len(unknown), what)} that the dataset "
            f"does not have: {some(unknown)}. Remove these labels, or add the {plural(what)} that they belong to."
        )


def _line_of(path: Path | None, wanted: str) -> str:
    """file:line of the first line of a labels file that contains an id; only the file for formats without lines."""
    if path is None or path.suffix in (".parquet", ".json"):
        return str(path)
    for number, line in numbered_lines(path):
        if wanted in re.split(r"[\s\",:{}\[\]]+", line):
            return f"{path}:{number}"
    return str(path)


def _ids(documents: Sequence[Document]) -> Collection[str]:
    """The ids of documents."""
    if isinstance(documents, ShardedDocuments):
        return documents.by_id
    return {document.doc_id for document in documents}


def _empty_notes(documents: Sequence[Document]) -> Iterable[str]:
    if isinstance(documents, ShardedDocuments):
        count, first = documents.empty, documents.first_empty
    else:
        first = tuple(document.doc_id for document in documents if not document.indexed_text.strip())
        count = len(first)
    if count:
        yield f"{count:,} of {len(documents):,} documents are empty: {some(first, count=count)}."


def _notes(queries: tuple[Query, ...], qrels: Qrels | None, known: Collection[str]) -> Iterable[str]:
    """known: ids of the documents."""
    blank = [query.query_id for query in queries if not query.text.strip()]
    if blank:
        yield f"{len(blank)} of {len(queries)} queries are empty: {some(blank)}."
    if qrels is None:
        return
    unlabelled = len(queries) - len(qrels.grades) - len(qrels.unanswerable)
    if unlabelled:
        yield f"{unlabelled} of {len(queries)} queries are unlabelled: retrieved and exported, but not scored."
    if qrels.unanswerable:
        unanswered = counted(len(qrels.unanswerable), "query")
        yield f"{unanswered} without an answer in the documents, scored apart: {some(qrels.unanswerable)}."
    if isinstance(qrels, FrozenQrels):
        yield from qrels.notes
    if isinstance(qrels, SpanQrels):
        yield from _evidence_notes(qrels)
    needless = sum(not qrels.needs_retrieval(query_id) for query_id in qrels.grades)
    if needless:
        yield f"{needless} of {len(qrels.grades)} labelled queries need no retrieval."
    yield from _judgement_notes(qrels, known)


def _judgement_notes(qrels: Qrels, known: Collection[str]) -> Iterable[str]:
    """What was judged, and what was not."""
    if qrels.unmet:
        need = "query needs" if len(qrels.unmet) == 1 else "queries need"
        unmet = [query_id for query_id in qrels.grades if query_id in qrels.unmet]
        yield (
            f"{len(unmet)} labelled {need} retrieval, and no document that was judged is relevant, so that every run "
            f"scores 0 there: {some(unmet)}."
        )
    others = sum(map(len, (qrels.not_relevant or {}).values()))
    if others:
        relevant = sum(map(len, qrels.grades.values()))
        each = (relevant + others) / len(qrels.grades)
        judged = counted(relevant + others, "judged pair")
        yield f"{judged} of a query and a document, {each:.1f} per query; {relevant:,} of them relevant."
    if pooled := sum(map(len, qrels.pooled.values())):
        yield f"{counted(pooled, 'pair')} of a query and a document pooled, but not judged."
    lists = [*(qrels.not_relevant or {}).values(), *qrels.pooled.values()]
    if lacking := sorted(one for one in set().union(*lists) if one not in known):
        there = counted(len(lacking), "document")
        yield f"{there} of the labels, none of them relevant, missing from the dataset: {some(lacking)}."


def _evidence_notes(qrels: SpanQrels) -> Iterable[str]:
    """What was found on the way from evidence to labels."""
    said = {
        "moved": "found again, since the text has changed",
        "lost": "lost: the text has changed, and the passage is nowhere else, or in several places",
        "uncovered": "in no document: the documents leave out that part of the text",
        "split": "split between documents: none contains half of it, so the one that contains most is labelled",
    }
    for what, meaning in said.items():
        queries = [one.query_id for one in qrels.findings if one.what == what]
        if queries:
            pieces = counted(len(queries), "piece")
            yield f"{pieces} of evidence {meaning} (of {some(list(dict.fromkeys(queries)))})."


def _canonical(qrels: Qrels) -> Iterable[Any]:
    """The content of labels, the same for all files with the same meaning."""
    yield qrels.abstention
    for query_id, grades in sorted(qrels.grades.items()):
        yield query_id, sorted((doc_id, float(grade)) for doc_id, grade in grades.items())
    yield from _beside_grades(qrels)
    if isinstance(qrels, SpanQrels):
        yield from _evidence(qrels)
        for doc_id, spans in sorted(qrels.places.items()):
            yield doc_id, [_place(span) for span in spans]
    if isinstance(qrels, FrozenQrels) and qrels.checked:
        yield from _checked(qrels.checked)


def _checked(checked: Checked) -> Iterable[Any]:
    """What an estimate from partly checked labels depends on."""
    for part in (checked.model, checked.people):
        yield from _canonical(part)
    yield sorted(checked.strata.items())


def _beside_grades(qrels: Qrels) -> Iterable[Any]:
    """What labels say beside grades; nothing if they have grades alone, so that these keep their fingerprints."""
    judged = _listed(qrels.not_relevant or {})
    # TREC and BEIR labels say which documents were judged even if all of them are relevant.
    if judged or (qrels.not_relevant is not None and qrels.abstention):
        yield "not_relevant", judged
    if pooled := _listed(qrels.pooled):
        yield "pooled", pooled
    if qrels.unmet:
        yield "unmet", sorted(qrels.unmet)
    # Of a test set with evidence, the queries have always said this: they are unlabelled and without evidence.
    if qrels.unanswerable and type(qrels) is not SpanQrels:
        yield "unanswerable", sorted(qrels.unanswerable)


def _listed(documents: Mapping[str, frozenset[str]]) -> list[tuple[str, list[str]]]:
    return [(query_id, sorted(ids)) for query_id, ids in sorted(documents.items()) if ids]


def _evidence(qrels: SpanQrels) -> Iterable[Any]:
    """What labels were made of, in the order of the queries' ids; [] for a query that needs no retrieval."""
    for query_id in sorted(qrels.grades):
        pieces = qrels.evidence.get(query_id, ())
        yield query_id, sorted((*_place(one.span), float(one.grade)) for one in pieces)


def _place(span: Span) -> tuple[str, int, int]:
    return span.text, span.start, span.end


def _sha256(rows: Iterable[Any]) -> str:
    """sha256 of the rows as JSON lines, read one at a time."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_encode(row).encode())
        digest.update(b"\n")
    return digest.hexdigest()
