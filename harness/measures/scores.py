"""Score ranked lists against labels.

This module decides which queries count and which list each measure reads, and computes intervals, losses, and the
means of the public and the private part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any, Literal

import numpy as np

from harness.config.text import counted
from harness.data.predictions import Predictions
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.measures import checked_values
from harness.measures.checked_values import CheckedValues
from harness.measures.judged import Judged, judge_rows, rows_of
from harness.measures.measures import (
    SHOWN,
    Measure,
    MeasureFamily,
    ceilings,
    check_labels,
    kinds,
    losses,
    merged,
    of_spans,
    parse_measure,
)
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.prediction_powered import Estimate
from harness.statistics.split import Split, public_part
from retrievers.base import Ranking, remembered, row_blocks

Lists = Ranking | Predictions
JUDGED = 1 << 22  # cells of lists judged at a time, to limit memory
DEEP = 100  # a run's default depth; if lists may be cut, measures without a k need at least one list this long


@dataclass(frozen=True, eq=False)
class ShownLists:
    """The lists shown for each query, and the lists they were made from. All have the same queries in the same rows.

    deep: the gated lists before the cut to `top_k`; None if unknown.
    candidates: the full-depth lists before the gate; None if unknown.
    keep: bool [rows], whether the gate shows documents.
    signal: float64 [rows], the gate's signal.
    rankings: component rankings, for the oracle fusion.
    complete: False for lists that may have been cut, such as the lists of a file.
    lengths: int [rows], the lengths of the final lists, if these are the first of the `candidates` and other lists of
        the same candidates will be scored: what depends only on a query and its list's length is kept. Else None.
    """

    final: Lists
    deep: Lists | None = None
    candidates: Lists | None = None
    keep: np.ndarray | None = None
    signal: np.ndarray | None = None
    rankings: Mapping[str, Ranking] = field(default_factory=dict)
    top_k: int | None = None
    complete: bool = True
    lengths: np.ndarray | None = None

    def __post_init__(self) -> None:
        others = [lists for lists in (self.deep, self.candidates, *self.rankings.values()) if lists is not None]
        if any(lists.query_ids != self.final.query_ids for lists in others):
            raise ValueError("final, deep, candidates and rankings must have the same queries in the same rows")
        if self.deep is not None and self.top_k is None:
            raise ValueError("`deep` needs `top_k`, which decides which measures read `deep`")

    def beyond(self, measures: Sequence[Measure]) -> dict[str, str]:
        """Return measure -> why it is unknown, for measures that read past the longest list; {} for complete lists."""
        if self.complete:
            return {}
        longest = self._longest
        of_rankings = [measure for measure in measures if measure.family.of_rankings]
        deeper = [measure.name for measure in of_rankings if (measure.reach or DEEP) > longest]
        return dict.fromkeys(deeper, f"the longest list has {counted(longest, 'document')}")

    @property
    def are_cut(self) -> bool:
        return not self.complete and self._longest <= SHOWN

    @property
    def _longest(self) -> int:
        return int((self.final.docs >= 0).sum(axis=1).max(initial=0))

    def read_by(self, measure: Measure) -> Lists:
        """Return the lists that a measure reads, `final` or `deep`."""
        in_final = self.top_k is not None and measure.reach is not None and measure.reach <= self.top_k
        return self.final if self.deep is None or in_final or not measure.family.of_rankings else self.deep


RESAMPLES = 2000
NO_QUERY = {  # why an abstention ratio has denominator 0
    "abstention_precision": "no list is empty",
    "abstention_recall": "every query needs retrieval",
    "abstention_f1": "no list is empty and every query needs retrieval",
}
UNKNOWN = "unknown_documents"  # number of documents that a scored file lists but the dataset lacks
UNANSWERABLE = "unanswerable_abstention"  # share of empty lists among the queries that the documents do not answer


@dataclass(frozen=True)
class Summary:
    """The value of a measure over the `n` queries that enter it.

    mean: NaN if undefined. A ratio with denominator 0 is 0, as in the contest's reference values.
    low, high: 95 % interval, NaN without one.
    note: why there is no value or no interval.
    """

    mean: float
    n: int
    low: float = math.nan
    high: float = math.nan
    note: str = ""

    @property
    def known(self) -> float:
        """The mean to show and to log: NaN if no query enters the measure."""
        return self.mean if self.n else math.nan


@dataclass(frozen=True, eq=False)
class Scores:
    """The result of `score_lists`.

    query_ids: the Q scored queries, in the order of the predictions; then the missing queries, if they count.
    values: measure -> float64 [Q], NaN where the measure does not apply. Measures of all queries at once are left out.
    needs, multi_turn, in_public: bool [Q], whether a query needs retrieval, whether it has several user turns, and
        whether it is public.
    first_hit: float64 [Q], rank of the first relevant document before the gate (in the final list if the candidates are
        unknown); 0 if none was found, NaN if no retrieval is needed.
    summary: measure -> its mean over all scored queries, with an interval.
    public, private: like `summary`, over the queries of one part. `private` never has intervals, and `public`
        has them only with select_on=public.
    losses: kind -> mean loss.
    ceilings: name -> mean modified_map@3 if one component were perfect.
    missing: labelled queries that the predictions lack.
    duplicates: query_id -> documents listed more than once.
    loss: the kind of loss of each query, one of `KINDS`; None for averaged scores.
    unanswerable: share of empty lists among the unanswerable queries with predictions. No other number counts these.
    checked: scores by people's labels and by a model's labels; None unless there are both. With `checked`, the means
        above have no interval, since an interval could not reflect the model's errors; use `estimates`.
    """

    query_ids: tuple[str, ...]
    values: dict[str, np.ndarray]
    needs: np.ndarray
    multi_turn: np.ndarray
    in_public: np.ndarray
    first_hit: np.ndarray
    summary: dict[str, Summary]
    public: dict[str, Summary]
    private: dict[str, Summary]
    losses: dict[str, float]
    ceilings: dict[str, float]
    counts: dict[str, int]
    missing: list[str]
    duplicates: dict[str, list[str]]
    loss: tuple[str, ...] | None = None
    unanswerable: Summary | None = None
    checked: CheckedValues | None = None

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        return self.checked.estimates() if self.checked else {}

    def estimate(self, name: str, public: bool = False) -> Estimate | None:
        """Return the estimate of a measure's mean; None without `checked`. public: use only public queries."""
        if self.checked is None:
            return None
        found = self.estimates.get(name)
        if public:
            ids = [one for one, inside in zip(self.query_ids, self.in_public, strict=True) if inside]
            found = self.checked.within(ids).estimate(name)
        return found or self.checked.without_estimate()


def averaged_scores(several: Sequence[Scores], split: Split, detailed: Collection[str] | None = None) -> Scores:
    """Average several Scores of the same queries: each value, mean, loss and ceiling.

    Only a measure that is a mean over the same queries in all Scores gets values and an interval. A measure that is
    unknown in any of the Scores is left out.
    """
    first = several[0]

    def mean(of: Callable[[Scores], Mapping[str, float]]) -> dict[str, float]:
        return {name: float(np.mean([of(one)[name] for one in several])) for name in of(first)}

    def summed(of: Callable[[Scores], Mapping[str, Summary]]) -> dict[str, Summary]:
        means = mean(lambda one: {name: summary.known for name, summary in of(one).items()})
        known = [name for name, value in means.items() if value == value]
        return {name: replace(of(first)[name], mean=means[name], low=math.nan, high=math.nan) for name in known}

    stacked = {name: np.stack([one.values[name] for one in several]) for name in first.values}
    values = {name: rows.mean(axis=0) for name, rows in stacked.items() if (np.isnan(rows) == np.isnan(rows[0])).all()}
    wanted = set(first.summary) if detailed is None else set(detailed)
    wanted = set() if first.checked else wanted
    parts = [one.checked for one in several if one.checked]
    return replace(
        first,
        values=values,
        summary=_with_intervals(summed(lambda one: one.summary), values, split.seed, wanted),
        public=_public(summed(lambda one: one.public), values, first.in_public, split, wanted),
        private=summed(lambda one: one.private),
        loss=None,
        unanswerable=None,  # unanswerable queries are in no fold
        checked=checked_values.averaged_checked(parts) if parts else None,
        losses=mean(lambda one: one.losses),
        ceilings=mean(lambda one: one.ceilings),
    )


def score_lists(
    lists: ShownLists,
    qrels: Qrels,
    metrics: Sequence[str],
    *,
    split: Split = Split(),  # noqa: B008 (frozen)
    multi_turn: Mapping[str, bool] | None = None,
    missing: Literal["skip", "zero"] = "skip",
    detailed: Collection[str] | None = None,
) -> Scores:
    """Score lists on the labelled queries.

    A measure of rankings reads `lists.deep` if its k is above top_k, if it has no k, or if it reads condensed lists.
    All other measures read `lists.final`. Raise BadInput if a measure is unknown, if the labels do not suffice for a
    measure, or if no predicted query is labelled.

    multi_turn: query_id -> whether the query is a conversation of several user turns; None: no query is.
    missing: "skip" leaves out labelled queries without a row, "zero" scores them as wrong.
    detailed: measures that also get public and private means, and an interval or an estimate (slow); None: all.
    """
    check_labels(metrics, qrels)
    measures = list({measure.name: measure for measure in map(parse_measure, metrics)}.values())
    wanted = {measure.name for measure in (measures if detailed is None else map(parse_measure, detailed))}
    absent = _missing(lists.final, qrels)
    labelled = [query_id for query_id in lists.final.query_ids if query_id in qrels.grades]
    scored = (*labelled, *(absent if missing == "zero" else ()))
    found = _judgement(lists, qrels, scored, measures)
    shown, values = found.shown, found.values
    unknown = lists.beyond(measures) | _unplaced(measures, found.unplaced)
    values |= {name: np.full(len(scored), np.nan) for name in unknown}
    conversations = frozenset(query_id for query_id, many in (multi_turn or {}).items() if many)
    in_public = public_part(qrels, scored=scored, multi_turn=conversations, part=split)
    summary = _summaries(measures, shown, values, np.ones(len(scored), bool))
    summary |= {name: Summary(math.nan, 0, note=reason) for name, reason in unknown.items()}
    parted = [measure for measure in measures if measure.name in wanted]
    # With a model's labels there are no intervals, since an interval could not reflect the errors of these labels.
    honest = wanted - set(unknown) if qrels.checked is None else set()
    reads = {measure: lists.read_by(measure) for measure in parted if measure.name not in unknown}
    repeated = _duplicates(lists.final)
    return Scores(
        query_ids=scored,
        values=values,
        needs=shown.needs,
        multi_turn=np.array([query_id in conversations for query_id in scored], bool),
        in_public=in_public,
        summary=_with_intervals(summary, values, split.seed, honest),
        public=_public(_summaries(parted, shown, values, in_public), values, in_public, split, honest),
        private=_summaries(parted, shown, values, ~in_public),
        counts=_counts(lists.final, qrels, shown, missing=len(absent), duplicates=len(repeated)),
        missing=absent,
        duplicates=repeated,
        unanswerable=_unanswerable(lists.final, qrels, split.seed if detailed is None else None),
        checked=None if qrels.checked is None else checked_values.checked_values(reads, qrels.checked, scored),
        **_losses(lists, found),
    )


@dataclass(frozen=True, eq=False)
class _Judgement:
    """What scores are made of, for n scored queries.

    shown: the final lists, as `Judged.unlisted`. first: float64 [n], the rank of the first hit before the gate.
    values, losses, ceilings: name -> float64 [n]. unplaced: see `Shown`.
    """

    shown: Judged
    first: np.ndarray
    values: dict[str, np.ndarray]
    losses: dict[str, np.ndarray]
    ceilings: dict[str, np.ndarray]
    unplaced: tuple[str, ...]

    @classmethod
    def joined(
        cls, parts: Sequence[_Judgement], shown: Judged, join: Callable[[Sequence[np.ndarray]], np.ndarray]
    ) -> _Judgement:
        def together(name: str) -> dict[str, np.ndarray]:
            several = [getattr(part, name) for part in parts]
            return {key: join([one[key] for one in several]) for key in several[0]}

        unplaced = tuple(dict.fromkeys(doc_id for part in parts for doc_id in part.unplaced))
        numbers = together("values"), together("losses"), together("ceilings")
        return cls(shown, join([part.first for part in parts]), *numbers, unplaced)


def _judgement(lists: ShownLists, qrels: Qrels, scored: tuple[str, ...], measures: Sequence[Measure]) -> _Judgement:
    """Judge some of the queries at a time, so that temporary arrays do not grow with queries × documents."""
    rows = rows_of(lists.final, scored)
    keep = None if lists.keep is None else (rows >= 0) & lists.keep[rows]
    widest = max(one.docs.shape[1] for one in (lists.final, lists.deep, lists.candidates) if one is not None)
    parts = [*row_blocks((len(scored), widest), JUDGED)] or [slice(0)]
    if lists.lengths is not None and len(parts) == 1:
        return _judged_heads(lists, qrels, scored, rows, measures)

    def judgement(part: slice) -> _Judgement:
        judge = partial(judge_rows, rows=rows[part], qrels=qrels, query_ids=scored[part])
        return _judged_part(lists, judge, None if keep is None else keep[part], measures)

    found = [*map(judgement, parts)]
    return _Judgement.joined(found, Judged.joined([part.shown for part in found]), np.concatenate)


def _judged_heads(
    lists: ShownLists, qrels: Qrels, scored: tuple[str, ...], rows: np.ndarray, measures: Sequence[Measure]
) -> _Judgement:
    """Judge all candidates at every length that occurs, unless that is known, and take each query's own length."""
    candidates, judge = lists.candidates, partial(judge_rows, rows=rows, qrels=qrels, query_ids=scored)
    assert isinstance(candidates, Ranking)
    assert lists.lengths is not None
    about = {"rankings": tuple(lists.rankings), "measures": tuple(one.name for one in measures), "top_k": lists.top_k}
    known = _known_lengths(candidates, qrels, *lists.rankings.values(), query_ids=scored, **about)
    occurring, which = np.unique(lists.lengths[rows], return_inverse=True)
    for length in (one for one in occurring.tolist() if one not in known):
        same = np.full(len(candidates.query_ids), length)
        alike = replace(lists, final=candidates.cut(same), deep=candidates.where(same > 0), signal=None)
        known[length] = _judged_part(alike, judge, same[rows] > 0, measures)
    parts = [known[length] for length in occurring.tolist()]

    def join(several: Sequence[np.ndarray]) -> np.ndarray:
        others = enumerate(several[1:], start=1)
        return reduce(lambda found, other: np.where(which == other[0], other[1], found), others, several[0])

    shown = judge(lists.final, signal=lists.signal)
    found = _Judgement.joined(parts, shown.unlisted, join)
    return replace(found, unplaced=tuple(shown.shown.unplaced if shown.shown else ()))


@remembered
def _known_lengths(candidates: Ranking, qrels: Qrels, *rankings: Ranking, **about: Any) -> dict[int, _Judgement]:
    return {}


def _judged_part(
    lists: ShownLists, judge: Callable[..., Judged], keep: np.ndarray | None, measures: Sequence[Measure]
) -> _Judgement:
    shown = judge(lists.final, signal=lists.signal)
    before = None if lists.candidates is None else judge(lists.candidates)
    deep = before if before and lists.deep is lists.candidates else judge(lists.deep) if lists.deep else shown
    heads = {name: judge(ranking.top(SHOWN)) for name, ranking in lists.rankings.items()}
    top_k = SHOWN if lists.top_k is None else lists.top_k
    judged = {measure: shown if lists.read_by(measure) is lists.final else deep for measure in measures}
    return _Judgement(
        shown.unlisted,
        (shown if before is None else before).first,
        {one.name: one.values(judged[one]) for one in measures if one.family is not MeasureFamily.POOLED},
        losses(shown, before, keep),
        ceilings(shown, before, keep, heads, top_k),
        tuple(shown.shown.unplaced if shown.shown else ()),
    )


def _unanswerable(final: Lists, qrels: Qrels, seed: int | None) -> Summary | None:
    length_of = dict(zip(final.query_ids, (final.docs >= 0).sum(axis=1).tolist(), strict=True))
    empty = np.array([length_of[one] == 0 for one in qrels.unanswerable if one in length_of], np.float64)
    if not len(empty):
        return None
    found = Summary(float(empty.mean()), len(empty))
    if seed is None:
        return found
    (low,), (high,), (note,) = bootstrap_means(empty[None], seed, resamples=RESAMPLES)
    return replace(found, low=float(low), high=float(high), note=note)


def _unplaced(measures: Sequence[Measure], unplaced: Sequence[str]) -> dict[str, str]:
    if not unplaced:
        return {}
    why = f"the dataset does not have {counted(len(unplaced), 'listed document')}, such as {unplaced[0]:.60}"
    return {one.name: why for one in measures if of_spans(one.name)}


def _counts(final: Lists, qrels: Qrels, shown: Judged, *, missing: int, duplicates: int) -> dict[str, int]:
    apart = {*qrels.grades, *qrels.unanswerable}
    found = {
        "predicted": len(final.query_ids),
        "labelled": len(qrels.grades),
        "scored": len(shown.needs),
        "needs_no_retrieval": int((~shown.needs).sum()),
        "unlabelled": sum(query_id not in apart for query_id in final.query_ids),
        "missing": missing,
        "duplicates": duplicates,
    }
    return found | ({"unanswerable": len(qrels.unanswerable)} if qrels.unanswerable else {})


def _losses(lists: ShownLists, found: _Judgement) -> dict[str, Any]:
    """Return the fields of `Scores` that are about losses."""
    lost, reachable = (
        {name: float(values.mean()) for name, values in parts.items()} for parts in (found.losses, found.ceilings)
    )
    if lists.are_cut:
        lost = merged(lost)
        del reachable["oracle_rerank"]  # unknown, since a reranker would read longer lists
    rank = np.where(np.isfinite(found.first), found.first, 0.0)
    return {
        "first_hit": np.where(found.shown.needs, rank, np.nan),
        "losses": lost,
        "ceilings": reachable,
        "loss": kinds(found.losses, cut=lists.are_cut),
    }


def _missing(final: Lists, qrels: Qrels) -> list[str]:
    predicted = set(final.query_ids)
    if not any(query_id in predicted for query_id in qrels.grades):
        ours, theirs = (f"{next(iter(ids), None)!r:.60}" for ids in (final.query_ids, qrels.grades))
        raise BadInput(
            f"No predicted query is labelled: the predictions have {len(final.query_ids)} queries (first: {ours}), "
            f"the labels {len(qrels.grades)} (first: {theirs}). Check that both files belong to the same dataset."
        )
    return [query_id for query_id in qrels.grades if query_id not in predicted]


def _duplicates(final: Lists) -> dict[str, list[str]]:
    if isinstance(final, Ranking):  # has each document once
        return {}
    ordered = np.sort(final.docs, axis=1)
    repeats = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    found = {}
    for row in np.flatnonzero(repeats.any(axis=1)):
        documents = np.unique(ordered[row, 1:][repeats[row]])
        found[final.query_ids[row]] = sorted(final.doc_ids[document] for document in documents)
    return found


def _summaries(
    measures: Sequence[Measure], shown: Judged, values: Mapping[str, np.ndarray], rows: np.ndarray
) -> dict[str, Summary]:
    found = {}
    for measure in measures:
        if measure.family is MeasureFamily.POOLED:
            value, n = measure.pooled(shown.take(rows))
        else:
            counted = values[measure.name][rows]
            counted = counted[~np.isnan(counted)]
            n = len(counted)
            # A ratio with denominator 0 is 0 by definition; a mean over no queries is unknown.
            value = float(counted.mean()) if n else 0.0 if measure.family is MeasureFamily.ABSTENTION else math.nan
        found[measure.name] = Summary(value, n, note="" if n else _reason(measure, shown))
    return found


def _reason(measure: Measure, judged: Judged) -> str:
    if measure.family is MeasureFamily.SHOWN:
        return "no documents are shown for any query that needs retrieval"
    if measure.name == "abstention_auroc":
        return "no gate signal" if judged.signal is None else "all queries are of one kind"
    return NO_QUERY.get(measure.name, "no query needs retrieval")


def _with_intervals(
    summary: Mapping[str, Summary], values: Mapping[str, np.ndarray], seed: int, wanted: Collection[str]
) -> dict[str, Summary]:
    found = dict(summary)
    for name, one in summary.items():
        if name in wanted and name not in values:
            found[name] = replace(one, note=one.note or "no interval: not a mean of queries")
    rows = np.array([name in wanted and name in summary for name in values], bool)
    if rows.any():
        stacked = np.stack(list(values.values()))
        low, high, notes = bootstrap_means(stacked, seed, resamples=RESAMPLES, wanted=rows)
        for row, name in enumerate(values):
            if rows[row]:
                one = summary[name]
                found[name] = replace(one, low=float(low[row]), high=float(high[row]), note=one.note or notes[row])
    return found


def _public(
    summary: Mapping[str, Summary],
    values: Mapping[str, np.ndarray],
    rows: np.ndarray,
    split: Split,
    wanted: Collection[str],
) -> dict[str, Summary]:
    if split.select_on != "public":
        return dict(summary)
    inside = {name: of[rows] for name, of in values.items()}
    return _with_intervals(summary, inside, split.seed, set(summary) & set(wanted))
