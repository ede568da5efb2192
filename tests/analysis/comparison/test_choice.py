"""Which runs are compared where none is named: the best that are scored on the same queries."""

import pytest

from harness.commands.compare import choose_runs
from harness.config.commands import CompareConfig
from harness.errors import BadInput
from harness.measures import measures
from harness.recording.run_kind import RunKind
from harness.tracking.tracker import LoggedRun

CONFIG = {"runs": [], "metric": "map@3", "experiment_name": "e", "select_on": None, "top": 5}
OTHER = "Left out, since they were scored on other queries: "


def run(run_id, value, scored="all", *, verb="run", queries=3, labels="q"):
    """scored: stands for the ids of its scored queries; None: made by an earlier version."""
    tags = {"harness.verb": verb, "version.measures": str(measures.VERSION), "data.qrels": labels}
    tags |= {"scored.sha256": scored} if scored else {}
    return LoggedRun(run_id, run_id, "e", "FINISHED", {"map_at_3": value, "queries/scored": queries}, {}, tags)


def file(*given, **more):
    return run(*given, verb="score", **more)


class Store:
    uri = "sqlite:///x"

    def __init__(self, *runs):
        self._runs = runs

    def runs(self, experiment, tags, status=None):
        return list(reversed(self._runs))


def chosen(*runs):
    """(the ids of the runs that are compared, the names of those that were left out)."""
    choice = choose_runs(Store(*runs), CompareConfig.of(CONFIG), RunKind())
    [left] = [note for note in choice.notes if note.startswith(OTHER)] or [""]
    return [one.run_id for one in choice.runs], left.removeprefix(OTHER).partition(".")[0]


def test_a_file_that_was_scored_on_as_many_other_queries_is_left_out():
    runs = run("a", 0.5), run("b", 0.4), file("same", 0.6, "all"), file("easy", 0.9, "easy"), file("few", 0.8, "few")
    assert chosen(*runs) == (["same", "a", "b"], "easy, few")
    assert chosen(run("a", 0.5), file("same", 0.6)) == (["same", "a"], "")


def test_a_file_with_other_labels_is_left_out():
    assert chosen(run("a", 0.5), run("b", 0.4), file("x", 0.9, "all", labels="p")) == (["a", "b"], "x")


def test_files_alone_are_compared_on_the_queries_of_most_of_them():
    assert chosen(file("easy", 0.9, "easy"), file("a", 0.5), file("b", 0.4)) == (["a", "b"], "easy")
    tied = file("c", 0.9, "easy", queries=2), file("d", 0.8, "easy", queries=2), file("a", 0.5), file("b", 0.4)
    assert chosen(*tied) == (["a", "b"], "c, d")
    with pytest.raises(BadInput, match=f"1 different finished run.*{OTHER}easy"):
        chosen(file("easy", 0.9, "easy", queries=2), file("a", 0.5))


def test_a_choice_flatters_only_where_something_was_left():
    """Of three runs, three are no choice."""
    runs = Store(run("a", 0.5), run("b", 0.4), run("c", 0.3))
    said = [" ".join(choose_runs(runs, CompareConfig.of(CONFIG | {"top": top}), RunKind()).notes) for top in (3, 2)]
    assert ["flatters" in notes for notes in said] == [False, True]
