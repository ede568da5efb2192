"""What is said of a pair of runs, in one sentence."""

from __future__ import annotations

from harness.commands.compare.comparison import ALPHA, Pair
from harness.evaluation.significance import Difference


def verdict(pair: Pair, found: Difference, metric: str, pairs: int, unit: str) -> str:
    """One sentence: which run of a pair is better by the metric, or that the data cannot tell.

    pairs: how many pairs p is corrected for. unit: what is scored, in the plural.
    """
    a, b = pair.first, pair.second
    if found.n < 2:
        return f"{a} and {b} cannot be told apart: {metric} applies to {found.n:,} of the {unit}."
    if found.wins + found.losses == 0:
        return f"{a} and {b} have the same {metric} on each of {found.n:,} {unit}."
    p = f"p {'< 0.001' if found.p_holm < 0.001 else f'= {found.p_holm:.2g}'}"
    p += f" after Holm over {pairs} pairs" if pairs > 1 else ""
    if found.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told on {found.n:,} {unit}: {metric} of {a} − {b} is "
            f"{found.mean:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}."
        )
    if found.mean < 0:
        a, b, low, high = b, a, -found.high, -found.low
    else:
        low, high = found.low, found.high
    return f"{a} is better than {b} by {abs(found.mean):.3f} (95 % {low:.3f} to {high:.3f}) in {metric}, {p}."
