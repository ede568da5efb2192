"""The language model gate, against a local server that answers, fails, stalls and returns nonsense."""

import json
import logging
import socket
import threading
import traceback
from email.utils import formatdate
from types import SimpleNamespace

import numpy as np
import pytest
from chat_server import ChatServer, Reply, completion
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import components
from harness.gates import llm
from harness.gates.gate import ALL
from harness.gates.llm import LlmGate, parse_answer, transcript
from harness.pipeline.cache import Cache
from retrievers.base import BadInput, Query, Turn
from retrievers.external import http_client

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """A key, short waits, and no proxy but one that nothing of this machine may go through."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def gate(server, **arguments):
    return LlmGate("tiny", server if isinstance(server, str) else server.url, **arguments)


def questions(*texts):
    return [Query.of(f"q{i}", text) for i, text in enumerate(texts)]


def by_length(text, time):
    """Texts of an even length need documents."""
    return "yes" if len(text.removeprefix("user: ")) % 2 == 0 else "no"


def failure(asked):
    """What a run that ends without an answer says in full: message, chain and notes."""
    with pytest.raises(RuntimeError) as caught:
        list(asked)
    return str(caught.value), "".join(traceback.format_exception(caught.value))


# What the model says


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *[(word, 1.0) for word in ("yes", "Yes.", " YES!\n", "예", "네.", "true", "**Yes**", "예, 필요합니다")],
        *[(word, 0.0) for word in ("no", "No.", "아니오", "아니요.", "false", "FALSE", "No, it is a greeting.")],
        ('{"retrieve": true}', 1.0),
        ('```json\n{"retrieve": false}\n```', 0.0),
        ("<think>\n\n</think>\n\nno", 0.0),
        ("<think>No, wait. Yes?</think>yes", 1.0),
        # what only begins like an answer, holds both, or stands elsewhere
        *[(text, None) for text in ("", " ", "?", "nothing", "not needed", "예를 들어", "네가", "yesterday", "so yes")],
        *[(text, None) for text in ("yes or no", "yes/no", "Yes, no", "<think>yes", '{"answer": true}', "retrieve")],
    ],
)  # fmt: skip
def test_words_that_are_an_answer(message, expected):
    assert parse_answer(message) == expected


@given(st.text())
def test_what_does_not_begin_with_an_answer_is_none(text):
    assert parse_answer(f"so {text}") is None


# What is asked


def test_what_is_sent():
    talk = Query("q", (Turn("user", "기억 상실증은 무섭다"), Turn("assistant", "네"), Turn("user", "원인은?")))
    with ChatServer(by_length) as server:
        assert list(gate(server).ask([talk])) in ([(0, 1.0)], [(0, 0.0)])
    [asked] = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    system, user = asked.body.pop("messages")
    assert asked.body == {"model": "tiny", "temperature": 0, "max_tokens": 16}
    assert system == {"role": "system", "content": llm.PROMPT}
    assert user == {"role": "user", "content": "user: 기억 상실증은 무섭다\nassistant: 네\nuser: 원인은?"}


def test_further_fields_and_a_prompt_of_ones_own():
    request = {"temperature": None, "max_tokens": None, "max_completion_tokens": 2000}
    with ChatServer(by_length) as server:
        list(gate(server, prompt="yes or no?", request=request).ask(questions("a")))
    body = server.asked[0].body
    assert body["messages"][0]["content"] == "yes or no?"
    assert set(body) == {"model", "messages", "max_completion_tokens"}


def test_a_server_of_this_machine_needs_no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with ChatServer(by_length) as server:
        assert list(gate(server).ask(questions("ab"))) == [(0, 1.0)]
    assert "Authorization" not in server.asked[0].headers


# Answers as they come in


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=12), st.integers(1, 5))
def test_each_answer_belongs_to_its_query(texts, parallel):
    with ChatServer(by_length) as server:
        found = dict(gate(server, parallel=parallel).ask(questions(*texts)))
    assert found == {place: float(len(text) % 2 == 0) for place, text in enumerate(texts)}
    assert sorted(server.texts) == sorted(f"user: {text}" for text in texts)


def test_requests_go_out_together_and_answers_come_in_any_order():
    """Three requests wait for each other; of these the first is answered last."""
    together, later = threading.Barrier(3, timeout=30), threading.Event()

    def answer(text, time):
        together.wait()
        if text.endswith("first"):
            later.wait(30)
        return "yes"

    with ChatServer(answer) as server:
        found = gate(server, parallel=3).ask(questions("first", "second", "third"))
        places = [next(found)[0], next(found)[0]]
        later.set()
        assert sorted(places) == [1, 2]
        assert next(found) == (0, 1.0)
    assert server.together == 3


def test_no_more_requests_at_a_time_than_asked_for():
    with ChatServer(by_length) as server:
        list(gate(server, parallel=2).ask(questions(*"abcdefghij")))
    assert server.together <= 2


def test_progress_counts_what_was_cached_before():
    reported = []
    with ChatServer(by_length) as server:
        list(gate(server, parallel=1).ask(questions("a", "b"), lambda *one: reported.append(one), cached=5))
    assert reported == [(6, 7, "answers"), (7, 7, "answers")]


# Failures that pass


@pytest.mark.parametrize(
    "stumble",
    [
        Reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.05"}),
        Reply(429, "", {"Retry-After": formatdate(0, usegmt=True)}),  # a date that is over
        Reply(429, "", {"Retry-After": "soon"}),
        Reply(503, "<html>busy</html>"),
        Reply(200, "not JSON"),
        Reply(200, {"choices": []}),
        Reply(200, [1]),
        Reply(200, completion(None)),
        Reply(200, "{}", {"Content-Length": "99"}),  # broken off
    ],
    ids=lambda reply: f"{reply.status} {reply.headers or reply.body}",
)
def test_what_may_pass_is_asked_again(stumble):
    with ChatServer(lambda text, time: stumble if time < 3 else "yes") as server:
        assert list(gate(server, timeout=0.5).ask(questions("a"))) == [(0, 1.0)]
    assert len(server.asked) == 3


@pytest.fixture
def waits(monkeypatch):
    """The seconds that were waited for, none of which pass."""
    found = []

    class Event(threading.Event):
        def wait(self, timeout=None):
            found.append(timeout)
            return self.is_set()

    monkeypatch.setattr(http_client, "threading", SimpleNamespace(Event=Event))
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 1.0)
    return found


def test_waits_grow_and_are_as_long_as_the_endpoint_asks(waits, caplog):
    def answer(text, time):
        return Reply(429, "", {"Retry-After": "30"}) if time == 2 else Reply(500) if time < 9 else "no"

    with ChatServer(answer) as server:
        assert list(gate(server, retries=8).ask(questions("a"))) == [(0, 0.0)]
    # 1 s, then twice as long each time up to 60 s, but 30 s where that was asked for in place of 2 s
    assert waits == [1, 30, 4, 8, 16, 32, 60, 60]
    assert [record.args[2] for record in caplog.records] == waits[1:2] + waits[3:]  # waits of 5 s and more are logged


def test_a_date_to_wait_for(waits, monkeypatch):
    monkeypatch.setattr(http_client.time, "time", lambda: 1_000_000.0)
    late = Reply(503, "", {"Retry-After": formatdate(1_000_090, usegmt=True)})
    with ChatServer(lambda text, time: late if time == 1 else "yes") as server:
        list(gate(server).ask(questions("a")))
    assert waits == [90]


# Failures that stay


def test_errors_for_ever_end_the_run_after_the_retries():
    with ChatServer(lambda text, time: Reply(500, {"error": {"message": "out of\n memory"}})) as server:
        message, _ = failure(gate(server, retries=2).ask(questions("a"), cached=3))
    assert len(server.asked) == 3
    assert message == (
        f"gate=llm: query 'q0' has no answer from tiny at {server.url}: HTTP 500: out of memory. "
        "3 of 4 answers are cached. Run again to request only the others."
    )


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            Reply(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
            "Check the key in the environment variable",
        ),
        (Reply(403, {"message": "no access."}), "HTTP 403: no access. Check the key in the environment"),
        (Reply(404, {"error": "model 'tiny' not found"}), "HTTP 404: model 'tiny' not found."),
        (Reply(400, {"error": {"message": "use max_completion_tokens"}}), "HTTP 400: use max_completion_tokens."),
        (Reply(307, "", {"Location": "http://127.0.0.1:9/v1"}), "HTTP 307"),
        (Reply(429, "", {"Retry-After": "86400"}), "The endpoint asks to wait 86400 s."),
    ],
    ids=lambda one: str(getattr(one, "status", "")),
)
def test_what_will_not_pass_ends_the_run_at_once(reply, expected):
    with ChatServer(lambda text, time: reply) as server:
        message, _ = failure(gate(server).ask(questions("a")))
    assert expected in message
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Maybe. " * 100, r"the answer is 'Maybe. Maybe. .*…' instead of yes or no. Try another model or gate.prompt."),
        (Reply(body=completion("<think>hm", "length")), r"'<think>hm' .* cut off: raise gate.request.max_tokens."),
        (Reply(body="<html>" + "x" * 5000), r"not a chat completion: <html>x{294}…\."),
    ],
)
def test_nonsense_is_quoted(reply, expected):
    import re

    with ChatServer(lambda text, time: reply) as server:
        message, _ = failure(gate(server, retries=1).ask(questions("a")))
    assert re.search(expected, message), message
    assert len(server.asked) == 2


def test_an_endpoint_that_says_nothing():
    over = threading.Event()
    with ChatServer(lambda text, time: "yes" if over.wait(30) else "no") as server:
        message, _ = failure(gate(server, timeout=0.1, retries=1).ask(questions("a")))
        over.set()
    assert "no response within 0.1 s (gate.runtime.timeout)" in message
    assert len(server.asked) == 2


def test_an_address_where_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/"
        message, _ = failure(gate(url).ask(questions("a")))
    assert f"at {url.rstrip('/')}: connection refused. Is the server running" in message


def test_answers_on_their_way_are_given_before_the_failure_is_told():
    """The second request fails while the first is under way; the third and later ones do not go out."""
    failed, both = threading.Event(), threading.Barrier(2, timeout=30)

    def answer(text, time):
        both.wait()
        if text.endswith("bad"):
            return Reply(400, "no")
        failed.wait(0.2)
        return "yes"

    with ChatServer(answer) as server:
        found = gate(server, parallel=2).ask(questions("good", "bad", *"abcdef"))
        assert next(found) == (0, 1.0)
        with pytest.raises(RuntimeError, match=r"query 'q1' .* 1 of 8 answers are cached"):
            next(found)
    assert sorted(server.texts) == ["user: bad", "user: good"]


def test_who_stops_listening_stops_the_asking():
    later = threading.Event()
    with ChatServer(lambda text, time: "no" if text.endswith(": 0") or later.wait(0.05) else "yes") as server:
        found = gate(server, parallel=1).ask(questions(*map(str, range(200))))
        next(found)
        found.close()
        asked = len(server.asked)
    assert asked < 200
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


# Decisions


class Answers:
    """Caches one float per key, as the real cache does."""

    def __init__(self):
        self.known = {}

    def __call__(self, identity, keys, compute):
        of = self.known.setdefault(json.dumps(identity, sort_keys=True), {})
        missing = list({key: place for place, key in enumerate(keys) if key not in of}.values())
        for rows, values in compute(missing) if missing else ():
            of.update({keys[missing[row]]: value for row, value in zip(rows, values, strict=True)})
        return np.array([of[key] for key in keys])


def decide(server, queries, answers, **arguments):
    inputs = SimpleNamespace(conversations=tuple(queries), rankings={}, answers=answers)
    return gate(server, **arguments).decide(inputs)


def test_it_keeps_what_the_model_says_yes_to():
    with ChatServer(by_length) as server:
        decision = decide(server, questions("ab", "abc", "", "a"), Answers())
    assert decision.signal.tolist() == [1, 0, 1, 0]
    assert decision.keep.tolist() == [True, False, True, False]
    assert (decision.shown[decision.keep] == ALL).all()
    assert decision.out_of_fold is None


def test_nothing_is_asked_twice():
    answers = Answers()
    talk = [Query("x", (Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")))]
    with ChatServer(by_length) as server:
        decide(server, questions("a", "b", "a"), answers)
        assert len(server.asked) == 2
        decide(server, questions("b", "a", "b", "c"), answers, timeout=9, retries=0, parallel=2)
        assert len(server.asked) == 3
        decide(server, talk, answers)  # its turns joined are in no way the question `a c`
        decide(server, questions("a c"), answers)
        assert len(server.asked) == 5
        decide(server, questions("a"), answers, prompt="else")
        decide(server, questions("a"), answers, request={"max_tokens": 99})
        assert len(server.asked) == 7


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_run_that_is_started_again_asks_for_the_rest(tmp_path, parallel):
    """With the real cache: the answers before the failure are on disk."""
    broken = True

    def answer(text, time):
        return Reply(400, "no") if broken and text.endswith("5") else by_length(text, time)

    cache = Cache(tmp_path / "cache")
    with ChatServer(answer) as server:
        with pytest.raises(RuntimeError, match=r"query 'q5'.* (\d) of 9 answers are cached") as caught:
            decide(server, questions(*"012345678"), cache.pairs, parallel=parallel)
        first = len(server.asked)
        kept = int(str(caught.value).split(" of 9 answers")[0].rpartition(" ")[2])
        assert kept == first - 1 >= 5
        broken = False
        decision = decide(server, questions(*"012345678"), cache.pairs, parallel=parallel)
        assert len(server.asked) == first + 9 - kept
    assert decision.signal.tolist() == [0.0] * 9
    again = decide("http://127.0.0.1:9", [], cache.pairs)  # no request, so no server is needed
    assert again.keep.tolist() == []


# What is refused before any work


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": "ftp://example.org"}, "base_url is not an http"),
        ({"base_url": "example.org/v1"}, "base_url is not an http"),
        ({"base_url": "https://"}, "base_url is not an http"),
        ({"base_url": "https://example.org:port/v1"}, "base_url is not an http"),
        ({"base_url": "https://exa mple.org/v1"}, "base_url is not an http"),
        ({"base_url": "https://a..b/v1"}, "base_url is not an http"),
        ({"base_url": "http://example.org/v1"}, "unencrypted. Use https"),
        ({"base_url": "http://192.168.1.5:8000/v1"}, "unencrypted. Use https"),
        ({"base_url": "http://localhost.example.org/v1"}, "unencrypted. Use https"),
        ({"base_url": f"https://user:{KEY}@example.org/v1"}, "contains a user, a password or a fragment"),
        ({"base_url": f"https://example.org/v1?key={KEY}"}, "base_url contains a query"),
        ({"api_key_env": KEY}, "api_key_env is not the name of an environment variable"),
        ({"timeout": 0}, "timeout=0"),
        ({"retries": -1}, "retries=-1"),
        ({"parallel": 0}, "parallel=0"),
        ({"request": {"model": "x"}}, r"request\.model"),
        ({"request": {"stream": True}}, r"request\.stream"),
        ({"request": "x"}, "request='x' must be a group"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message) as caught:
        LlmGate("tiny", **arguments)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:1/v1", "http://127.1.2.3/v1", "http://[::1]:8000", "http://a.localhost"]
)
def test_this_machine_may_be_asked_over_http(url, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert LlmGate("tiny", url).base_url == url


def test_a_key_that_is_missing_or_broken(monkeypatch):
    monkeypatch.setenv("OTHER", " ")
    with pytest.raises(BadInput, match=r"variable OTHER holds no key for https://api\.openai\.com/v1"):
        LlmGate("tiny", api_key_env="OTHER")
    monkeypatch.setenv("OTHER", f"{KEY}\nX-Other: 1")
    with pytest.raises(BadInput, match="The key in OTHER contains characters") as caught:
        LlmGate("tiny", api_key_env="OTHER")
    assert KEY not in str(caught.value)
    monkeypatch.setenv("OTHER", f"{KEY} {KEY}")
    with pytest.raises(BadInput, match="The key in OTHER contains characters") as caught:
        LlmGate("tiny", api_key_env="OTHER")
    assert KEY not in str(caught.value)
    monkeypatch.setenv("OTHER", f" {KEY}\n")  # as `$(cat file)` in a service's settings leaves it
    with ChatServer(by_length) as server:
        list(gate(server, api_key_env="OTHER").ask(questions("a")))
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"


# Secrets and identity


@pytest.mark.parametrize("status", [200, 401, 429, 500])
def test_the_key_shows_up_nowhere(status, caplog, tmp_path, monkeypatch):
    """The endpoint repeats the key in all that it says."""
    monkeypatch.setattr(http_client, "LOGGED_SECONDS", 0.0)
    cache = Cache(tmp_path)
    echo = Reply(
        status, {"error": {"message": f"key {KEY}"}, "choices": [{"message": {"content": KEY}}]}, {"X-Key": KEY}
    )
    with caplog.at_level(logging.DEBUG), ChatServer(lambda text, time: echo if "b" in text else "yes") as server:
        made = gate(server, retries=1, parallel=1)
        inputs = SimpleNamespace(conversations=tuple(questions("a", "b")), rankings={}, answers=cache.pairs)
        with pytest.raises(RuntimeError) as caught:
            made.decide(inputs)
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    shown += repr(made) + repr(vars(made)) + json.dumps(made.identity())
    shown += "".join(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in shown
    assert "[key]" in str(caught.value)


def test_what_decides_an_answer():
    base = gate("http://localhost/v1").identity()
    assert base == gate("http://localhost/v1/", timeout=1, retries=0, parallel=9).identity()
    others = [
        LlmGate("big", "http://localhost/v1"),
        gate("http://localhost/v2"),
        gate("http://localhost/v1", prompt="x"),
        gate("http://localhost/v1", request={"temperature": 1}),
    ]
    assert all(other.identity() != base for other in others)


def test_the_shipped_config_says_the_defaults():
    import yaml

    node = yaml.safe_load((components.conf_folder() / "gate" / "llm.yaml").read_text("utf-8"))
    with pytest.raises(BadInput, match=r"gate\.model is missing\. Give it on the command line: gate\.model="):
        components.check_component(node, "gate")
    components.check_component(node | {"model": "tiny"}, "gate")
    made, plain = components.build(node | {"model": "tiny"}), LlmGate("tiny")
    assert vars(made) == vars(plain)
    made.check(["bm25", "dense"])  # it fits any rankings


def test_the_transcript_of_a_question():
    assert transcript(Query.of("q", "달은?")) == "user: 달은?"
