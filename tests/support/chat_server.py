"""A server on 127.0.0.1 with the part of OpenAI's chat completions API that the harness uses, and scripted answers.

with ChatServer(lambda asked, time: "no" if "안녕" in asked else "yes") as server:
    harness("run", "gate=llm", "llm.model=tiny", f"llm.base_url={server.url}")
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recording_server import RecordingServer, Reply


@dataclass
class Invocation:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return self.body["messages"][-1]["content"]

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema that the reply is to keep to; None without one."""
        described = self.body.get("response_format", {}).get("json_schema")
        return described and described["schema"]


class ChatServer(RecordingServer):
    """answer: (text, time) -> text of the answer, or a Reply; time counts the requests with this text from 1.

    model:  in place of `answer`: (the whole request, time) -> the same.
    delay:  seconds before each answer.
    counted: whether answers come with the tokens of request and answer, a word being a token.
    """

    def __init__(
        self,
        answer: Callable[[str, int], str | Reply] | None = None,
        *,
        model: Callable[[Invocation, int], str | Reply] | None = None,
        delay: float = 0.0,
        counted: bool = False,
    ) -> None:
        self._model = model or (lambda asked, time: answer(asked.text, time))
        self._delay, self._counted = delay, counted
        super().__init__("/v1")

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.asked]

    def read(self, method: str, path: str, headers: dict[str, str], body: Any) -> Invocation:
        return Invocation(path, headers, body)

    def answer(self, asked: Invocation, count: int) -> Reply:
        time.sleep(self._delay)
        answer = self._model(asked, count)
        if isinstance(answer, Reply):
            return answer
        words = " ".join(one["content"] for one in asked.body["messages"]).split()
        usage = {"prompt_tokens": len(words), "completion_tokens": len(answer.split())} if self._counted else None
        return Reply(body=completion(answer, usage=usage))


def completion(content: str | None, finish_reason: str = "stop", usage: dict[str, int] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"object": "chat.completion", "choices": [choice]} | ({"usage": usage} if usage else {})
