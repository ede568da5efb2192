"""A client for services that answer in JSON, such as search services and language models.

The client verifies certificates, retries, pauses all threads when a service asks to wait, follows redirects on the same
server only, limits the time and size of each reply, and keeps secrets out of messages.
"""

from __future__ import annotations

import functools
import http.client
import io
import json
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, exceptions, make_headers
from urllib3.util import Timeout as Deadline
from urllib3.util import parse_url

from harness.errors import BadInput
from retrievers.base import AtMost
from retrievers.hosts import Address, Secrets, name_host
from retrievers.redaction import READ, redacted, shown_value

log = logging.getLogger(__name__)
LARGEST_REPLY = 64 * 1024**2  # maximum number of bytes of a reply, both as sent and after decompression
BACKOFF_SECONDS = 1.0  # the wait before the second attempt; it doubles with each attempt, up to LONGEST_BACKOFF
LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 600.0  # if a service asks to wait longer, the run fails
LOGGED_SECONDS = 5.0  # longer waits are logged
REDIRECTS = 5  # maximum number of redirects in a row
QUOTED = 300  # maximum number of characters of a text that a message quotes
GRACE_SECONDS = 1.0  # seconds that requests under way may take after an interruption

Timeout = Annotated[float, AtMost(86_400, "this is a day")]
Retries = Annotated[int, AtMost(100, "the waits between them grow")]
Parallel = Annotated[int, AtMost(256, "each request has a thread")]

_T = TypeVar("_T")


class TooLarge(Exception):
    """A reply has more than LARGEST_REPLY bytes."""


class Connections:
    """The open connections of a client. Servers on other machines are reached through the environment's proxy, if any.

    The time for a whole reply, headers included, is limited to the socket's timeout when the reply begins.
    """

    def __init__(self, address: Address, parallel: int) -> None:
        self.ended, self.reading = False, set[_Received]()
        parts = urlsplit(address.url)
        options: dict[str, Any] = {"maxsize": parallel}
        proxy = None if address.local or proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        if proxy or parts.scheme == "https":
            options["ssl_context"] = ssl.create_default_context()  # takes 30 ms
        if proxy:
            login = parse_url(proxy).auth
            options["proxy_headers"] = make_headers(proxy_basic_auth=login) if login else None
        self.manager = ProxyManager(proxy, **options) if proxy else PoolManager(**options)
        pool = self.manager.connection_from_url(address.url)  # the only pool, because all requests go to this server
        plain: Callable[..., Any] = pool.ConnectionCls

        def connection(**given: Any) -> Any:
            made = plain(**given)
            made.response_class = functools.partial(_Reply, self)
            return made

        pool.ConnectionCls = connection  # type: ignore[assignment]

    def end(self) -> None:
        self.ended = True
        for one in list(self.reading):
            one.end()


def _body_of(response: BaseHTTPResponse) -> bytes:
    """Return the decompressed body. Raise DecodeError if it is compressed twice: its size could then be unlimited."""
    if "," in response.headers.get("Content-Encoding", ""):
        raise exceptions.DecodeError("the reply is compressed more than once")
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > LARGEST_REPLY:
            response.close()
            raise TooLarge
    response.release_conn()
    return b"".join(parts)


class _Reply(http.client.HTTPResponse):
    def __init__(self, connections: Connections, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Received(connections, sock, self.fp.detach()))  # type: ignore[attr-defined]


class _Received(io.RawIOBase):
    """Reads the bytes of one reply. Raises TimeoutError after the deadline, and TooLarge after too many bytes."""

    def __init__(self, connections: Connections, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._connections, self._sock, self._raw = connections, sock, raw
        self._deadline, self._size = time.monotonic() + (sock.gettimeout() or 0.0), 0
        connections.reading.add(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._connections.ended:
            raise ConnectionAbortedError("the client has ended")
        if (left := self._deadline - time.monotonic()) <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        count: int | None = self._raw.readinto(buffer)  # type: ignore[attr-defined]
        self._size += count or 0
        if self._size > LARGEST_REPLY:
            raise TooLarge
        return count

    def end(self) -> None:
        with suppress(OSError, ValueError), socket.socket(fileno=os.dup(self._sock.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for bytes

    def close(self) -> None:
        self._connections.reading.discard(self)
        self._raw.close()
        super().close()


@dataclass(frozen=True)
class Limits:
    """timeout: seconds for an attempt, from connecting to the last byte of the reply, redirects included.
    retries: number of further attempts after a temporary failure.
    parallel: maximum number of simultaneous requests.
    key: config group of these values, for messages.
    """

    timeout: float
    retries: int
    parallel: int
    key: str = "runtime"

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.retries < 0 or self.parallel < 1:
            raise BadInput(
                f"timeout={self.timeout:g}, retries={self.retries}, parallel={self.parallel}: timeout must be greater "
                "than 0, retries at least 0, and parallel at least 1."
            )


@dataclass(frozen=True)
class HttpRequest:
    """body: a value to send as JSON; None: no body."""

    url: str
    body: Any = None
    method: str = "POST"


MakeRequest = Callable[[int], HttpRequest]  # (index of the request, from 0) -> request


class FailedAttempt(Exception):
    """final: whether no further attempt can succeed. wait: seconds that the service asks clients to wait."""

    def __init__(self, reason: str, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(redacted(reason))
        self.final, self.wait = final, wait


class Unanswered(Exception):
    """No attempt at a request succeeded. place: index of the request, from 0."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place


@dataclass(frozen=True)
class HttpReply:
    text: str
    status: int = 200

    def json(self) -> Any:
        """Return the parsed body. If the body is not JSON, raise FailedAttempt, which allows another attempt."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            raise FailedAttempt(f"the reply is not JSON: {self.quoted()}") from None

    def quoted(self) -> str:
        """Return the start of the service's error message or of the body, without secrets. It ends with a full stop."""
        message = ""
        with suppress(ValueError, RecursionError):
            message = _error_message(json.loads(self.text))
        return _shortened(message or self.text).rstrip(".") + "."


@dataclass(frozen=True)
class Answer(Generic[_T]):
    """place: index of the request. seconds: time from sending the last attempt to receiving the whole reply."""

    place: int
    value: _T
    seconds: float


class _Pace:
    """What the threads of a client share: whether to stop, and until when to pause."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.answered = 0  # number of answered requests
        self._until = 0.0  # end of the pause, in seconds of the monotonic clock
        self._changing = threading.Lock()

    def wait(self, seconds: float = 0.0) -> None:
        end = time.monotonic() + seconds
        while not self.stopped.is_set() and (left := max(end, self._until) - time.monotonic()) > 0:
            self.stopped.wait(left)

    def pause(self, seconds: float) -> None:
        with self._changing:
            self._until = max(self._until, time.monotonic() + seconds)

    def count(self) -> None:
        with self._changing:
            self.answered += 1


@dataclass(frozen=True)
class HttpClient:
    """Sends requests to the server of `address`. Connections stay open for later calls, and several threads may call.

    secrets: headers to send with each request. The caller makes sure that the address uses https or is on this machine.
    read_too: statuses besides 200 whose replies are read.
    """

    address: Address
    limits: Limits
    secrets: Secrets = field(default_factory=Secrets)
    read_too: frozenset[int] = frozenset()
    _idle: list[Connections] = field(default_factory=list, init=False, repr=False, compare=False)

    def answers(self, count: int, request: MakeRequest, read: Callable[[int, HttpReply], _T]) -> Iterator[Answer[_T]]:
        """Yield the answers to `count` requests as they arrive.

        If all attempts at a request fail, no further request starts. Answers to the requests under way are still
        yielded, and then Unanswered is raised. If the caller is interrupted or stops iterating, requests under way may
        take another `GRACE_SECONDS`.

        read: (index of the request, reply) -> answer; may raise FailedAttempt.
        """
        name_host(self.address.url, self.address.key)
        pace, connections, failed = _Pace(), self._connections(), None
        places, ended = iter(range(count)), SimpleQueue[Answer[_T] | BaseException | None]()

        def work() -> None:
            for place in places:  # shared by all threads
                try:
                    if answer := self._answer(place, request, read, connections.manager, pace):
                        ended.put(answer)
                except FailedAttempt as error:
                    ended.put(Unanswered(place, str(error)))
                except BaseException as error:
                    ended.put(error)
                if pace.stopped.is_set():
                    break
            ended.put(None)

        # The threads are daemons, because a thread that waits for a host name or a connection cannot be ended.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.limits.parallel, count))]
        over = False
        try:
            for thread in threads:
                thread.start()
            working = len(threads)
            while working:
                if (one := ended.get()) is None:
                    working -= 1
                elif isinstance(one, Answer):
                    yield one
                else:
                    failed = failed or one
            over = not failed
        finally:
            pace.stopped.set()  # no further request goes out
            if over:
                self._idle.append(connections)
            else:
                _close(connections, threads)
        if failed:
            raise failed

    def _connections(self) -> Connections:
        """Return connections that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return Connections(self.address, self.limits.parallel)

    def _answer(
        self, place: int, request: MakeRequest, read: Callable[[int, HttpReply], _T], pool: PoolManager, pace: _Pace
    ) -> Answer[_T] | None:
        attempt, answered = 0, pace.answered
        pace.wait()
        while not pace.stopped.is_set():
            try:
                began = time.perf_counter()
                reply = self._attempt(request(place), pool)
                seconds = time.perf_counter() - began
                answer = Answer(place, read(place, reply), seconds)
                pace.count()
                return answer
            except FailedAttempt as failed:
                if failed.wait and pace.answered > answered:  # other requests were answered, so count attempts anew
                    attempt, answered = 0, pace.answered
                wait = max(min(BACKOFF_SECONDS * 2**attempt, LONGEST_BACKOFF), failed.wait)
                if failed.final or attempt == self.limits.retries or wait > LONGEST_WAIT:
                    pace.stopped.set()
                    raise
                if wait >= LOGGED_SECONDS:
                    log.warning("%s: %s Retrying in %.0f s.", self.address.url, failed, wait)
                attempt += 1
                if failed.wait:
                    pace.pause(failed.wait)
                pace.wait(wait)
            except BaseException:
                pace.stopped.set()
                raise
        return None

    def _attempt(self, request: HttpRequest, pool: PoolManager) -> HttpReply:
        headers = {"Accept": "application/json", "User-Agent": "retrieval-harness"}  # some hosts require a user agent
        try:
            response = self._redirected(request, headers | self.secrets.headers(), pool)
            reply = HttpReply(_body_of(response).decode("utf-8", "replace"), response.status)
        except TooLarge:
            large = f"the reply is larger than {LARGEST_REPLY >> 20} MB: ask for less."
            raise FailedAttempt(large, final=True) from None
        except (exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from None
        if response.status in (200, *self.read_too):
            return reply
        status, wait = response.status, _retry_after(response.headers)
        reason = f"HTTP {status}: {reply.quoted()}"
        if status in (401, 403):
            names = ", ".join(self.secrets.variables.values())
            reason += (
                f" Check the key in the environment variable {names}."
                if names
                else f" If a key is needed, name its header and environment variable in {self.limits.key}.headers_env."
            )
        if wait:
            reason += f" The endpoint asks to wait {wait:.0f} s."
        raise FailedAttempt(reason, final=status not in (408, 409, 425, 429) and status < 500, wait=wait)

    def _redirected(self, request: HttpRequest, headers: Mapping[str, str], pool: PoolManager) -> BaseHTTPResponse:
        """Return the response after redirects on the same server. Only this server may see the secrets."""
        url, server, end = request.url, urlsplit(self.address.url), time.monotonic() + self.limits.timeout
        body = None if request.body is None else json.dumps(request.body).encode()
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        for _ in range(REDIRECTS + 1):
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError
            response = pool.request(
                request.method, url, body=body, headers=headers, timeout=Deadline(total=left), redirect=False,
                retries=False, preload_content=False,
            )  # fmt: skip
            if not (location := response.get_redirect_location()):
                return response
            response.close()
            refused = f"HTTP {response.status}: it redirects to"
            try:
                url = urljoin(url, location)
                parts = urlsplit(url)
            except ValueError:
                broken = f"{refused} {shown_value(location)}, which is not an address. Check {self.address.key}."
                raise FailedAttempt(broken, final=True) from None
            if parts[:2] != server[:2] or (response.status < 307 and body is not None):
                raise FailedAttempt(
                    f"{refused} {parts.scheme}://{parts.netloc.rpartition('@')[2]}, which is not followed. If the "
                    f"service has moved, set {self.address.key} to its new address.",
                    final=True,
                )
        raise FailedAttempt(f"it redirects more than {REDIRECTS} times in a row. Check {self.address.key}.", final=True)

    def _unreachable(self, error: Exception) -> FailedAttempt:
        cause: BaseException = error
        if isinstance(error, exceptions.ProxyError):
            cause = error.original_error
        if isinstance(error, exceptions.ProtocolError) and isinstance(error.args[-1], TimeoutError):
            cause = error.args[-1]  # the service took too long to receive the request
        if isinstance(cause, exceptions.NewConnectionError):
            cause = cause.__cause__ or cause
        if isinstance(cause, exceptions.SSLError) and isinstance(cause.args[0], BaseException):
            cause = cause.args[0]
        match cause:
            case exceptions.TimeoutError() | TimeoutError():
                return FailedAttempt(f"no response within {self.limits.timeout:g} s ({self.limits.key}.timeout).")
            case ssl.SSLCertVerificationError():
                return FailedAttempt(
                    f"its certificate cannot be verified: {cause.verify_message}. If your own authority issued it, "
                    "name the file of that authority's certificate in the environment variable SSL_CERT_FILE.",
                    final=True,
                )
            case ConnectionRefusedError():
                reason = f"connection refused. Is the server running, and is {self.address.key} right?"
                return FailedAttempt(reason, final=True)
        return FailedAttempt(f"{type(cause).__name__}: {_shortened(str(cause))}.")


def _close(connections: Connections, threads: Sequence[threading.Thread]) -> None:
    with connections.manager:
        try:
            _join(threads)
        finally:
            connections.end()
        _join(threads)


def _join(threads: Sequence[threading.Thread]) -> None:
    end = time.monotonic() + GRACE_SECONDS
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, end - time.monotonic()))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the wait in seconds that Retry-After (RFC 9110, 10.2.3) gives as a number or a date; else 0."""
    value = headers.get("Retry-After", "")
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0


def _error_message(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return next(filter(None, map(_error_message, content)), "")
    if not isinstance(content, dict):
        return ""
    keys = ("message", "reason", "msg", "detail", "error", "errors", "status")
    return next(filter(None, (_error_message(content[key]) for key in keys if key in content)), "")


def _shortened(text: str) -> str:
    words = redacted(" ".join(text[:READ].split()))
    return words if len(words) <= QUOTED else f"{words[:QUOTED]}…"
