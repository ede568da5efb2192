"""The requests to draft queries from sampled documents, and the replies with evidence."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.config.canonical import digest
from harness.config.text import counted
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.spans import Evidence, Span
from harness.errors import BadInput
from harness.llm.chat import Chat, Prompt, Reply
from harness.llm.structured import PromptText, Schema, WrongReply
from harness.testset.draft.drafts import Draft, Rejection, example_lines, fill_prompt, hashed, situations
from harness.testset.judge.judging import locate_quote
from retrievers.base import Query, Turn

CONTEXT = 32  # code points that are kept before and after evidence


def located(quote: str, chunk: Chunk, text_of: Callable[[str], str]) -> tuple[Evidence, ...]:
    """Return the evidence for a quote in each span of the document; () if the document lacks the quote. Raise BadInput
    if the text at one of the document's spans is not the document's text. text_of: text id -> text."""
    places = []
    for span in chunk.spans:
        text = text_of(span.text)
        if text[span.start : span.end] != chunk.document.text:
            raise BadInput(
                f"The document {chunk.document.doc_id} is not the text at its span [{span.start}, {span.end}) of "
                f"{span.text}. Prepare the files again."
            )
        found = locate_quote(quote, text, (span.start, span.end))
        if found is None:
            return ()
        start, end = found
        before, after = text[max(0, start - CONTEXT) : start], text[end : end + CONTEXT]
        places.append(Evidence(Span(span.text, start, end), text[start:end], before, after))
    return tuple(places)


LENGTHS = (3, 5)  # possible numbers of messages in a conversation: the user speaks two or three times


@dataclass(frozen=True)
class ReplyItem:
    """A query in a reply. quotes: passages quoted as evidence. missing: for `unanswerable`, the information that an
    answer needs and the document lacks."""

    turns: tuple[Turn, ...]
    answer: str = ""
    quotes: tuple[str, ...] = ()
    missing: str = ""


def schema(kind: str) -> Schema:
    text = {"type": "string"}
    turn = _object({"role": {"type": "string", "enum": ["user", "assistant"]}, "content": text})
    answered = {"answer": text, "evidence": {"type": "array", "items": text}}
    properties: dict[str, dict[str, Any]] = {
        "fact": {"question": text, **answered},
        "search": {"question": text, **answered},
        "conversation": {"turns": {"type": "array", "items": turn}, **answered},
        "none": {"question": text},
        "unanswerable": {"question": text, "missing": text},
    }
    return Schema(f"{kind}_queries", _object({"items": {"type": "array", "items": _object(properties[kind])}}))


def read_as(kind: str) -> Callable[[str], list[ReplyItem]]:
    """Return the function that reads a reply. It raises WrongReply if the reply breaks the schema or a text is blank. A
    conversation needs 3 or 5 messages, by the user and the assistant in turn, beginning with the user."""

    def read(text: str) -> list[ReplyItem]:
        items = schema(kind).read(text)["items"]
        return [_item(one, f"item {number}") for number, one in enumerate(items, start=1)]

    return read


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _item(value: Mapping[str, Any], where: str) -> ReplyItem:
    for name in ("question", "answer", "missing"):
        if name in value and not value[name].strip():
            raise WrongReply(f"{name} of {where} is blank")
    turns = _conversation(value["turns"], where) if "turns" in value else (Turn("user", value["question"].strip()),)
    quotes = tuple(value.get("evidence", ()))
    return ReplyItem(turns, value.get("answer", "").strip(), quotes, value.get("missing", "").strip())


def _conversation(turns: list[Mapping[str, str]], where: str) -> tuple[Turn, ...]:
    roles = [turn["role"] for turn in turns]
    if len(roles) not in LENGTHS or roles != (["user", "assistant"] * len(roles))[: len(roles)]:
        raise WrongReply(f"the turns of {where} are {', '.join(roles) or 'none'}, not user, assistant, user")
    if not all(turn["content"].strip() for turn in turns):
        raise WrongReply(f"a turn of {where} is blank")
    return tuple(Turn(turn["role"], turn["content"].strip()) for turn in turns)


TOKENS = 120  # expected tokens of a query with answer and evidence, until logged replies give a mean
KEPT_TEXTS = 64  # maximum number of texts in memory
MOST_FLAGS = 4  # maximum number of flags of a draft of kind `unanswerable`
NOTHING = ReplyItem(())


@dataclass(frozen=True)
class DraftPlan:
    """Everything that decides the requests. questions: maximum number of queries per request. language: `ko` or `en`.
    prompts: kind -> prompt. examples: real queries to imitate."""

    kinds: tuple[str, ...]
    questions: int
    language: str
    seed: int
    prompts: Mapping[str, PromptText]
    examples: Sequence[Query] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """Return the plan as plain JSON, with the sha256 of each prompt and of the examples."""
        texts = [[[turn.role, turn.content] for turn in query.turns] for query in self.examples]
        return {
            "kinds": list(self.kinds),
            "questions": self.questions,
            "language": self.language,
            "seed": self.seed,
            "prompts": {kind: prompt.sha256 for kind, prompt in self.prompts.items()},
            "examples": digest(texts) if texts else None,
        }


@dataclass(frozen=True)
class DraftRequest:
    """A request to the model. place: index of the document in the sample, or of the situation in its list. chunk: the
    document; None for the kind `none`."""

    kind: str
    place: int
    chunk: Chunk | None
    prompt: Prompt

    @property
    def doc_id(self) -> str:
        return self.chunk.document.doc_id if self.chunk else ""


@dataclass(frozen=True)
class Drafted:
    """The drafts in the order of the sample, so that a larger sample only adds drafts at the end. rejections: drafts
    that were rejected before any filter. empty: kind -> number of replies without a question."""

    drafts: list[Draft]
    rejections: list[Rejection]
    empty: Counter[str] = field(default_factory=Counter)


def draw_ids(files: Mapping[str, str], seed: int, limit: int | None) -> list[str]:
    """Draw at most `limit` ids of documents (None: all). files: doc_id -> file.

    Each file first gives one document, and then further documents in proportion to its size. Files are ordered by
    a hash of the seed and their name, and the documents of a file by a hash of the seed and their id. So a smaller
    limit returns the beginning of the same list, and an added file does not change the order of other documents.
    """
    strata: dict[str, list[str]] = defaultdict(list)
    for doc_id, file in files.items():
        strata[file].append(doc_id)
    order: list[tuple[float, str, str]] = []
    for file, doc_ids in strata.items():
        place = hashed(seed, file)
        doc_ids.sort(key=lambda doc_id: (hashed(seed, doc_id), doc_id))
        order += [(rank / len(doc_ids), place, doc_id) for rank, doc_id in enumerate(doc_ids)]
    return [doc_id for _, _, doc_id in sorted(order)[:limit]]


def sample(folder: DocumentsFolder, seed: int, limit: int | None) -> list[Chunk]:
    """Return at most `limit` documents (None: all), drawn by `draw_ids`, without keeping the rest in memory."""
    paths = folder.paths()
    files = {}
    for chunk in folder.chunks():
        text = chunk.spans[0].text
        if text not in paths:
            raise BadInput(
                f"{folder.path}: document {chunk.document.doc_id} is in text {text}, which no line of files.jsonl "
                "names. Prepare the files again."
            )
        files[chunk.document.doc_id] = paths[text]
    order = {doc_id: place for place, doc_id in enumerate(draw_ids(files, seed, limit))}
    chunks = [chunk for chunk in folder.chunks() if chunk.document.doc_id in order]
    return sorted(chunks, key=lambda chunk: order[chunk.document.doc_id])


def tasks(plan: DraftPlan, chunks: Sequence[Chunk]) -> list[DraftRequest]:
    """Return a request for each kind and document. Requests for the kind `none` have a situation instead of a
    document."""
    found: list[DraftRequest] = []
    for kind in plan.kinds:
        if kind == "none":
            about = situations(plan.language, plan.seed)[: len(chunks)]
            found += [DraftRequest(kind, place, None, _prompt(plan, kind, one)) for place, one in enumerate(about)]
        else:
            found += [
                DraftRequest(kind, place, chunk, _prompt(plan, kind, chunk)) for place, chunk in enumerate(chunks)
            ]
    return found


def draft_queries(chat: Chat, work: Sequence[DraftRequest], plan: DraftPlan, folder: DocumentsFolder) -> Drafted:
    """Send all requests and read the replies. Raise Failed if the endpoint does not answer."""
    answered: list[tuple[DraftRequest, Reply[list[ReplyItem]]]] = []
    for kind in plan.kinds:
        asked = [task for task in work if task.kind == kind]
        replies = chat.ask([task.prompt for task in asked], read_as(kind), f"drafting {kind}")
        answered += zip(asked, replies, strict=True)
    answered.sort(key=lambda one: one[0].place)
    text_of = functools.lru_cache(KEPT_TEXTS)(folder.text)
    found = Drafted([], [])
    for task, reply in answered:
        if reply.value is None:
            found.rejections.append(_rejection(task, "reply of the wrong shape", reply.problem))
            continue
        found.empty[task.kind] += not reply.value
        for number, item in enumerate(reply.value):
            one = _judged(task, item, text_of)
            if number >= plan.questions:
                one = Rejection(_draft(task, item), "more than asked for", f"{counted(plan.questions, 'query')} asked")
            if isinstance(one, Rejection):
                found.rejections.append(one)
            else:
                found.drafts.append(one)
    return found


def _prompt(plan: DraftPlan, kind: str, about: Chunk | str) -> Prompt:
    key = about if isinstance(about, str) else about.document.doc_id
    shown = example_lines(plan.examples, kind, plan.seed, kind, key)
    values = {"questions": str(plan.questions), "examples": shown}
    if isinstance(about, str):
        values["situation"], name = about, f"a query of kind {kind}"
    else:
        values |= {"text": about.document.text, "note": about.document.title}
        name = f"document {key!r}"
    turns = (Turn("user", fill_prompt(plan.prompts[kind], values)),)
    return Prompt(turns, schema(kind), name=name, expects=TOKENS * plan.questions)


def _judged(task: DraftRequest, item: ReplyItem, text_of: Callable[[str], str]) -> Draft | Rejection:
    if task.chunk is None:
        return _draft(task, item)
    if task.kind == "unanswerable":
        return _unanswerable(task, item, [text_of(span.text) for span in task.chunk.spans])
    found: list[Evidence] = []
    for quote in item.quotes:
        places = located(quote, task.chunk, text_of)
        if not places:
            return _rejection(task, "evidence not verbatim", f"the document lacks {quote!r}", item)
        found += places
    if not found:
        return _rejection(task, "evidence not verbatim", "no passage is quoted", item)
    return _draft(task, item, tuple(dict.fromkeys(found)))


def _unanswerable(task: DraftRequest, item: ReplyItem, texts: Sequence[str]) -> Draft | Rejection:
    """Reject the item if the missing information has two or more words and a line of the texts contains it verbatim.
    Flag the draft with each line that contains all words of this information, in any order."""
    words = item.missing.casefold().split()
    flags = [f"check that no document has the answer: {item.missing}"]
    for line in (line for text in texts for line in text.split("\n")):
        known = " ".join(line.casefold().split())
        if len(words) > 1 and " ".join(words) in known:
            return _rejection(task, "answered by the texts", f"{item.missing!r} is in {line.strip()!r:.200}", item)
        if len(flags) < MOST_FLAGS and all(word in known for word in words):
            flags.append(f"may have the answer: {line.strip():.200}")
    return replace(_draft(task, item), flags=tuple(flags))


def _draft(task: DraftRequest, item: ReplyItem, evidence: tuple[Evidence, ...] = ()) -> Draft:
    return Draft(task.kind, item.turns, item.answer, evidence, task.doc_id)


def _rejection(task: DraftRequest, reason: str, detail: str, item: ReplyItem = NOTHING) -> Rejection:
    return Rejection(_draft(task, item), reason, detail)
