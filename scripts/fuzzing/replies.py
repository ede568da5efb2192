"""Formats of what services answer over HTTP: language models and search services."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.formats import Files, Format, reads, toy
from harness.gates.llm import LlmGate, _read_reply
from retrievers.base import Query
from retrievers.external.http import HttpRetriever
from retrievers.external.http_client import HttpClient, NoAnswer, Reply, Request

REPLIES: dict[str, Format] = {}
HEAD = {"status": 200, "headers": {"Retry-After": "3", "Location": "/elsewhere", "Content-Encoding": "identity"}}


def _files(content: Any) -> Files:
    return {"reply.json": json.dumps(content).encode(), "head.json": json.dumps(HEAD).encode()}


def _received(client: HttpClient, request: Request, folder: Path) -> Reply:
    """What the client makes of a response with this head and this body."""
    from urllib3 import HTTPResponse

    if not all((folder / name).is_file() for name in ("reply.json", "head.json")):
        raise NoAnswer("the reply is no file")
    body, head = (folder / "reply.json").read_bytes(), (folder / "head.json").read_text("latin-1")
    headers = dict(re.findall(r'"([\w-]+)": "([^"]{0,50})"', head))

    class Pool:
        def request(self, *_: Any, **__: Any) -> HTTPResponse:
            status = 200 if "200" in head else 302 if "2" in head else 500
            return HTTPResponse(io.BytesIO(body), headers, status, preload_content=False)

    return client._attempt(request, Pool())  # type: ignore[arg-type]


CHOICE = {"message": {"content": "<think>x</think> yes"}, "finish_reason": "stop"}
CHAT = {"choices": [CHOICE], "error": {"message": "no"}}


@reads("reply", _files(CHAT), REPLIES, refusals=(NoAnswer,), named=False)
def _chat(folder: Path) -> None:
    gate = LlmGate(model="m", base_url="http://localhost:1/v1")
    assert _read_reply(0, _received(gate._client, gate._request(Query.of("q", "x")), folder)) in (0, 1)


HITS = {"hits": {"total": 2, "list": [{"id": "d1", "score": 2.5}, {"id": 3, "score": "1.5", "text": "x"}]}}


@reads("search reply", _files(HITS), REPLIES, refusals=(NoAnswer,), named=False)
def _hits(folder: Path) -> None:
    place = "hits.list[*]."
    retriever = HttpRetriever("http://localhost:1/?q={query}&k={k}", f"{place}id", f"{place}score", method="GET")
    retriever._known = frozenset(toy().by_id)
    row = retriever._read(_received(retriever._client, Request("http://localhost:1/", method="GET"), folder), 3)
    assert np.isfinite(list(row.scores.values())).all()
