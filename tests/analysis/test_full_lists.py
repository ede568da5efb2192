"""The full lists of logged runs: which runs have them, and how their ids are read."""

import pytest
from fakes import FakeTracker

from harness.analysis.full_lists import best_repeatable, named
from harness.analysis.ranking import Wanted
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.tracking.tracker import LoggedRun
from retrievers.base import Document, Query, Ranking

DATA = Dataset(
    "testset",
    (Document("a b", "one"), Document("a%20c", "two"), Document("d", "three")),
    (Query.of("q 1", "x"), Query.of("q2", "y")),
    Qrels({}),
)
WANTED = Wanted("e", "map@3", verbs=("run",))
TAGS = {"harness.verb": "run"} | {f"data.{name}": DATA.fingerprints[name] for name in ("documents", "queries")}


def store(folder, lists, *runs):
    """A tracker with these runs and the lists of some: run id -> query_id -> doc_id -> score, or a text."""
    tracker = FakeTracker(*runs, folder=folder)
    for run_id, rows in lists.items():
        trec = rows if isinstance(rows, str) else "".join(Ranking.from_scores(rows).to_trec("x"))
        tracker.write(run_id, "run.trec", f"{trec}\n")
    return tracker


def run(run_id, score=0.5, status="FINISHED", **tags):
    return LoggedRun(run_id, f"bm25-{run_id}", "e", status, {"map_at_3": score}, {}, TAGS | tags)


def test_ids_with_white_space_are_read_as_they_were(tmp_path):
    lists = {"q 1": {"a%20c": 1.0, "a b": 2.0, "d": 1.0}, "q2": {}}
    [found] = named(store(tmp_path, {"r": lists}, run("r")), ["r"], DATA, tmp_path)
    assert found.lists == {"q 1": ["a b", "a%20c", "d"]}
    same = Dataset("x", (Document("a b", ""), Document("a%20b", "")), (), None)
    with pytest.raises(BadInput, match="'a b' and 'a%20b' are the same in TREC runs"):
        named(store(tmp_path, {}, run("r")), ["r"], same, tmp_path)


DAMAGED = "run.trec of run r (bm25-r) is damaged: "


@pytest.mark.parametrize(
    ("one", "content", "message"),
    [
        (run("r", status="RUNNING"), None, "has not ended. Wait for it"),
        (run("r", status="FAILED"), None, "is FAILED: its lists may be incomplete"),
        (run("r", **{"harness.verb": "score"}), None, "is a scored file"),
        (run("r", **{"harness.verb": "compare"}), None, "is a record of `harness compare`"),
        (run("r", task="answers"), None, "is of task=answers, which ranks no documents"),
        (run("r", **{"data.documents": "other"}), None, "was not made with the documents that the test set has"),
        (run("r", **{"data.queries": "other"}), None, "was not made with the queries that the test set has"),
        (run("r"), None, "has no full lists: a sweep logs them only for its best trial"),
        (run("r", **{"harness.verb": "sweep"}), None, "is a sweep without a single best trial"),
        (run("r"), "q2 Q0 e 1 0.5 x", "the test set has no query or document 'e'"),
        (run("r"), "q3 Q0 d 1 0.5 x", "the test set has no query or document 'q3'"),
        (run("r"), "q2 Q0 d 1 high x", "score 'high' is not a finite number"),
        (run("r"), "q2 Q0 d 1 0.5 x\nq2 Q0 d 2 0.4 x", "already has document 'd' at"),
    ],
)
def test_a_run_that_does_not_fit_and_damaged_lists_are_refused(tmp_path, one, content, message):
    with pytest.raises(BadInput) as refused:
        named(store(tmp_path, {"r": content} if content else {}, one), ["r"], DATA, tmp_path)
    assert str(refused.value).startswith(DAMAGED if content else "Run r (bm25-r) ")
    assert message in str(refused.value)


def test_the_best_that_fit_are_taken(tmp_path):
    runs = [
        run("first", 0.9, trial_key="1"),
        run("again", 0.8, trial_key="1"),
        run("light", 0.7),
        run("other", 0.6, **{"data.queries": "x"}),
        run("second", 0.5),
        run("third", 0.4),
        run("file", 0.95, **{"harness.verb": "score"}),
        run("failed", 0.99, status="FAILED"),
    ]
    lists = {key: {"q2": {"d": 1.0}} for key in ("first", "again", "second", "third")}
    found, notes = best_repeatable(store(tmp_path, lists, *runs), WANTED, 2, DATA, tmp_path)
    assert [one.run.run_id for one in found] == ["first", "second"]
    assert notes == [
        "Left out: 1 run that has no full lists: a sweep logs them only for its best trial. Repeat the run with "
        "`harness run`.",
        "Left out: 1 run that was not made with the queries that the test set has now (they may have been edited). "
        "Repeat the run.",
    ]


def test_without_any_that_fits_it_is_said_why(tmp_path):
    runs = run("light"), run("other", **{"data.documents": "x"})
    with pytest.raises(BadInput) as refused:
        best_repeatable(store(tmp_path, {}, *runs), WANTED, 2, DATA, tmp_path)
    assert str(refused.value).startswith("Experiment 'e' has no run to pool. Left out: 1 run that has no full lists")
    assert "not made with the documents that the test set has" in str(refused.value)
