"""Queries and answers that a language model writes: asked once, logged, reproduced, refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
from chat_server import ChatServer, Reply, completion
from talks import last_turn, llm, rewritten, rows, write_talk

from harness.errors import BadInput, Failed
from harness.experiment.writing import LENGTHS, PROMPTS
from retrievers.external import http_client

TALK = ("dataset=contest", "dataset.path=talk", "tokenizer=char_ngram", "format=json")
QUIET = (*TALK, "tracking=none")
TRANSCRIPT = "user: 달은 매일 모양이 같아?\nassistant: 아니요, 변합니다.\nuser: 그건 왜 그래?"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, own_cache):
    """No key, short waits, and a cache of one's own, in which nothing is paid for yet."""
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def talk(toy, tmp_path):
    return write_talk(toy, tmp_path / "talk")


def test_each_conversation_becomes_a_query_that_stands_alone(harness, tracker, talk):
    """A failed run continues where it stopped."""
    down = [True]

    def answer(asked, time):
        return Reply(500, "") if down[0] and last_turn(asked) == "안녕" else rewritten(asked)

    with ChatServer(answer) as server:
        words = (*TALK, "query.text=rewrite", *llm(server), "llm.runtime.retries=0", "llm.runtime.parallel=1")
        done = harness("run", *words)
        assert done.code == 1
        assert "query.text=rewrite: query '5' has no reply from tiny" in done.err
        assert "2 of 3 replies are cached. Run again to request only the missing ones." in done.err
        down[0], before = False, len(server.asked)
        found = rows(harness("run", *words))
        assert len(server.asked) == before + 1 == 4, "equal conversations are asked once, single turns as well"
        assert {one: row["standalone_query"] for one, row in found.items()} == {
            7: "달의 모양이 변하는 까닭", 3: "물은 몇 도에서 끓어?", 5: "안녕", 9: "물은 몇 도에서 끓어?",
        }  # fmt: skip
        assert [found[one]["topk"][:1] for one in (7, 3, 5)] == [["d3"], ["d2"], []]
        shipped = (PROMPTS / "rewrite.txt").read_text("utf-8")
        assert shipped.strip().replace("{conversation}", TRANSCRIPT) in server.texts
        assert server.asked[0].schema["required"] == ["query"]
        assert server.asked[0].body["temperature"] == 0
        again = harness("run", *QUIET, "query.text=rewrite", *llm(server), "tokenizer=word", "top_k=1")
        assert rows(again)[7]["standalone_query"] == "달의 모양이 변하는 까닭"
        assert len(server.asked) == 4
    finished, failed = tracker.runs("retrieval", {})
    assert (finished.status, failed.status) == ("FINISHED", "FAILED")
    assert (finished.params["query.text"], finished.params["llm.model"]) == ("rewrite", "tiny")
    assert finished.name == f"bm25-char_ngram-none query.text=rewrite llm.model=tiny llm.base_url={server.url} " + (
        "llm.runtime.retries=0 llm.runtime.parallel=1"
    )


def test_expanded_queries_keep_the_users_words(harness, talk, tmp_path):
    prompt = tmp_path / "guess.txt"
    prompt.write_text("Guess the answer to:\n{conversation}\n")

    def guessed(asked, time):
        assert asked.startswith("Guess the answer to:\nuser: ")
        return json.dumps({"query": f"{len(last_turn(asked))} 위성"}, ensure_ascii=False)

    with ChatServer(guessed) as server:
        found = rows(harness("run", *QUIET, "query.text=expand", f"query.prompt={prompt}", *llm(server)))
    assert {one: row["standalone_query"] for one, row in found.items()} == {
        7: "달은 매일 모양이 같아? 그건 왜 그래? 8 위성", 3: "물은 몇 도에서 끓어? 12 위성", 5: "안녕 2 위성",
        9: "물은 몇 도에서 끓어? 12 위성",
    }  # fmt: skip
    assert found[5]["topk"] == ["d1"], "only d1 speaks of a satellite"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ('{"query": " \\n"}', "the query in the reply is empty."),
        (json.dumps({"query": "x" * 1001}), "the query in the reply has 1,001 characters, more than 1,000."),
        ("Sure! Here is the query: 달", "instead of JSON."),
        ('{"text": "달"}', "the reply lacks query."),
        ('{"query": ["달"]}', "the reply, query is '[\"달\"]', not string."),
        (Reply(body=completion('{"query": "달의 모', "length")), "It was cut off after"),
        (Reply(body=completion("I cannot do that.", "content_filter")), "the model refuses: 'I cannot do that.'"),
    ],
)
def test_a_reply_that_cannot_be_searched_for_fails_the_run(reply, problem, harness, talk):
    """Nothing is searched for in its place, and nothing is paid for again until model or prompt changes."""
    with ChatServer(lambda asked, time: reply if last_turn(asked) == "그건 왜 그래?" else rewritten(asked)) as server:
        words = (*QUIET, "query.text=rewrite", *llm(server))
        done = harness("run", *words)
        assert done.code == 1
        said = "query.text=rewrite: the model wrote no usable query for 1 of 4 conversations: 7. For the first, "
        assert said in done.err
        assert problem in done.err
        assert done.err.strip().endswith("Choose another llm.model, or another prompt with query.prompt=FILE.")
        before = len(server.asked)
        assert before == 2 + (1 if isinstance(reply, Reply) else 3), "three attempts, unless the model said all it will"
        assert harness("run", *words).code == 1
        assert len(server.asked) == before


@pytest.mark.slow
def test_a_sweep_pays_once_for_each_conversation(harness, tracker, talk):
    with ChatServer(rewritten) as server:
        words = ("sweep", *TALK, "query.text=user_turns,rewrite,expand", "tokenizer=char_ngram,word", *llm(server))
        planned = harness(*words, "dry_run=true").json
        assert (planned["trials"], planned["retrievals"]) == (6, {"compute": 6, "cached": 0})
        assert (planned["requests"], len(server.asked)) == (6, 0)
        said = "6 requests to a language model to write the texts to search (query.text)"
        assert said in harness(*words, "dry_run=true", "format=text").out
        assert harness(*words).json["trials"]["finished"] == 6
        assert len(server.asked) == 2 * 3, "each of the three conversations, rewritten and expanded"
        for run in tracker.runs("retrieval", {"harness.verb": "run"}):
            assert len(run.tags.get("prompt.query", "")) == (0 if run.params["query.text"] == "user_turns" else 64)
        assert harness(*words).json["plan"]["finished_before"] == 6
        more = harness(*words, "retriever.bm25.k1=1.5,2", "dry_run=true").json
        assert more["retrievals"] == {"compute": 6, "cached": 6}, "of texts that are known by now"
        assert (more["requests"], len(server.asked)) == (0, 2 * 3)


REFUSED = [
    (("query.text=rewrite",), "llm.model is missing. Give it on the command line: llm.model=NAME"),
    (("query.text=rewrite", "llm.model=m"), "The environment variable OPENAI_API_KEY holds no key for https://api."),
    (("answer=llm",), "llm.model is missing"),
    (("answer=llm", "llm.model=m"), "holds no key"),
    (("query.text=rewritten",), "query.text='rewritten' is not one of user_turns, last, file, rewrite, expand."),
    (("query.prompt=p.txt",), "p.txt is not read with query.text=user_turns. Use query.text=rewrite or"),
    (("query.text=rewrite", "query.file=f.jsonl"), "f.jsonl is not read with query.text=rewrite. Use query.text=file"),
    (("query.text=rewrite", "query.prompt=none.txt"), "there is no such file."),
    (("query.text=rewrite", "query.prompt=talk"), "is a folder, but a file is expected"),
    (("query.text=rewrite", "query.prompt=bare.txt"), "bare.txt: the prompt lacks {conversation}, which the harness"),
    (("query.text=expand", "query.prompt=two.txt"), "unknown name {references}. Known: {conversation}."),
    (("answer=llm", "llm.model=m", "answer.prompt=bare.txt"), "the prompt lacks {conversation}, {references}"),
    (("answer=llm", "llm.model=m", "answer.prompt=none.txt"), "there is no such file."),
    (("answer=lm",), "answer"),
    (("answer.prompt=two.txt",), "answer.prompt is unknown here: answer=none does not have it. Choose answer=llm."),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_what_cannot_be_asked_leaves_nothing(harness, tracker, talk, tmp_path, verb):
    Path("bare.txt").write_text("Rewrite it.")
    Path("two.txt").write_text("{conversation} {references}")
    for words, expected in REFUSED:
        done = harness(verb, *TALK, *words)
        assert done.code == 2, (words, done.err)
        if verb == "run" or "answer=llm" not in words:
            assert expected in done.err, words
    assert tracker.runs("retrieval", {}) == []
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "cache").glob("replies/*/manifest.json")]
    assert {one["identity"]["model"] for one in manifests} <= {"m"}
    assert [path for name in ("runs", "sweeps") for path in (tmp_path / "outputs" / name).glob("**/*")] == []


@pytest.mark.slow
def test_a_run_is_reproduced_from_cached_replies(harness, tracker, talk, tmp_path):
    Path("mine.txt").write_text("Rewrite:\n{conversation}")
    with ChatServer(rewritten) as server:
        words = (*TALK, "query.text=rewrite", "query.prompt=mine.txt", *llm(server))
        proof = ("reproduce", f"run={harness('run', *words).json['run_id']}")
        before = len(server.asked)
        assert harness(*proof, "format=json").json["reproduced"] is True
        assert len(server.asked) == before
    assert harness(*proof, "format=json").json["reproduced"] is True, "without the model, too"

    def refused(*expected):
        done = harness(*proof)
        assert done.code == 2
        for said in expected:
            assert said in done.err

    Path("mine.txt").write_text("Rewrite this: {conversation}")
    refused("mine.txt has changed since the run: its sha256 was")
    Path("mine.txt").write_text("Rewrite:\n{conversation}")
    shutil.rmtree(tmp_path / "cache")
    refused(
        "query.text=rewrite: 3 of 3 replies from tiny at http://127.0.0.1",
        "are not cached. A language model may reply otherwise if asked again",
    )
    found = harness(*proof, "verify_only=true", "format=json").json
    assert (found["reproduced"], found["wrong"]) == (None, [])


@pytest.mark.slow
def test_the_gate_is_not_asked_again_either(harness, talk, tmp_path):
    with ChatServer(lambda asked, time: "no" if "안녕" in asked else "yes") as server:
        run_id = harness("run", *TALK, "gate=llm", *llm(server)).json["run_id"]
    assert harness("reproduce", f"run={run_id}", "format=json").json["reproduced"] is True
    shutil.rmtree(tmp_path / "cache")
    assert "gate=llm: 3 of 3 replies from tiny" in harness("reproduce", f"run={run_id}").err


@pytest.mark.slow
def test_an_exported_model_writes_its_queries_live(harness, tracker, talk, tmp_path):
    """With the prompt of the run, which the model carries; the key and the endpoint are those of where it is served."""
    from pandas import DataFrame

    from harness.commands.export import model

    Path("mine.txt").write_text("Rewrite:\n{conversation}")
    down = [False]
    with ChatServer(lambda asked, time: Reply(500, "") if down[0] else rewritten(asked)) as server:
        words = ("query.text=rewrite", "query.prompt=mine.txt", *llm(server), "llm.runtime.retries=0")
        told = harness("run", *TALK, *words, "gate=score", "gate.signal=background", "gate.threshold=-9")
        before = len(server.asked)
        [allowed] = re.findall(r"'(allow=\[.*?\])'", harness("export", "model=true").err)
        export = harness("export", "model=true", allowed, "format=json").json
        logged = tracker.client.get_logged_model(export["model"]["model_id"])
        package = Path(logged.artifact_location.removeprefix("file://")) / "artifacts" / "package"
        Path("mine.txt").unlink()
        searcher = model.load_model(package)
        searcher.warm()
        assert len(server.asked) == before, "the queries of the run are cached"
        talks = [json.loads(line)["msg"] for line in (talk / "eval.jsonl").read_text("utf-8").splitlines()]
        answers = model.answer(searcher, DataFrame({"messages": talks})).to_dict("records")
        found = [[one["doc_id"] for one in answer["documents"]] for answer in answers]
        assert found == [row["topk"] for row in rows(told).values()]
        assert len(server.asked) == before + 3, "asked anew, and kept by nobody"
        with pytest.raises(BadInput, match="row 0: the query is empty"):
            model.answer(searcher, DataFrame({"query": [" "]}))
        down[0] = True
        with pytest.raises(Failed, match="query 'row 0' has no reply from tiny"):
            model.answer(searcher, DataFrame({"query": ["안녕"]}))
    shutil.rmtree(tmp_path / "cache")
    other = ("export", "model=true", allowed, "model_name=other", "submission=other.jsonl")
    assert "mine.txt: there is no such file" in harness(*other).err
    Path("mine.txt").write_text("Rewrite:\n{conversation}")
    done = harness(*other)
    assert done.code == 2
    assert "are not cached. The language model would have to write the queries again." in done.err
    assert not Path("other.jsonl").exists()


def test_every_way_of_writing_has_a_prompt():
    for name in LENGTHS:
        assert (PROMPTS / f"{name}.txt").read_text("utf-8").count("{conversation}") == 1


ANSWER = ("run", *TALK, "experiment_name=e", "answer=llm")


def answered(asked, time=1):
    return json.dumps({"answer": f" {last_turn(asked)}라고요?\n\n달이 돕니다. "}, ensure_ascii=False)


@pytest.mark.slow
def test_an_answer_is_written_from_the_documents_returned(harness, talk):
    with ChatServer(answered) as server:
        found = rows(harness(*ANSWER, "top_k=2", *llm(server)))
        asked = {7: "그건 왜 그래?", 3: "물은 몇 도에서 끓어?", 5: "안녕", 9: "물은 몇 도에서 끓어?"}
        assert {one: row["answer"] for one, row in found.items()} == {
            one: f"{text}라고요?\n\n달이 돕니다." for one, text in asked.items()
        }
        assert [len(row["references"]) for row in found.values()] == [2, 1, 0, 1]
        shipped = (PROMPTS / "answer.txt").read_text("utf-8").strip()
        first, second = (reference["content"] for reference in found[7]["references"])
        whole = shipped.replace("{references}", f"[1] {first}\n\n[2] {second}")
        assert whole.replace("{conversation}", TRANSCRIPT) in server.texts
        greeting = shipped.replace("{references}", "(none)").replace("{conversation}", "user: 안녕")
        assert greeting in server.texts, "without documents, from the conversation"
        assert len(server.asked) == 3
        gated = rows(harness(*ANSWER, "gate=score", "gate.threshold=99", *llm(server)))
        assert [row["topk"] for row in gated.values()] == [[]] * 4
        assert len(server.asked) == 5, "two conversations without the documents that the gate withholds, one as before"


@pytest.mark.slow
def test_answers_change_the_submission_and_no_number(harness, tracker, talk):
    with ChatServer(answered) as server:
        plain, told = (harness(*words).json for words in (ANSWER[:-1], (*ANSWER, *llm(server))))
    assert plain["metrics"] == told["metrics"]
    bare, spoken = tracker.run(plain["run_id"]), tracker.run(told["run_id"])
    assert bare.name == "bm25-char_ngram-none"
    assert spoken.name.startswith("bm25-char_ngram-none answer=llm llm.model=tiny")
    assert not {"answer", "answer.prompt", "llm.model"} & {*bare.params}
    assert (spoken.params["answer"], spoken.params["llm"], spoken.params["llm.model"]) == ("llm", "chat", "tiny")
    assert "answer.llm.model" not in spoken.params
    for tag in ("trial_key", "predictions.sha256"):
        assert bare.tags[tag] != spoken.tags[tag]
    for run_id, answer in {bare.run_id: "", spoken.run_id: "안녕라고요?\n\n달이 돕니다."}.items():
        assert harness("reproduce", f"run={run_id}", "format=json").json["reproduced"] is True
        export = harness("export", f"run={run_id}", "experiment_name=e", f"submission={run_id}.jsonl", "format=json")
        lines = Path(export.json["submission"]).read_text("utf-8").splitlines()
        assert [json.loads(line)["answer"] for line in lines][2] == answer


@pytest.mark.slow
def test_an_unusable_answer_fails_the_run_and_a_sweep_writes_none(harness, talk):
    Path("mine.txt").write_text("{references}\n{conversation}", "utf-8")
    with ChatServer(lambda asked, time: json.dumps({"answer": ""})) as server:
        for more, asked in (((), 9), (("answer.prompt=mine.txt",), 18)):
            done = harness(*ANSWER, *llm(server), *more)
            assert done.code == 1
            assert "answer=llm: the model wrote no usable answer for 4 of 4 conversations: 7, 3, 5" in done.err
            assert "answer.prompt=FILE" in done.err
            assert len(server.asked) == asked, "another prompt asks again"
        for words in ("answer=llm", "answer=llm,llm"):
            done = harness("sweep", *ANSWER[1:-1], words, "top_k=1,2", *llm(server))
            assert done.code == 2
            assert "A sweep writes no answers: no score depends on them" in done.err
        done = harness("sweep", *ANSWER[1:-1], "answer=none,llm", *llm(server))
        assert (done.code, json.loads(done.out)["trials"]["finished"]) == (1, 1)
        assert len(server.asked) == 18
