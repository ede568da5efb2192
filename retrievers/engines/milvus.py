"""The connection to Milvus (Wang et al. 2021, Milvus: A Purpose-Built Vector Data Management System), and its errors.

Address and token come from the environment alone: HARNESS_MILVUS_URI is `http://host:port`, `https://host:port`, or a
path that ends in `.db`, which opens milvus-lite in this process; HARNESS_MILVUS_TOKEN is `user:password` or a key. No
message holds the token.

Collections of the harness are named `rh_` and 40 hexadecimal digits, those that are still being filled
`rh_…_unfinished_…`: no other collection is read or changed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from retrievers.base import BadInput, Failed
from retrievers.hosts import name_host
from retrievers.redaction import redacted, register

URI, TOKEN = "HARNESS_MILVUS_URI", "HARNESS_MILVUS_TOKEN"
register(TOKEN)
INSTALL = "pip install -c constraints.txt -e '.[milvus]'"
CONNECT = 5.0  # seconds in which a server must answer at first
PATIENCE = 120.0  # seconds that any other call may take
OLDEST = (2, 3)  # version of the server: earlier ones do not count or rename as is needed here
MARGIN = 1 << 20  # bytes of a message that are not its rows
MESSAGE = (16 << 20) - MARGIN  # bytes of the rows in a message: servers accept 64 MB at most, some proxies less
CANDIDATES = 16384  # hits that a server returns to a query at most

_FINISHED = re.compile(r"rh_[0-9a-f]{40}")
_UNFINISHED = re.compile(r"(rh_[0-9a-f]{40})_unfinished_[0-9a-f]{32}")


def unfinished(name: str) -> str:
    """A new name for the collection `name` while it is being filled."""
    return f"{name}_unfinished_{uuid.uuid4().hex}"


def is_finished(name: str) -> bool:
    """Whether a collection is one of the harness, and was filled completely."""
    return bool(_FINISHED.fullmatch(name))


def is_unfinished(name: str) -> bool:
    """Whether a collection of the harness is being filled, or was left half-filled."""
    return bool(_UNFINISHED.fullmatch(name))


@dataclass(frozen=True)
class Address:
    """Where Milvus is. place: for messages; it holds no password. path: of milvus-lite, None of a server."""

    uri: str
    place: str
    path: Path | None
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls) -> Address:
        """BadInput where HARNESS_MILVUS_URI is missing or is no address."""
        uri, token = os.environ.get(URI, "").strip(), os.environ.get(TOKEN, "").strip()
        if not uri:
            raise BadInput(
                f"the environment variable {URI} is not set: give the address of a Milvus server, such as "
                "http://localhost:19530, or a path that ends in .db for milvus-lite, which needs no server. A token "
                f"goes into {TOKEN}."
            )
        if "://" not in uri:
            return cls(uri, uri, _lite_path(uri))
        parts = _split(uri)
        if not token.isascii() or not token.isprintable():
            raise BadInput(f"{TOKEN} holds characters other than printable ASCII: give user:password, or a key.")
        return cls(f"{parts.scheme}://{parts.netloc}", f"{parts.scheme}://{parts.netloc}", None, token)


def _lite_path(uri: str) -> Path:
    path = Path(uri).expanduser()
    if path.suffix != ".db":
        raise BadInput(
            f"{URI} is {uri!r}: give http://host:port or https://host:port, or a path that ends in .db for milvus-lite."
        )
    return path.absolute()


def _split(uri: str) -> SplitResult:
    """The parts of a server's address. BadInput, which never shows what may be a password, if it is none."""
    shape = "http://host:port or https://host:port"
    try:
        parts = urlsplit(uri)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise BadInput(f"{URI} is no address: give {shape}.") from None
    if "@" in uri:
        raise BadInput(f"{URI} holds a user or a password: give {shape}, and user:password in {TOKEN}.")
    if parts.scheme not in ("http", "https") or not host or port is None:
        raise BadInput(f"{URI} is {uri!r}: give {shape}, such as http://localhost:19530.")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise BadInput(f"{URI} is {uri!r}: nothing may follow the port. Give {shape}.")
    return parts


@dataclass(frozen=True, eq=False)
class Milvus:
    """A connection of this process. client: a pymilvus.MilvusClient; call it within `doing`. version: the server's."""

    client: Any
    address: Address
    version: str

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Turns errors of the client into Failed, or BadInput where a right is missing. what: such as "searching"."""
        _, exceptions = _imported()
        try:
            yield
        except _rpc_errors(exceptions) as error:
            reason = _reason(error)
            if "PERMISSION_DENIED" in reason or "permission deny" in reason:
                raise BadInput(
                    f"Milvus at {self.address.place} does not allow {what}: {reason}. Ask for the right, or give "
                    f"another user in {TOKEN}."
                ) from None
            raise Failed(
                f"Milvus at {self.address.place} failed while {what}: {reason}. Nothing half-done is used: when the "
                "server is well again, run the same command."
            ) from None

    def require(self, version: tuple[int, int], what: str) -> None:
        """BadInput where the server is older than `version`. what: that it lacks, such as "sparse vectors"."""
        found = re.match(r"v?(\d+)\.(\d+)", self.version)
        if self.address.path is None and found and (int(found[1]), int(found[2])) < version:
            raise BadInput(
                f"Milvus at {self.address.place} is of version {self.version}, too old for {what}: "
                f"{'.'.join(map(str, version))} or newer is needed."
            )

    def collections(self) -> list[str]:
        """Names of the collections of the harness, finished and unfinished, in order."""
        with self.doing("listing its collections"):
            names: Sequence[str] = self.client.list_collections(timeout=PATIENCE)
        return sorted(name for name in names if is_finished(name) or is_unfinished(name))

    def count(self, name: str) -> int:
        """Rows of a loaded collection, with all that was written before."""
        with self.doing("counting rows"):
            found = self.client.query(
                name, filter="", output_fields=["count(*)"], consistency_level="Strong", timeout=PATIENCE
            )
        return int(found[0]["count(*)"])

    def drop(self, name: str) -> None:
        """Remove a collection of the harness; ValueError for the name of another."""
        if not is_finished(name) and not is_unfinished(name):
            raise ValueError(f"{name} is no collection of the harness")
        with self.doing("dropping a collection"):
            self.client.drop_collection(name, timeout=PATIENCE)


def connect() -> Milvus:
    """The connection of this process to the Milvus that the environment names, opened at the first call.

    BadInput where the environment, the package, the token or the server's version will not do; Failed where nothing
    answers.
    """
    return _opened(os.getpid(), Address.from_environment())  # a connection does not survive a fork


@functools.lru_cache(maxsize=4)
def _opened(_process: int, address: Address) -> Milvus:
    client_class, exceptions = _imported()
    name_host(address.uri, URI)
    uri, heard = address.uri, _Heard()
    if address.path:
        _check_lite(address.path)
        uri = str(address.path)
    with heard.listening():
        try:
            client = client_class(uri, token=address.token, timeout=CONNECT, dedicated=True)
            version = str(client.get_server_version(timeout=CONNECT))
        except _rpc_errors(exceptions) as error:
            raise (_lite_problem(address, heard) if address.path else _problem(address, error)) from None
    found = Milvus(client, address, version)
    found.require(OLDEST, "the harness")
    return found


def _imported() -> tuple[Any, Any]:
    """(the class MilvusClient, the module pymilvus.exceptions). BadInput where the package is not installed."""
    if "pymilvus" not in sys.modules:
        if find_spec("pymilvus") is None:
            raise BadInput(f"Milvus needs the package pymilvus, which is not installed: {INSTALL}")
        with _own_environment():
            import pymilvus  # noqa: F401
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what it would print is in our messages
    from pymilvus import MilvusClient, exceptions

    return MilvusClient, exceptions


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Without pymilvus's own variables: it reads them and a file `.env` when it is imported, and a path in MILVUS_URI
    breaks the import."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("MILVUS_"):
            del os.environ[name]
    # An empty MILVUS_URI keeps `.env` from setting it, where that file cannot be switched off; gRPC reports every fork.
    os.environ.update({"PYTHON_DOTENV_DISABLED": "1", "MILVUS_URI": "", "GRPC_VERBOSITY": "ERROR"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _rpc_errors(exceptions: Any) -> tuple[type[Exception], ...]:
    import grpc

    return exceptions.MilvusException, grpc.RpcError, grpc.FutureTimeoutError


def _reason(error: Exception) -> str:
    """What an error says, on one line and without the token."""
    details = getattr(error, "details", None)
    text = str(details() if callable(details) else getattr(error, "message", "") or error)
    code = getattr(error, "code", None)
    name = getattr(code() if callable(code) else code, "name", "")
    return redacted(" ".join(f"{name} {text}".split()))[:400].rstrip(" .")


def _problem(address: Address, error: Exception) -> Exception:
    """Why there is no connection to a server."""
    reasons = " ".join(_reason(one) for one in _causes(error))
    if "UNAUTHENTICATED" in reasons:
        wrong = "is wrong" if address.token else "is not set"
        return BadInput(f"Milvus at {address.place} wants a user: {TOKEN} {wrong}. Give user:password, or a key.")
    parts = urlsplit(address.uri)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CONNECT):
            pass
    except OSError as problem:
        return Failed(
            f"no Milvus server answers at {address.place}: {problem.strerror or problem}. Start it, or set {URI} to "
            "the right address."
        )
    other = "http" if parts.scheme == "https" else "https"
    return Failed(
        f"something answers at {address.place}, but not as Milvus does. Set {URI} to the port of Milvus's gRPC "
        f"(19530 if nobody changed it); or the server expects {other}."
    )


def _causes(error: BaseException) -> list[Any]:
    """The error and what caused it; chains of the client may be circles."""
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__
    return chain


class _Heard(logging.Handler):
    """Keeps the exceptions that milvus-lite logs instead of raising them."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While it is open, what milvus-lite logs comes here alone."""
        log = logging.getLogger("milvus_lite")
        before, log.propagate = log.propagate, False
        log.addHandler(self)
        try:
            yield
        finally:
            log.removeHandler(self)
            log.propagate = before


def _check_lite(path: Path) -> None:
    """BadInput where milvus-lite is not installed, or cannot have its folder at `path`."""
    if find_spec("milvus_lite") is None:
        raise BadInput(f"{URI} is a path, which needs the package milvus-lite: {INSTALL}")
    if not path.parent.is_dir():
        raise BadInput(f"{URI}: there is no folder {path.parent}. Create it, or give another path.")
    if path.exists() and not path.is_dir():
        raise BadInput(f"{URI}: {path} is a file, and no database of milvus-lite 3. Give another path.")
    if not os.access(path if path.exists() else path.parent, os.W_OK | os.X_OK):
        raise BadInput(f"{URI}: no right to write to {path if path.exists() else path.parent}. Give another path.")


def _lite_problem(address: Address, heard: _Heard) -> Exception:
    """Why milvus-lite could not open its folder."""
    error = heard.errors[-1] if heard.errors else None
    if type(error).__name__ == "DataDirLockedError":
        return Failed(
            f"another process has {address.place} open, and milvus-lite serves only one. Wait for it to end, or start "
            f"a Milvus server and give its address in {URI}."
        )
    return Failed(f"milvus-lite could not open {address.place}: {error or 'it says no reason'}.")
