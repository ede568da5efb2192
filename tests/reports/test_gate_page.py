"""What the page of a run needs to move the threshold of its gate, and the command that runs it with another."""

import json
import shlex
from pathlib import Path

import pytest
from html_pages import data_of

from harness.reports import gate_figures, run_figures

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "tracking=none", "format=json")


@pytest.fixture
def page(harness, toy, monkeypatch):
    """page(*words) -> (the data of the gate, the queries by id)."""
    monkeypatch.setattr(run_figures, "overview", lambda scores, file, *_: None)
    monkeypatch.setattr(gate_figures, "gate", lambda view, file: None)

    def call(*words):
        folder = Path(harness("run", *TOY, *words).json["files"]["folder"])
        data = data_of((folder / "report.html").read_text("utf-8"))
        rows = [dict(zip(data["queries"]["columns"], row, strict=True)) for row in data["queries"]["data"]]
        return data["gate"], rows

    return call


def test_each_query_knows_what_becomes_of_it_with_documents(page):
    """Query 7 finds two relevant documents, 3 finds one, 5 (a greeting) none and needs none."""
    withheld, _ = page("gate=score", "gate.threshold=1000")
    shown, rows = page("gate=none")
    for gate in (withheld, shown):
        assert gate["lost"] == ["", "", ""]
        assert gate["hits"] == [row["hits"] for row in rows]
    cut, rows = page("gate=score", "gate.threshold=1000", "top_k=1")
    assert cut["most"] == [1, 1, 0]
    assert cut["hits"] == [1, 1, 0]


def test_an_unlabelled_query_has_no_loss(page, toy):
    lines = (toy / "qrels.jsonl").read_text("utf-8").splitlines(keepends=True)
    (toy / "qrels.jsonl").write_text("".join(line for line in lines if json.loads(line)["eval_id"] != 3), "utf-8")
    gate, rows = page("gate=none")
    place = [row["query_id"] for row in rows].index("3")
    assert gate["lost"][place] is gate["hits"][place] is None


def test_the_command_runs_the_gate_as_printed(harness, page):
    """The words of a shell: paths with blanks are quoted, other settings of a gate are gone."""
    Path("toy").rename("my toy's")
    Path("toy").symlink_to("my toy's")
    gate, _ = page("gate=auto", "gate.signals=[mean_top_k]", "gate.k=5", "dataset.path=my toy's")
    words = shlex.split(gate["command"] + "0.5")
    assert words[:2] == ["harness", "run"]
    assert [word for word in words if word.startswith("gate")] == [
        "gate=score", "gate.signal=mean_top_k", "gate.k=5", "gate.threshold=0.5",
    ]  # fmt: skip
    assert "dataset.path=my toy's" in words
    again = data_of((Path(harness(*words[1:]).json["files"]["folder"]) / "report.html").read_text("utf-8"))["gate"]
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
def test_a_command_is_offered_where_a_single_signal_decides(page, words, ending):
    command = page(*words)[0]["command"]
    assert command == ending if ending is None else command.endswith(ending)
