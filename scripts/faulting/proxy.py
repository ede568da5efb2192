"""A proxy in front of a server that makes it seem to die, fail, slow down or not answer."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

MODES = ("dies", "fails", "slows down", "does not answer")


class Proxy(ThreadingHTTPServer):
    """Pass requests on to a server; in a mode, only the first `after` of them."""

    daemon_threads = True
    mode, after, behind = "", 0, ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def be_away(self, seconds: float) -> None:
        self.mode, self.after = "dies", 0
        time.sleep(seconds)
        self.mode = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.after -= bool(self.server.mode)
        mode = self.server.mode if self.server.after < 0 else ""
        if mode == "dies":
            self.close_connection = True
            self.connection.close()
            return
        time.sleep({"slows down": 0.3, "does not answer": 3.0}.get(mode, 0.0))
        status, headers, content = (500, {}, b"broken") if mode == "fails" else self._answer(body)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        with closing(http.client.HTTPConnection(urlsplit(self.server.behind).netloc, timeout=60)) as connection:
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() == "content-type"}
            return response.status, kept, response.read()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):  # the client has given up, or the connection is closed
            self.close_connection = True


@contextmanager
def proxied(folder: Path, address: str | None = None) -> Iterator[Proxy]:
    """Give a proxy in front of an MLflow server. address: of the server; None: start one in the folder."""
    from mlflow_server import serving

    if address is None:
        folder.mkdir()
        with serving(folder) as (own, _), proxied(folder, own) as proxy:
            yield proxy
        return
    with Proxy(("127.0.0.1", 0), _Handler) as proxy:
        proxy.behind = address
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()
