"""Holes in labels: which of the documents that lists return nobody has judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from retrievers.base import Qrels


@dataclass(frozen=True, eq=False)
class Holes:
    """What labels say of returned documents that are not relevant, for Q queries and K ranks.

    docs: int32 [Q, K], indices into doc_ids; -1 pads the end of a row.
    query_ids: of the rows.
    qrels: labels that say which documents were judged.
    """

    docs: np.ndarray
    doc_ids: Sequence[str]
    query_ids: Sequence[str]
    qrels: Qrels

    def take(self, rows: np.ndarray) -> Holes:
        """Only some of the queries. rows: bool [Q] or row numbers."""
        kept = np.arange(len(self.query_ids))[rows].tolist()
        return Holes(self.docs[rows], self.doc_ids, [self.query_ids[row] for row in kept], self.qrels)

    @cached_property
    def not_relevant(self) -> np.ndarray:
        """bool [Q, K], whether the document was judged and is not relevant."""
        return self._among(self.qrels.not_relevant or {})

    @cached_property
    def pooled(self) -> np.ndarray:
        """bool [Q, K], whether the document was in the pool and was not judged."""
        return self._among(self.qrels.pooled)

    @cached_property
    def first(self) -> np.ndarray:
        """bool [Q, K], whether the document is not earlier in its list; false for padding."""
        order = np.argsort(self.docs, axis=1, kind="stable")
        ordered = np.take_along_axis(self.docs, order, axis=1)
        first = ordered >= 0
        first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
        found = np.empty_like(first)
        np.put_along_axis(found, order, first, axis=1)
        return found

    @cached_property
    def counts(self) -> np.ndarray:
        """float64 [Q], the number of documents that were judged and are not relevant, returned or not."""
        known = self.qrels.not_relevant or {}
        return np.array([len(known.get(query_id, ())) for query_id in self.query_ids], np.float64)

    def _among(self, wanted: Mapping[str, frozenset[str]]) -> np.ndarray:
        """bool [Q, K]: membership is looked up document by document, since labels may be far longer than lists."""
        found = np.zeros(self.docs.shape, bool)
        for row, (query_id, docs) in enumerate(zip(self.query_ids, self.docs.tolist(), strict=True)):
            if ids := wanted.get(query_id):
                found[row] = [doc >= 0 and self.doc_ids[doc] in ids for doc in docs]
        return found
