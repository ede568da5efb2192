"""Ranked lists compared with labels: the arrays that every ranking measure reads.

A *hit* is a returned document with a grade > 0, at its first rank in the list. A repeated document takes up a rank and
counts as returned, but is not a second hit.

Measures of spans count characters of the source texts. A document's places are the spans that have its text; a text
that occurs twice has two places. For recall, evidence in any place of a listed document counts as found. For precision,
a document shows only one place: the one with the most evidence for the query, or the first of several such places.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np

from harness.data.predictions import Predictions
from harness.data.qrels import Qrels
from harness.data.spans import Span
from retrievers.base import Ranking, remembered


@dataclass(frozen=True, eq=False)
class ListedDocuments:
    """The documents of lists, for Q queries and K ranks. docs: int32 [Q, K], indices into doc_ids, or -1 as padding."""

    docs: np.ndarray
    doc_ids: Sequence[str]
    query_ids: Sequence[str]

    def __getitem__(self, rows: np.ndarray) -> Self:
        kept = np.arange(len(self.query_ids))[rows].tolist()
        return replace(self, docs=self.docs[rows], query_ids=[self.query_ids[row] for row in kept])


@dataclass(frozen=True, eq=False)
class Shown(ListedDocuments):
    """The documents that lists show. labels: must say where documents and evidence lie in the source texts."""

    labels: Qrels

    def recall(self, k: int | None) -> np.ndarray:
        """Return the share of a query's evidence that its first k documents show, float64 [Q]; NaN without evidence."""
        found = np.full(len(self.query_ids), np.nan)
        for row, documents, evidence in self._rows(k):
            near = [span for span in chain(*documents) if shared([span], evidence)]  # usually few spans
            found[row] = shared(union(near), evidence) / length(evidence)
        return found

    def precision(self, k: int | None) -> np.ndarray:
        """Return the share of evidence in the characters that the first k documents show, float64 [Q].

        NaN without evidence; 0 if the documents show nothing.
        """
        found = np.full(len(self.query_ids), np.nan)
        for row, documents, evidence in self._rows(k):
            places = union(_best(spans, evidence) for spans in documents)
            found[row] = shared(places, evidence) / length(places) if places else 0.0
        return found

    @cached_property
    def unplaced(self) -> list[str]:
        """The listed documents without a place in the texts, such as documents of another chunking."""
        used, places = np.unique(self.docs[self.docs >= 0]).tolist(), self.labels.places or {}
        return [self.doc_ids[doc] for doc in used if self.doc_ids[doc] not in places]

    def _rows(self, k: int | None) -> Iterator[tuple[int, list[tuple[Span, ...]], list[Span]]]:
        places, unions = self.labels.places or {}, _unions(self.labels)
        for row, (query_id, docs) in enumerate(zip(self.query_ids, self.docs[:, :k].tolist(), strict=True)):
            if query_id in unions:
                listed = [self.doc_ids[doc] for doc in docs if doc >= 0]
                yield row, [places[one] for one in listed if one in places], unions[query_id]


@remembered
def _unions(labels: Qrels) -> dict[str, list[Span]]:
    return {query_id: union(one.span for one in pieces) for query_id, pieces in labels.evidence.items()}


def union(spans: Iterable[Span]) -> list[Span]:
    """Return disjoint spans that cover the same characters as `spans`, sorted by text and start."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.text, one.start)):
        if found and found[-1].text == span.text and span.start <= found[-1].end:
            found[-1] = Span(span.text, found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def shared(some: Iterable[Span], others: Sequence[Span]) -> int:
    """Return the number of characters that both arguments cover. The spans of each argument must be disjoint."""
    return sum(one.overlap(other) for one in some for other in others)


def length(spans: Iterable[Span]) -> int:
    return sum(span.end - span.start for span in spans)


def _best(spans: Sequence[Span], evidence: Sequence[Span]) -> Span:
    return spans[0] if len(spans) == 1 else max(spans, key=lambda span: shared([span], evidence))


@dataclass(frozen=True, eq=False)
class Holes(ListedDocuments):
    qrels: Qrels

    @cached_property
    def not_relevant(self) -> np.ndarray:
        """Whether the document at each rank was judged not relevant, bool [Q, K]."""
        return self._among(self.qrels.not_relevant or {})

    @cached_property
    def pooled(self) -> np.ndarray:
        """Whether the document at each rank was in the pool but not judged, bool [Q, K]."""
        return self._among(self.qrels.pooled)

    @cached_property
    def first(self) -> np.ndarray:
        """Whether each rank is the first of its document in the list, bool [Q, K]; false for padding."""
        order = np.argsort(self.docs, axis=1, kind="stable")
        ordered = np.take_along_axis(self.docs, order, axis=1)
        first = ordered >= 0
        first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
        found = np.empty_like(first)
        np.put_along_axis(found, order, first, axis=1)
        return found

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of documents judged not relevant, returned or not, float64 [Q]."""
        known = self.qrels.not_relevant or {}
        return np.array([len(known.get(query_id, ())) for query_id in self.query_ids], np.float64)

    def _among(self, wanted: Mapping[str, frozenset[str]]) -> np.ndarray:
        found = np.zeros(self.docs.shape, bool)
        for row, (query_id, docs) in enumerate(zip(self.query_ids, self.docs.tolist(), strict=True)):
            if ids := wanted.get(query_id):
                found[row] = [doc >= 0 and self.doc_ids[doc] in ids for doc in docs]
        return found


_CELLS = 1 << 22  # maximum number of cells compared at once, to limit memory


@dataclass(frozen=True, eq=False)
class Judged:
    """Lists compared with labels, for Q queries, K ranks and at most R relevant documents per query.

    gains: float64 [Q, K], the grade of the document at each rank; 0 for a miss, a repeat or padding.
    repeats: bool [Q, K], whether the document at each rank is relevant and already occurs earlier in the list.
    returned: int64 [Q], the length of each list.
    needs: bool [Q], whether the query needs retrieval.
    ideal: float64 [Q, R], the grades of all relevant documents, descending, padded with 0.
    signal: float64 [Q] or None, the gate's signal; higher means 'needs retrieval'.
    shown: for measures of spans; None unless the labels are made of evidence.
    holes: for measures of judged documents; None unless the labels say which documents were judged.
    """

    gains: np.ndarray
    repeats: np.ndarray
    returned: np.ndarray
    ideal: np.ndarray
    needs: np.ndarray
    signal: np.ndarray | None = None
    shown: Shown | None = None
    holes: Holes | None = None

    def take(self, rows: np.ndarray) -> Judged:
        """Return the part with the queries in `rows`, in that order. rows: int [n], or bool [Q]."""
        parts = [getattr(self, one.name) for one in fields(self)]
        taken: list[Any] = [None if part is None else part[rows] for part in parts]
        return Judged(*taken)

    def ordered(self, places: np.ndarray, returned: np.ndarray) -> Judged:
        """Return the same queries with their documents in another order. No document may occur twice in a list.

        places: int64 [Q, k]; for each new rank, the column where its document was before.
        returned: int64 [Q], the number of documents to keep.
        """
        shown = np.arange(places.shape[1]) < returned[:, None]
        gains = np.where(shown, np.take_along_axis(self.gains, places, axis=1), 0.0)

        def documents(docs: np.ndarray) -> np.ndarray:
            return np.where(shown, np.take_along_axis(docs, places, axis=1), np.int32(-1))

        return replace(
            self,
            gains=gains,
            repeats=np.zeros(gains.shape, bool),
            returned=returned,
            shown=self.shown and replace(self.shown, docs=documents(self.shown.docs)),
            holes=self.holes and replace(self.holes, docs=documents(self.holes.docs)),
        )

    @cached_property
    def known(self) -> np.ndarray:
        """Whether the document at each rank was judged, bool [Q, K]; false for padding. Needs `holes`."""
        assert self.holes is not None
        return (self.gains > 0) | self.repeats | self.holes.not_relevant

    @cached_property
    def condensed(self) -> Judged:
        """Unjudged documents are removed from each list."""
        order = np.argsort(~self.known, axis=1, kind="stable")  # judged documents first, in their order
        gains, repeats = (
            np.take_along_axis(np.where(self.known, one, 0), order, axis=1) for one in (self.gains, self.repeats)
        )
        return Judged(gains, repeats.astype(bool), self.known.sum(axis=1), self.ideal, self.needs)

    @cached_property
    def at_best(self) -> Judged:
        """Unjudged documents in the lists count as relevant, with grade 1.

        Needs `holes`. `ideal` keeps the known labels, so these lists are only for measures that do not read it.
        """
        assert self.holes is not None
        gains = np.where(self.holes.first & ~self.known, 1.0, self.gains)
        return Judged(gains, self.repeats, self.returned, self.ideal, self.needs)

    @property
    def unlisted(self) -> Judged:
        """The same queries without their lists, for measures of all queries at once."""
        nothing = np.zeros((len(self.needs), 0))
        return Judged(nothing, nothing.astype(bool), self.returned, nothing, self.needs, self.signal)

    @classmethod
    def joined(cls, parts: Sequence[Judged]) -> Judged:
        """Return the queries of several `unlisted`, in order."""
        returned, needs = (np.concatenate([getattr(one, name) for one in parts]) for name in ("returned", "needs"))
        signals = [one.signal for one in parts if one.signal is not None]
        nothing = np.zeros((len(needs), 0))
        signal = np.concatenate(signals) if signals else None
        return cls(nothing, nothing.astype(bool), returned, nothing, needs, signal)

    # All measures and cut-offs use the properties below. Most are running totals, float64 [Q, K + 1]: column k is the
    # total over the first k ranks. Read a column with `at(totals, k)`.

    @cached_property
    def relevant(self) -> np.ndarray:
        return (self.ideal > 0).sum(axis=1).astype(np.float64)

    @cached_property
    def first(self) -> np.ndarray:
        """The rank of the first hit, float64 [Q]; infinite without a hit."""
        hits = self.gains > 0
        if not hits.shape[1]:
            return np.full(len(hits), np.inf)
        return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1.0, np.inf)

    @cached_property
    def hits(self) -> np.ndarray:
        return running_totals(self.gains > 0)

    @cached_property
    def precisions(self) -> np.ndarray:
        return _precisions(self.gains > 0, self.hits)

    @cached_property
    def hits_with_repeats(self) -> np.ndarray:
        return running_totals((self.gains > 0) | self.repeats) if self.repeats.any() else self.hits

    @cached_property
    def precisions_with_repeats(self) -> np.ndarray:
        if not self.repeats.any():
            return self.precisions
        return _precisions((self.gains > 0) | self.repeats, self.hits_with_repeats)

    @cached_property
    def dcg(self) -> np.ndarray:
        return _discounted(self.gains)

    @cached_property
    def ideal_dcg(self) -> np.ndarray:
        return _discounted(self.ideal)

    @cached_property
    def dcg_exp(self) -> np.ndarray:
        return _discounted(_exponential(self.gains, self.ideal))

    @cached_property
    def ideal_dcg_exp(self) -> np.ndarray:
        return _discounted(_exponential(self.ideal, self.ideal))


def judge_lists(
    lists: Ranking | Predictions,
    qrels: Qrels,
    query_ids: Sequence[str] | None = None,
    signal: np.ndarray | None = None,
) -> Judged:
    """Compare lists with labels.

    A query without a row in `lists` counts as completely wrong. If it needs retrieval, its list counts as empty and its
    signal as -inf; if not, its list counts as one irrelevant document and its signal as inf.

    query_ids: the labelled queries to judge, in order; None: every labelled query with a row.
    signal: float64, one number for each row of `lists`, never NaN.
    """
    if query_ids is None:
        query_ids = [query_id for query_id in lists.query_ids if query_id in qrels.grades]
    return judge_rows(lists, rows_of(lists, query_ids), qrels, tuple(query_ids), signal)


def rows_of(lists: Ranking | Predictions, query_ids: Sequence[str]) -> np.ndarray:
    """Return the row of each query in `lists`, int [Q]; -1 for a query without a row."""
    row_of = {query_id: row for row, query_id in enumerate(lists.query_ids)}
    return np.array([row_of.get(query_id, -1) for query_id in query_ids], np.intp)


def judge_rows(
    lists: Ranking | Predictions,
    rows: np.ndarray,
    qrels: Qrels,
    query_ids: tuple[str, ...],
    signal: np.ndarray | None = None,
) -> Judged:
    """Return the result of `judge_lists` for labelled queries whose rows are known. rows: from `rows_of`."""
    labels = _labels(qrels, query_ids=query_ids)
    missing = rows < 0
    docs = np.full((len(rows), lists.docs.shape[1]), -1, np.int32)
    docs[~missing] = lists.docs[rows[~missing]]
    gains, repeats = _match(docs, labels.owner, _places(lists, labels.doc_ids), labels.values)
    returned = np.where(missing, ~labels.needs, (docs >= 0).sum(axis=1))
    if signal is not None:
        if len(signal) != len(lists.query_ids) or np.isnan(signal).any():
            raise ValueError("a signal has one number, never NaN, for each row of the lists")
        row_signal, signal = signal, np.where(labels.needs, -np.inf, np.inf)
        signal[~missing] = row_signal[rows[~missing]]
    shown = Shown(docs, lists.doc_ids, query_ids, qrels) if qrels.places is not None else None
    holes = None if qrels.not_relevant is None else Holes(docs, lists.doc_ids, query_ids, qrels)
    return Judged(gains, repeats, returned, labels.ideal, labels.needs, signal, shown, holes)


class _Labels(NamedTuple):
    """The labels of Q queries as N pairs of a query and a relevant document.

    doc_ids: the document of each pair. owner: int [N], the query's row. values: float64 [N], the grade.
    """

    doc_ids: list[str]
    owner: np.ndarray
    values: np.ndarray
    ideal: np.ndarray
    needs: np.ndarray


@remembered
def _labels(qrels: Qrels, *, query_ids: tuple[str, ...]) -> _Labels:
    grades = [qrels.grades[query_id] for query_id in query_ids]
    counts = np.fromiter((len(graded) for graded in grades), np.intp, len(grades))
    owner = np.repeat(np.arange(len(grades)), counts)
    doc_ids = [doc_id for graded in grades for doc_id in graded]
    values = np.fromiter((grade for graded in grades for grade in graded.values()), np.float64, len(owner))
    needs = np.fromiter(map(qrels.needs_retrieval, query_ids), bool, len(grades))
    ideal = np.zeros((len(counts), counts.max(initial=0)))
    column = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    ideal[owner, column] = values[np.lexsort((-values, owner))]
    return _Labels(doc_ids, owner, values, ideal, needs)


def _places(lists: Ranking | Predictions, wanted: Sequence[str]) -> np.ndarray:
    """Return the index of each wanted document in `lists.doc_ids`, int32 [N]; -2 for a missing document."""
    table = lists.doc_ids
    if isinstance(lists, Ranking):  # The table is sorted: bisecting it costs less than a dict of all documents.
        nearest = (bisect_left(table, doc_id) for doc_id in wanted)
        places = (i if table[i : i + 1] == (doc_id,) else -2 for i, doc_id in zip(nearest, wanted, strict=True))
        return np.fromiter(places, np.int32, len(wanted))
    index_of = _index_of(lists)
    return np.fromiter((index_of.get(doc_id, -2) for doc_id in wanted), np.int32, len(wanted))


@remembered
def _index_of(lists: Predictions) -> dict[str, int]:
    return dict(zip(lists.doc_ids, range(len(lists.doc_ids)), strict=True))


def _match(
    docs: np.ndarray, owner: np.ndarray, wanted: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    gains, repeats = np.zeros(docs.shape), np.zeros(docs.shape, bool)
    known = wanted >= 0
    owner, wanted, values = owner[known], wanted[known], values[known]
    step = max(1, _CELLS // max(1, docs.shape[1]))
    for start in range(0, len(owner), step):
        part = slice(start, start + step)
        pair, rank = np.nonzero(docs[owner[part]] == wanted[part, None])
        row, again = owner[part][pair], np.zeros(len(pair), bool)
        again[1:] = pair[1:] == pair[:-1]  # `nonzero` sorts by pair, then by rank
        gains[row[~again], rank[~again]] = values[part][pair[~again]]
        repeats[row[again], rank[again]] = True
    return gains, repeats


def running_totals(values: np.ndarray) -> np.ndarray:
    totals = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=totals[:, 1:])
    return totals


def _precisions(hits: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return running_totals(hits * totals[:, 1:] / np.arange(1, hits.shape[1] + 1))


def _discounted(gains: np.ndarray) -> np.ndarray:
    return running_totals(gains / np.log2(np.arange(2, gains.shape[1] + 2)))


def _exponential(grades: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    best = ideal.max(axis=1, initial=0.0, keepdims=True)  # Dividing by 2^best avoids overflow and does not change nDCG.
    return np.exp2(grades - best) - np.exp2(-best)


def at(totals: np.ndarray, k: int | None) -> np.ndarray:
    """Return the totals over the first k ranks (None: all), float64 [Q], from running totals [Q, K + 1]."""
    last = totals.shape[1] - 1
    return totals[:, last if k is None else min(k, last)]
