"""`harness testset draft` with a scripted model: what becomes of each reply, what is paid, and what is refused."""

import json
import re

import pytest
from chat_server import ChatServer, Reply
from documents_folders import documents_folder
from scripted_drafts import document_of, draft, reply

from harness.testset.draft.filters import ANSWERED

TEXTS = [
    "다온도자기는 1962년 전라남도 강진에서 문을 연 그릇 회사이다.",
    "창업자 임세라는 물레를 발로 돌리는 법을 아버지에게 배웠다.",
    "다온도자기의 가마는 소나무 장작만 쓰며 사흘 동안 식지 않는다.",
    "푸른 유약은 재와 돌가루를 일곱 번 걸러 만든다.",
    "연락처는 누리집에 적혀 있다.",
    "다온도자기는 일본과 프랑스에 작은 가게를 열었다.",
]
FOUNDED, ABROAD = (
    "다온도자기는 어느 해에 생겼나요?",
    ["가게가 있는 나라는?", "가게의 규모는 어느 정도인가요?", "다음 가게는?"],
)


def item(question, answer, *evidence):
    return {"question": question, "answer": answer, "evidence": list(evidence)}


SCRIPT = [  # what the model replies about each text
    reply(item(FOUNDED, "1962년에 생겼습니다.", TEXTS[0])),
    reply(item("임세라는 물레질을 누구에게서 익혔나요?", "아버지에게서 익혔습니다.", "물레를 손으로 돌리는 법")),
    "Here is my question about the kiln.",
    reply(item(FOUNDED, "푸른 유약은 일곱 번 거릅니다.", TEXTS[3])),
    reply(),
    reply(*(item(f"다온도자기 {question}", "일본과 프랑스에 있습니다.", TEXTS[5]) for question in ABROAD)),
]
REASONS = ["duplicate", "evidence not verbatim", "more than asked for", "reply of the wrong shape"]


@pytest.fixture
def docs(tmp_path):
    """A documents folder with one sentence per document, from two files."""
    files = {"a.txt": "\n".join(TEXTS[:3]), "b.txt": "\n".join(TEXTS[3:])}
    return documents_folder(
        tmp_path / "docs", files, lambda text: [found.span() for found in re.finditer(r"[^\n]+", text)]
    )


@pytest.fixture
def model():
    """A model that drafts well."""
    with ChatServer(model=draft, counted=True) as server:
        yield server


@pytest.fixture
def drafting(asking, docs):
    """Call the command against a server: drafting(server, "limit=3") -> Done."""
    return lambda server, *words: asking("draft", server, "documents=docs", *words)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_draft_is_kept_or_rejected_for_its_reason(drafting, tmp_path):
    with ChatServer(model=lambda asked, _: SCRIPT[TEXTS.index(document_of(asked))], counted=True) as server:
        found = drafting(server, "kinds=[fact]", "limit=null", "format=json").json
        assert len(server.asked) == 6 + 2, "a reply of the wrong shape is asked for three times"
    assert found["rejected"] == dict.fromkeys(REASONS, 1)
    assert found["kinds"] == {"fact": {"requests": 6, "empty": 1, "drafted": 7, "kept": 3}}
    kept = {row["msg"][-1]["content"] for row in lines(tmp_path / "ts" / "queries.jsonl")}
    assert kept == {FOUNDED, *(f"다온도자기 {question}" for question in ABROAD[:2])}


def test_a_larger_limit_pays_for_the_new_documents_only(drafting, model, tmp_path):
    drafting(model, "limit=3", "questions=1", "format=json")
    before, asked = lines(tmp_path / "ts" / "queries.jsonl"), len(model.asked)
    assert asked == 3 * 5
    done = drafting(model, "limit=5", "questions=1", "format=json")
    assert done.json["usage"]["requests"] == len(model.asked) - asked == 2 * 5
    assert done.json["usage"]["cached"] == asked
    assert lines(tmp_path / "ts" / "queries.jsonl")[: len(before)] == before
    manifest = json.loads((tmp_path / "ts" / "testset.json").read_text())
    assert manifest["usage"]["requests"] == 25  # all that were ever paid for
    assert manifest["documents"]["path"] == "../docs"
    written = {path.name: path.read_bytes() for path in (tmp_path / "ts").iterdir()}
    assert "  harness run dataset=testset dataset.path=ts\n" in drafting(model, "limit=5", "questions=1").out
    assert {path.name: path.read_bytes() for path in (tmp_path / "ts").iterdir()} == written
    assert len(model.asked) == 25


def test_a_draft_whose_endpoint_is_down_goes_on_where_it_ended(drafting, tmp_path):
    """The endpoint answers five requests, and all others only later."""
    down, words = Reply(503, "down for maintenance"), ["kinds=[fact,search]", "limit=6"]
    with ChatServer(model=lambda asked, count: draft(asked) if len(server.asked) <= 5 or back else down) as server:
        back = False
        done = drafting(server, *words, "llm.runtime.retries=0", "llm.runtime.parallel=1")
        assert done.code == 1
        assert f"has no reply from tiny at {server.url}: HTTP 503: down for maintenance. 5 of 6 replies" in done.err
        assert "are cached. Run again to request only the missing ones." in done.err
        assert not (tmp_path / "ts").exists()
        back = True
        assert drafting(server, *words, "format=json").json["usage"]["requests"] == 7
        assert len(server.asked) == 5 + 1 + 7


def test_easiness_stands_beside_that_of_the_examples(drafting, model, tmp_path):
    asked = {"푸른 유약": ["elsewhere"], "고마워": []}  # the second needs no retrieval
    rows = [
        {"eval_id": text, "msg": [{"role": "user", "content": text}], "relevant": ids} for text, ids in asked.items()
    ]
    (tmp_path / "real.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["limit=2", "examples=real.jsonl"]
    found = drafting(model, *words, "format=json").json
    assert found["easiness"]["drafts"]["labelled"] == sum(found["kinds"][kind]["kept"] for kind in ANSWERED)
    assert (found["easiness"]["examples"]["queries"], found["easiness"]["examples"]["first"]) == (1, None)
    assert json.loads((tmp_path / "ts" / "testset.json").read_text())["easiness"] == found["easiness"]
    assert "Easiness of examples: BM25's first document" in drafting(model, *words).out
    without = drafting(model, *words, "easiness=false", "format=json").json
    assert (without["easiness"], without["queries"]) == ({"drafts": None, "examples": None}, found["queries"])


def test_a_dry_run_sends_and_writes_nothing(drafting, model, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    words = ["limit=3", "llm.price.input=1", "llm.price.output=2"]
    found = drafting(model, *words, "dry_run=true", "format=json").json
    assert found["estimate"]["requests"] == 15
    assert found["estimate"]["cost"] > 0
    assert list(found["prompts"]) == ["fact", "search", "conversation", "none", "unanswerable"]
    assert any(text in found["prompts"]["fact"] for text in TEXTS)
    assert (len(model.asked), sorted(tmp_path.rglob("*"))) == (0, before)
    said = drafting(model, *words, "dry_run=true").out
    assert "Drafting takes 15 requests" in said
    assert "Nothing was sent or written" in said
    drafting(model, "limit=1")
    assert drafting(model, *words, "dry_run=true", "format=json").json["estimate"]["cached"] == 5


LACKING = item("다온도자기는 어느 해에 생겼나요?", "1962년에 생겼습니다.", "1963년")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply(), "nothing to ask in 3 requests"),
        (reply(LACKING), "evidence not verbatim: the document lacks '1963년'"),
        ("no JSON", "reply of the wrong shape: the reply is 'no JSON' instead of JSON"),
    ],
)
def test_no_draft_at_all_is_a_failure_with_its_reasons(drafting, tmp_path, answer, message):
    with ChatServer(lambda *_: answer) as server:
        done = drafting(server, "kinds=[fact]", "limit=3")
    assert done.code == 1
    assert message in done.err
    assert "othing was written" in done.err
    assert not (tmp_path / "ts").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["documents=nowhere"], "documents=nowhere: there is no such folder"),
        (["kinds=[]"], "kinds is empty"),
        (["model=null"], "model is missing"),
        (["examples=wrong.jsonl"], "examples: .*eval_id is missing"),
        (["examples=real.txt", "prompts.fact=bare.txt"], r"prompts.fact has no \{examples\}"),
        (["prompts.fact=real.txt"], r"prompts.fact=real.txt: the prompt lacks \{questions\}"),
        (["prompts.none=bare.txt"], r"prompts.none=bare.txt: unknown name \{text\}"),
        (["testset=real.txt"], "testset=real.txt: this is a file"),
        (["testset=docs"], "testset=docs: the folder holds other files"),
        (["llm.base_url=https://models.example/v1"], "OPENAI_API_KEY holds no key"),
    ],
)
def test_what_is_refused(drafting, model, tmp_path, words, message):
    (tmp_path / "real.txt").write_text("도자기 언제 구워")
    (tmp_path / "wrong.jsonl").write_text('{"query": "도자기"}')
    (tmp_path / "bare.txt").write_text("{questions} {text}")
    done = drafting(model, *words)
    assert done.code == 2, done.err
    assert re.search(message, done.err), done.err
    assert not model.asked
    assert not (tmp_path / "ts").exists()
