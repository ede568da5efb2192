"""Formats of what services answer over HTTP: language models and search services."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.formats import Files, Format, Wrong, reads, same, toy
from harness.gates.llm import read_answer
from harness.llm.chat import ChatModel, _completion
from harness.llm.reply_log import Completion, ReplyLog
from harness.llm.structured import Schema, WrongReply
from harness.storage.shared_log import FILE
from retrievers.external.http import HttpRetriever
from retrievers.external.http_client import (
    FailedAttempt,
    HttpClient,
    HttpReply,
    HttpRequest,
    Limits,
    Unanswered,
)
from retrievers.hosts import Address, Secrets
from retrievers.redaction import redacted, register

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from raw_server import RawServer, Wire

REPLIES: dict[str, Format] = {}
HEAD = {"status": 200, "headers": {"Retry-After": "3", "Location": "/elsewhere", "Content-Encoding": "identity"}}


def _files(content: Any) -> Files:
    return {"reply.json": json.dumps(content).encode(), "head.json": json.dumps(HEAD).encode()}


def _received(client: HttpClient, request: HttpRequest, folder: Path) -> HttpReply:
    """What the client makes of a response with this head and this body."""
    from urllib3 import HTTPResponse

    if not all((folder / name).is_file() for name in ("reply.json", "head.json")):
        raise FailedAttempt("the reply is no file")
    body, head = (folder / "reply.json").read_bytes(), (folder / "head.json").read_text("latin-1")
    headers = dict(re.findall(r'"([\w-]+)": "([^"]{0,50})"', head))

    class Pool:
        def request(self, *_: Any, **__: Any) -> HTTPResponse:
            status = 200 if "200" in head else 302 if "2" in head else 400 if "3" in head else 500
            return HTTPResponse(io.BytesIO(body), headers, status, preload_content=False)

    return client._attempt(request, Pool())  # type: ignore[arg-type]


KEY = "sk-Fuzz0123456789abcdef"
SPOKEN = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 no: %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
SENT = {
    "whole.http": SPOKEN + b'\r\n{"error": {"message": "no %s here"}}',
    "chunked.http": SPOKEN
    + b'Transfer-Encoding: chunked\r\n\r\nb;x=1\r\n{"detail": "\r\n1b\r\n%s"}\r\n0\r\nX: %s\r\n\r\n',
    "moved.http": b"HTTP/1.1 307 x\r\nLocation: http://%s.example:80/?%s\r\nContent-Length: 0\r\n\r\n",
}


@reads("bytes of a service", {name: text.replace(b"%s", KEY.encode()) for name, text in SENT.items()}, REPLIES,
       refusals=(Unanswered,), named=False)  # fmt: skip
def _bytes(folder: Path) -> None:
    """Whatever a service sends, there is an answer or a reason, in time, and no key in it."""
    os.environ["HARNESS_FUZZ_KEY"] = KEY
    sent = [file.read_bytes() for name in SENT if (file := folder / name).is_file()]

    def answer(wire: Wire) -> None:
        asked = wire.head.split(b" ")[1][1:]
        wire.send(sent[int(asked)] if asked.isdigit() else b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n")  # redirected

    with RawServer(answer) as server:
        for number in range(len(sent)):
            url = server.url.replace("search", str(number))
            client = HttpClient(Address.of(url, "url"), Limits(2.0, 0, 1), Secrets({"X-Key": "HARNESS_FUZZ_KEY"}))
            try:
                list(client.answers(1, lambda _, url=url: HttpRequest(url), lambda _, reply: reply.json()))
            except Unanswered as reason:
                if KEY in str(reason):
                    raise Wrong("a key in a message", str(reason)) from None


FORMS = [
    KEY,
    KEY[:9] + "\n  " + KEY[9:],
    "".join(f"\\u{ord(one):04x}" for one in KEY),
    "".join(f"%{ord(one):x}" for one in KEY),
]


@reads(
    "texts with a key",
    {"said.txt": "\n".join(f"before {one} after 달" for one in FORMS).encode()},
    REPLIES,
    named=False,
)
def _redacted(folder: Path) -> None:
    os.environ["HARNESS_FUZZ_KEY"] = KEY
    register("HARNESS_FUZZ_KEY")
    path = folder / "said.txt"
    shown = redacted(path.read_bytes().decode("utf-8", "replace") if path.is_file() else "")
    if KEY in shown:
        raise Wrong("a key in a text", shown)
    same(redacted(shown), shown, "a text without keys")


CHOICE = {"message": {"content": "<think>x</think> yes"}, "finish_reason": "stop"}
CHAT = {
    "choices": [CHOICE],
    "error": {"message": "no", "code": "content_filter"},
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}


@reads("reply", _files(CHAT), REPLIES, refusals=(FailedAttempt, WrongReply), named=False)
def _chat(folder: Path) -> None:
    client = ChatModel("m", "http://localhost:1/v1").client()
    completion = _completion(_received(client, HttpRequest("http://localhost:1/v1"), folder), 9)
    completion.text.encode()
    assert all(count is None or count >= 0 for count in (completion.input_tokens, completion.output_tokens))
    assert read_answer(completion.text) in (0, 1)


ITEM = {
    "type": "object",
    "properties": {"question": {"type": "string"}, "kind": {"enum": ["fact", "search"]}, "rank": {"type": "integer"}},
    "required": ["question", "kind"],
    "additionalProperties": False,
}
ITEMS = Schema("items", {"type": "object", "properties": {"items": {"type": "array", "items": ITEM}}})
STRUCTURED = '<think>{}</think>\n```json\n{"items": [{"question": "왜?", "kind": "fact", "rank": 1}]}\n```\n'


@reads("structured reply", {"reply.txt": STRUCTURED.encode()}, REPLIES, refusals=(WrongReply,), named=False)
def _structured(folder: Path) -> None:
    path = folder / "reply.txt"
    text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
    for item in ITEMS.read(text).get("items", ()):
        assert isinstance(item["question"], str)
        assert item["kind"] in ("fact", "search")


REPLIED = {
    "a" * 64: Completion("예\n", "stop", 3, 1, 4),
    "b" * 64: Completion("", "length"),
    "c" * 64: Completion("no"),
}


def _log() -> Files:
    with tempfile.TemporaryDirectory() as name:
        _add(Path(name), REPLIED)
        content = (Path(name) / FILE).read_bytes()
        return {FILE: content, "another-000000000000000.log": content}  # of this machine, and fetched from another


def _add(folder: Path, rows: Mapping[str, Completion]) -> ReplyLog:
    log = ReplyLog(folder)
    with log.adding():
        for key, one in rows.items():
            log.add(key, one)
    return log


@reads("reply log", _log, REPLIES, changes=True)
def _logged(folder: Path) -> None:
    """What is damaged is left out, and what is added later is there."""
    found = ReplyLog(folder)
    found.refresh()
    added = {"d" * 64: Completion("yes")}
    for log in (found, _add(folder, added), ReplyLog(folder)):
        log.refresh()
        for key, one in (REPLIED | added).items():
            if not set(log[key]) <= {one} or (key in added and not log[key]):
                raise Wrong("a reply", repr(log[key]))


HITS = {"hits": {"total": 2, "list": [{"id": "d1", "score": 2.5}, {"id": 3, "score": "1.5", "text": "x"}]}}


@reads("search reply", _files(HITS), REPLIES, refusals=(FailedAttempt,), named=False)
def _hits(folder: Path) -> None:
    place = "hits.list[*]."
    retriever = HttpRetriever("http://localhost:1/?q={query}&k={k}", f"{place}id", f"{place}score", method="GET")
    retriever._known = frozenset(toy().by_id)
    row = retriever._read(_received(retriever._client, HttpRequest("http://localhost:1/", method="GET"), folder), 3)
    assert np.isfinite(list(row.scores.values())).all()
