"""Characters that lists show, and those of them that are evidence: what the span measures count.

A list shows the characters of its documents: the union of their places in each text, so that what overlapping documents
share counts once. A document that stands in several places (the same text, again) finds evidence in any of them. Yet it
shows its characters once: those at the place that has most evidence of the query, the first of equals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from harness.data.span_labels import SpanQrels
from harness.data.spans import Span
from retrievers.base import remembered


@dataclass(frozen=True, eq=False)
class Shown:
    """The documents that lists show, for Q queries and K ranks.

    docs: int32 [Q, K], indices into doc_ids; -1 pads the end of a row.
    query_ids: of the rows.
    labels: where documents and evidence stand.
    """

    docs: np.ndarray
    doc_ids: Sequence[str]
    query_ids: Sequence[str]
    labels: SpanQrels

    def take(self, rows: np.ndarray) -> Shown:
        """Only some of the queries. rows: bool [Q] or row numbers."""
        kept = np.arange(len(self.query_ids))[rows].tolist()
        return Shown(self.docs[rows], self.doc_ids, [self.query_ids[row] for row in kept], self.labels)

    def recall(self, k: int | None) -> np.ndarray:
        """The share of a query's evidence that its first k documents show, float64 [Q]; NaN without evidence."""
        found = np.full(len(self.query_ids), np.nan)
        for row, documents, evidence in self._rows(k):
            near = [span for span in chain(*documents) if shared([span], evidence)]  # few: most documents have none
            found[row] = shared(union(near), evidence) / length(evidence)
        return found

    def precision(self, k: int | None) -> np.ndarray:
        """The share of evidence in what the first k documents of a query show, float64 [Q]; NaN without evidence.

        0 if they show nothing.
        """
        found = np.full(len(self.query_ids), np.nan)
        for row, documents, evidence in self._rows(k):
            places = union(_best(spans, evidence) for spans in documents)
            found[row] = shared(places, evidence) / length(places) if places else 0.0
        return found

    @cached_property
    def unplaced(self) -> list[str]:
        """Documents in the lists that stand nowhere, such as those of other files or another chunking."""
        used = np.unique(self.docs[self.docs >= 0]).tolist()
        return [self.doc_ids[doc] for doc in used if self.doc_ids[doc] not in self.labels.places]

    def _rows(self, k: int | None) -> Iterator[tuple[int, list[tuple[Span, ...]], list[Span]]]:
        """(row, spans of each of the first k documents, union of the evidence) of every query with evidence."""
        places, unions = self.labels.places, _unions(self.labels)
        for row, (query_id, docs) in enumerate(zip(self.query_ids, self.docs[:, :k].tolist(), strict=True)):
            if query_id in unions:
                listed = [self.doc_ids[doc] for doc in docs if doc >= 0]
                yield row, [places[one] for one in listed if one in places], unions[query_id]


@remembered
def _unions(labels: SpanQrels) -> dict[str, list[Span]]:
    """query_id -> the union of its evidence."""
    return {query_id: union(one.span for one in pieces) for query_id, pieces in labels.evidence.items()}


def union(spans: Iterable[Span]) -> list[Span]:
    """The characters of the spans, each once: disjoint spans in ascending order of text and place."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.text, one.start)):
        if found and found[-1].text == span.text and span.start <= found[-1].end:
            found[-1] = Span(span.text, found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def shared(some: Iterable[Span], others: Sequence[Span]) -> int:
    """The number of characters in both; each side disjoint."""
    return sum(one.overlap(other) for one in some for other in others)


def length(spans: Iterable[Span]) -> int:
    """The number of characters of disjoint spans."""
    return sum(span.end - span.start for span in spans)


def _best(spans: Sequence[Span], evidence: Sequence[Span]) -> Span:
    """The place of a document that has most of the evidence, the first of equals."""
    return spans[0] if len(spans) == 1 else max(spans, key=lambda span: shared([span], evidence))
