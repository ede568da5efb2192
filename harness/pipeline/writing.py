"""Texts that a language model writes for conversations: one for each, after the prompt in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.files import some
from harness.errors import Failed
from harness.gates.llm import transcript
from harness.llm.chat import Chat, Prompt, Schema, WrongReply
from harness.llm.prompts import PromptText, read_prompt
from retrievers.base import Query, Turn

PROMPTS = Path(__file__).with_name("prompts")


@dataclass(frozen=True)
class Task:
    """What a model writes.

    label: the override that asks for it, such as "answer=llm". name: of the text in a reply, which is {name: text}, so
    that whatever else a model says is no part of it. most: characters of the longest text.
    expects: output tokens that a text may take, for estimates. prompt: what the model is asked, with a place for the
    conversation. key: the config key that replaces it.
    """

    label: str
    name: str
    most: int
    expects: int
    prompt: PromptText
    key: str

    def prompts(self, conversations: Sequence[Query], values: Sequence[Mapping[str, str]] = ()) -> list[Prompt]:
        """What the model is asked for each conversation. values: for further places of the prompt, by their names."""
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
        """What the model writes for each conversation.

        Failed, which names a conversation, where no reply is usable: empty, too long, cut off, or of another form.
        """
        found = chat.ask(prompts, self._read, self.label)
        if wrong := [(one.query_id, reply) for one, reply in zip(conversations, found, strict=True) if reply.problem]:
            raise Failed(
                f"{self.label}: the model wrote no usable {self.name} for {len(wrong)} of {len(found)} conversations: "
                f"{some([query_id for query_id, _ in wrong])}. The first: {wrong[0][1].problem} Choose another "
                f"llm.model, or another prompt with {self.key}=FILE."
            )
        return [reply.value or "" for reply in found]

    def known(self, conversations: Sequence[Query], chat: Chat) -> tuple[list[str] | None, int]:
        """(the texts, None unless a usable one is cached for each; how many prompts the model would be asked)."""
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
    """The prompt in a user's file, or the shipped one. key: the config key that names the file."""
    return read_prompt(Path(file), places, key=key) if file else read_prompt(PROMPTS / f"{shipped}.txt", places)
