"""BM25 with NumPy alone, for small indexes: the same bits as the compiled kernels, which take longer to load.

_bm25_kernels describes the postings.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from retrievers.lexical._bm25_frequent import Columns
from retrievers.lexical.bm25_postings import TermPostings


def sorted_postings(ids: np.ndarray, offsets: np.ndarray, n_terms: int) -> tuple[np.ndarray, TermPostings]:
    """Return what `PostingsSort` finds: `starts`, and all postings."""
    count = len(offsets) - 1
    keys = ids.astype(np.int64) * count + np.repeat(np.arange(count), np.diff(offsets))
    keys.sort()  # by term, then by document
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    terms, docs = np.divmod(keys[firsts], max(count, 1))
    starts = np.concatenate([[0], np.cumsum(np.bincount(terms, minlength=n_terms))])
    return starts, TermPostings(0, docs.astype(np.int32), np.diff(firsts, append=len(keys)))


def search_small(
    columns: Columns,
    docs: np.ndarray,
    scores: np.ndarray,
    terms: np.ndarray,
    offsets: np.ndarray,
    top_docs: np.ndarray,
    top_scores: np.ndarray,
) -> None:
    """Fill all rows of `top_docs` and `top_scores` as `search_postings` does, but best first."""
    starts, ends, floors = (column[terms] for column in (columns.starts, columns.ends, columns.floors))
    spans = [slice(*span) for span in zip(starts.tolist(), ends.tolist(), strict=True)]
    for row, (first, last) in enumerate(pairwise(offsets.tolist())):
        mine = spans[first:last]
        if not mine:
            continue
        found = np.concatenate([docs[span] for span in mine])
        # bincount and cumsum add in order, as the kernels do. A sum cannot tell which documents have no query term.
        sums = np.bincount(found, np.concatenate([scores[span] for span in mine]))
        touched = np.zeros(len(sums), bool)
        touched[found] = True
        numbers = np.flatnonzero(touched)
        values = sums[numbers] + np.cumsum(floors[first:last])[-1]
        best = _best(values, top_docs.shape[1])
        top_docs[row, : len(best)], top_scores[row, : len(best)] = numbers[best], values[best]


def _best(values: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the k >= 1 largest values, the largest first. Of equal values, the first ones count."""
    kept = np.arange(len(values))
    if len(values) > k:
        kth = np.partition(values, -k)[-k]
        above = np.flatnonzero(values > kth)
        kept = np.sort(np.concatenate([above, np.flatnonzero(values == kth)[: k - len(above)]]))
    return kept[np.argsort(-values[kept], kind="stable")]
