"""From text files to scores: prepare, draft with a model behind a failing endpoint, run, sweep over chunk sizes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Invocation, Reply, completion
from scripted_drafts import document_of, draft, kind_of, reply

from harness.data.testset import SpanLabelled
from retrievers.external import http_client

SAMPLE = Path(__file__).resolve().parents[2] / "harness" / "sample"
KEY = "sk-not-to-be-found-anywhere"
FAULTS = ("429", "500", "cut", "no JSON", "wrong shape", "", "", "", "")
SENTENCE = re.compile(r"[^\n]{30,}?[.!?](?=\s|$)")
WRITTEN = ("queries.jsonl", "rejected.jsonl", "testset.json")


def drafting(asked: Invocation, time: int) -> str:
    """A model that breaks rules: every second fact copies the text, every second search quotes what is not there."""
    kind = kind_of(asked)
    if kind not in ("fact", "search"):
        return draft(asked, time)
    good, bad = SENTENCE.findall(document_of(asked))[:2]
    words = good.split()
    question = f"{words[-2]} {words[2]} {words[1]} 얘기" + (" 좀 해 줄래?" if kind == "fact" else "")
    copied, altered = bad.removesuffix(".") + "?", bad.replace("다.", "다고 한다.")
    return reply(
        {"question": question, "answer": good, "evidence": [good]},
        {"question": copied, "answer": f"그렇다. {bad}", "evidence": [bad]}
        if kind == "fact"
        else {"question": f"{bad.split()[0]} 소식", "answer": bad, "evidence": [altered]},
    )


def failing(asked: Invocation, time: int) -> str | Reply:
    """The same model, where half of all requests fail the first time, in one of five ways."""
    right = drafting(asked, time)
    fault = FAULTS[int(hashlib.sha256(asked.text.encode()).hexdigest(), 16) % len(FAULTS)] if time == 1 else ""
    if fault == "429":
        return Reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})
    if fault in ("500", "cut"):
        return Reply(500, "upstream failed") if fault == "500" else Reply(200, completion(right), cut=20)
    return {"no JSON": right[: len(right) // 2], "wrong shape": '{"questions": []}'}.get(fault, right)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """The shipped profiles, in a folder of their own."""
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return Path(shutil.copytree(SAMPLE / "profiles", tmp_path / "corpus"))


@pytest.mark.slow
def test_from_text_files_to_scores(harness, corpus, tmp_path):
    assert harness("prepare", "files=corpus/*", "output=docs").code == 0
    words = ["testset=ts", "documents=docs", "model=tiny", "limit=6", "store.path=cache", "format=json"]
    with ChatServer(model=failing, delay=0.01) as server:
        words.append(f"llm.base_url={server.url}")
        drafted = harness("testset draft", *words).json
        sent, written = len(server.asked), [(tmp_path / "ts" / name).read_bytes() for name in WRITTEN]
        assert harness("testset draft", *words).json["queries"] == drafted["queries"]
        assert len(server.asked) == sent > drafted["usage"]["requests"] > 30, "some failed; a finished one asks nothing"
    assert written == [(tmp_path / "ts" / name).read_bytes() for name in WRITTEN]

    # Of each of six documents a good and a bad fact, a good and a bad search, and one query of each other kind.
    assert {kind: counts["kept"] for kind, counts in drafted["kinds"].items()} == {
        "fact": 6, "search": 6, "conversation": 6, "none": 6, "unanswerable": 6,
    }  # fmt: skip
    assert drafted["rejected"] == {"copied": 6, "evidence not verbatim": 6}
    for row in rows(tmp_path / "ts" / "queries.jsonl"):
        for place in row["evidence"]:
            text = (tmp_path / "docs" / "texts" / f"{place['text']}.txt").read_text("utf-8")
            assert text[place["start"] : place["end"]] == place["exact"]

    ran = harness("run", "dataset=testset", "dataset.path=ts", "metrics=[hit@3,mrr@3,map@3,ndcg@3]", "format=json").json
    assert all(0 < ran["metrics"][name] <= 1 for name in ("hit@3", "mrr@3", "map@3", "ndcg@3", "span_recall@3"))
    assert ran["counts"]["unanswerable"] == 6, "those that the texts do not answer"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()], "the key reaches no file"


def test_another_file_changes_no_id_and_no_label(harness, corpus, tmp_path):
    shutil.copytree(SAMPLE / "testset", tmp_path / "ts")
    assert harness("prepare", "files=corpus/*", "output=docs").code == 0
    (corpus / "a_new_file.md").write_text("# 새 글\n\n다온상회는 1998년에 문을 연 제주의 책방이다.\n", "utf-8")
    assert harness("prepare", "files=corpus/*", "output=more").code == 0
    few, more = ([row["docid"] for row in rows(tmp_path / name / "documents.jsonl")] for name in ("docs", "more"))
    assert more[1:] == few, "the new file comes first in the alphabet"
    before, after = (SpanLabelled(path="ts", documents=name).qrels() for name in ("docs", "more"))
    assert before.grades == after.grades
    assert len(before.grades) == 22, "all but the two that the texts do not answer"


@pytest.mark.slow
def test_a_sweep_compares_chunk_sizes_by_the_characters_of_evidence(harness, corpus):
    words = ["dataset=chunked", "dataset.chunk.size=60,300", "dataset.chunk.overlap=0", "objective=span_recall@3"]
    best, other = harness("sweep", *words, "tokenizer=word", "store.path=cache", "format=json").json["top"]
    # Three chunks of 300 characters show 900 characters of the two profiles, three of 60 no more than 180.
    assert best["overrides"] == ["dataset.chunk.size=300"]
    assert best["value"] > other["value"] > 0
    kept = harness("doctor cache", "store.path=cache", "format=json").json["entries"]
    assert {one["about"] for one in kept if one["kind"] == "documents"} == {
        "2 files, 60 characters", "2 files, 300 characters",
    }  # fmt: skip
