"""Search queries that a language model writes: each conversation becomes one text that stands alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.canonical import digest
from harness.config.components import WRITTEN, identity
from harness.config.schema import Node
from harness.errors import BadInput
from harness.llm.chat import Chat
from harness.llm.prompts import PromptText
from harness.pipeline.plan import Plan
from harness.pipeline.writing import Task, prompt_of
from retrievers.base import Query, Turn

VERSION = 1  # raise it when the same replies give other texts
# query.text -> characters of the longest text that a model may write, tokens of a usual one
LENGTHS = {"rewrite": (1000, 40), "expand": (4000, 150)}


@dataclass(frozen=True)
class QueryWriter:
    """Has a language model write the text that is searched for each conversation, those of a single turn included.

    how: `rewrite`: the model's text is searched for; `expand`: all user turns, then the model's text.
    llm: the config of the model.
    """

    how: str
    llm: Node
    prompt: PromptText

    @classmethod
    def of(cls, plan: Plan) -> QueryWriter | None:
        """The writer that a config asks for; None where texts are taken from the data. BadInput for a bad prompt."""
        how, prompt, texts = plan.query_text, plan.query_prompt, plan.query_file
        if how not in WRITTEN:
            if prompt:
                raise BadInput(
                    f"query.prompt={prompt} is not read with query.text={how}. Use query.text=rewrite or "
                    "query.text=expand, or leave it out."
                )
            return None
        if texts:
            raise BadInput(
                f"query.file={texts} is not read with query.text={how}. Use query.text=file, or leave it out."
            )
        return cls(how, plan.llm, prompt_of("query.prompt", prompt, how, ["conversation"]))

    def identity(self, identify: Callable[[Node], Any] = identity) -> dict[str, Any]:
        """What decides the texts, beside the conversations. identify: as for `retrieval_run.trial_key`."""
        return {"text": self.how, "version": VERSION, "llm": identify(self.llm), "prompt": self.prompt.sha256}

    def queries(self, conversations: Sequence[Query], chat: Chat) -> tuple[Query, ...]:
        """The queries to search for, each with one user turn. chat: with the model of `llm`.

        Failed, which names a query, where the model writes nothing that can be searched for.
        """
        return self._made(conversations, self._task.texts(conversations, self._task.prompts(conversations), chat))

    def foreseen(self, conversations: Sequence[Query], chat: Chat) -> tuple[tuple[Query, ...], int]:
        """(the queries, how many of them the model would be asked for), without asking it.

        Unless a usable text is cached for each, they are `stand_ins`.
        """
        texts, missing = self._task.known(conversations, chat)
        return self.stand_ins(conversations) if texts is None else self._made(conversations, texts), missing

    def stand_ins(self, conversations: Sequence[Query]) -> tuple[Query, ...]:
        """Queries with other texts than any that is searched for; the same for the same writer."""
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
