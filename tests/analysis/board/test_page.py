"""The page of a board, and its leaderboard: what is told apart from the best, which run to take, what else is said."""

from dataclasses import replace

import numpy as np
import pytest
from board_pages import made_board
from boards import made_run, made_runs
from html_pages import Parts, data_of

from harness.analysis.board.leaderboard import Row, facts, leaderboard, pick
from harness.analysis.board.page import document, html, pairs_on_parts
from harness.analysis.board.runs import LOSSES, BoardRuns
from harness.reports.report import Report
from harness.reports.tables import Column, Table
from harness.statistics.prediction_powered import Estimate
from harness.statistics.significance import differences
from harness.storage.typed import encoded

VALUES = np.array([[1, 1, 1, 1, 1, 1, 0, 0.5], [1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0.5]], float)


def board(values, names=None, select_on="all", public=None, losses=None):
    """Runs of these values, the best first."""
    runs = tuple(
        made_run(number, "bm25", "none", number + 1, float(np.nanmean(row))) for number, row in enumerate(values)
    )
    runs = tuple(replace(one, name=name) for one, name in zip(runs, names or "ABCDEFGH", strict=False))
    flags, ids = np.ones(values.shape[1], bool), tuple(f"q{number}" for number in range(values.shape[1]))
    found = np.zeros(values.shape, np.int8) if losses is None else losses
    return BoardRuns("mrr", select_on, runs, ids, flags, ~flags, ~flags if public is None else public, values, found)


def test_a_leaderboard_by_hand():
    found = leaderboard(board(VALUES))
    best, same, worse = found.rows
    # Against B one query differs: both ways to flip it are as far apart. Against C six do, all one way: 2 of 2^6.
    assert [same.p, worse.p] == [1, 2 / 64]
    # Holm: the smaller p counts twice, the larger once.
    assert [same.p_holm, worse.p_holm] == [1, 4 / 64]
    assert np.isnan(best.p_holm)
    assert [row.tied for row in found.rows] == [True, True, True]
    assert [row.difference for row in found.rows] == pytest.approx([0, -0.5 / 8, -6 / 8])
    seven = leaderboard(board(np.hstack([VALUES, VALUES[:, :2]])))  # 2 of 2^8, twice: 4 / 256 < .05
    assert [row.tied for row in seven.rows] == [True, True, False]
    assert [row.group for row in seven.rows] == ["best", "same", "worse"]
    assert seven.rows[1].changed == ({"key": "top_k", "above": "1", "here": "2"},)


def test_the_public_part_ranks_and_tells_apart_and_the_private_one_stands_beside():
    public = np.arange(8) >= 6
    found = leaderboard(board(VALUES[[0, 2, 1]], select_on="public", public=public))
    assert [(row.public, row.public_rank) for row in found.rows] == [(0.25, 1), (0.25, 1), (0, 3)]
    assert [(row.private, row.private_rank) for row in found.rows] == [(1, 1), (0, 3), (1, 1)]
    assert [row.p for row in found.rows[1:]] == [1, 1]  # the private queries have no part in the test
    assert leaderboard(board(VALUES)).rows[0].public is None


def test_estimates_are_not_tested():
    runs = board(VALUES)
    estimate = Estimate(0.7, 0.6, 0.8, 5, 3, 0.9)
    estimated = [replace(one, score=replace(one.score, estimate=estimate)) for one in runs.runs]
    found = leaderboard(replace(runs, runs=tuple(estimated)))
    assert [(one["p"], one["group"]) for one in encoded(found)["rows"]] == [(None, None)] * 3
    assert "harness compare" in found.notes[0]
    assert found.pick.reason.en == "A has the highest mrr of 3 runs, 0.8125."


def candidate(name, value=0.5, tied=True, ms=1.0, index_mb=1.0, asks_model=False):
    return Row(0, name, value, "same" if tied else "worse", ms=ms, mb=index_mb, asks_model=asks_model)


@pytest.mark.parametrize(
    ("candidates", "run", "instead", "said"),
    [
        # The highest score, whatever it costs; nothing beside it that is told apart from it.
        ([candidate("A", 0.9, ms=100), candidate("B", 0.5, tied=False)], 0, None, "tell it apart from all runs"),
        # One that is not told apart and takes a tenth of the time is named, the better one of two.
        ([candidate("A", 0.9, ms=100), candidate("B", 0.8, ms=11), candidate("C", 0.7, ms=10), candidate("D", 0.6)],
         0, 2, "C (0.7000) takes 10 ms per query instead of 1e+02 ms"),
        # A language model is money, however quick.
        ([candidate("A", 0.9, asks_model=True, ms=1), candidate("B", 0.8, ms=50)], 0, 1, "B (0.8000) asks no language"),
        # Equal scores: no language model, then time, then the index, then the order.
        ([candidate("A", asks_model=True, ms=1), candidate("B", ms=9)], 1, None, "this one asks no language model"),
        ([candidate("A", ms=None), candidate("B", ms=2)], 1, None, "this one is the quickest"),
        ([candidate("A", index_mb=5), candidate("B", index_mb=4)], 1, None, "this one has the smallest index"),
        ([candidate("A"), candidate("B", value=0.5 - 1e-15)], 0, None, "this one is listed first"),
    ],
)  # fmt: skip
def test_the_run_to_take(candidates, run, instead, said):
    found = pick(candidates, "mrr", 110)
    assert (found.run, found.instead) == (run, instead)
    assert said in found.reason.en
    assert candidates[run].name in found.reason.ko


def test_what_else_is_said_of_the_pick():
    losses = np.zeros((3, 8), np.int8)
    losses[0, 6:] = LOSSES.index("misranked")
    said = facts(board(VALUES, losses=losses), 0, None)
    # The best of all for each query is A itself: 6.5 of 8, and nobody solves query 6.
    assert "mrr would be 0.8125: on 0 queries another run does better than this one, and on 1 query" in said[0].en
    # Values of mrr, which does not say how much is lost: how often it is below 1 is known.
    assert said[1].en == "It scores less than 1 on 2 queries, most often because relevant documents rank too low (2)."
    runs = replace(board(VALUES, losses=losses), metric="modified_map@3")
    assert (
        facts(runs, 0, None)[1].en == "It loses on 2 queries, most often because relevant documents rank too low (2)."
    )
    learnt = [replace(one, score=replace(one.score, kind="public, out of fold")) for one in runs.runs]
    # The score has another basis than the lists, and the numbers do not add up.
    assert facts(replace(runs, runs=tuple(learnt)), 0, None)[1].en == (
        "The lists that it wrote lose on 2 queries, most often because relevant documents rank too low (2). They may "
        "use the labels of these queries; the score, out of fold, does not."
    )
    assert [one.en for one in facts(board(VALUES), 2, None)] == [
        "With the best of these runs for each query, mrr would be 0.8125: on 6 queries another run does better than "
        "this one, and on 1 query every run scores 0."
    ]
    assert all(one.ko for one in said)


# ---- The page

EVIL = "</script><script>document.title = 'broken'</script>"


@pytest.fixture(scope="module")
def shown():
    """Ten queries; names and a report with markup in them."""
    runs = made_runs(queries=10, top_k=(1,))
    named = [replace(one, name=f"{one.name} {EVIL}") for one in runs.runs]
    report = Report(EVIL, [EVIL], [Table(EVIL, [Column("a")], [[EVIL]], [EVIL])])
    return made_board(replace(runs, runs=tuple(named)), report=report)


def test_a_page_has_its_data_its_scripts_and_nothing_else(shown):
    text = html(shown)
    assert data_of(text)["runs"] == document(shown)["runs"]
    assert text.count("<script>") == 1
    assert EVIL not in text
    assert not {"link", "img", "iframe", "object"} & {*Parts(text).tags}
    assert "default-src 'none'" in text
    assert "{{" not in text


def test_pairs_are_tested_as_a_comparison_tests_them(shown):
    """Each pair of runs on each part of the queries; a pair with fewer than two values is none."""
    values = shown.runs.values.copy()
    values[3, 1:] = np.nan
    runs = replace(shown.runs, values=values, resamples=500, seed=3)
    found = pairs_on_parts(runs)
    for name, part in {"all": slice(None), "public": runs.public, "private": ~runs.public}.items():
        expected = differences(values[:, None, part], 3, 500)
        known = [(first, second, one) for (first, second), [one] in expected.items() if one.n > 1]
        assert len(known) == 21  # of 7 of the 8 runs
        for (*pair, mean, low, high, p), (first, second, one) in zip(found[name], known, strict=True):
            assert (pair, p) == ([first, second], one.p)
            assert [mean, low, high] == pytest.approx([one.mean, one.low, one.high], abs=5.1e-7)
