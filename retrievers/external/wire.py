"""What a client receives: every reply within its time and its size, and none any more once the client ends."""

from __future__ import annotations

import functools
import http.client
import io
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import (
    BaseHTTPResponse,
    HTTPConnectionPool,
    HTTPSConnectionPool,
    PoolManager,
    ProxyManager,
    make_headers,
)
from urllib3.exceptions import DecodeError
from urllib3.util import parse_url

LARGEST_REPLY = 64 * 1024**2  # bytes, as they are sent and unpacked


class TooLarge(Exception):
    """A reply has more bytes than a client reads."""


class Line:
    """The connections of one client.

    A reply has one deadline, and its bytes are counted from the first, whatever they are: status lines, interim
    replies, headers, chunks, trailers. The deadline is what the socket's timeout leaves when the reply begins.
    """

    def __init__(self) -> None:
        self.ended = False
        self._reading: set[_Received] = set()

    def manager(self, url: str, local: bool, parallel: int) -> PoolManager:
        """Connections that are kept open, through the proxy that the environment names for other machines."""
        parts = urlsplit(url)
        options: dict[str, Any] = {"maxsize": parallel, "ssl_context": ssl.create_default_context()}
        proxy = None if local or proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        if proxy:
            login = parse_url(proxy).auth
            options["proxy_headers"] = make_headers(proxy_basic_auth=login) if login else None
        manager = ProxyManager(proxy, **options) if proxy else PoolManager(**options)
        manager.pool_classes_by_scheme = {
            "http": functools.partial(self._pool, HTTPConnectionPool),  # type: ignore[dict-item]
            "https": functools.partial(self._pool, HTTPSConnectionPool),  # type: ignore[dict-item]
        }
        return manager

    def end(self) -> None:
        """End all replies under way, from any thread, by an error in the threads that read them."""
        self.ended = True
        for one in list(self._reading):
            one.end()

    def _pool(self, kind: Callable[..., HTTPConnectionPool], *place: Any, **options: Any) -> HTTPConnectionPool:
        pool = kind(*place, **options)
        plain: Callable[..., Any] = pool.ConnectionCls

        def connection(**given: Any) -> Any:
            made = plain(**given)
            made.response_class = functools.partial(_Reply, self)
            return made

        pool.ConnectionCls = connection  # type: ignore[assignment]
        return pool

    def begin(self, received: _Received) -> None:
        self._reading.add(received)

    def over(self, received: _Received) -> None:
        self._reading.discard(received)


def body_of(response: BaseHTTPResponse) -> bytes:
    """Return the whole body, unpacked. DecodeError where it is packed twice: what that unpacks to on its way has no
    limit."""
    if "," in response.headers.get("Content-Encoding", ""):
        raise DecodeError("the reply is packed more than once")
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
    def __init__(self, line: Line, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Received(line, sock, self.fp.detach()))  # type: ignore[attr-defined]


class _Received(io.RawIOBase):
    """The bytes of one reply as they arrive. TimeoutError past its deadline, TooLarge past its size."""

    def __init__(self, line: Line, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._line, self._sock, self._raw = line, sock, raw
        self._deadline, self._size = time.monotonic() + (sock.gettimeout() or 0.0), 0
        line.begin(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._line.ended:
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
        """Wake the thread that waits for bytes: shut the connection down, through a descriptor that only we close."""
        with suppress(OSError, ValueError), socket.socket(fileno=os.dup(self._sock.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._line.over(self)
        self._raw.close()
        super().close()
