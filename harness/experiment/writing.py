"""Let a language model write queries and answers for conversations, with a prompt from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.canonical import digest
from harness.config.components import component_identity
from harness.config.schema import Node, ReadPath
from harness.data.files import some
from harness.errors import BadInput, Failed
from harness.gates.llm import transcript
from harness.llm.chat import Chat, ChatModel, Prompt, Schema, WrongReply
from harness.llm.structured import PromptText, read_prompt
from retrievers.base import Document, Query, Ranking, Turn

PROMPTS = Path(__file__).with_name("prompts")


@dataclass(frozen=True)
class Task:
    """A kind of text that a language model writes for each conversation.

    label: the override that asks for the texts, such as "answer=llm". name: key of the text in the reply {name: text}.
    most: maximum number of characters in a text. expects: number of output tokens in a typical text.
    key: the config key that replaces the prompt.
    """

    label: str
    name: str
    most: int
    expects: int
    prompt: PromptText
    key: str

    def prompts(self, conversations: Sequence[Query], values: Sequence[Mapping[str, str]] = ()) -> list[Prompt]:
        """Return the prompt for each conversation.

        values: for each prompt, placeholder -> text, except {conversation}; () if this is the only placeholder.
        """
        more = values or [{}] * len(conversations)
        return [
            Prompt(
                (Turn("user", self.prompt.filled(conversation=transcript(query), **others)),),
                schema=self._schema,
                name=f"query {query.query_id!r:.60}",
                expects=self.expects,
            )
            for query, others in zip(conversations, more, strict=True)
        ]

    def texts(self, conversations: Sequence[Query], prompts: Sequence[Prompt], chat: Chat) -> list[str]:
        """Return the text for each conversation. Raise Failed for an empty, too long, cut or malformed reply."""
        found = chat.ask(prompts, self._read, self.label)
        if wrong := [(one.query_id, reply) for one, reply in zip(conversations, found, strict=True) if reply.problem]:
            raise Failed(
                f"{self.label}: the model wrote no usable {self.name} for {len(wrong)} of {len(found)} conversations: "
                f"{some([query_id for query_id, _ in wrong])}. For the first, {wrong[0][1].problem} Choose another "
                f"llm.model, or another prompt with {self.key}=FILE."
            )
        return [reply.value or "" for reply in found]

    def known(self, conversations: Sequence[Query], chat: Chat) -> tuple[list[str] | None, int]:
        """Return the cached texts, and how many different prompts have no cached reply.

        Return None for the texts unless every conversation has a usable text.
        """
        prompts = self.prompts(conversations)
        found = chat.known(prompts, self._read)
        texts = [reply.value for reply in found if reply and reply.value is not None]
        missing = {prompt.turns for prompt, reply in zip(prompts, found, strict=True) if reply is None}
        return texts if len(texts) == len(found) else None, len(missing)

    def _read(self, reply: str) -> str:
        text: str = self._schema.read(reply)[self.name].strip()
        if not text:
            raise WrongReply(f"the {self.name} in the reply is empty")
        if len(text) > self.most:
            raise WrongReply(f"the {self.name} in the reply has {len(text):,} characters, more than {self.most:,}")
        return text

    @property
    def _schema(self) -> Schema:
        document: dict[str, Any] = {"type": "object", "properties": {self.name: {"type": "string"}}}
        return Schema(self.name, document | {"required": [self.name], "additionalProperties": False})


def prompt_of(key: str, file: str | None, shipped: str, places: Sequence[str]) -> PromptText:
    """Read the prompt in `file`, or the shipped prompt `shipped` if `file` is None. key: the config key of `file`."""
    return read_prompt(Path(file), places, key=key) if file else read_prompt(PROMPTS / f"{shipped}.txt", places)


VERSION = 1  # increase it when the same replies give other texts
# value of query.text -> (maximum number of characters, typical number of tokens)
LENGTHS = {"rewrite": (1000, 40), "expand": (4000, 150)}
WRITTEN = tuple(LENGTHS)  # values of query.text that let a language model write the queries


@dataclass(frozen=True)
class QueryWriter:
    """Lets a language model write a query for each conversation, even for conversations with a single turn.

    how: "rewrite" to search for the model's text, "expand" to search for all user turns and the model's text.
    """

    how: str
    llm: Node
    prompt: PromptText

    @classmethod
    def of(cls, how: str, file: str | None, prompt: str | None, llm: Node) -> QueryWriter | None:
        """Return the writer for the keys of `query`; None if no model writes queries. Raise BadInput for bad keys."""
        if how not in WRITTEN:
            if prompt:
                raise BadInput(
                    f"query.prompt={prompt} is not read with query.text={how}. Use query.text=rewrite or "
                    "query.text=expand, or leave out query.prompt."
                )
            return None
        if file:
            raise BadInput(
                f"query.file={file} is not read with query.text={how}. Use query.text=file, or leave out query.file."
            )
        return cls(how, llm, prompt_of("query.prompt", prompt, how, ["conversation"]))

    def identity(self, identify: Callable[[Node], Any] = component_identity) -> dict[str, Any]:
        """Return everything that decides the texts, except the conversations. identify: see `retrieval_trial_key`."""
        return {"text": self.how, "version": VERSION, "llm": identify(self.llm), "prompt": self.prompt.sha256}

    def queries(self, conversations: Sequence[Query], chat: Chat) -> tuple[Query, ...]:
        """Return a query with one user turn for each conversation. Raise Failed if the model writes no usable text."""
        return self._made(conversations, self._task.texts(conversations, self._task.prompts(conversations), chat))

    def foreseen(self, conversations: Sequence[Query], chat: Chat) -> tuple[tuple[Query, ...], int]:
        """Return the queries (`stand_ins` if any text is missing), and the number of prompts without a cached reply."""
        texts, missing = self._task.known(conversations, chat)
        return self.stand_ins(conversations) if texts is None else self._made(conversations, texts), missing

    def stand_ins(self, conversations: Sequence[Query]) -> tuple[Query, ...]:
        """Return placeholder queries, unlike any real query. The same writer always gives the same placeholders."""
        mark = digest(self.identity())
        return tuple(_searched(query, f"{mark} {query.text}") for query in conversations)

    def _made(self, conversations: Sequence[Query], texts: Sequence[str]) -> tuple[Query, ...]:
        lines = [" ".join(text.split()) for text in texts]
        if self.how == "expand":
            lines = [f"{query.text} {line}" for query, line in zip(conversations, lines, strict=True)]
        return tuple(_searched(query, line) for query, line in zip(conversations, lines, strict=True))

    @property
    def _task(self) -> Task:
        return Task(f"query.text={self.how}", "query", *LENGTHS[self.how], self.prompt, "query.prompt")


def _searched(query: Query, text: str) -> Query:
    return Query(query.query_id, (Turn("user", text),), query.native_id)


NO_REFERENCES = "(none)"
MOST = 10_000  # maximum number of characters in an answer
EXPECTED = 150  # number of tokens in a typical answer


@dataclass(frozen=True)
class NoAnswers:
    """Leaves the answers in a submission empty."""

    recorded_as = "answer/none"
    version = 1
    llm = None


@dataclass(eq=False)
class LlmAnswers:
    """Lets a language model answer each query from the documents returned for it.

    prompt: a file that contains {conversation} and {references}; None for the shipped prompt.
    """

    recorded_as = "answer/llm"
    version = 1  # increase it when the same replies give other answers

    llm: ChatModel
    prompt: ReadPath | None = None

    def __post_init__(self) -> None:
        self.task = Task("answer=llm", "answer", MOST, EXPECTED, _answer_prompt(self.prompt), "answer.prompt")

    @classmethod
    def identify(cls, llm: Mapping[str, Any], prompt: str | None) -> dict[str, Any]:
        return {"llm": llm, "prompt": _answer_prompt(prompt).sha256}

    def answers(
        self, conversations: Sequence[Query], shown: Ranking, documents: Mapping[str, Document], chat: Chat
    ) -> tuple[str, ...]:
        """Return an answer to each conversation. Raise Failed if the model writes no usable answer.

        shown: one row per conversation. documents: doc_id -> document.
        """
        rows = [[documents[doc_id] for doc_id, _ in shown.row(row)] for row in range(len(conversations))]
        prompts = self.task.prompts(conversations, [{"references": _references(row)} for row in rows])
        return tuple(self.task.texts(conversations, prompts, chat))


def _references(documents: Sequence[Document]) -> str:
    numbered = [f"[{number}] {one.indexed_text}" for number, one in enumerate(documents, start=1)]
    return "\n\n".join(numbered) or NO_REFERENCES


def _answer_prompt(file: str | None) -> PromptText:
    return prompt_of("answer.prompt", file, "answer", ["conversation", "references"])
