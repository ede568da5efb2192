"""Runs of text tasks in the other commands: exported, swept and compared."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from html_pages import data_of
from text_tasks import (
    ANSWERS,
    BETTER,
    BETTER_SCORED,
    CORRECTIONS,
    SCORE,
    SENTENCES,
    WORSE_SCORED,
    rows_of_predictions,
    rows_of_sentences,
    write,
)
from unpacking import unpacked

from harness.tasks.scored_file import in_public
from harness.tasks.task import JudgedItems

EXPORT = ("export", "task=corrections", "experiment_name=e", "format=json")
COMPARE = ("compare", "task=corrections", "experiment_name=e", "format=json")


def require_refused(harness, *words, expected):
    done = harness(*words)
    assert done.code == 2, done.err
    assert re.search(expected, done.err, re.S), done.err


@pytest.mark.slow
def test_the_best_submission_is_exported_as_it_was_given(harness, files, tmp_path):
    (files / "better.csv").write_bytes(b"\xef\xbb\xbf" + (files / "better.csv").read_bytes())  # with a BOM
    worse, better = harness(*WORSE_SCORED).json, harness(*BETTER_SCORED).json
    found = harness(*EXPORT, "submission=best.csv").json
    assert (found["run_id"], found["metric"], found["value"]) == (better["run_id"], "correction_recall", 0.75)
    assert (found["items"], found["number"], found["new"], found["model"]) == (5, 1, True, None)
    content = (tmp_path / "best.csv").read_bytes()
    assert content == (files / "better.csv").read_bytes()
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    [line] = (tmp_path / "outputs/submissions/ledger.jsonl").read_text("utf-8").splitlines()
    entered = json.loads(line)["export"]
    assert entered["metrics"]["public/correction_recall"] == better["public"]["correction_recall"]
    provenance = json.loads((tmp_path / "best.csv.provenance.json").read_text("utf-8"))
    assert provenance["made_with"]["data.references"] == entered["queries"]
    assert provenance["config"]["task"]["scheme"] == "token"
    named = harness(*EXPORT, f"run={worse['run_id']}").json
    assert re.fullmatch(rf"submission-[\d-]*-{worse['run_id'][:8]}\.csv", Path(named["submission"]).name)
    assert (named["value"], named["number"]) == (0.4, 2)
    assert harness(*EXPORT, "metric=correction_precision", "select_on=public").json["kind"] == "public"


@pytest.mark.slow
def test_changed_files_and_runs_of_other_tasks_are_not_exported(harness, files, toy, tmp_path):
    run = harness(*WORSE_SCORED).json["run_id"]
    text = (files / "R.csv").read_text("utf-8")

    def refused(*words, expected):
        require_refused(harness, "export", *words, "submission=s.csv", expected=expected)
        assert not (tmp_path / "s.csv").exists()

    (files / "R.csv").write_text(text.replace("집에 갔다", "집에 왔다"), "utf-8")
    refused(*EXPORT[1:3], expected=f"Run {run[:8]} .*: the references have changed .*R.csv")
    (files / "R.csv").write_text(text.replace("s5,", "s6,"), "utf-8")
    refused(*EXPORT[1:3], expected="s5.*s6|s6.*s5")
    (files / "R.csv").unlink()
    refused(*EXPORT[1:3], expected="R.csv")
    (files / "R.csv").write_text(text, "utf-8")
    refused(f"run={run}", expected=f"Run {run[:8]} .* is of task=corrections. Add task=corrections to the command")
    refused("task=answers", f"run={run}", expected=f"Run {run[:8]} .* is of task=corrections")
    refused("task=answers", "experiment_name=e", expected="Experiment 'e' has no finished run")
    refused("experiment_name=e", expected="Experiment 'e' has no finished run")
    refused(*EXPORT[1:3], "model=true", expected="Only retrieval runs can have")
    retrieved = harness("run", "dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "format=json").json
    refused("task=corrections", f"run={retrieved['run_id']}", expected="is of task=retrieval")
    assert harness(*EXPORT[:3], "submission=s.csv").code == 0


SWEEP = ("sweep", *CORRECTIONS, "predictions=worse.csv,better.csv", "task.scheme=token,span", "format=json")


@pytest.mark.slow
def test_a_sweep_over_files_and_schemes(harness, files, tracker):
    found = harness(*SWEEP).json
    rest = dict.fromkeys(("failed", "killed", "skipped", "reused", "same"), 0)
    assert found["trials"] == {"asked": 4, "finished": 4, **rest}
    [parent] = tracker.runs("e", {"harness.verb": "sweep"}, "FINISHED")
    children = tracker.runs("e", {"sweep.id": found["sweep_id"], "task": "corrections"}, "FINISHED")
    assert parent.run_id == found["run_id"]
    values = {}
    for child in children:
        assert child.tags["mlflow.parentRunId"] == parent.run_id
        assert (len(child.tags["trial_key"]), len(child.tags["data.references"])) == (64, 64)
        values[Path(child.params["predictions"]).name, child.params["task.scheme"]] = child.metrics["correction_recall"]
    # By spans the worse one has TP 1, FP 2, FN 1; the better one has one edit in each sentence, either way.
    assert values == {
        ("worse.csv", "token"): 0.4, ("worse.csv", "span"): 0.25, ("better.csv", "token"): 0.75,
        ("better.csv", "span"): 0.75,
    }  # fmt: skip
    best = {group["best"]["run_id"]: group["best"] for group in found["groups"]}  # one for each scheme
    assert [(one["value"], "better.csv" in one["overrides"][0]) for one in best.values()] == [(0.75, True)] * 2
    assert (found["best"], "best.run_id" in parent.tags) == (None, False)
    light = {"config.yaml", "predictions.csv", "tallies.csv"}
    full = {"items.csv", "items.json", "measures.png", "metrics.json", "report.html", "requirements.txt"}
    for child in children:
        names = {file.path for file in tracker.client.list_artifacts(child.run_id)}
        assert names == light | (full if child.run_id in best else set())
    # A trial is the run that the same words make.
    alone = tracker.run(harness(*WORSE_SCORED, "task.scheme=span").json["run_id"])
    [trial] = [run for run in children if run.params["task.scheme"] == "span" and "worse" in run.params["predictions"]]
    assert trial.params == alone.params
    for name in ("trial_key", "data.references", "data.predictions", "version.measures", "objective.kind"):
        assert trial.tags[name] == alone.tags[name]
    assert {name: one for name, one in trial.metrics.items() if not name.startswith("seconds")} == alone.metrics
    # And it is exported whole, though it was logged light.
    exported = harness(*EXPORT, f"run={trial.run_id}").json
    assert Path(exported["submission"]).read_bytes() == (files / "worse.csv").read_bytes()
    # Of two schemes, runs of the one that is asked for are compared.
    for scheme, gap in (("token", 0.35), ("span", 0.5)):
        compared = harness(*COMPARE, f"task.scheme={scheme}").json
        assert any(f"Only runs of task.scheme={scheme}" in note for note in compared["notes"])
        assert any(note.startswith("No texts of") for note in compared["notes"])
        assert compared["differences"][0]["mean"] == pytest.approx(gap)
    for command in (COMPARE, EXPORT):
        require_refused(harness, *command, "metric=corection_recall", expected="Did you mean 'correction_recall'")
    require_refused(harness, "reproduce", f"run={trial.run_id}", expected="scored a file of task=corrections")


@pytest.mark.slow
def test_a_sweep_started_again_skips_what_finished(harness, files):
    words = ("sweep", *CORRECTIONS, "predictions=worse.csv,better.csv", "format=json")
    first, again = harness(*words).json, harness(*words).json
    assert (again["trials"]["skipped"], again["plan"]["finished_before"]) == (2, 2)
    assert (again["run_id"], again["best"]) == (first["run_id"], first["best"])
    (files / "worse.csv").write_bytes((files / "worse.csv").read_bytes().replace("갓따".encode(), "갔다".encode()))
    assert harness(*words).json["trials"]["skipped"] == 1  # the other file is what it was


def test_a_trial_whose_objective_is_absent_fails_with_the_reason(harness, answers, tracker):
    done = harness("sweep", *ANSWERS[:3], "task.bertscore=null", "task.bleurt=null", "task.tokenizer=whitespace",
                   "seed=0,1", "experiment_name=e", "format=json")  # fmt: skip
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["trials"]["finished"], found["trials"]["failed"], found["best"]) == (0, 2, None)
    assert "objective=final_score is absent: needs bertscore, bleurt" in found["failed"][0]["error"]
    failed = tracker.runs("e", {}, "FAILED")
    assert len([run for run in failed if "sweep.trial" in run.tags]) == 2


@pytest.fixture
def rivals(harness, tmp_path):
    """20 sentences that need one edit each. A right in all 8 public and 3 of 12 private ones, B in 4 and 9."""
    ids = tuple(f"s{number:02}" for number in range(20))
    kinds = tuple(("조사", "맞춤법")[number % 2] for number in range(20))
    public = in_public(JudgedItems({}, {"id": ids, "kind": kinds}), seed=0, public=0.4)
    ordered = [ids[i] for i in (*np.flatnonzero(public), *np.flatnonzero(~public))]
    sentences = {one: (kind, f"문장 {one} 틀림", f"문장 {one} 맞음") for one, kind in zip(ids, kinds, strict=True)}
    right = {"a": ordered[:11], "b": [*ordered[:4], *ordered[8:17]]}
    write(tmp_path / "R.csv", rows_of_sentences(sentences))
    for name, those in right.items():
        made = {one: sentences[one][2 if one in those else 1] for one in ids}
        write(tmp_path / f"{name}.csv", rows_of_predictions(made))
    return [harness(*SCORE, f"predictions={name}.csv").json for name in right]


def test_two_submissions_of_which_one_wins_in_public_and_the_other_in_private(harness, rivals):
    a, b = rivals
    assert (a["public"]["correction_recall"], a["private"]["correction_recall"]) == (1, 3 / 12)
    assert (b["public"]["correction_recall"], b["private"]["correction_recall"]) == (4 / 8, 9 / 12)
    found = harness(*COMPARE).json
    assert [(run["run_id"], run["metrics"]["correction_recall"]) for run in found["runs"]] == [
        (b["run_id"], 13 / 20), (a["run_id"], 11 / 20),
    ]  # fmt: skip
    ranks = [(run["public"], run["public_rank"], run["private"], run["private_rank"]) for run in found["runs"]]
    assert ranks == [(0.5, 2, 0.75, 1), (1.0, 1, 0.25, 2)]
    assert (found["task"], found["metric"], found["items"]) == ("corrections", "correction_recall", 20)
    # Ten items differ: B is right on 6 of them, A on 4. Each way to swap gives another sum of ten signs, and at least
    # 2 away from 0 are all but the C(10, 5) = 252 of 1,024.
    one = of_recall(found["differences"])[0]
    assert (one["n"], one["wins"], one["ties"], one["losses"]) == (20, 6, 10, 4)
    assert one["mean"] == pytest.approx(0.1)
    assert one["low"] < 0 < one["high"]
    assert one["note"] == "fewer than 20 items differ: trust p, not the interval"
    [test] = of_recall(found["tests"])
    assert (test["p"], test["p_holm"], test["exact"], test["pairs"]) == (1 - 252 / 1024, 1 - 252 / 1024, True, 1)
    assert found["verdicts"][0].startswith("No difference between A and B can be told on 20 items: correction_recall")
    # B is .5 better on the private part, and how often the parts would disagree.
    [note] = [note for note in found["notes"] if note.startswith("Public and private")]
    assert note == (
        "Public and private disagree on the winner (the public winner is 0.500 behind in the private part): "
        "expected for runs this close."
    )
    assert any(note.startswith("By correction_recall, with 40 % public: in ") for note in found["notes"])
    shaken = found["shake_up"]
    assert shaken["draws"] == 1000
    assert 0 < shaken["winner_loses"] < 1
    assert [sum(run["shifts"].values()) for run in shaken["runs"]] == [1000, 1000]
    splits = {one["part"]: (one["n"], one["mean"]) for one in of_recall(found["splits"])}
    assert (splits["public"], splits["private"]) == ((8, -0.5), (12, 0.5))
    assert splits["조사"][0] == splits["맞춤법"][0] == 10
    assert {abs(item["difference"]) for item in found["changed"]} == {1}
    assert len(found["changed"]) == 10
    assert set(found["changed"][0]["predictions"]) == {"A", "B"}
    assert found["changed"][0]["source"].endswith("틀림")


def of_recall(rows):
    return [row for row in rows if row["measure"] == "correction_recall"]


@pytest.mark.slow
@pytest.mark.drawn
def test_a_comparison_leaves_its_files_and_a_run(harness, rivals, tracker):
    found = harness(*COMPARE).json
    files = {name: Path(file).read_text("utf-8") for name, file in found["files"].items()}
    for name in ("md", "html"):
        assert "the public winner is not the private winner" in files[name]
    page = data_of(files["html"])
    assert {"Differences in all measures", "How ranks move from public to private"} <= {
        one["title"] for one in page["sections"]
    }
    assert [run["short"] for run in page["runs"]] == ["A: b.csv", "B: a.csv"]
    one = json.loads(unpacked(page["queries"]["queries"][0]["about"]))  # s00 is right in both
    assert ["source", "문장 s00 틀림"] in one["texts"]
    assert ["reference", "문장 s00 맞음"] in one["texts"]
    assert sum(["맞음", "tp"] in said for said in one["said"]) == 2
    [logged] = tracker.runs("e", {"harness.verb": "compare"}, "FINISHED")
    assert logged.metrics["p_holm/A-B"] == found["tests"][0]["p_holm"]
    assert "Public and private disagree on the winner" in harness(*COMPARE[:-1]).out


def test_a_board_of_submissions_has_the_p_of_their_comparison(harness, rivals):
    found, board = harness(*COMPARE).json, harness("board", *COMPARE[1:]).json
    assert (board["items"], board["expected"], board["facts"]) == (20, None, [])
    assert [row["run_id"] for row in board["rows"]] == [run["run_id"] for run in found["runs"]]
    [test], [one] = of_recall(found["tests"]), of_recall(found["differences"])
    second = board["rows"][1]
    assert (second["p"], second["p_holm"], second["difference"]) == (test["p"], test["p_holm"], pytest.approx(-0.1))
    page = data_of(Path(board["files"]["html"]).read_text("utf-8"))
    assert (page["head"]["task"], page["matters"], page["nouns"]) == ("corrections", None, ["item", "items"])
    pairs = json.loads(unpacked(page["pairs"]))
    assert pairs["all"] == [
        [0, 1, *(pytest.approx(one[name], abs=1e-6) for name in ("mean", "low", "high")), test["p"]]
    ]
    means = {one["part"]: pytest.approx(one["mean"]) for one in of_recall(found["splits"])}
    assert (pairs["public"][0][2], pairs["private"][0][2]) == (means["public"], means["private"])
    assert "by correction_recall, public, 8 items" in harness("board", *COMPARE[1:3], "select_on=public").out


@pytest.mark.slow
def test_submissions_scored_by_other_rules_are_not_compared(harness, files):
    def refused(*runs, expected):
        require_refused(harness, *COMPARE[:-1], f"runs=[{','.join(runs)}]", expected=expected)

    first = harness(*WORSE_SCORED).json["run_id"]
    spans = harness(*BETTER_SCORED, "task.scheme=span").json["run_id"]
    refused(first, spans, expected="was scored with task.scheme=span, but run .* with token")
    parts = harness(*BETTER_SCORED, "public=0.6").json["run_id"]
    refused(first, parts, expected="have different public parts")
    (files / "R.csv").write_text((files / "R.csv").read_text("utf-8").replace("집에 갔다", "집에 왔다"), "utf-8")
    other = harness(*BETTER_SCORED).json["run_id"]
    refused(first, other, expected="does not have the references of run .*data.references is")
    refused(first, first[:8], expected="twice")
    expected = "is of task=corrections. Add task=corrections"
    require_refused(harness, "compare", f"runs=[{first},{spans}]", expected=expected)
    assert not (files / "outputs" / "comparisons").exists()


@pytest.mark.slow
def test_items_are_compared_by_id_whatever_the_order_and_columns_of_their_files(harness, files):
    write(files / "R.jsonl", rows_of_sentences(SENTENCES)[::-1])
    write(files / "renamed.csv", [{"id": one, "fixed": text} for one, text in BETTER.items()])
    harness(*WORSE_SCORED)
    harness(*SCORE, "predictions=renamed.csv", "task.columns.prediction=fixed", "references=R.jsonl")
    found = harness(*COMPARE).json
    assert [run["name"] for run in found["runs"]] == ["renamed.csv", "worse.csv"]
    assert not [note for note in found["notes"] if note.startswith("Public and private")], "the same wins both parts"
    one = found["differences"][0]
    # 1 and 1/2, 0 and 1, 1 and 0, 1 and 1, 1 and 0.
    assert (one["measure"], one["wins"], one["ties"], one["losses"]) == ("correction_recall", 3, 1, 1)
    assert {item["id"]: item["difference"] for item in found["changed"]} == {"s1": 0.5, "s2": -1, "s3": 1, "s5": 1}
