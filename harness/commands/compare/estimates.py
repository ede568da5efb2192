"""Differences of runs whose labels come partly from a model, estimated from the queries that people have checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.commands.compare.comparison import ALPHA, Pair
from harness.config.text import counted
from harness.evaluation.checked_values import CheckedValues
from harness.evaluation.prediction_powered import NO_ESTIMATE, NO_INTERVAL, EstimatedDifference
from harness.evaluation.significance import Difference, holm
from harness.reports.markup import raw_share

Estimated = Mapping[tuple[int, int], Sequence[EstimatedDifference]]


def estimated_differences(
    runs: Sequence[CheckedValues], pairs: Sequence[tuple[int, int]], names: Sequence[str]
) -> Estimated:
    """(first, second) -> the estimate for each measure. runs: on the same queries in the same order."""
    found = {(first, second): [runs[first].difference(runs[second], name) for name in names] for first, second in pairs}
    # A pair without an interval could be no difference, as far as anybody knows.
    p = np.array([[one.p if one.p == one.p else 1.0 for one in row] for row in found.values()])
    corrected = np.array([holm(column) for column in p.T]).T
    return {
        pair: [
            EstimatedDifference(one, float(q) if one.p == one.p else math.nan) for one, q in zip(row, of, strict=True)
        ]
        for (pair, row), of in zip(found.items(), corrected, strict=True)
    }


def without_intervals(found: Mapping[tuple[int, int], Sequence[Difference]]) -> dict[tuple[int, int], list[Difference]]:
    """Raw differences without their intervals, which know nothing of what the model gets wrong."""
    return {pair: [replace(one, low=math.nan, high=math.nan, note="") for one in row] for pair, row in found.items()}


def estimated_verdict(pair: Pair, one: EstimatedDifference, metric: str, raw: float, pairs: int) -> str:
    """One sentence: which run of a pair is better by the metric, or that the checked queries cannot tell.

    raw: the mean difference by labels of both origins. pairs: how many pairs p is corrected for.
    """
    a, b, found = pair.first, pair.second, one.found
    beside = f"the raw difference, {raw_share(found)}, is {raw:+.3f}"
    if math.isnan(found.low):
        known = "" if math.isnan(found.value) else f"the estimate of {metric} of {a} − {b} is {found.value:+.3f}; "
        reason = found.note.removeprefix(NO_ESTIMATE).removeprefix(NO_INTERVAL)
        return f"{a} and {b} cannot be told apart: {reason}; {known}{beside}."
    p = f"p {'< 0.001' if one.p_holm < 0.001 else f'= {one.p_holm:.2g}'}"
    p += f" after Holm over {pairs} pairs" if pairs > 1 else ""
    checked = f"{counted(found.checked, 'checked query')} of {found.checked + found.others:,}"
    if one.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told from {checked}: the estimate of {metric} of {a} − {b} is "
            f"{found.value:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}; {beside}."
        )
    low, high = found.low, found.high
    if found.value < 0:
        a, b, low, high = b, a, -found.high, -found.low
    return (
        f"{a} is better than {b} by {abs(found.value):.3f} (95 % {low:.3f} to {high:.3f}) in {metric}, estimated from "
        f"{checked}, {p}; {beside}."
    )


def checked_note(share: float) -> str:
    """What to know of a comparison by labels that come partly from a model. share: of the queries."""
    return (
        f"The labels of {100 * share:.0f} % of the queries are a model's: the verdict goes by estimates of what "
        "people's labels would give (PPI++). Numbers called raw, and those by query or kind of query, rest on labels "
        "of both origins: neither their p nor their size knows what the model gets wrong."
    )
