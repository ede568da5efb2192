"""From the shipped test set to honest scores: run, pool, judge, review, audit, freeze, run and compare."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest
from chat_server import ChatServer, Invocation
from openpyxl import load_workbook
from review_visits import asked, said, visiting
from scripted_judge import asked_for, reply

SAMPLE = Path(__file__).resolve().parents[2] / "harness" / "sample"


class Knowing:
    """Knows the evidence of the shipped test set, as a model that is at times lenient, and as a person who is not."""

    def __init__(self, path: Path) -> None:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        self._rows = {row["msg"][-1]["content"]: row for row in rows}

    def needs(self, query: str) -> bool:
        return self._rows[query]["needs"]

    def passage(self, query: str, text: str) -> str:
        """Half a passage of evidence that stands in the text; "" if none does."""
        whole = [one["exact"] for one in self._rows[query]["evidence"]]
        halves = [half for one in whole for half in (one[: len(one) // 2], one[len(one) // 2 :])]
        return next((half.strip() for half in halves if half.strip() in text), "")

    def person(self, query: str, text: str) -> int:
        return 3 if self.passage(query, text) else zlib.crc32((query + text).encode()) % 2

    def model(self, asked: Invocation, _: int = 1) -> str:
        one = asked_for(asked)
        if quote := self.passage(one.query, one.document):
            return reply(3, quote)
        lenient = zlib.crc32((one.query + one.document).encode()) % 9 == 0
        return reply(2, one.document[:30].strip()) if lenient else reply(0)


def judging(knowing):
    """Judge all that the page asks, as a person does who knows the evidence."""

    def visit(links):
        [link] = links.values()
        keys = [key for query in asked(link, "api/items")["queries"] for key in query]
        for start in range(0, len(keys), 50):
            for key, one in asked(link, f"api/texts?keys={','.join(keys[start : start + 50])}").items():
                query = one["turns"][-1]["content"]
                value = knowing.person(query, one["text"]) if "text" in one else int(knowing.needs(query))
                said(link, key, value)

    return visit


def fill(path, knowing):
    """The same in a workbook."""
    book = load_workbook(path)
    for _, _, query, answer in book["queries"].iter_rows(min_row=2):
        answer.value = "yes" if knowing.needs(last_turn(query.value)) else "no"
    for _, _, query, document, grade in book["pairs"].iter_rows(min_row=2):
        grade.value = knowing.person(last_turn(query.value), document.value)
    book.save(path)


def last_turn(text):
    return text.rpartition("[user] ")[2]


@pytest.mark.slow
def test_from_the_shipped_test_set_to_honest_scores(harness, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
    shutil.copytree(SAMPLE / "testset", tmp_path / "ts")
    knowing = Knowing(tmp_path / "ts" / "queries.jsonl")
    assert harness("prepare", "files=" + str(SAMPLE / "profiles" / "*"), "output=docs").code == 0
    retrievers = (["retriever=bm25"], ["retriever=hybrid_lexical"])
    for words in retrievers:
        testset = ["dataset=testset", "dataset.path=ts", "dataset.documents=docs", "experiment_name=first"]
        assert harness("run", *testset, *words).code == 0

    pooling = ["testset pool", "testset=ts", "documents=docs", "experiment_name=first"]
    assert harness(*pooling).code == 0
    with ChatServer(model=knowing.model) as server:
        words = ["testset=ts", "model=tiny", f"llm.base_url={server.url}", "limit=null", "format=json"]
        assert harness("testset judge", *words).json["judge"]["judged"] > 200
        sent = len(server.asked)
        assert harness("testset judge", *words).code == 0
        assert len(server.asked) == sent, "what is judged is not asked again"

    review = ["testset review", "testset=ts", "reviewer=kim", "audit.queries=22"]
    with visiting(monkeypatch) as use:
        use(judging(knowing))
        done = harness(*review)
        assert "kim: " in done.out, done.err
        assert len(harness("testset audit", "testset=ts", "format=json").json["progress"]["checked"]) == 10, "the pilot"
        assert harness(*review, "via=xlsx", "output=rest.xlsx").code == 0
        fill(tmp_path / "rest.xlsx", knowing)
        assert harness(*review, "via=xlsx", "from=rest.xlsx").code == 0
        assert harness("testset review", "testset=ts", "reviewer=lee", "audit.queries=22").code == 0  # some once more

    found = harness("testset audit", "testset=ts", "format=json").json
    checked = len(found["progress"]["checked"])
    assert checked == found["progress"]["drawn"] >= 22
    assert found["model"]["statistics"]["sensitivity"]["value"] == 1
    assert 0.5 < found["model"]["statistics"]["specificity"]["value"] < 1
    assert found["people"][0]["statistics"]["agreed"]["value"] == 1
    assert found["differing"] == []

    frozen = harness("testset freeze", "testset=ts", "formats=[trec]", "format=json").json
    assert frozen["counts"]["checked"] == checked
    assert frozen["agreement"]["checked"] == checked
    data = ["dataset=frozen", "dataset.path=ts/v1", "experiment_name=frozen", "format=json"]
    ran = [harness("run", *data, *words).json for words in retrievers]
    assert all(0.4 < one["metrics"]["modified_map@3"] < 1 for one in ran)
    assert all(one["metrics"]["judged@3"] == 1 for one in ran), "both runs were pooled"
    assert [harness(command, *data[2:]).code for command in ("export", "reproduce")] == [0, 0]
    compared = harness("compare", "experiment_name=frozen", "format=json").json
    estimates = [one["estimates"]["modified_map@3"] for one in compared["runs"]]
    assert {(one["checked"], one["others"]) for one in estimates} == {(20, 2)}, "two unanswerable ones are not scored"
    assert "estimate of modified_map@3" in compared["verdicts"][0]
