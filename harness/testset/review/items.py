"""What a person is asked to judge next, in an order that tells nothing about it.

audit:  of every drawn query whether it needs retrieval, and all its pooled pairs; some of them a second time.
repair: pairs whose judgement by a model is suspicious. all: everything that no person has judged.
open:   what people disagree about, what nobody can tell, and what answers a query that is said to have no answer, for
        somebody who adjudicates.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.testset.audit.sample import AuditSample
from harness.testset.judge.judgements import ADJUDICATED, JudgedSet, Judgement, Pair
from harness.testset.pool.pool import PooledPair
from harness.testset.review.resolution import RELEVANT_FROM, What, resolve


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


@dataclass(frozen=True)
class AskedItems:
    """items: in the order in which they are shown. reasons: why they are asked -> how many; a pair of several reasons
    is counted under the first."""

    items: tuple[Item, ...]
    reasons: Mapping[str, int]


FIRST, SECOND = "first round", "second round"
SETTLED_BY_PEOPLE: tuple[What, ...] = ("people disagree", "cannot tell", "answered")  # of open questions


def items(sample: str, reviewer: str, judged: JudgedSet, audit: AuditSample | None = None) -> AskedItems:
    """What a person is to judge: "audit", "repair", "all" or "open"; nothing where all of it is judged.

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
    """The items by query, its need first, in an order that only the reviewer's name and the ids decide."""
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
            elif query_id in audit.twice and not _again(judged.of_people[query_id, doc_id]):
                second.append(Item(query_id, doc_id, 2, "audit", pi))
    others = [one for one in second if not _by(reviewer, judged.first_round(one.pair, audit=True))]
    now = [*shuffled(first, reviewer), *shuffled(others, reviewer)]
    now = now or shuffled(second, reviewer)
    return AskedItems(tuple(now), _counted(FIRST if one.round == 1 else SECOND for one in now))


def _questions(query_id: str, judged: JudgedSet) -> list[str | None]:
    """The documents of a query to judge, after None for its need; no documents where people say that it has none."""
    documents = [] if judged.unneeded(query_id) else [one.doc_id for one in judged.pooled[query_id]]
    return [None, *documents]


def _again(judgements: Sequence[Judgement]) -> bool:
    return any(one.round == 2 for one in judgements)


def _by(reviewer: str, judgements: Sequence[Judgement]) -> bool:
    return any(one.judge == reviewer for one in judgements)


def _all(reviewer: str, judged: JudgedSet) -> AskedItems:
    found = [
        Item(query_id, doc_id, 1, "all", 1.0)
        for query_id in judged.queries
        for doc_id in _questions(query_id, judged)
        if not judged.first_round((query_id, doc_id))
    ]
    return AskedItems(tuple(shuffled(found, reviewer)), _counted("judged by no person" for _ in found))


def _open(reviewer: str, judged: JudgedSet, audit: AuditSample | None) -> AskedItems:
    """What is settled for drawn queries belongs to the audit, and all else to repair.

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
            if reason := next((why for why, holds in _SUSPICIOUS.items() if holds(pair, judged)), None):
                found[Item(query_id, pair.doc_id, 1, "repair", 1.0)] = reason
    count = Counter(one.query_id for one in found)
    ordered = sorted(shuffled(found, reviewer), key=lambda one: -count[one.query_id])
    return AskedItems(tuple(ordered), _counted(found.values()))


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reasons).most_common())


def _relevant(grade: int | None) -> bool:
    return grade is not None and grade >= RELEVANT_FROM


def _lost_seed(pair: PooledPair, judged: JudgedSet) -> bool:
    grade = judged.model_grade((pair.query_id, pair.doc_id))
    return pair.seed and grade is not None and not _relevant(grade)


def _ungraded(pair: PooledPair, judged: JudgedSet) -> bool:
    said = judged.of_models.get((pair.query_id, pair.doc_id), ())
    return bool(said) and said[-1].grade is None


def _disputed(pair: PooledPair, judged: JudgedSet) -> bool:
    said = judged.of_models.get((pair.query_id, pair.doc_id), ())
    return len({_relevant(one.grade) for one in said if one.grade is not None}) > 1


def _deep(pair: PooledPair, judged: JudgedSet) -> bool:
    return pair.pi < 1 and _relevant(judged.model_grade((pair.query_id, pair.doc_id)))


def _unlike_its_twin(pair: PooledPair, judged: JudgedSet) -> bool:
    if not pair.near_duplicate or pair.seed:
        return False
    grade = judged.model_grade((pair.query_id, pair.doc_id))
    seeds = [judged.model_grade((one.query_id, one.doc_id)) for one in judged.pooled[pair.query_id] if one.seed]
    graded = [one for one in seeds if one is not None]
    return grade is not None and bool(graded) and _relevant(grade) != _relevant(max(graded))


_SUSPICIOUS: Mapping[str, Callable[[PooledPair, JudgedSet], bool]] = {  # the first that holds is the reason
    "the document that the query was drafted from, not relevant to the model": _lost_seed,
    "no grade by the model": _ungraded,
    "two models differ": _disputed,
    "relevant to the model, though no run ranks it high": _deep,
    "a near-duplicate that the model graded unlike its twin": _unlike_its_twin,
}
