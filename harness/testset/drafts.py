"""What a language model drafts: questions with answers and the evidence for them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from harness.data.spans import Evidence
from harness.data.testset import KINDS
from retrievers.base import Turn

__all__ = ["KINDS", "Draft", "Rejection"]


@dataclass(frozen=True)
class Draft:
    """A drafted query.

    kind: of KINDS. turns: the conversation; its last turn is the user's question. answer: empty for `none` and
    `unanswerable`. evidence: passages that were quoted verbatim. doc_id: of the document that the model was shown;
    empty for `none`. flags: what a reviewer should look at, such as "hard for BM25"; they never reject.
    """

    kind: str
    turns: tuple[Turn, ...]
    answer: str = ""
    evidence: tuple[Evidence, ...] = ()
    doc_id: str = ""
    flags: tuple[str, ...] = ()

    @property
    def query_id(self) -> str:
        """12 hexadecimal digits of the sha256 of kind and turns: the same draft always has the same id."""
        content = [self.kind, [[turn.role, turn.content] for turn in self.turns]]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()[:12]

    @property
    def question(self) -> str:
        """The last turn."""
        return self.turns[-1].content


@dataclass(frozen=True)
class Rejection:
    """Why a draft does not enter the test set. reason: one of few words, to be counted. detail: what exactly."""

    draft: Draft
    reason: str
    detail: str
