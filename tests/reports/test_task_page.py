"""The page and the description of a scored file: their contents, and that texts are never markup."""

import base64
import hashlib
import html
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from html_pages import HOSTILE, data_of, inert
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measures.scores import Summary
from harness.reports import run_note, run_page
from harness.reports.markup import fill_page
from harness.tasks.scored_file import ScoredFile
from harness.tasks.task import JudgedItems
from harness.tracking.tracker import TAG_LIMIT, as_note

NONE = Summary(np.nan, 0)


def corrections():
    """Three sentences: the second is right, the first has one of two mistakes put right, the third a needless edit."""
    tail = [[("날씨가 좋다", "")], [("밥을 ", ""), ("먹었다", "fr")]]
    marked = {
        "source": [[("감자기", "tp"), (" 침대에서 ", ""), ("일어 났다", "fn")], *tail],
        "prediction": [[("갑자기", "tp"), (" 침대에서 ", ""), ("일어 났다", "fn")], tail[0],
                       [("밥을 ", ""), ("먹엇다", "fr")]],
    }  # fmt: skip
    texts = {name: ["".join(piece for piece, _ in pieces) for pieces in rows] for name, rows in marked.items()}
    counts = {"tp": [1, 0, 0], "fp": [0, 0, 1], "fn": [1, 0, 0], "fr": [0, 0, 1]}
    table = {
        "id": ["문장 1", "문장 2", "문장 3"], "kind": ["맞춤법", "없음", "없음"], "source": texts["source"],
        "reference": ["갑자기 침대에서 일어났다", "날씨가 좋다", "밥을 먹었다"], "prediction": texts["prediction"],
        "edits": ["감자기→갑자기 TP", "", "먹었다→먹엇다 FR"], **counts, "correction_recall": [0.5, 1.0, 0.0],
        "nothing": [None] * 3,
    }  # fmt: skip
    return JudgedItems({name: np.array(one, float) for name, one in counts.items()}, table, marked)


def answers(texts, **more):
    """Judged items, one answer for each text."""
    ids = [f"q{i}" for i in range(len(texts))]
    return JudgedItems({}, {"id": ids, "kind": ["answer"] * len(ids), "prediction": list(texts)}, **more)


def scored(judged, values=(), shown="correction_recall", **given):
    """A scored file of these items, with what is given in place of what would be computed from them.

    given: summary, totals, by_kind (kind -> measure -> Summary), public and private (measure -> Summary).
    """
    file = ScoredFile(SimpleNamespace(name="corrections"), judged, np.array([]), given.pop("summary", {}), shown)
    parts = {name: given.pop(name, {}) for name in ("public", "private")}
    computed = {"by_kind": {}, "totals": {}, "shown": shown, "values": np.asarray(values, float), "parts": parts}
    file.__dict__.update(computed | given)  # as the cached properties do
    return file


def made(judged, values, shown="correction_recall", facts=(), **given):
    return run_page.task_page(scored(judged, values, shown, **given), facts)


def shown_items(judged, values, shown="correction_recall"):
    return data_of(made(judged, values, shown))["items"]


def test_items_are_sorted_worst_first_in_pieces_with_their_marks():
    """Recall .5, 1 and 0: the third sentence is the worst, the second the best. `reference` is not marked here."""
    items = shown_items(corrections(), [0.5, 1, 0])
    assert items["texts"] == ["source", "reference", "prediction", "edits"]
    assert items["numbers"] == ["correction_recall", "tp", "fp", "fn", "fr"]  # no id and kind twice, nothing all empty
    assert [row[0] for row in items["rows"]] == ["문장 3", "문장 1", "문장 2"]
    assert items["rows"][0] == [
        "문장 3", "없음", [["밥을 ", ""], ["먹었다", "fr"]], "밥을 먹었다", [["밥을 ", ""], ["먹엇다", "fr"]],
        "먹었다→먹엇다 FR", 0, 0, 1, 0, 1,
    ]  # fmt: skip
    found = shown_items(answers("가나다라"), [np.nan, 0.7, np.nan, 0.2], "rouge_1")  # without a value: last, in order
    assert [(row[0], row[-1]) for row in found["rows"]] == [("q3", 0.2), ("q1", 0.7), ("q0", None), ("q2", None)]
    found = shown_items(answers("가나"), [np.nan, np.nan], "final_score")
    assert (found["numbers"], [row[0] for row in found["rows"]]) == ([], ["q0", "q1"])


def test_the_worst_thousand():
    n = run_page.LIMIT + 1
    values = np.arange(n)[::-1] / n
    page = data_of(made(answers(["글"] * n), values, "rouge_1"))
    rows = page["items"]["rows"]
    assert (len(rows), page["total"], rows[0][0]) == (1000, n, f"q{n - 1}")
    np.testing.assert_allclose([row[-1] for row in rows], sorted(values)[:1000], atol=1e-6)


def test_measures_have_intervals_parts_and_reasons():
    summary = {
        "exact_match": Summary(0.5, 8, 0.25, 0.75),
        "rouge_1": Summary(0.25, 4, note="fewer than 20 items"),
        "bertscore": NONE,
        "final_score": NONE,
    }
    judged = answers("가", absent={"bertscore": "no model", "final_score": "needs bertscore"})
    parts = {"public": {"exact_match": Summary(0.4, 3)}, "private": {"exact_match": NONE}}
    page = data_of(made(judged, [1], "exact_match", summary=summary, **parts))
    mark = {"name": "exact_match", "n": 8, "mean": 0.5, "low": 0.25, "high": 0.75}
    assert page["measures"][0] == {
        "name": "exact_match", "n": 8, "cells": [0.5, 0.4, None], "marks": [mark], "why": ""
    }  # fmt: skip
    assert [(of["name"], [one["mean"] for one in of["marks"]], of["why"]) for of in page["measures"][1:]] == [
        ("rouge_1", [0.25], "fewer than 20 items"), ("bertscore", [], "no model"),
        ("final_score", [], "needs bertscore"),
    ]  # fmt: skip
    assert (page["objective"], page["columns"]) == ("exact_match", ["", "public", "private"])


def test_one_row_per_kind_and_one_column_per_defined_measure():
    by_kind = {
        "선다형": {"accuracy": Summary(1.0, 3), "rouge_1": NONE, "bleurt": Summary(np.nan, 3)},
        "서술형": {"accuracy": Summary(np.nan, 2), "rouge_1": Summary(0.5, 2), "bleurt": Summary(np.nan, 2)},
    }
    summary = dict.fromkeys(("accuracy", "rouge_1", "bleurt"), NONE)
    kinds = data_of(made(answers("가"), [1], summary=summary, by_kind=by_kind))["kinds"]
    assert kinds["measures"] == ["accuracy", "rouge_1"]
    assert kinds["rows"] == [["선다형", [3, 1.0], [0, None]], ["서술형", [2, None], [2, 0.5]]]


def test_hostile_texts_are_texts():
    table = {"id": [HOSTILE], "kind": [HOSTILE], "words" + HOSTILE: [HOSTILE], "marked": [HOSTILE]}
    marked = {"marked": [[(HOSTILE, "tp"), (HOSTILE, HOSTILE)]]}
    judged = JudgedItems({}, table, marked, {HOSTILE: HOSTILE}, (HOSTILE,))
    given = {
        "totals": {HOSTILE: 1},
        "by_kind": {HOSTILE: {HOSTILE: Summary(0.5, 1)}},
        "summary": {HOSTILE: Summary(0.5, 1, note=HOSTILE)},
    }
    page = made(judged, [0.5], HOSTILE, facts=[(HOSTILE, HOSTILE)], **given)
    assert inert(page)
    assert json.dumps(data_of(page), ensure_ascii=False).count(json.dumps(HOSTILE, ensure_ascii=False)[1:-1]) == 18
    text = described(judged, HOSTILE, facts=[(HOSTILE, HOSTILE)], **given)
    assert not {"<", "`"} & {*text}
    assert all(line.count("|") in (0, 7) for line in text.splitlines())


@pytest.mark.parametrize("template", [run_page.RUN_TEMPLATE, run_page.TASK_TEMPLATE], ids=lambda path: path.name)
def test_only_its_own_styles_and_scripts_may_run(template):
    text = fill_page(template, {})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    for kind in ("style", "script"):
        [body] = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        sha256 = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{sha256}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\((?!#)|@import|innerHTML|\{\{", text)


@settings(max_examples=15)
@given(st.dictionaries(st.text(), st.text() | st.lists(st.text()) | st.floats(allow_nan=False, allow_infinity=False)))
def test_a_page_contains_its_data(data):
    assert data_of(fill_page(run_page.TASK_TEMPLATE, data)) == data


def described(judged, shown="exact_match", files=(), facts=(), **given):
    given = {"summary": {"exact_match": Summary(0.5, 8, 0.25, 0.75)}} | given
    return run_note.task_note(scored(judged, shown=shown, **given), facts, files)


def test_the_description_lists_numbers_absent_measures_counts_and_files():
    summary = {
        "final_score": NONE,
        "rouge_1": Summary(0.25, 4),
        "exact_match": Summary(0.5, 1200, 0.25, 0.75),
    }
    judged = answers("가", absent={"final_score": "needs bleurt"}, notes=("All answers are alike.",))
    files, public = ["report.html", "predictions.csv.gz", "unknown.bin"], {"exact_match": Summary(0.4, 3)}
    text = described(judged, files=files, facts=[("Scheme", "rag_qa")], summary=summary, public=public,
                     totals={"tp": 1234, "fp": 2})  # fmt: skip
    text = html.unescape(text)
    first = "**exact_match 0.5000**, in sample (95 % interval 0.250 – 0.750)\n\n[report.html](report.html): "
    assert text.startswith(first)
    assert "\n\n- **Scheme**: rag_qa\n\n| measure |" in text
    rows = "| exact_match | 0.5000 | 0.250 – 0.750 | 0.4000 | – | 1,200 |\n| rouge_1 | 0.2500 | – | – | – | 4 |\n"
    assert rows in text
    assert "| final_score" not in text
    assert "- **final_score** is absent: needs bleurt" in text
    assert "tp 1,234, fp 2" in text
    assert "- All answers are alike." in text
    assert re.findall(r"^- `([\w.]+)`", text, re.MULTILINE) == ["predictions.csv.gz"]
    bare = described(answers("가", absent={"bleurt": "no model"}), "bleurt", summary={"bleurt": NONE})
    assert bare.startswith("Nothing could be scored.\n\n- **bleurt** is absent: no model")
    assert "|" not in bare


def test_a_long_description_ends_at_a_line():
    text = as_note(described(answers("가", notes=tuple(f"note {i} " + "글" * 80 for i in range(200)))))
    assert TAG_LIMIT - 200 < len(text) <= TAG_LIMIT
    assert text.endswith("글\n…")
