"""What slow work says: few lines, and a rate that counts only the work since the start."""

import pytest

from harness import cli, progress


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


def test_slow_work_has_a_time_for_each(clock, capsys):
    with progress.watch("replay") as tell:
        tell(1, 10, "folds")
        clock[0] += 48
        tell(3, 10, "folds")
    assert capsys.readouterr().err.splitlines() == ["replay: 3/10 folds (24 s each, 168 s left)"]


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


@pytest.fixture
def looking(clock, monkeypatch):
    """Let time pass and look at the stages; no thread does."""
    monkeypatch.setattr(progress, "SLOW_SECONDS", 2.0)
    monkeypatch.setattr(progress.threading.Thread, "start", lambda self: None)

    def wait(seconds):
        clock[0] += seconds
        progress.look(clock[0])

    return wait


def test_a_slow_stage_is_announced_once_and_says_how_long_it_took(looking, capsys):
    with progress.stage("reading"):
        looking(1.9)
        assert capsys.readouterr().err == ""
        looking(0.2)
        looking(20)
    assert capsys.readouterr().err == "reading ...\nreading: took 22 s\n"
    with progress.stage("scoring"):
        looking(3)
    assert capsys.readouterr().err == "scoring ...\n"


def test_a_command_is_announced_by_its_name(looking, capsys, monkeypatch):
    monkeypatch.setattr("harness.cli._run", lambda request: looking(12))
    assert cli.call("runs", []) == 0
    assert capsys.readouterr().err == "harness runs ...\nharness runs: took 12 s\n"


def test_of_nested_stages_the_inner_one_is_announced(looking, capsys):
    with progress.stage("outer"):
        looking(1)
        with progress.stage("quick"):
            looking(1)
        with progress.stage("inner"):
            looking(3)
        looking(30)
    assert capsys.readouterr().err == "inner ...\n"


def test_a_stage_that_fails_is_over(looking, capsys):
    with pytest.raises(ValueError, match="no"), progress.stage("bad"):
        raise ValueError("no")
    looking(10)
    assert capsys.readouterr().err == ""


def test_a_thread_announces(monkeypatch):
    monkeypatch.setattr(progress, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.001)
    said = progress.threading.Event()
    monkeypatch.setattr(progress, "print", lambda *words, **_: said.set(), raising=False)
    with progress.stage("waiting"):
        assert said.wait(20)
