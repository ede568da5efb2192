"""The server of the review page. Each reviewer has a link that cannot be guessed, and sees only their own questions.

Requests must come from the page itself and name this machine. Otherwise, other web pages could reach the server under
another host name. The page runs only its own scripts and sends nothing to other machines.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
import secrets
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from harness import children
from harness.errors import BadInput
from harness.reports.markup import TEMPLATES
from harness.storage.typed import row_as
from harness.testset.review.desk import WORDS, Desk, RefusedRequest, Value

HERE = Path(__file__).parent
FILES = {
    "": (HERE / "review.html", "text/html"),
    "page.css": (TEMPLATES / "page.css", "text/css"),
    "page.js": (TEMPLATES / "page.js", "text/javascript"),
    "review.css": (HERE / "review.css", "text/css"),
    "review.js": (HERE / "review.js", "text/javascript"),
    "marks.js": (HERE / "marks.js", "text/javascript"),
    "words.json": (WORDS, "application/json"),
}
HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::[0-9]{1,5})?")
BODY_BYTES = 1000  # maximum size, in bytes, of a judgement that the page sends
KEYS = 50  # maximum number of items whose texts are sent in one answer
IDLE_SECONDS = 60  # A connection is closed after this time without a request.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ReviewServer(ThreadingHTTPServer):
    """Serve each desk at http://HOST:PORT/r/TOKEN/. host: an address or name of this machine; other hosts raise
    BadInput. port: the preferred port; if it is taken, another port is used."""

    daemon_threads = True  # so that idle connections do not keep the command alive
    request_queue_size = 64

    def __init__(self, desks: Sequence[Desk], host: str, port: int) -> None:
        self.desks = {secrets.token_urlsafe(18): desk for desk in desks}
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        children.on_port(lambda port: ThreadingHTTPServer.__init__(self, (host, port), _Handler), host, port)

    @property
    def links(self) -> dict[str, str]:
        """Return reviewer -> link to open."""
        shown = socket.gethostname() if _wildcard(self.host) else f"[{self.host}]" if ":" in self.host else self.host
        return {desk.name: f"http://{shown}:{self.server_port}/r/{token}/" for token, desk in self.desks.items()}

    def is_here(self, host: str) -> bool:
        """Return whether a Host header names this machine. Ignore its port, since a tunnel may use another port."""
        if (found := HOST.fullmatch(host)) is None:
            return False
        name, any_network = (found["name"] or found["address"]).lower(), _wildcard(self.host)
        if name in ("localhost", self.host.lower()) or (any_network and name == socket.gethostname().lower()):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback or any_network
        except ValueError:
            return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


@dataclass(frozen=True)
class _Said:
    """A judgement from the page. before: the value that the reviewer saw."""

    key: str
    value: Value
    before: Value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "harness", ""
    timeout = IDLE_SECONDS
    wbufsize = 1 << 16  # size of the write buffer in bytes, enough to send most answers in one piece
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._reply(self._shown)

    def do_POST(self) -> None:
        self._reply(self._judged)

    def _reply(self, answer: Callable[[], tuple[str, bytes]]) -> None:
        try:
            self._check_origin()
            kind, content = answer()
            self._send(200, kind, content)
        except RefusedRequest as refused:
            self._send(refused.status, *_json(refused.document))
        except ConnectionError:
            self.close_connection = True
        except BadInput as error:  # The log is damaged.
            self._send(500, *_json({"error": str(error)}))
        except Exception as error:
            traceback.print_exc()
            self._send(500, *_json({"error": f"{type(error).__name__}: {error}"}))

    def _check_origin(self) -> None:
        """Raise RefusedRequest unless the request names this machine and comes from the page or a link to it."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self._server.is_here(hosts[0]):
            raise RefusedRequest(403, "This server answers only under the name of its machine.")
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "same-origin")
        followed = self.command == "GET" and self.headers.get("Sec-Fetch-Mode") == "navigate"
        if origin not in (None, f"http://{hosts[0]}") or (site not in ("same-origin", "none") and not followed):
            raise RefusedRequest(403, "The request comes from another page.")

    def _route(self) -> tuple[Desk, str, dict[str, list[str]]]:
        """Return (the desk, the path after its link, the query parameters)."""
        try:
            address = urlsplit(self.path)
            asked = parse_qs(address.query, errors="strict", max_num_fields=8)
        except ValueError:
            raise RefusedRequest(400, "The address is not well-formed.") from None
        head, _, rest = address.path.removeprefix("/r/").partition("/")
        token = head.encode("utf-8", "replace") if address.path.startswith("/r/") else b""
        desks = self._server.desks.items()
        desk = next((desk for known, desk in desks if hmac.compare_digest(known.encode(), token)), None)
        if desk is None:
            raise RefusedRequest(
                404, "Open the whole link that harness testset review printed; earlier links no longer work."
            )
        return desk, rest, asked

    def _shown(self) -> tuple[str, bytes]:
        desk, rest, asked = self._route()
        if rest in FILES:
            file, kind = FILES[rest]
            return kind, file.read_bytes()
        if rest == "api/items":
            return _json(desk.items())
        if rest == "api/texts":
            keys = _one(asked, "keys").split(",")
            if len(keys) > KEYS:
                raise RefusedRequest(400, f"At most {KEYS} texts are sent at once.")
            return _json(desk.texts(keys))
        if rest == "api/found":
            return _json({"keys": desk.found(_one(asked, "words"))})
        if rest == "api/changes":
            since = _one(asked, "since")
            if not since.isdecimal() or len(since) > 15:
                raise RefusedRequest(400, "The parameter `since` must be a revision number.")
            return _json(desk.changes(int(since)))
        if rest == "api/judgements":
            raise RefusedRequest(405, "Judgements are sent by POST.")
        raise RefusedRequest(404, "There is nothing at this address.")

    def _judged(self) -> tuple[str, bytes]:
        desk, rest, _ = self._route()
        if rest != "api/judgements":
            raise RefusedRequest(405, "Nothing can be sent to this address.")
        said = self._body()
        desk.judge(said.key, said.value, said.before)
        return _json({"saved": said.value})

    def _body(self) -> _Said:
        lengths = self.headers.get_all("Content-Length") or []
        if self.headers.get_content_type() != "application/json":
            raise RefusedRequest(415, "The content type must be application/json.")
        if len(lengths) != 1 or "Transfer-Encoding" in self.headers:
            raise RefusedRequest(411, "The request must say how long it is.")
        if not lengths[0].isdecimal():
            raise RefusedRequest(400, "Content-Length must be a number.")
        if len(lengths[0]) > 9 or int(lengths[0]) > BODY_BYTES:
            raise RefusedRequest(413, f"A judgement has at most {BODY_BYTES:,} bytes.")
        try:
            return row_as(_Said, json.loads(self.rfile.read(int(lengths[0])).decode("utf-8")), "A judgement")
        except BadInput as error:
            raise RefusedRequest(400, str(error)) from None
        except (ValueError, RecursionError):
            raise RefusedRequest(400, "Invalid JSON.") from None

    @property
    def _server(self) -> ReviewServer:
        return cast(ReviewServer, self.server)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if status != 200:  # Otherwise, an unread body of this request would be read as the next request.
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._send(code, *_json({"error": message or "The request is not well-formed."}))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since addresses contain the secret links."""


def _one(asked: Mapping[str, list[str]], name: str) -> str:
    if len(values := asked.get(name, [])) != 1:
        raise RefusedRequest(400, f"{name} must be given once.")
    return values[0]


def _json(document: Mapping[str, Any]) -> tuple[str, bytes]:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return "application/json", text.encode("utf-8", "replace")


def _wildcard(host: str) -> bool:
    """Return whether an address means all addresses of the machine."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104
