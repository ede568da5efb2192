"""Measures of ranked lists: one function each, from judged lists to one number per query.

`harness.measures.judged` defines hits, ranks and repeats; k is the cut-off, or None. Except for abstention measures,
`Measure.values` sets the value of queries that need no retrieval. With TREC or BEIR labels, a query without a relevant
document counts as 0, as in trec_eval.

In the examples, `[1, 0, 1] of 2` is a list whose first and third documents are hits; 2 documents are relevant in total.
`[1, -, 0] of 2, 3` is a list whose first document is relevant, the second unjudged and the third not relevant. In
total, 2 documents were judged relevant, and 3 were judged not relevant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from harness.measures.judged import Judged, at, running_totals


class MeasureFamily(Enum):
    """The queries that a measure is computed over."""

    STANDARD = "queries that need retrieval"
    SHOWN = "queries that need retrieval and whose lists are not empty"
    MODIFIED = "all labelled queries; a correct abstention scores 1"
    ABSTENTION = "queries in the ratio's denominator"
    POOLED = "all labelled queries at once"

    @property
    def of_rankings(self) -> bool:
        return self in (MeasureFamily.STANDARD, MeasureFamily.SHOWN)


@dataclass(frozen=True)
class Measure:
    """A measure of ranked lists.

    name: the name with its cut-off, as in "ndcg@10".
    compute: (judged, k) -> float64 [Q], or (judged) -> float64 [Q] if the measure takes no cut-off.
        For POOLED measures, (judged) -> (value, number of queries that enter the measure).
    reads: the attribute of `Judged` that the measure needs, "shown" or "holes"; "" if it needs neither.
    lists: the attribute of `Judged` with the lists to read, "condensed" or "at_best"; "" for the given lists.
    whole: whether the measure reads whole lists and takes no cut-off.
    grows_with: config keys whose greater values can only raise the measure.
    """

    name: str
    family: MeasureFamily
    compute: Callable[..., Any]
    k: int | None = None
    reads: str = ""
    lists: str = ""
    whole: bool = False
    grows_with: tuple[str, ...] = ()

    @property
    def reach(self) -> int | None:
        """The maximum number of documents per list that the measure reads; None: all, as for condensed lists."""
        return None if self.lists == "condensed" else self.k

    def values(self, judged: Judged) -> np.ndarray:
        """Return float64 [Q], NaN where the measure does not apply. Not for POOLED measures."""
        if self.reads and getattr(judged, self.reads) is None:
            return np.full(len(judged.needs), np.nan)
        judged = getattr(judged, self.lists) if self.lists else judged
        found: np.ndarray = self.compute(judged) if self.k is None else self.compute(judged, self.k)
        if self.family.of_rankings:
            return np.where(judged.needs, found, np.nan)
        return np.where(judged.needs, found, judged.returned == 0) if self.family is MeasureFamily.MODIFIED else found

    def pooled(self, judged: Judged) -> tuple[float, int]:
        value, n = self.compute(judged)
        return value, n


_Registered = TypeVar("_Registered", bound=Callable)
MEASURES: dict[str, Measure] = {}


def register_measure(family: MeasureFamily, **more: Any) -> Callable[[_Registered], _Registered]:
    """Register a function under its name (`map_` as `map`). more: other fields of its `Measure`."""

    def register(function: _Registered) -> _Registered:
        name = function.__name__.rstrip("_")
        MEASURES[name] = Measure(name, family, function, **more)
        return function

    return register


def ratio(above: np.ndarray, below: np.ndarray | int) -> np.ndarray:
    """Return above / below; 0 where below is 0."""
    return np.divide(above, below, out=np.zeros(len(above)), where=np.broadcast_to(below, above.shape) > 0)


# Standard measures: the mean is over the queries that need retrieval ------------------------------


@register_measure(MeasureFamily.STANDARD, grows_with=("top_k", "depth"))
def hit(judged: Judged, k: int | None = None) -> np.ndarray:
    """1 if any of the first k is a hit, else 0 (hit rate; trec_eval `success`). Empty list: 0.

    `[0, 1] of 1` -> hit@1 = 0, hit@2 = 1.
    """
    return np.minimum(at(judged.hits, k), 1.0)


@register_measure(MeasureFamily.STANDARD, grows_with=("top_k", "depth"))
def recall(judged: Judged, k: int | None = None) -> np.ndarray:
    """Hits in the first k / relevant documents, in [0, 1] (trec_eval `recall`). Empty list: 0.

    `[1, 0, 1] of 4` -> recall@3 = 2/4.
    """
    return ratio(at(judged.hits, k), judged.relevant)


@register_measure(MeasureFamily.STANDARD)
def precision(judged: Judged, k: int | None = None) -> np.ndarray:
    """Hits in the first k / k, in [0, 1], even for lists shorter than k (trec_eval `P`). Empty list: 0.

    Without k: hits / length of the list (trec_eval `set_P`).
    The list `[1, 0]` with 1 relevant document in all -> precision@4 = 1/4, precision = 1/2.
    """
    return ratio(at(judged.hits, k), judged.returned if k is None else k)


@register_measure(MeasureFamily.STANDARD)
def precision_retrieved(judged: Judged, k: int | None = None) -> np.ndarray:
    """Hits in the first k / documents in the first k, in [0, 1] (set precision). Empty list: 0.

    Lists shorter than k score higher than with `precision`: `[1, 0]` -> precision_retrieved@4 = 1/2.
    """
    return ratio(at(judged.hits, k), _returned(judged, k))


def _returned(judged: Judged, k: int | None) -> np.ndarray:
    return judged.returned if k is None else np.minimum(judged.returned, k)


@register_measure(MeasureFamily.STANDARD)
def f1(judged: Judged, k: int | None = None) -> np.ndarray:
    """2PR / (P + R) with P = precision_retrieved@k and R = recall@k, in [0, 1] (van Rijsbergen 1979).

    Without a hit: 0. `[1, 0] of 3` -> P = 1/2, R = 1/3, f1@2 = 2/5.
    """
    p, r = precision_retrieved(judged, k), recall(judged, k)
    return ratio(2 * p * r, p + r)


@register_measure(MeasureFamily.STANDARD)
def mrr(judged: Judged, k: int | None = None) -> np.ndarray:
    """1 / rank of the first hit if it is in the first k, else 0 (Voorhees 1999; trec_eval `recip_rank`).

    Range [0, 1]. `[0, 1, 1] of 2` -> mrr@3 = 1/2, mrr@1 = 0.
    """
    return np.where(judged.first <= (np.inf if k is None else k), 1.0 / judged.first, 0.0)


@register_measure(MeasureFamily.STANDARD)
def map_(judged: Judged, k: int | None = None) -> np.ndarray:
    """Sum of (hits so far / rank) over the hits in the first k, divided by relevant documents (trec_eval `map_cut`).

    Range [0, 1], less than 1 if k is below the number of relevant documents. Empty list: 0.
    `[1, 0, 1] of 3` -> map@3 = (1/1 + 2/3) / 3 = 0.5556.
    """
    return ratio(at(judged.precisions, k), judged.relevant)


@register_measure(MeasureFamily.STANDARD)
def ndcg(judged: Judged, k: int | None = None) -> np.ndarray:
    """DCG / ideal DCG, in [0, 1]. DCG is the sum of grade / log2(rank + 1) over the first k ranks.

    The ideal list has *all* relevant documents, best first, cut at k (Järvelin & Kekäläinen 2002; trec_eval
    `ndcg_cut`). Empty list: 0.
    Grades `[1, 3]` returned out of {3, 2, 1} -> ndcg@3 = (1 + 3/log2(3)) / (3 + 2/log2(3) + 1/2) = 2.8928 / 4.7619 =
    0.6075.
    """
    return ratio(at(judged.dcg, k), at(judged.ideal_dcg, k))


@register_measure(MeasureFamily.STANDARD)
def ndcg_exp(judged: Judged, k: int | None = None) -> np.ndarray:
    """nDCG with the gain 2^grade - 1 instead of the grade (Burges et al. 2005).

    Grades `[1, 2]` returned out of {2, 1} -> ndcg_exp@2 = (1 + 3/log2(3)) / (3 + 1/log2(3)) = 0.7967.
    """
    return ratio(at(judged.dcg_exp, k), at(judged.ideal_dcg_exp, k))


# Measures of spans count characters of evidence, so they can compare chunkings of the same texts ---


_EVERY_SIZE = ("top_k", "depth", "dataset.chunk.size", "dataset.chunk.overlap")


@register_measure(MeasureFamily.STANDARD, reads="shown", grows_with=_EVERY_SIZE)
def span_recall(judged: Judged, k: int | None = None) -> np.ndarray:
    """Characters of evidence that the first k documents show / characters of evidence, in [0, 1].

    Overlapping characters count once; titles do not count. Empty list: 0. Different chunkings of the same texts can be
    compared. Without k, this is the recall of Smith & Troynikov 2024, "Evaluating Chunking Strategies for Retrieval".
    Evidence [90, 110), documents [0, 100) and [80, 180): span_recall@1 = 10/20, span_recall@2 = 20/20.
    """
    assert judged.shown is not None
    return judged.shown.recall(k)


@register_measure(MeasureFamily.STANDARD, reads="shown")
def span_precision(judged: Judged, k: int | None = None) -> np.ndarray:
    """Characters of evidence that the first k documents show / all characters that they show, in [0, 1].

    Overlapping characters count once. Of a document with several spans, only the best one counts. Empty list: 0.
    Lists shorter than k are not penalised. With the same evidence, longer documents score lower than shorter ones.
    Evidence [90, 110), documents [0, 100) and [80, 180): span_precision@1 = 10/100, span_precision@2 = 20/180.
    """
    assert judged.shown is not None
    return judged.shown.precision(k)


# The contest's rule: all queries count; a query that needs no retrieval scores 1 for an empty list, else 0 ---


@register_measure(MeasureFamily.MODIFIED)
def modified_map(judged: Judged, k: int | None = None) -> np.ndarray:
    """Sum of (hits so far / rank) over the hits in the first k, divided by *hits found*; the contest's score at k = 3.

    Range [0, 1]; 0 without a hit. A shorter list can score higher: `[1] of 2` -> 1, `[1, 0, 1] of 2` -> (1/1 + 2/3) / 2
    = 0.8333. As in the contest's code, a repeated relevant document counts as a hit each time.
    """
    return ratio(at(judged.precisions_with_repeats, k), at(judged.hits_with_repeats, k))


# Example: one query has `[0, 1] of 1`, the other needs no retrieval and has an empty list.
# modified_mrr = (1/2 + 1) / 2 = 0.75, modified_ndcg = (1/log2(3) + 1) / 2 = 0.8155.
for _name, _measure in (("modified_mrr", mrr), ("modified_ndcg", ndcg)):
    MEASURES[_name] = Measure(_name, MeasureFamily.MODIFIED, _measure)


# Abstention: ratios over all labelled queries; a ratio over no query is reported as 0 ---------------
# Example for all abstention measures: q1 and q2 have empty lists, q3 and q4 do not; q1 and q3 need no retrieval.


@register_measure(MeasureFamily.ABSTENTION)
def abstention_precision(judged: Judged) -> np.ndarray:
    """1 if a query with an empty list needs no retrieval, else 0; NaN for queries whose list has documents.

    Example: q1 and q2 have empty lists, and only q1 needs no retrieval -> mean 1/2.
    """
    return np.where(judged.returned == 0, ~judged.needs, np.nan)


@register_measure(MeasureFamily.ABSTENTION)
def abstention_recall(judged: Judged) -> np.ndarray:
    """1 if a query that needs no retrieval has an empty list, else 0; NaN for queries that need retrieval.

    Example: q1 and q3 need no retrieval, and only q1 has an empty list -> mean 1/2.
    """
    return np.where(judged.needs, np.nan, judged.returned == 0)


@register_measure(MeasureFamily.ABSTENTION)
def abstention_accuracy(judged: Judged) -> np.ndarray:
    """1 if the list is empty and no retrieval is needed, or if it has documents and retrieval is needed; else 0.

    Example: 1 for q1 and q4, 0 for q2 and q3 -> mean 2/4.
    """
    return ((judged.returned == 0) == ~judged.needs).astype(np.float64)


@register_measure(MeasureFamily.POOLED)
def abstention_f1(judged: Judged) -> tuple[float, int]:
    """2TP / (2TP + FP + FN), where an empty list is a positive: the harmonic mean of abstention precision and recall.

    Computed over the queries that have an empty list or need no retrieval; 0 if there are none.
    Example: TP = {q1}, FP = {q2}, FN = {q3} -> 2/4, from 3 queries.
    """
    empty, none_needed = judged.returned == 0, ~judged.needs
    both, either = int((empty & none_needed).sum()), int((empty | none_needed).sum())
    return (2 * both / (both + either) if either else 0.0), either


@register_measure(MeasureFamily.POOLED)
def abstention_auroc(judged: Judged) -> tuple[float, int]:
    """Share of pairs (one query needs retrieval, one does not) in which the one that needs it has the higher signal.

    A tie counts half. This share is the area under the ROC curve (Hanley & McNeil 1982) and needs no threshold.
    There is no value, (NaN, 0), without signals, or if either all or none of the queries need retrieval.
    Example: signals 3 and 1 where retrieval is needed, 2 where it is not; one of two pairs is in order -> 1/2.
    """
    if judged.signal is None or judged.needs.all() or not judged.needs.any():
        return np.nan, 0
    needed, not_needed = judged.signal[judged.needs], np.sort(judged.signal[~judged.needs])
    below = np.searchsorted(not_needed, needed, "left") + np.searchsorted(not_needed, needed, "right")
    return float(below.mean() / 2 / len(not_needed)), len(judged.needs)


# Measures for incomplete judgements: the labels must say which documents were judged ---------------

EPSILON = 0.00001  # trec_eval's INFAP_EPSILON, which smooths the share of relevant documents


@register_measure(MeasureFamily.SHOWN, reads="holes")
def judged_(judged: Judged, k: int | None = None) -> np.ndarray:
    """Judged documents in the first k / documents in the first k, in [0, 1] (ir_measures `Judged`).

    NaN for an empty list. trec_eval's `unj` is not 1 minus this share: it counts missing ranks as judged.
    `[1, -] of 1, 0` -> judged@1 = 1, judged@4 = 1/2.
    """
    share = ratio(at(running_totals(judged.known), k), _returned(judged, k))
    return np.where(judged.returned > 0, share, np.nan)


@register_measure(MeasureFamily.STANDARD, reads="holes", whole=True)
def bpref(judged: Judged) -> np.ndarray:
    """Mean of 1 - min(n, R) / min(N, R) over the R relevant documents (0 for those not returned), in [0, 1].

    n: number of documents judged not relevant that rank above the relevant one. If n = 0, the relevant one counts 1.
    N: number of all documents judged not relevant.
    Unjudged documents are ignored. Empty list: 0. (Buckley and Voorhees 2004; trec_eval.)
    `[0, 1, -, 1] of 2, 3` -> ((1 - 1/2) + (1 - 1/2)) / 2 = 0.5.
    """
    assert judged.holes is not None
    relevant = judged.relevant[:, None]
    above = running_totals(judged.holes.not_relevant & judged.holes.first)[:, :-1]
    least = np.maximum(np.minimum(judged.holes.counts[:, None], relevant), 1)  # not 0 / 0 below
    terms = np.where(judged.gains > 0, 1 - np.minimum(above, relevant) / least, 0.0)
    return ratio(terms.sum(axis=1), judged.relevant)


@register_measure(MeasureFamily.STANDARD, reads="holes", whole=True)
def infap(judged: Judged) -> np.ndarray:
    """Average precision inferred from a pool that was judged in part, in [0, 1] (Yilmaz and Aslam 2006).

    The inferred precisions at the hits are summed and divided by the number of relevant documents. The precision is 1
    at rank 1, and 1/r + (r-1)/r * p/(r-1) * (h + e) / (h + n + 2e) at rank r > 1. Of the documents above rank r, p are
    in the pool, h are relevant, and n are judged not relevant; e = 0.00001, as in trec_eval's `infAP`. The pool is all
    judged documents, and the documents with a grade below 0 in TREC labels. Empty list: 0.
    `[1, -, 1] of 2, 0` -> (1 + 1/3 + 2/3 * 1/2 * 1) / 2 = 0.8333.
    """
    assert judged.holes is not None
    first = judged.holes.first
    ranks = np.arange(1, judged.gains.shape[1] + 1)
    hits = judged.hits[:, :-1]
    others = running_totals(judged.holes.not_relevant & first)[:, :-1]
    pooled = hits + others + running_totals(judged.holes.pooled & first)[:, :-1]
    inferred = 1 / ranks + pooled / ranks * (hits + EPSILON) / (hits + others + 2 * EPSILON)
    inferred[:, :1] = 1.0
    terms = np.where(judged.gains > 0, inferred, 0.0)
    return ratio(terms.sum(axis=1), judged.relevant)


# NAME_condensed: the value of NAME for the list without its unjudged documents, in [0, 1] (Sakai 2007).
# `[-, 1, 0] of 1, 1` (the first document is unjudged) -> mrr_condensed@3 = 1, precision_condensed@3 = 1/3.
# NAME_upper: the value of NAME if all unjudged documents in the list were relevant, in [0, 1]. With complete labels,
# the value would lie between NAME and NAME_upper, provided that more relevant documents never lower NAME.
# `[0, -, 1] of 1, 1` -> mrr_upper@3 = 1/2, precision_upper@3 = 2/3.
_OF_LISTS = {
    "condensed": ("condensed", (hit, recall, precision, mrr, map_, ndcg)),
    "upper": ("at_best", (hit, precision, mrr)),
}
for _end, (_lists, _functions) in _OF_LISTS.items():
    for _function in _functions:
        _name = f"{_function.__name__.rstrip('_')}_{_end}"
        MEASURES[_name] = Measure(_name, MeasureFamily.STANDARD, _function, reads="holes", lists=_lists)
