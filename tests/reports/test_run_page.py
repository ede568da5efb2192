"""The description, the query table and the page of a run: their content, and that no text becomes markup."""

import html
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from html_pages import Parts, data_of

from harness.gates.gate import Decision
from harness.recording import provenance
from harness.reports import gate_view
from harness.reports.gate_view import SignalRule
from harness.tracking.mlflow_tracker import MlflowTracker

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "format=json")
HOSTILE = (
    "</script><script>document.title='x'</script><img src=x onerror=alert(1)>\u2028| **달** `c` {{data}} <!-- [l](x)"
)


def page_data(folder):
    return data_of((Path(folder) / "report.html").read_text("utf-8"))


def rows(table):
    return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


@pytest.fixture
def run(harness, toy):
    """run(*words) -> (the data of the page, the folder)."""

    def call(*words):
        done = harness("run", *TOY, *(words if "tracking=mlflow" in words else ("tracking=none", *words))).json
        return page_data(done["files"]["folder"]), Path(done["files"]["folder"])

    return call


@pytest.fixture
def hostile(toy):
    """The toy dataset with texts and ids that look like markup and code."""
    for name in ("documents.jsonl", "eval.jsonl", "qrels.jsonl"):
        lines = (toy / name).read_text("utf-8").splitlines()
        found = [json.loads(line.replace("d3", "d3<b>|")) for line in lines]
        for row in found:
            if "content" in row:
                row["content"] += HOSTILE
            if "msg" in row:
                row["msg"][0]["content"] += HOSTILE
        (toy / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), "utf-8")
    return toy


def test_the_table_shows_the_outcome_of_each_query(run):
    """Query 7 finds d3 (grade 2) and d1 (1), both relevant; 3 finds d2; 5, a greeting, shares no bigram with any.

    With a threshold between their top scores, one of 7 and 3 wrongly loses its documents; 5 rightly has none.
    """
    page, _ = run("gate=score", "gate.threshold=1")
    seven, three, five = rows(page["queries"])
    assert three["signal"] >= 1  # the next threshold lies between the two
    between = (seven["signal"] + three["signal"]) / 2
    page, _ = run("gate=score", f"gate.threshold={between}")
    seven, three, five = rows(page["queries"])
    low = three if three["signal"] < between else seven
    high = seven if low is three else three
    words = ("needs", "decision", "loss", "kept", "shown", "first_hit", "hits", "modified_map@3")
    assert [low[name] for name in words] == [True, "wrongly_withheld", "wrongly_withheld", False, 0, 1, 0, 0.0]
    assert [five[name] for name in words] == [False, "right", "", False, 0, None, 0, 1.0]
    assert [high[name] for name in words[:4]] == [True, "right", "", True]
    assert high["hits"] == high["documents"].count("✓ ") >= 1
    assert high["modified_map@3"] == 1.0
    assert low["documents"] == five["documents"] == ""


def test_documents_carry_ticks_and_snippets(run):
    page, _ = run()
    seven, three, _ = rows(page["queries"])
    assert seven["documents"].splitlines()[0] == "✓ d3 달의 모양은 한 달 동안 변한다"
    assert three["documents"].splitlines()[0] == "✓ d2 물은 섭씨 100도에서 끓는다"


@pytest.mark.local
def test_the_page_holds_the_table_that_is_logged(run, tmp_path):
    _, folder = run("tracking=mlflow", "gate=auto")
    [file] = (tmp_path / "outputs" / "artifacts").rglob("queries.json")
    assert page_data(folder)["queries"] == json.loads(file.read_text("utf-8"))


def test_the_page_lists_found_and_missed_documents(run):
    # d3 and d1 are relevant to query 7; d1 shares no bigram with it and is not retrieved at all.
    page, _ = run("top_k=1")
    ids = [one[0] for one in page["documents"]]
    top = [[(ids[place], grade) for place, grade, _ in one] for one in page["top"]]
    missed = [[(ids[place], grade, rank) for place, grade, rank in one] for one in page["missed"]]
    assert top == [[("d3", 2)], [("d2", 1)], []]
    assert missed == [[("d1", 1, None)], [], []]


@pytest.mark.drawn
def test_what_the_threshold_moves(run):
    """With documents, 7 and 3 score 1; without, 0. Query 5 finds none and scores 1 either way.

    So without a gate the mean is 1, with all withheld 1/3, and the plateau reaches down to -inf.
    """
    page, folder = run("gate=score", "gate.threshold=0.5")
    gate = page["gate"]
    assert (gate["name"], gate["thresholds"], gate["levels"]) == ("bm25 top_score", [0.5], [3, 0])
    assert (gate["shows"], gate["withholds"]) == ([1, 1, 1], [0, 0, 1])
    assert gate["most"][2] == 0
    assert gate["in_use"] == 1
    assert gate["plateau"][0] == "-inf"
    assert (gate["public"], gate["learnt"], gate["counts"]) == (False, False, [True] * 3)
    assert gate["ends"][0] < 0.5 < gate["ends"][1]
    assert (folder / "gate.png").is_file()


def test_a_fitted_gate_looks_the_same_where_it_is_applied(harness, toy):
    first = Path(harness("run", *TOY, "tracking=none", "gate=auto").json["files"]["folder"])
    again = harness("run", *TOY, "tracking=none", "gate=fitted", f"gate.file={first / 'gate.json'}").json
    one, other = page_data(first)["gate"], page_data(again["files"]["folder"])["gate"]
    assert (one["name"], one["thresholds"]) == (other["name"], other["thresholds"])
    assert (one["learnt"], other["learnt"]) == (True, False)
    assert one["in_use"] == other["in_use"]


def test_without_labels_the_signal_is_still_shown(run, toy):
    (toy / "qrels.jsonl").unlink()
    page, folder = run("gate=score", "gate.threshold=0.5")
    assert page["measures"] == page["losses"] == []
    assert {row["decision"] for row in rows(page["queries"])} == {"not labelled"}
    assert {row["needs"] for row in rows(page["queries"])} == {None}
    assert page["gate"]["thresholds"] == [0.5]
    assert "shows" not in page["gate"]
    assert not (folder / "gate.png").exists()
    assert not (folder / "overview.png").exists()


def test_one_query(run, toy):
    for name in ("eval.jsonl", "qrels.jsonl"):
        lines = (toy / name).read_text("utf-8").splitlines(keepends=True)
        (toy / name).write_text(lines[0], "utf-8")
    for gate in ("none", "score", "auto"):
        page, _ = run(f"gate={gate}")
        assert len(page["queries"]["data"]) == 1
        low, high = page["gate"]["ends"]
        assert low < high


def test_private_labels_do_not_count_where_the_public_part_selects(harness):
    done = harness("run", "tokenizer=word", "tracking=none", "gate=score", "select_on=public", "format=json").json
    page = page_data(done["files"]["folder"])
    counted = np.array(page["gate"]["counts"])
    labelled = np.array([row["needs"] is not None for row in rows(page["queries"])])
    scored = [value for value in page["gate"]["shows"] if value is not None]
    assert len(scored) == (counted & labelled).sum() == round(0.4 * labelled.sum())


def test_the_description_gives_numbers_losses_counts_and_commands(run, tmp_path):
    run("tracking=mlflow", "gate=auto", "experiment_name=e")
    tracker = MlflowTracker()
    tracker.connect(tmp_path / "outputs")
    [logged] = tracker.runs("e", {})
    text = html.unescape(logged.tags["mlflow.note.content"]).replace("\u2003", " ")
    page, _ = run("gate=auto")
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
    files = set(re.findall(r"^- `([\w.]+)`", text, re.MULTILINE))
    assert files == {
        "config.yaml", "gate.json", "gate.png", "metrics.json", "overview.png",
        "predictions.jsonl", "queries.json",
        "requirements.txt", "run.trec", "scores.csv",
    }  # fmt: skip


def test_scored_predictions_are_described(harness, toy, tmp_path):
    made = harness("run", *TOY, "tracking=none").json["files"]["predictions"]
    harness("score", f"predictions={made}", "dataset=contest", "dataset.path=toy", "experiment_name=s")
    tracker = MlflowTracker()
    tracker.connect(tmp_path / "outputs")
    text = html.unescape(tracker.runs("s", {})[0].tags["mlflow.note.content"])
    assert text.startswith("**modified_map@3 1.0000**, in sample")
    assert "- `requirements.txt`: " in text
    assert "reproduce" not in text


def test_hostile_texts_are_texts(run, hostile):
    page, folder = run("gate=auto")
    text = (folder / "report.html").read_text("utf-8")
    parts = Parts(text)
    assert parts.tags.count("script") == 2
    assert parts.tags.count("img") == 0
    assert not [name for name in parts.attributes if name.startswith("on")]
    assert "<" not in text[text.index('id="data">') + 10 :].partition("</script>")[0]
    assert page["queries"]["data"][0][1].endswith(HOSTILE)
    assert HOSTILE.split("\u2028")[0] in page["documents"][0][2]
    assert "d3<b>|" in [one[0] for one in page["documents"]]


def test_requirements_are_pinned_names():
    lines = provenance.requirements().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0].lower())
    assert all(re.fullmatch(r"[\w.-]+==[^\s/@]+", line) for line in lines)
    assert {f"numpy=={np.__version__}"} <= set(lines)


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
    assert gate_view.given(decided, SimpleNamespace(made=lambda group: object(), top_k=3)) == SignalRule(
        "signal", (3, 0), thresholds
    )


# ---- The gate on the page


@pytest.fixture
def gate_of(run):
    """gate_of(*words) -> (the data of the gate, the queries)."""

    def call(*words):
        data, _ = run(*words)
        return data["gate"], rows(data["queries"])

    return call


def test_each_query_knows_what_becomes_of_it_with_documents(gate_of):
    """Query 7 finds two relevant documents, 3 finds one, 5 (a greeting) none and needs none."""
    withheld, _ = gate_of("gate=score", "gate.threshold=1000")
    shown, rows = gate_of("gate=none")
    for gate in (withheld, shown):
        assert gate["lost"] == ["", "", ""]
        assert gate["hits"] == [row["hits"] for row in rows]
    cut, rows = gate_of("gate=score", "gate.threshold=1000", "top_k=1")
    assert cut["most"] == [1, 1, 0]
    assert cut["hits"] == [1, 1, 0]


def test_an_unlabelled_query_has_no_loss(gate_of, toy):
    lines = (toy / "qrels.jsonl").read_text("utf-8").splitlines(keepends=True)
    (toy / "qrels.jsonl").write_text("".join(line for line in lines if json.loads(line)["eval_id"] != 3), "utf-8")
    gate, rows = gate_of("gate=none")
    place = [row["query_id"] for row in rows].index("3")
    assert gate["lost"][place] is gate["hits"][place] is None


def test_the_command_runs_the_gate_as_printed(harness, gate_of):
    """The words of a shell: paths with blanks are quoted, other settings of a gate are gone."""
    Path("toy").rename("my toy's")
    Path("toy").symlink_to("my toy's")
    gate, _ = gate_of("gate=auto", "gate.signals=[mean_top_k]", "gate.k=5", "dataset.path=my toy's")
    words = shlex.split(gate["command"] + "0.5")
    assert words[:2] == ["harness", "run"]
    assert [word for word in words if word.startswith("gate")] == [
        "gate=score", "gate.signal=mean_top_k", "gate.k=5", "gate.threshold=0.5",
    ]  # fmt: skip
    assert "dataset.path=my toy's" in words
    again = page_data(harness(*words[1:]).json["files"]["folder"])["gate"]
    assert (again["name"], again["thresholds"]) == (gate["name"], [0.5])


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (
            ("gate=none", "retriever=hybrid_lexical"),
            "gate=score gate.signal=top_score gate.source=bm25 gate.threshold=",
        ),
        (("gate=score", "gate.signal=query_words"), "gate=score gate.signal=query_words gate.threshold="),
        (("gate=classifier",), None),
    ],
)
def test_a_command_is_offered_where_a_single_signal_decides(gate_of, words, ending):
    command = gate_of(*words)[0]["command"]
    assert command == ending if ending is None else command.endswith(ending)
