"""Stand-ins for the services that commands need: a language model, and search services."""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measuring import SAMPLE  # isort: skip  (finds tests/support)
import openpyxl
import scripted_drafts
import scripted_judge
import search_server
from chat_server import ChatServer, Invocation

TEXTS = [json.loads(line) for line in (SAMPLE / "documents.jsonl").read_text("utf-8").splitlines()]
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
SERVICES = {**{name: name for name in ("elasticsearch", "solr", "fastapi", "own", "found")}, "get": "found"}


def search(query: str, k: int) -> list[tuple[Any, Any]]:
    scored = [(text["docid"], float(len({*query} & {*text["content"]}))) for text in TEXTS]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]


def language_model(asked: Invocation, _: int) -> str:
    """Draft queries, grade documents, rewrite all conversations alike, and say that all need documents."""
    if asked.schema is None:
        return "yes"
    properties = asked.schema["properties"]
    if "grade" in properties:
        return scripted_judge.judge(asked)
    return scripted_drafts.draft(asked) if "items" in properties else json.dumps(dict.fromkeys(properties, "달의 모양"))


def start() -> tuple[int, dict[str, str]]:
    """Serve in a child, since this process must fork without threads. Return its id, and name -> address."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        search_server.DIALECTS.update(OWN)
        with ExitStack() as stack:
            servers = {name: search_server.SearchServer(search, dialect) for name, dialect in SERVICES.items()}
            servers["chat"] = ChatServer(model=language_model)
            found = {name: stack.enter_context(one).url for name, one in servers.items()}
            os.write(writer, json.dumps(found | {"qdrant": "http://127.0.0.1:9"}).encode() + b"\n")
            threading.Event().wait()
    os.close(writer)
    with os.fdopen(reader) as said:
        return child, json.loads(said.readline())


def fill_in(workbook: Path) -> None:
    """Fill in a workbook: every query needs retrieval, and every other document answers it."""
    book = openpyxl.load_workbook(workbook)
    for sheet in (book["queries"], book["pairs"]):
        for row in range(2, sheet.max_row + 1):
            sheet.cell(row, sheet.max_column).value = "yes" if sheet.title == "queries" else row % 2 * 3
    book.save(workbook)
