"""A server on 127.0.0.1 with the part of OpenAI's chat completions API that the gate uses, and scripted answers.

with ChatServer(lambda asked, time: "no" if "안녕" in asked else "yes") as server:
    harness("run", "gate=llm", "gate.model=tiny", f"gate.base_url={server.url}")
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """A full response, for tests that need more than the text of an answer."""

    status: int = 200
    body: Any = ""  # text, or a value sent as JSON
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Invocation:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return self.body["messages"][-1]["content"]


class ChatServer:
    """Answers requests by a function, and records them.

    answer: (text, time) -> text of the answer, or a Reply; time counts the requests with this text from 1.

    asked: all requests, in the order of arrival.
    together: the largest number of simultaneous requests.
    """

    def __init__(self, answer: Callable[[str, int], str | Reply]) -> None:
        self.asked: list[Invocation] = []
        self.together = 0
        self._answer, self._now, self._times, self._lock = answer, 0, Counter(), threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.asked]

    def _reply(self, asked: Invocation) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self._times[asked.text] += 1
            time = self._times[asked.text]
            self._now += 1
            self.together = max(self.together, self._now)
        try:
            answer = self._answer(asked.text, time)
        finally:
            with self._lock:
                self._now -= 1
        return answer if isinstance(answer, Reply) else Reply(body=completion(answer))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = server._reply(Invocation(self.path, dict(self.headers), body))
                body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
                try:
                    self.send_response(reply.status)
                    for name, value in {"Content-Length": str(len(body.encode())), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body.encode())
                except ConnectionError:
                    pass  # the client has given up waiting

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def completion(content: str | None, finish_reason: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}
