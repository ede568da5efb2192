"""The model, the cached replies and the dry run of commands that ask a language model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.config.commands import AskingConfig
from harness.config.components import build
from harness.errors import BadInput
from harness.experiment.session import chat_for
from harness.llm.chat import Chat, ChatModel, Prompt
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Table
from harness.storage.cache import Cache, existing_cache


@dataclass(frozen=True)
class Asking:
    """A command that asks a language model. purpose: its verb, such as "judge", which is part of the cache key."""

    config: AskingConfig
    purpose: str

    @cached_property
    def model(self) -> ChatModel:
        if self.config.llm["model"] is None:
            raise BadInput(f"model is missing. Name the language model that {self.purpose}s: model=NAME.")
        model: ChatModel = build(self.config.llm, where="llm")
        return model

    def chat(self, cache: Cache, prompts: Sequence[Prompt], extent: str) -> Chat:
        """Return the chat, and print the estimated cost. extent: name of the work, such as "Judging 12 pairs"."""
        chat = chat_for(self.model, cache, self.purpose)
        print(f"{extent}: {chat.estimate(prompts).text()}.", file=sys.stderr)  # noqa: T201
        return chat

    def dry_run(
        self, prompts: Sequence[Prompt], extent: str, first: Mapping[str, str], document: Mapping[str, Any]
    ) -> CommandAnswer:
        """Report the estimated cost of the requests whose replies are not cached. Write nothing.

        first: caption -> prompt to show. document: further content of the JSON document.
        """
        cache = existing_cache(self.config.store.path)
        known = cache.found_log("replies", self.model.log_identity(self.purpose)) if cache else None
        estimate = Chat(self.model, known).estimate(prompts)
        said = [
            f"{extent} takes {estimate.text()}.",
            f"Nothing was sent or written. To begin the {extent.partition(' ')[0].lower()}, leave out dry_run=true.",
        ]
        shown = [Table(caption, notes=[text]) for caption, text in first.items()]
        return CommandAnswer({"estimate": estimate, **document}, Report("", tables=shown, files=said))
