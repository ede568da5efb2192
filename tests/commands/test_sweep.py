"""`harness sweep`: one parent run, one child per trial, every retrieval once, and resuming after any interruption."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from interruptions import interrupted

from harness.experiment import steps
from harness.recording.logged_run import in_full
from harness.sweeps import ending, search
from harness.sweeps.recommendation import Edge
from harness.tracking.mlflow_tracker import MlflowTracker
from retrievers.lexical.bm25 import BM25

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
GRID = (*TOY, "gate=score", "gate.threshold=0,1,2", "top_k=1,3")
QUIET = ("tracking=none", "format=json")


@pytest.fixture
def tracked(harness, toy, tmp_path):
    """(harness, runs, client): runs(**tags) returns the logged runs with these tags (`__` for dots), oldest first."""
    tracker = MlflowTracker()
    tracker.connect(tmp_path / "outputs")

    def runs(status=None, **tags):
        return tracker.runs("e", {name.replace("__", "."): value for name, value in tags.items()}, status)[::-1]

    return harness, runs, tracker.client


@pytest.fixture
def searches(monkeypatch, untimed):
    """The depth of every search that is made."""
    made, plain = [], BM25.search

    def counted(self, queries, k):
        made.append(k)
        return plain(self, queries, k)

    monkeypatch.setattr(BM25, "search", counted)
    return made


@pytest.mark.drawn
def test_a_grid_is_a_parent_run_with_a_child_for_each_trial(tracked, tmp_path):
    harness, runs, client = tracked
    found = harness("sweep", *GRID, "format=json").json
    none = dict.fromkeys(("failed", "killed", "skipped", "reused", "same"), 0)
    assert found["trials"] == {"asked": 6, "finished": 6} | none
    [parent] = runs(harness__verb="sweep")
    children = runs(sweep__id=found["sweep_id"], harness__verb="run")
    assert parent.run_id == found["run_id"]
    assert parent.status == "FINISHED"
    assert len(children) == 6
    for child in children:
        assert child.status == "FINISHED"
        assert child.tags["mlflow.parentRunId"] == parent.run_id
        assert len(child.tags["trial_key"]) == 64
        assert child.metrics["objective"] == child.metrics["modified_map_at_3"]
        assert (child.tags["objective.name"], child.tags["objective.kind"]) == ("modified_map@3", "in sample")
        assert {"objective_low", "objective_high", "public/modified_map_at_3"} <= set(child.metrics)
        assert {"ndcg_at_10", "loss/misranked", "ms_per_query"} <= set(child.metrics)
    assert {(child.params["gate.threshold"], child.params["top_k"]) for child in children} == {
        (threshold, k) for threshold in "012" for k in "13"
    }
    values = {child.run_id: child.metrics["modified_map_at_3"] for child in children}
    best = found["best"]
    assert best["value"] == max(values.values()) == values[best["run_id"]]
    assert best["trial"] == min(row["trial"] for row in found["top"] if row["value"] == best["value"])
    # The parent carries the best child's id and numbers, the counts, all trials and pictures.
    assert parent.tags["best.run_id"] == best["run_id"]
    assert parent.metrics["objective"] == parent.metrics["modified_map_at_3"] == best["value"]
    assert len(parent.metrics) < 60
    assert (parent.metrics["trials/asked"], parent.metrics["trials/finished"]) == (6, 6)
    names = {file.path for file in client.list_artifacts(parent.run_id)}
    assert names == {"board.html", "objective.png", "summary.json", "trials.csv", "trials.json"}
    table = json.loads(Path(client.download_artifacts(parent.run_id, "trials.json")).read_text("utf-8"))
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert {row["run_id"]: row["modified_map@3"] for row in rows} == values
    assert [(row["gate.threshold"], row["top_k"]) for row in rows][:2] == [(0, 1), (0, 3)]


def test_the_best_child_is_logged_in_full_and_the_others_light(tracked, tracker):
    harness, runs, client = tracked
    found = harness("sweep", *GRID, "format=json").json
    for child in runs(sweep__id=found["sweep_id"], harness__verb="run"):
        names = {file.path for file in client.list_artifacts(child.run_id)}
        rows = Path(client.download_artifacts(child.run_id, "predictions.jsonl")).read_text("utf-8").splitlines()
        full = child.run_id == found["best"]["run_id"]
        assert names == {"config.yaml", "predictions.jsonl", "scores.csv"} | (
            {"gate.png", "metrics.json", "overview.png", "queries.json", "report.html", "requirements.txt", "run.trec"}
            if full
            else set()
        )
        assert any("content" in reference for reference in json.loads(rows[0])["references"]) == full
        assert ("interval_low/mrr" in in_full(tracker, child).metrics) == full


@pytest.mark.slow
def test_a_light_child_is_exported_whole(tracked):
    harness, _, _ = tracked
    found = harness("sweep", *GRID, "format=json").json
    worst = found["top"][-1]
    light = harness("export", f"run={worst['run_id']}", "format=json").json
    words = ["=".join(word.split("=")) for word in worst["overrides"]]
    single = harness("run", *TOY, "gate=score", *words, "format=json").json
    assert Path(light["submission"]).read_bytes() == Path(single["files"]["predictions"]).read_bytes()


def test_a_child_is_the_run_that_the_same_words_make(tracked):
    harness, runs, client = tracked
    found = harness("sweep", *GRID, "format=json").json
    single = harness("run", *TOY, "gate=score", "gate.threshold=1", "top_k=3", "format=json").json
    alone = next(run for run in runs(harness__verb="run") if run.run_id == single["run_id"])
    child = next(run for run in runs(trial_key=alone.tags["trial_key"]) if "sweep.id" in run.tags)
    assert child.metrics.items() <= alone.metrics.items() | {(k, v) for k, v in child.metrics.items() if "sec" in k}
    assert child.params == alone.params
    configs = [
        yaml.safe_load(Path(client.download_artifacts(run.run_id, "config.yaml")).read_text("utf-8"))
        for run in (child, alone)
    ]
    assert configs[0] | {"outputs": "", "store": ""} == configs[1] | {"outputs": "", "store": ""}
    assert found["trials"]["finished"] == 6


@pytest.mark.slow
def test_every_retrieval_is_computed_once_at_the_greatest_depth(harness, toy, searches):
    words = (*TOY, *QUIET, "retriever=bm25,hybrid_lexical", "tokenizer=word", "depth=1,2,3", "top_k=1", "fusion=rrf")
    found = harness("sweep", *words, "fusion.k=1,60", "store.path=fresh").json
    assert found["plan"]["retrievals"] == {"compute": 2, "cached": 0}
    assert searches == [3, 3]
    # One retriever makes no use of fusion.k: 3 of its 6 trials are the same as others.
    assert found["trials"]["asked"] == 12
    assert found["trials"]["same"] == 3
    assert found["plan"]["jobs"] == [3, 6]
    assert found["plan"]["expensive"] == ["retriever"]
    assert found["plan"]["free"] == ["depth", "fusion.k"]


@pytest.mark.local
def test_a_dry_run_prints_the_plan_and_leaves_no_files(harness, toy, tmp_path, searches):
    (tmp_path / "outputs" / "mlflow.db").unlink()
    done = harness("sweep", *TOY, "tokenizer=word", "gate=score", "gate.threshold=range(0,20)", "dry_run=true",
                   "store.path=fresh")  # fmt: skip
    assert done.code == 0
    assert "20 trials, 1 retrieval to compute, 0 cached" in done.out
    assert searches == []
    assert list((tmp_path / "outputs").iterdir()) == []
    plan = harness("sweep", *GRID, "format=json", "dry_run=true").json
    assert plan["trials"] == 6
    assert plan["jobs"] == [6]


def test_a_sweep_started_again_skips_what_finished(tracked, searches):
    harness, runs, _ = tracked
    first = harness("sweep", *GRID, "format=json").json
    before = runs(harness__verb="run")
    again = harness("sweep", *GRID, "format=json").json
    assert again["trials"]["skipped"] == 6
    assert again["plan"]["finished_before"] == 6
    assert again["run_id"] == first["run_id"]
    assert again["best"] == first["best"]
    assert [run.run_id for run in runs(harness__verb="run")] == [run.run_id for run in before]
    # A larger grid is another sweep; the trials that it shares with the first are skipped, too.
    more = harness("sweep", *TOY, "gate=score", "gate.threshold=0,1,2,3", "top_k=1,3", "format=json").json
    assert more["sweep_id"] != first["sweep_id"]
    assert (more["trials"]["finished"], more["trials"]["skipped"]) == (8, 6)
    assert len(runs(harness__verb="run")) == 8


def test_the_view_of_a_sweep_lists_the_runs_that_it_reused(tracked):
    """One run belongs to as many sweeps as have reused it."""
    harness, runs, client = tracked
    single = harness("run", *TOY, "top_k=3", "format=json").json["run_id"]
    views = {}
    for words in ("top_k=1,3", "top_k=2,3", "top_k=1,3"):
        found = harness("sweep", *TOY, words, "format=json").json
        experiment = client.get_experiment_by_name("e")
        ranked = client.search_runs(
            [experiment.experiment_id], json.loads(experiment.tags["mlflow.sharedViewState.runs"])["searchFilter"]
        )
        assert ranked
        assert {run.data.tags["harness.verb"] for run in ranked} == {"run"}  # the sweep itself ranks nowhere
        view = json.loads(experiment.tags[f"mlflow.sharedViewState.sweep-{found['sweep_id']}"])
        listed = client.search_runs([experiment.experiment_id], view["searchFilter"])
        tag = f"sweep.{found['sweep_id']}"
        assert f"tags.`{tag}`" in view["selectedColumns"]
        views[words] = {run.info.run_id: run.data.tags[tag] for run in listed}
        assert views[words].pop(single) == "reused"
        assert list(views[words].values()) == ["computed"]
        assert {row["run_id"]: row["reused"] for row in found["top"]} == {single: True, next(iter(views[words])): False}
        assert found["trials"]["reused"] == 1
        parent = client.get_run(found["run_id"]).data.tags["mlflow.note.content"]
        assert "1 of them reused" in parent
    assert len(runs(harness__verb="run")) == 3
    assert views["top_k=1,3"].keys() != views["top_k=2,3"].keys()


@pytest.mark.slow
def test_what_a_crash_left_running_is_adopted(tracked):
    harness, runs, client = tracked
    first = harness("sweep", *GRID, "format=json").json
    lost = runs(sweep__id=first["sweep_id"], harness__verb="run")[2]
    client.update_run(lost.run_id, status="RUNNING")
    client.update_run(first["run_id"], status="RUNNING")
    again = harness("sweep", *GRID, "format=json").json
    assert again["trials"]["skipped"] == 5
    children = runs(sweep__id=first["sweep_id"], harness__verb="run")
    assert [child.status for child in children] == ["FINISHED"] * 6
    assert runs(harness__verb="sweep")[0].status == "FINISHED"
    # A run with other params cannot be adopted: it is closed, and the trial gets a new run.
    client.update_run(lost.run_id, status="RUNNING")
    client.log_param(lost.run_id, "other", "1")
    harness("sweep", *GRID, "format=json")
    statuses = [child.status for child in runs(sweep__id=first["sweep_id"], harness__verb="run")]
    assert sorted(statuses) == ["FINISHED"] * 6 + ["KILLED"]


@pytest.mark.slow
def test_a_failing_trial_is_recorded_and_the_others_go_on(tracked, monkeypatch):
    harness, runs, client = tracked
    plain = steps.conclude

    def broken(config, *arguments, **named):
        if config.gate["threshold"] == 1:
            raise ZeroDivisionError("of this trial alone")
        return plain(config, *arguments, **named)

    monkeypatch.setattr(steps, "conclude", broken)
    done = harness("sweep", *GRID, "format=json")
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["trials"]["finished"], found["trials"]["failed"]) == (4, 2)
    assert {row["error"] for row in found["failed"]} == {"ZeroDivisionError: of this trial alone"}
    failed = runs("FAILED", harness__verb="run")
    assert len(failed) == 2
    told = Path(client.download_artifacts(failed[0].run_id, "traceback.txt")).read_text("utf-8")
    assert "ZeroDivisionError: of this trial alone" in told
    assert runs(harness__verb="sweep")[0].status == "FAILED"
    monkeypatch.setattr(steps, "conclude", plain)
    again = harness("sweep", *GRID, "format=json").json
    assert (again["trials"]["finished"], again["trials"]["skipped"]) == (6, 4)
    assert runs(harness__verb="sweep")[0].status == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "failed", "expected"),
    [
        (("depth=100,2", "top_k=3"), 1, "depth=2 is less than top_k=3"),
        (("dataset.path=toy,nowhere",), 1, "nowhere"),
        (("retriever=bm25,hybrid_lexical", "gate=score", "gate.source=bm25,bigram"), 1, "gate.source='bigram'"),
    ],
)
def test_trials_that_cannot_run_are_known_before_and_do_not_stop_the_others(harness, toy, words, failed, expected):
    plan = harness("sweep", *TOY, *words, "dry_run=true")
    assert f"{failed} trial cannot run" in plan.out
    assert expected in plan.out
    done = harness("sweep", *TOY, *words, "format=json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["trials"]["failed"] == failed
    assert found["trials"]["finished"] == found["trials"]["asked"] - failed
    assert expected in found["failed"][0]["error"]


@pytest.mark.slow
def test_a_retrieval_that_fails_fails_the_trials_that_need_it(tracked, monkeypatch):
    harness, runs, _ = tracked
    plain = BM25.search

    def broken(self, queries, k):
        if self.k1 == 9:
            raise MemoryError("too large")
        return plain(self, queries, k)

    monkeypatch.setattr(BM25, "search", broken)
    done = harness("sweep", *TOY, "retriever.bm25.k1=1,9", "gate=score", "gate.threshold=0,1", "format=json")
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["trials"]["finished"], found["trials"]["failed"]) == (2, 2)
    assert len(runs("FAILED", harness__verb="run")) == 2


@pytest.mark.slow
def test_ctrl_c_closes_the_records_and_the_sweep_goes_on_later(tracked, monkeypatch, tmp_path):
    harness, runs, _ = tracked
    with interrupted(monkeypatch, 3):
        done = harness("sweep", *GRID)
    assert done.code == 130
    assert "Repeat the same command to resume" in done.err
    assert [run.status for run in runs(harness__verb="run")] == ["FINISHED", "FINISHED", "KILLED"]
    assert runs(harness__verb="sweep")[0].status == "KILLED"
    again = harness("sweep", *GRID, "format=json").json
    assert (again["trials"]["finished"], again["trials"]["skipped"]) == (6, 2)
    [sweep] = runs(harness__verb="sweep")
    assert sweep.status == "FINISHED"
    assert not list((tmp_path / "outputs" / "sweeps" / again["sweep_id"]).glob("trials/*"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gate=score", "gate.treshold=1,2"), "Did you mean 'gate.threshold'"),
        (("retriever=bm25,dens",), "Did you mean 'dense'"),
        (("gate=none,auto", "gate.threshold=1,2"), "gate.threshold is unknown here: none of gate=none,auto has it"),
        (("top_k=interval(1,5)",), "Or let a sampler choose: search=tpe"),
        (("top_k=500,600",), "depth=100 is less than top_k=500"),
        (("dataset.path=nowhere,elsewhere",), "nowhere"),
        (("top_k=1,2", "dry_run=maybe"), "dry_run='maybe' is not true or false"),
        (("top_k=1,2", "search=annealing"), "search=annealing: there is no such choice"),
        (("top_k=1,2", "objective=ndcg@7"), "objective=ndcg@7 is not among the metrics"),
        (("top_k=1,2", "objectives=[ndcg@10]", "objective=mrr"), "must begin with what ranks the trials"),
        (("top_k=1,2", "objectives=[modified_map@3,speed]"), "speed"),
        (("top_k=1,2", "search=tpe", "search.trials=0"), "trials=0 is too small"),
        (("search=tpe",), "nothing to search"),
        (("top_k=1,2", "hydra/sweeper=basic"), "hydra/sweeper is refused"),
        (("top_k=1,2", "outputs=a,b"), "outputs cannot be swept"),
        (("sweep=treshold",), "Did you mean 'threshold'"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(harness, toy, tmp_path, words, expected):
    done = harness("sweep", *TOY, *words)
    assert done.code == 2, done.err
    assert expected in done.err
    assert not list((tmp_path / "outputs").glob("sweeps/*/trials"))


@pytest.fixture
def other(toy):
    """A second data set: the same documents and queries, other labels."""
    folder = toy.parent / "other"
    shutil.copytree(toy, folder)
    (folder / "qrels.jsonl").write_text('{"eval_id": 7, "relevant": ["d3"]}\n{"eval_id": 3, "relevant": ["d1"]}\n')
    return folder


def test_a_sweep_stands_for_the_trial_that_it_recommends(harness, other):
    found = harness("sweep", *TOY, "gate=score", "gate.threshold=0,0.4,0.8,2", "format=json").json
    sweep, best, others = found["run_id"], found["best"]["run_id"], [row["run_id"] for row in found["top"][1:]]
    assert len(found["tied"]) == 3
    assert harness("export", f"run={sweep}", "experiment_name=e", "format=json").json["run_id"] == best
    compared = harness("compare", f"runs=[{sweep},{others[0]}]", "experiment_name=e", "format=json").json
    assert [run["run_id"] for run in compared["runs"]] == [best, others[0]]
    assert "twice" in harness("compare", f"runs=[{sweep},{best}]", "experiment_name=e").err
    apart = harness("sweep", *TOY[:1], *TOY[2:], "dataset.path=toy,other", "format=json").json
    done = harness("export", f"run={apart['run_id']}", "experiment_name=e")
    assert done.code == 2
    assert "without a single best trial" in done.err


def test_data_sets_are_ranked_apart(tracked, other):
    harness, runs, client = tracked
    words = ("dataset=contest", "dataset.path=toy,other", "tokenizer=char_ngram", "experiment_name=e")
    found = harness("sweep", *words, "gate=score", "gate.threshold=99,0", "format=json").json
    assert found["best"] is None
    by_folder = {"toy": [], "other": []}
    for run in runs(harness__verb="run"):
        by_folder[Path(run.params["dataset.path"]).name].append(run.run_id)
    # In one ranking the best run of the second data set would stand before the worst of the first.
    values = {"toy": [1, 1 / 3], "other": [1 / 2, 0]}
    for place, (group, (name, own)) in enumerate(zip(found["groups"], by_folder.items(), strict=True)):
        assert group["apart"] == {"dataset.path": name}
        assert [row["value"] for row in group["top"]] == pytest.approx(values[name])
        assert {row["run_id"] for row in group["top"]} == set(own)
        assert group["best"]["run_id"] == group["top"][0]["run_id"]
        # The best of each is logged in full, and each has a view.
        assert "ceiling/oracle_rerank" in client.get_run(group["best"]["run_id"]).data.metrics
        experiment = client.get_experiment_by_name("e")
        view = json.loads(experiment.tags[f"mlflow.sharedViewState.sweep-{found['sweep_id']}-{place}"])
        listed = client.search_runs([experiment.experiment_id], view["searchFilter"])
        assert {run.info.run_id for run in listed} == set(own)
    means = [system["mean"] for system in found["systems"]]
    assert means == sorted(means, reverse=True)
    assert client.get_run(found["run_id"]).data.metrics["mean/modified_map_at_3"] == means[0]


def test_a_key_applies_to_the_trials_whose_choices_have_it(tracked):
    """The one trial without a gate is there once, and the path of a data set leaves the sample alone."""
    harness, runs, _ = tracked
    words = ("dataset=sample,contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
    swept = ("gate=none,score", "gate.threshold=0,2,4", "gate.k=5")
    found = harness("sweep", *words, *swept, "format=json").json
    assert found["trials"]["asked"] == found["trials"]["finished"] == 8
    assert found["plan"]["only_with"] == {
        "dataset.path": ["dataset=contest"], "gate.threshold": ["gate=score"], "gate.k": ["gate=score"],
    }  # fmt: skip
    assert [group["apart"] for group in found["groups"]] == [{"dataset": "sample"}, {"dataset": "contest"}]
    assert len(found["systems"]) == 4
    assert all(system["mean"] is not None for system in found["systems"])
    logged = runs(harness__verb="run")
    assert [run.params.get("gate.threshold") for run in logged] == [None, "0", "2", "4"] * 2
    assert ["dataset.path" in run.params for run in logged] == [False] * 4 + [True] * 4
    alone = harness(
        "run", *words[1:], "dataset=contest", "gate=score", "gate.threshold=2", "gate.k=5", "format=json"
    ).json
    assert alone["metrics"]["modified_map@3"] == pytest.approx(logged[6].metrics["modified_map_at_3"])
    again = harness("sweep", *words, *swept)
    assert "only with dataset=contest: dataset.path; only with gate=score: gate.k, gate.threshold" in again.err
    assert "nothing to run" in again.err


def test_a_search_drops_the_keys_of_other_choices_and_says_when_it_is_over(harness, toy):
    space = ("gate=none,score", "gate.threshold=interval(0,3)", "search=random", "search.trials=8")
    found = harness("sweep", *TOY, *space, "format=json").json
    asked = [row["overrides"] for row in found["top"]]
    assert {len(one) for one in asked if one[0] == "gate=none"} == {1}
    assert {len(one) for one in asked if one[0] == "gate=score"} == {2}
    assert found["trials"]["failed"] == 0
    planned = harness("sweep", *TOY, *space, "dry_run=true").out.splitlines()
    assert planned[1:] == [
        "skipping 8 trials that finished before",
        "only with gate=score: gate.threshold",
        "nothing to run",
    ]
    assert "nothing to run" in harness("sweep", *TOY, *space).err
    longer = harness("sweep", *TOY, *space, "search.trials=9", "dry_run=true").out
    assert "skipping 8 trials" in longer
    assert "nothing" not in longer


def test_a_search_over_data_sets_is_refused(harness, other):
    words = ("dataset=contest", "dataset.path=toy,other", "search=random", "top_k=int(interval(1,3))", *QUIET)
    done = harness("sweep", *words)
    assert done.code == 2
    assert "dataset.path decides what trials are scored on" in done.err
    assert "leave search out" in done.err
    parts = ("select_on=public", "public=0.4,0.9", "search=random", "top_k=1,2", *QUIET)
    assert "public decides" in harness("sweep", *TOY, *parts).err


def test_schemes_of_a_task_are_ranked_apart(harness, files):
    words = ("task=corrections", "references=R.csv", "predictions=worse.csv,better.csv", "tracking=none")
    found = harness("sweep", *words, "task.scheme=token,span", "format=json").json
    assert [group["apart"] for group in found["groups"]] == [{"task.scheme": "token"}, {"task.scheme": "span"}]
    assert [system["mean"] for system in found["systems"]] == [None, None]


def test_a_best_value_at_the_edge_of_what_was_tried_is_told(harness, toy, monkeypatch):
    words = (*TOY, *QUIET)
    [note] = harness("sweep", *words, "gate=score", "gate.threshold=1,2,3").json["notes"]
    assert note.startswith("gate.threshold=1 is the least value tried, and the best (1.0000 against 0.3333 at 2)")
    # What lies beyond must be possible: no run returns 0 documents.
    found = [Edge("top_k", "0", "none"), Edge("top_k", "4", "four")]
    monkeypatch.setattr(ending, "edges", lambda *_: found)
    notes = harness("sweep", *words, "top_k=1,2,3").json["notes"]
    assert ("four" in notes, "none" in notes) == (True, False)


def test_a_sweep_needs_labels(harness, toy):
    (toy / "qrels.jsonl").unlink()
    done = harness("sweep", *GRID)
    assert done.code == 2
    assert "A sweep needs labels" in done.err


def test_a_sweep_that_is_running_is_not_started_twice(harness, toy, tmp_path):
    from filelock import FileLock

    found = harness("sweep", *GRID, *QUIET).json
    with FileLock(tmp_path / "outputs" / "sweeps" / found["sweep_id"] / "lock"):
        done = harness("sweep", *GRID, *QUIET)
    assert done.code == 2
    assert "running already" in done.err


def test_workers_of_an_earlier_start_stop(harness, toy, tmp_path, monkeypatch):
    """Another start writes its token; what still runs for the old one ends before its next trial."""
    plain, seen = steps.conclude, []

    def taken_over(*arguments, **named):
        seen.append(1)
        if len(seen) == 2:
            [owner] = (tmp_path / "outputs" / "sweeps").glob("*/owner")
            owner.write_text("another")
        return plain(*arguments, **named)

    monkeypatch.setattr(steps, "conclude", taken_over)
    assert harness("sweep", *GRID, *QUIET).code == 1
    assert len(seen) == 2 + 1  # and the best of those, in full


def test_tracking_none_keeps_the_files_in_the_sweeps_folder(harness, toy, tmp_path):
    found = harness("sweep", *GRID, *QUIET).json
    assert found["run_id"] is None
    folder = Path(found["files"]["folder"])
    assert sorted(path.name for path in (folder / "trials").iterdir()) == list("012345")
    assert sorted(path.name for path in (folder / "trials" / "0").iterdir()) == [
        "config.yaml", "predictions.jsonl", "scores.csv"
    ]  # fmt: skip
    assert (Path(found["files"]["best"]) / "overview.png").is_file()
    assert len((folder / "summary" / "trials.csv").read_text().splitlines()) == 7


def test_text_output_shows_the_plan_the_best_and_what_to_do_next(harness, toy):
    done = harness("sweep", *GRID)
    assert re.search(r"6 trials, \d retrievals? to compute, \d cached", done.err)
    assert "gate.threshold" in done.out
    assert re.search("harness export .*run=", done.out)
    assert done.out.count("\n") <= 20


@pytest.mark.slow
def test_hydras_own_multirun_and_flags_are_left_alone(harness, toy, tracked):
    call, runs, _ = tracked
    grid = (*TOY, "top_k=1,3")
    assert call("run", "-m", *grid).code == 0
    assert len(runs(harness__verb="run")) == 2
    assert not runs(harness__verb="sweep")
    assert "hydra" not in yaml.safe_load(call("sweep", *TOY, "--cfg", "job").out)
    assert "BasicLauncher" in call("sweep", *TOY, "--cfg", "hydra").out
    assert "search" in call("sweep", "--help").out
    assert call("sweep", "-m", *grid, "format=json").json["trials"]["skipped"] == 2


@pytest.mark.slow
def test_globs_ranges_and_package_additions_are_hydras(harness, toy):
    found = harness("sweep", *TOY, *QUIET, "tokenizer=glob(w*)", "top_k=range(1,4)").json
    assert found["trials"]["asked"] == 6
    assert {word for row in found["top"] for word in row["overrides"] if "tokenizer" in word} == {
        "tokenizer=whitespace", "tokenizer=word",
    }  # fmt: skip
    added = harness("sweep", *TOY, *QUIET, "+gate.k=1,2").code  # the gate `none` takes no k
    assert added == 2


def test_several_objectives_show_a_front(harness, toy):
    found = harness("sweep", *GRID, *QUIET, "objectives=[modified_map@3,ms_per_query]").json
    assert {"modified_map@3", "ms_per_query"} == set(found["best"]["objectives"])
    assert found["best"]["trial"] in [row["trial"] for row in found["front"]]


def test_the_first_of_several_objectives_ranks_where_none_is_named(harness, toy):
    found = harness("sweep", *GRID, *QUIET, "objectives=[ndcg@10,hit@1]").json
    assert {"ndcg@10", "hit@1"} == set(found["best"]["objectives"])
    values = [row["objectives"]["ndcg@10"] for row in found["top"]]
    assert values == sorted(values, reverse=True)


SEARCH = (*TOY, "gate=score", "gate.threshold=interval(0,4)", "tokenizer=char_ngram,word", "search=tpe",
          "search.batch=3")  # fmt: skip


@pytest.fixture
def early(monkeypatch):
    """The sampler makes its model of three points."""
    monkeypatch.setattr(search, "STARTUP", 3)


@pytest.mark.slow
def test_a_search_is_reproducible_and_can_be_continued(harness, toy, early):
    whole = harness("sweep", *SEARCH, *QUIET, "search.trials=6", "outputs=a").json
    tried = [[row["overrides"], row["value"]] for row in whole["top"]]
    assert harness("sweep", *SEARCH, *QUIET, "search.trials=3", "outputs=b").json["trials"]["asked"] == 3
    # With tracking=none the runs are not saved, but the study is.
    longer = harness("sweep", *SEARCH, *QUIET, "search.trials=6", "outputs=b").json
    assert longer["sweep_id"] == whole["sweep_id"]
    assert [[row["overrides"], row["value"]] for row in longer["top"]] == tried


@pytest.mark.slow  # test_search.py stops searches without a sweep around them
def test_a_search_that_was_interrupted_proposes_what_it_would_have(tracked, early, monkeypatch):
    harness, _, _ = tracked
    whole = harness("sweep", *SEARCH, "search.trials=6", "outputs=whole", *QUIET).json
    words = (*SEARCH, "search.trials=6", "format=json")
    with interrupted(monkeypatch, 5):
        assert harness("sweep", *words).code == 130
    later = harness("sweep", *words).json
    assert [row["overrides"] for row in later["top"]] == [row["overrides"] for row in whole["top"]]
    assert later["trials"]["asked"] == whole["trials"]["asked"] == 6


def test_a_search_says_how_far_it_is(harness, toy):
    words = (*TOY, "gate=score", "gate.threshold=interval(0,1)", "search=random", "search.batch=2", "format=json")
    done = harness("sweep", *words, "search.trials=3", "store.path=fresh")
    best = done.json["best"]["value"]
    assert [line for line in done.err.splitlines() if "WARN" not in line] == [
        "3 trials of a search over gate.threshold", "1 retrieval to compute", f"2/3, best so far {best:.4f}",
        f"3/3, best so far {best:.4f}",
    ]  # fmt: skip
    more = harness("sweep", *words, "search.trials=4", "store.path=fresh").err
    assert more.splitlines() == [
        "4 trials of a search over gate.threshold", "skipping 3 trials that finished before",
        f"3/4, best so far {best:.4f}", f"4/4, best so far {best:.4f}",
    ]  # fmt: skip


def test_a_finite_search_space_ends(harness, toy):
    done = harness("sweep", *TOY, *QUIET, "search=random", "search.trials=50", "gate=score", "gate.threshold=1,2,3")
    assert done.json["trials"]["asked"] == 3
    assert "exhausted after 3 trials" in done.err


# What trials are ranked by

SAMPLE = ("tokenizer=whitespace", "experiment_name=e", "format=json")


def numbers(runs, sweep):
    """trial -> the metrics of its run."""
    return {int(run.tags["sweep.trial"]): run.metrics for run in runs(sweep__id=sweep["sweep_id"], harness__verb="run")}


@pytest.mark.parametrize(
    ("tokenizer", "chosen"), [("whitespace", 0), pytest.param("char_ngram", 1, marks=pytest.mark.slow)]
)
def test_a_fitted_trial_counts_with_what_it_scores_out_of_fold(tracked, tokenizer, chosen):
    """By words, the gate that learns is better in sample than none, and not on queries whose labels it has not seen;
    by bigrams it is better there as well."""
    harness, runs, client = tracked
    found = harness("sweep", *SAMPLE, "gate=none,auto", f"tokenizer={tokenizer}").json
    none, auto = (numbers(runs, found)[trial] for trial in (0, 1))
    in_sample = harness("run", *SAMPLE, "gate=auto", f"tokenizer={tokenizer}").json["metrics"]["modified_map@3"]
    assert in_sample > none["modified_map_at_3"]
    values = [none["modified_map_at_3"], auto["oof/modified_map_at_3"]]
    assert values[chosen] > values[1 - chosen]
    assert found["best"]["trial"] == chosen
    assert {row["trial"]: row["value"] for row in found["top"]} == dict(enumerate(values))
    assert {row["trial"]: row["kind"] for row in found["top"]} == {0: "in sample", 1: "out of fold"}
    assert [none["objective"], auto["objective"]] == values
    low, high = auto["objective_low"], auto["objective_high"]
    assert [low, high] in [row["interval"] for row in found["top"]]
    assert low < values[1] < high
    assert found["expected"]["best"] == pytest.approx(values[chosen])
    parent = client.get_run(found["run_id"]).data
    assert parent.metrics["expected/value"] == found["expected"]["value"] <= values[chosen]
    assert found["expected"]["sentence"] in parent.tags["mlflow.note.content"]


def test_the_public_part_chooses_and_the_private_one_is_seen_of_the_best_alone(tracked, tracker):
    harness, runs, client = tracked
    found = harness("sweep", *SAMPLE, "gate=score", "gate.threshold=0,1,1.5,3", "select_on=public").json
    metrics = numbers(runs, found)
    public = {trial: one["public/modified_map_at_3"] for trial, one in metrics.items()}
    best = found["best"]["trial"]
    assert found["best"]["value"] == public[best] == max(public.values())
    assert best in found["tied"]
    assert not [name for one in metrics.values() for name in one if "private/" in name]
    assert {row["kind"] for row in found["top"]} == {"public"}
    assert all(low < row["value"] < high for row in found["top"] for low, high in [row["interval"]])
    expected = found["expected"]
    assert (expected["how"], expected["private"]) == ("private", 36)
    assert expected["best"] == pytest.approx(public[best])
    [chosen] = [run for run in runs(sweep__id=found["sweep_id"]) if run.run_id == found["best"]["run_id"]]
    private = in_full(tracker, chosen).metrics["private/modified_map_at_3"]
    assert expected["value"] == pytest.approx(private)
    assert found["private_peeks"] == 1
    assert client.get_run(found["run_id"]).data.metrics["expected/value"] == expected["value"]


@pytest.mark.slow
def test_fitted_on_the_public_part_and_ranked_by_it_out_of_fold(tracked):
    harness, runs, _ = tracked
    public = harness("sweep", *SAMPLE, "gate=none,auto", "select_on=public").json
    metrics = numbers(runs, public)
    values = [metrics[0]["public/modified_map_at_3"], metrics[1]["oof/public/modified_map_at_3"]]
    assert {row["trial"]: row["value"] for row in public["top"]} == dict(enumerate(values))
    assert public["best"]["value"] == max(values)
    other = metrics[1 - public["best"]["trial"]]
    assert not [name for name in other if "private/" in name]


@pytest.mark.slow
def test_looks_at_private_scores_are_counted(tracked):
    harness, _, _ = tracked
    words = (*TOY, "format=json")
    grid = (*TOY, "gate=score", "gate.threshold=0,99", "format=json")
    assert harness("run", *words).json["private_peeks"] == 1
    assert harness("run", *words, "tracking.detail=light").json["private_peeks"] == 2
    assert harness("run", *words, "tracking.detail=light", "select_on=public").json["private_peeks"] == 0  # none shown
    assert harness("sweep", *grid).json["private_peeks"] == 2 + 2
    assert harness("sweep", *grid).json["private_peeks"] == 4  # nothing new is seen
    public = harness("sweep", *grid, "select_on=public").json
    assert public["private_peeks"] == 5  # the best alone
    assert harness("compare", "experiment_name=e", "select_on=all", "format=json").code == 0
    assert harness("run", *words, "experiment_name=f").json["private_peeks"] == 1
    assert harness("run", *words).json["private_peeks"] == 5 + 1 + 1
    assert harness("run", *words, "tracking=none").json["private_peeks"] == 0
    said = harness("sweep", *grid[:-1], "select_on=public", "experiment_name=f").out
    assert "Private scores of experiment 'f' have been seen 2 times" in said


@pytest.mark.slow
def test_what_to_expect_counts_all_runs_whichever_sweep_made_them(tracked):
    """A result of another sweep has the trial number of that sweep, so that two trials may have number 0.

    The two queries score 1.09 and 1.15, so that three lists are possible; runs that return the same count once.
    """
    harness, _, _ = tracked
    for thresholds, runs in [("0,99", 2), ("99,98,0,1", 2), ("0,1.1", 3), ("99,98", 3)]:
        found = harness("sweep", *TOY, "gate=score", "format=json", f"gate.threshold={thresholds}").json
        assert found["expected"]["runs"] == runs, thresholds


@pytest.mark.slow
def test_a_swept_seed_deals_the_folds_as_well(harness):
    """A trial is the run that the same words make, and another seed deals the queries into other folds."""
    words = ("dataset=sample", "tokenizer=whitespace", *QUIET, "gate=auto", "gate.signals=[top_score,margin]")
    folder = Path(harness("sweep", *words, "seed=0,1").json["files"]["folder"])
    tables = []
    for number in (0, 1):
        single = Path(harness("run", *words, f"seed={number}").json["files"]["folder"])
        tables.append((single / "scores.csv").read_text("utf-8"))
        assert (folder / "trials" / str(number) / "scores.csv").read_text("utf-8") == tables[-1]
    assert tables[0] != tables[1]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["abstention_f1", "abstention_auroc"])
def test_an_objective_that_is_no_mean_of_the_same_queries(tracked, objective):
    """What to expect cannot be computed from scores by query; the sweep works all the same."""
    harness, _, _ = tracked
    words = ("gate=score", "gate.threshold=0,1,3", f"metrics=[modified_map@3,{objective}]", f"objective={objective}")
    done = harness("sweep", *SAMPLE, *words)
    assert done.code == 0, done.err
    expected = done.json["expected"]
    assert expected is None or expected["best"] == pytest.approx(done.json["best"]["value"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("select_on=all,public",), 0),
        (("gate=score", "gate.signal=coverage,background"), 0),
        (("retriever=dense", "encoder=lsa", "tokenizer=word,whitespace"), 1),  # nobody reads tokens
        (("retriever=dense", "encoder=lsa", "tokenizer=word,whitespace", "gate=score", "gate.signal=coverage"), 0),
        (("gate=classifier", "encoder=lsa", "encoder.dimensions=1,2"), 1),  # nobody reads embeddings
        (("gate=classifier", "gate.embedding=true", "encoder=lsa", "encoder.dimensions=1,2"), 0),
        (("gate=fitted", "gate.file=one.json,same.json"), 1),
        (("gate=fitted", "gate.file=one.json,other.json"), 0),
        (("gate=llm", "llm.model=m", "llm.base_url=http://127.0.0.1:9", "llm.runtime.retries=1,2"), 1),
        (("gate=llm", "llm.model=m", "llm.base_url=http://127.0.0.1:9", "llm.runtime.parallel=1,2"), 1),
        (("gate=llm", "llm.model=m,n", "llm.base_url=http://127.0.0.1:9"), 0),
        (("gate=llm", "llm.model=m", "llm.base_url=http://127.0.0.1:9", "gate.request.max_tokens=9,99"), 0),
    ],
)
def test_what_makes_a_trial_another_one(harness, toy, tmp_path, words, same):
    """Trials with the same key are the same: a key holds what decides a gate, and nothing else."""
    for name, threshold in (("one", 1.5), ("same", 1.5), ("other", 2.5)):
        rule = {"features": [["bm25", "top_score"]], "k": 10, "levels": [3, 0], "thresholds": [threshold]}
        (tmp_path / f"{name}.json").write_text(json.dumps({"rule": rule, "notes": [name]}))
    plan = harness("sweep", *TOY, *words, "dry_run=true", "format=json").json
    assert (plan["trials"], plan["cannot_run"], plan["same"]) == (2, 0, same)


@pytest.mark.slow
def test_a_model_gets_each_question_once_for_all_trials(tracked, monkeypatch):
    from chat_server import ChatServer

    harness, runs, _ = tracked
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    with ChatServer(lambda asked, time: "no" if "안녕" in asked else "yes") as server:
        words = ("gate=llm", "llm.model=tiny", f"llm.base_url={server.url}", "top_k=1,2", "fusion=rrf,combmnz",
                 "retriever=bm25,hybrid_lexical", "tokenizer=word", "store.path=fresh", "format=json")  # fmt: skip
        found = harness("sweep", *TOY, *words).json
        assert sorted(server.texts) == ["user: 달의 모양은 왜 변해?", "user: 물은 몇 도에서 끓어?", "user: 안녕"]
        assert found["trials"]["finished"] == 8
        again = harness("run", *TOY, *words[:3], "tokenizer=word", "store.path=fresh", "depth=3").code
        assert (again, len(server.asked)) == (0, 3)
    assert {run.metrics["abstention_recall"] for run in runs(harness__verb="run")} == {1.0}
