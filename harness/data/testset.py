"""Test sets with evidence: queries, and the passages of texts that answer them.

queries.jsonl: {eval_id, msg, kind, needs, answer, docid, evidence, flags}, one line per query. Each item of `evidence`
               is {text, start, end, exact, prefix, suffix, grade}. `kind`, `needs` and further fields are attributes.
testset.json:  {version, documents: {path}}, written last: a folder without this file is unfinished. `path` is the
               documents folder, relative to the test set. `documents` may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.schema import ReadPath
from harness.data.attributes import given_attributes
from harness.data.documents_folder import DOCUMENTS, Chunk, DocumentsFolder, read_span
from harness.data.files import field, finished_folder, optional_text, unique_rows
from harness.data.qrels import Qrels
from harness.data.source import grade_of, turns
from harness.data.spans import Evidence, EvidenceFinding, Places, Span, label
from harness.errors import BadInput, did_you_mean
from harness.progress import watch
from retrievers.base import Document, Query


def find_again(
    lost: Sequence[Evidence], text_ids: Sequence[str], text_of: Callable[[str], str]
) -> list[Evidence | None]:
    """Return each piece of evidence at its new place, or None if no text has the passage, or if several places tie.

    The new place is the one that keeps the most characters of the prefix and suffix, counted outwards from the passage.
    text_of: text id -> text; called once for each text.
    """
    found: list[tuple[int, list[Span]]] = [(-1, []) for _ in lost]  # (characters kept, up to 2 best places)
    with watch("evidence: searching the texts") as progress:
        for done, text_id in enumerate(text_ids, start=1):
            text = text_of(text_id)
            for number, one in enumerate(lost):
                for span, fit in _fits(one, text_id, text):
                    best, spans = found[number]
                    if fit >= best:
                        found[number] = fit, [span, *spans[:1]] if fit == best else [span]
            progress(done, len(text_ids), "texts")
    pairs = zip(lost, found, strict=True)
    return [replace(one, span=spans[0]) if len(spans) == 1 else None for one, (_, spans) in pairs]


def _fits(one: Evidence, text_id: str, text: str) -> Iterator[tuple[Span, int]]:
    start = text.find(one.exact)
    while start >= 0:
        end = start + len(one.exact)
        before = text[max(0, start - len(one.prefix)) : start]
        fit = _shared(before[::-1], one.prefix[::-1]) + _shared(text[end : end + len(one.suffix)], one.suffix)
        yield Span(text_id, start, end), fit
        start = text.find(one.exact, start + 1)


def _shared(one: str, other: str) -> int:
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


# Kinds of queries. `none` needs no retrieval, and `unanswerable` has no answer in the texts: neither has evidence.
KINDS = ("fact", "search", "conversation", "none", "unanswerable")
QUERIES, MANIFEST = "queries.jsonl", "testset.json"
VERSION = 1
OWN = ("eval_id", "msg", "answer", "docid")  # fields of a query that are not its attributes


@dataclass(frozen=True)
class EvidencedQuery:
    """A query of a test set. where: its file and line. answer: the answer in words; "" if unknown."""

    query: Query
    kind: str
    evidence: tuple[Evidence, ...]
    where: str
    answer: str = ""


class SpanLabelled:
    """A test set with evidence, for the documents of `harness prepare`.

    Its labels remain valid if the texts are cut differently, and after edits that keep the evidence.

    path: the folder of the test set. documents: the documents folder; None for the folder that the test set names.
    """

    recorded_as = "dataset/testset"
    key = "dataset.path"  # the config key of the test set, for error messages
    manifest_name = MANIFEST

    def __init__(self, *, path: ReadPath, documents: ReadPath | None = None) -> None:
        self.path, self._documents = Path(path), documents

    @property
    def qrels_file(self) -> Path:
        return self.path / QUERIES

    def documents(self) -> list[Document]:
        return [chunk.document for chunk in self._chunks]

    def queries(self) -> list[Query]:
        return [one.query for one in self.rows]

    def qrels(self) -> Qrels:
        return span_qrels(self.rows, self._chunks, self.folder)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return read_testset_manifest(self.path)

    @cached_property
    def folder(self) -> DocumentsFolder:
        if self._documents:
            return DocumentsFolder(Path(self._documents), "dataset.documents")
        return documents_named(self.path / self.manifest_name, self.manifest)

    @cached_property
    def _chunks(self) -> list[Chunk]:
        return list(self.folder.chunks())

    @cached_property
    def rows(self) -> list[EvidencedQuery]:
        return read_queries(self.path, self.key)


def documents_named(file: Path, manifest: Mapping[str, Any], other: str = "dataset.documents") -> DocumentsFolder:
    """Return the documents folder that a manifest names. file: the manifest. other: config key for another folder."""
    if manifest.get("documents") is None:
        raise BadInput(f"{file} names no documents folder. Give one: {other}=FOLDER.")
    path = field(field(manifest, "documents", dict, str(file)), "path", str, str(file))
    return DocumentsFolder(file.parent / path, f"{file}: documents.path")


def read_testset_manifest(folder: Path, key: str = "dataset.path") -> dict[str, Any]:
    """Return `testset.json`. Raise BadInput unless the test set is finished. key: the config key of the folder."""
    finish = 'Repeat `harness testset draft`. If the queries have another origin, write {"version": 1} to testset.json.'
    give = "Give the folder that `harness testset draft` wrote."
    return finished_folder(folder, MANIFEST, VERSION, key=key, give=give, finish=finish)


def read_queries(folder: Path, key: str = "dataset.path") -> list[EvidencedQuery]:
    """Return the queries of a finished test set, in file order. For a bad row, raise BadInput with file and line."""
    read_testset_manifest(folder, key)
    rows = unique_rows(folder / QUERIES, "eval_id")
    return [_query(row, query_id, native, where) for where, query_id, native, row in rows]


def _query(row: Mapping[str, Any], query_id: str, native: int | None, where: str) -> EvidencedQuery:
    kind = field(row, "kind", str, where)
    check_kind(kind, field(row, "needs", bool, where), where)
    evidence = tuple(read_evidence(one, where) for one in field(row, "evidence", list, where))
    if bool(evidence) == (kind in ("none", "unanswerable")):
        what = "evidence, but nothing answers it" if evidence else "no evidence, but something must answer it"
        raise BadInput(f"{where}: a query of kind {kind} has {what}. Correct one of them.")
    answer = optional_text(row, "answer", where)
    query = Query(query_id, turns(row, where), native, given_attributes(row, *OWN))
    return EvidencedQuery(query, kind, evidence, where, answer)


def check_kind(kind: str, needs: bool, where: str) -> None:
    """Raise BadInput for an unknown kind of query, and for one that contradicts `needs`."""
    if kind not in KINDS:
        raise BadInput(f"{where}: kind {kind!r:.60} is not one of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")
    if needs == (kind == "none"):
        said = str(needs).lower()
        raise BadInput(f"{where}: needs is {said}, but kind {kind} means the opposite. Correct one of them.")


def read_evidence(value: Any, where: str) -> Evidence:
    """Read evidence from {text, start, end, exact, prefix, suffix, grade}. The last three fields may be missing."""
    span = read_span(value, where)
    exact, grade = field(value, "exact", str, where), grade_of(value.get("grade", 1), "grade", where)
    if len(exact) != span.end - span.start:
        raise BadInput(
            f"{where}: `exact` has {len(exact):,} characters, but start {span.start} and end {span.end} are "
            f"{span.end - span.start:,} apart. They must name the same passage."
        )
    prefix, suffix = optional_text(value, "prefix", where), optional_text(value, "suffix", where)
    return Evidence(span, exact, prefix, suffix, grade)


def span_qrels(queries: Sequence[EvidencedQuery], chunks: Sequence[Chunk], folder: DocumentsFolder) -> Qrels:
    """Return the labels of queries for the documents of a folder.

    A query whose evidence is gone is unlabelled, because the texts may or may not still answer it. Raise BadInput
    if a piece of evidence, or a document in the same text, differs from the text at its span.
    """
    spans = {chunk.document.doc_id: chunk.spans for chunk in chunks}
    places, now = Places(spans), _placed(queries, chunks, folder)
    grades: dict[str, Mapping[str, float]] = {}
    evidence: dict[str, tuple[Evidence, ...]] = {}
    findings: list[EvidenceFinding] = []
    for one in queries:
        query_id, here = one.query.query_id, []
        for old in one.evidence:
            if (new := now[old]) is None:
                findings.append(EvidenceFinding(query_id, "lost", old))
                continue
            here.append(new)
            if new.span.text != old.span.text:
                findings.append(EvidenceFinding(query_id, "moved", new))
        relevant, remarks = label(query_id, here, places)
        findings += remarks
        if relevant or one.kind == "none":
            grades[query_id] = relevant
        if relevant:
            evidence[query_id] = tuple(here)
    unanswerable = tuple(one.query.query_id for one in queries if one.kind == "unanswerable")
    return Qrels(
        grades,
        unanswerable=unanswerable,
        counts_unanswerable=False,  # the fingerprint lists the labelled queries, so it need not list these
        evidence=evidence,
        places=spans,
        findings=tuple(findings),
    )


def _placed(
    queries: Sequence[EvidencedQuery], chunks: Sequence[Chunk], folder: DocumentsFolder
) -> dict[Evidence, Evidence | None]:
    documents: dict[str, list[tuple[Span, Document]]] = {}
    for chunk in chunks:
        for span in chunk.spans:
            documents.setdefault(span.text, []).append((span, chunk.document))
    quoted: dict[str, list[tuple[Evidence, str]]] = {}
    for one in queries:
        for piece in one.evidence:
            quoted.setdefault(piece.span.text, []).append((piece, one.where))
    placed: dict[Evidence, Evidence | None] = {}
    gone: list[Evidence] = []
    for text_id, pieces in quoted.items():
        if text_id not in documents:
            gone += [piece for piece, _ in pieces]
            continue
        text = folder.text(text_id)
        _check_documents(documents[text_id], text, folder)
        for piece, where in pieces:
            if text[piece.span.start : piece.span.end] != piece.exact:
                raise BadInput(
                    f"{where}: text {text_id} from {piece.span.start} to {piece.span.end} differs from `exact`, "
                    f"{piece.exact!r:.60}. Correct the evidence, or remove the line."
                )
            placed[piece] = piece
    if gone:
        placed |= zip(gone, find_again(gone, sorted(documents), folder.text), strict=True)
    return placed


def _check_documents(documents: Sequence[tuple[Span, Document]], text: str, folder: DocumentsFolder) -> None:
    for span, document in documents:
        if text[span.start : span.end] != document.text:
            raise BadInput(
                f"{folder.path / DOCUMENTS}: document {document.doc_id!r:.60} differs from text {span.text} at "
                f"{span.start} to {span.end}. Prepare the files again."
            )
