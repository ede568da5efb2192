"""What is read of a run's logged files: its lists, what stood behind them, the rule of its gate."""

import json

import pytest

from harness.analysis.board.lists import DEPTH, ListReader, Returned, signals
from harness.errors import BadInput
from harness.recording.logged_run import Ahead
from harness.reports.gate_view import SignalRule
from harness.tracking.tracker import LoggedRun, NoFile

RULE = {"features": [["bm25", "top_score"]], "k": 10, "levels": [3, 0], "thresholds": [2.5],
        "centre": [0.0], "scale": [1.0], "weights": [1.0]}  # fmt: skip


class Store:
    """Files of runs, in a folder for each."""

    def __init__(self, folder):
        self.folder = folder

    def download(self, run, name, folder):
        if not (self.folder / run.run_id / name).exists():
            raise NoFile("no such file")
        return self.folder / run.run_id / name


def run(run_id="a" * 32, verb="run", **params):
    return LoggedRun(run_id, "bm25", "e", "FINISHED", {}, params, {"harness.verb": verb})


def stored(tmp_path, **files):
    """A reader of one run with these files; names have _ for the dot."""
    (tmp_path / run().run_id).mkdir()
    for name, text in files.items():
        (tmp_path / run().run_id / name.replace("_", ".")).write_text(text, "utf-8")
    return ListReader(Ahead(Store(tmp_path), [], tmp_path / "downloads"))


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
    ],
)
def test_what_a_line_of_predictions_says(tmp_path, row, expected):
    assert stored(tmp_path, predictions_jsonl=row).returned(run()) == {"q": expected}


def test_a_trec_run_is_sorted_as_trec_eval_does(tmp_path):
    text = "q Q0 d1 1 0.5 x\nq Q0 d2 2 0.5 x\nq Q0 d3 3 0.9 x\n"  # equal scores: the greater id first
    (tmp_path / run().run_id).mkdir()
    (tmp_path / run().run_id / "predictions.trec").write_text(text)
    found = ListReader(Ahead(Store(tmp_path), [], tmp_path)).returned(run(verb="score", predictions="mine.trec"))
    assert found == {"q": Returned(3, ("d3", "d2", "d1"), (0.9, 0.5, 0.5))}


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
def test_damaged_predictions_name_run_and_line(tmp_path, text, complaint):
    with pytest.raises(BadInput, match=complaint) as error:
        stored(tmp_path, predictions_jsonl=text).returned(run())
    assert str(error.value).startswith(f"Run {run().named}: ")


def test_files_that_are_gone(tmp_path):
    reader = ListReader(Ahead(Store(tmp_path), [], tmp_path))
    assert reader.returned(run()) is None
    assert reader.retrieved(run()) is None
    assert reader.gate(run(gate="auto")) is None


def test_lines_that_runs_share_are_read_once_and_stay_right(tmp_path):
    reader = stored(tmp_path, predictions_jsonl=line("q1") + line("q2", ["d9"]))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "predictions.jsonl").write_text(line("q2", ["d9"]) + line("q1", ["d2", "d1"]))
    first, second = reader.returned(run()), reader.returned(run("b"))
    assert second == {"q2": first["q2"], "q1": Returned(2, ("d2", "d1"))}
    assert second["q2"] is first["q2"]


def test_what_stood_behind_a_list(tmp_path):
    table = {"columns": ["query_id", "kept", "signal"], "data": [["q 1", True, 2.5], ["q2", False, None]]}
    reader = stored(tmp_path, run_trec="q%201 Q0 d2 1 2.5 x\nq%201 Q0 d1 2 0.5 x\n", queries_json=json.dumps(table))
    found = reader.retrieved(run())
    assert found.of("q 1") == {"d2": 2.5, "d1": 0.5}
    assert found.of("q2") == {}
    assert found.signals == {"q 1": 2.5}  # a query without a signal has none


@pytest.mark.parametrize("content", [{}, {"columns": ["query_id"], "data": []}, {"columns": 3, "data": []},
                                     {"columns": ["query_id", "signal"], "data": [["q"]]}])  # fmt: skip
def test_a_damaged_table_of_queries_is_refused(tmp_path, content):
    (tmp_path / "queries.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"queries\.json"):
        signals(tmp_path / "queries.json")


def test_the_rule_of_a_gate(tmp_path):
    by_hand = {"gate": "score", "gate.threshold": "5", "gate.signal": "top_score", "top_k": "3"}
    reader = stored(tmp_path, gate_json=json.dumps({"rule": RULE}))
    assert reader.gate(run(**by_hand, **{"gate.source": "null"})) == SignalRule("top_score", (3, 0), (5.0,))
    assert reader.gate(run(**by_hand, **{"gate.source": "bm25"})) == SignalRule("bm25 top_score", (3, 0), (5.0,))
    assert reader.gate(run(gate="auto")) == SignalRule("bm25 top_score", (3, 0), (2.5,))
    assert reader.gate(run(gate="none")) is None
    assert reader.gate(run(verb="score")) is None
