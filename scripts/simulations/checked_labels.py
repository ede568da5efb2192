"""Simulate how often intervals from labels that people have checked in part cover the truth.

Test sets of 300 queries come from a large population whose mean by people's labels is known. A lenient model labels all
of them, and likes the documents that run A likes; people check some. In the first population every query needs
retrieval; in the second some need none, the drafts are wrong about that for one query in 20, and a gate leaves lists
empty. Run B is another retriever. Three 95 % intervals are compared by coverage and mean width: from the model's labels
alone, from the checked queries alone (Student's), and the estimate of `prediction_powered`. Draws with too few checked
queries for an interval are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from measuring import Table

from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.prediction_powered import CheckedSample, Estimate, difference, estimate
from harness.testset.audit.auditing import apportion

POPULATION, QUERIES, DOCUMENTS = 100_000, 300, 20
CHECKED = (20, 30, 40, 60)
Found = tuple[float, float]  # the coverage of intervals, and their mean width


@dataclass(frozen=True, eq=False)
class Population:
    """scores: measure -> float64 [by people and by the model, 2 runs, queries], NaN where it does not apply.

    strata: int [queries], kind and tercile of difficulty.
    """

    scores: dict[str, np.ndarray]
    strata: np.ndarray


def population(none: float = 0.0, wrong: float = 0.0, seed: int = 0, size: int = POPULATION) -> Population:
    """Return queries with the scores of two runs, by people's and by a lenient model's labels.

    none: share of queries that need no retrieval. wrong: share of queries whose draft is wrong about that.
    """
    generator = np.random.default_rng(seed)
    easiness = generator.normal(0, 0.5, (size, 1))
    latent, taste, likes = generator.normal(0, 1, (3, size, DOCUMENTS))
    judged = latent + 0.28 + generator.normal(0, 0.05, (size, 1)) + 0.1 * taste + 0.12 * likes
    needed = generator.random(size) >= none
    drafted = needed ^ (generator.random(size) < wrong)
    lists, shown = [], []
    for skill, liked in ((1.0, 0.4), (0.8, 0.0)):
        scores = (skill + easiness) * latent + liked * likes + generator.normal(0, 0.9, latent.shape)
        lists.append(np.argsort(-scores, axis=1)[:, :10])
        shown.append(np.where(needed, 1.5, 0) + generator.normal(0, 1, size) > 0.2)
    both = ((_grades(latent), needed), (_grades(judged), drafted))
    found = {"ndcg@10": np.array([[_ndcg(*by, one) for one in lists] for by in both])}
    if none:
        found["modified_map@3"] = np.array(
            [[_modified_map(*by, *one) for one in zip(lists, shown, strict=True)] for by in both]
        )
    hard = np.nan_to_num(found["ndcg@10"][1, 0])
    tercile = np.searchsorted(np.quantile(hard[drafted], (1 / 3, 2 / 3)), hard)
    return Population(found, np.where(drafted, tercile, 3))


def _grades(latent: np.ndarray) -> np.ndarray:
    return np.where(latent > 2.0, 3.0, np.where(latent > 1.2, 2.0, 0.0))


def _ndcg(grades: np.ndarray, needs: np.ndarray, lists: np.ndarray) -> np.ndarray:
    discount = 1 / np.log2(np.arange(2, lists.shape[1] + 2))
    gains = np.take_along_axis(grades, lists, axis=1) @ discount
    ideal = -np.sort(-grades, axis=1)[:, : lists.shape[1]] @ discount
    return np.where(needs, np.divide(gains, ideal, out=np.zeros(len(gains)), where=ideal > 0), np.nan)


def _modified_map(grades: np.ndarray, needs: np.ndarray, lists: np.ndarray, shown: np.ndarray) -> np.ndarray:
    hits = np.take_along_axis(grades, lists[:, :3], axis=1) > 0
    found = hits.cumsum(axis=1)
    precision = np.where(hits, found / np.arange(1, 4), 0).sum(axis=1) / np.maximum(found[:, -1], 1)
    return np.where(needs, shown * precision, ~shown)


def drawn(generator: np.random.Generator, strata: np.ndarray, count: int) -> np.ndarray:
    """Draw `count` queries, bool [Q], from each stratum in proportion to its size, at least two from each."""
    checked = np.zeros(len(strata), bool)
    names, sizes = np.unique(strata, return_counts=True)
    wanted = apportion(sizes, np.minimum(2, sizes), sizes, count)
    for name, some in zip(names, wanted, strict=True):
        checked[generator.choice(np.flatnonzero(strata == name), some, replace=False)] = True
    return checked


def simulate(whole: Population, count: int, draws: int, stratified: bool, seed: int = 1) -> dict[str, dict[str, Found]]:
    """Return measure -> way to an interval -> its coverage and mean width. count: number of checked queries."""
    ends: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for number, parts in enumerate(drawn_sets(whole, count, draws, stratified, seed)):
        for what, (sample, found, truth) in parts.items():
            for way, low, high in ways(sample, found, number):
                ends.setdefault(what, {}).setdefault(way, []).append((low, high, truth))
    return {what: {way: _found(rows) for way, rows in of.items()} for what, of in ends.items()}


def drawn_sets(
    whole: Population, count: int, draws: int, stratified: bool, seed: int = 1
) -> Iterator[dict[str, tuple[CheckedSample, Estimate, float]]]:
    """Yield measure -> values of run A, or differences of A and B, their estimate, and the true mean."""
    truths = {name: np.nanmean(values[0], axis=1) for name, values in whole.scores.items()}
    generator = np.random.default_rng(seed)
    for _ in range(draws):
        rows = generator.choice(len(whole.strata), QUERIES, replace=False)
        strata = whole.strata[rows] if stratified else np.zeros(QUERIES, int)
        checked = drawn(generator, strata, count)
        parts = {}
        for name, truth in truths.items():
            by_people, by_model = whole.scores[name][:, :, rows]
            by_people = np.where(checked, by_people, np.nan)
            samples = [CheckedSample(*of, checked, strata) for of in zip(by_people, by_model, strict=True)]
            people, model = (-np.diff(one, axis=0)[0] for one in (by_people, by_model))
            between = CheckedSample(people, model, checked, strata), difference(*samples), truth[0] - truth[1]
            parts |= {name: (samples[0], estimate(samples[0]), truth[0]), f"{name}, A − B": between}
        yield parts


def ways(sample: CheckedSample, found: Estimate, seed: int) -> Iterator[tuple[str, float, float]]:
    low, high, _ = bootstrap_means(sample.model[None], seed, resamples=500)
    yield "the model's labels alone", low[0], high[0]
    nothing = replace(sample, model=np.where(np.isnan(sample.model), np.nan, 0.0))  # labels that say nothing
    alone = estimate(nothing, least=-2, most=2)
    yield "checked queries alone", alone.low, alone.high
    yield "estimate", found.low, found.high


def _found(rows: list[tuple[float, float, float]]) -> Found:
    low, high, truth = np.array(rows).T
    known = ~np.isnan(low)
    if known.mean() < 0.9:
        return math.nan, math.nan
    low, high, truth = low[known], high[known], truth[known]
    return float(((low <= truth) & (truth <= high)).mean()), float((high - low).mean())


def checked_labels(draws: int = 3000) -> None:
    """Count how often intervals from labels that people checked in part cover the truth; about two minutes."""
    names = ("the model's labels alone", "checked queries alone", "estimate")
    for whole, title in (
        (population(), "All queries need retrieval"),
        (population(none=0.15, wrong=0.05), "15 % of the queries need none; the drafts are wrong about 5 %"),
    ):
        print(f"\n{title}")
        for name, scores in whole.scores.items():
            people, model = scores[:, 0]
            both = ~np.isnan(people) & ~np.isnan(model)
            shared = np.corrcoef(people[both], model[both])[0, 1]
            means = f"{np.nanmean(people):.3f} by people, {np.nanmean(model):.3f} by the model"
            print(f"{name} of A: {means}, correlation of queries {shared:.2f}")
        for stratified in (False, True):
            how = "drawn by stratum" if stratified else "drawn at random"
            about = f"{draws} draws of {QUERIES} queries, those to check {how}"
            print(f"\n{about}: coverage of the 95 % interval, mean width")
            table = Table("measure", "checked", *names, "its width / alone")
            for count in CHECKED:
                for what, found in simulate(whole, count, draws, stratified).items():
                    if not math.isnan(found["estimate"][0]):
                        cells = [f"{100 * coverage:.1f} %, {width:.3f}" for coverage, width in found.values()]
                        ratio = found["estimate"][1] / found["checked queries alone"][1]
                        table.row(what, count, *cells, f"{ratio:.2f}")
