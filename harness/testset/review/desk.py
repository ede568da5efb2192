"""The questions to each reviewer, the answers so far, and the texts for the page."""

from __future__ import annotations

import functools
import hashlib
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.errors import BadInput
from harness.storage.append_log import START
from harness.testset.audit.auditing import AuditSample
from harness.testset.judge.judgements import (
    ADJUDICATED,
    HUMAN,
    JudgedSet,
    Judgement,
    JudgementLog,
    Pair,
    judged_now,
    text_digest,
)
from harness.testset.pool.pool import PooledPair
from harness.testset.review.resolution import What, is_relevant, resolve
from retrievers.base import Document, Query

WORDS = Path(__file__).with_name("words.json")  # texts for reviewers: language -> name -> text
NAME_LENGTH = 60  # characters
UNKNOWN: Literal["?"] = "?"  # the answer "cannot tell"
FIRST, SECOND = "first round", "second round"
SETTLED_BY_PEOPLE: tuple[What, ...] = ("people disagree", "cannot tell", "answered")  # see `Question.what`

# A judgement's value: a grade from 0 to 3; 1 (needs retrieval) or 0 (needs none); UNKNOWN; or None (not judged).
Value = int | Literal["?"] | None
GRADES, NEEDS = (0, 1, 2, 3, UNKNOWN, None), (0, 1, UNKNOWN, None)  # the allowed values


@dataclass(frozen=True, slots=True)
class Item:
    """A question to a person. doc_id: the document to grade; None: the question is whether the query needs retrieval.
    round: 2 if the question is deliberately asked again. sample: one of `judgements.SAMPLES`. pi: probability that the
    query was drawn; 1 if nothing was drawn."""

    query_id: str
    doc_id: str | None
    round: int
    sample: str
    pi: float

    @property
    def pair(self) -> Pair:
        return self.query_id, self.doc_id

    @property
    def key(self) -> str:
        """Return the item's id on the page and in workbooks. It begins with a letter, so Excel reads it as text."""
        return "r" + _digest(self.query_id, self.doc_id or "", str(self.round))[:15]

    def judgement(self, query: Query, by: str, at: str, value: Value, blind: bool = True) -> Judgement:
        """Return a person's judgement. value: None withdraws an earlier judgement."""
        said, of_need = value if isinstance(value, int) else None, self.doc_id is None
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

    def value(self, judgement: Judgement | None) -> Value:
        """Return the value of a judgement; None if it was withdrawn or is for another sample."""
        return value_of(judgement) if judgement and judgement.sample == self.sample else None


def value_of(judgement: Judgement) -> Value:
    said = judgement.needs if judgement.doc_id is None else judgement.grade
    return None if judgement.withdrawn else UNKNOWN if said is None else int(said)


def items(sample: str, reviewer: str, judged: JudgedSet, audit: AuditSample | None = None) -> dict[Item, str]:
    """Return item -> why it is asked, for all items that a person should judge.

    The order of queries and documents depends only on the reviewer's name and the ids. The question whether a query
    needs retrieval comes before its documents, and the second round comes last. The samples are:

    - `audit`: the need for retrieval and all pooled pairs of each drawn query; a fifth of these queries are judged
      twice. Requires the argument `audit`.
    - `repair`: pairs with a suspicious grade by a model.
    - `all`: all pairs that no person has judged, and all queries whose need for retrieval no person has judged.
    - `open`: open questions that only an adjudicator can settle.
    """
    if sample == "audit":
        if audit is None:
            raise ValueError('sample="audit" needs drawn queries')
        return _audit(reviewer, judged, audit)
    if sample == "open":
        found = _open(judged, audit)
    elif sample == "repair":
        found = _repair(judged)
    else:
        unjudged = (
            Item(query_id, doc_id, 1, "all", 1.0) for query_id in judged.queries for doc_id in _asked(query_id, judged)
        )
        found = {one: "judged by no person" for one in unjudged if not judged.first_round(one.pair)}
    ordered = shuffled(found, reviewer)
    if sample == "repair":  # queries with the most items first; an order by suspicion would reveal the model's grade
        count = Counter(one.query_id for one in found)
        ordered.sort(key=lambda one: -count[one.query_id])
    return {one: found[one] for one in ordered}


def shuffled(asked: Iterable[Item], reviewer: str) -> list[Item]:
    """Group the items by query, those without `doc_id` first. The reviewer's name and the ids decide the order."""

    def place(one: Item) -> tuple[Any, ...]:
        within = one.doc_id is not None, _digest(reviewer, one.query_id, one.doc_id or "", str(one.round))
        return _digest(reviewer, one.query_id), one.query_id, within

    return sorted(asked, key=place)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _audit(reviewer: str, judged: JudgedSet, audit: AuditSample) -> dict[Item, str]:
    """Return the items of an audit. Ask again about pairs that were judged only for repair, since they were not drawn
    at random. In the second round, a reviewer is asked about pairs that only other people judged in the first round. If
    nothing else is left, the reviewer is asked again about pairs that this reviewer judged in the first round."""
    first: list[Item] = []
    second: list[Item] = []
    for query_id in audit.drawn:
        pi = audit.pi(query_id)
        for doc_id in _asked(query_id, judged):
            if not judged.first_round((query_id, doc_id), audit=True):
                first.append(Item(query_id, doc_id, 1, "audit", pi))
            elif query_id in audit.twice and all(one.round != 2 for one in judged.of_people[query_id, doc_id]):
                second.append(Item(query_id, doc_id, 2, "audit", pi))
    others = [
        one for one in second if reviewer not in {said.judge for said in judged.first_round(one.pair, audit=True)}
    ]
    asked = [*shuffled(first, reviewer), *shuffled(others, reviewer)] or shuffled(second, reviewer)
    return {one: FIRST if one.round == 1 else SECOND for one in asked}


def _asked(query_id: str, judged: JudgedSet) -> list[str | None]:
    """Return the `doc_id` of each item for a query: None (does the query need retrieval?), then the ids of its pooled
    documents. Leave the documents out if people say that the query needs no retrieval."""
    documents = [] if judged.unneeded(query_id) else [one.doc_id for one in judged.pooled[query_id]]
    return [None, *documents]


def _open(judged: JudgedSet, audit: AuditSample | None) -> dict[Item, str]:
    """Return an item for each open question that people can settle. The item's sample is `audit` if its query was
    drawn for the audit, otherwise `repair`. Leave a question out if an adjudicator has confirmed that a document
    answers an `unanswerable` query: then the query itself must be corrected."""
    found: dict[Item, str] = {}
    resolved = resolve(judged.judgements, tuple(judged.queries.values()), judged.pairs)
    for one in resolved.open:
        settled = one.what == "answered" and resolved.grades[one.query_id][one.doc_id or ""].basis == ADJUDICATED
        if one.what in SETTLED_BY_PEOPLE and not settled:
            if audit and one.query_id in audit.drawn:
                found[Item(one.query_id, one.doc_id, 1, "audit", audit.pi(one.query_id))] = one.what
            else:
                found[Item(one.query_id, one.doc_id, 1, "repair", 1.0)] = one.what
    return found


def _repair(judged: JudgedSet) -> dict[Item, str]:
    return {
        Item(query_id, pair.doc_id, 1, "repair", 1.0): reason
        for query_id, pairs in judged.pooled.items()
        for pair in pairs
        if not judged.first_round((query_id, pair.doc_id)) and not judged.unneeded(query_id)
        if (reason := _suspicion(pair, judged))
    }


def _suspicion(pair: PooledPair, judged: JudgedSet) -> str | None:
    """Return the first reason to suspect the model's grade of a pair, or None."""
    grades = [one.grade for one in judged.of_models.get((pair.query_id, pair.doc_id), ())]
    if not grades:
        return None
    last = is_relevant(grades[-1])
    if grades[-1] is None:
        return "no grade by the model"
    if pair.seed and not last:
        return "the query was drafted from the document, but the model finds it irrelevant"
    if len({is_relevant(grade) for grade in grades if grade is not None}) > 1:
        return "two models differ"
    if pair.pi < 1 and last:
        return "the model finds the document relevant, but no run ranks it high"
    if pair.near_duplicate and not pair.seed:
        seeds = [judged.of_models.get((one.query_id, one.doc_id)) for one in judged.pooled[pair.query_id] if one.seed]
        graded = [said[-1].grade for said in seeds if said and said[-1].grade is not None]
        if graded and last != any(map(is_relevant, graded)):
            return "the query was drafted from a near-duplicate that the model graded differently"
    return None


class RefusedRequest(Exception):
    """A request cannot be answered. status: HTTP status. why: message for people. more: values for the page."""

    def __init__(self, status: int, why: str, **more: Any) -> None:
        super().__init__(why)
        self.status, self.document = status, {"error": why, **more}


class ReviewLedger:
    """The judgements by some judges. Other processes may add judgements at the same time. queries: queries by id;
    judgements made before a query's text changed do not count. judges: names as in `Judgement.by`."""

    def __init__(self, log: JudgementLog, queries: Mapping[str, Query], judges: Collection[str]) -> None:
        self._log = log
        self._digests = {query_id: text_digest(query) for query_id, query in queries.items()}
        self._last: dict[str, dict[tuple[Pair, int], Judgement]] = {judge: {} for judge in judges}
        self._changes: dict[str, list[tuple[Pair, int]]] = {judge: [] for judge in judges}
        self._position = START
        self._lock = threading.RLock()  # reentrant, so that the thread that closes the ledger can still read it
        self._read_on()

    def changes(self, by: str, since: int) -> tuple[list[Judgement], int]:
        """Return (the judge's judgements after the revision `since`, the present revision). For each pair and round,
        return only the last judgement. A revision is the number of the judge's judgements that have been read."""
        with self._lock:
            self._read_on()
            changed = dict.fromkeys(self._changes[by][since:])
            return [self._last[by][one] for one in changed], len(self._changes[by])

    def put(self, item: Item, judgement: Judgement, before: Value) -> None:
        """Write a judgement to disk, unless it repeats the present value. before: the value that the reviewer saw.
        If this is no longer the present value, raise RefusedRequest, which carries the present value."""
        with self._lock, self._log.appending() as add:
            self._read_on()
            value = item.value(self._last[judgement.by].get((item.pair, item.round)))
            if value != value_of(judgement):
                if value != before:
                    raise RefusedRequest(409, "This question has been judged elsewhere in the meantime.", value=value)
                add(judgement)
                self._read_on()

    def close(self) -> None:
        """Wait until no judgement is being written. Then block all other threads that use the ledger."""
        self._lock.acquire()

    def _read_on(self) -> None:
        found, self._position = self._log.since(self._position)
        for one in found:
            if one.by in self._last and self._digests.get(one.query_id) == one.text:
                self._last[one.by][one.pair, one.round] = one
                self._changes[one.by].append((one.pair, one.round))


class Desk:
    """The items and judgements of a reviewer. A desk does not show which run retrieved a document. Only adjudicators
    see judgements by other judges. by: name as in `Judgement.by`. documents: the documents of all items, by id."""

    def __init__(
        self, by: str, items: Iterable[Item], judged: JudgedSet, documents: Mapping[str, Document], ledger: ReviewLedger
    ) -> None:
        basis, _, self.name = by.partition(":")
        self._by, self._adjudicates = by, basis == ADJUDICATED
        self._judged, self._documents, self._ledger = judged, documents, ledger
        groups: dict[tuple[int, str], list[Item]] = {}
        for one in items:
            groups.setdefault((one.round, one.query_id), []).append(one)
        ordered = sorted(groups.items(), key=lambda group: group[0][0])  # a second round follows everything else
        self._groups = [shuffled(group, self.name) for _, group in ordered]
        self._items = {one.key: one for group in self._groups for one in group}
        self._keys = {(one.pair, one.round): key for key, one in self._items.items()}

    def items(self) -> dict[str, Any]:
        """Return the items' keys in one list per query, and the values judged so far. In each list, the item that asks
        whether the query needs retrieval comes first."""
        return {
            "reviewer": self.name,
            "adjudicates": self._adjudicates,
            "queries": [[one.key for one in group] for group in self._groups],
            "needs": [group[0].key for group in self._groups if group[0].doc_id is None],
            **self.changes(0),
        }

    def texts(self, keys: Iterable[str]) -> dict[str, Any]:
        return {key: self._shown(self._item(key)) for key in keys}

    def found(self, words: str) -> list[str]:
        """Return the keys of the items whose texts contain all words, ignoring case."""
        wanted = _folded(words).split()

        @functools.cache
        def document(doc_id: str) -> str:
            return _folded(f"{self._documents[doc_id].title}\n{self._documents[doc_id].text}")

        found = []
        for group in self._groups:
            query = _folded(" ".join(turn.content for turn in self._judged.queries[group[0].query_id].query.turns))
            left = [word for word in wanted if word not in query]
            for one in group:
                text = "" if one.doc_id is None or not left else document(one.doc_id)
                if all(word in text for word in left):
                    found.append(one.key)
        return found

    def changes(self, since: int) -> dict[str, Any]:
        """Return the present revision of the judgements, and the values that the reviewer gave after the revision
        `since`, in this window or another. The value of a withdrawn judgement is None."""
        said, revision = self._ledger.changes(self._by, since)
        known = ((self._keys.get((one.pair, one.round)), one) for one in said)
        return {"values": {key: self._items[key].value(one) for key, one in known if key}, "revision": revision}

    def judge(self, key: str, value: Value, before: Value) -> None:
        """Write a judgement to disk, or withdraw it if the value is None. before: the value that the reviewer saw."""
        item = self._item(key)
        allowed = NEEDS if item.doc_id is None else GRADES
        if value not in allowed or before not in allowed:
            raise RefusedRequest(400, "This answer does not fit the question.")
        query = self._judged.queries[item.query_id].query
        judgement = item.judgement(query, self._by, judged_now(), value, blind=not self._adjudicates)
        self._ledger.put(item, judgement, before)

    def counts(self) -> tuple[int, int]:
        """Return (number of judged items, number of all items). If a query needs no retrieval, its unjudged documents
        are not counted."""
        values = self.changes(0)["values"]
        judged = left = 0
        for group in self._groups:
            done = sum(values.get(one.key) is not None for one in group)
            judged += done
            left += 0 if group[0].doc_id is None and values.get(group[0].key) == 0 else len(group) - done
        return judged, judged + left

    def _item(self, key: str) -> Item:
        if key not in self._items:
            raise RefusedRequest(404, "This question is no longer asked: reload the page.")
        return self._items[key]

    def _shown(self, one: Item) -> dict[str, Any]:
        query = self._judged.queries[one.query_id].query
        shown: dict[str, Any] = {"turns": [{"role": turn.role, "content": turn.content} for turn in query.turns]}
        if one.doc_id is not None:
            document = self._documents[one.doc_id]
            shown |= {"title": document.title, "text": document.text}
        if self._adjudicates:
            given = (*self._judged.first_round(one.pair), *self._judged.of_models.get(one.pair, ())[-1:])
            shown["given"] = [{"judge": other.judge, "value": value_of(other)} for other in given]
        return shown


def reviewers_of(given: str | Sequence[str] | None, adjudicate: bool) -> dict[str, str]:
    """Return name -> `Judgement.by` of each reviewer. Raise BadInput if no name is given, or for a wrong name."""
    names = [unicodedata.normalize("NFC", one).strip() for one in ([given] if isinstance(given, str) else given or [])]
    if not names:
        raise BadInput("reviewer is missing. Say who judges: reviewer=kim, or reviewer=[kim,lee] for a link each.")
    for name in names:
        if not name or len(name) > NAME_LENGTH or not name.isprintable():
            raise BadInput(f"reviewer={name!r:.80} is not a name. Give 1 to {NAME_LENGTH} letters, such as kim.")
        if [one.casefold() for one in names].count(name.casefold()) > 1:
            raise BadInput(f"reviewer: {name} is named twice. Give each person a different name.")
    return {name: f"{ADJUDICATED if adjudicate else HUMAN}:{name}" for name in names}


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
