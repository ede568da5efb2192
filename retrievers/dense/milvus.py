"""Vectors in Milvus (Wang et al. 2021, Milvus: A Purpose-Built Vector Data Management System).

The server proposes documents, and the harness scores them from the cached vectors. A collection is named by a
checksum of its vectors, so a second run finds it. Until it is complete, it has a temporary name, and is never searched.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import sys
import time
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from harness.errors import BadInput, Failed
from retrievers.base import AtMost
from retrievers.dense.vectors import Approximate, Candidates, Propose, checked_count
from retrievers.hosts import name_host
from retrievers.redaction import redacted, register

URI, TOKEN = "HARNESS_MILVUS_URI", "HARNESS_MILVUS_TOKEN"
register(TOKEN)
ADDRESSES = f"give {URI} as http://host:port or https://host:port, or as a path that ends in .db for milvus-lite"
INSTALL = "pip install -c constraints.txt -e '.[milvus]'"
CONNECT, PATIENCE, WORKING = 5.0, 120.0, 1800.0  # seconds: to connect; for a short call; to index, load or search
SETTLING = 50  # maximum number of recounts, one every 0.2 s, while a collection seems to lack rows
MESSAGE = 15 << 20  # maximum number of bytes of rows in a message; servers accept 64 MB, and some proxies 16 MB
MOST_CANDIDATES = 16_384  # maximum number of documents that Milvus returns per query
HASHED = 1 << 16  # number of rows hashed at a time

log = logging.getLogger(__name__)


class MilvusIndex(Approximate):
    """An index on a Milvus server or in milvus-lite. It compares vectors by inner product.

    The environment variables HARNESS_MILVUS_URI and HARNESS_MILVUS_TOKEN hold the address and a token. Searches measure
    `index_recall` on at most 256 queries. Another version of the server may propose other documents for an approximate
    index, but the ranking's identity does not include the server's version.

    index_type: any of the server's types for float vectors, such as FLAT (exact), HNSW or IVF_FLAT.
    build: Milvus' parameters for building the index, such as {M: 32, efConstruction: 200}.
    search: Milvus' parameters for a search, such as {ef: 400}.
    candidates: number of documents that the server proposes per query, from k to 16,384.
    """

    recorded_as = "index/milvus"
    version = 2
    _most_measured = 256

    def __init__(
        self,
        index_type: str = "FLAT",
        build: Mapping[str, Any] | None = None,
        search: Mapping[str, Any] | None = None,
        candidates: Annotated[int, AtMost(MOST_CANDIDATES, "Milvus returns no more")] = 200,
    ) -> None:
        super().__init__()
        self._index_type, self._build, self._search = index_type, dict(build or {}), dict(search or {})
        self._candidates = checked_count("candidates", candidates, most=MOST_CANDIDATES)
        self._limit = "candidates", self._candidates

    def check_size(self, count: int, k: int) -> None:
        super().check_size(count, k)
        connect_milvus()

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        self._filled(vectors)

    def _open(self, folder: Path, vectors: np.ndarray) -> Propose:
        milvus, name = self._filled(vectors)

        def propose(queries: np.ndarray) -> Candidates:
            hits = milvus.call(
                "search",
                name,
                data=list(queries),
                limit=min(self._candidates, len(vectors)),
                search_params={"metric_type": "IP", "params": self._search},
                output_fields=["id"],  # without it, milvus-lite returns the vectors, too
                consistency_level="Strong",
                timeout=WORKING,
            )
            found = [np.unique(np.array(row.ids, np.int64)) for row in hits]
            if any(len(ids) and not 0 <= ids[0] <= ids[-1] < len(vectors) for ids in found):
                raise Failed(f"Milvus at {milvus.address} returned ids that {name} lacks: drop this collection.")
            return Candidates(np.concatenate(found).astype(np.int32), np.cumsum([0, *map(len, found)]))

        return propose

    def _filled(self, vectors: np.ndarray) -> tuple[Milvus, str]:
        milvus, how = connect_milvus(), [self.version, self._index_type, self._build, *vectors.shape]
        digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
        for first in range(0, len(vectors), HASHED):
            digest.update(np.ascontiguousarray(vectors[first : first + HASHED]).data)
        name = f"rh_{digest.hexdigest()[:40]}"
        if not len(vectors) or _is_complete(milvus, name, len(vectors)):
            return milvus, name
        unfinished = f"{name}_unfinished_{uuid.uuid4().hex}"
        try:
            self._send(milvus, unfinished, vectors)
            if not _is_complete(milvus, unfinished, len(vectors)):
                raise Failed(f"Milvus at {milvus.address} received all documents, but reports another number of rows.")
            milvus.call("rename_collection", unfinished, name)
        except BaseException as error:
            with contextlib.suppress(Failed):  # only the first error is reported
                milvus.call("drop_collection", unfinished)
            if not isinstance(error, Failed) or not _is_complete(milvus, name, len(vectors)):
                raise  # otherwise, another process has just filled the same collection
        milvus.call("load_collection", name, timeout=WORKING)  # milvus-lite unloads renamed collections
        return milvus, name

    def _send(self, milvus: Milvus, name: str, vectors: np.ndarray) -> None:
        from pymilvus import DataType

        schema = milvus.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        milvus.call("create_collection", name, schema=schema)
        batch = max(1, MESSAGE // (vectors[0].nbytes + 16))
        for first in range(0, len(vectors), batch):
            rows = [{"id": first + i, "vector": one} for i, one in enumerate(vectors[first : first + batch])]
            milvus.call("upsert", name, rows)  # unlike an insert, an upsert can be repeated if its answer is lost
            if self.progress:
                self.progress(first + len(rows), len(vectors), "documents sent to Milvus")
        milvus.call("flush", name, timeout=WORKING)
        index = milvus.client.prepare_index_params()
        index.add_index("vector", index_type=self._index_type, metric_type="IP", params=self._build)
        milvus.call("create_index", name, index, timeout=WORKING)


def _is_complete(milvus: Milvus, name: str, rows: int) -> bool:
    """Load a collection. Return whether it exists with `rows` rows. Drop it if it has another number of rows."""
    if not milvus.call("has_collection", name):
        return False
    milvus.call("load_collection", name, timeout=WORKING)
    count = -1
    for pause in (0.0, *[0.2] * SETTLING):
        time.sleep(pause)
        [found] = milvus.call("query", name, filter="", output_fields=["count(*)"], consistency_level="Strong")
        if (count := int(found["count(*)"])) >= rows:
            break
    if count != rows:
        log.warning("the collection %s of Milvus has %s rows instead of %s: dropping it", name, count, rows)
        milvus.call("drop_collection", name)
    return count == rows


@dataclass(frozen=True, eq=False)
class Milvus:
    """A connection. client: a pymilvus.MilvusClient. address: the server's address, without a password."""

    client: Any = field(repr=False)
    address: str

    def call(self, method: str, *arguments: Any, timeout: float = PATIENCE, **named: Any) -> Any:
        """Call a method of the client. Raise Failed if the server refuses, fails, or takes longer than `timeout`."""
        try:
            return getattr(self.client, method)(*arguments, timeout=timeout, **named)
        except _rpc_errors() as error:
            raise Failed(
                f"Milvus at {self.address} failed in {method}: {_reason(error)}. Unfinished collections are never "
                "used: run the same command again when the server works."
            ) from None


def connect_milvus() -> Milvus:
    """Return this process's connection to Milvus. Raise BadInput or Failed if there is no usable address or server."""
    uri, token = os.environ.get(URI, "").strip(), os.environ.get(TOKEN, "").strip()
    if not uri:
        raise BadInput(f"the environment variable {URI} is not set: {ADDRESSES}. A token goes into {TOKEN}.")
    if not token.isascii() or not token.isprintable():
        raise BadInput(f"{TOKEN} holds characters other than printable ASCII: give user:password, or a key.")
    return _opened(os.getpid(), _checked(uri), token)  # a connection does not survive a fork


def _checked(uri: str) -> str:
    """Return the address; for milvus-lite, an absolute path. If it is invalid, raise BadInput, hiding any password."""
    if "@" in uri and "://" in uri:
        raise BadInput(f"{URI} holds a user or a password: {ADDRESSES}, and user:password in {TOKEN}.")
    if re.fullmatch(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}/?", uri):
        return uri.removesuffix("/")
    path = Path(uri).expanduser().absolute()
    if "://" in uri or path.suffix != ".db":
        raise BadInput(f"{URI} is {uri!r}: {ADDRESSES}.")
    if path.exists() and not path.is_dir():
        raise BadInput(f"{URI}: {path} is not a folder of milvus-lite 3. Give another path.")
    if not path.parent.is_dir():
        raise BadInput(f"{URI}: {path} cannot be made, because its parent folder is missing. Give another path.")
    return str(path)


@functools.lru_cache(maxsize=4)
def _opened(_process: int, uri: str, token: str) -> Milvus:
    lite = "://" not in uri
    for package in ("pymilvus", "milvus_lite") if lite else ("pymilvus",):
        if package not in sys.modules and find_spec(package) is None:
            raise BadInput(f"{URI} needs the package {package}, which is not installed: {INSTALL}")
    client_class = _client_class()
    name_host(uri, URI)
    try:
        client = client_class(uri, token=token, timeout=CONNECT, dedicated=True)
        client.get_server_version(timeout=CONNECT)
    except _rpc_errors() as error:
        if lite:
            raise Failed(
                f"milvus-lite could not open {uri}: {_reason(error)}. It serves one process at a time: wait for the "
                f"other one to end, or give the address of a Milvus server in {URI}."
            ) from None
        if "UNAUTHENTICATED" in "".join(traceback.format_exception(error)):
            raise Failed(f"Milvus at {uri} refuses the token: give user:password, or a key, in {TOKEN}.") from None
        raise Failed(
            f"no Milvus server answers at {uri}: {_reason(error)}. Start it, or correct {URI}: give the server's "
            "gRPC port (19530 unless it was changed), and https if the server expects it."
        ) from None
    return Milvus(client, uri)


def _client_class() -> Any:
    """Import pymilvus, but hide MILVUS_* variables and `.env` from it: a path in MILVUS_URI would break the import."""
    before = dict(os.environ)
    for name in filter(lambda name: name.startswith("MILVUS_"), before):
        del os.environ[name]
    # Some versions of pymilvus always read `.env`, but keep variables that exist. So MILVUS_URI is set, but empty.
    # With its usual verbosity, gRPC would print a line at every fork.
    os.environ.update({"PYTHON_DOTENV_DISABLED": "1", "MILVUS_URI": "", "GRPC_VERBOSITY": "ERROR"})
    try:
        from pymilvus import MilvusClient
    finally:
        os.environ.clear()
        os.environ.update(before)
    for noisy in ("pymilvus", "milvus_lite", "grpc._server"):  # the harness reports their errors itself
        logging.getLogger(noisy).setLevel(logging.CRITICAL + 1)
    return MilvusClient


def _rpc_errors() -> tuple[type[Exception], ...]:
    import grpc
    from pymilvus.exceptions import MilvusException

    return MilvusException, grpc.RpcError, grpc.FutureTimeoutError


def _reason(error: Exception) -> str:
    details = getattr(error, "details", None)
    text = details() if callable(details) else getattr(error, "message", "") or error
    return redacted(" ".join(str(text).split()))[:400].rstrip(" .")
