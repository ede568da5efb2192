"""`harness score` for text tasks: its numbers, its run and files, and what it refuses."""

import re
from pathlib import Path

import pytest
from text_tasks import ANSWERS, CORRECTIONS, SENTENCES, WORSE, WORSE_SCORED, read, rows_of_predictions, write

from harness.recording.logged_run import in_full


@pytest.mark.slow
def test_corrections_are_scored_logged_and_written(harness, files, tracker):
    found = harness(*WORSE_SCORED).json
    assert found["metrics"] == {"correction_recall": 0.4, "correction_precision": 0.4}
    assert found["counts"] == {"items": 5, "public": 2, "tp": 2, "fp": 2, "fn": 1, "fr": 1}
    assert (found["task"], found["absent"], found["notes"], found["private_peeks"]) == ("corrections", {}, [], 1)
    view = tracker.client.get_experiment_by_name("e").tags["mlflow.sharedViewState.runs"]
    assert "metrics.`correction_precision`" in view  # a column of the experiment's page
    recall = found["summary"]["correction_recall"]
    assert recall["low"] < recall["mean"] == 0.4 < recall["high"]
    assert (recall["n"], recall["note"]) == (5, "percentile interval: fewer than 10 items")
    # By kind: TP 1, FP 2, FR 1 of 맞춤법, TP 1 of 조사, FN 1 of 띄어쓰기.
    assert found["by_kind"] == {
        "맞춤법": {"items": 2, "correction_recall": 1 / 3, "correction_precision": 1 / 4},
        "조사": {"items": 2, "correction_recall": 1, "correction_precision": 1},
        "띄어쓰기": {"items": 1, "correction_recall": 0, "correction_precision": 0},
    }
    # The public part is one item each of the two kinds that have two: what it scores is in the table of counts.
    folder = Path(found["files"]["folder"])
    table = read(folder / "tallies.csv")
    assert [row["id"] for row in table] == list(SENTENCES)
    assert sorted(row["kind"] for row in table if row["public"] == "1") == ["맞춤법", "조사"]
    for part, flag in (("public", "1"), ("private", "0")):
        tp, fp, fn = (sum(float(row[name]) for row in table if row["public"] == flag) for name in ("tp", "fp", "fn"))
        assert found[part]["correction_recall"] == tp / (tp + fp + fn)
    assert (folder / "predictions.csv").read_bytes() == (files / "worse.csv").read_bytes()
    assert [(row["id"], row["prediction"]) for row in read(folder / "items.csv")] == list(WORSE.items())
    assert "갓따" in (folder / "report.html").read_text("utf-8")

    [run] = tracker.runs("e", {"task": "corrections"}, "FINISHED")
    assert (run.run_id, run.name, run.tags["harness.verb"]) == (found["run_id"], "worse.csv", "score")
    assert (run.tags["objective.name"], run.tags["objective.kind"]) == ("correction_recall", "in sample")
    assert run.tags["version.measures"] == "corrections 1"
    assert "0.4000" in run.tags["mlflow.note.content"]
    assert all(len(run.tags[name]) == 64 for name in ("trial_key", "data.references", "data.predictions"))
    params = {"task": "corrections", "task.scheme": "token", "task.merge_gap": "2"}
    assert (params | {"references": str(files / "R.csv"), "seed": "0"}).items() <= run.params.items()
    assert (run.metrics["objective"], run.metrics["objective_low"]) == (0.4, recall["low"])
    written = in_full(tracker, run).metrics
    assert written["interval_low/correction_recall"] == recall["low"]
    assert written["private/correction_precision"] == found["private"]["correction_precision"]
    assert {f"count/{name}": value for name, value in found["counts"].items()}.items() <= run.metrics.items()
    logged = {file.path for file in tracker.client.list_artifacts(run.run_id)}
    assert logged == {path.name for path in folder.iterdir()} | {"items.json"} == {
        "config.yaml", "items.csv", "items.json", "measures.png", "metrics.json",
        "predictions.csv", "report.html", "requirements.txt", "tallies.csv",
    }  # fmt: skip
    inputs = tracker.client.get_run(run.run_id).inputs.dataset_inputs
    assert sorted(one.dataset.name for one in inputs) == ["R.csv", "worse.csv"]


def test_text_for_people(harness, files):
    said = harness("score", *CORRECTIONS, "predictions=worse.csv", "tracking=none").text
    assert re.search(r"correction_recall +0\.4000 .* 40\.00 ", said)
    assert "items 5, public 2, tp 2, fp 2, fn 1, fr 1." in said
    assert re.search(r"맞춤법 \(2\): correction_recall 0\.3333", said)
    assert "Intervals: percentile interval: fewer than 10 items." in said
    assert "harness compare" not in said  # there is no run to compare


@pytest.mark.slow
def test_hints_run_as_printed(harness, files, answers):
    """Two different submissions are needed to compare."""

    def hints(*words):
        commands = harness(*words).commands
        for command in commands:
            assert command[0] == "ui" or "public=SCORE" in command or harness(*command).text
        return {word for command in commands for word in command}

    text = [word for word in WORSE_SCORED if word != "format=json"]
    for _ in range(2):
        assert "compare" not in hints(*text)
    assert "compare" in hints(*text, "predictions=better.csv")
    assert "compare" in hints("board", "task=corrections", "experiment_name=e")
    assert "compare" not in hints(*text, "predictions=better.csv", "task.scheme=span"), "the only one"
    assert "compare" not in hints(*text, "predictions=better.csv", "seed=1"), "another public part"
    assert "metric=exact_match" in hints("score", *ANSWERS[:3], "metrics=[exact_match,final_score]")


def test_answers_are_scored_and_measures_without_a_model_are_absent(harness, answers, tracker):
    words = ("task.bertscore=null", "task.bleurt=null", "task.tokenizer=whitespace", "format=json")
    found = harness("score", "task=answers", "predictions=P.json", "references=R.json", *words).json
    # Right: the first, without its quotes, and the second, an alternative. Words in common, by F1: 2 of 2 and 3: .8;
    # 2 of 2 and 3: .8; 2 of 2: 1. The fourth has no reason.
    absent = dict.fromkeys(("bertscore", "bleurt", "descriptive_avg", "final_score"))
    assert found["metrics"] == {"exact_match": 0.5, "rouge_1": pytest.approx(2.6 / 3)} | absent
    assert found["counts"] == {"items": 4, "public": 2, "explained": 3, "unexplained": 1}
    assert found["absent"].keys() == absent.keys()
    assert found["absent"]["final_score"] == "needs bertscore, bleurt"
    assert found["summary"]["bertscore"] == {"mean": None, "n": 3, "low": None, "high": None, "note": ""}
    assert (found["by_kind"]["선택형"]["exact_match"], found["private"]["final_score"]) == (1, None)
    [run] = tracker.runs("answers", {"task": "answers"}, "FINISHED")
    assert (run.metrics["exact_match"], run.params["task.scheme"]) == (0.5, "rag_qa")
    assert not [name for name in run.metrics if "bleurt" in name or "final_score" in name]
    page = Path(found["files"]["folder"]) / "report.html"
    assert found["absent"]["bleurt"] == "task.bleurt is null: no model is given"
    assert found["absent"]["bleurt"] in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("verb", "words", "expected"),
    [
        ("score", ["metrics=[exact_mach]"], "no measure 'exact_mach'. Did you mean 'exact_match'"),
        ("score", ["metrics=[correction_recall]"], "no measure 'correction_recall'. It has exact_match, rouge_1"),
        ("score", ["metrics=5"], "metrics=5"),
        ("score", ["references=null"], "references is missing"),
        ("score", ["references=nowhere.json"], "nowhere.json"),
        ("score", ["task.scheme=rag-qa"], "Did you mean 'rag_qa'"),
        ("score", ["task.shceme=rag_qa"], "Did you mean 'task.scheme'"),
        ("score", ["public=1.5"], "public=1.5"),
        ("score", ["task=anwsers"], "Did you mean 'answers'"),
        ("sweep", ["seed=0,1", "references=null"], "references is missing"),
        ("sweep", ["seed=0,1", "metrics=[exact_mach]"], "Did you mean 'exact_match'"),
        ("score", ["dataset=contest"], "dataset is for retrieval only"),
        ("score", ["missing=zero"], "missing is for retrieval only"),
    ],
)
def test_bad_settings_are_refused(harness, answers, verb, words, expected):
    assert expected in harness(verb, *ANSWERS, *words).refusal
    assert not (answers / "outputs" / "runs").exists()


def test_files_that_do_not_pair_are_refused_with_both_ids(harness, files):
    write(files / "other.csv", rows_of_predictions({"s9" if one == "s3" else one: text for one, text in WORSE.items()}))
    assert re.search("s3.*s9|s9.*s3", harness("score", *CORRECTIONS, "predictions=other.csv").refusal)
    assert not (files / "outputs" / "runs").exists()


def test_the_command_run_is_refused(harness):
    refused = harness("run", "task=corrections").refusal
    assert re.search("`harness run` is about retrieval.*harness score task=NAME", refused)


def test_a_file_of_lists_shows_what_is_unknown_and_where_its_run_is(harness, toy, tmp_path, tracker):
    """Two lists of one document: none is empty, nothing is known below rank 1, query 5 is missing."""
    (tmp_path / "p.jsonl").write_text('{"eval_id": 7, "topk": ["d3"]}\n{"eval_id": 3, "topk": ["d1"]}\n')
    words = ("score", "predictions=p.jsonl", "dataset=contest", "dataset.path=toy", "experiment_name=e")
    shown = harness(*words).out
    assert not re.search(r"^(recall@10|mrr|abstention_precision) ", shown, re.M)
    assert "Absent: abstention_precision: no list is empty." in shown
    assert re.search(r"^  not_found_or_misranked +0\.5000 ", shown, re.M)
    [absent] = re.findall(r"^  Absent: (.*): the longest list has 1 document\.$", shown, re.M)
    assert {"recall@10", "mrr", "map", "ndcg"} <= {*absent.split(", ")}
    [run] = tracker.runs("e", {"harness.verb": "score"}, "FINISHED")
    assert shown.endswith(f"Run {run.short_id} of experiment 'e'.\nNext:\n  harness ui experiment_name=e\n")
    found = harness(*words, "format=json").json
    assert (found["losses"]["not_found_or_misranked"], "misranked" in found["losses"]) == (0.5, False)
    assert found["metrics"]["recall@10"] is None
    # 0 as the reference values have it; nobody else sees it.
    assert (found["metrics"]["abstention_precision"], found["summary"]["abstention_precision"]["n"]) == (0, 0)
    absent = {"abstention_precision", "recall_at_10", "loss/not_found", "ceiling/oracle_rerank"}
    assert not absent & {*run.metrics, *in_full(tracker, run).metrics}
    assert run.metrics["loss/not_found_or_misranked"] == 0.5
    note = run.tags["mlflow.note.content"]
    assert ("not&#95;found&#95;or&#95;misranked" in note, "abstention&#95;precision" in note) == (True, False)


def test_a_scored_file_is_compared_with_the_best_run(harness, toy, tmp_path):
    words = ("dataset=contest", "dataset.path=toy", "experiment_name=e", "objective=mrr@3")
    best = harness("run", "tokenizer=char_ngram", *words, "format=json").json
    (tmp_path / "p.jsonl").write_text("".join(f'{{"eval_id": {n}, "topk": ["d2", "d1", "d3"]}}\n' for n in (7, 3, 5)))
    done = harness("score", "predictions=p.jsonl", *words)
    assert re.search(rf"^  -0\.\d{{4}} against the best so far \(run {best['run_id'][:8]}\)\.$", done.out, re.M)
    command = done.commands[-1]
    assert command[:2] == ["compare", "experiment_name=e"]
    compared = harness(*command).text
    assert re.search("p.jsonl.*Differences in all measures", compared, re.S)
    assert "mrr@3" in next(line for line in compared.splitlines() if " id " in line), "the runs' own measure"
