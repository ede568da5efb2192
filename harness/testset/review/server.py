"""The server of the page: a link for each reviewer, to whom it shows that reviewer's desk and nothing else.

What protects it: links that nobody can guess; requests must name this machine (else a foreign page could reach it
under a name of its own) and come from the page itself; a page that runs no script but its own and talks to no other
machine; small requests of one shape. It is written for a few people at once, each with several windows.
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

from harness.errors import BadInput
from harness.reports.page import TEMPLATES
from harness.storage.typed import row_as
from harness.testset.review.desk import WORDS, Desk, JudgementChanged, Unfit, Value

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
BODY_BYTES = 1000  # of a judgement, at most
KEYS = 50  # texts in one answer, at most
IDLE_SECONDS = 60  # after which a connection is closed
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
    """Serves desks at http://HOST:PORT/r/TOKEN/, each at a token of its own. It listens once this returns.

    host: an address or name of this machine. port: another one is taken if it is not free. BadInput for a wrong host.
    """

    daemon_threads = True  # an idle connection does not keep the command from ending
    request_queue_size = 64

    def __init__(self, desks: Sequence[Desk], host: str, port: int) -> None:
        self.desks = {secrets.token_urlsafe(18): desk for desk in desks}
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for wanted in (port, 0):
            try:
                super().__init__((host, wanted), _Handler)
                break
            except OSError as error:
                if wanted == 0 or isinstance(error, socket.gaierror):
                    raise BadInput(f"host={host}: {error.strerror}. Use an address of this machine.") from None

    @property
    def links(self) -> dict[str, str]:
        """Reviewer -> the address to open."""
        shown = socket.gethostname() if _wildcard(self.host) else f"[{self.host}]" if ":" in self.host else self.host
        return {
            desk.reviewer.name: f"http://{shown}:{self.server_port}/r/{token}/" for token, desk in self.desks.items()
        }

    def desk(self, token: str) -> Desk | None:
        """Return the desk of a token; takes as long for any token."""
        found = None
        for known, desk in self.desks.items():
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace")):
                found = desk
        return found

    def is_here(self, host: str) -> bool:
        """Whether the value of a Host header names this machine; under any port, since a tunnel may have its own."""
        if (found := HOST.fullmatch(host)) is None:
            return False
        name = (found["name"] or found["address"]).lower()
        names = {"localhost", self.host.lower()} | ({socket.gethostname().lower()} if _wildcard(self.host) else set())
        return name in names or _is_address(name, _wildcard(self.host))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong outside of an answer; a browser that hangs up is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


class _Refused(Exception):
    """A request that gets no answer but this. status: of HTTP. why: for people."""

    def __init__(self, status: int, why: str, **more: Any) -> None:
        super().__init__(why)
        self.status, self.document = status, {"error": why, **more}


@dataclass(frozen=True)
class _Said:
    """A judgement as the page sends it. before: what the reviewer saw."""

    key: str
    value: Value
    before: Value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "harness", ""
    timeout = IDLE_SECONDS
    wbufsize = 1 << 16  # an answer leaves in one piece
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._reply(self._shown)

    def do_POST(self) -> None:
        self._reply(self._judged)

    def _reply(self, answer: Callable[[], tuple[str, bytes]]) -> None:
        """Send an answer, or why there is none."""
        try:
            self._check_origin()
            kind, content = answer()
            self._send(200, kind, content)
        except _Refused as refused:
            self._send(refused.status, *_json(refused.document))
        except ConnectionError:
            self.close_connection = True
        except BadInput as error:  # somebody has spoiled the log
            self._send(500, *_json({"error": str(error)}))
        except Exception as error:
            traceback.print_exc()
            self._send(500, *_json({"error": f"{type(error).__name__}: {error}"}))

    def _check_origin(self) -> None:
        """403 unless the request names this machine and comes from our own page, or from a link to it."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self._server.is_here(hosts[0]):
            raise _Refused(403, "This server answers under the name of its own machine alone.")
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "same-origin")
        followed = self.command == "GET" and self.headers.get("Sec-Fetch-Mode") == "navigate"
        if origin not in (None, f"http://{hosts[0]}") or (site not in ("same-origin", "none") and not followed):
            raise _Refused(403, "The request comes from another page.")

    def _route(self) -> tuple[Desk, str, dict[str, list[str]]]:
        """Return (the desk, what is asked of it, the query string)."""
        try:
            address = urlsplit(self.path)
            asked = parse_qs(address.query, errors="strict", max_num_fields=8)
        except ValueError:
            raise _Refused(400, "The address is not well-formed.") from None
        head, _, rest = address.path.removeprefix("/r/").partition("/")
        desk = self._server.desk(head) if address.path.startswith("/r/") else None
        if desk is None:
            raise _Refused(404, "Open the whole link that harness testset review has printed; an earlier one is void.")
        return desk, rest, asked

    def _shown(self) -> tuple[str, bytes]:
        """Return the page, its files and its data."""
        desk, rest, asked = self._route()
        if rest in FILES:
            file, kind = FILES[rest]
            return kind, file.read_bytes()
        if rest == "api/items":
            return _json(desk.items())
        if rest == "api/texts":
            keys = _one(asked, "keys").split(",")
            if len(keys) > KEYS:
                raise _Refused(400, f"At most {KEYS} texts are sent at once.")
            return _json(_known(lambda: desk.texts(keys)))
        if rest == "api/found":
            return _json({"keys": desk.found(_one(asked, "words"))})
        if rest == "api/changes":
            since = _one(asked, "since")
            if not since.isdecimal() or len(since) > 15:
                raise _Refused(400, "since is no revision.")
            return _json(desk.changes(int(since)))
        if rest == "api/judgements":
            raise _Refused(405, "Judgements are sent by POST.")
        raise _Refused(404, "There is nothing at this address.")

    def _judged(self) -> tuple[str, bytes]:
        """Take a judgement; the answer says that it is on the disk."""
        desk, rest, _ = self._route()
        if rest != "api/judgements":
            raise _Refused(405, "Nothing can be sent to this address.")
        said = self._body()
        try:
            _known(lambda: desk.judge(said.key, said.value, said.before))
        except Unfit:
            raise _Refused(400, "This cannot be said of it.") from None
        except JudgementChanged as changed:
            raise _Refused(409, "It has been judged elsewhere in the meantime.", value=changed.value) from None
        return _json({"saved": said.value})

    def _body(self) -> _Said:
        """Return what the request says."""
        lengths = self.headers.get_all("Content-Length") or []
        if self.headers.get_content_type() != "application/json":
            raise _Refused(415, "Only application/json is taken.")
        if len(lengths) != 1 or "Transfer-Encoding" in self.headers:
            raise _Refused(411, "The request must say how long it is.")
        if not lengths[0].isdecimal():
            raise _Refused(400, "Content-Length is no number.")
        if len(lengths[0]) > 9 or int(lengths[0]) > BODY_BYTES:
            raise _Refused(413, f"A judgement has at most {BODY_BYTES:,} bytes.")
        try:
            return row_as(_Said, json.loads(self.rfile.read(int(lengths[0])).decode("utf-8")), "A judgement")
        except BadInput as error:
            raise _Refused(400, str(error)) from None
        except (ValueError, RecursionError):
            raise _Refused(400, "This is no JSON.") from None

    @property
    def _server(self) -> ReviewServer:
        return cast(ReviewServer, self.server)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if status != 200:  # part of the request may not have been read
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself: lines that are too long, unknown methods, broken requests."""
        self._send(code, *_json({"error": message or "The request is not well-formed."}))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: addresses hold the links."""


def _known(call: Callable[[], Any]) -> Any:
    """Return what a call gives; 404 where it asks for a key that the desk does not have."""
    try:
        return call()
    except KeyError:
        raise _Refused(404, "This is not among what there is to judge: load the page again.") from None


def _one(asked: Mapping[str, list[str]], name: str) -> str:
    """Return the only value of a name in the query string."""
    if len(values := asked.get(name, [])) != 1:
        raise _Refused(400, f"{name} must be given once.")
    return values[0]


def _json(document: Mapping[str, Any]) -> tuple[str, bytes]:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return "application/json", text.encode("utf-8", "replace")


def _wildcard(host: str) -> bool:
    """Return whether this address stands for all of the machine's."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104


def _is_address(name: str, any_network: bool) -> bool:
    """Return whether a name is an IP address: of this machine alone, unless the server is open to any network."""
    try:
        return ipaddress.ip_address(name).is_loopback or any_network
    except ValueError:
        return False
