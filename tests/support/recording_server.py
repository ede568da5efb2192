"""A server on 127.0.0.1 that answers each request by a function, and records it."""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Reply:
    """A full response.

    body: text, or a value sent as JSON. cut: how many bytes of it are left out. pause: seconds after each byte.
    """

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    pause: float = 0.0


class RecordingServer:
    """Subclasses read requests, objects with a `text`, and answer them.

    asked: all requests, in the order of arrival. together: the largest number of simultaneous requests.
    connections: ports from which they came.
    certificate: file with a certificate and its key; the service then speaks https.
    """

    def __init__(self, path: str, certificate: Path | None = None) -> None:
        self.asked: list[Any] = []
        self.connections: set[int] = set()
        self.together = self._now = 0
        self._times, self._lock = Counter[str](), threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}{path}"

    def read(self, method: str, path: str, headers: dict[str, str], body: Any) -> Any:
        raise NotImplementedError

    def answer(self, asked: Any, time: int) -> Reply:
        """time: how often there was a request with this text, from 1."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _recorded(self, asked: Any) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self._times[asked.text] += 1
            count = self._times[asked.text]
            self._now += 1
            self.together = max(self.together, self._now)
        try:
            return self.answer(asked, count)
        finally:
            with self._lock:
                self._now -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections stay open, as those of real services
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                server.connections.add(self.client_address[1])
                asked = server.read(self.command, self.path, dict(self.headers), body)
                self._send(asked if isinstance(asked, Reply) else server._recorded(asked))

            do_GET = do_POST

            def _send(self, reply: Reply) -> None:
                sent = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
                try:
                    self.send_response(reply.status)
                    for name, value in {"Content-Length": str(len(sent)), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    for i in range(len(sent) if reply.pause else 0):
                        self.wfile.write(sent[i : i + 1])
                        time.sleep(reply.pause)
                    self.wfile.write(b"" if reply.pause else sent[: len(sent) - reply.cut])
                    self.close_connection |= reply.cut > 0 or "Content-Length" in reply.headers
                except ConnectionError:
                    self.close_connection = True  # the client has given up waiting

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that was killed
            super().handle_error(request, client_address)
