"""The language model gate, against a local server that answers, fails and returns nonsense.

What its client does with waits, broken replies, keys and addresses is tested in tests/llm/.
"""

import re
from types import SimpleNamespace

import pytest
import yaml
from chat_server import ChatServer, Reply, completion

from harness.config import components
from harness.errors import BadInput, Failed
from harness.gates import llm
from harness.gates.gate import ALL
from harness.gates.llm import LlmGate, read_answer
from harness.llm.chat import Chat, ChatModel
from harness.llm.structured import WrongReply
from retrievers.base import Query, Turn
from retrievers.external import http_client

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """A key, and short waits."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)


def decide(server, queries, prompt=None, request=None):
    inputs = SimpleNamespace(conversations=tuple(queries), chat=lambda model: Chat(model, None))
    return LlmGate(ChatModel("tiny", server.url), prompt, request).decide(inputs)


def questions(*texts):
    return [Query.of(f"q{i}", text) for i, text in enumerate(texts)]


def by_length(text, time):
    """Texts of an even length need documents."""
    return "yes" if len(text.removeprefix("user: ")) % 2 == 0 else "no"


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
    if expected is None:
        with pytest.raises(WrongReply, match="instead of yes or no"):
            read_answer(message)
    else:
        assert read_answer(message) == expected


def test_what_is_sent():
    talk = Query("q", (Turn("user", "기억 상실증은 무섭다"), Turn("assistant", "네"), Turn("user", "원인은?")))
    request = {"temperature": None, "max_tokens": None, "max_completion_tokens": 2000}
    with ChatServer(by_length) as server:
        decide(server, [talk])
        decide(server, questions("a"), prompt="yes or no?", request=request)
    asked, other = server.asked
    assert asked.path == "/v1/chat/completions"
    system, user = asked.body.pop("messages")
    assert asked.body == {"model": "tiny", "temperature": 0, "max_tokens": 16}
    assert system == {"role": "system", "content": llm.PROMPT}
    assert user == {"role": "user", "content": "user: 기억 상실증은 무섭다\nassistant: 네\nuser: 원인은?"}
    assert other.body["messages"][0]["content"] == "yes or no?"
    assert set(other.body) == {"model", "messages", "max_completion_tokens"}


def test_it_keeps_what_the_model_says_yes_to():
    with ChatServer(by_length) as server:
        decision = decide(server, questions("ab", "abc", "", "a"))
    assert decision.signal.tolist() == [1, 0, 1, 0]
    assert decision.shown.tolist() == [ALL, 0, ALL, 0]
    assert decision.out_of_fold is None


def failure(server, *texts):
    with pytest.raises(Failed) as caught:
        decide(server, questions(*texts))
    return str(caught.value)


def test_words_that_are_no_answer_are_quoted():
    with ChatServer(lambda text, time: "yes" if text.endswith("a") else "Maybe. " * 100) as server:
        message = failure(server, "a", "b", "c")
        assert len(server.asked) == 1 + 2 * 3  # b and c are asked three times
    expected = (
        r"gate=llm: 2 of 3 queries have no answer from tiny \(q1, q2\)\. The first: the answer is 'Maybe\. [^']{190,}"
        r"…' instead of yes or no\. Raise gate\.request\.max_tokens if the answer was cut off; otherwise try another"
    )
    assert re.match(expected, message), message
    with ChatServer(lambda text, time: Reply(body=completion("<think>hm", "length"))) as server:
        message = failure(server, "a")
        assert len(server.asked) == 1  # the same request would be cut off again
    assert "the answer is '<think>hm' instead of yes or no. It was cut off after too few tokens. Raise gate." in message


def test_the_model_must_be_one_that_can_be_asked(monkeypatch):
    with pytest.raises(BadInput, match=r"llm\.model is missing\. Give it on the command line: llm\.model=NAME"):
        LlmGate(ChatModel())
    with pytest.raises(BadInput, match=r"gate\.request\.model: the harness sets this field itself"):
        LlmGate(ChatModel("tiny"), request={"model": "x"})
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(BadInput, match=r"variable OPENAI_API_KEY holds no key for https://api\.openai\.com/v1"):
        LlmGate(ChatModel("tiny"))


def test_the_shipped_config_says_the_defaults():
    folder = components.conf_folder()
    chosen = yaml.safe_load((folder / "llm" / "chat.yaml").read_text("utf-8")) | {"model": "tiny"}
    made = components.build(yaml.safe_load((folder / "gate" / "llm.yaml").read_text("utf-8")) | {"llm": chosen})
    plain, asked = LlmGate(ChatModel("tiny")), Query.of("q", "a")
    assert made.llm.body(made._prompt(asked)) == plain.llm.body(plain._prompt(asked))
    made.check(["bm25", "dense"])  # it fits any rankings
    bare = {"_target_": chosen["_target_"], "model": "tiny"}
    assert components.component_identity(chosen) == components.component_identity(bare)
