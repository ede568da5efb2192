"""What is read of a run's logged files: its lists, what stood behind them, the rule of its gate."""

import json

import pytest
from fakes import FakeTracker

from harness.analysis.board.lists import DEPTH, ListReader, Returned, signals
from harness.errors import BadInput
from harness.recording.logged_run import Ahead
from harness.reports.gate_view import SignalRule
from harness.tracking.tracker import LoggedRun

RULE = {"features": [["bm25", "top_score"]], "k": 10, "levels": [3, 0], "thresholds": [2.5],
        "centre": [0.0], "scale": [1.0], "weights": [1.0]}  # fmt: skip


def run(run_id="a", verb="run", **params):
    return LoggedRun(run_id, "bm25", "e", "FINISHED", {}, params, {"harness.verb": verb})


@pytest.fixture
def reader(tmp_path):
    """reader(run_id={name: text}): a reader of these files; names have _ for the dot."""

    def made(**runs):
        tracker = FakeTracker(folder=tmp_path)
        for run_id, files in runs.items():
            for name, text in files.items():
                tracker.write(run_id, name.replace("_", "."), text)
        return ListReader(Ahead(tracker, [], tmp_path / "downloads"))

    return made


def line(query_id="q", topk=("d1", "d2"), **more):
    return json.dumps({"eval_id": query_id, "topk": list(topk), **more}, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (line(), Returned(2, ("d1", "d2"))),
        (line(topk=()), Returned(0, ())),
        (line(topk=(1, 2)), Returned(2, ("1", "2"))),
        (line(standalone_query="달"), Returned(2, ("d1", "d2"), None, "달")),
        # Of a long list, the first are kept, and how many there were.
        (line(topk="abcdefgh"), Returned(8, tuple("abcdefgh"[:DEPTH]))),
        (
            line(references=[{"score": 2, "content": "하나\n둘"}, {"score": 1.5, "content": "셋"}]),
            Returned(2, ("d1", "d2"), (2.0, 1.5), None, ("하나 둘", "셋")),
        ),
        # Scores count only where there is one for each document.
        (line(references=[{"score": 2}]), Returned(2, ("d1", "d2"))),
        (line(references=[{"score": True}, {"score": 1}]), Returned(2, ("d1", "d2"))),
        (line(references="x"), Returned(2, ("d1", "d2"))),
        # A TREC run is sorted as trec_eval does: of equal scores the greater id first.
        ("q Q0 d1 1 0.5 x\nq Q0 d2 2 0.5 x\nq Q0 d3 3 0.9 x\n", Returned(3, ("d3", "d2", "d1"), (0.9, 0.5, 0.5))),
    ],
)
def test_what_predictions_say(reader, row, expected):
    assert reader(a={"predictions_jsonl": row}).returned(run()) == {"q": expected}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (line() + line(), "eval_id 'q' is already at"),
        (line(topk=(None,)), "an id in topk is None"),
        ('{"eval_id": "q"}\n', "topk is missing"),
        ('{"eval_id": "q", "topk": "d1"}\n', "topk is 'd1', but must be a list"),
        (line() + "{\n", ":2: broken JSON"),
        ("q Q0 d1\n", "A TREC run has six"),
    ],
)
def test_damaged_predictions_name_run_and_line(reader, text, complaint):
    with pytest.raises(BadInput, match=complaint) as error:
        reader(a={"predictions_jsonl": text}).returned(run())
    assert str(error.value).startswith(f"Run {run().named}: ")


def test_files_that_are_gone(reader):
    gone = reader()
    assert gone.returned(run()) is gone.retrieved(run()) is gone.gate(run(gate="auto")) is None


def test_lines_that_runs_share_are_read_once_and_stay_right(reader):
    first, second = line("q1") + line("q2", ["d9"]), line("q2", ["d9"]) + line("q1", ["d2", "d1"])
    both = reader(a={"predictions_jsonl": first}, b={"predictions_jsonl": second})
    first, second = both.returned(run()), both.returned(run("b"))
    assert second == {"q2": first["q2"], "q1": Returned(2, ("d2", "d1"))}
    assert second["q2"] is first["q2"]


def test_what_stood_behind_a_list(reader):
    table = {"columns": ["query_id", "kept", "signal"], "data": [["q 1", True, 2.5], ["q2", False, None]]}
    trec = "q%201 Q0 d2 1 2.5 x\nq%201 Q0 d1 2 0.5 x\n"
    found = reader(a={"run_trec": trec, "queries_json": json.dumps(table)}).retrieved(run())
    assert found.of("q 1") == {"d2": 2.5, "d1": 0.5}
    assert found.of("q2") == {}
    assert found.signals == {"q 1": 2.5}  # a query without a signal has none


@pytest.mark.parametrize("content", [{}, {"columns": ["query_id"], "data": []}, {"columns": 3, "data": []},
                                     {"columns": ["query_id", "signal"], "data": [["q"]]}])  # fmt: skip
def test_a_damaged_table_of_queries_is_refused(tmp_path, content):
    (tmp_path / "queries.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"queries\.json"):
        signals(tmp_path / "queries.json")


def test_the_rule_of_a_gate(reader):
    by_hand = {"gate": "score", "gate.threshold": "5", "gate.signal": "top_score", "top_k": "3"}
    logged = reader(a={"gate_json": json.dumps({"rule": RULE})})
    assert logged.gate(run(**by_hand, **{"gate.source": "null"})) == SignalRule("top_score", (3, 0), (5.0,))
    assert logged.gate(run(**by_hand, **{"gate.source": "bm25"})) == SignalRule("bm25 top_score", (3, 0), (5.0,))
    assert logged.gate(run(gate="auto")) == SignalRule("bm25 top_score", (3, 0), (2.5,))
    assert logged.gate(run(gate="none")) is logged.gate(run(verb="score")) is None
