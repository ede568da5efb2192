"""Progress without a terminal: few lines, and a rate that counts only the work since the start."""

import pytest

from harness import progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_every_ten_seconds(clock, capsys):
    with progress.watch("dense") as tell:
        for second in range(25):
            clock[0] = 100.0 + second
            tell(second * 2, 100, "documents")
    # after 10 s: 20 done, 2/s, 80 left at that rate = 40 s; after 20 s: 40 done
    assert capsys.readouterr().err.splitlines() == [
        "dense: 20/100 documents (2/s, 40 s left)",
        "dense: 40/100 documents (2/s, 30 s left)",
    ]


def test_what_was_taken_up_counts_for_no_speed(clock, capsys):
    with progress.watch("dense") as tell:
        tell(900, 1000, "documents")
        clock[0] += 10
        tell(950, 1000, "documents")
    assert "(5/s, 10 s left)" in capsys.readouterr().err


def test_each_stage_has_its_own_rate(clock, capsys):
    with progress.watch("dense") as tell:
        tell(0, 1000, "documents")
        clock[0] += 100
        tell(0, 50, "queries")
        clock[0] += 10
        tell(40, 50, "queries")
    assert capsys.readouterr().err.splitlines() == ["dense: 40/50 queries (4/s, 2 s left)"]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    with progress.watch("dense") as tell:
        tell(0, 10, "documents")
        tell(5, 10, "documents")
        tell(1, 3, "queries")
    assert "dense" in capsys.readouterr().err
