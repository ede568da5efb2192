import dataclasses

import numpy as np
import pytest
from board_pages import made_board
from boards import made_runs
from html_pages import Parts, data_of

from harness.analysis.board.page import document, html, pairs_on_parts
from harness.analysis.board.runs import LOSSES
from harness.reports.report import Report
from harness.reports.tables import Column, Table
from harness.statistics.significance import differences

EVIL = "</script><script>document.title = 'broken'</script>"


@pytest.fixture(scope="module")
def board():
    """Ten queries; names and a report with markup in them."""
    runs = made_runs(queries=10, top_k=(1,))
    named = [dataclasses.replace(one, name=f"{one.name} {EVIL}") for one in runs.runs]
    report = Report(EVIL, [EVIL], [Table(EVIL, [Column("a")], [[EVIL]], [EVIL])])
    return made_board(dataclasses.replace(runs, runs=tuple(named)), report=report)


def test_a_page_has_its_data_its_scripts_and_nothing_else(board):
    text = html(board)
    assert data_of(text)["runs"] == document(board)["runs"]
    assert text.count("<script>") == 1
    assert EVIL not in text
    assert not {"link", "img", "iframe", "object"} & {*Parts(text).tags}
    assert "default-src 'none'" in text
    assert "{{" not in text


def test_runs_are_told_apart_by_the_settings_in_which_they_differ(board):
    runs = document(board)["runs"]
    assert all(set(one["params"]) == {"retriever", "gate"} for one in runs)  # top_k and tokenizer are the same in all
    first = board.runs.losses[0]
    expected = {kind: int((first == code).sum()) for code, kind in enumerate(LOSSES) if kind and (first == code).any()}
    assert runs[0]["losses"] == expected
    assert sum(expected.values()) == int(np.count_nonzero(first))


def test_pairs_are_tested_as_a_comparison_tests_them(board):
    """Each pair of runs on each part of the queries; a pair with fewer than two values is none."""
    values = board.runs.values.copy()
    values[3, 1:] = np.nan
    runs = dataclasses.replace(board.runs, values=values, resamples=500, seed=3)
    found = pairs_on_parts(runs)
    for name, part in {"all": slice(None), "public": runs.public, "private": ~runs.public}.items():
        expected = differences(values[:, None, part], 3, 500)
        known = [(first, second, one) for (first, second), [one] in expected.items() if one.n > 1]
        assert len(known) == 21  # of 7 of the 8 runs
        for (*pair, mean, low, high, p), (first, second, one) in zip(found[name], known, strict=True):
            assert (pair, p) == ([first, second], one.p)
            assert [mean, low, high] == pytest.approx([one.mean, one.low, one.high], abs=5.1e-7)
