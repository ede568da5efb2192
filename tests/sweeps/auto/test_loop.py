"""`harness sweep sweep=auto`: its trials, its score, repetition, interruption, and requests that are refused."""

import pytest
from interruptions import interrupted

from harness.gates.calibration import CLOSE
from harness.sweeps.auto import loop

GATE = ("gate=auto", "gate.signals=[top_score]", "gate.repeats=1", "gate.folds=2")
FEW = ("retriever=hybrid_lexical", "tokenizer=word", "query.text=user_turns", "rerank=none", "fusion.weights.bm25=1")
WORDS = ("sweep=auto", *FEW, *GATE, "experiment_name=e")
TOY = ("sweep=auto", "dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
QUIET = ("tracking=none", "format=json")


@pytest.mark.slow
def test_a_sweep_that_chooses_its_trials_itself(harness, tracker, untimed, monkeypatch):
    """Interrupted, resumed and repeated, it is the sweep that runs through; its procedure is not its lucky winner."""
    monkeypatch.setattr(loop, "REPEATS", 2)
    monkeypatch.setattr("harness.sweeps.auto.out_of_fold.FOLDS", 3)
    with interrupted(monkeypatch, 4):
        assert harness("sweep", *WORDS, "budget=1h", "format=json").code == 130
    found = harness("sweep", *WORDS, "budget=1h", "format=json").json
    assert found["trials"]["finished"] == found["trials"]["asked"] > 5
    assert 0 < found["trials"]["skipped"] < found["trials"]["asked"]
    procedure = found["procedure"]
    expected = {"kind": "out of fold", "folds": 3, "queries": 60, "repeats": 2}
    assert {name: procedure[name] for name in expected} == expected
    # Of trials that tie, the procedure takes the first and the sweep the quickest: equal up to rounding.
    assert procedure["winner"] == pytest.approx(found["best"]["value"], abs=CLOSE)
    assert procedure["low"] < procedure["value"] < procedure["high"]
    assert procedure["value"] - procedure["baseline"] == pytest.approx(procedure["difference"])
    # The baseline is a trial like the others, and the bench gives it the value that the trial has.
    [plain] = [one["value"] for one in found["top"] if one["trial"] == 0]
    assert plain == pytest.approx(procedure["baseline"], abs=1e-12)
    assert set(found["budget"]["spent"]) == {"planning", "systems", "choices", "replays"}

    [parent] = tracker.runs("e", {"harness.verb": "sweep"})
    assert parent.metrics["procedure/value"] == procedure["value"]
    assert parent.metrics["objective"] == found["best"]["value"]
    assert procedure["sentence"] in parent.tags["mlflow.note.content"]

    again = harness("sweep", *WORDS, "budget=2h")  # another budget goes on with the same sweep
    assert f"{found['trials']['asked']} skipped" in again.out
    assert procedure["sentence"] in " ".join(again.out.split())
    [repeated] = tracker.runs("e", {"harness.verb": "sweep"})
    names = ("procedure/value", "procedure/p", "objective", "trials/asked")
    assert [repeated.metrics[name] for name in names] == [parent.metrics[name] for name in names]


@pytest.mark.slow
def test_a_budget_that_is_used_up_still_tries_the_baseline(harness, toy):
    found = harness("sweep", *TOY, *QUIET, "budget=1s").json
    assert found["procedure"]["baseline_words"] == "retriever=bm25 gate=none"
    assert found["procedure"]["p"] is None  # of three queries
    assert "Only 3 labelled queries" in found["procedure"]["notes"][0]
    reasons = {one["reason"] for one in found["untried"]}
    assert any("is too long" in reason for reason in reasons)
    assert "the model BAAI/bge-m3 is not on this machine" in reasons


@pytest.mark.slow
def test_the_plan_has_estimates_and_does_nothing(harness, toy, tmp_path):
    found = harness("sweep", *TOY, *QUIET, "dry_run=true").json
    assert found["budget"] == 600
    assert found["systems"][0]["overrides"] == ["retriever=bm25"]
    assert all(one["seconds"] > 0 for one in found["systems"])
    assert found["gates"] == ["gate=none", "gate=auto", "gate=depth", "gate=classifier"]
    assert not list(tmp_path.glob("outputs/sweeps/*"))
    shown = harness("sweep", *TOY, "dry_run=true").out
    assert "systems to try, about" in shown
    reasons = [line.rpartition(": ")[2] for line in shown.splitlines() if line.startswith("not tried")]
    assert len(reasons) == len({*reasons}) > 2, "what has one reason stands on one line"
    # No gate is tried where every query needs documents.
    rows = (toy / "qrels.jsonl").read_text("utf-8").splitlines()
    (toy / "qrels.jsonl").write_text("\n".join(rows[:2]) + "\n", "utf-8")
    found = harness("sweep", *TOY, *QUIET, "dry_run=true").json
    assert found["gates"] == ["gate=none"]
    assert any("every labelled query needs documents" in one["reason"] for one in found["untried"])


def test_requests_that_are_refused(harness, toy, tmp_path):
    (tmp_path / "one.jsonl").write_text((toy / "qrels.jsonl").read_text("utf-8").splitlines()[0], "utf-8")
    for words, message in {
        ("budget=10x",): "budget=10x is not a time: give a number and its unit",
        ("budget=1m,2m",): "budget cannot be swept",
        ("retriever=bm25,dense",): "sweep=auto chooses the values of keys itself: leave out the list of retriever",
        ("top_k=range(1,4)",): "leave out the list of top_k",
        ("experiment=lexical_gated",): "sets what sweep=auto chooses",
        ("objective=abstention_f1", "metrics=[abstention_f1]"): "is not a mean over a fixed set of queries",
        ("objectives=[modified_map@3,ms_per_query]",): "one objective",
        ("dataset.qrels=none.jsonl",): "none.jsonl",
    }.items():
        done = harness("sweep", *TOY, *words)
        assert done.code == 2, words
        assert message in done.err, words
    done = harness("sweep", *TOY[1:], "top_k=1,3", "budget=10m")
    assert "budget=10m has an effect only with sweep=auto" in done.err
    assert not list(tmp_path.glob("outputs/sweeps/*"))
    assert "sweep=auto needs two or more" in harness("sweep", *TOY, "dataset.qrels=one.jsonl").err
