"""Differences of runs by slice: the queries that share a value of an attribute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.analysis.comparison.comparison import Pair, PairedResult, better_by, p_in_words
from harness.data.attributes import Attributes, Slice, attributes_of
from harness.recording.logged_run import load_queries, logged_value
from harness.statistics.prediction_powered import EstimatedDifference
from harness.statistics.significance import Difference, holm
from harness.tracking.tracker import LoggedRun


def logged_attributes(run: LoggedRun, config: Mapping[str, Any], names: Sequence[str]) -> Attributes:
    """Read the attributes of a run's queries again. Raise BadInput if the queries have changed or cannot be read.

    For the attribute `relevant`, the labels must be unchanged, too. config: of the run. names: the wanted attributes.
    """
    needed = [part for part in ("queries", *(["qrels"] if "relevant" in names else [])) if f"data.{part}" in run.tags]
    data = load_queries(run, logged_value(config, "dataset", dict), needed)
    return attributes_of(data.queries, data.qrels)


def slice_differences(
    slices: Sequence[Slice],
    measure: str,
    found: Mapping[Pair, Sequence[Difference]],
    estimated: Mapping[Pair, Sequence[EstimatedDifference]],
) -> list[PairedResult]:
    """Return the differences of each pair in each slice. Estimates, if any, are corrected by Holm over all of them.

    found, estimated: pair -> a difference for each slice; `estimated` is {} unless labels come partly from a model.
    """
    results = [
        PairedResult(pair, measure, of, guess, one)
        for pair, differences in found.items()
        for one, of, guess in zip(slices, differences, estimated.get(pair, [None] * len(slices)), strict=True)
    ]
    if not estimated:
        return results
    p = np.array([one.estimate.found.p if one.estimate else math.nan for one in results])
    corrected = np.where(np.isnan(p), np.nan, holm(np.where(np.isnan(p), 1.0, p))).tolist()
    return [
        replace(
            one,
            found=replace(one.found, low=math.nan, high=math.nan, note=""),  # its interval ignores the model's errors
            estimate=one.estimate and replace(one.estimate, p_holm=p_holm),
        )
        for one, p_holm in zip(results, corrected, strict=True)
    ]


def reversals(whole: Sequence[PairedResult], slices: Sequence[PairedResult]) -> Iterator[str]:
    """Yield a sentence for each slice in which a run is significantly worse, though it is better on average.

    whole: the differences over all queries, one for each pair.
    """
    for overall in whole:
        for one in slices:
            if one.slice and one.pair == overall.pair and one.better and one.value * overall.value < 0:
                a, b = (overall.pair.first, overall.pair.second)[:: 1 if overall.value > 0 else -1]
                value, low, high = better_by(one)
                yield (
                    f"Warning: {a} scores higher than {b} in {overall.measure} on all queries together, but "
                    f"significantly lower where {one.slice.name}: by {value:.3f} (95 % {low:.3f} to {high:.3f}), "
                    f"{p_in_words(one.p_holm)} after Holm over {len(slices)} tests."
                )
