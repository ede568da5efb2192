"""What one reviewer sees and says: the pairs in an order of the reviewer's own, their texts and the own judgements.

Everything here may be shown: nothing of it depends on who retrieved a document or on what others have judged, but for
an adjudicator, who is shown the judgements that disagree.
"""

from __future__ import annotations

import functools
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from harness.errors import BadInput
from harness.testset.judgements import ADJUDICATED, HUMAN, Judgement, text_digest
from harness.testset.review.ledger import UNKNOWN, ReviewLedger, Target, Value
from harness.testset.review_items import Item, shuffled
from retrievers.base import Document, Query

NAME_LENGTH = 60  # characters
GRADES, NEEDS = (0, 1, 2, 3, UNKNOWN, None), (0, 1, UNKNOWN, None)  # what may be said of a pair, and of a need


@dataclass(frozen=True)
class Reviewer:
    """Somebody who judges. adjudicates: whether the judgements settle what others left open, and are made knowing
    them."""

    name: str
    adjudicates: bool = False

    @property
    def by(self) -> str:
        return f"{ADJUDICATED if self.adjudicates else HUMAN}:{self.name}"


@dataclass(frozen=True)
class ReviewMaterial:
    """What all reviewers share. queries, documents: id -> text. given: to adjudicators, what others said of a target,
    as (judge, value)."""

    queries: Mapping[str, Query]
    documents: Mapping[str, Document]
    given: Mapping[Target, Sequence[tuple[str, Value]]] = field(default_factory=dict)


class Unfit(Exception):
    """A value that cannot be said of this."""


class Desk:
    """A reviewer's work. items: what there is to judge, in an order that tells nothing."""

    def __init__(
        self, reviewer: Reviewer, items: Iterable[Item], material: ReviewMaterial, ledger: ReviewLedger
    ) -> None:
        self.reviewer = reviewer
        self._material = material
        self._ledger = ledger
        self._groups = _groups(reviewer.name, items)
        self._items = {key_of(_target(one)): one for group in self._groups for one in group}

    def items(self) -> dict[str, Any]:
        """The keys of all items, a list for each query, the need for retrieval first where it is asked; and what the
        reviewer has judged."""
        values, revision = self._ledger.values(self.reviewer.by)
        return {
            "reviewer": self.reviewer.name,
            "adjudicates": self.reviewer.adjudicates,
            "queries": [[key_of(_target(one)) for one in group] for group in self._groups],
            "needs": [key_of(_target(group[0])) for group in self._groups if group[0].doc_id is None],
            "values": self._known(values),
            "revision": revision,
        }

    def texts(self, keys: Iterable[str]) -> dict[str, Any]:
        """Key -> what is shown of this item. KeyError for a key that is not this reviewer's."""
        return {key: self._shown(self._items[key]) for key in keys}

    def found(self, words: str) -> list[str]:
        """Keys of the items in whose texts all words occur, in any case."""
        wanted = _folded(words).split()
        folded = functools.cache(lambda doc_id: _folded(_text(self._material.documents[doc_id])))
        found = []
        for group in self._groups:
            query = _folded(" ".join(turn.content for turn in self._material.queries[group[0].query_id].turns))
            left = [word for word in wanted if word not in query]
            for one in group:
                text = "" if one.doc_id is None or not left else folded(one.doc_id)
                if all(word in text for word in left):
                    found.append(key_of(_target(one)))
        return found

    def changes(self, since: int) -> dict[str, Any]:
        """What has been judged after a revision, here or in another window; null for what was withdrawn."""
        values, revision = self._ledger.changes(self.reviewer.by, since)
        return {"values": self._known(values), "revision": revision}

    def judge(self, key: str, value: Value, before: Value) -> None:
        """Put a judgement on the disk, or withdraw it (None). KeyError for an unknown key, Unfit for a value that
        cannot be said of it, Changed if `before` is no longer what stands."""
        one = self._items[key]
        allowed = NEEDS if one.doc_id is None else GRADES
        if value not in allowed or before not in allowed:
            raise Unfit(value)
        said = value if isinstance(value, int) else None
        self._ledger.put(
            Judgement(
                query_id=one.query_id,
                text=text_digest(self._material.queries[one.query_id]),
                doc_id=one.doc_id,
                grade=None if one.doc_id is None else said,
                needs=bool(said) if one.doc_id is None and said is not None else None,
                by=self.reviewer.by,
                at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                round=one.round,
                sample=one.sample,
                pi=one.pi,
                blind=not self.reviewer.adjudicates,
                withdrawn=value is None,
            ),
            before,
        )

    def counts(self) -> tuple[int, int]:
        """(how many items are judged, how many there are), without the documents of queries that need none."""
        values, _ = self._ledger.values(self.reviewer.by)
        judged = left = 0
        for group in self._groups:
            done = sum(values.get(_target(one)) is not None for one in group)
            judged += done
            left += 0 if group[0].doc_id is None and values.get(_target(group[0])) == 0 else len(group) - done
        return judged, judged + left

    def _known(self, values: Mapping[Target, Value]) -> dict[str, Value]:
        """Key -> value, of this reviewer's items."""
        named = ((key_of(one), value) for one, value in values.items())
        return {key: value for key, value in named if key in self._items}

    def _shown(self, one: Item) -> dict[str, Any]:
        query = self._material.queries[one.query_id]
        shown: dict[str, Any] = {"turns": [{"role": turn.role, "content": turn.content} for turn in query.turns]}
        if one.doc_id is not None:
            document = self._material.documents[one.doc_id]
            shown |= {"title": document.title, "text": document.text}
        if self.reviewer.adjudicates:
            given = self._material.given.get(_target(one), ())
            shown["given"] = [{"judge": judge, "value": value} for judge, value in given]
        return shown


def reviewers_of(given: str | Sequence[str] | None, adjudicates: bool) -> list[Reviewer]:
    """The reviewers of the key `reviewer`. BadInput unless there is at least one, and each has a name of its own."""
    names = [unicodedata.normalize("NFC", one).strip() for one in ([given] if isinstance(given, str) else given or [])]
    if not names:
        raise BadInput("reviewer is missing. Say who judges: reviewer=kim, or reviewer=[kim,lee] for a link each.")
    for name in names:
        if not name or len(name) > NAME_LENGTH or not name.isprintable():
            raise BadInput(f"reviewer={name!r:.80} is no name: give one of 1 to {NAME_LENGTH} letters, such as kim.")
        if [one.casefold() for one in names].count(name.casefold()) > 1:
            raise BadInput(f"reviewer: {name} is named twice. Each person needs a name of their own.")
    return [Reviewer(name, adjudicates) for name in names]


def _groups(name: str, items: Iterable[Item]) -> list[list[Item]]:
    """The items of each query, in the order of the queries' first items; each round for itself, the first before the
    second."""
    groups: dict[tuple[int, str], list[Item]] = {}
    for one in items:
        groups.setdefault((one.round, one.query_id), []).append(one)
    ordered = sorted(groups.items(), key=lambda group: group[0][0])
    return [shuffled(group, name) for _, group in ordered]


def key_of(target: Target) -> str:
    """What the page calls a target: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(target).encode()).hexdigest()[:16]


def _target(item: Item) -> Target:
    return item.query_id, item.doc_id, item.round, item.sample


def _text(document: Document) -> str:
    return f"{document.title}\n{document.text}"


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
