"""Scores by slice: the mean of a measure over the queries that share a value of an attribute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.data.attributes import Slice
from harness.measures.scores import RESAMPLES, Scores
from harness.statistics.bootstrap import bootstrap_means


@dataclass(frozen=True)
class SliceScore:
    """The score of a run in a slice.

    n: the number of queries of the slice to which the measure applies; all other numbers are about these.
    mean, low, high: the mean with its 95 % interval, NaN without one. If a model wrote some labels, this is the
        estimate of the mean by people's labels.
    note: why there is no value or no interval, or what limits the interval; or "".
    """

    attribute: str
    value: str
    n: int
    mean: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.attribute}={self.value}"


def slice_scores(
    scores: Scores, measure: str, slices: Sequence[Slice], counted: np.ndarray, seed: int
) -> tuple[SliceScore, ...]:
    """Return the score in each slice. Leave out slices without a query to which the measure applies.

    slices: of `scores.query_ids`. counted: bool [Q], the queries that count, such as the public ones.
    """
    values = scores.values[measure]
    rows = [(one, one.inside & counted & ~np.isnan(values)) for one in slices]
    rows = [(one, inside) for one, inside in rows if inside.any()]
    if not rows:
        return ()
    if checked := scores.checked:
        estimated = []
        for one, inside in rows:
            part = checked.within([query_id for query_id, is_in in zip(scores.query_ids, inside, strict=True) if is_in])
            found = part.estimate(measure) or part.without_estimate()
            about = found.value, found.low, found.high, found.note
            estimated.append(SliceScore(one.attribute, one.value, int(inside.sum()), *about))
        return tuple(estimated)
    parts = np.array([np.where(inside, values, np.nan) for _, inside in rows])
    ends = zip(*bootstrap_means(parts, seed, resamples=RESAMPLES), strict=True)
    means = [float(values[inside].mean()) for _, inside in rows]
    return tuple(
        SliceScore(one.attribute, one.value, int(inside.sum()), mean, float(low), float(high), note)
        for (one, inside), mean, (low, high, note) in zip(rows, means, ends, strict=True)
    )
