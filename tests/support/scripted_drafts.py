"""A language model for `harness testset draft` that quotes the first sentence of each text."""

from __future__ import annotations

import hashlib
import json
import re

from chat_server import Invocation

HEADS = ("\n글:\n", "\nText:\n")  # of the document in the shipped prompts


def kind_of(asked: Invocation) -> str:
    """The kind of query that a request is for."""
    return asked.body["response_format"]["json_schema"]["name"].removesuffix("_queries")


def document_of(asked: Invocation) -> str:
    """The text of the document in a request; without one, all of the request."""
    return next((asked.text.partition(head)[2] for head in HEADS if head in asked.text), asked.text)


def reply(*items: dict) -> str:
    return json.dumps({"items": items}, ensure_ascii=False)


def draft(asked: Invocation, _: int = 1) -> str:
    """One query of the kind that is asked for, unlike that of any other document."""
    text = document_of(asked)
    words = hashlib.sha256(text.encode()).hexdigest()
    subject = f"다온 {words[:4]}호"
    quote = re.match(r"\s*(.*?(?:[.!?]|$))", text, re.DOTALL)[1]
    answered = {"answer": f"{subject}는 {words[8:12]}년에 나왔습니다.", "evidence": [quote]}
    talk = [("user", f"{subject} 알아?"), ("assistant", "네, 압니다."), ("user", "그건 언제 나왔어?")]
    return reply({
        "fact": {"question": f"{subject}는 언제 나왔나요?", **answered},
        "search": {"question": f"{subject} 출시 연도", **answered},
        "conversation": {"turns": [{"role": role, "content": said} for role, said in talk], **answered},
        "none": {"question": f"안녕하세요, {words[:6]}입니다"},
        "unanswerable": {"question": f"{subject}를 그린 사람은 누구인가요?", "missing": f"{subject}의 화가"},
    }[kind_of(asked)])  # fmt: skip
