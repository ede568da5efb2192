"""`harness sweep`: one parent run, one child per trial, every retrieval once, and resuming after any interruption."""

import csv
import json
import shutil
from functools import cached_property
from pathlib import Path

import pytest
import yaml
from interruptions import interrupted
from logged_runs import TOY

from harness.experiment import steps
from harness.recording.logged_run import in_full
from harness.sweeps import ending, search
from harness.sweeps.recommendation import Edge
from harness.tracking import mlflow_rows
from harness.tracking.mlflow_tracker import MlflowTracker
from retrievers.lexical.bm25 import BM25

GRID = ("sweep", *TOY, "gate=score", "gate.threshold=0,1,2", "top_k=1,3", "format=json")
PAIR = ("sweep", *TOY, "gate=score", "gate.threshold=0,1", "format=json")
QUIET = ("tracking=none", "format=json")
NONE = dict.fromkeys(("failed", "killed", "skipped", "reused", "same"), 0)


class Store:
    """The runs of experiment e, which nothing opens before it is asked."""

    def __init__(self, folder):
        self.folder = folder

    @cached_property
    def tracker(self):
        tracker = MlflowTracker()
        tracker.connect(self.folder / "outputs")
        return tracker

    @property
    def client(self):
        return self.tracker.client

    def __call__(self, status=None, **tags):
        """The runs with these tags (`__` for dots), oldest first."""
        return self.tracker.runs("e", {name.replace("__", "."): value for name, value in tags.items()}, status)[::-1]

    def trials(self, sweep):
        return self(sweep__id=sweep["sweep_id"], harness__verb="run")

    def file(self, run_id, name):
        return Path(self.client.download_artifacts(run_id, name)).read_text("utf-8")

    def names(self, run_id):
        return {file.path for file in self.client.list_artifacts(run_id)}

    def view(self, name):
        """What a view of the experiment's page shows: its settings, and run -> tags."""
        experiment = self.client.get_experiment_by_name("e")
        view = json.loads(experiment.tags[f"mlflow.sharedViewState.{name}"])
        listed = self.client.search_runs([experiment.experiment_id], view["searchFilter"])
        return view, {run.info.run_id: run.data.tags for run in listed}


@pytest.fixture
def runs(tmp_path):
    return Store(tmp_path)


# ---- What a sweep leaves


@pytest.mark.slow
def test_a_grid_is_a_parent_run_with_a_child_for_each_trial(logged, runs):
    [done] = logged(GRID)
    found = done.json
    assert found["trials"] == {"asked": 6, "finished": 6} | NONE
    [parent] = runs(harness__verb="sweep")
    children = runs.trials(found)
    assert (parent.run_id, parent.status, len(children)) == (found["run_id"], "FINISHED", 6)
    for child in children:
        assert (child.status, child.tags["mlflow.parentRunId"]) == ("FINISHED", parent.run_id)
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
    assert (parent.metrics["trials/asked"], parent.metrics["trials/finished"]) == (6, 6)
    assert runs.names(parent.run_id) == {"board.html", "objective.png", "summary.json", "trials.csv", "trials.json"}
    table = json.loads(runs.file(parent.run_id, "trials.json"))
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert {row["run_id"]: row["modified_map@3"] for row in rows} == values
    assert [(row["gate.threshold"], row["top_k"]) for row in rows][:2] == [(0, 1), (0, 3)]
    # The best child is logged in full, and the others light.
    light = {"config.yaml", "predictions.jsonl", "scores.csv"}
    more = {"gate.png", "metrics.json", "overview.png", "queries.json", "report.html", "requirements.txt", "run.trec"}
    for child in children:
        full = child.run_id == best["run_id"]
        assert runs.names(child.run_id) == (light | more if full else light)
        first = json.loads(runs.file(child.run_id, "predictions.jsonl").splitlines()[0])
        assert any("content" in reference for reference in first["references"]) == full
        assert ("interval_low/mrr" in in_full(runs.tracker, child).metrics) == full


def test_a_child_is_the_run_that_the_same_words_make(logged, harness, runs):
    """Its key, numbers, params and config; and a light one is exported whole."""
    found = logged(GRID)[0].json
    worst = found["top"][-1]
    light = harness("export", f"run={worst['run_id']}", "format=json").json
    single = harness("run", *TOY, "gate=score", *worst["overrides"], "format=json").json
    assert Path(light["submission"]).read_bytes() == Path(single["files"]["predictions"]).read_bytes()
    alone, child = (next(run for run in runs() if run.run_id == one["run_id"]) for one in (single, worst))
    assert child.tags["trial_key"] == alone.tags["trial_key"]
    assert child.metrics.items() <= alone.metrics.items() | {(k, v) for k, v in child.metrics.items() if "sec" in k}
    assert child.params == alone.params
    configs = [yaml.safe_load(runs.file(run.run_id, "config.yaml")) for run in (child, alone)]
    assert configs[0] | {"outputs": "", "store": ""} == configs[1] | {"outputs": "", "store": ""}


def test_tracking_none_keeps_the_files_in_the_sweeps_folder(harness, toy):
    """Of several objectives the first ranks, where none is named; they have a front."""
    found = harness(*GRID, "tracking=none", "objectives=[ndcg@10,ms_per_query]").json
    assert found["run_id"] is None
    folder, best = Path(found["files"]["folder"]), Path(found["files"]["best"])
    assert sorted(path.name for path in (folder / "trials").iterdir()) == list("012345")
    light = {"config.yaml", "predictions.jsonl", "scores.csv"}
    assert {path.name for path in (folder / "trials" / "0").iterdir()} == light
    assert (best / "overview.png").is_file()
    assert len((folder / "summary" / "trials.csv").read_text().splitlines()) == 7
    assert {"ndcg@10", "ms_per_query"} == set(found["best"]["objectives"])
    values = [row["objectives"]["ndcg@10"] for row in found["top"]]
    assert values == sorted(values, reverse=True)
    assert found["best"]["trial"] in {row["trial"] for row in found["front"]}


@pytest.mark.local
def test_a_dry_run_prints_the_plan_and_leaves_no_files(harness, toy, tmp_path):
    (tmp_path / "outputs" / "mlflow.db").unlink()
    said = harness("sweep", *TOY, "gate=score", "gate.threshold=range(0,20)", "dry_run=true", "store.path=fresh").text
    assert "20 trials, 1 retrieval to compute, 0 cached" in said
    assert list((tmp_path / "outputs").iterdir()) == []
    plan = harness("sweep", *TOY, *QUIET, "tokenizer=glob(w*)", "top_k=range(1,4)", "dry_run=true").json
    assert (plan["trials"], plan["jobs"]) == (6, [3, 3])


@pytest.mark.slow
def test_every_retrieval_is_computed_once_at_the_greatest_depth(harness, toy, monkeypatch, untimed):
    searches, plain = [], BM25.search
    monkeypatch.setattr(BM25, "search", lambda self, queries, k: searches.append(k) or plain(self, queries, k))
    words = (*TOY, *QUIET, "retriever=bm25,hybrid_lexical", "tokenizer=word", "depth=2,3", "top_k=1", "fusion=rrf")
    found = harness("sweep", *words, "fusion.k=1,60", "store.path=fresh").json
    assert found["plan"]["retrievals"] == {"compute": 2, "cached": 0}
    assert searches == [3, 3]
    # One retriever makes no use of fusion.k: 2 of its 4 trials are the same as others.
    assert (found["trials"]["asked"], found["trials"]["same"]) == (8, 2)
    plan = found["plan"]
    assert (plan["jobs"], plan["expensive"], plan["free"]) == ([2, 4], ["retriever"], ["depth", "fusion.k"])


# ---- Trials that fail, and sweeps that are started again


@pytest.mark.slow
def test_what_finished_is_skipped_and_what_a_crash_left_running_is_closed(logged, harness, runs):
    first = logged(PAIR)[0].json
    ids = [run.run_id for run in runs.trials(first)]
    runs.client.update_run(ids[1], status="RUNNING")
    runs.client.update_run(first["run_id"], status="RUNNING")
    again = harness(*PAIR).json
    assert (again["trials"]["skipped"], again["plan"]["finished_before"]) == (1, 1)
    assert (again["run_id"], again["best"]) == (first["run_id"], first["best"])
    found = {run.run_id: run.status for run in runs.trials(first)}
    assert {run_id: found.pop(run_id) for run_id in ids} == {ids[0]: "FINISHED", ids[1]: "KILLED"}
    assert [*found.values()] == ["FINISHED"]
    assert runs(harness__verb="sweep")[0].status == "FINISHED"
    # A larger grid is another sweep; it skips the trials that it shares with the first.
    more = harness("sweep", *TOY, "gate=score", "gate.threshold=0,1,3", "format=json").json
    assert more["sweep_id"] != first["sweep_id"]
    assert (more["trials"]["finished"], more["trials"]["skipped"]) == (3, 2)


@pytest.mark.slow
def test_the_view_of_a_sweep_lists_the_runs_that_it_reused(harness, toy, runs):
    """One run belongs to as many sweeps as have reused it."""
    single = harness("run", *TOY, "top_k=3", "format=json").json["run_id"]
    views = []
    for words in ("top_k=1,3", "top_k=2,3"):
        found = harness("sweep", *TOY, words, "format=json").json
        _, ranked = runs.view("runs")
        assert {tags["harness.verb"] for tags in ranked.values()} == {"run"}  # the sweep itself ranks nowhere
        tag = f"sweep.{found['sweep_id']}"
        view, listed = runs.view(f"sweep-{found['sweep_id']}")
        assert f"tags.`{tag}`" in view["selectedColumns"]
        [own] = listed.keys() - {single}
        assert {run_id: tags[tag] for run_id, tags in listed.items()} == {single: "reused", own: "computed"}
        assert {row["run_id"]: row["reused"] for row in found["top"]} == {single: True, own: False}
        assert found["trials"]["reused"] == 1
        assert "1 of the trials reused" in runs.client.get_run(found["run_id"]).data.tags["mlflow.note.content"]
        views.append(own)
    assert len({*views}) == 2


@pytest.mark.slow
def test_trials_that_fail_are_recorded_and_the_others_go_on(harness, toy, runs, monkeypatch):
    """One fails by itself, two by the retrieval that they need."""
    conclude, search_all = steps.conclude, BM25.search

    def one_broken(config, *arguments, **named):
        if config.gate["threshold"] == 1:
            raise ZeroDivisionError("of this trial alone")
        return conclude(config, *arguments, **named)

    def retrieval_broken(self, queries, k):
        if self.k1 == 9:
            raise MemoryError("too large")
        return search_all(self, queries, k)

    words = (*PAIR, "retriever.bm25.k1=1,9", "store.path=fresh")
    with monkeypatch.context() as patch:
        patch.setattr(steps, "conclude", one_broken)
        patch.setattr(BM25, "search", retrieval_broken)
        done = harness(*words)
    found = json.loads(done.out)
    assert (done.code, found["trials"]["finished"], found["trials"]["failed"]) == (1, 1, 3)
    said = ["MemoryError: too large", "MemoryError: too large", "ZeroDivisionError: of this trial alone"]
    assert sorted(row["error"] for row in found["failed"]) == said
    failed = runs("FAILED", harness__verb="run")
    assert sorted(runs.file(run.run_id, "traceback.txt").strip().splitlines()[-1] for run in failed) == said
    assert runs(harness__verb="sweep")[0].status == "FAILED"
    again = harness(*words).json
    assert (again["trials"]["finished"], again["trials"]["skipped"]) == (4, 1)
    assert runs(harness__verb="sweep")[0].status == "FINISHED"


@pytest.mark.slow
def test_ctrl_c_closes_the_records_and_the_sweep_goes_on_later(harness, toy, runs, monkeypatch, tmp_path):
    words = ("sweep", *TOY, "gate=score", "gate.threshold=0,1,2", "format=json")
    with interrupted(monkeypatch, 2):
        done = harness(*words)
    assert done.code == 130
    assert "Repeat the same command to resume" in done.err
    assert [run.status for run in runs(harness__verb="run")] == ["FINISHED", "KILLED"]
    assert runs(harness__verb="sweep")[0].status == "KILLED"
    again = harness(*words).json
    assert (again["trials"]["finished"], again["trials"]["skipped"]) == (3, 1)
    assert [run.status for run in runs(harness__verb="sweep")] == ["FINISHED"]
    assert not list((tmp_path / "outputs" / "sweeps" / again["sweep_id"]).glob("trials/*"))


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.parametrize(("trials", "bulk"), [("all", "true"), ("all", "false"), ("best:1", "true")])
def test_trials_killed_between_their_files_and_their_rows_are_logged_later(
    harness, toy, runs, monkeypatch, trials, bulk
):
    """Also if the next start logs through the client, into other runs."""
    words = (*PAIR, f"tracking.trials={trials}")
    with monkeypatch.context() as patch:
        patch.setattr(mlflow_rows, "write_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert harness(*words).code == 130
    assert runs(harness__verb="run") == []
    again = harness(*words, f"tracking.bulk={bulk}").json
    assert (again["trials"]["finished"], again["trials"]["skipped"]) == (2, 2)
    logged = runs("FINISHED", harness__verb="run")
    assert len(logged) == (2 if trials == "all" else 1)
    assert all({"scores.csv", "predictions.jsonl"} <= runs.names(run.run_id) for run in logged)
    assert not list(Path(again["files"]["folder"]).glob("trials/*.unfinished"))


@pytest.mark.slow
def test_only_the_best_trials_become_runs_and_the_others_stay_in_the_table(harness, toy, runs, monkeypatch, tmp_path):
    words = ("sweep", *TOY, "gate=score", "gate.threshold=0,1,2,9", "tracking.trials=best:2", "format=json")
    with interrupted(monkeypatch, 3):
        assert harness(*words).code == 130
    assert runs(harness__verb="run") == []
    found = harness(*words).json
    assert (found["trials"]["finished"], found["trials"]["skipped"]) == (4, 2)
    logged = runs(harness__verb="run")
    ids = {row["run_id"]: row["value"] for row in found["top"] if row["run_id"]}
    assert {run.run_id for run in logged} == {*ids}
    assert [row["run_id"] in ids for row in found["top"]] == [True, True, False, False]
    assert {run.run_id: run.metrics["objective"] for run in logged} == ids
    with Path(found["files"]["folder"], "summary", "trials.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert [bool(row["modified_map@3"]) for row in rows] == [True] * 4
    assert sorted(filter(None, (row["run_id"] for row in rows))) == sorted(ids)
    assert found["expected"]["runs"] >= 2
    again = harness(*words).json
    assert (again["trials"]["skipped"], again["top"]) == (4, found["top"])
    assert len(runs(harness__verb="run")) == 2
    assert harness(*words, "dry_run=true").json["finished_before"] == 4
    listed = harness("runs", f"run={found['run_id']}", "experiment_name=e").out
    assert "Trials of" in listed
    assert "best 2 as runs" in " ".join(listed.split())
    assert "sweep, 4 trials" in harness("runs", "experiment_name=e").out
    assert "2 trials are in trials.csv alone" in " ".join(harness(*words[:-1]).out.split())
    # The same trials as runs, without computing them again.
    everything = harness(*words[:-2], "format=json").json
    assert (everything["trials"]["finished"], len(runs("FINISHED", harness__verb="run"))) == (4, 4)


def test_a_sweep_that_is_running_is_not_started_twice(harness, toy, tmp_path):
    from filelock import FileLock

    folder = tmp_path / "outputs" / "sweeps" / harness(*PAIR, "dry_run=true").json["sweep_id"]
    folder.mkdir(parents=True)
    with FileLock(folder / "lock"):
        assert "already running" in harness(*PAIR, *QUIET).refusal


# ---- What is refused


@pytest.fixture
def other(toy):
    """A second data set: the same documents and queries, other labels."""
    folder = toy.parent / "other"
    shutil.copytree(toy, folder)
    (folder / "qrels.jsonl").write_text('{"eval_id": 7, "relevant": ["d3"]}\n{"eval_id": 3, "relevant": ["d1"]}\n')
    return folder


@pytest.mark.slow
def test_bad_input_is_refused_before_anything_runs(harness, other, tmp_path):
    (tmp_path / "unlabelled").mkdir()
    for name in ("documents.jsonl", "eval.jsonl"):
        shutil.copyfile(other / name, tmp_path / "unlabelled" / name)
    drawn = ("search=random", "top_k=int(interval(1,3))")
    for words, expected in {
        ("gate=score", "gate.treshold=1,2"): "Did you mean 'gate.threshold'",
        ("retriever=bm25,dens",): "Did you mean 'dense'",
        ("gate=none,auto", "gate.threshold=1,2"): "gate.threshold is unknown here: none of gate=none,auto has it",
        ("top_k=500,600",): "depth=100 is less than top_k=500",
        ("top_k=1,2", "search=annealing"): "search=annealing: there is no such choice",
        ("top_k=1,2", "objectives=[ndcg@10]", "objective=mrr"): "must begin with the objective that ranks the trials",
        ("top_k=1,2", "objectives=[modified_map@3,speed]"): "speed",
        ("top_k=1,2", "hydra/sweeper=basic"): "hydra/sweeper is refused",
        ("top_k=interval(1,5)",): "Or let a sampler choose: search=tpe",
        ("sweep=treshold",): "Did you mean 'threshold'",
        ("+gate.k=1,2",): "gate.k",  # the gate `none` takes no k
        ("top_k=1,2", "dataset.path=unlabelled"): "A sweep needs labels",
        ("dataset.path=toy,other", *drawn): "dataset.path decides which data or which rules score a trial",
        ("select_on=public", "public=0.4,0.9", *drawn): "public decides",
    }.items():
        assert expected in harness("sweep", *TOY, *QUIET, *words).refusal, words
    assert not list((tmp_path / "outputs").glob("sweeps/*/trials"))


@pytest.mark.slow
def test_hydras_own_multirun_and_flags_are_left_alone(harness, toy, runs):
    grid = (*TOY, "top_k=1,3")
    assert harness("run", "-m", *grid).code == 0
    assert len(runs(harness__verb="run")) == 2
    assert not runs(harness__verb="sweep")
    assert "hydra" not in yaml.safe_load(harness("sweep", *TOY, "--cfg", "job").out)
    assert "BasicLauncher" in harness("sweep", *TOY, "--cfg", "hydra").out
    assert "search" in harness("sweep", "--help").out
    assert harness("sweep", "-m", *grid, "format=json").json["trials"]["skipped"] == 2


# ---- Trials that do not compare, and the one to take


def test_data_sets_are_ranked_apart(harness, other, runs):
    words = (TOY[0], *TOY[2:], "dataset.path=toy,other", "gate=score", "gate.threshold=99,0", "format=json")
    found = harness("sweep", *words).json
    assert found["best"] is None
    by_folder = {"toy": set(), "other": set()}
    for run in runs(harness__verb="run"):
        by_folder[Path(run.params["dataset.path"]).name].add(run.run_id)
    # In one ranking the best run of the second data set would stand before the worst of the first.
    values = {"toy": [1, 1 / 3], "other": [1 / 2, 0]}
    for place, (group, (name, own)) in enumerate(zip(found["groups"], by_folder.items(), strict=True)):
        assert group["apart"] == {"dataset.path": name}
        assert [row["value"] for row in group["top"]] == pytest.approx(values[name])
        assert {row["run_id"] for row in group["top"]} == own
        assert group["best"]["run_id"] == group["top"][0]["run_id"]
        # The best of each is logged in full, and each has a view.
        assert "ceiling/oracle_rerank" in runs.client.get_run(group["best"]["run_id"]).data.metrics
        assert runs.view(f"sweep-{found['sweep_id']}-{place}")[1].keys() == own
    means = [system["mean"] for system in found["systems"]]
    assert means == sorted(means, reverse=True)
    assert runs.client.get_run(found["run_id"]).data.metrics["mean/modified_map_at_3"] == means[0]
    refused = harness("export", f"run={found['run_id']}", "experiment_name=e").refusal
    assert "without a single best trial" in refused


def test_a_sweep_stands_for_the_trial_that_it_recommends(logged, harness):
    found = logged(("sweep", *TOY, "gate=score", "gate.threshold=0,0.4,0.8,2", "format=json"))[0].json
    sweep, best, others = found["run_id"], found["best"]["run_id"], [row["run_id"] for row in found["top"][1:]]
    assert len(found["tied"]) == 3
    assert harness("export", f"run={sweep}", "experiment_name=e", "format=json").json["run_id"] == best
    compared = harness("compare", f"runs=[{sweep},{others[0]}]", "experiment_name=e", "format=json").json
    assert [run["run_id"] for run in compared["runs"]] == [best, others[0]]
    assert "twice" in harness("compare", f"runs=[{sweep},{best}]", "experiment_name=e").err


def test_a_key_applies_to_the_trials_whose_choices_have_it(harness, toy, runs):
    """The one trial without a gate is there once, and the path of a data set leaves the sample alone."""
    words = ("dataset=sample,contest", *TOY[1:], "gate=none,score", "gate.threshold=0,2", "gate.k=5")
    found = harness("sweep", *words, "format=json").json
    assert found["trials"]["asked"] == found["trials"]["finished"] == 6
    assert found["plan"]["only_with"] == {
        "dataset.path": ["dataset=contest"], "gate.threshold": ["gate=score"], "gate.k": ["gate=score"],
    }  # fmt: skip
    assert [group["apart"] for group in found["groups"]] == [{"dataset": "sample"}, {"dataset": "contest"}]
    assert len([system["mean"] for system in found["systems"] if system["mean"] is not None]) == 3
    params = [run.params for run in runs(harness__verb="run")]
    assert [one.get("gate.threshold") for one in params] == [None, "0", "2"] * 2
    assert ["dataset.path" in one for one in params] == [False] * 3 + [True] * 3


def test_a_best_value_at_the_edge_of_what_was_tried_is_told(harness, toy, monkeypatch):
    words = (*TOY, *QUIET)
    [note] = harness("sweep", *words, "gate=score", "gate.threshold=1,2,3").json["notes"]
    assert note.startswith("gate.threshold=1 is the least value tried, and scores best (1.0000 against 0.3333 at 2)")
    # What lies beyond must be possible: no run returns 0 documents.
    monkeypatch.setattr(ending, "edges", lambda *_: [Edge("top_k", "0", "none"), Edge("top_k", "4", "four")])
    notes = harness("sweep", *words, "top_k=1,2").json["notes"]
    assert ("four" in notes, "none" in notes) == (True, False)


# ---- Searches


@pytest.mark.slow
def test_a_search_that_was_interrupted_and_prolonged_proposes_what_it_would_have(harness, toy, monkeypatch):
    monkeypatch.setattr(search, "STARTUP", 3)
    words = ("sweep", *TOY[:2], *TOY[3:], "gate=score", "gate.threshold=interval(0,4)", "tokenizer=char_ngram,word",
             "search=tpe", "search.batch=3", "format=json")  # fmt: skip
    whole = harness(*words, "search.trials=6", "outputs=whole", "tracking=none").json
    with interrupted(monkeypatch, 2):
        assert harness(*words, "search.trials=3").code == 130
    later = harness(*words, "search.trials=6").json
    assert (later["sweep_id"], later["trials"]["asked"]) == (whole["sweep_id"], 6)
    assert [row["overrides"] for row in later["top"]] == [row["overrides"] for row in whole["top"]]
    assert [row["value"] for row in later["top"]] == [row["value"] for row in whole["top"]]


@pytest.mark.slow
def test_a_finite_search_says_how_far_it_is_drops_the_keys_of_other_choices_and_ends(harness, toy):
    words = (*TOY, "gate=none,score", "gate.threshold=1,2", "search=random", "search.seed=1", "store.path=fresh")
    done = harness("sweep", *words, "search.trials=50", "search.batch=2", "format=json")
    assert done.json["trials"] == {"asked": 4, "finished": 4} | NONE | {"same": 1}
    asked = {(one["overrides"][0], len(one["overrides"])) for one in done.json["top"]}
    assert asked == {("gate=none", 1), ("gate=score", 2)}
    so_far = f"best so far {done.json['best']['value']:.4f}"
    for said in ("50 trials of a search over gate, gate.threshold", "1 retrieval to compute", f"2/50, {so_far}",
                 f"4/50, {so_far}", "exhausted after 4 trials"):  # fmt: skip
        assert said in done.err
    assert "harness export " in harness("sweep", *words, "search.trials=4").out
    planned = harness("sweep", *words, "search.trials=4", "dry_run=true").out.splitlines()
    assert planned[1:] == [
        "skipping 4 trials that finished before", "only with gate=score: gate.threshold", "nothing to run",
    ]  # fmt: skip


# ---- What trials are ranked by

SAMPLE = ("tokenizer=whitespace", "experiment_name=e", "format=json")


@pytest.mark.slow
def test_a_fitted_trial_counts_with_what_it_scores_out_of_fold(harness, runs):
    """The gate that learns is better in sample than none, and not on queries whose labels it has not seen."""
    found = harness("sweep", *SAMPLE, "gate=none,auto").json
    none, auto = (run.metrics for run in runs.trials(found))
    in_sample = harness("run", *SAMPLE, "gate=auto", "tracking=none").json["metrics"]["modified_map@3"]
    values = [none["modified_map_at_3"], auto["oof/modified_map_at_3"]]
    assert in_sample > values[0] > values[1]
    assert found["best"]["trial"] == 0
    assert [(row["trial"], row["value"], row["kind"]) for row in found["top"]] == [
        (0, values[0], "in sample"), (1, values[1], "out of fold"),
    ]  # fmt: skip
    assert [none["objective"], auto["objective"]] == values
    low, high = auto["objective_low"], auto["objective_high"]
    assert found["top"][1]["interval"] == [low, high]
    assert low < values[1] < high
    assert found["expected"]["best"] == pytest.approx(values[0])
    parent = runs.client.get_run(found["run_id"]).data
    assert parent.metrics["expected/value"] == found["expected"]["value"] <= values[0]
    assert found["expected"]["sentence"] in parent.tags["mlflow.note.content"]


def test_the_public_part_chooses_and_the_private_one_is_seen_of_the_best_alone(harness, runs):
    found = harness("sweep", *SAMPLE, "gate=none,auto", "select_on=public").json
    trials = runs.trials(found)
    public = [trials[0].metrics["public/modified_map_at_3"], trials[1].metrics["oof/public/modified_map_at_3"]]
    best = found["best"]["trial"]
    assert found["best"]["value"] == public[best] == max(public)
    assert {row["trial"]: (row["value"], row["kind"]) for row in found["top"]} == {
        0: (public[0], "public"), 1: (public[1], "public, out of fold"),
    }  # fmt: skip
    assert not [name for run in trials for name in run.metrics if "private/" in name]
    expected = found["expected"]
    assert (expected["how"], expected["private"]) == ("private", 36)
    assert expected["best"] == pytest.approx(public[best])
    private = in_full(runs.tracker, trials[best]).metrics
    assert expected["value"] == pytest.approx(private[f"{'oof/' if best else ''}private/modified_map_at_3"])
    assert found["private_peeks"] == 1
    assert runs.client.get_run(found["run_id"]).data.metrics["expected/value"] == expected["value"]


@pytest.mark.slow
def test_looks_at_private_scores_are_counted(harness, toy):
    words = (*TOY, "format=json")
    grid = ("sweep", *TOY, "gate=score", "gate.threshold=0,99", "format=json")
    assert harness("run", *words).json["private_peeks"] == 1
    assert harness("run", *words, "tracking.detail=light", "select_on=public").json["private_peeks"] == 0
    first, again = (harness(*grid).json for _ in range(2))
    assert (first["private_peeks"], again["private_peeks"]) == (1 + 2, 3)  # nothing new is seen
    assert harness(*grid, "select_on=public").json["private_peeks"] == 4  # the best alone
    assert harness("compare", "experiment_name=e", "select_on=all", "format=json").code == 0
    assert harness("run", *words).json["private_peeks"] == 4 + 1 + 1
    assert harness("run", *words, "tracking=none").json["private_peeks"] == 0
    said = harness(*grid[:-1], "select_on=public", "experiment_name=f").out
    assert "Private scores of experiment 'f' have been seen 1 time" in said


@pytest.mark.slow
def test_a_swept_seed_deals_the_folds_as_well(harness):
    words = ("dataset=sample", "tokenizer=whitespace", *QUIET, "gate=auto", "gate.signals=[top_score,margin]")
    folder = Path(harness("sweep", *words, "seed=0,1").json["files"]["folder"])
    single = Path(harness("run", *words, "seed=1").json["files"]["folder"])
    first, second = ((folder / "trials" / name / "scores.csv").read_text("utf-8") for name in "01")
    assert first != second == (single / "scores.csv").read_text("utf-8")
