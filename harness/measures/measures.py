"""Look up measures by name, such as `ndcg@10`; check that labels suffice; compute losses and ceilings of the score."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from harness.data.qrels import Qrels
from harness.errors import BadInput, did_you_mean
from harness.measures.judged import Judged, at
from harness.measures.ranking_measures import MEASURES, Measure, MeasureFamily

SHOWN = 3  # the score, modified_map@3, reads this many documents of each list
LOSING = f"modified_map@{SHOWN}"  # the score; its losses are divided into kinds
MERGED = "not_found_or_misranked"  # kind of loss if lists end too early to tell not_found from misranked
KINDS = ("", "wrongly_returned", "wrongly_withheld", "not_found", "misranked", MERGED)  # kinds of loss; "" for none


def losses(final: Judged, candidates: Judged | None = None, keep: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return four kinds of loss, float64 [Q] each; for each query they add up to 1 - modified_map@3 of `final`.

    A query has at most one kind of loss:

    wrongly_returned: the query needs no retrieval, but its list is not empty.
    wrongly_withheld: the query needs retrieval, but the gate emptied its list.
    not_found: the query needs retrieval, but `candidates` (`final`, if these are unknown) have no hit.
    misranked: every other loss.

    candidates: the lists at full depth, before the gate; None: unknown.
    keep: bool [Q], whether the gate shows documents; None: unknown, so every empty list that may have had candidates
        counts as withheld.
    """
    loss = 1.0 - _score(final)
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
    """Join `not_found` and `misranked`, since lists cut to SHOWN documents do not tell the two apart."""
    apart = ("not_found", "misranked")
    return {kind: value for kind, value in found.items() if kind not in apart} | {
        MERGED: sum(found[kind] for kind in apart)
    }


def kinds(found: Mapping[str, np.ndarray], cut: bool = False) -> tuple[str, ...]:
    """Return the kind of loss of each query, one of KINDS.

    found: the result of `losses`.
    cut: whether the lists end too early to tell `not_found` from `misranked`. In that case, only a query with a
        relevant document in its list counts as misranked.
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
    """Return name -> each query's modified_map@3, float64 [Q], as it would be if one component were perfect.

    oracle_gate: every decision of the gate is right; each list that it shows is the first top_k of `candidates`
        (of `final`, if the candidates are unknown).
    oracle_rerank: all hits come first, so nothing is misranked.
    oracle_fusion: each query has its best component ranking, with the gate's actual decisions; left out if no
        component ranking is known.
    """
    score = _score(final)
    shown = min(SHOWN, top_k)
    source = final if candidates is None else candidates
    best_scores = {
        "oracle_gate": np.where(final.needs, _score(source, shown), 1.0),
        "oracle_rerank": score + losses(final, candidates, keep)["misranked"],
    }
    if rankings:
        best = np.max([_score(ranking, shown) for ranking in rankings.values()], axis=0)
        shown_best = np.where(_withheld(final, candidates, keep), 0.0, best)
        best_scores["oracle_fusion"] = np.where(final.needs, shown_best, score)
    return best_scores


def _score(judged: Judged, k: int = SHOWN) -> np.ndarray:
    return parse_measure(f"modified_map@{k}").values(judged)


def _withheld(final: Judged, candidates: Judged | None, keep: np.ndarray | None) -> np.ndarray:
    empty = final.returned == 0
    if candidates is not None:
        empty &= candidates.returned > 0  # A list without candidates was already empty before the gate.
    return empty if keep is None else empty & ~keep


OOF = "oof/"  # prefix of the names of out-of-fold numbers
LONGEST = 100_000  # greatest cut-off; `depth` has the same limit
SPAN_MEASURES = ("span_recall@3", "span_recall@10", "span_precision@3")  # always computed for labels made of evidence
VERSION = 1  # Increase this whenever new code gives other numbers for the same lists and labels.


def parse_measure(name: object) -> Measure:
    """Return the measure `name` or `name@k`, k >= 1. Raise BadInput (key `metrics`) for an unknown measure."""
    return _parse(str(name))


@functools.cache
def _parse(name: str) -> Measure:
    base, at_sign, cutoff = name.partition("@")
    if base not in MEASURES:
        plain = name.lower().replace("_at_", "@")
        known = [f"{known}{at_sign}{cutoff}" for known in MEASURES] if "@" in plain else MEASURES
        if "@" in plain and not at_sign:
            known = [f"{known}@{plain.partition('@')[2]}" for known in MEASURES]
        raise BadInput(f"metrics: '{name}' is unknown.{did_you_mean(plain, known)} Known: {', '.join(MEASURES)}.")
    found = MEASURES[base]
    if not at_sign:
        return found
    if found.whole or found.family in (MeasureFamily.ABSTENTION, MeasureFamily.POOLED):
        raise BadInput(f"metrics: '{name}': {base} reads whole lists and takes no cut-off. Write '{base}'.")
    if not re.fullmatch("[1-9][0-9]{0,5}", cutoff) or int(cutoff) > LONGEST:
        raise BadInput(
            f"metrics: '{name:.60}': the cut-off must be an integer from 1 to {LONGEST:,}, as in '{base}@10'."
        )
    return replace(found, name=f"{base}@{cutoff}", k=int(cutoff))


def of_spans(name: str) -> bool:
    """Return whether a measure counts characters of evidence. Such measures can compare chunkings of the same texts."""
    return bool((found := _registered(name)) and found.reads == "shown")


def of_holes(name: str) -> bool:
    """Return whether a measure asks which documents were judged."""
    return bool((found := _registered(name)) and found.reads == "holes")


def grows_with(name: str, key: str) -> bool:
    """Return whether greater values of a config key can only raise a measure, as `top_k` raises `recall`."""
    return bool((found := _registered(name)) and key in found.grows_with)


def _registered(name: str) -> Measure | None:
    return MEASURES.get(name.partition("@")[0])


def requested(metrics: Iterable[str], qrels: Qrels | None, top_k: int = SHOWN) -> list[str]:
    """Return the measures to compute: those in `metrics`, and others that these labels make possible.

    For labels made of evidence, add SPAN_MEASURES. If a document was judged not relevant, add `judged@top_k`.
    """
    more = list(SPAN_MEASURES) if qrels and qrels.places is not None else []
    more += [f"judged@{top_k}"] if qrels and any((qrels.not_relevant or {}).values()) else []
    return list(dict.fromkeys([*(parse_measure(name).name for name in metrics), *more]))


def check_labels(metrics: Iterable[str], qrels: Qrels) -> None:
    """Raise BadInput if a measure needs something that the labels do not say."""
    names = list(metrics)
    if qrels.places is None and (lacking := next(filter(of_spans, names), None)):
        raise BadInput(
            f"metrics: '{lacking}' counts characters of evidence, and these labels are not made of evidence. Use "
            "dataset=testset or dataset=chunked, or leave the measure out."
        )
    if qrels.not_relevant is None and (lacking := next(filter(of_holes, names), None)):
        raise BadInput(
            f"metrics: '{lacking}' asks which documents were judged, and these labels do not say that. Leave the "
            "measure out, or give labels that list `not_relevant` documents or have TREC or BEIR rows with grade 0."
        )
