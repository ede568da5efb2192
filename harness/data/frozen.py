"""Frozen test sets, whose labels were decided from judgements and never change.

queries.jsonl:        {eval_id, msg, kind, answer}; `kind` and further fields are attributes of the query.
labels.jsonl:         {eval_id, needs, kind, relevant: {docid: grade}, not_relevant: [docid, ...], basis}
evidence.jsonl:       {eval_id, evidence: [{text, start, end, exact, prefix, suffix, grade}, ...]}; may be empty.
frozen.json:          {format, version, documents, counts, strata, files, sha256, ...}, written last.

queries.jsonl and labels.jsonl have one line per query. If people have checked some of a model's labels, there are two
more files like labels.jsonl:

model_labels.jsonl:   labels that the model alone gave, for all queries.
checked_labels.jsonl: labels that people alone gave, for the queries they checked; each line also has {stratum}.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.text import counted
from harness.data.attributes import given_attributes
from harness.data.documents_folder import DOCUMENTS, Chunk
from harness.data.files import (
    field,
    finished_folder,
    json_lines,
    optional_text,
    required,
    sha256_of,
    some,
    unique_rows,
)
from harness.data.labels import Label, qrels_of, read_label
from harness.data.qrels import Checked, Qrels
from harness.data.source import turns
from harness.data.testset import OWN, EvidencedQuery, SpanLabelled, read_evidence, span_qrels
from harness.errors import BadInput
from retrievers.base import Document, Query

FROZEN, QUERIES, LABELS, EVIDENCE = "frozen.json", "queries.jsonl", "labels.jsonl", "evidence.jsonl"
MODEL_LABELS, CHECKED_LABELS = "model_labels.jsonl", "checked_labels.jsonl"
FORMAT = 1
_AGAIN = "A frozen test set is never edited: make a new version with `harness testset freeze`."


class Frozen(SpanLabelled):
    """A frozen test set.

    The judged documents must be unchanged in the documents folder. All other documents count as unjudged.
    """

    recorded_as = "dataset/frozen"
    manifest_name = FROZEN

    @property
    def qrels_file(self) -> Path:
        return self.path / LABELS

    def qrels(self) -> Qrels:
        placed = span_qrels(self.rows, self._chunks, self.folder)
        final = qrels_of(self._final)
        sought = {query_id for query_id in final.grades if final.needs_retrieval(query_id)}
        return replace(
            final,
            evidence={query_id: pieces for query_id, pieces in placed.evidence.items() if query_id in sought},
            places=placed.places,
            findings=tuple(one for one in placed.findings if one.what in ("lost", "moved")),
            checked=self._checked,
            notes=tuple(self._notes()),
        )

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return read_frozen(self.path)

    @cached_property
    def rows(self) -> list[EvidencedQuery]:
        self.manifest  # noqa: B018 (reading it checks the files)
        evidence = {}
        path = self.path / EVIDENCE
        for number, row in json_lines(path):
            where = f"{path}:{number}"
            pieces = tuple(read_evidence(one, where) for one in field(row, "evidence", list, where))
            evidence[str(required(row, "eval_id", where))] = pieces
        path = self.path / QUERIES
        return [
            EvidencedQuery(
                Query(query_id, turns(row, where), native, given_attributes(row, *OWN)),
                field(row, "kind", str, where),
                evidence.get(query_id, ()),
                where,
                optional_text(row, "answer", where),
            )
            for where, query_id, native, row in unique_rows(path, "eval_id")
        ]

    def labels(self, name: str) -> list[Label]:
        """Return the labels in a file of the set. Raise BadInput for unknown and for missing queries."""
        path, known = self.path / name, {one.query.query_id for one in self.rows}
        found = [read_label(row, where, query_id) for where, query_id, _, row in unique_rows(path, "eval_id")]
        labelled = {one.query_id for one in found}
        if unknown := [one for one in labelled if one not in known]:
            raise BadInput(f"{path} labels queries that {QUERIES} does not have: {some(sorted(unknown))}. {_AGAIN}")
        if name != CHECKED_LABELS and (lacking := known - labelled):
            raise BadInput(f"{path} lacks {counted(len(lacking), 'query')}: {some(sorted(lacking))}. {_AGAIN}")
        return found

    @cached_property
    def _final(self) -> list[Label]:
        return self.labels(LABELS)

    @cached_property
    def _chunks(self) -> list[Chunk]:
        chunks = list(self.folder.chunks())
        self._check_documents([chunk.document for chunk in chunks])
        return chunks

    @cached_property
    def _checked(self) -> Checked | None:
        if CHECKED_LABELS not in self.manifest["files"]:
            return None
        strata = field(self.manifest, "strata", dict, str(self.path / FROZEN))
        people = self.labels(CHECKED_LABELS)
        if lacking := [one.query_id for one in people if not isinstance(strata.get(one.query_id), str)]:
            raise BadInput(f"{self.path / FROZEN}: these checked queries have no stratum: {some(lacking)}. {_AGAIN}")
        return Checked(qrels_of(self.labels(MODEL_LABELS)), qrels_of(people), strata)

    def _check_documents(self, documents: Sequence[Document]) -> None:
        where = f"{self.path / FROZEN}: documents"
        frozen = field(self.manifest, "documents", dict, str(self.path / FROZEN))
        if self.folder.fingerprint == frozen.get("sha256"):
            return
        judged = judged_documents(self._final)
        there = [one for one in documents if one.doc_id in judged]
        place = self.folder.path / DOCUMENTS
        if lacking := judged - {one.doc_id for one in there}:
            raise BadInput(
                f"{place} lacks {len(lacking):,} of the {counted(len(judged), 'document')} that were judged: "
                f"{some(sorted(lacking))}. Give the folder that was judged, or one with more documents: "
                "dataset.documents=FOLDER."
            )
        if documents_digest(there) != field(frozen, "judged", str, where):
            raise BadInput(
                f"{place}: the title or text of judged documents has changed, but their ids are the same. Give the "
                "folder that was judged: dataset.documents=FOLDER."
            )

    def _notes(self) -> Iterator[str]:
        manifest, labels = self.manifest, self._final
        people = len(self._checked.people.grades) if self._checked else 0
        by_model = sum("llm" in one.basis.split("+") for one in labels)
        yield (
            f"Frozen test set, version {manifest['version']}, {manifest['sha256'][:12]}: "
            f"{counted(len(labels), 'query')}, {by_model:,} of them with grades by a model"
            + (f"; people checked {people:,} of the queries, drawn at random." if people else ".")
        )
        if by_model and not people:
            yield (
                "Intervals leave out the model's errors, so values from people's judgements may lie far outside "
                "them. To include these errors, let people check queries drawn at random: harness testset review, "
                "sample=audit."
            )
        if self.folder.fingerprint != manifest["documents"].get("sha256"):
            yield "The documents differ from those that were pooled for judgement: new documents are unjudged."


def read_frozen(path: Path, key: str = "dataset.path") -> dict[str, Any]:
    """Return `frozen.json`. Raise BadInput if the set is unfinished or was edited. key: the folder's config key."""
    where = path / FROZEN
    inside = sorted(one.parent.name for one in path.glob(f"v*/{FROZEN}"))
    make = "Freeze a test set with `harness testset freeze testset=FOLDER`."
    manifest = finished_folder(
        path,
        FROZEN,
        FORMAT,
        key=key,
        name="format",
        give="Give the folder that `harness testset freeze` wrote, such as ts/v1.",
        finish=f"Did you mean {path / inside[-1]}?" if inside else make,
    )
    required(manifest, "version", str(where))
    files = field(manifest, "files", dict, str(where))
    both = {MODEL_LABELS, CHECKED_LABELS}  # either both files exist or neither
    expected = {QUERIES, LABELS, EVIDENCE} | (both if both & files.keys() else set())
    if {*files} != expected:
        raise BadInput(f"{where}: files are {some(files)}, but must be {some(sorted(expected))}. {_AGAIN}")
    if manifest_digest(manifest) != required(manifest, "sha256", str(where)):
        raise BadInput(f"{where} has been edited since it was frozen. {_AGAIN}")
    for name, digest in files.items():
        if sha256_of(path / name) != digest:
            raise BadInput(f"{path / name} has been edited since it was frozen. {_AGAIN}")
    return manifest


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the sha256 of the content of `frozen.json`, except for `sha256` and the path of the documents."""
    said = {key: value for key, value in manifest.items() if key != "sha256"}
    if isinstance(documents := said.get("documents"), Mapping):
        said["documents"] = {key: value for key, value in documents.items() if key != "path"}
    return hashlib.sha256(json.dumps(said, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def judged_documents(labels: Iterable[Label]) -> set[str]:
    return {doc_id for one in labels for doc_id in (*one.relevant, *(one.not_relevant or ()))}


def documents_digest(documents: Iterable[Document]) -> str:
    """Return the sha256 of the documents' ids, titles and texts. It does not depend on their order."""
    digest = hashlib.sha256()
    for one in sorted(documents, key=lambda document: document.doc_id):
        digest.update(json.dumps([one.doc_id, one.title, one.text], ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
