"""Measures of sums: intervals checked against scipy and the bootstrap of means, p against scipy's permutation test."""

import re
import warnings
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measures.scores import RESAMPLES
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.significance import swap_test, tally_differences
from harness.tasks.scored_file import entering, measure_all, summaries, tallied

NAMES = ("right", "made", "items", "rare", "rare_items")


class Toy:
    """A mean over all items, a ratio of counts, a mean over the few items that it applies to, and an absent measure."""

    name = "toy"
    measures = ("mean", "ratio", "rare_mean", "absent")
    counts = ("right", "made")
    subset = MappingProxyType({"rare_mean": "rare_items"})
    version = 1

    def measure(self, sums):
        n = np.asarray(sums["items"], np.float64)
        return {
            "mean": _share(sums["right"], n),
            "ratio": np.where(np.asarray(sums["made"]) > 0, _share(sums["right"], np.asarray(sums["made"])), 0.0),
            "rare_mean": _share(sums["rare"], np.asarray(sums["rare_items"], np.float64)),
            "absent": np.full(n.shape, np.nan),
        }


def _share(part, whole):
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


TASK = Toy()


def item_counts(right, made=None, rare=None):
    """The counts of items: what each gets right, what it tries, and its value of the rare measure, None for none."""
    right = np.array(right, np.float64)
    rare = [0.0] * len(right) if rare is None else rare
    return {
        "right": right,
        "made": np.ones(len(right)) if made is None else np.array(made, np.float64),
        "items": np.ones(len(right)),
        "rare": np.array([one or 0.0 for one in rare]),
        "rare_items": np.array([one is not None for one in rare], np.float64),
    }


def drawn(seed, n, better=0.0):
    """n items as a submission might have them: up to 6 edits made, some of them right."""
    generator = np.random.default_rng(seed)
    made = generator.integers(0, 7, n)
    return item_counts(generator.binomial(made, min(1.0, 0.5 + better)), made, generator.random(n).tolist())


def swapped(first, second, wanted, seed, resamples):
    return swap_test(tallied(TASK, first, wanted), tallied(TASK, second, wanted), seed, resamples)


def task_differences(submissions, wanted, seed, resamples):
    """(first, second) -> measure -> Difference."""
    found = tally_differences([tallied(TASK, one, wanted) for one in submissions], seed, resamples)
    return {pair: dict(zip(wanted, of, strict=True)) for pair, of in found.items()}


# ---- one submission


def test_the_interval_of_a_mean_is_that_of_the_bootstrap_of_means():
    values = np.random.default_rng(0).random(80) ** 3
    found = summaries(TASK, item_counts(values), ["mean"], 7)["mean"]
    low, high, notes = bootstrap_means(values[None], 7, resamples=RESAMPLES)
    assert (found.mean, found.n, found.note) == (pytest.approx(values.mean()), 80, notes[0])
    assert (found.low, found.high) == (pytest.approx(low[0], abs=1e-12), pytest.approx(high[0], abs=1e-12))


def test_the_interval_of_a_ratio_is_scipys_on_the_same_samples(monkeypatch):
    """Handing scipy our resampled ratios leaves nothing to chance; its leave-one-out values are its own."""
    from scipy import stats

    one = drawn(1, 70)
    resampled = []
    plain = Toy.measure

    def kept(self, sums):
        found = plain(self, sums)
        resampled.append(found["ratio"])
        return found

    monkeypatch.setattr(Toy, "measure", kept)
    found = summaries(TASK, one, ["ratio"], 3, resamples=999)["ratio"]

    def ratio(items, axis):
        return one["right"][items].sum(axis=axis) / one["made"][items].sum(axis=axis)

    items = (np.arange(70),)
    first = stats.bootstrap(items, ratio, n_resamples=2, method="percentile", rng=np.random.default_rng(0))
    [first.bootstrap_distribution] = [values for values in resampled if values.shape == (999,)]
    theirs = stats.bootstrap(items, ratio, n_resamples=0, bootstrap_result=first, method="BCa").confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(theirs), abs=1e-12)


def test_an_absent_measure_has_no_interval_and_does_not_affect_others():
    one = drawn(3, 40)
    found = summaries(TASK, one, ["absent", "ratio"], 0)
    assert np.isnan([found["absent"].mean, found["absent"].low, found["absent"].high]).all()
    assert found["ratio"] == summaries(TASK, one, ["ratio"], 0)["ratio"]
    assert list(summaries(TASK, one, ["absent"], 0)) == ["absent"]


RARE_MADE, RARE = [1, 1] + [0] * 10, [0.0, 1.0] + [None] * 18


@pytest.mark.parametrize(
    ("counts", "measure", "summary", "note"),
    [
        (item_counts([1], [2]), "ratio", (0.5, 1, np.nan, np.nan), "one item: no interval"),
        (item_counts([1] * 12, [2] * 12), "ratio", (0.5, 12, 0.5, 0.5), "all items have the same value"),
        (item_counts([0, 1, 2], [2, 2, 2]), "ratio", (0.5, 3, 0, 1), "percentile interval: fewer than 10 items"),
        # 2 of 12 items try anything, and both are right: leaving one out changes nothing, but (10 / 12)^12 = 11 % of
        # the samples draw neither, and then the ratio is 0.
        (item_counts(RARE_MADE, RARE_MADE), "ratio", (1, 12, 0, 1), "percentile interval: BCa is undefined"),
        # 2 of 20 items have the rare measure: samples without one are left out, (18 / 20)^20 = 12 %: 243 +- 58.
        (item_counts([1] * 20, rare=RARE), "rare_mean", (0.5, 2, 0, 1), ".*: undefined in (1[89]|2.). of 2000 samples"),
        (item_counts([1] * 20, rare=RARE), "mean", (1, 20, 1, 1), "all items have the same value"),
    ],
)  # fmt: skip
def test_intervals_of_few_items_have_notes(counts, measure, summary, note):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = summaries(TASK, counts, [measure], 0)[measure]
    np.testing.assert_equal((found.mean, found.n, found.low, found.high), summary)
    assert re.match(note, found.note)


def test_samples_without_any_are_left_out_of_the_percentiles():
    """5 of 40 items have the rare measure: against the percentiles of other samples, taken item by item."""
    values, generator = [0.1, 0.3, 0.35, 0.6, 0.9], np.random.default_rng(1)
    found = summaries(TASK, item_counts([1] * 40, rare=[*values, *[None] * 35]), ["rare_mean"], 0)["rare_mean"]
    samples = np.array([*values, *[np.nan] * 35])[generator.integers(0, 40, (4000, 40))]
    means = np.nanmean(samples[~np.isnan(samples).all(axis=1)], axis=1)
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.03)


def test_measures_of_a_part_are_those_of_its_items_alone():
    one = item_counts([1, 0, 2], [2, 3, 2], [None, 0.25, None])
    rows = np.array([True, False, True])
    assert measure_all(TASK, one, rows)["ratio"] == 3 / 4
    assert measure_all(TASK, one)["ratio"] == 3 / 7
    assert np.isnan(measure_all(TASK, one, rows)["rare_mean"])
    assert [entering(TASK, one, name, rows) for name in ("ratio", "rare_mean")] == [2, 0]
    assert [entering(TASK, one, name) for name in ("ratio", "rare_mean")] == [3, 1]


# ---- two submissions


def by_scipy(first, second, measure, resamples=np.inf):
    """The p of scipy's paired permutation test: the items of two submissions change places."""
    from scipy import stats

    n = len(first["items"])
    both = {name: np.concatenate([first[name], second[name]]) for name in NAMES}

    def gap(one, other, axis):
        found = [
            TASK.measure({name: both[name][items.astype(int)].sum(axis=axis) for name in NAMES})[measure]
            for items in (one, other)
        ]
        return np.abs(found[0] - found[1])

    items = (np.arange(n), np.arange(n, 2 * n))
    return stats.permutation_test(
        items, gap, permutation_type="samples", n_resamples=resamples, alternative="greater", vectorized=True
    ).pvalue


@pytest.mark.parametrize("seed", range(3))
def test_an_exact_p_is_scipys(seed):
    first, second = drawn(seed, 9), drawn(seed + 100, 9, 0.3)
    found, exact = swapped(first, second, ["mean", "ratio"], 0, 1000)
    assert exact
    assert found[0] == pytest.approx(by_scipy(first, second, "mean"), abs=1e-12)
    assert found[1] == pytest.approx(by_scipy(first, second, "ratio"), abs=1e-12)


@pytest.mark.parametrize("seed", [10, 12, 13])  # where the last bits are not the same
def test_differences_that_differ_by_rounding_are_equal(seed):
    """Everything swapped, two submissions lie as far apart as they did, but for the last bits of fractions."""
    first, second = (item_counts(np.random.default_rng(seed + shift).random(9)) for shift in (0, 100))
    p, _ = swapped(first, second, ["mean"], 0, 1000)
    assert p[0] == pytest.approx(by_scipy(first, second, "mean"), abs=1e-12)
    assert p[0] * 512 == pytest.approx(2 * round(p[0] * 256))


def test_an_exact_p_by_hand():
    # Right / made: 3/4 = 0.75 against 1/4 = 0.25, item by item 1/2, 2/2 against 1/2, 0/2. Only the second item differs:
    # swapped, it is 1/4 against 3/4, as far apart. p = 2/2.
    p, exact = swapped(item_counts([1, 2], [2, 2]), item_counts([1, 0], [2, 2]), ["ratio"], 0, 10)
    assert (p.tolist(), exact) == ([1.0], True)
    # Three items of 1/1 against 0/1: of 8 ways to swap, none and all are as far apart as 1; the others 1/3. p = 2/8.
    p, _ = swapped(item_counts([1, 1, 1]), item_counts([0, 0, 0]), ["ratio", "mean"], 0, 10)
    assert p.tolist() == [0.25, 0.25]
    # Ratios are no means: 2/4 and 0/0 against 0/0 and 1/1, that is 0.5 and 1. Ways: (.5, 1), (0/0, 3/5), (3/5, 0/0),
    # (1, .5): 0 for the empty one, so that the two in the middle lie 0.6 apart. p = 4/4.
    first, second = item_counts([2, 0], [4, 0]), item_counts([0, 1], [0, 1])
    assert swapped(first, second, ["ratio"], 0, 10)[0].tolist() == [1.0]


def few_changed():
    second = drawn(6, 40)
    return second | {"right": second["right"] + (np.arange(40) < 3)}


@pytest.mark.parametrize(
    ("first", "second", "measure", "expected", "note"),
    [
        (
            drawn(4, 30), drawn(4, 30), "ratio",
            {"mean": 0, "low": 0, "high": 0, "p": 1, "p_holm": 1, "exact": True, "wins": 0, "ties": 30, "losses": 0},
            "the submissions are the same",
        ),
        (
            item_counts([1], [2]), item_counts([0], [2]), "ratio",
            {"n": 1, "mean": 0.5, "low": np.nan, "high": np.nan, "wins": 1, "p": 1}, "one item: no interval",
        ),
        (  # 2/2, 0/1, 1/2, 0/0 against 1/2, 1/1, 1/2, 0/3: better, worse, equal, and equal with 0 both
            item_counts([2, 0, 1, 0], [2, 1, 2, 0]), item_counts([1, 1, 1, 0], [2, 1, 2, 3]), "ratio",
            {"mean": 3 / 5 - 3 / 8, "wins": 1, "ties": 2, "losses": 1}, "percentile interval: fewer than 10 items",
        ),
        (  # none and all of the three swapped, of 8 ways
            drawn(6, 40), few_changed(), "ratio",
            {"losses": 3, "exact": True, "p": 2 / 8}, "fewer than 20 items differ: trust p, not the interval",
        ),
        (  # differences of 1/4 and 1/2: 3/8 in the mean, and of the four ways to swap two are as far apart
            item_counts([1] * 20, rare=[0.5, 1.0, *RARE[2:]]), item_counts([1] * 20, rare=[0.25, 0.5, *RARE[2:]]),
            "rare_mean", {"mean": 0.375, "low": 0.25, "high": 0.5, "p": 0.5},
            r"percentile interval: undefined in \d+ of 1000 samples",
        ),
    ],
)  # fmt: skip
def test_differences_by_hand(first, second, measure, expected, note):
    found = task_differences([first, second], [measure], 0, 1000)[0, 1][measure]
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, nan_ok=True)
    assert re.fullmatch(note, found.note)


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.integers(2, 40))
def test_the_other_way_round_everything_is_the_negative(seed, n):
    first, second = drawn(seed, n), drawn(seed + 1, n, 0.2)
    wanted = ["mean", "ratio", "rare_mean"]
    ours = task_differences([first, second], wanted, 0, 200)[0, 1]
    theirs = task_differences([second, first], wanted, 0, 200)[0, 1]
    for name in wanted:
        one, other = ours[name], theirs[name]
        assert one.mean == pytest.approx(-other.mean, abs=1e-12)
        assert (one.low, one.high) == (pytest.approx(-other.high, abs=1e-9), pytest.approx(-other.low, abs=1e-9))
        assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)
        assert (one.p, one.exact, one.note) == (other.p, other.exact, other.note)
        assert 0 < one.p <= 1
        assert one.low <= one.mean + 1e-12
        assert one.mean <= one.high + 1e-12


def test_in_parts_as_at_once(monkeypatch):
    """Draws and swaps are made a few rows at a time: the samples do not depend on how many, p but for chance."""
    first, second = drawn(11, 30), drawn(12, 30)
    whole = task_differences([first, second], ["ratio"], 0, 3000)[0, 1]["ratio"]
    monkeypatch.setattr("harness.statistics.bootstrap._CELLS", 30 * 700)
    monkeypatch.setattr("harness.statistics.significance._CELLS", 30 * 700)
    parts = task_differences([first, second], ["ratio"], 0, 3000)[0, 1]["ratio"]
    assert (parts.low, parts.high) == (pytest.approx(whole.low, abs=1e-12), pytest.approx(whole.high, abs=1e-12))
    assert parts.p == pytest.approx(whole.p, abs=0.05)
