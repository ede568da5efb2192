"""Fusions that learn, from the command line: out of fold alone and with a gate that learns, applied, swept, refused."""

import json
import re
from dataclasses import replace
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
    """(session, rankings) of the shipped sample."""
    plan = plan_of(*FEW)
    session = replace(open_session(plan, open_dataset(plan, "sample")), timed="never")
    return session, steps.retrieve(plan.retriever, session, plan.depth)


def plan_of(*words):
    return Plan.of(compose("run", [*HYBRID, *words])[0])


def labelled(session, grades):
    """The session with other labels."""
    dataset = object.__new__(Dataset)  # without reading the documents again
    vars(dataset).update(vars(session.dataset), qrels=Qrels(grades))
    return replace(session, dataset=dataset)


def outcome(session, rankings, *words):
    return steps.conclude(plan_of(*words), rankings, session, detailed=[OBJECTIVE])


def test_it_is_judged_out_of_fold(sample):
    learnt = outcome(*sample, *FEW)
    assert learnt.objective.kind == "out of fold"
    assert learnt.objective.value == learnt.held_out.summary[OBJECTIVE].mean
    assert learnt.fusion["learnt_from"] == {"queries": 60, "needs_no_retrieval": 12}
    # What ranks the gate's signal is the same with every fusion.
    assert learnt.held_out.summary["abstention_auroc"].mean == learnt.scores.summary["abstention_auroc"].mean
    public = outcome(*sample, *FEW, "select_on=public")
    assert public.objective.kind == "public, out of fold"
    assert public.fusion["learnt_from"]["queries"] == 24


@pytest.mark.slow
@pytest.mark.parametrize("gate", [(), AUTO])
def test_labels_of_other_queries_give_no_gain(sample, gate):
    """The labels are handed round among the queries: what is learnt gains nothing, alone and with a gate."""
    session, rankings = sample
    grades = session.dataset.qrels.grades
    needing = [query for query, found in grades.items() if found]
    gains = []
    for shift in (1, 7):
        moved = dict(zip(needing, needing[shift:] + needing[:shift], strict=True))
        other = labelled(session, {query: grades[moved.get(query, query)] for query in grades})
        learnt, fixed = outcome(other, rankings, *FEW, *gate), outcome(other, rankings, *gate)
        gains.append(learnt.held_out.summary[OBJECTIVE].mean - fixed.objective.value)
    assert np.mean(gains) < 0.02, gains


@pytest.mark.slow
def test_with_a_gate_no_query_sees_its_own_label(sample):
    """Other documents become relevant to a query: what it is shown out of fold, and whether, stays as it was."""
    session, rankings = sample
    plan, grades = plan_of(*FEW, *AUTO), dict(session.dataset.qrels.grades)
    query = next(query for query, relevant in grades.items() if relevant)
    row = rankings["bm25"].query_ids.index(query)
    found = []
    for own in (grades[query], dict.fromkeys(rankings["bigram"].doc_ids[:3], 1.0)):
        other = labelled(session, grades | {query: own})
        ordered = steps.order(plan, rankings, other)
        held_out = steps._held_out(ordered, steps.decide(plan, rankings, ordered, other))
        found.append([(lists.row(row), shown[row]) for lists, shown, _ in held_out])
    assert found[0] == found[1]
    assert len(found[1]) == 2


@pytest.mark.slow
def test_what_was_learnt_is_written_applied_searched_and_reproduced(harness):
    done = harness("run", *HYBRID, *FEW, "format=json").json
    folder = Path(done["files"]["folder"])
    assert json.loads((folder / "fusion.json").read_text()) == done["fusion"]
    assert "oof/modified_map@3" in (folder / "scores.csv").read_text().splitlines()[0]
    fitted = ("fusion=fitted", f"fusion.file={folder / 'fusion.json'}", "format=json")
    again = harness("run", *HYBRID, *fitted).json
    assert again["objective"]["kind"] == "in sample"
    assert again["metrics"] == done["metrics"]
    rows = [Path(one["files"]["predictions"]).read_bytes() for one in (done, again)]
    assert rows[0] == rows[1]  # to the last digit
    assert harness("reproduce", f"run={done['run_id']}", "format=json").json["reproduced"]
    hits = harness("search", *HYBRID, *fitted, "query=태양계에서 가장 큰 행성은?").json["documents"]
    assert len(hits) == 3
    printed = harness("run", *HYBRID, *FEW, "tracking=none").out
    assert "Fusion, learnt from 60 queries (12 need no retrieval)" in printed


@pytest.mark.slow
def test_a_sweep_judges_what_learns_out_of_fold(harness, tmp_path):
    assert harness("sweep", *HYBRID, "fusion=weighted_sum,learned").code == 0
    table = next(tmp_path.rglob("trials.csv"))
    assert sorted(read_columns(table)["kind"]) == ["in sample", "out of fold"]


UNLABELLED = ("dataset=contest", "dataset.path=toy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "retriever=bm25", *FEW), "learns how to fuse several rankings, but the retriever has only bm25"),
        (("run", *HYBRID, *FEW, "objective=abstention_f1"), "a fusion needs an objective that is a mean"),
        (("run", *HYBRID, *FEW, "fusion.folds=1"), r"fusion: folds=1: at least 2"),
        (("run", *HYBRID, *FEW, "fusion.folds=2000"), r"fusion\.folds=2000 is too large"),
        (("run", *HYBRID, *FEW, "public=0", "select_on=public"), "no query to learn from"),
        (("run", *HYBRID, *FEW, *UNLABELLED), r"fusion learns .*dataset\.qrels=FILE, .*fusion=fitted fusion\.file="),
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
