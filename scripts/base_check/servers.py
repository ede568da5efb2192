"""Stand-ins for what the documents' commands speak to: a language model, and search services."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))

import scripted_drafts  # noqa: E402
import scripted_judge  # noqa: E402
import search_server  # noqa: E402
from chat_server import ChatServer, Invocation  # noqa: E402

TEXTS = [json.loads(line) for line in (ROOT / "harness" / "sample" / "documents.jsonl").read_text("utf-8").splitlines()]
OWN = {  # dialects of services that the documents invent
    "own": (
        lambda body: (body["q"], int(body["n"])),
        lambda hits: {"hits": [{"id": doc_id, "score": score} for doc_id, score in hits]},
    ),
    "found": (
        lambda body: (body["text"], int(body["top"])),
        lambda hits: {"found": [{"doc": {"id": doc_id}, "rank": score} for doc_id, score in hits]},
    ),
}
SERVICES = {
    "elasticsearch": "elasticsearch",
    "solr": "solr",
    "fastapi": "fastapi",
    "own": "own",
    "found": "found",
    "get": "found",
}


def search(query: str, k: int) -> list[tuple[Any, Any]]:
    """Documents by how many of the query's characters they have."""
    scored = [(text["docid"], float(len({*query} & {*text["content"]}))) for text in TEXTS]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]


def language_model(asked: Invocation, _: int) -> str:
    """Drafts queries, grades documents, writes the same query or answer for all conversations, and says that all need
    documents."""
    if asked.schema is None:
        return "yes"
    properties = asked.schema["properties"]
    if "grade" in properties:
        return scripted_judge.judge(asked)
    return scripted_drafts.draft(asked) if "items" in properties else json.dumps(dict.fromkeys(properties, "달의 모양"))


def start() -> tuple[int, dict[str, str]]:
    """Serve in a child, so that this process has no threads when it forks; its id, and name -> address."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        search_server.DIALECTS.update(OWN)
        with ExitStack() as stack:
            chat = stack.enter_context(ChatServer(model=language_model))
            found = {
                name: stack.enter_context(search_server.SearchServer(search, dialect)).url
                for name, dialect in SERVICES.items()
            }
            os.write(writer, json.dumps(found | {"chat": chat.url, "qdrant": "http://127.0.0.1:9"}).encode() + b"\n")
            threading.Event().wait()
    os.close(writer)
    with os.fdopen(reader) as said:
        return child, json.loads(said.readline())
