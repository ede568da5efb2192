"""Relevance labels in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.config.text import counted
from harness.data.files import some
from harness.data.spans import FINDINGS, Evidence, EvidenceFinding, Span


@dataclass(frozen=True)
class Qrels:
    """Relevance labels. A document that is in neither `grades` nor `not_relevant` of a query is unjudged.

    grades: query_id -> {doc_id: grade}, every grade finite and > 0. A query that is not a key is unlabelled.
    abstention: what an empty dict in `grades` means. If True (the contest's labels), the query needs no retrieval,
        unless it is in `unmet`. If False (TREC and BEIR labels), the query was judged and has no relevant document.
    not_relevant: query_id -> documents judged not relevant; queries without such documents may be absent. None if
        the labels do not say which documents were judged.
    pooled: query_id -> documents chosen for judgement, but not judged (TREC's grade -1).
    unmet: labelled queries that need retrieval, but have no relevant document among the judged documents.
    unanswerable: queries that need retrieval, but have no answer in the documents. They are unlabelled. A separate
        measure gives the share of them for which a system shows no documents.
    counts_unanswerable: whether `unanswerable` is part of the fingerprint.

    Labels on prepared texts also have these fields:

    places: doc_id -> spans of the document; several if its text occurs more than once. None if unknown.
    evidence: query_id -> pieces of evidence and their present spans, for each labelled query that needs retrieval.
    checked: a model's labels, and people's labels of the queries that were drawn for people to check; None if people
        have judged every pair, or if no queries were drawn.
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
        return bool(self.grades[query_id]) or not self.abstention or query_id in self.unmet

    def content(self) -> Iterator[Any]:
        """Yield the rows from which the fingerprint is computed. Equal labels give equal rows in every format."""
        yield self.abstention
        for query_id, grades in sorted(self.grades.items()):
            yield query_id, sorted((doc_id, float(grade)) for doc_id, grade in grades.items())
        judged = _listed(self.not_relevant or {})
        # An empty row says that no document was judged not relevant. TREC and BEIR labels need no such row.
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
        """Yield each query's evidence, which does not depend on how texts are cut; nothing if `places` is None."""
        for query_id in sorted(self.grades) if self.places is not None else ():
            pieces = self.evidence.get(query_id, ())
            yield query_id, sorted((*_place(one.span), float(one.grade)) for one in pieces)

    def remarks(self) -> Iterator[str]:
        """Yield sentences about how the labels were made."""
        yield from self.notes
        for what, meaning in FINDINGS.items():
            if queries := [one.query_id for one in self.findings if one.what == what]:
                pieces = counted(len(queries), "piece")
                yield f"{pieces} of evidence {meaning} (of {some(list(dict.fromkeys(queries)))})."


@dataclass(frozen=True)
class Checked:
    """A model's labels, and people's labels of some of the same queries.

    model: labels of all queries, by the model alone. people: labels of queries drawn at random, by people alone.
    strata: query_id -> its stratum, for all queries that could have been drawn.
    """

    model: Qrels
    people: Qrels
    strata: Mapping[str, str]


def _place(span: Span) -> tuple[str, int, int]:
    return span.text, span.start, span.end


def _listed(documents: Mapping[str, frozenset[str]]) -> list[tuple[str, list[str]]]:
    return [(query_id, sorted(ids)) for query_id, ids in sorted(documents.items()) if ids]
