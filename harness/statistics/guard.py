"""Whether a new run is no worse than a baseline: it holds, it has regressed, or the queries cannot tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from harness.statistics.power import MOST, FlipTest, Population
from harness.statistics.significance import ALPHA, FEW, RESAMPLES, SEED, Difference, holm, paired_differences

Outcome = Literal["holds", "regressed", "cannot tell"]
TAIL = 0.025  # chance that the true change lies below the lower end of a 95 % interval
POWER = 0.8  # wanted probability of finding a drop


@dataclass(frozen=True)
class MeasureChange:
    """The change of one measure from a baseline to a new run, and what it says.

    before, after: the means over the queries to which the measure applies in both; NaN without such queries.
    difference: new − baseline. floor: a true change below it is ruled out at 97.5 %; NaN without queries.
    shows: the smallest drop, > 0, that these queries find with a probability of POWER; None if unknown.
    needed: the number of queries that find a drop of the margin with this probability; None if more than MOST.
    """

    measure: str
    before: float
    after: float
    difference: Difference
    outcome: Outcome
    floor: float
    shows: float | None = None
    needed: int | None = None


def judged_changes(
    measures: Sequence[str], before: np.ndarray, after: np.ndarray, margin: float, same: bool = False
) -> list[MeasureChange]:
    """Compare a new run with a baseline on the same N queries, in M measures.

    A measure *holds* if a drop of `margin` or more is ruled out: the lower end of the 95 % interval of new − baseline
    lies above −margin. It has *regressed* if it does not hold, and the paired randomisation test finds the new run
    worse (p <= 0.05 after Holm's correction over the measures). Otherwise, the queries *cannot tell*.

    A bootstrap interval is too narrow if fewer than FEW queries differ. `least_mean` then gives the lower end.

    before, after: float64 [M, N], values from 0 to 1; NaN where a measure does not apply. margin: > 0.
    same: whether both runs returned the same documents for every query. Then every measure holds.
    """
    gaps = after - before
    found = [_no_difference(row) for row in gaps] if same else paired_differences(gaps, SEED, RESAMPLES)
    corrected = holm(np.array([one.p for one in found])).tolist()
    judged, outcome, floor = [], worst(()), 0.0  # "holds"
    for place, (name, one, p) in enumerate(zip(measures, found, corrected, strict=True)):
        known, one = gaps[place][~np.isnan(gaps[place])], replace(one, p_holm=p)
        if not same:
            outcome, floor = decided(known, one, margin)
        shows, needed = (None, None) if same else _power(known, margin)
        ends = [
            float(values[place][~np.isnan(gaps[place])].mean()) if len(known) else math.nan
            for values in (before, after)
        ]
        judged.append(MeasureChange(name, ends[0], ends[1], one, outcome, floor, shows, needed))
    return judged


def decided(gaps: np.ndarray, found: Difference, margin: float) -> tuple[Outcome, float]:
    """Return (the outcome, the lower end that decides), see `changes`. gaps: float64 [n], without NaN."""
    floor = _floor(gaps, found)
    if floor > -margin:
        return "holds", floor
    return ("regressed" if found.mean < 0 and found.p_holm <= ALPHA else "cannot tell"), floor


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return "regressed" if it is among the outcomes; otherwise "cannot tell" if that is; otherwise "holds"."""
    order: tuple[Outcome, ...] = ("regressed", "cannot tell")
    return next((one for one in order if one in outcomes), "holds")


def least_mean(values: np.ndarray, least: float, seed: int = SEED, resamples: int = RESAMPLES) -> float:
    """Return a lower bound of a mean, at 97.5 %, from n values that cannot lie below `least`.

    The bound is the TAIL quantile of means with random weights, drawn evenly from all weights that sum to 1, over the n
    values and one more value, `least`. It is valid for any n and any distribution as far as is known (Gaffke 2005;
    Learned-Miller and Thomas 2019 give numerical evidence). If all n values are 0, it is least · (1 − 0.025^(1/n)):
    about 3.7 / n of further values may still be `least`.

    values: float64 [n]. Draws are made only for values other than 0, so there should be few of them.
    """
    some = values[values != 0]
    generator = np.random.default_rng(seed)
    weights = generator.standard_exponential((resamples, len(some) + 1))  # independent ones, divided by their sum
    zeros = generator.standard_gamma(len(values) - len(some), resamples) if len(values) > len(some) else 0.0
    means = (weights @ np.append(some, least)) / (weights.sum(axis=1) + zeros)
    return float(np.quantile(means, TAIL))


def _no_difference(gaps: np.ndarray) -> Difference:
    n = int((~np.isnan(gaps)).sum())
    return Difference(n=n, mean=0.0, low=0.0, high=0.0, wins=0, ties=n, losses=0, p=1.0, exact=True, note="")


def _floor(gaps: np.ndarray, found: Difference) -> float:
    if not len(gaps):
        return math.nan
    if found.wins + found.losses >= FEW and not math.isnan(found.low):
        return found.low
    bound = least_mean(gaps, -1.0)
    return bound if math.isnan(found.low) else min(bound, found.low)


def _power(gaps: np.ndarray, margin: float) -> tuple[float | None, int | None]:
    """Return (the smallest drop that these queries find, how many find a drop of the margin), each None if unknown."""
    drops = -gaps if len(gaps) and gaps.mean() <= 0 else gaps  # as if the new run were the worse one
    population, test = Population.of(drops) if len(gaps) else None, FlipTest(ALPHA)
    if population is None or not population.differ or margin >= population.ends[1]:
        return None, least_queries(margin)
    shows = test.smallest_difference(population, len(gaps), POWER) if population.mean >= 0 else None
    needed = test.queries_needed(population.with_mean(margin), POWER)
    return shows, needed if needed is None or needed > MOST else max(needed, least_queries(margin))


def least_queries(margin: float) -> int:
    """Return how many queries without any change rule out a drop of the margin, see `least_mean`."""
    return math.ceil(math.log(TAIL) / math.log1p(-margin))
