"""Answers that a language model writes from the documents returned: what it sees, what is logged, what they change."""

import json
from pathlib import Path

import pytest
from chat_server import ChatServer
from talks import last_turn, llm, rows, write_talk

from harness.experiment.writing import PROMPTS
from retrievers.external import http_client

TALK = ("dataset=contest", "dataset.path=talk", "tokenizer=char_ngram", "format=json", "experiment_name=e")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def talk(toy, tmp_path):
    return write_talk(toy, tmp_path / "talk")


def answered(asked, time=1):
    return json.dumps({"answer": f" {last_turn(asked)}라고요?\n\n달이 돕니다. "}, ensure_ascii=False)


def test_an_answer_is_written_from_the_documents_returned(harness, talk):
    with ChatServer(answered) as server:
        done = harness("run", *TALK, "answer=llm", "top_k=2", *llm(server))
        found = rows(done)
        assert {one: row["answer"] for one, row in found.items()} == {
            7: "그건 왜 그래?라고요?\n\n달이 돕니다.", 3: "물은 몇 도에서 끓어?라고요?\n\n달이 돕니다.",
            5: "안녕라고요?\n\n달이 돕니다.", 9: "물은 몇 도에서 끓어?라고요?\n\n달이 돕니다.",
        }  # fmt: skip
        assert [len(row["references"]) for row in found.values()] == [2, 1, 0, 1]
        shipped = (PROMPTS / "answer.txt").read_text("utf-8").strip()
        first, second = (reference["content"] for reference in found[7]["references"])
        references = f"[1] {first}\n\n[2] {second}"
        talk = "user: 달은 매일 모양이 같아?\nassistant: 아니요, 변합니다.\nuser: 그건 왜 그래?"
        assert shipped.replace("{references}", references).replace("{conversation}", talk) in server.texts
        greeting = shipped.replace("{references}", "(none)").replace("{conversation}", "user: 안녕")
        assert greeting in server.texts, "without documents, from the conversation"
        assert len(server.asked) == 3
        gated = rows(harness("run", *TALK, "answer=llm", "gate=score", "gate.threshold=99", *llm(server)))
        assert [row["topk"] for row in gated.values()] == [[]] * 4
        assert len(server.asked) == 5, "two conversations without the documents that the gate withholds, one as before"


def test_answers_change_the_submission_and_no_number(harness, tracker, talk, tmp_path):
    with ChatServer(answered) as server:
        plain, told = (harness("run", *TALK, *words).json for words in ((), ("answer=llm", *llm(server))))
    assert plain["metrics"] == told["metrics"]
    bare, spoken = tracker.run(plain["run_id"]), tracker.run(told["run_id"])
    assert bare.name == "bm25-char_ngram-none"
    assert spoken.name.startswith("bm25-char_ngram-none answer=llm llm.model=tiny")
    assert {"answer", "answer.prompt", "llm.model"} & {*bare.params} == set()
    assert (spoken.params["answer"], spoken.params["llm"], spoken.params["llm.model"]) == ("llm", "chat", "tiny")
    assert "answer.llm.model" not in spoken.params
    assert bare.tags["trial_key"] != spoken.tags["trial_key"]
    assert bare.tags["predictions.sha256"] != spoken.tags["predictions.sha256"]
    for run_id, answer in {plain["run_id"]: "", told["run_id"]: "안녕라고요?\n\n달이 돕니다."}.items():
        assert harness("reproduce", f"run={run_id}", "format=json").json["reproduced"] is True
        export = harness("export", f"run={run_id}", "experiment_name=e", f"submission={run_id}.jsonl", "format=json")
        lines = Path(export.json["submission"]).read_text("utf-8").splitlines()
        assert [json.loads(line)["answer"] for line in lines][2] == answer


def test_a_light_run_has_its_answers_too(harness, talk):
    with ChatServer(answered) as server:
        words = (*TALK, "answer=llm", *llm(server))
        full, light = (rows(harness("run", *words, f"tracking.detail={one}")) for one in ("full", "light"))
    assert [row["answer"] for row in light.values()] == [row["answer"] for row in full.values()]


def test_an_unusable_answer_fails_the_run(harness, talk):
    def silent(asked, time):
        return json.dumps({"answer": ""}) if last_turn(asked) == "안녕" else answered(asked)

    with ChatServer(silent) as server:
        done = harness("run", *TALK, "answer=llm", *llm(server))
        assert done.code == 1
        assert "answer=llm: the model wrote no usable answer for 1 of 4 conversations: 5. The first: the" in done.err
        assert "answer.prompt=FILE" in done.err
        Path("mine.txt").write_text("{references}\n{conversation}", "utf-8")
        assert harness("run", *TALK, "answer=llm", "answer.prompt=mine.txt", *llm(server)).code == 1
        assert len(server.asked) == 2 * (2 + 3), "another prompt asks again"


def test_a_sweep_writes_no_answers(harness, talk):
    with ChatServer(answered) as server:
        for words in (("answer=llm", "top_k=1,2"), ("answer=llm,llm", "top_k=1,2")):
            done = harness("sweep", *TALK, *words, *llm(server))
            assert done.code == 2
            assert "A sweep writes no answers: no score depends on them" in done.err
        done = harness("sweep", *TALK, "answer=none,llm", *llm(server))
        assert (done.code, json.loads(done.out)["trials"]["finished"]) == (1, 1)
        assert server.asked == []
