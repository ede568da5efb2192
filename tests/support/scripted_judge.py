"""A language model for `harness testset judge` that knows the answers of `judged_sets` and of `scripted_drafts`."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from chat_server import Invocation

# Before each part of the shipped prompts.
PARTS = {
    "conversation": ("\n앞선 대화:\n", "\nMessages before:\n"),
    "query": ("\n질문:\n", "\nQuestion:\n"),
    "note": ("\n글에 관한 정보: ", "\nAbout the passage: "),
    "document": ("\n글:\n", "\nPassage:\n"),
}


@dataclass(frozen=True)
class Asked:
    """The parts of a request; "" where the prompt has none."""

    conversation: str
    query: str
    note: str
    document: str


def asked_for(asked: Invocation) -> Asked:
    found, text = {}, asked.text
    for name, heads in reversed(PARTS.items()):
        head = next((one for one in heads if one in text), None)
        text, found[name] = (text.partition(head)[0], text.partition(head)[2].strip("\n")) if head else (text, "")
    return Asked(**found)


def reply(grade: object, quote: str = "") -> str:
    return json.dumps({"quote": quote, "grade": grade}, ensure_ascii=False)


def truth(one: Asked) -> tuple[int, str]:
    """(grade, quote): 3 for the document that answers, 1 for one of the same subject, otherwise 0."""
    words = hashlib.sha256(one.document.encode()).hexdigest()
    if f"다온 {words[:4]}호" in one.conversation + one.query:  # `scripted_drafts` asks this of this document alone
        return (1, "") if "그린 사람" in one.query else (3, one.document[:20].strip())
    name = re.search(r"가람(\d+)호", one.conversation + one.query)
    if name is None or not (name[0] in one.document or f"The ship {name[1]} " in one.document):
        return 0, ""
    answer = re.search(rf"{name[0]}의 첫 항해는 \d+년 봄에도? 있었다\.", one.document)
    return (3, answer[0]) if answer and "선장" not in one.query else (1, "")


def judge(asked: Invocation, _: int = 1) -> str:
    """An honest judge."""
    return reply(*truth(asked_for(asked)))


def gullible(asked: Invocation, _: int = 1) -> str:
    """A judge who believes what a document says of itself."""
    one = asked_for(asked)
    claim = re.search(r"[^\n]*(?:완벽하게 답|perfectly relevant)[^\n]*$", one.document)
    return reply(3, claim[0]) if claim else reply(*truth(one))
