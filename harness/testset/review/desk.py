"""What one reviewer sees and says: the pairs in an order of the reviewer's own, their texts and the own judgements.

Everything here may be shown: nothing of it depends on who retrieved a document or on what others have judged, but for
an adjudicator, who is shown the judgements that disagree.

What reviewers have judged so far, as the log says, and the next judgement, unless somebody was faster.

The log is the truth: other processes may write it at the same time, and what they add is read on.

What a person is asked to judge next, in an order that tells nothing about it.

audit:  of every drawn query whether it needs retrieval, and all its pooled pairs; some of them a second time.
repair: pairs whose judgement by a model is suspicious. all: everything that no person has judged.
open:   what people disagree about, what nobody can tell, and what answers a query that is said to have no answer, for
        somebody who adjudicates.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.errors import BadInput
from harness.storage.append_log import Position
from harness.testset.audit.auditing import AuditSample
from harness.testset.judge.judgements import (
    ADJUDICATED,
    HUMAN,
    SAMPLES,
    JudgedSet,
    Judgement,
    JudgementLog,
    Pair,
    judged_now,
    text_digest,
)
from harness.testset.pool.pool import PooledPair
from harness.testset.review.resolution import RELEVANT_FROM, What, resolve
from retrievers.base import Document, Query


@dataclass(frozen=True, slots=True)
class Item:
    """A question to a person.

    doc_id: None: whether the query needs retrieval; otherwise: the grade of this document.
    round: 2: asked a second time on purpose. sample: of `judgements.SAMPLES`.
    pi: the probability with which the query was drawn; 1 where nothing was drawn.
    """

    query_id: str
    doc_id: str | None
    round: int
    sample: str
    pi: float

    @property
    def pair(self) -> Pair:
        return self.query_id, self.doc_id

    @property
    def target(self) -> Target:
        return self.query_id, self.doc_id, self.round, self.sample

    def judgement(self, query: Query, by: str, at: str, value: Value, blind: bool = True) -> Judgement:
        """Return what a person says of it; value: None withdraws the judgement."""
        said = value if isinstance(value, int) else None
        of_need = self.doc_id is None
        return Judgement(
            query_id=self.query_id,
            text=text_digest(query),
            doc_id=self.doc_id,
            grade=None if of_need else said,
            needs=bool(said) if of_need and said is not None else None,
            by=by,
            at=at,
            round=self.round,
            sample=self.sample,
            pi=self.pi,
            blind=blind,
            withdrawn=value is None,
        )


@dataclass(frozen=True)
class AskedItems:
    """items: in the order in which they are shown. reasons: why they are asked -> how many; a pair of several reasons
    is counted under the first."""

    items: tuple[Item, ...]
    reasons: Mapping[str, int]


FIRST, SECOND = "first round", "second round"
SETTLED_BY_PEOPLE: tuple[What, ...] = ("people disagree", "cannot tell", "answered")  # of open questions


def items(sample: str, reviewer: str, judged: JudgedSet, audit: AuditSample | None = None) -> AskedItems:
    """Return what a person is to judge: "audit", "repair", "all" or "open"; nothing where all of it is judged.

    A query's need for retrieval comes first, then its documents. Queries and documents are in an order that is drawn
    for each reviewer and tells nothing about them; a second round follows everything else.

    audit: the drawn queries; sample="audit" needs them.
    """
    if sample == "audit":
        if audit is None:
            raise ValueError("the sample audit needs drawn queries")
        return _audit(reviewer, judged, audit)
    if sample == "open":
        return _open(reviewer, judged, audit)
    return _repair(reviewer, judged) if sample == "repair" else _all(reviewer, judged)


def shuffled(questions: Iterable[Item], reviewer: str) -> list[Item]:
    """Return the items by query, its need first, in an order that only the reviewer's name and the ids decide."""
    return sorted(questions, key=lambda one: (_drawn(reviewer, one.query_id), _within(one, reviewer)))


def _within(one: Item, reviewer: str) -> tuple[str, bool, str]:
    return one.query_id, one.doc_id is not None, _drawn(reviewer, one.query_id, one.doc_id or "", str(one.round))


def _drawn(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _audit(reviewer: str, judged: JudgedSet, audit: AuditSample) -> AskedItems:
    """A pair counts as judged if it was judged for the audit: what was judged for repair was not chosen at random."""
    first: list[Item] = []
    second: list[Item] = []
    for query_id in audit.drawn:
        pi = audit.pi(query_id)
        for doc_id in _questions(query_id, judged):
            said = judged.first_round((query_id, doc_id), audit=True)
            if not said:
                first.append(Item(query_id, doc_id, 1, "audit", pi))
            elif query_id in audit.twice and all(one.round != 2 for one in judged.of_people[query_id, doc_id]):
                second.append(Item(query_id, doc_id, 2, "audit", pi))
    judges = {one: {said.judge for said in judged.first_round(one.pair, audit=True)} for one in second}
    others = [one for one in second if reviewer not in judges[one]]
    now = [*shuffled(first, reviewer), *shuffled(others, reviewer)]
    now = now or shuffled(second, reviewer)
    return AskedItems(tuple(now), _counted(FIRST if one.round == 1 else SECOND for one in now))


def _questions(query_id: str, judged: JudgedSet) -> list[str | None]:
    """The documents of a query to judge, after None for its need; no documents where people say that it has none."""
    documents = [] if judged.unneeded(query_id) else [one.doc_id for one in judged.pooled[query_id]]
    return [None, *documents]


def _all(reviewer: str, judged: JudgedSet) -> AskedItems:
    found = [
        Item(query_id, doc_id, 1, "all", 1.0)
        for query_id in judged.queries
        for doc_id in _questions(query_id, judged)
        if not judged.first_round((query_id, doc_id))
    ]
    return AskedItems(tuple(shuffled(found, reviewer)), _counted("judged by no person" for _ in found))


def _open(reviewer: str, judged: JudgedSet, audit: AuditSample | None) -> AskedItems:
    """Return what is settled for drawn queries belongs to the audit, and all else to repair.

    A document that somebody has already settled as an answer to a query that is said to have none is not asked again:
    then the query is to be corrected.
    """
    found: dict[Item, str] = {}
    resolved = resolve(judged.judgements, tuple(judged.queries.values()), judged.pairs)
    for one in resolved.open:
        settled = one.what == "answered" and resolved.grades[one.query_id][one.doc_id or ""].basis == ADJUDICATED
        if one.what in SETTLED_BY_PEOPLE and not settled:
            drawn = audit is not None and one.query_id in audit.drawn
            pi = audit.pi(one.query_id) if drawn and audit else 1.0
            found[Item(one.query_id, one.doc_id, 1, "audit" if drawn else "repair", pi)] = one.what
    return AskedItems(tuple(shuffled(found, reviewer)), _counted(found.values()))


def _repair(reviewer: str, judged: JudgedSet) -> AskedItems:
    """Suspicious pairs. Queries with most of them come first: an order by reason would tell what the model said."""
    found: dict[Item, str] = {}
    for query_id, pairs in judged.pooled.items():
        for pair in pairs:
            if judged.first_round((query_id, pair.doc_id)) or judged.unneeded(query_id):
                continue
            if reason := _suspicion(pair, judged):
                found[Item(query_id, pair.doc_id, 1, "repair", 1.0)] = reason
    count = Counter(one.query_id for one in found)
    ordered = sorted(shuffled(found, reviewer), key=lambda one: -count[one.query_id])
    return AskedItems(tuple(ordered), _counted(found.values()))


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reasons).most_common())


def _relevant(grade: int | None) -> bool:
    return grade is not None and grade >= RELEVANT_FROM


def _suspicion(pair: PooledPair, judged: JudgedSet) -> str | None:
    """Return the first reason to suspect what the model said of a pair; None without one."""
    said = judged.of_models.get((pair.query_id, pair.doc_id), ())
    if not said:
        return None
    grade, relevant = said[-1].grade, _relevant(said[-1].grade)
    if grade is None:
        return "no grade by the model"
    if pair.seed and not relevant:
        return "the document that the query was drafted from, not relevant to the model"
    if len({_relevant(one.grade) for one in said if one.grade is not None}) > 1:
        return "two models differ"
    if pair.pi < 1 and relevant:
        return "relevant to the model, though no run ranks it high"
    if pair.near_duplicate and not pair.seed:
        seeds = [judged.model_grade((one.query_id, one.doc_id)) for one in judged.pooled[pair.query_id] if one.seed]
        graded = [one for one in seeds if one is not None]
        if graded and relevant != _relevant(max(graded)):
            return "a near-duplicate that the model graded unlike its twin"
    return None


WORDS = Path(__file__).with_name("words.json")  # what reviewers read: language -> name -> text
UNKNOWN: Literal["?"] = "?"  # the judge cannot tell

# A grade, 0 to 3; of the need for retrieval, 1 (needs it) or 0; UNKNOWN; None: not judged.
Value = int | Literal["?"] | None
# What is judged, and why: query_id, doc_id (None: the need for retrieval), round, sample. A judgement that was made for
# one sample does not count for another, as only the drawn ones enter estimates.
Target = tuple[str, str | None, int, str]


class JudgementChanged(Exception):
    """The judgement to replace is no longer the one that the reviewer saw. value: what it is now."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class ReviewLedger:
    """The judgements of some judges.

    queries: query_id -> query, of the test set; judgements of other texts do not hold. judges: whose judgements are
    kept, as in `Judgement.by`.
    """

    def __init__(self, log: JudgementLog, queries: Mapping[str, Query], judges: Collection[str]) -> None:
        self._log = log
        self._digests = {query_id: text_digest(query) for query_id, query in queries.items()}
        self._values: dict[str, dict[Target, Value]] = {judge: {} for judge in judges}
        self._changes: dict[str, list[Target]] = {judge: [] for judge in judges}
        self._position = Position()
        self._lock = threading.RLock()  # whoever has closed it may still read
        with self._lock:
            self._read_on()

    def changes(self, by: str, since: int) -> tuple[dict[Target, Value], int]:
        """Return (what a judge has judged after a revision, the revision now); None for what has been withdrawn.

        A revision is how many judgements of the judge have been read.
        """
        with self._lock:
            self._read_on()
            return {one: self._values[by].get(one) for one in self._changes[by][since:]}, len(self._changes[by])

    def put(self, judgement: Judgement, before: Value) -> int:
        """Append a judgement; it is on the disk when this returns. The revision.

        A judgement that stands already is not repeated. before: what the reviewer saw. Changed if it is no longer so.
        """
        target = target_of(judgement)
        with self._lock, self._log.appending() as add:
            self._read_on()
            value = self._values[judgement.by].get(target)
            if value != value_of(judgement):
                if value != before:
                    raise JudgementChanged(value)
                add(judgement)
                self._read_on()
            return len(self._changes[judgement.by])

    def close(self) -> None:
        """Wait until no judgement is being written, and take no more from other threads."""
        self._lock.acquire()

    def _read_on(self) -> None:
        found, self._position = self._log.since(self._position)
        self._take(found)

    def _take(self, judgements: Iterable[Judgement]) -> None:
        for one in judgements:
            if one.by in self._values and self._digests.get(one.query_id) == one.text:
                values, target = self._values[one.by], target_of(one)
                others = [(*target[:3], sample) for sample in SAMPLES if sample != one.sample]
                for replaced in [other for other in others if values.get(other) is not None]:
                    values[replaced] = None
                    self._changes[one.by].append(replaced)
                values[target] = value_of(one)
                self._changes[one.by].append(target)


def value_of(judgement: Judgement) -> Value:
    """Return what a judgement says; None if it has been withdrawn."""
    said = judgement.needs if judgement.doc_id is None else judgement.grade
    return None if judgement.withdrawn else UNKNOWN if said is None else int(said)


def target_of(judgement: Judgement) -> Target:
    return judgement.query_id, judgement.doc_id, judgement.round, judgement.sample


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
        self._items = {target_key(one.target): one for group in self._groups for one in group}

    def items(self) -> dict[str, Any]:
        """The keys of all items, a list for each query, the need for retrieval first where it is asked; and what the
        reviewer has judged."""
        values, revision = self._ledger.changes(self.reviewer.by, 0)
        return {
            "reviewer": self.reviewer.name,
            "adjudicates": self.reviewer.adjudicates,
            "queries": [[target_key(one.target) for one in group] for group in self._groups],
            "needs": [target_key(group[0].target) for group in self._groups if group[0].doc_id is None],
            "values": self._known(values),
            "revision": revision,
        }

    def texts(self, keys: Iterable[str]) -> dict[str, Any]:
        """Key -> what is shown of this item. Raise KeyError for a key that is not this reviewer's."""
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
                    found.append(target_key(one.target))
        return found

    def changes(self, since: int) -> dict[str, Any]:
        """Return what has been judged after a revision, here or in another window; null for what was withdrawn."""
        values, revision = self._ledger.changes(self.reviewer.by, since)
        return {"values": self._known(values), "revision": revision}

    def judge(self, key: str, value: Value, before: Value) -> None:
        """Put a judgement on the disk, or withdraw it (None). Raise KeyError for an unknown key, Unfit for a value that
        cannot be said of it, Changed if `before` is no longer what stands."""
        one = self._items[key]
        allowed = NEEDS if one.doc_id is None else GRADES
        if value not in allowed or before not in allowed:
            raise Unfit(value)
        query, blind = self._material.queries[one.query_id], not self.reviewer.adjudicates
        self._ledger.put(one.judgement(query, self.reviewer.by, judged_now(), value, blind), before)

    def counts(self) -> tuple[int, int]:
        """Return (how many items are judged, how many there are), without the documents of queries that need none."""
        values, _ = self._ledger.changes(self.reviewer.by, 0)
        judged = left = 0
        for group in self._groups:
            done = sum(values.get(one.target) is not None for one in group)
            judged += done
            left += 0 if group[0].doc_id is None and values.get(group[0].target) == 0 else len(group) - done
        return judged, judged + left

    def _known(self, values: Mapping[Target, Value]) -> dict[str, Value]:
        """Key -> value, of this reviewer's items."""
        named = ((target_key(one), value) for one, value in values.items())
        return {key: value for key, value in named if key in self._items}

    def _shown(self, one: Item) -> dict[str, Any]:
        query = self._material.queries[one.query_id]
        shown: dict[str, Any] = {"turns": [{"role": turn.role, "content": turn.content} for turn in query.turns]}
        if one.doc_id is not None:
            document = self._material.documents[one.doc_id]
            shown |= {"title": document.title, "text": document.text}
        if self.reviewer.adjudicates:
            given = self._material.given.get(one.target, ())
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


def target_key(target: Target) -> str:
    """Return what the page calls a target: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(target).encode()).hexdigest()[:16]


def _text(document: Document) -> str:
    return f"{document.title}\n{document.text}"


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
