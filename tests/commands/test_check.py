"""`harness check` on toy runs: the three exit codes, saving a baseline, and what is refused."""

import json

import pytest
from logged_runs import RUN, TOY, WITHHELD

import harness as package
from harness.tracking.tracker import RunRecord

CHECK = ("check", *TOY)


@pytest.fixture
def saved(harness, toy):
    """A baseline file of the toy run, which is right for each of the three queries."""
    done = harness(*CHECK, "save=guard/baseline.json", "tracking=none")
    assert done.text == "Saved modified_map@3 of bm25 · none on 3 queries to guard/baseline.json.\n"
    return "baseline=guard/baseline.json"


@pytest.fixture
def runs(logged):
    """Two logged runs: the first withholds everything and scores 1/3, the second is right everywhere."""
    return [done.json["run_id"] for done in logged(WITHHELD, RUN)]


def test_an_unchanged_configuration_holds(harness, saved):
    done = harness(*CHECK, saved, "tracking=none")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Holds: bm25 · none against the baseline bm25 · none\n")


def test_too_few_queries_cannot_tell(harness, saved, tmp_path):
    words = (*CHECK, saved, "tracking=none", "gate=score", "gate.threshold=99")
    done = harness(*words)
    assert (done.code, done.err) == (4, "")
    assert "Cannot tell: modified_map@3 went from 1.0000 to 0.3333: -0.667" in done.out
    passing = harness(*words, "undecided=pass", "format=json", "junit=guard/junit.xml")
    assert passing.json["outcome"] == "cannot tell"
    assert [one["query_id"] for one in passing.json["lost"]] == ["3", "7"]
    assert passing.json["lost"][1]["relevant"] == ["d3"]
    assert 'skipped="1"' in (tmp_path / "guard/junit.xml").read_text("utf-8")


def test_a_bound_that_is_not_met_is_a_regression(harness, saved):
    done = harness(*CHECK, saved, "tracking=none", 'bounds=["hit@1<0.5"]', "format=markdown")
    assert (done.code, done.err) == (3, "")
    assert done.out.startswith("**Regressed: bm25 · none against the baseline bm25 · none**\n")
    assert "Regressed: hit@1 is 1, but must be &lt; 0.5." in done.out


def test_slices(harness, saved):
    words = (*CHECK, saved, "tracking=none", "gate=score", "gate.threshold=99", "slices=[turns]")
    assert [one["measure"] for one in json.loads(harness(*words, "format=json").out)["slices"]] == [
        "modified_map@3 where turns=1"
    ]
    assert "Did you mean 'turns'" in harness(*words[:-1], "slices=[turn]").refusal


def test_measures_that_the_run_would_not_compute_are_added(harness, saved, tmp_path):
    harness(*CHECK, "save=guard/two.json", "tracking=none", "measures=[ndcg@7,modified_map@3]")
    content = json.loads((tmp_path / "guard/two.json").read_text("utf-8"))
    assert content["measures"] == ["ndcg@7", "modified_map@3"]
    refused = harness(*CHECK, saved, "tracking=none", "measures=[ndcg@7]")
    assert "has no ndcg@7 by query" in refused.refusal


@pytest.mark.stored
def test_the_best_comparable_run_is_the_champion(harness, runs):
    worse, best = runs
    done = harness("check", f"run={worse}", "experiment_name=e", "format=json")
    assert (done.code, json.loads(done.out)["baseline"][:8]) == (4, best[:8])
    new = json.loads(harness(*CHECK, "format=json").out)
    assert (new["outcome"], new["baseline"][:8]) == ("holds", best[:8])


@pytest.mark.stored
def test_the_checked_run_says_how_it_went(harness, runs, tracker):
    base = runs[1]
    new = json.loads(harness(*CHECK, f"baseline={base}", "gate=score", "gate.threshold=99", "format=json").out)
    tags = tracker.run(new["run_id"]).tags
    assert (tags["check.outcome"], tags["check.baseline"][:8]) == ("cannot tell", base[:8])


@pytest.mark.local  # a server refuses a version without a model's files
@pytest.mark.stored
def test_a_registered_champion_comes_before_the_best_run(harness, runs, tracker):
    worse, best = runs
    tracker.client.create_registered_model("e")
    version = tracker.client.create_model_version("e", "file:///nowhere", worse)
    tracker.client.set_registered_model_alias("e", "champion", version.version)
    done = harness("check", f"run={best}", "experiment_name=e", "undecided=pass", "format=json")
    assert done.json["baseline"][:8] == worse[:8]


def test_from_python(harness, saved):
    words = [*TOY, saved, "tracking=none"]
    package.check(*words).require()
    found = package.check(*words, "gate=score", "gate.threshold=99")
    assert found.outcome == "cannot tell"
    with pytest.raises(AssertionError, match=r"Cannot tell: modified_map@3 went from 1\.0000 to 0\.3333"):
        found.require()


@pytest.mark.stored
def test_bounds_of_a_load_take_the_latest_load(harness, runs, tracker):
    words = ("check", f"run={runs[1]}", f"baseline={runs[1]}", "experiment_name=e", 'bounds=["p95_ms<50"]')
    assert "Measure one with `harness load`" in harness(*words).refusal
    tags = {"harness.verb": "load", "trial_key": tracker.run(runs[1]).tags["trial_key"]}
    for value in (40.0, 60.0):
        load = RunRecord("e", "load", tags=tags, metrics={"p95_ms": value, "qps": 9.0})
        tracker.finish(tracker.begin(load), load, "FINISHED")
    assert harness(*words, "format=json").code == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["baseline=nope.json"], "baseline=nope.json: there is no such file"),
        (["tracking=none"], "tracking=none keeps no baseline: name a file with baseline=FILE"),
        (["measures=[abstention_f1]"], "measures: abstention_f1 has no value by query"),
        (["measures=[ndgc@3]"], "Did you mean 'ndcg@3'"),
        (["margin=0"], "margin=0 is too small"),
        (["margin=1"], "margin=1 is too large"),
        (["slice_margin=0.1"], "slice_margin is about slices"),
        (["save=b.json", "junit=j.xml"], "junit has no effect with save=FILE"),
        (["save=toy"], "save=toy is not a file, so it is not replaced"),
        (["baseline=toy"], "baseline=toy: this is not a file"),
        (["junit=toy/eval.jsonl/j.xml"], "junit=toy/eval.jsonl/j.xml: "),
        (["run=ffff"], "run=ffff: no such run"),
        (["baseline=ffff"], "ffff: no such run"),
        ([], "Experiment 'e' has no baseline: no other run"),
    ],
)
def test_what_is_refused(harness, toy, words, message):
    assert message in harness(*CHECK, *words).refusal


def test_a_run_without_labels_cannot_be_checked(harness, toy):
    (toy / "qrels.jsonl").unlink()
    assert "has no labels" in harness(*CHECK, "save=b.json", "tracking=none").refusal
