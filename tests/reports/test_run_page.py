"""The description, the query table and the page of a run: their content, and that no text becomes markup."""

import html
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from html_pages import HOSTILE, data_of, inert

from harness.gates.gate import Decision
from harness.recording import provenance
from harness.reports.gate_view import SignalRule, given

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "format=json")
FILES = ("documents.jsonl", "eval.jsonl", "qrels.jsonl")


def rows(table):
    return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


@pytest.fixture
def run(harness, toy):
    """run(*words) -> (the data of the page, its queries, the JSON document of the command)."""

    def call(*words, data=TOY[:3]):
        done = harness("run", *data, TOY[3], *(words if "tracking=mlflow" in words else ("tracking=none", *words))).json
        page = data_of((Path(done["files"]["folder"]) / "report.html").read_text("utf-8"))
        return page, rows(page["queries"]), done

    return call


def test_the_table_shows_the_outcome_of_each_query(run):
    """Query 7 finds d3 (grade 2) and d1 (1), both relevant; 3 finds d2; 5, a greeting, shares no bigram with any.

    With a threshold between their top scores, one of 7 and 3 wrongly loses its documents; 5 rightly has none.
    """
    _, (seven, three, _), _ = run("gate=score", "gate.threshold=1")
    assert seven["documents"].splitlines()[0] == "✓ d3 달의 모양은 한 달 동안 변한다"
    assert three["documents"].splitlines()[0] == "✓ d2 물은 섭씨 100도에서 끓는다"
    between = (seven["signal"] + three["signal"]) / 2
    _, (seven, three, five), _ = run("gate=score", f"gate.threshold={between}")
    low, high = sorted((seven, three), key=lambda row: row["signal"])
    words = ("needs", "decision", "loss", "kept", "shown", "first_hit", "hits", "modified_map@3")
    assert [low[name] for name in words] == [True, "wrongly_withheld", "wrongly_withheld", False, 0, 1, 0, 0.0]
    assert [five[name] for name in words] == [False, "right", "", False, 0, None, 0, 1.0]
    assert [high[name] for name in words[:4]] == [True, "right", "", True]
    assert high["hits"] == high["documents"].count("✓ ") >= 1
    assert high["modified_map@3"] == 1.0
    assert low["documents"] == five["documents"] == ""


def test_the_page_lists_found_and_missed_documents(run):
    """d3 and d1 are relevant to query 7; d1 shares no bigram with it and is not retrieved at all."""
    page, _, _ = run("top_k=1")
    ids = [one[0] for one in page["documents"]]
    assert [[(ids[place], grade) for place, grade, _ in one] for one in page["top"]] == [[("d3", 2)], [("d2", 1)], []]
    missed = [[(ids[place], grade, rank) for place, grade, rank in one] for one in page["missed"]]
    assert missed == [[("d1", 1, None)], [], []]


def test_the_description_gives_numbers_losses_counts_and_commands(run, tracker):
    page, _, _ = run("tracking=mlflow", "gate=auto", "experiment_name=e")
    [logged] = tracker.runs("e", {})
    text = html.unescape(logged.tags["mlflow.note.content"]).replace("\u2003", " ")
    assert page["columns"] == ["out of fold", "in sample"]
    first, in_sample = page["measures"][0]["marks"]
    assert [first["name"], in_sample["name"]] == ["oof/modified_map@3", "modified_map@3"]
    assert page["measures"][0]["cells"] == [first["mean"], in_sample["mean"]]
    assert text.startswith(f"**modified_map@3 {first['mean']:.4f}**, out of fold (95 % interval ")
    assert page["ranked_by"] == first | {"name": "modified_map@3", "kind": "out of fold"}
    assert page["lost"] == "out of fold"
    assert text.index("| **oof/modified_map@3** |") < text.index("| modified_map@3 |") < text.index("| hit@3 |")
    assert "| needs retrieval | 2 | 0 |\n| needs none | 0 | 1 |" in text
    assert "| **wrongly_withheld** | 0.0000 | 0 | needs retrieval, yet the gate withheld the documents |" in text
    assert "- **Data**: contest: 3 documents, 3 queries, 3 labelled (1 need no retrieval)" in text
    assert f"`harness reproduce run={logged.short_id}`" in text
    assert f"`harness export run={logged.short_id}`" in text
    report = re.search(r"\n\n\[report.html\]\((#/experiments/\d+/runs/(\w+)/artifacts/report.html)\)", text)
    assert report[2] == logged.run_id
    assert report.start() < text.index("**Data**")
    assert set(re.findall(r"^- `([\w.]+)`", text, re.MULTILINE)) == {
        "config.yaml", "gate.json", "gate.png", "metrics.json", "overview.png", "predictions.jsonl", "queries.json",
        "requirements.txt", "run.trec", "scores.csv",
    }  # fmt: skip
    table = Path(tracker.client.download_artifacts(logged.run_id, "queries.json")).read_text("utf-8")
    assert page["queries"] == json.loads(table)


def test_hostile_texts_are_texts(run, toy):
    for name in FILES:
        lines = (toy / name).read_text("utf-8").splitlines()
        found = [json.loads(line.replace("d3", "d3<b>|")) for line in lines]
        for row in found:
            if "content" in row:
                row["content"] += HOSTILE
            if "msg" in row:
                row["msg"][0]["content"] += HOSTILE
        (toy / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), "utf-8")
    page, _, done = run("gate=auto")
    assert inert((Path(done["files"]["folder"]) / "report.html").read_text("utf-8"))
    assert page["queries"]["data"][0][1].endswith(HOSTILE)
    assert HOSTILE.split("\u2028")[0] in page["documents"][0][2]
    assert "d3<b>|" in [one[0] for one in page["documents"]]


def test_requirements_are_pinned_names():
    lines = provenance.requirements().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0].lower())
    assert all(re.fullmatch(r"[\w.-]+==[^\s/@]+", line) for line in lines)
    assert f"numpy=={np.__version__}" in lines


# ---- The gate on the page


@pytest.mark.drawn
def test_what_the_threshold_moves(run):
    """With documents, 7 and 3 score 1; without, 0. Query 5 finds none and scores 1 either way.

    So without a gate the mean is 1, with all withheld 1/3, and the plateau reaches down to -inf.
    """
    page, queries, done = run("gate=score", "gate.threshold=0.5")
    gate = page["gate"]
    assert (gate["name"], gate["thresholds"], gate["levels"]) == ("bm25 top_score", [0.5], [3, 0])
    assert (gate["shows"], gate["withholds"]) == ([1, 1, 1], [0, 0, 1])
    assert gate["most"][2] == 0
    assert gate["in_use"] == 1
    assert gate["plateau"][0] == "-inf"
    assert (gate["public"], gate["learnt"], gate["counts"]) == (False, False, [True] * 3)
    assert gate["ends"][0] < 0.5 < gate["ends"][1]
    assert (Path(done["files"]["folder"]) / "gate.png").is_file()
    withheld = run("gate=score", "gate.threshold=1000")[0]["gate"]  # what would become of each with documents
    assert withheld["lost"] == gate["lost"] == ["", "", ""]
    assert withheld["hits"] == gate["hits"] == [row["hits"] for row in queries]
    cut = run("gate=score", "gate.threshold=1000", "top_k=1")[0]["gate"]
    assert (cut["most"], cut["hits"]) == ([1, 1, 0], [1, 1, 0])


def test_without_labels_the_signal_is_still_shown(run, toy):
    labels = (toy / "qrels.jsonl").read_text("utf-8").splitlines(keepends=True)
    (toy / "qrels.jsonl").write_text("".join(line for line in labels if json.loads(line)["eval_id"] != 3), "utf-8")
    page, queries, _ = run("gate=none")
    place = [row["query_id"] for row in queries].index("3")
    assert page["gate"]["lost"][place] is page["gate"]["hits"][place] is None
    (toy / "qrels.jsonl").unlink()
    page, queries, done = run("gate=score", "gate.threshold=0.5")
    assert page["measures"] == page["losses"] == []
    assert {(row["decision"], row["needs"]) for row in queries} == {("not labelled", None)}
    assert page["gate"]["thresholds"] == [0.5]
    assert "shows" not in page["gate"]
    assert not {"gate.png", "overview.png"} & {file.name for file in Path(done["files"]["folder"]).iterdir()}


def test_one_query(run, toy):
    for name in FILES[1:]:
        (toy / name).write_text((toy / name).read_text("utf-8").splitlines(keepends=True)[0], "utf-8")
    for gate in ("none", "score", "auto"):
        page, queries, _ = run(f"gate={gate}")
        assert len(queries) == 1
        low, high = page["gate"]["ends"]
        assert low < high


def test_private_labels_do_not_count_where_the_public_part_selects(run):
    page, queries, _ = run("tokenizer=word", "gate=score", "select_on=public", data=())
    counted, labelled = (
        np.array(one) for one in (page["gate"]["counts"], [row["needs"] is not None for row in queries])
    )
    scored = [value for value in page["gate"]["shows"] if value is not None]
    assert len(scored) == (counted & labelled).sum() == round(0.4 * labelled.sum())


def test_a_fitted_gate_looks_the_same_where_it_is_applied(run):
    page, _, done = run("gate=auto")
    again, _, _ = run("gate=fitted", f"gate.file={done['files']['folder']}/gate.json")
    assert (page["gate"]["learnt"], again["gate"]["learnt"]) == (True, False)
    assert all(page["gate"][name] == again["gate"][name] for name in ("name", "thresholds", "in_use"))


@pytest.mark.parametrize(
    ("signal", "shown", "thresholds"),
    [
        ([1.0, 0.0, 1.0], [3, 0, 3], (0.5,)),
        ([1.0, 0.0], [3, 3], (-np.inf,)),
        ([1.0, 0.0], [0, 0], (np.inf,)),
        ([1.0, 0.0], [0, 3], ()),  # not decided by the signal
    ],
)
def test_a_gate_without_a_threshold_gets_one_from_its_decisions(signal, shown, thresholds):
    decided = SimpleNamespace(decision=Decision(np.array(shown), np.array(signal)), rankings={"a": None})
    plan = SimpleNamespace(made=lambda group: object(), top_k=3)
    assert given(decided, plan) == SignalRule("signal", (3, 0), thresholds)


def test_the_command_runs_the_gate_as_printed(harness, run):
    """The words of a shell: paths with blanks are quoted, other settings of a gate are gone."""
    Path("toy").rename("my toy's")
    data = ("dataset=contest", "dataset.path=my toy's", TOY[2])
    page, _, _ = run("gate=auto", "gate.signals=[mean_top_k]", "gate.k=5", data=data)
    words = shlex.split(page["gate"]["command"] + "0.5")
    assert words[:2] == ["harness", "run"]
    assert [word for word in words if word.startswith("gate")] == [
        "gate=score", "gate.signal=mean_top_k", "gate.k=5", "gate.threshold=0.5",
    ]  # fmt: skip
    assert "dataset.path=my toy's" in words
    again = data_of((Path(harness(*words[1:]).json["files"]["folder"]) / "report.html").read_text("utf-8"))["gate"]
    assert (again["name"], again["thresholds"]) == (page["gate"]["name"], [0.5])


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("gate=none", "retriever=hybrid_lexical"), "gate.signal=top_score gate.source=bm25 gate.threshold="),
        (("gate=score", "gate.signal=query_words"), "gate.signal=query_words gate.threshold="),
        (("gate=classifier",), None),
    ],
)
def test_a_command_is_offered_where_a_single_signal_decides(run, words, ending):
    command = run(*words)[0]["gate"]["command"]
    assert command is None if ending is None else command.endswith(f" gate=score {ending}")


def test_a_page_shows_some_of_many_queries_and_says_so(run, monkeypatch):
    _, every, _ = run("gate=score", "gate.threshold=1")
    monkeypatch.setattr("harness.reports.run_page.QUERIES", 2)
    page, some, done = run("gate=score", "gate.threshold=1", "metrics=all")
    assert some == every[:2]
    assert [len(page[name]) for name in ("top", "missed")] == [2, 2]
    assert {len(page["gate"][name]) for name in ("most", "counts", "shows", "lost", "hits")} == {2}
    assert "The page and queries.json show the first 2 of 3 queries. The other files have all queries." in page["notes"]
    assert done["counts"]["scored"] == 3
