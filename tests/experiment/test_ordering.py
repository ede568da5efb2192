"""Fusions that learn, from the command line: out of fold alone and with a gate that learns, applied, swept, refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from harness.config.composing import compose
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.data.tables import read_columns
from harness.experiment import steps
from harness.experiment.plan import Plan
from harness.experiment.session import open_dataset, open_session

HYBRID = ("retriever=hybrid_lexical", "tokenizer=word")
FEW = ("fusion=learned", "fusion.folds=4", "fusion.repeats=2")
AUTO = ("gate=auto", "gate.folds=4", "gate.repeats=2", "gate.signals=[top_score]")
OBJECTIVE = "modified_map@3"


@pytest.fixture(scope="module")
def sample():
    """(config, session, rankings) of the shipped sample."""
    plan = Plan.of(compose("run", [*HYBRID, *FEW])[0])
    session = open_session(plan, open_dataset(plan, "sample"))
    session.__dict__["timed"] = "never"
    return session, steps.retrieve(plan.retriever, session, plan.depth)


def outcome(sample, *words, qrels=None):
    session, rankings = sample
    if qrels is not None:
        made = object.__new__(type(session))
        dataset = object.__new__(Dataset)
        vars(dataset).update(vars(session.dataset), qrels=qrels)
        vars(made).update(vars(session), dataset=dataset)
        session = made
    plan = Plan.of(compose("run", [*HYBRID, *words])[0])
    return steps.conclude(plan, rankings, session, detailed=[OBJECTIVE])


def test_it_is_judged_out_of_fold(sample):
    learnt = outcome(sample, *FEW)
    assert learnt.objective.kind == "out of fold"
    assert learnt.objective.value == learnt.held_out.summary[OBJECTIVE].mean
    assert learnt.fusion["learnt_from"] == {"queries": 60, "needs_no_retrieval": 12}
    # What ranks the gate's signal is the same with every fusion.
    assert learnt.held_out.summary["abstention_auroc"].mean == learnt.scores.summary["abstention_auroc"].mean
    public = outcome(sample, *FEW, "select_on=public")
    assert public.objective.kind == "public, out of fold"
    assert public.fusion["learnt_from"]["queries"] == 24


def test_labels_of_other_queries_give_no_gain(sample):
    """The labels are handed round among the queries: what is learnt gains nothing, alone and with a gate."""
    grades = dict(sample[0].dataset.qrels.grades)
    needing = [query for query, found in grades.items() if found]
    for words in ((), AUTO):
        gains = []
        for shift in (1, 7):
            moved = dict(zip(needing, needing[shift:] + needing[:shift], strict=True))
            qrels = Qrels({query: grades[moved.get(query, query)] for query in grades})
            learnt, fixed = outcome(sample, *FEW, *words, qrels=qrels), outcome(sample, *words, qrels=qrels)
            gains.append((learnt.held_out.summary[OBJECTIVE].mean, fixed.objective.value))
        assert np.mean([learnt - fixed for learnt, fixed in gains]) < 0.02, gains


def test_with_a_gate_no_query_sees_its_own_label(sample):
    """Another document becomes relevant to a query: what it is shown out of fold, and whether, stays as it was."""
    grades = dict(sample[0].dataset.qrels.grades)
    session, rankings = sample
    plan = Plan.of(compose("run", [*HYBRID, *FEW, *AUTO])[0])
    found = {}
    query = next(query for query, relevant in grades.items() if relevant)
    other = rankings["bigram"].doc_ids[:3]
    for name, qrels in (("as it was", Qrels(grades)), ("turned", Qrels({**grades, query: dict.fromkeys(other, 1.0)}))):
        made = outcome_parts(plan, session, rankings, qrels)
        row = rankings["bm25"].query_ids.index(query)
        found[name] = [(lists.row(row), shown[row]) for lists, shown, _ in made]
    assert found["as it was"] == found["turned"]
    assert len(found["turned"]) == 2


def outcome_parts(config, session, rankings, qrels):
    """What is scored out of fold: (candidates, shown, signal) in each repetition."""
    dataset = object.__new__(Dataset)
    vars(dataset).update(vars(session.dataset), qrels=qrels)
    made = object.__new__(type(session))
    vars(made).update(vars(session), dataset=dataset)
    ordered = steps.order(config, rankings, made)
    return steps._held_out(ordered, steps.decide(config, rankings, ordered, made))


def test_what_was_learnt_is_written_applied_searched_and_reproduced(harness, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = harness("run", *HYBRID, *FEW, "format=json").json
    folder = Path(done["files"]["folder"])
    content = json.loads((folder / "fusion.json").read_text())
    assert content == done["fusion"]
    assert "oof/modified_map@3" in (folder / "scores.csv").read_text().splitlines()[0]
    assert "fusion.json" in {path.name for path in folder.iterdir()}
    file = f"fusion.file={folder / 'fusion.json'}"
    again = harness("run", *HYBRID, "fusion=fitted", file, "format=json").json
    assert again["objective"]["kind"] == "in sample"
    assert again["metrics"] == done["metrics"]
    rows = [(Path(one["files"]["predictions"])).read_bytes() for one in (done, again)]
    assert rows[0] == rows[1]  # to the last digit
    proof = harness("reproduce", f"run={done['run_id']}", "format=json").json
    assert proof["reproduced"]
    query = "태양계에서 가장 큰 행성은?"
    hits = harness("search", *HYBRID, "fusion=fitted", file, f"query={query}", "format=json").json["documents"]
    assert len(hits) == 3
    printed = harness("run", *HYBRID, *FEW, "tracking=none").out
    assert "Fusion, learnt from 60 queries (12 need no retrieval)" in printed


def test_a_sweep_judges_what_learns_out_of_fold(harness, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("fusion=weighted_sum,learned", "format=json")
    done = harness("sweep", *HYBRID, *words)
    assert done.code == 0, done.err
    table = next(tmp_path.rglob("trials.csv"))
    kinds = read_columns(table)["kind"]
    assert sorted(kinds) == ["in sample", "out of fold"]


UNLABELLED = ("dataset=contest", "dataset.path=toy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "retriever=bm25", *FEW), "learns how to fuse several rankings, but the retriever has only bm25"),
        (("run", *HYBRID, *FEW, "objective=abstention_f1"), "a fusion needs a mean over the same queries"),
        (("run", *HYBRID, *FEW, "fusion.folds=1"), r"fusion: folds=1: at least 2"),
        (("run", *HYBRID, *FEW, "fusion.folds=2000"), r"fusion\.folds=2000 is too large"),
        (("run", *HYBRID, *FEW, "public=0", "select_on=public"), "no query to learn from"),
        (
            ("run", *HYBRID, *FEW, *UNLABELLED),
            r"This fusion learns .*dataset\.qrels=FILE, .*fusion=fitted fusion\.file=",
        ),
        (("search", *HYBRID, *FEW, "query=x"), r"This fusion learns from labels.*fusion=fitted fusion\.file="),
        (("run", *HYBRID, "fusion=fitted"), r"fusion\.file is missing"),
        (("run", *HYBRID, "fusion=fitted", "fusion.file=none.json"), r"none\.json: there is no such file"),
    ],
)
def test_what_cannot_work_is_refused(harness, toy, tmp_path, words, message):
    (toy / "qrels.jsonl").unlink()
    done = harness(*words)
    assert done.code == 2
    assert re.search(message, done.err), done.err
    assert not [*tmp_path.rglob("predictions.jsonl")]
