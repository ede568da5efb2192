"""Where the score is lost: losses that add up, and the score that a perfect component would reach."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.evaluation.judged import Judged, at
from harness.evaluation.ranking_measures import modified_map

SHOWN = 3  # documents that the score reads
LOSING = f"modified_map@{SHOWN}"  # the measure whose losses these are
MERGED = "not_found_or_misranked"  # kind of loss where lists end too early to tell the two apart
KINDS = ("", "wrongly_returned", "wrongly_withheld", "not_found", "misranked", MERGED)  # of a query; "" for no loss


def losses(final: Judged, candidates: Judged | None = None, keep: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Four kinds of loss, float64 [Q] each, that add up to 1 - modified_map@3 of `final` for each query.

    At most one of them is above 0 for a query:

    wrongly_returned: the query needs no retrieval, but its list is not empty.
    wrongly_withheld: the query needs retrieval, but the gate emptied its list.
    not_found:        no hit in `candidates`; if these are unknown, none in `final`.
    misranked:        everything else.

    final:      the lists that were returned.
    candidates: the lists at full depth, before the gate; None = unknown.
    keep:       bool [Q], the gate's decision; None = unknown: every empty list counts as withheld.
    """
    loss = 1.0 - modified_map(final, SHOWN)
    withheld = _withheld(final, candidates, keep)
    hits = at((final if candidates is None else candidates).hits, None)
    lost = (hits == 0) | (final.returned == 0)
    kinds = {
        "wrongly_returned": ~final.needs,
        "wrongly_withheld": final.needs & withheld,
        "not_found": final.needs & ~withheld & lost,
        "misranked": final.needs & ~withheld & ~lost,
    }
    return {kind: np.where(where, loss, 0.0) for kind, where in kinds.items()}


def merged(found: Mapping[str, float]) -> dict[str, float]:
    """The losses with `not_found` and `misranked` as one: lists cut to SHOWN documents do not tell them apart."""
    apart = ("not_found", "misranked")
    return {kind: value for kind, value in found.items() if kind not in apart} | {
        MERGED: sum(found[kind] for kind in apart)
    }


def kinds(found: Mapping[str, np.ndarray], cut: bool = False) -> tuple[str, ...]:
    """The kind of loss of each query, one of KINDS.

    found: as `losses` returns it. cut: whether the lists end too early to tell whether what they lack was found; a
    query with a relevant document in its list is misranked all the same.
    """
    codes = np.zeros(len(next(iter(found.values()))), np.intp)
    for kind, values in found.items():
        codes[values > 0] = KINDS.index(MERGED if cut and kind == "not_found" else kind)
    return tuple(KINDS[code] for code in codes.tolist())


def ceilings(
    final: Judged,
    candidates: Judged | None = None,
    keep: np.ndarray | None = None,
    rankings: Mapping[str, Judged] | None = None,
    top_k: int = 3,
) -> dict[str, np.ndarray]:
    """modified_map@3 of each query, float64 [Q], if one component were perfect and the others unchanged.

    oracle_gate:   every decision is right; a list that is shown is the first top_k of `candidates`
                   (of `final` if these are unknown).
    oracle_rerank: hits come first wherever there are any, that is, nothing is misranked.
    oracle_fusion: the best of the component rankings for each query, with the gate's actual decisions;
                   left out if no component ranking is known.

    final, candidates, keep: as for `losses`.
    rankings: name -> component ranking.
    top_k:    number of documents that are returned.
    """
    score = modified_map(final, SHOWN)
    shown = min(SHOWN, top_k)
    source = final if candidates is None else candidates
    best_scores = {
        "oracle_gate": np.where(final.needs, modified_map(source, shown), 1.0),
        "oracle_rerank": score + losses(final, candidates, keep)["misranked"],
    }
    if rankings:
        best = np.max([modified_map(ranking, shown) for ranking in rankings.values()], axis=0)
        shown_best = np.where(_withheld(final, candidates, keep), 0.0, best)
        best_scores["oracle_fusion"] = np.where(final.needs, shown_best, score)
    return best_scores


def _withheld(final: Judged, candidates: Judged | None, keep: np.ndarray | None) -> np.ndarray:
    """Whether the gate emptied the list, bool [Q]. A list without candidates was empty before."""
    empty = final.returned == 0
    if candidates is not None:
        empty &= candidates.returned > 0
    return empty if keep is None else empty & ~keep
