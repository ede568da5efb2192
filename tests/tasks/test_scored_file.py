"""Scored files through the command line: what decides their numbers, and what does not."""

import json
import unicodedata
from pathlib import Path

import pytest
from html_pages import data_of
from text_tasks import (
    BETTER_SCORED,
    SCORE,
    SENTENCES,
    WORSE,
    WORSE_SCORED,
    answer,
    rows_of_predictions,
    rows_of_sentences,
    write,
)


@pytest.mark.slow
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
    tags = ("data.references", "data.predictions", "trial_key")
    assert [len({run.tags[tag] for run in runs}) for tag in tags] == [1, 1, 5]


def test_a_measure_without_items_in_a_part_is_null_there(harness, answers):
    """One short answer of four items: it is on one side of the split alone."""
    rows = [answer(number, "선다형", str(number)) for number in range(3)] + [answer(3, "단답형", "서울")]
    (answers / "R.json").write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    (answers / "P.json").write_text(json.dumps([*rows[:3], answer(3, "단답형", "부산")], ensure_ascii=False), "utf-8")
    task = ("task=answers", "task.scheme=culture_qa", "format=json")
    score = ("score", *task, "references=R.json", "metrics=[accuracy,exact_match]")
    objective = "objective=exact_match"
    found, worse = (harness(*score, objective, f"predictions={name}.json").json for name in "RP")
    assert found["metrics"] == {"accuracy": 1, "exact_match": 1}
    assert (worse["metrics"]["exact_match"], worse["absent"]) == (0, {})
    assert sorted([found["public"]["exact_match"], found["private"]["exact_match"]], key=str) == [1, None]
    assert found["by_kind"]["선다형"] == {"items": 3, "accuracy": 1, "exact_match": None}
    compared = harness("compare", *task, "metric=exact_match").json
    boards = [(run["public"], run["private"]) for run in compared["runs"]]
    assert [sorted(board, key=str) for board in boards] == [[1, None], [0, None]]
    assert not [note for note in compared["notes"] if note.startswith("Warning")]
    done = harness(*score, "predictions=P.json")
    assert (done.code, "objective=final_score is not among the metrics" in done.err) == (2, True)


def test_the_recall_of_a_kind_without_a_wanted_edit_is_absent(harness, files):
    """s4 alone needs no correction; one submission touches it, the other does not."""
    kinds = {one: ("오류 없음" if one == "s4" else kind, *texts) for one, (kind, *texts) in SENTENCES.items()}
    write(files / "R.csv", rows_of_sentences(kinds))
    write(files / "worse.csv", rows_of_predictions(WORSE | {"s4": "밥은 먹었다"}))
    found = harness(*WORSE_SCORED).json
    assert found["by_kind"]["오류 없음"] == {"items": 1, "correction_recall": None, "correction_precision": 0}
    kinds_on_page = data_of((Path(found["files"]["folder"]) / "report.html").read_text("utf-8"))["kinds"]
    assert ["오류 없음", [1, None], [1, 0.0]] in kinds_on_page["rows"]
    assert (
        "오류 없음 (1): correction_recall –" in harness(*(word for word in WORSE_SCORED if word != "format=json")).out
    )
    other = harness(*BETTER_SCORED).json
    assert other["by_kind"]["오류 없음"]["correction_recall"] is None
    assert other["metrics"]["correction_recall"] == 3 / 4  # the rule for sentences alone and for all is as it was
    compared = harness("compare", "task=corrections", "experiment_name=e", "format=json").json
    splits = {(one["measure"], one["part"]): one["mean"] for one in compared["splits"]}
    assert splits["correction_recall", "오류 없음"] is None
