"""Relevance labels in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.config.text import counted
from harness.data.files import some
from harness.data.spans import Evidence, EvidenceFinding, Span

_FINDINGS = {
    "moved": "found again, since the text has changed",
    "lost": "lost: the text has changed, and the passage is nowhere else, or in several places",
    "uncovered": "in no document: the documents leave out that part of the text",
    "split": "split between documents: none contains half of it, so the one that contains most is labelled",
}


@dataclass(frozen=True)
class Qrels:
    """Relevance labels. A document that is in neither `grades` nor `not_relevant` of a query is unjudged.

    grades: query_id -> {doc_id: grade}, every grade finite and > 0. A query that is not a key is unlabelled.
    abstention: the meaning of a query with an empty dict. True (the contest's labels): it needs no retrieval, unless it
        is in `unmet`. False (TREC and BEIR labels): it is judged and has no relevant document.
    not_relevant: query_id -> documents that were judged and are not relevant; queries without any may be missing. None:
        the labels do not say which documents were judged.
    pooled: query_id -> documents that were in the pool and have not been judged (TREC's grade -1).
    unmet: labelled queries that need retrieval, none of whose judged documents is relevant.
    unanswerable: queries that need retrieval and whose answer the documents lack. They are not labelled; the
        documents shown for them are scored apart.
    counts_unanswerable: whether they are part of the fingerprint.

    Labels on prepared texts have these in addition:

    places: doc_id -> where the document stands; several spans if its text occurs more than once. None: unknown.
    evidence: query_id -> evidence of each labelled query that needs retrieval, where it stands now.
    checked: None if people have judged every pair, or no queries were drawn for them.
    notes: sentences about how the labels were made.
    """

    grades: Mapping[str, Mapping[str, float]]
    abstention: bool = True
    not_relevant: Mapping[str, frozenset[str]] | None = None
    pooled: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unmet: frozenset[str] = frozenset()
    unanswerable: tuple[str, ...] = ()
    counts_unanswerable: bool = True
    places: Mapping[str, tuple[Span, ...]] | None = None
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    findings: tuple[EvidenceFinding, ...] = ()
    checked: Checked | None = None
    notes: tuple[str, ...] = ()

    def needs_retrieval(self, query_id: str) -> bool:
        """Return whether a labelled query needs retrieval."""
        return bool(self.grades[query_id]) or not self.abstention or query_id in self.unmet

    def content(self) -> Iterator[Any]:
        """Yield the content for the fingerprint of the labels, equal for all files with the same meaning."""
        yield self.abstention
        for query_id, grades in sorted(self.grades.items()):
            yield query_id, sorted((doc_id, float(grade)) for doc_id, grade in grades.items())
        judged = _listed(self.not_relevant or {})
        # TREC and BEIR labels say which documents were judged even if all of them are relevant.
        if judged or (self.not_relevant is not None and self.abstention):
            yield "not_relevant", judged
        if pooled := _listed(self.pooled):
            yield "pooled", pooled
        if self.unmet:
            yield "unmet", sorted(self.unmet)
        if self.unanswerable and self.counts_unanswerable:
            yield "unanswerable", sorted(self.unanswerable)
        yield from self.sources()
        for doc_id, spans in sorted((self.places or {}).items()):
            yield doc_id, [_place(span) for span in spans]
        if self.checked:
            yield from self.checked.model.content()
            yield from self.checked.people.content()
            yield sorted(self.checked.strata.items())

    def sources(self) -> Iterator[Any]:
        """Yield the evidence of each query, independent of how the texts are cut; nothing without places."""
        for query_id in sorted(self.grades) if self.places is not None else ():
            pieces = self.evidence.get(query_id, ())
            yield query_id, sorted((*_place(one.span), float(one.grade)) for one in pieces)

    def remarks(self) -> Iterator[str]:
        """Yield sentences for the user about how the labels were made."""
        yield from self.notes
        for what, meaning in _FINDINGS.items():
            if queries := [one.query_id for one in self.findings if one.what == what]:
                pieces = counted(len(queries), "piece")
                yield f"{pieces} of evidence {meaning} (of {some(list(dict.fromkeys(queries)))})."


@dataclass(frozen=True)
class Checked:
    """The labels of the same queries by the model alone, and by people alone of the queries drawn for them at random.

    strata: query_id -> its stratum, of all queries that could have been drawn.
    """

    model: Qrels
    people: Qrels
    strata: Mapping[str, str]


def _place(span: Span) -> tuple[str, int, int]:
    return span.text, span.start, span.end


def _listed(documents: Mapping[str, frozenset[str]]) -> list[tuple[str, list[str]]]:
    return [(query_id, sorted(ids)) for query_id, ids in sorted(documents.items()) if ids]
