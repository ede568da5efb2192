"""Measures for labels with holes: how much of a list was judged, and measures that leave out what was not.

All need labels that say which documents were judged. In the examples, `[1, -, 0] of 2, 3` is a list of a relevant, an
unjudged and a not relevant document, with 2 relevant and 3 not relevant documents judged in total.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from harness.evaluation.families import MEASURES, MeasureFamily, measure, ratio, standard, unknown
from harness.evaluation.judged import Judged, at, running
from harness.evaluation.ranking_measures import hit, map_, mrr, ndcg, precision, recall

EPSILON = 0.00001  # trec_eval's INFAP_EPSILON, which smooths the share of relevant documents
OF_HOLES = ("judged", "bpref", "infap")
WHOLE = ("bpref", "infap")  # they read whole lists and take no cut-off
CONDENSED, UPPER = "_condensed", "_upper"  # ends of the names of measures


@measure(MeasureFamily.SHOWN)
def judged(judged: Judged, k: int | None = None) -> np.ndarray:
    """Judged documents in the first k / documents in the first k, in [0, 1] (ir_measures `Judged`).

    NaN for an empty list, which shows nothing that is unjudged. 1 - trec_eval's `unj` is another number: it counts
    missing ranks as judged.
    `[1, -] of 1, 0` -> judged@1 = 1, judged@4 = 1/2.
    """
    if judged.holes is None:
        return unknown(judged)
    returned = judged.returned if k is None else np.minimum(judged.returned, k)
    share = ratio(at(running(judged.known), k), returned)
    return standard(judged, np.where(judged.returned > 0, share, np.nan))


@measure(MeasureFamily.STANDARD)
def bpref(judged: Judged) -> np.ndarray:
    """Mean over the R relevant documents of 1 - min(n, R) / min(N, R), 0 for those not returned; in [0, 1].

    n: documents above that were judged and are not relevant; with none above, the term is 1. N: all that were judged
    and are not relevant. Unjudged documents play no part. Empty list: 0. (Buckley and Voorhees 2004; trec_eval.)
    `[0, 1, -, 1] of 2, 3` -> ((1 - 1/2) + (1 - 1/2)) / 2 = 0.5.
    """
    if judged.holes is None:
        return unknown(judged)
    relevant = judged.relevant[:, None]
    above = running(judged.holes.not_relevant & judged.holes.first)[:, :-1]
    least = np.maximum(np.minimum(judged.holes.counts[:, None], relevant), 1)  # 0 only where none can be above
    terms = np.where(judged.gains > 0, 1 - np.minimum(above, relevant) / least, 0.0)
    return standard(judged, ratio(terms.sum(axis=1), judged.relevant))


@measure(MeasureFamily.STANDARD)
def infap(judged: Judged) -> np.ndarray:
    """Average precision as inferred from a pool that was judged in part, in [0, 1] (Yilmaz and Aslam 2006).

    The precision at a hit of rank r > 1 is taken as 1/r + (r-1)/r * p/(r-1) * (h + e) / (h + n + 2e), with p, h and n
    the documents above that are in the pool, relevant, and judged not relevant, and e = 0.00001; at rank 1 as 1. The
    sum over hits is divided by the relevant documents. The pool: judged documents, and those with a grade below 0 in
    TREC labels. Empty list: 0. Formula and e are those of trec_eval's `infAP`.
    `[1, -, 1] of 2, 0` -> (1 + 1/3 + 2/3 * 1/2 * 1) / 2 = 0.8333.
    """
    if judged.holes is None:
        return unknown(judged)
    first = judged.holes.first
    ranks = np.arange(1, judged.gains.shape[1] + 1)
    hits = judged.hits[:, :-1]
    others = running(judged.holes.not_relevant & first)[:, :-1]
    pooled = hits + others + running(judged.holes.pooled & first)[:, :-1]
    inferred = 1 / ranks + pooled / ranks * (hits + EPSILON) / (hits + others + 2 * EPSILON)
    inferred[:, :1] = 1.0
    terms = np.where(judged.gains > 0, inferred, 0.0)
    return standard(judged, ratio(terms.sum(axis=1), judged.relevant))


def _condensed(function: Callable, judged: Judged, k: int | None = None) -> np.ndarray:
    """The measure of the list without its unjudged documents (Sakai 2007), in [0, 1]; later ranks move up.

    `[-, 1, 0] of 1, 1` -> mrr_condensed@3 = 1, precision_condensed@3 = 1/3.
    """
    return unknown(judged) if judged.holes is None else function(judged.condensed, k)


def _upper(function: Callable, judged: Judged, k: int | None = None) -> np.ndarray:
    """The measure if all unjudged documents in the list were relevant: the most that it can be, in [0, 1].

    The least is the measure itself. Only of measures that more relevant documents cannot lower.
    `[0, -, 1] of 1, 1` -> mrr_upper@3 = 1/2, precision_upper@3 = 2/3.
    """
    return unknown(judged) if judged.holes is None else function(judged.at_best, k)


def _register(end: str, made: Callable, *functions: Callable) -> None:
    """Register `made` of each function, under the function's name and this end."""
    for one in functions:
        MEASURES[one.__name__.rstrip("_") + end] = (MeasureFamily.STANDARD, partial(made, one))


_register(CONDENSED, _condensed, hit, recall, precision, mrr, map_, ndcg)
_register(UPPER, _upper, hit, precision, mrr)
