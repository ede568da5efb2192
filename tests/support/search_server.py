"""A search service on 127.0.0.1 that speaks the reply formats of several products, and misbehaves when told to.

with SearchServer(lambda query, k: [("d1", 2.0)], "elasticsearch") as server:
    harness("run", "retriever=elasticsearch", f"retriever.elasticsearch.url={server.url}")

The formats are those of the products' documentation: Elasticsearch and OpenSearch `_search`, Solr's JSON request API,
Vespa's query API, Qdrant's `points/query`, Milvus' REST API v2, Weaviate's GraphQL, and a plain service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from recording_server import RecordingServer, Reply

Hits = list[tuple[Any, Any]]  # (id, score), best first


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

    @property
    def text(self) -> str:
        return str(self.query)


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


class SearchServer(RecordingServer):
    """search: (query, k) -> hits. dialect: a name of DIALECTS.

    fault: asked -> a Reply in place of the right one, or None; it may wait first.
    """

    def __init__(
        self,
        search: Callable[[Any, int], Hits],
        dialect: str = "fastapi",
        fault: Callable[[Asked], Reply | None] = lambda asked: None,
        certificate: Path | None = None,
    ) -> None:
        self._search, self._fault, self._dialect = search, fault, DIALECTS[dialect]
        super().__init__("/search", certificate)

    def read(self, method: str, path: str, headers: dict[str, str], body: Any) -> Asked:
        if body is not None:
            return Asked(method, path, headers, body, *self._dialect[0](body))
        values = parse_qs(urlsplit(path).query)
        return Asked(method, path, headers, None, values["query"][0], int(values["k"][0]))

    def answer(self, asked: Asked, time: int) -> Reply:
        asked.time = time
        return self._fault(asked) or Reply(body=self._dialect[1](self._search(asked.query, asked.k)))
