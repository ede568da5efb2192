"""The road of the text tasks from the command line: files scored, logged, exported, swept and compared."""

import csv
import hashlib
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.tasks.statistics import in_public
from harness.tasks.task import JudgedItems
from harness.tracking.mlflow_tracker import MlflowTracker

SENTENCES = {  # id -> kind, source, reference
    "s1": ("맞춤법", "감자기 침대에서 일어났다", "갑자기 침대에서 일어났다"),
    "s2": ("조사", "나는 학교을 갔다", "나는 학교를 갔다"),
    "s3": ("띄어쓰기", "할수 있다", "할 수 있다"),
    "s4": ("조사", "밥을 먹었다", "밥을 먹었다"),
    "s5": ("맞춤법", "집에 갓다", "집에 갔다"),
}
# One edit right and one needless (TP, FP, FR), right (TP), missed (FN), nothing, wrong (FP): 2 / 5 and 2 / 5.
WORSE = {one: text for one, (_, text, _) in SENTENCES.items()}
WORSE |= {"s1": "갑자기 침대에 일어났다", "s2": "나는 학교를 갔다", "s5": "집에 갓따"}
# Right, missed, right, nothing, right: 3 / 4 and 3 / 3.
BETTER = {one: text for one, (_, _, text) in SENTENCES.items()} | {"s2": "나는 학교을 갔다"}
CORRECTIONS = ("task=corrections", "references=R.csv", "experiment_name=e")
SCORE = ("score", *CORRECTIONS, "format=json")
QUIET = ("tracking=none", "format=json")
WORSE_SCORED, BETTER_SCORED = (*SCORE, "predictions=worse.csv"), (*SCORE, "predictions=better.csv")


def rows_of_sentences(sentences):
    return [
        {"id": one, "source": source, "reference": reference, "error_type": kind}
        for one, (kind, source, reference) in sentences.items()
    ]


def rows_of_predictions(predictions):
    return [{"id": one, "prediction": text} for one, text in predictions.items()]


def write(file, rows):
    """Rows as JSON lines or as CSV, by the file's name."""
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        return
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read(file):
    with Path(file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture
def files(tmp_path):
    """Five sentences and two submissions."""
    write(tmp_path / "R.csv", rows_of_sentences(SENTENCES))
    write(tmp_path / "worse.csv", rows_of_predictions(WORSE))
    write(tmp_path / "better.csv", rows_of_predictions(BETTER))
    return tmp_path


@pytest.fixture
def tracker(tmp_path, fresh_store):
    found = MlflowTracker()
    found.connect(tmp_path / "outputs")
    return found


def answer(number, kind, text):
    return {"id": number, "input": {"question_type": kind, "question": "무엇이 옳은가?"}, "output": {"answer": text}}


@pytest.fixture
def answers(tmp_path):
    """Four answers with their reasons; the predictions are right in two, and give a reason in three."""
    reasons = ("물은 100도에서 끓는다", "달은 지구를 돈다", "비가 온다", "해가 뜬다")
    said = ["'적잖은'이 옳다. " + reasons[0], "가가 옳다#나가 옳다. " + reasons[1], "다가 옳다. " + reasons[2],
            "라가 옳다. " + reasons[3]]  # fmt: skip
    made = ["적잖은이 옳다. 물은 끓는다", "나가 옳다. 달은 돈다", "라가 옳다. 비가 온다", "마가 옳다"]
    for name, texts in (("R.json", said), ("P.json", made)):
        rows = [answer(i, "선택형" if i < 2 else "교정형", text) for i, text in enumerate(texts)]
        (tmp_path / name).write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    return tmp_path


# Scores ---------------------------------------------------------------------------------------------


def test_corrections_are_scored_logged_and_written(harness, files, tracker):
    found = harness(*WORSE_SCORED).json
    assert found["metrics"] == {"correction_recall": 0.4, "correction_precision": 0.4}
    assert found["counts"] == {"items": 5, "public": 2, "tp": 2, "fp": 2, "fn": 1, "fr": 1}
    assert (found["task"], found["experiment"], found["absent"], found["notes"]) == ("corrections", "e", {}, [])
    assert found["private_peeks"] == 1
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
    # The public part is one item each of the two kinds that have two: what it scores is in the table of tallies.
    table = read(Path(found["files"]["folder"]) / "tallies.csv")
    assert [row["id"] for row in table] == list(SENTENCES)
    assert sorted(row["kind"] for row in table if row["public"] == "1") == ["맞춤법", "조사"]
    for part, flag in (("public", "1"), ("private", "0")):
        tp, fp, fn = (sum(float(row[name]) for row in table if row["public"] == flag) for name in ("tp", "fp", "fn"))
        assert found[part]["correction_recall"] == tp / (tp + fp + fn)

    folder = Path(found["files"]["folder"])
    assert folder.parent == files / "outputs" / "runs"
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml", "items.csv", "measures.png", "predictions.csv", "report.html", "requirements.txt", "tallies.csv",
    }  # fmt: skip
    assert (folder / "predictions.csv").read_bytes() == (files / "worse.csv").read_bytes()
    items = read(folder / "items.csv")
    assert [(row["id"], row["prediction"]) for row in items] == list(WORSE.items())
    assert "갓따" in (folder / "report.html").read_text("utf-8")

    [run] = tracker.runs("e", {"task": "corrections"}, "FINISHED")
    assert (run.run_id, run.name) == (found["run_id"], "worse.csv")
    assert run.tags["harness.verb"] == "score"
    assert run.tags["objective"] == "correction_recall"
    assert run.tags["version.measures"] == "corrections 1"
    assert (
        "correction\\_recall 0.4" in run.tags["mlflow.note.content"].replace("**", "")
        or "0.4000" in run.tags["mlflow.note.content"]
    )
    assert all(len(run.tags[name]) == 64 for name in ("trial_key", "data.references", "data.predictions"))
    assert (run.params["task"], run.params["task.scheme"], run.params["task.merge_gap"]) == (
        "corrections",
        "token",
        "2",
    )
    assert (run.params["references"], run.params["seed"]) == (str(files / "R.csv"), "0")
    assert run.metrics["correction_recall"] == 0.4
    assert run.metrics["interval_low/correction_recall"] == recall["low"]
    assert run.metrics["private/correction_precision"] == found["private"]["correction_precision"]
    assert {name: value for name, value in run.metrics.items() if name.startswith("count/")} == {
        f"count/{name}": value for name, value in found["counts"].items()
    }
    logged = {file.path for file in tracker.client.list_artifacts(run.run_id)}
    assert logged == {path.name for path in folder.iterdir()} | {"items.json"}
    inputs = tracker.client.get_run(run.run_id).inputs.dataset_inputs
    assert sorted(one.dataset.name for one in inputs) == ["R.csv", "worse.csv"]


def test_text_for_people(harness, files):
    done = harness("score", *CORRECTIONS, "predictions=worse.csv", "tracking=none")
    assert done.code == 0, done.err
    assert re.search(r"correction_recall +0\.4000 +40\.00 ", done.out)
    assert "items 5, public 2, tp 2, fp 2, fn 1, fr 1." in done.out
    assert re.search(r"맞춤법 \(2\): correction_recall 0\.3333", done.out)
    assert "Intervals: percentile interval: fewer than 10 items." in done.out
    assert "harness compare" not in done.out  # there is no run to compare


def test_the_same_numbers_whatever_the_files_look_like(harness, files, tracker):
    """CSV or JSON lines, their rows in any order, ids and Korean in composed or decomposed form."""
    sentences = [row | {"id": f"문장 {row['id']}"} for row in rows_of_sentences(SENTENCES)]
    predictions = [row | {"id": f"문장 {row['id']}"} for row in rows_of_predictions(WORSE)]
    write(files / "R.csv", sentences)
    write(files / "worse.csv", predictions)
    write(files / "R.jsonl", sentences[::-1])
    write(files / "worse.jsonl", predictions[2:] + predictions[:2])
    for name in ("R.csv", "worse.csv", "worse.jsonl"):
        decomposed = unicodedata.normalize("NFD", (files / name).read_text("utf-8"))
        (files / f"apart_{name}").write_text(decomposed, "utf-8")
    first = harness(*WORSE_SCORED).json
    apart = ["predictions=apart_worse.jsonl", "references=apart_R.csv"]
    mixed = ["predictions=worse.jsonl", "references=R.jsonl"]
    for words in (mixed[:1], mixed, ["predictions=apart_worse.csv"], apart):
        other = harness(*SCORE, *words).json
        for name in ("metrics", "counts", "public", "private", "by_kind", "absent"):
            assert other[name] == first[name], (words, name)
        if words != mixed:  # samples are drawn from the references in their order
            assert other["summary"] == first["summary"]
    runs = tracker.runs("e", {"task": "corrections"})
    assert (
        len({run.tags["data.references"] for run in runs}) == len({run.tags["data.predictions"] for run in runs}) == 1
    )
    assert len({run.tags["trial_key"] for run in runs}) == 5


def test_the_scheme_decides_the_counts(harness, files):
    """Two adjacent changes are one span, which is wrong as a whole: TP 1, FP 2, FN 1 by spans."""
    found = harness(*WORSE_SCORED, "tracking=none", "task.scheme=span").json
    assert {name: found["counts"][name] for name in ("tp", "fp", "fn", "fr")} == {"tp": 1, "fp": 2, "fn": 1, "fr": 0}
    assert found["metrics"]["correction_recall"] == 1 / 4


def test_nothing_is_logged_without_a_tracker(harness, files, tracker):
    found = harness(*WORSE_SCORED, "tracking=none").json
    assert (found["run_id"], found["private_peeks"]) == (None, 0)
    assert Path(found["files"]["predictions"]).is_file()
    assert not tracker.runs("e", {})


def test_answers_are_scored_and_what_lacks_a_model_is_absent(harness, answers, tracker):
    done = harness("score", "task=answers", "predictions=P.json", "references=R.json", "task.bertscore=null",
                   "task.bleurt=null", "task.tokenizer=whitespace", "format=json")  # fmt: skip
    found = done.json
    assert found["experiment"] == found["task"] == "answers"
    # Right: the first, without its quotes, and the second, an alternative. Words in common, by F1: 2 of 2 and 3: .8;
    # 2 of 2 and 3: .8; 2 of 2: 1. The fourth has no reason.
    assert found["metrics"] == {
        "exact_match": 0.5, "rouge_1": pytest.approx(2.6 / 3), "bertscore": None, "bleurt": None,
        "descriptive_avg": None, "final_score": None,
    }  # fmt: skip
    assert found["counts"] == {"items": 4, "public": 2, "explained": 3, "unexplained": 1}
    assert set(found["absent"]) == {"bertscore", "bleurt", "descriptive_avg", "final_score"}
    assert found["absent"]["bleurt"] == "task.bleurt is null: no model is named"
    assert found["absent"]["final_score"] == "needs bertscore, bleurt"
    assert found["summary"]["bertscore"] == {"mean": None, "n": 3, "low": None, "high": None, "note": ""}
    assert found["by_kind"]["선택형"]["exact_match"] == 1
    assert found["private"]["final_score"] is None
    [run] = tracker.runs("answers", {"task": "answers"}, "FINISHED")
    assert run.metrics["exact_match"] == 0.5
    assert not [name for name in run.metrics if "bleurt" in name or "final_score" in name]
    assert run.params["task.scheme"] == "rag_qa"
    folder = Path(found["files"]["folder"])
    assert "task.bleurt is null: no model is named" in (folder / "report.html").read_text("utf-8")
    assert {file.path for file in tracker.client.list_artifacts(run.run_id)} >= {"items.json", "measures.png"}


def test_a_measure_that_no_item_of_a_part_has_is_null_there(harness, answers):
    """One short answer of four items: it is on one side of the split alone."""
    rows = [answer(i, kind, text) for i, (kind, text) in enumerate(
        [("선다형", "1"), ("선다형", "2"), ("선다형", "3"), ("단답형", "서울")])]  # fmt: skip
    (answers / "R.json").write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    words = ("task=answers", "predictions=R.json", "references=R.json", "task.scheme=culture_qa",
             "metrics=[accuracy,exact_match]", "objective=exact_match")  # fmt: skip
    found = harness("score", *words, "format=json").json
    assert found["metrics"] == {"accuracy": 1, "exact_match": 1}
    assert sorted([found["public"]["exact_match"], found["private"]["exact_match"]], key=str) == [1, None]
    assert found["by_kind"]["선다형"] == {"items": 3, "accuracy": 1, "exact_match": None}
    rows[3]["output"]["answer"] = "부산"
    (answers / "P.json").write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    assert harness("score", *words[:1], "predictions=P.json", *words[2:]).code == 0
    compared = harness("compare", "task=answers", "task.scheme=culture_qa", "metric=exact_match", "format=json").json
    boards = [(run["public"], run["private"]) for run in compared["runs"]]
    assert [sorted(board, key=str) for board in boards] == [[1, None], [0, None]]
    assert not [note for note in compared["notes"] if note.startswith("Warning")]


def test_some_measures_alone(harness, answers):
    """The objective must be among them; nothing else is computed, and nothing else is absent."""
    words = ("score", "task=answers", "predictions=P.json", "references=R.json", "task.tokenizer=whitespace",
             "metrics=[rouge_1,exact_match]", "tracking=none", "format=json")  # fmt: skip
    found = harness(*words, "objective=exact_match").json
    assert list(found["metrics"]) == ["rouge_1", "exact_match"]
    assert found["absent"] == {}
    done = harness(*words)
    assert done.code == 2
    assert "objective=final_score is not among the metrics" in done.err


ANSWERS = ("task=answers", "predictions=P.json", "references=R.json", "metrics=[exact_match]", "objective=exact_match")


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
        ("score", ["dataset=contest"], "dataset is about retrieval"),
        ("score", ["missing=zero"], "missing is about retrieval"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(harness, answers, verb, words, expected):
    given = ANSWERS if verb in ("score", "sweep") else ANSWERS[:1]
    done = harness(verb, *given, *words)
    assert done.code == 2, done.err
    assert expected in done.err
    assert not (answers / "outputs" / "runs").exists()


def test_files_that_do_not_pair_are_refused_with_both_ids(harness, files):
    write(files / "other.csv", rows_of_predictions({"s9" if one == "s3" else one: text for one, text in WORSE.items()}))
    done = harness("score", *CORRECTIONS, "predictions=other.csv")
    assert done.code == 2
    assert "s3" in done.err
    assert "s9" in done.err
    assert not (files / "outputs" / "runs").exists()


def test_the_verb_of_retrieval_is_refused_with_words(harness):
    done = harness("run", "task=corrections")
    assert done.code == 2
    assert "`harness run` is about retrieval" in done.err
    assert "harness score task=NAME" in done.err


# Export ---------------------------------------------------------------------------------------------


def test_the_best_submission_is_exported_as_it_was_given(harness, files, tmp_path):
    (files / "better.csv").write_bytes(b"\xef\xbb\xbf" + (files / "better.csv").read_bytes())  # with a BOM
    worse, better = harness(*WORSE_SCORED).json, harness(*BETTER_SCORED).json
    export = ("export", "task=corrections", "experiment_name=e", "format=json")
    found = harness(*export, "submission=best.csv").json
    assert (found["run_id"], found["metric"], found["value"]) == (better["run_id"], "correction_recall", 0.75)
    assert (found["items"], found["number"], found["new"], found["model"]) == (5, 1, True, None)
    content = (tmp_path / "best.csv").read_bytes()
    assert content == (files / "better.csv").read_bytes()
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    [line] = (tmp_path / "outputs/submissions/ledger.jsonl").read_text("utf-8").splitlines()
    entered = json.loads(line)
    assert (entered["file"], entered["run_id"], entered["experiment"]) == (
        str(tmp_path / "best.csv"), better["run_id"], "e",
    )  # fmt: skip
    assert (len(entered["trial_key"]), len(entered["queries"])) == (64, 64)
    assert entered["metrics"]["public/correction_recall"] == better["public"]["correction_recall"]
    provenance = json.loads((tmp_path / "best.csv.provenance.json").read_text("utf-8"))
    assert provenance["made_with"]["data.references"] == entered["queries"]
    assert provenance["config"]["task"]["scheme"] == "token"
    # A named run, and the default name of its file.
    named = harness(*export, f"run={worse['run_id']}").json
    assert named["submission"] == str(tmp_path / "outputs" / "submissions" / f"e-{worse['run_id'][:8]}.csv")
    assert (named["value"], named["number"]) == (0.4, 2)
    [first, second] = harness("export history", "format=json").json["submissions"]
    assert (first["run_id"], second["run_id"]) == (better["run_id"], worse["run_id"])
    by_precision = harness(*export, "metric=correction_precision", "select_on=public").json
    assert by_precision["ranked_by"] == "public/correction_precision"


def test_what_is_no_longer_what_it_was_is_not_exported(harness, files, toy, tmp_path):
    run = harness(*WORSE_SCORED).json["run_id"]
    text = (files / "R.csv").read_text("utf-8")

    def refused(*words, expected):
        done = harness("export", *words, "submission=s.csv")
        assert done.code == 2, done.err
        assert re.search(expected, done.err, re.S), done.err
        assert not (tmp_path / "s.csv").exists()

    export = ("task=corrections", "experiment_name=e")
    (files / "R.csv").write_text(text.replace("집에 갔다", "집에 왔다"), "utf-8")
    refused(*export, expected=f"Run {run} .*: the references have changed .*R.csv")
    (files / "R.csv").write_text(text.replace("s5,", "s6,"), "utf-8")
    refused(*export, expected="s5.*s6|s6.*s5")
    (files / "R.csv").unlink()
    refused(*export, expected="R.csv")
    (files / "R.csv").write_text(text, "utf-8")
    refused(f"run={run}", expected=f"Run {run} .* is of task=corrections. Say task=corrections to export it")
    refused("task=answers", f"run={run}", expected=f"Run {run} .* is of task=corrections")
    refused("task=answers", "experiment_name=e", expected="no finished run of experiment 'e' has it")
    refused("experiment_name=e", expected="no finished run of experiment 'e' has it")
    refused(*export, "model=true", expected="are about retrieval")
    retrieved = harness("run", "dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "format=json").json
    refused("task=corrections", f"run={retrieved['run_id']}", expected="is of task=retrieval")
    assert harness("export", *export, "submission=s.csv").code == 0


# Sweeps ---------------------------------------------------------------------------------------------

SWEEP = ("sweep", *CORRECTIONS, "predictions=worse.csv,better.csv", "task.scheme=token,span", "format=json")


def test_a_sweep_over_files_and_schemes(harness, files, tracker):
    found = harness(*SWEEP).json
    assert found["trials"] == {"asked": 4, "finished": 4, "failed": 0, "killed": 0, "skipped": 0, "same": 0}
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
    best = found["best"]
    assert (best["trial"], best["value"]) == (2, 0.75)  # the first of equals
    assert parent.tags["best.run_id"] == best["run_id"]
    assert parent.metrics["correction_recall"] == 0.75
    light = {"config.yaml", "predictions.csv", "tallies.csv"}
    for child in children:
        names = {file.path for file in tracker.client.list_artifacts(child.run_id)}
        full = child.run_id == best["run_id"]
        assert names == light | (
            {"items.csv", "items.json", "measures.png", "report.html", "requirements.txt"} if full else set()
        )
    # A trial is the run that the same words make.
    single = harness(*WORSE_SCORED, "task.scheme=span").json
    logged = {run.run_id: run for run in tracker.runs("e", {"task": "corrections"})}
    [trial] = [run for run in children if run.params["task.scheme"] == "span" and "worse" in run.params["predictions"]]
    alone = logged[single["run_id"]]
    assert trial.params == alone.params
    for name in ("trial_key", "data.references", "data.predictions", "version.measures", "objective"):
        assert trial.tags[name] == alone.tags[name]
    numbers = {name: value for name, value in trial.metrics.items() if not name.startswith("seconds")}
    assert numbers == alone.metrics
    # And it is exported whole, though it was logged light.
    exported = harness("export", "task=corrections", f"run={trial.run_id}", "format=json").json
    assert Path(exported["submission"]).read_bytes() == (files / "worse.csv").read_bytes()
    # Of two schemes, runs of the one that is asked for are compared.
    for scheme, gap in (("token", 0.35), ("span", 0.5)):
        compared = harness("compare", "task=corrections", "experiment_name=e", f"task.scheme={scheme}", "format=json")
        assert f"Runs of task.scheme={scheme} alone" in compared.json["notes"][0]
        assert any(note.startswith("No texts of") for note in compared.json["notes"])
        assert compared.json["differences"][0]["mean"] == pytest.approx(gap)
    for verb in ("compare", "export"):
        done = harness(verb, "task=corrections", "experiment_name=e", "metric=corection_recall")
        assert done.code == 2
        assert "Did you mean 'correction_recall'" in done.err
    done = harness("reproduce", f"run={trial.run_id}")
    assert done.code == 2
    assert "scored a file of task=corrections" in done.err


def test_a_sweep_started_again_skips_what_finished(harness, files, tracker):
    words = ("sweep", *CORRECTIONS, "predictions=worse.csv,better.csv", "format=json")
    first, again = harness(*words).json, harness(*words).json
    assert again["trials"]["skipped"] == again["plan"]["finished_before"] == 2
    assert (again["run_id"], again["best"]) == (first["run_id"], first["best"])
    assert len(tracker.runs("e", {"task": "corrections"})) == 2
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


def test_a_file_that_cannot_be_scored_does_not_stop_the_others(harness, files):
    write(files / "worse.csv", rows_of_predictions({"s1": "갑자기"}))
    done = harness(
        "sweep", *CORRECTIONS, "predictions=worse.csv,nowhere.csv,better.csv", "tracking=none", "format=json"
    )
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["trials"]["finished"], found["trials"]["failed"], found["best"]["value"]) == (1, 2, 0.75)
    assert {"nowhere.csv" in row["error"] for row in found["failed"]} == {True, False}
    assert (Path(found["files"]["best"]) / "report.html").is_file()


def test_trials_by_joblib_are_the_same(harness, files):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ("tracking=none", "hydra.launcher.n_jobs=1")
    here = harness(*SWEEP, "tracking=none").json
    there = harness(*SWEEP, "hydra/launcher=joblib", *words).json
    assert [row["value"] for row in there["top"]] == [row["value"] for row in here["top"]]
    assert there["trials"] == here["trials"]


def test_hydras_own_multirun_scores_each_file(harness, files, tracker):
    done = harness("score", "-m", *CORRECTIONS, "predictions=worse.csv,better.csv")
    assert done.code == 0, done.err
    runs = tracker.runs("e", {"harness.verb": "score"}, "FINISHED")
    assert sorted(run.metrics["correction_recall"] for run in runs) == [0.4, 0.75]
    assert not tracker.runs("e", {"harness.verb": "sweep"})


# Comparisons ----------------------------------------------------------------------------------------

COMPARE = ("compare", "task=corrections", "experiment_name=e", "format=json")


@pytest.fixture
def rivals(harness, tmp_path):
    """20 sentences that need one edit each. A right in all 8 public and 3 of 12 private ones, B in 4 and 9."""
    ids = tuple(f"s{number:02}" for number in range(20))
    kinds = tuple(("조사", "맞춤법")[number % 2] for number in range(20))
    public = in_public(JudgedItems(ids, kinds, {}, {}), seed=0, public=0.4)
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
    one = next(one for one in found["differences"] if one["measure"] == "correction_recall")
    assert (one["n"], one["wins"], one["ties"], one["losses"]) == (20, 6, 10, 4)
    assert one["mean"] == pytest.approx(0.1)
    assert one["low"] < 0 < one["high"]
    assert one["note"] == "fewer than 20 items differ: the interval is too narrow, go by p"
    test = next(one for one in found["tests"] if one["measure"] == "correction_recall")
    assert (test["p"], test["p_holm"], test["exact"], test["pairs"]) == (1 - 252 / 1024, 1 - 252 / 1024, True, 1)
    assert found["verdicts"][0].startswith("No difference between A and B can be told on 20 items: correction_recall")
    # The warning, and how often it would have been due.
    [warning] = [note for note in found["notes"] if note.startswith("Warning")]
    assert "the public winner is not the private winner" in warning
    assert any(note.startswith("By correction_recall, with 40% public: in ") for note in found["notes"])
    shaken = found["shake_up"]
    assert shaken["draws"] == 1000
    assert 0 < shaken["winner_loses"] < 1
    assert [sum(run["shifts"].values()) for run in shaken["runs"]] == [1000, 1000]
    splits = {part["part"]: (part["n"], part["mean"]) for part in found["splits"]}
    assert splits["public"] == (8, -0.5)
    assert splits["private"] == (12, 0.5)
    assert splits["조사"][0] == splits["맞춤법"][0] == 10
    changed = found["changed"]
    assert len(changed) == 10
    assert {abs(item["difference"]) for item in changed} == {1}
    assert set(changed[0]["predictions"]) == {"A", "B"}
    assert changed[0]["source"].endswith("틀림")


def test_no_warning_where_the_same_wins_both(harness, files):
    for words in (WORSE_SCORED, BETTER_SCORED):
        assert harness(*words, "public=0.2").code == 0
    found = harness(*COMPARE, "metric=correction_precision").json
    assert [run["private_rank"] for run in found["runs"]] == [1, 2]
    assert [run["public_rank"] for run in found["runs"]] == [1, 2]
    assert not [note for note in found["notes"] if note.startswith("Warning")]


@pytest.mark.drawn
def test_a_comparison_leaves_its_files_and_a_run(harness, rivals, tracker, tmp_path):
    found = harness(*COMPARE).json
    files = {name: Path(file).read_text("utf-8") for name, file in found["files"].items()}
    assert json.loads(files["json"]) == found
    for name in ("md", "html"):
        assert "the public winner is not the private winner" in files[name]
        assert "correction" in files[name]
    assert files["html"].count("data:image/png;base64,") == 2
    assert Path(found["files"]["html"]).parent.parent == tmp_path / "outputs" / "comparisons"
    [logged] = tracker.runs("e", {"harness.verb": "compare"}, "FINISHED")
    assert logged.run_id == found["run_id"]
    assert logged.metrics["p_holm/A-B"] == found["tests"][0]["p_holm"]
    assert harness(*COMPARE[:-1]).out.count("the public winner is not the private winner") == 2  # warning and share


def test_the_other_order_is_the_same_with_other_signs(harness, rivals):
    a, b = (one["run_id"] for one in rivals)
    found, turned = (harness(*COMPARE, f"runs=[{one},{other}]").json for one, other in ((a, b), (b, a)))
    assert [run["run_id"] for run in found["runs"]] == [run["run_id"] for run in turned["runs"]][::-1] == [a, b]
    for one, other in zip(found["differences"], turned["differences"], strict=True):
        assert one["measure"] == other["measure"]
        assert one["mean"] == pytest.approx(-other["mean"])
        assert (one["low"], one["high"]) == (pytest.approx(-other["high"]), pytest.approx(-other["low"]))
        assert (one["wins"], one["losses"], one["note"]) == (other["losses"], other["wins"], other["note"])
    assert found["tests"] == turned["tests"]
    assert found["notes"] == turned["notes"]
    assert {part["part"]: part["mean"] for part in found["splits"]} == {
        part["part"]: -part["mean"] for part in turned["splits"]
    }
    assert [item["id"] for item in found["changed"]] == [item["id"] for item in turned["changed"]]
    for one, other in zip(found["runs"], turned["runs"][::-1], strict=True):
        assert {**one, "label": ""} == {**other, "label": ""}
    shifts = [{run["label"]: run["shifts"] for run in one["shake_up"]["runs"]} for one in (found, turned)]
    assert shifts[0] == {"A": shifts[1]["B"], "B": shifts[1]["A"]}


def test_three_submissions_and_light_trials_are_compared(harness, files):
    """Trials of a sweep keep no texts, but for the best one: the first given of the pair has them, or nobody."""
    write(files / "none.csv", rows_of_predictions({one: source for one, (_, source, _) in SENTENCES.items()}))
    swept = harness("sweep", *CORRECTIONS, "predictions=worse.csv,better.csv,none.csv", "format=json").json
    found = harness(*COMPARE).json
    assert [run["metrics"]["correction_recall"] for run in found["runs"]] == [0.75, 0.4, 0]
    assert found["runs"][0]["run_id"] == swept["best"]["run_id"]
    assert len(found["verdicts"]) == len({(one["a"], one["b"]) for one in found["differences"]}) == 3
    assert {one["pairs"] for one in found["tests"]} == {3}
    first = [one for one in found["changed"] if (one["a"], one["b"]) == ("A", "B")]
    assert first[0]["source"] == SENTENCES[first[0]["id"]][1]
    assert first[0]["predictions"] == {"A": BETTER[first[0]["id"]], "B": None}
    assert "source" not in next(one for one in found["changed"] if (one["a"], one["b"]) == ("B", "C"))


def test_what_is_scored_otherwise_is_not_compared(harness, files):
    def refused(*runs, expected):
        done = harness(*COMPARE[:-1], f"runs=[{','.join(runs)}]")
        assert done.code == 2, done.err
        assert re.search(expected, done.err), done.err

    first = harness(*WORSE_SCORED).json["run_id"]
    spans = harness(*BETTER_SCORED, "task.scheme=span").json["run_id"]
    refused(first, spans, expected="was scored with task.scheme=span, run .* with token")
    parts = harness(*BETTER_SCORED, "public=0.6").json["run_id"]
    refused(first, parts, expected="has another public part")
    (files / "R.csv").write_text((files / "R.csv").read_text("utf-8").replace("집에 갔다", "집에 왔다"), "utf-8")
    other = harness(*BETTER_SCORED).json["run_id"]
    refused(first, other, expected="has other references than run .*data.references is")
    refused(first, first, expected="twice")
    done = harness("compare", f"runs=[{first},{spans}]")
    assert done.code == 2
    assert "is of task=corrections. Say task=corrections" in done.err
    assert harness(*COMPARE, f"runs=[{first},{first[:8]}]").code == 2
    assert not (files / "outputs" / "comparisons").exists()


def test_items_are_compared_by_id_whatever_the_order_of_their_files(harness, files):
    write(files / "R.jsonl", rows_of_sentences(SENTENCES)[::-1])
    harness(*WORSE_SCORED)
    harness(*BETTER_SCORED, "references=R.jsonl")
    found = harness(*COMPARE).json
    one = found["differences"][0]
    # 1 and 1/2, 0 and 1, 1 and 0, 1 and 1, 1 and 0.
    assert (one["measure"], one["wins"], one["ties"], one["losses"]) == ("correction_recall", 3, 1, 1)
    assert {item["id"]: item["difference"] for item in found["changed"]} == {"s1": 0.5, "s2": -1, "s3": 1, "s5": 1}


def test_where_the_columns_are_found_is_no_other_rule(harness, files):
    write(files / "renamed.csv", [{"id": one, "fixed": text} for one, text in BETTER.items()])
    harness(*WORSE_SCORED)
    renamed = (*SCORE, "predictions=renamed.csv", "task.columns.prediction=fixed")
    assert harness(*renamed).json["metrics"]["correction_recall"] == 0.75
    found = harness(*COMPARE).json
    assert [run["name"] for run in found["runs"]] == ["renamed.csv", "worse.csv"]


def test_text_runs_and_retrieval_runs_are_kept_apart(harness, files, toy):
    """All in one experiment: each verb finds the runs of its own task."""
    harness("sweep", *CORRECTIONS, "predictions=worse.csv,better.csv", "experiment_name=retrieval")
    run = ("run", "dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "format=json")
    runs = {harness(*run, f"top_k={k}").json["run_id"] for k in (1, 3)}
    found = harness("compare", "experiment_name=retrieval", "format=json").json
    assert {one["run_id"] for one in found["runs"]} == runs
    assert harness("export", "experiment_name=retrieval", "format=json").json["run_id"] in runs
    swept = harness("sweep", *run[1:], "top_k=1,3").json
    assert swept["trials"]["skipped"] == 2
    text = harness("export", "task=corrections", "experiment_name=retrieval", "format=json").json
    assert text["value"] == 0.75


def test_the_config_of_a_run_scores_the_same_again(harness, files, tmp_path):
    found = harness(*WORSE_SCORED, "task.scheme=span", "seed=3").json
    config = yaml.safe_load((Path(found["files"]["folder"]) / "config.yaml").read_text("utf-8"))
    assert config["references"] == str(files / "R.csv")
    words = [f"{name}={config[name]}" for name in ("predictions", "references", "seed", "objective")]
    again = harness("score", "task=corrections", f"task.scheme={config['task']['scheme']}", *words, "tracking=none",
                    "format=json").json  # fmt: skip
    assert again["summary"] == found["summary"]
    assert again["public"] == found["public"]
