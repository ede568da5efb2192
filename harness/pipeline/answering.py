"""The answers in a submission: none, or written by a language model from the documents that are returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.schema import ReadPath
from harness.llm.chat import Chat, ChatModel
from harness.llm.prompts import PromptText
from harness.pipeline.writing import Task, prompt_of
from retrievers.base import Document, Query, Ranking

NO_REFERENCES = "(none)"
MOST = 10_000  # characters of the longest answer
EXPECTED = 150  # tokens of a usual one


@dataclass(frozen=True)
class NoAnswers:
    """Leaves the answers of a submission empty."""

    recorded_as = "answer/none"
    version = 1
    llm = None


@dataclass(eq=False)
class LlmAnswers:
    """Has a language model write the answer to each query from the documents that are returned for it.

    prompt: a file with {conversation} and {references}; None: the shipped one. The references are numbered, each with
        its title and text; `(none)` where no document is returned.
    """

    recorded_as = "answer/llm"
    version = 1  # raise it when the same replies give other answers

    llm: ChatModel
    prompt: ReadPath | None = None

    def __post_init__(self) -> None:
        self._task = Task("answer=llm", "answer", MOST, EXPECTED, _read(self.prompt), "answer.prompt")

    @classmethod
    def identify(cls, llm: Mapping[str, Any], prompt: str | None) -> dict[str, Any]:
        """The prompt counts by its text, wherever its file lies."""
        return {"llm": llm, "prompt": _read(prompt).sha256}

    def answers(
        self, conversations: Sequence[Query], shown: Ranking, documents: Mapping[str, Document], chat: Chat
    ) -> tuple[str, ...]:
        """An answer to each conversation.

        shown: the documents returned, with a row for each conversation. documents: doc_id -> document.
        chat: with the model of `llm`.

        Failed, which names a conversation, where the model writes no usable answer.
        """
        rows = [[documents[doc_id] for doc_id, _ in shown.row(row)] for row in range(len(conversations))]
        prompts = self._task.prompts(conversations, [{"references": _references(row)} for row in rows])
        return tuple(self._task.texts(conversations, prompts, chat))


def _references(documents: Sequence[Document]) -> str:
    numbered = [f"[{number}] {one.indexed_text}" for number, one in enumerate(documents, start=1)]
    return "\n\n".join(numbered) or NO_REFERENCES


def _read(file: str | None) -> PromptText:
    return prompt_of("answer.prompt", file, "answer", ["conversation", "references"])
