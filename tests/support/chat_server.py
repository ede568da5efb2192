"""A server on 127.0.0.1 with the part of OpenAI's chat completions API that the harness uses, and scripted answers.

with ChatServer(lambda asked, time: "no" if "안녕" in asked else "yes") as server:
    harness("run", "gate=llm", "llm.model=tiny", f"llm.base_url={server.url}")

As a program, it answers `{"n": length of the question}` until it is killed, and prints its address first:
`python chat_server.py SECONDS`. Its counts are at /counts.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """A full response, for tests that need more than the text of an answer.

    body: text, or a value sent as JSON. cut: how many bytes of it are left out at its end, as if the line had broken.
    """

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0


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


class ChatServer:
    """Answers requests by a function, and records them.

    answer: (text, time) -> text of the answer, or a Reply; time counts the requests with this text from 1.
    model:  in place of `answer`: (the whole request, time) -> the same.
    delay:  seconds before each answer.
    counted: whether answers come with the tokens of request and answer, a word being a token.

    asked: all requests, in the order of arrival.
    together: the largest number of simultaneous requests.
    """

    def __init__(
        self,
        answer: Callable[[str, int], str | Reply] | None = None,
        *,
        model: Callable[[Invocation, int], str | Reply] | None = None,
        delay: float = 0.0,
        counted: bool = False,
    ) -> None:
        self.asked: list[Invocation] = []
        self.together = 0
        self._model = model or (lambda asked, time: answer(asked.text, time))
        self._delay, self._counted = delay, counted
        self._now, self._times, self._lock = 0, Counter(), threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
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
            count = self._times[asked.text]
            self._now += 1
            self.together = max(self.together, self._now)
        try:
            time.sleep(self._delay)
            answer = self._model(asked, count)
        finally:
            with self._lock:
                self._now -= 1
        if isinstance(answer, Reply):
            return answer
        words = " ".join(one["content"] for one in asked.body["messages"]).split()
        usage = {"prompt_tokens": len(words), "completion_tokens": len(answer.split())} if self._counted else None
        return Reply(body=completion(answer, usage=usage))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(server._reply(Invocation(self.path, dict(self.headers), body)))

            def do_GET(self) -> None:
                self._send(Reply(body=dict(Counter(server.texts))))

            def _send(self, reply: Reply) -> None:
                body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
                try:
                    self.send_response(reply.status)
                    for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body[: len(body) - reply.cut])
                    self.wfile.flush()
                    self.close_connection |= bool(reply.cut) or "Content-Length" in reply.headers
                except ConnectionError:
                    pass  # the client has given up waiting

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that was killed
            super().handle_error(request, client_address)


def completion(content: str | None, finish_reason: str = "stop", usage: dict[str, int] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"object": "chat.completion", "choices": [choice]} | ({"usage": usage} if usage else {})


if __name__ == "__main__":
    with ChatServer(lambda text, time: f'{{"n": {len(text)}}}', delay=float(sys.argv[1]), counted=True) as running:
        print(running.url, flush=True)  # noqa: T201
        threading.Event().wait()
