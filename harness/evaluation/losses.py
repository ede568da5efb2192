"""Where the score is lost: losses that add up, and the ceilings beside them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.evaluation.judged import Judged, at
from harness.evaluation.measures import modified_map

# Where 1 - modified_map@3 goes, and what a perfect part would give ----------------------------------


def losses(final: Judged, candidates: Judged | None = None, keep: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Four arrays float64 [Q] that add up to 1 - modified_map@3 of `final`, query by query.

    At most one of them is above 0 for a query:
    wrongly_returned: needs no retrieval, something came back;
    wrongly_withheld: needs retrieval, the gate emptied the list;
    not_found: no hit in `candidates` (the lists at depth, before the gate), which may be empty; with
        candidates unknown (None), no hit in the first 3;
    misranked: the rest.
    keep: bool [Q], the gate's decision; when unknown (None), every empty list counts as withheld.
    """
    loss = 1.0 - modified_map(final, 3)
    withheld = _withheld(final, candidates, keep)
    hits = at(final.hits, 3) if candidates is None else at(candidates.hits, None)
    lost = (hits == 0) | (final.returned == 0)
    kinds = {
        "wrongly_returned": ~final.needs,
        "wrongly_withheld": final.needs & withheld,
        "not_found": final.needs & ~withheld & lost,
        "misranked": final.needs & ~withheld & ~lost,
    }
    return {kind: np.where(where, loss, 0.0) for kind, where in kinds.items()}


def ceilings(
    final: Judged,
    candidates: Judged | None = None,
    keep: np.ndarray | None = None,
    rankings: Mapping[str, Judged] | None = None,
    top_k: int = 3,
) -> dict[str, np.ndarray]:
    """modified_map@3 per query, float64 [Q], if one part were perfect and the others as they are.

    oracle_gate: every decision right, each kept list the first top_k of `candidates` (None: of `final`).
    oracle_rerank: hits first wherever there was one to rank, that is, nothing misranked.
    oracle_fusion: the best of the raw `rankings`, query by query, the gate's decisions as they were;
        left out where no raw ranking is known.
    """
    score = modified_map(final, 3)
    shown = min(3, top_k)
    source = final if candidates is None else candidates
    found = {
        "oracle_gate": np.where(final.needs, modified_map(source, shown), 1.0),
        "oracle_rerank": score + losses(final, candidates, keep)["misranked"],
    }
    if rankings:
        best = np.max([modified_map(ranking, shown) for ranking in rankings.values()], axis=0)
        found["oracle_fusion"] = np.where(final.needs, np.where(_withheld(final, candidates, keep), 0.0, best), score)
    return found


def _withheld(final: Judged, candidates: Judged | None, keep: np.ndarray | None) -> np.ndarray:
    """bool [Q]: the gate emptied the list. Where no candidate was there, it had nothing to empty."""
    empty = final.returned == 0
    if candidates is not None:
        empty &= candidates.returned > 0
    return empty if keep is None else empty & ~keep
