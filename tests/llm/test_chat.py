"""The client of language models, against a local server that answers, fails, stalls and returns nonsense."""

import json
import logging
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from chat_server import ChatServer, Reply, completion

from harness.errors import BadInput, Failed
from harness.experiment.session import chat_for
from harness.llm.chat import Chat, ChatModel, Prompt, Schema
from harness.storage.cache import Cache
from retrievers.base import Turn
from retrievers.external import http_client

KEY = "sk-secret-0123456789"
NUMBER = Schema(
    "number",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False},
)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """A key, short waits, and no proxy but one that nothing of this machine may go through."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def model(server, **arguments):
    return ChatModel("tiny", server if isinstance(server, str) else server.url, **arguments)


def prompts(*texts, **more):
    return [Prompt((Turn("user", text),), name=f"prompt {text!r}", **more) for text in texts]


def ask(server, texts, read=str, folder=None, **arguments):
    """The replies to plain texts. folder: of a cache."""
    chosen = model(server, **arguments)
    chat = Chat(chosen, None) if folder is None else chat_for(chosen, Cache(folder), "test")
    return chat.ask(prompts(*texts), read, "test")


def values(replies):
    return [reply.value for reply in replies]


def failure(server, texts="a", **arguments):
    """What asking says that ends without an answer."""
    with pytest.raises(Failed) as caught:
        ask(server, texts, **arguments)
    return str(caught.value)


def echo(text, time):
    return f"re: {text}"


# What is sent


def test_a_plain_request_and_its_further_fields():
    turns = (Turn("system", "short"), Turn("user", "달은?"), Turn("assistant", "네"), Turn("user", "왜?"))
    with ChatServer(echo) as server:
        [reply] = Chat(model(server), None).ask([Prompt(turns, request={"max_tokens": 5})], str, "test")
    assert (reply.value, reply.text, reply.problem) == ("re: 왜?", "re: 왜?", "")
    [asked] = server.asked
    assert (asked.path, asked.headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    assert asked.body == {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 5}
    made = ChatModel("m", request={"temperature": 1, "top_p": 0.5, "seed": None})
    body = made.body(Prompt((), request={"temperature": None, "max_tokens": 9}))
    assert body == {"model": "m", "messages": [], "top_p": 0.5, "max_tokens": 9}


@pytest.mark.parametrize("replies", ["json_schema", "json_object", "text"])
def test_how_a_structured_reply_is_demanded(replies):
    """The schema goes to the server, or into the instruction, which is made if there is none."""
    with ChatServer(lambda text, time: '```json\n{"n": 3}\n```') as server:
        chat = Chat(model(server, replies=replies, parallel=1), None)
        asked = [Prompt((Turn("system", "Count."), Turn("user", "a")), NUMBER), *prompts("a", schema=NUMBER)]
        assert values(chat.ask(asked, NUMBER.read, "test")) == [{"n": 3}, {"n": 3}]
    enforced = {"name": "number", "strict": True, "schema": NUMBER.document}
    formats = {
        "json_schema": {"type": "json_schema", "json_schema": enforced},
        "json_object": {"type": "json_object"},
        "text": None,
    }
    assert [one.body.get("response_format") for one in server.asked] == [formats[replies]] * 2
    systems = [one["content"] for asked in server.asked for one in asked.body["messages"] if one["role"] == "system"]
    if replies == "json_schema":
        assert systems == ["Count."]
    else:
        made = f"Count.\n\n{systems[1]}"
        assert systems[0] == made
        assert json.dumps(NUMBER.document) in made


# Replies as they come in


def test_each_reply_belongs_to_its_prompt():
    texts = ["", "a", "b", "a", "\x00", "달", *"cdefgh"]
    with ChatServer(echo, delay=0.01) as server:
        assert values(ask(server, texts, parallel=2)) == [f"re: {text}" for text in texts]
    assert sorted(server.texts) == sorted(set(texts))
    assert server.together == 2


def test_a_reply_that_is_refused_is_asked_for_again(tmp_path):
    """`a` comes right at the third attempt; `b` never does; `c` is cut off, which would only happen again."""

    def answer(text, time):
        if text == "c":
            return Reply(body=completion("{", "length", {"prompt_tokens": 3, "completion_tokens": 8}))
        return '{"n": 1}' if text == "a" and time == 3 else '{"m": 1}'

    with ChatServer(answer) as server:
        replies = ask(server, "abc", NUMBER.read, tmp_path)
        assert values(replies) == [{"n": 1}, None, None]
        assert [reply.problem for reply in replies] == [
            "",
            "the reply lacks n.",
            "the reply is '{' instead of JSON. It was cut off after 8 tokens.",
        ]
        assert sorted(server.texts) == list("aaabbbc")
        assert ask(server, "abc", NUMBER.read, tmp_path) == replies
        assert len(server.asked) == 7, "what was refused is cached too"


FILTERED = {"error": {"code": "content_filter", "message": "It was filtered.", "status": 400, "param": "prompt"}}


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (Reply(body={"choices": [{"message": {"refusal": "I cannot."}}]}), "I cannot."),
        (Reply(body=completion("half of", "content_filter")), "half of"),
        (Reply(400, FILTERED), "It was filtered."),  # by Azure, before it reaches the model
    ],
)
def test_a_refusal_is_an_answer_to_one_prompt(refused, said, tmp_path):
    with ChatServer(lambda text, time: refused if text == "b" else text) as server:
        replies = ask(server, "abc", folder=tmp_path)
        assert values(replies) == ["a", None, "c"]
        assert replies[1].problem == f"the model refuses: '{said}'."
        assert ask(server, "abc", folder=tmp_path) == replies
        assert len(server.asked) == 3


def test_half_characters_become_whole():
    body = json.dumps(completion("x")).replace('"x"', r'"a\ud83d\ude00b\ud800c"')
    with ChatServer(lambda text, time: Reply(body=body)) as server:
        assert values(ask(server, "a")) == ["a\U0001f600b�c"]


# Failures that pass


@pytest.mark.parametrize(
    "stumble",
    [
        Reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.05"}),
        Reply(500, "<html>busy</html>"),
        Reply(200, "not JSON"),
        Reply(200, {"choices": []}),
        Reply(200, {"choices": [{"message": {"content": [1]}}]}),
        Reply(200, [1]),
        Reply(200, completion("yes"), cut=9),  # broken off
    ],
    ids=lambda reply: f"{reply.status} {reply.headers or reply.body}",
)
def test_what_may_pass_is_asked_again(stumble):
    with ChatServer(lambda text, time: stumble if time < 3 else "yes") as server:
        assert values(ask(server, "a", timeout=0.5)) == ["yes"]
    assert len(server.asked) == 3


def test_waits_grow_and_are_as_long_as_the_endpoint_asks(monkeypatch, caplog):
    """By a clock that only waiting moves."""
    waits, now = [], [1_000_000.0]

    class Event(threading.Event):
        def wait(self, timeout=None):
            waits.append(round(timeout, 6))
            now[0] += timeout
            return self.is_set()

    threads = SimpleNamespace(Event=Event, Lock=threading.Lock, Thread=threading.Thread)
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter, time=lambda: 1_000_000.0)
    for name, value in {"threading": threads, "time": clock, "BACKOFF_SECONDS": 1.0}.items():
        monkeypatch.setattr(http_client, name, value)
    late = {2: "30", 3: formatdate(1_000_090, usegmt=True)}

    def answer(text, time):
        return Reply(429, "", {"Retry-After": late[time]}) if time in late else Reply(500) if time < 9 else "no"

    with ChatServer(answer) as server:
        assert values(ask(server, "a", retries=8)) == ["no"]
    # 1 s, then twice as long each time up to 60 s, but 30 s and 90 s where these were asked for
    assert waits == [1, 30, 90, 8, 16, 32, 60, 60]
    assert [record.args[2] for record in caplog.records] == waits[1:], "waits of 5 s and more are logged"


# Failures that stay


def test_errors_for_ever_end_the_run_after_the_retries(tmp_path):
    def answer(text, time):
        return Reply(500, {"error": {"message": "out of\n memory"}}) if text == "d" else text

    with ChatServer(answer) as server:
        ask(server, "abc", folder=tmp_path)
        message = failure(server, "abcd", folder=tmp_path, retries=2)
        assert len(server.asked) == 3 + 3
        assert message == (
            f"test: prompt 'd' has no reply from tiny at {server.url}: HTTP 500: out of memory. "
            "3 of 4 replies are cached. Run again to request only the missing ones."
        )


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(401, {"error": {"message": f"Wrong key: {KEY}"}}), "Wrong key: [key]. Check the key in the environment"),
        (Reply(400, {"error": {"message": "bad", "code": "invalid_value"}}), "HTTP 400: bad."),
        (Reply(400, "bad"), "HTTP 400: bad."),
        (Reply(400, [5]), "HTTP 400: [5]."),
    ],
    ids=lambda one: str(getattr(one, "status", "")),
)
def test_what_will_not_pass_ends_the_run_at_once(reply, expected):
    with ChatServer(lambda text, time: reply) as server:
        assert expected in failure(server)
    assert len(server.asked) == 1


def test_what_is_no_completion_is_quoted():
    with ChatServer(lambda text, time: Reply(body="<html>" + "x" * 5000)) as server:
        assert f"the reply is not a chat completion: <html>{'x' * 294}…." in failure(server, retries=1)
    assert len(server.asked) == 2


def test_replies_on_their_way_are_kept_when_another_fails(tmp_path):
    """The second request fails while the first is under way; the third and later ones do not go out."""
    failed, both = threading.Event(), threading.Barrier(2, timeout=30)

    def answer(text, time):
        if text in ("good", "bad") and time == 1:
            both.wait()
        if text == "bad":
            return Reply(400, "no")
        failed.wait(0.2)
        return "yes"

    with ChatServer(answer) as server:
        message = failure(server, ["good", "bad", *"abcdef"], folder=tmp_path, parallel=2)
        assert "prompt 'bad' has no reply" in message
        assert "1 of 8 replies are cached" in message
        assert sorted(server.texts) == ["bad", "good"]
        assert values(ask(server, ["good"], folder=tmp_path)) == ["yes"]
        assert len(server.asked) == 2


# What is refused before any work


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": "ftp://example.org"}, "base_url is not an http"),
        ({"base_url": "http://example.org/v1"}, "unencrypted. Use https"),
        ({"base_url": f"https://user:{KEY}@example.org/v1"}, "contains a user, a password or a fragment"),
        ({"base_url": f"https://example.org/v1?key={KEY}"}, "base_url contains a query"),
        ({"api_key_env": KEY}, r"llm\.runtime\.api_key_env is not the name of an environment variable"),
        ({"timeout": 0}, "timeout=0"),
        ({"request": {"model": "x"}}, r"llm\.request\.model: the harness sets this field itself"),
        ({"request": "x"}, r"llm\.request='x' must be a group"),
        ({"price": {"output": -1}}, r"llm.price: input and output must be prices"),
        ({"price": {"all": 1}}, "all is not a field here. The fields are input, output"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message) as caught:
        ChatModel("tiny", **arguments)
    assert KEY not in str(caught.value)


def test_a_key_that_is_missing_or_broken(monkeypatch):
    monkeypatch.setenv("OTHER", " ")
    with pytest.raises(BadInput, match=r"variable OTHER holds no key for https://api\.openai\.com/v1"):
        ChatModel("tiny", api_key_env="OTHER").require()
    for broken in (f"{KEY}\nX-Other: 1", f"{KEY} {KEY}"):
        monkeypatch.setenv("OTHER", broken)
        with pytest.raises(BadInput, match="The key in OTHER contains characters") as caught:
            ChatModel("tiny", api_key_env="OTHER").require()
        assert KEY not in str(caught.value)
    monkeypatch.setenv("OTHER", f" {KEY}\n")  # as `$(cat file)` in a service's settings leaves it
    monkeypatch.delenv("OPENAI_API_KEY")
    with ChatServer(echo) as server:
        ask(server, "a", api_key_env="OTHER")
        ask(server, "a")
    assert [one.headers.get("Authorization") for one in server.asked] == [f"Bearer {KEY}", None], "none on this machine"


# Secrets


@pytest.mark.parametrize("status", [200, 401, 429, 500])
def test_the_key_shows_up_nowhere(status, caplog, capfd, tmp_path, monkeypatch):
    """The endpoint repeats the key in all that it says."""
    monkeypatch.setattr(http_client, "LOGGED_SECONDS", 0.0)
    said = completion(f"it is {KEY}") | {"error": {"message": f"key {KEY}"}}
    reply = Reply(status, said, {"X-Key": KEY})
    shown = ""
    with caplog.at_level(logging.DEBUG), ChatServer(lambda text, time: reply if "b" in text else "yes") as server:
        try:
            shown += repr(ask(server, "ab", folder=tmp_path, retries=1, parallel=1))
        except Failed as error:
            shown += "".join(traceback.format_exception(error))
        shown += repr(vars(model(server)))
    assert "[key]" in shown
    shown += caplog.text + "".join(capfd.readouterr())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"replies.log", "manifest.json"}
    assert KEY not in shown + "".join(path.read_bytes().decode("latin-1") for path in files)


def test_prompts_reach_no_log_and_no_file(caplog, capfd, tmp_path):
    secret = "-".join("confidential")  # no line of this file has it, which a traceback of another test's handler shows
    with caplog.at_level(logging.DEBUG), ChatServer(lambda text, time: "yes") as server:
        ask(server, [f"a {secret} text"], folder=tmp_path)
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert secret.encode() not in content
    assert secret not in caplog.text + "".join(capfd.readouterr())


# Tokens and money


def test_what_asking_costs_is_said_before_and_after(tmp_path, capsys):
    """Prompts of 4 words and replies of 2, by the server's count; of 5 prompts, 4 are distinct and 1 is cached."""
    with ChatServer(lambda text, time: "two words", counted=True) as server:
        texts = ["one two three four", "a b c d", "e f g h", "i j k l", "a b c d"]
        ask(server, texts[:1], folder=tmp_path)
        capsys.readouterr()
        chat = chat_for(model(server, price={"input": 5e5, "output": 1e6}), Cache(tmp_path), "test")
        asked = prompts(*texts, expects=3)
        # each prompt of 7 characters has 7 / 4 tokens, and 4 that frame a message: 3 * 5.75 = 17.25
        estimate = chat.estimate(asked)
        assert (estimate.requests, estimate.cached, estimate.input_tokens, estimate.output_tokens) == (3, 1, 17, 9)
        chat.ask(asked, str, "test")
        where = f"tiny at {server.url}"
        assert capsys.readouterr().err.splitlines() == [
            f"test: asking {where}: 3 requests (1 more reply is cached), about 17 input and 9 output tokens, "
            "cost about 17.50.",
            "test: 3 replies, 12 input and 6 output tokens, cost 12.00.",
        ]
        assert (chat.spent.requests, chat.spent.cached, chat.spent.cost) == (3, 1, 12.0)
        chat.ask(asked, str, "test")
        assert capsys.readouterr().err == "", "nothing was asked"
        assert (chat.spent.requests, chat.spent.cached, chat.spent.cost) == (3, 5, 12.0)


def test_an_estimate_learns_from_the_log_if_the_server_counts(tmp_path, capsys):
    with ChatServer(echo) as server:
        ask(server, "a", folder=tmp_path, price={"input": 1, "output": 1})
    before, after = capsys.readouterr().err.splitlines()
    assert before.endswith("1 request, about 4 input and an unknown number of output tokens.")
    assert after == "test: 1 reply, whose tokens the endpoint does not count."
    with ChatServer(lambda text, time: "two words", counted=True) as server:
        chat = chat_for(model(server, price={"input": 1, "output": 1}), Cache(tmp_path), "test")
        chat.ask(prompts(*"abcdefghijklmnopqrst"), str, "test")
        estimate = chat.estimate(prompts(*"tuvwx", expects=500))
    assert (estimate.requests, estimate.cached, estimate.output_tokens) == (4, 1, 8)
    assert estimate.input_tokens == pytest.approx(4, abs=1)


# Several processes and interruptions


def test_two_chats_share_a_log_and_ask_once(tmp_path):
    """Both want the same replies at the same time; one waits for the other and finds them."""
    with ChatServer(echo, delay=0.02) as server, ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: ask(server, "abcdefgh", folder=tmp_path), range(2))
        assert one == other
        assert sorted(server.texts) == list("abcdefgh")


def test_another_purpose_or_model_has_a_log_of_its_own(tmp_path):
    with ChatServer(echo) as server:
        for purpose, name in (("a", "tiny"), ("a", "big"), ("b", "tiny"), ("a", "tiny")):
            chat_for(ChatModel(name, server.url), Cache(tmp_path), purpose).ask(prompts("x"), str, "test")
    assert len(server.asked) == 3
    entries = Cache(tmp_path).entries()
    assert [(one.kind, one.state) for one in entries] == [("replies", "finished")] * 3
    assert {(one.identity["purpose"], one.identity["model"]) for one in entries} == {
        ("a", "tiny"), ("a", "big"), ("b", "tiny"),
    }  # fmt: skip


def test_who_is_interrupted_pays_only_for_what_was_under_way(tmp_path):
    texts, judged = [str(i) for i in range(40)], []

    def read(text):
        judged.append(text)
        if len(judged) == 5:
            raise KeyboardInterrupt
        return text

    with ChatServer(echo) as server:
        with pytest.raises(KeyboardInterrupt):
            ask(server, texts, read, tmp_path, parallel=4)
        assert values(ask(server, texts, str, tmp_path)) == [f"re: {text}" for text in texts]
        assert sorted(server.texts) == sorted(texts), "each reply that came was kept"


def test_nothing_more_is_paid_for_where_no_reply_is_usable(monkeypatch):
    """40 prompts, three attempts each, would be 120 requests. Each reply here waits until the one before is judged, so
    when the tenth is, no more requests are under way than there are workers."""
    monkeypatch.setattr(http_client, "GRACE_SECONDS", 0.05)
    texts, turn, judged = [f"p{n}" for n in range(40)], threading.Semaphore(), []

    def read(text):
        judged.append(text)
        if len(judged) < 10:
            turn.release()
        return NUMBER.read(text)

    with ChatServer(lambda text, time: turn.acquire(timeout=30) and "I would say 7") as server:
        with pytest.raises(Failed) as caught:
            ask(server, texts, read, parallel=2)
        assert 10 <= len(server.asked) <= 10 + 2
        turn.release(2)
    assert str(caught.value).startswith(f"test: the first 10 replies from tiny at {server.url} are all unusable, so no")
    assert "the reply is 'I would say 7' instead of JSON." in str(caught.value)
    with ChatServer(lambda text, time: '{"n": 1}' if text == "p3" else "no") as server:  # it can, so all are asked for
        assert list(filter(None, values(ask(server, texts, NUMBER.read, parallel=1)))) == [{"n": 1}]
