"""The request to grade a pair, the reply, and the search for the passage that the reply quotes.

Models change line breaks and quotation marks when they quote. Therefore white space may differ or be missing, and any
quotation mark matches any other. All other characters must match, so a reworded passage is not found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config.text import counted
from harness.data.files import some
from harness.errors import BadInput
from harness.gates.llm import transcript
from harness.llm.chat import Prompt, Reply
from harness.llm.structured import PromptText, Schema, read_prompt
from harness.testset.draft.drafts import SHIPPED, fill_prompt
from harness.testset.judge.judgements import GRADES, LLM
from harness.testset.review.resolution import RELEVANT_FROM, is_relevant
from retrievers.base import Document, Query, Turn

MARKS = "\"'`´‘’‚‛“”„‟′″«»‹›「」『』〝〞〟＂＇"
_GAP = "\\s\u00ad\u200b-\u200d\u2060\ufeff"  # white space and invisible characters
_GAPS = re.compile(f"[{_GAP}]+")
_EDGE = re.compile(f"[{_GAP}{re.escape(MARKS)}]+")
_LETTERS = re.compile(f"[^{_GAP}]")
_ONE_MARK = str.maketrans(dict.fromkeys(MARKS, '"'))


def locate_quote(quote: str, text: str, inside: tuple[int, int]) -> tuple[int, int] | None:
    """Return the place of the first match of `quote` in a document, as [start, end) in code points of `text`; None
    without a match.

    A match never cuts a number or a word in Latin letters: `11` does not match in `2011`. Quotation marks around the
    whole quotation are ignored if the text has none there. text: in Unicode NFC. inside: [start, end) of the document.
    """
    start, end = inside
    places = [letter.start() for letter in _LETTERS.finditer(text, start, end)]
    plain = _plain(text[start:end])
    quote = unicodedata.normalize("NFC", quote)
    head = _EDGE.match(quote)
    bare = quote[head.end() :] if head else quote
    while bare and _EDGE.fullmatch(bare[-1]):
        bare = bare[:-1]
    for form in map(_plain, (quote, bare)):
        if not any(letter.isalnum() for letter in form):
            continue
        at = plain.find(form)
        while at >= 0:
            first, past = places[at], places[at + len(form) - 1] + 1
            if _may_begin(text, first) and _may_end(text, past, end):
                return first, past
            at = plain.find(form, at + 1)
    return None


def _plain(text: str) -> str:
    return _GAPS.sub("", text).translate(_ONE_MARK)


def _may_begin(text: str, first: int) -> bool:
    if text[first].isdigit():
        return not re.search(r"\d[.,]?\Z", text[max(0, first - 2) : first])
    return not (_is_latin(text[first]) and first and _is_latin(text[first - 1]))


def _may_end(text: str, past: int, end: int) -> bool:
    if text[past - 1].isdigit():
        return not re.match(r"[.,]?\d", text[past : min(past + 2, end)])
    return not (_is_latin(text[past - 1]) and past < end and _is_latin(text[past]))


def _is_latin(letter: str) -> bool:
    return letter.isascii() and letter.isalpha()


TOKENS = 60  # expected tokens of a reply, until logged replies give a mean
PROMPT_DIGITS = 8  # digits of the prompt's sha256 in a judge's name

SCHEMA = Schema(
    "relevance_grade",
    {
        "type": "object",
        # The quotation comes first, since models write in this order and the grade should follow from the quotation.
        "properties": {"quote": {"type": "string"}, "grade": {"type": "integer", "enum": list(GRADES)}},
        "required": ["quote", "grade"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True)
class Judge:
    model: str
    prompt: PromptText

    @property
    def by(self) -> str:
        return f"{LLM}:{self.model}#{self.prompt.sha256[:PROMPT_DIGITS]}"

    def asked(self, query: Query, document: Document) -> Prompt:
        """Return the request to grade a document for a query."""
        last = max(place for place, turn in enumerate(query.turns) if turn.role == "user")
        values = {
            "query": query.turns[last].content,
            "conversation": transcript(replace(query, turns=query.turns[:last])),
            "document": document.text,
            "note": document.title,
        }
        name = f"query {query.query_id!r} with document {document.doc_id!r}"
        return Prompt((Turn("user", fill_prompt(self.prompt, values)),), SCHEMA, name=name, expects=TOKENS)


@dataclass(frozen=True)
class Verdict:
    """A model's verdict on a pair. grade: None if it is open. quote: the passage that supports the grade, exactly as in
    the document, or "". reason: why the grade is open, such as "no quotation", or ""."""

    grade: int | None
    quote: str = ""
    reason: str = ""

    @property
    def relevant(self) -> bool:
        return is_relevant(self.grade)


def read_judge_prompt(language: str, file: Path | None) -> PromptText:
    """Return the prompt in `file`. If `file` is None, return the shipped prompt in `language`, ko or en."""
    path = file or SHIPPED / language / "judge.txt"
    return read_prompt(path, ("query", "document"), ("conversation", "note"), "prompt" if file else "")


def check_conversations(prompt: PromptText, queries: Iterable[Query]) -> None:
    """Raise BadInput if the prompt shows only the last message, but some queries have several messages."""
    longer = [query.query_id for query in queries if len(query.turns) > 1]
    if longer and "conversation" not in prompt.places:
        raise BadInput(
            f"prompt has no {{conversation}}, but {counted(len(longer), 'query')} ({some(longer)}) cannot be judged "
            "without the messages before the last. Put {conversation} into a paragraph of the prompt; queries with a "
            "single message are sent without this paragraph."
        )


def read_reply(text: str) -> tuple[int, str]:
    """Return the grade and the quotation in a reply. Raise WrongReply if the reply does not match SCHEMA."""
    found = SCHEMA.read(text)
    return found["grade"], found["quote"]


def reply_verdict(reply: Reply[tuple[int, str]], document: Document) -> Verdict:
    """Return the verdict in a reply. Replace a grade of 2 or 3 by None if its quotation is not in the document."""
    if reply.value is None:
        return Verdict(None, reason="no usable reply")
    grade, quote = reply.value
    if not grade:
        return Verdict(grade)
    found = locate_quote(quote, document.text, (0, len(document.text)))
    if found is None and grade >= RELEVANT_FROM:
        return Verdict(None, reason="quotation not verbatim" if quote.strip() else "no quotation")
    return Verdict(grade, document.text[slice(*found)] if found else "")
