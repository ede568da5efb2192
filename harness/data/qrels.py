"""Relevance labels in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


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
    unanswerable: queries that need retrieval and whose answer the documents lack. They are not labelled: what is shown
        for them is scored apart.
    """

    grades: Mapping[str, Mapping[str, float]]
    abstention: bool = True
    not_relevant: Mapping[str, frozenset[str]] | None = None
    pooled: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unmet: frozenset[str] = frozenset()
    unanswerable: tuple[str, ...] = ()

    def needs_retrieval(self, query_id: str) -> bool:
        """Return whether a labelled query needs retrieval."""
        return bool(self.grades[query_id]) or not self.abstention or query_id in self.unmet

    def content(self) -> Iterator[Any]:
        """Yield what decides the fingerprint of the labels, the same for all files with the same meaning."""
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

    @property
    def counts_unanswerable(self) -> bool:
        """Whether unanswerable queries are part of the fingerprint."""
        return True

    def sources(self) -> Iterator[Any]:
        """Yield what the labels were made of, where that outlives another cut of the texts into documents."""
        yield from ()

    def remarks(self) -> Iterator[str]:
        """Yield sentences for the user about how the labels were made."""
        yield from ()


def _listed(documents: Mapping[str, frozenset[str]]) -> list[tuple[str, list[str]]]:
    return [(query_id, sorted(ids)) for query_id, ids in sorted(documents.items()) if ids]
