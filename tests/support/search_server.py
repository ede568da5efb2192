"""A search service on 127.0.0.1 that speaks the reply formats of several products, and misbehaves when told to.

with SearchServer(lambda query, k: [("d1", 2.0)], "elasticsearch") as server:
    harness("run", "retriever=elasticsearch", f"retriever.elasticsearch.url={server.url}")

The formats are those of the products' documentation: Elasticsearch and OpenSearch `_search`, Solr's JSON request API,
Vespa's query API, Qdrant's `points/query`, Milvus' REST API v2, Weaviate's GraphQL, and a plain service.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Hits = list[tuple[Any, Any]]  # (id, score), best first


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


@dataclass
class Asked:
    """A request. query: the text or the vector that it searches for. time: how often it was searched for, from 1."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    query: Any = None
    k: int = 0
    time: int = 0


# dialect -> (body -> (query, k), hits -> body of the reply)


def _hits(hits: Hits) -> Any:
    found = [{"_index": "documents", "_id": doc_id, "_score": score} for doc_id, score in hits]
    total = {"value": len(hits), "relation": "eq"}
    best = hits[0][1] if hits else None
    return {"took": 5, "timed_out": False, "hits": {"total": total, "max_score": best, "hits": found}}


def _solr(hits: Hits) -> Any:
    docs = [{"id": doc_id, "score": score} for doc_id, score in hits]
    header = {"status": 0, "QTime": 1}
    return {"responseHeader": header, "response": {"numFound": len(hits), "start": 0, "docs": docs}}


def _vespa(hits: Hits) -> Any:
    children = [
        {"id": f"index:documents/0/{i}", "relevance": score, "source": "documents", "fields": {"doc_id": doc_id}}
        for i, (doc_id, score) in enumerate(hits)
    ]
    root = {"id": "toplevel", "relevance": 1.0, "fields": {"totalCount": len(hits)}}
    return {"root": root | ({"children": children} if children else {})}


def _qdrant(hits: Hits) -> Any:
    points = [
        {"id": i, "version": 3, "score": score, "payload": {"doc_id": doc_id}} for i, (doc_id, score) in enumerate(hits)
    ]
    return {"result": {"points": points}, "status": "ok", "time": 0.002}


def _weaviate_query(body: Any) -> tuple[str, int]:
    found = re.search(r'bm25: *\{query: *("(?:[^"\\]|\\.)*")', body["query"])
    assert found, body
    limit = re.search(r"limit: *(\d+)", body["query"])
    assert limit, body
    return json.loads(found[1]), int(limit[1])


DIALECTS: dict[str, tuple[Callable[[Any], tuple[Any, int]], Callable[[Hits], Any]]] = {
    "fastapi": (
        lambda body: (body["query"], body["k"]),
        lambda hits: {"results": [{"id": doc_id, "score": score} for doc_id, score in hits]},
    ),
    "elasticsearch": (lambda body: (body["query"]["multi_match"]["query"], body["size"]), _hits),
    "elasticsearch_knn": (lambda body: (body["knn"]["query_vector"], body["size"]), _hits),
    "opensearch_knn": (lambda body: (body["query"]["knn"]["vector"]["vector"], body["size"]), _hits),
    "solr": (lambda body: (body["query"]["edismax"]["query"], body["limit"]), _solr),
    "vespa": (lambda body: (body["query"], body["hits"]), _vespa),
    "qdrant": (lambda body: (body["query"], body["limit"]), _qdrant),
    "milvus": (
        lambda body: (body["data"][0], body["limit"]),
        lambda hits: {"code": 0, "data": [{"distance": s, "id": i, "doc_id": d} for i, (d, s) in enumerate(hits)]},
    ),
    "weaviate": (
        _weaviate_query,
        lambda hits: {
            "data": {"Get": {"Document": [{"doc_id": d, "_additional": {"score": str(s)}} for d, s in hits]}}
        },
    ),
}


class SearchServer:
    """Answers requests by a function, and records them.

    search: (query, k) -> hits. dialect: a name of DIALECTS.
    fault: asked -> a Reply in place of the right one, or None; it may wait first.
    certificate: file with a certificate and its key; the service then speaks https.

    asked: all requests, in the order of arrival. together: the largest number of simultaneous requests.
    connections: ports from which they came.
    """

    def __init__(
        self,
        search: Callable[[Any, int], Hits],
        dialect: str = "fastapi",
        fault: Callable[[Asked], Reply | None] = lambda asked: None,
        certificate: Path | None = None,
    ) -> None:
        self.asked: list[Asked] = []
        self.connections: set[int] = set()
        self.together, self._now = 0, 0
        self._search, self._fault, self._dialect = search, fault, DIALECTS[dialect]
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}/search"

    def __enter__(self) -> SearchServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, asked: Asked) -> Reply:
        parse, shape = self._dialect
        if asked.body is None:
            values = parse_qs(urlsplit(asked.path).query)
            asked.query, asked.k = values["query"][0], int(values["k"][0])
        else:
            asked.query, asked.k = parse(asked.body)
        with self._lock:
            self.asked.append(asked)
            self._times[str(asked.query)] += 1
            asked.time = self._times[str(asked.query)]
            self._now += 1
            self.together = max(self.together, self._now)
        try:
            return self._fault(asked) or Reply(body=shape(self._search(asked.query, asked.k)))
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
                reply = server._reply(Asked(self.command, self.path, dict(self.headers), body))
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
                    self.close_connection = reply.cut > 0
                except ConnectionError:
                    self.close_connection = True  # the client has given up waiting

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        return Handler
