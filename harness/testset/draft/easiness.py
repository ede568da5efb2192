"""Measure how easily BM25 finds the documents of drafted and of real queries. Drafts are only flagged, never rejected.

`harness run retriever=bm25 tokenizer=kiwi` uses the same cached index if the documents are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from harness.config.components import build
from harness.data.dataset import Dataset
from harness.experiment import steps
from harness.experiment.cached_parts import Caching
from harness.progress import stage, watch
from harness.storage.cache import Cache
from harness.testset.draft.drafts import Draft
from harness.testset.draft.filters import ANSWERED
from retrievers.base import Document, Query, Ranking

DEPTH = 10
FIRST = "BM25 ranks its document first"
MISSED = f"BM25 does not find its document among the first {DEPTH}"
LAST_TURN = "BM25 ranks its document at least as high for the last turn as for all turns"

BM25 = {
    "_target_": "retrievers.lexical.bm25.BM25",
    "tokenizer": {"_target_": "retrievers.lexical.tokenize.Kiwi", "runtime": {"workers": None}},
    "runtime": {"threads": None},
}


@dataclass(frozen=True)
class Easiness:
    """How easily BM25 finds the documents of some queries. Words are content morphemes, as found by kiwi.

    labelled: number of queries with a known document.
    first: share of the labelled queries for which a known document ranks first; None without labels.
    found: share of the labelled queries for which a known document is among the first `DEPTH`; None without labels.
    shared: mean share of a query's words that the first document contains.
    gap: mean of 1 - s2 / s1, where s1 and s2 are the scores of the first two documents; 0 if nothing is found.
    words: mean number of words in a query.
    """

    queries: int
    labelled: int
    first: float | None
    found: float | None
    shared: float
    gap: float
    words: float

    def text(self) -> str:
        known = "" if self.first is None else f"BM25 ranks a right document first for {100 * self.first:.0f} %; "
        words, lead = f"{100 * self.shared:.0f} %", f"{100 * self.gap:.0f} %"
        return f"{known}BM25's first document has {words} of a query's words, and leads the second in score by {lead}"


@dataclass(frozen=True)
class Measured:
    """Flagged drafts, and easiness. of_drafts: None if no draft has an answer. of_examples: None without examples."""

    drafts: list[Draft]
    of_drafts: Easiness | None
    of_examples: Easiness | None


def measure_easiness(
    drafts: Sequence[Draft],
    documents: Iterable[Document],
    cache: Cache,
    examples: Sequence[Query] = (),
    labels: Mapping[str, Collection[str]] | None = None,
) -> Measured:
    """Search for drafts and examples with BM25, and flag the drafts. documents: the whole corpus. labels: query_id of
    an example -> relevant documents. An example whose entry in `labels` is empty needs no retrieval and is left out."""
    labels = labels or {}
    real = [query for query in examples if labels.get(query.query_id, True)]
    numbers = [number for number, draft in enumerate(drafts) if draft.kind in ANSWERED]
    if not numbers and not real:
        return Measured(list(drafts), None, None)
    with stage("easiness"):
        searched = _Searched(documents, cache)
        asked = [drafts[number] for number in numbers]
        seeds = [{draft.doc_id} for draft in asked]
        spoken = [Query("", draft.turns).text for draft in asked]
        found = searched.search(spoken)
        alone = _ranks(searched.search([draft.question for draft in asked]), seeds)
        flagged = list(drafts)
        for number, rank, last in zip(numbers, _ranks(found, seeds), alone, strict=True):
            flagged[number] = _flagged(drafts[number], rank, last)
        of_drafts = searched.easiness(spoken, found, seeds) if asked else None
        if not real:
            return Measured(flagged, of_drafts, None)
        texts, known = [query.text for query in real], [labels.get(query.query_id, ()) for query in real]
        return Measured(flagged, of_drafts, searched.easiness(texts, searched.search(texts), known))


class _Hits(NamedTuple):
    """The first `DEPTH` documents of a query, best first."""

    doc_ids: list[str]
    scores: list[float]


class _Searched:
    def __init__(self, documents: Iterable[Document], cache: Cache) -> None:
        corpus = Dataset("documents", tuple(sorted(documents, key=lambda one: one.doc_id)), (), None)
        index = steps.index_identity(BM25, corpus)
        with watch("easiness") as progress:
            self._cached = Caching(cache, steps.learnt_from(index), progress)
            self._retriever = build(BM25, self._cached, "easiness")
            self._retriever.load(steps.index_folder(self._retriever, index, corpus, cache))
        self._texts = {one.doc_id: one.indexed_text for one in corpus.documents}

    def search(self, texts: Sequence[str]) -> list[_Hits]:
        queries = [Query.of(str(number), text) for number, text in enumerate(texts)]
        with self._cached.bypassed():  # Cache entries for drafts would never be read again.
            ranking: Ranking = self._retriever.search(queries, DEPTH)
        return [
            _Hits([ranking.doc_ids[doc] for doc in docs if doc >= 0], scores[docs >= 0].tolist())
            for docs, scores in zip(ranking.docs, ranking.scores, strict=True)
        ]

    def easiness(self, texts: Sequence[str], found: Sequence[_Hits], known: Sequence[Collection[str]]) -> Easiness:
        """Return the easiness of texts. known: relevant documents of each text; any outside the corpus are ignored."""
        known = [[doc_id for doc_id in ids if doc_id in self._texts] for ids in known]
        ranks = [rank for rank, ids in zip(_ranks(found, known), known, strict=True) if ids]
        best = sorted({hits.doc_ids[0] for hits in found if hits.doc_ids})
        words = self._words(texts)
        theirs = dict(zip(best, self._words([self._texts[doc_id] for doc_id in best]), strict=True))
        shared = [
            len(one & theirs[hits.doc_ids[0]]) / len(one) if hits.doc_ids else 0.0
            for one, hits in zip(words, found, strict=True)
        ]
        return Easiness(
            queries=len(texts),
            labelled=len(ranks),
            first=float(np.mean([rank == 1 for rank in ranks])) if ranks else None,
            found=float(np.mean([rank > 0 for rank in ranks])) if ranks else None,
            shared=float(np.mean(shared)),
            gap=float(np.mean([1 - [*one.scores, 0.0][1] / one.scores[0] if one.scores else 0.0 for one in found])),
            words=float(np.mean([len(one) for one in words])),
        )

    def _words(self, texts: Sequence[str]) -> list[set[str]]:
        with self._cached.bypassed():
            return [set(terms) for terms in self._retriever.tokenizer(texts).lists()]


def _ranks(found: Sequence[_Hits], known: Sequence[Collection[str]]) -> list[int]:
    """Return, for each query, the best rank of its known documents, from 1; 0 if none is among the first `DEPTH`."""
    return [
        next((rank for rank, doc_id in enumerate(hits.doc_ids, start=1) if doc_id in ids), 0)
        for hits, ids in zip(found, known, strict=True)
    ]


def _flagged(draft: Draft, rank: int, alone: int) -> Draft:
    """Return the draft with flags. rank: its document's rank. alone: this rank if only the last turn is the query."""
    flags = [FIRST] if rank == 1 else [MISSED] if rank == 0 else []
    if draft.kind == "conversation" and alone > 0 and (rank == 0 or alone <= rank):
        flags.append(LAST_TURN)
    return replace(draft, flags=(*draft.flags, *flags))
