"""A server on 127.0.0.1 that answers bytes with bytes, and so may break every rule of HTTP.

with RawServer(lambda wire: wire.send(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")) as server:
    ask(server.url)
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Wire:
    """A connection. head: of the request. over: whether the server is to end."""

    connection: socket.socket
    head: bytes
    over: threading.Event

    def send(self, content: bytes) -> None:
        self.connection.sendall(content)

    def header(self, name: str) -> bytes:
        """The value of a header of the request."""
        lines = (line.partition(b": ") for line in self.head.split(b"\r\n"))
        return next(value for key, _, value in lines if key.decode().lower() == name.lower())

    def trickle(self, first: bytes, again: bytes, pause: float = 0.0) -> None:
        """Send the first, and then the other again and again, until the client has gone."""
        self.send(first)
        while not self.over.wait(pause):
            self.send(again)
            if not again and self.connection.recv(1, socket.MSG_PEEK) == b"":
                return


class RawServer:
    """reads: whether it receives the head of a request before it answers. ended: whether a connection has ended."""

    def __init__(self, answer: Callable[[Wire], object], reads: bool = True) -> None:
        self._answer, self._reads = answer, reads
        self.ended, self._over = threading.Event(), threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/search"

    def __enter__(self) -> RawServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                head = b""
                while self._reads and b"\r\n\r\n" not in head:
                    head += connection.recv(1 << 16)
                self._answer(Wire(connection, head, self._over))
            except OSError:
                pass  # the client has gone
            finally:
                self.ended.set()
