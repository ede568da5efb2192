"""Resolve a test set's judgements: decide the grade of each pair, and whether each query needs retrieval.

Adjudications override people, and people override a model. Pairs and needs that remain undecided are open questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.data.labels import UNANSWERABLE, Label
from harness.data.testset import EvidencedQuery
from harness.testset.judge.judgements import ADJUDICATED, BASES, HUMAN, LLM, Judgement, Pair, by_pair, current
from harness.testset.pool.pool import PooledPair

RELEVANT_FROM = 2  # the lowest relevant grade, by default
DRAFTED = "draft"  # `basis` of a `Need` that follows from the query's kind, since no person judged it

What = Literal["people disagree", "cannot tell", "unjudged", "no document judged", "not pooled", "answered"]


def is_relevant(grade: int | None) -> bool:
    return grade is not None and grade >= RELEVANT_FROM


@dataclass(frozen=True, slots=True)
class Question:
    """A question that must be settled before a query has a label. doc_id: None if the question is about the query.

    what: one of these:

    - people disagree: on whether the grade is at least `relevant_from`, or on the need for retrieval.
    - cannot tell: all judges whose judgements count say that they cannot tell.
    - unjudged: the pair is pooled but not judged; or, if only people's judgements count, the need is not judged.
    - no document judged: the query has pooled documents, but none is judged.
    - not pooled: the query has no pooled documents.
    - answered: a document is relevant to an `unanswerable` query.
    """

    what: What
    query_id: str
    doc_id: str | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    grade: int
    basis: str


@dataclass(frozen=True, slots=True)
class Need:
    """Whether a query needs retrieval. basis: one of BASES, or DRAFTED."""

    needs: bool
    basis: str


@dataclass(frozen=True)
class Resolved:
    """Resolved judgements. grades: query_id -> doc_id -> grade, for all queries, without undecided pairs. needs:
    query_id -> need, without undecided needs. open: open questions, in the order of the queries."""

    grades: Mapping[str, Mapping[str, Grade]]
    needs: Mapping[str, Need]
    open: tuple[Question, ...]
    relevant_from: int

    @property
    def settled(self) -> set[str]:
        """Return the ids of queries without open questions."""
        return {*self.grades} - {one.query_id for one in self.open}

    def label(self, query: EvidencedQuery) -> Label:
        """Return the label of a query whose need is settled. Documents with a grade of at least `relevant_from` are
        relevant. The label of a query that needs no retrieval has no documents; the label of an unanswerable query has
        no relevant documents."""
        query_id = query.query.query_id
        need, judged = self.needs[query_id], self.grades[query_id]
        if not need.needs:
            return Label(query_id, False, {}, frozenset(), "none", need.basis)
        kind = "" if query.kind == "none" else query.kind  # A person overruled `none`: the query needs retrieval.
        found = {doc_id: float(one.grade) for doc_id, one in judged.items() if one.grade >= self.relevant_from}
        bases = {one.basis for one in judged.values()}
        basis = "+".join(one for one in BASES if one in bases)
        relevant = {} if kind == UNANSWERABLE else found
        return Label(query_id, True, relevant, frozenset(judged) - found.keys(), kind, basis)


def resolve(
    judgements: Iterable[Judgement],
    queries: Sequence[EvidencedQuery],
    pool: Iterable[PooledPair],
    relevant_from: int = RELEVANT_FROM,
    by: Literal["all", "model", "people"] = "all",
) -> Resolved:
    """Resolve judgements.

    The last adjudication of a pair decides. Without one, the first round of people's judgements decides: if its grades
    are all at least `relevant_from`, or all lower, the result is their lower median. The result is "cannot tell" only
    if all people say so. If no person has judged the pair, the last judgement by a model decides. Whether a query needs
    retrieval is resolved in the same way, but by people only; if none has judged it, the query's kind decides.

    judgements: from the earliest to the latest. pool: pairs that must be judged. Other judged pairs count, too.
    by: which judgements count. "all": every one; "model": those by models; "people": adjudications, and people's blind
        judgements for the audit. With "people", a query is settled only if people judged its need for retrieval and,
        if it needs retrieval, all of its pooled pairs.
    """
    by_id = {one.query.query_id: one.query for one in queries}
    judged = by_pair(current((one for one in judgements if _enters(one, by)), by_id))
    pairs: dict[str, dict[str, None]] = {query_id: {} for query_id in by_id}
    for pair in pool:
        if pair.query_id in pairs:
            pairs[pair.query_id][pair.doc_id] = None
    for query_id, doc_id in judged:
        if doc_id is not None:
            pairs[query_id][doc_id] = None
    grades: dict[str, dict[str, Grade]] = {}
    needs: dict[str, Need] = {}
    questions: list[Question] = []
    for one in queries:
        query_id = one.query.query_id
        need = _need(one, judged, drafted=by != "people")
        found = {
            doc_id: _grade(judged.get((query_id, doc_id), ()), relevant_from) for doc_id in sorted(pairs[query_id])
        }
        grades[query_id] = {doc_id: grade for doc_id, grade in found.items() if isinstance(grade, Grade)}
        if isinstance(need, Need):
            needs[query_id] = need
            questions += _questions(one, need, found, relevant_from)
        else:
            questions.append(Question(need, query_id))
    return Resolved(grades, needs, tuple(questions), relevant_from)


def _enters(one: Judgement, by: str) -> bool:
    checks = one.basis == HUMAN and one.sample == "audit" and one.blind
    return by == "all" or (one.basis == LLM if by == "model" else checks or one.basis == ADJUDICATED)


def _questions(
    query: EvidencedQuery, need: Need, found: Mapping[str, Grade | What], relevant_from: int
) -> Iterator[Question]:
    """Yield open questions about a query's documents. found: doc_id -> grade, or why it has none."""
    query_id = query.query.query_id
    if not need.needs:
        return
    if not found:
        yield Question("not pooled", query_id)
    elif all(one == "unjudged" for one in found.values()):
        yield Question("no document judged", query_id)
    else:
        for doc_id, one in found.items():
            if not isinstance(one, Grade):
                yield Question(one, query_id, doc_id)
            elif query.kind == UNANSWERABLE and one.grade >= relevant_from:
                yield Question("answered", query_id, doc_id)


def _need(query: EvidencedQuery, judged: Mapping[Pair, Sequence[Judgement]], drafted: bool) -> Need | What:
    found = _grade([one for one in judged.get((query.query.query_id, None), ()) if one.basis != LLM], 1)
    if isinstance(found, Grade):
        return Need(bool(found.grade), found.basis)
    return Need(query.kind != "none", DRAFTED) if drafted and found == "unjudged" else found


def _grade(group: Sequence[Judgement], relevant_from: int) -> Grade | What:
    """Return a pair's grade, or why it is undecided. A query's need for retrieval has the grade 1 (yes) or 0 (no)."""
    deciding = _deciding(group)
    if not deciding:
        return "unjudged"
    said = [one.needs if one.doc_id is None else one.grade for one in deciding]
    grades = sorted(int(one) for one in said if one is not None)
    if not grades:
        return "cannot tell"
    if grades[0] < relevant_from <= grades[-1]:
        return "people disagree"
    return Grade(grades[(len(grades) - 1) // 2], deciding[0].basis)


def _deciding(group: Sequence[Judgement]) -> Sequence[Judgement]:
    """Return the judgements that decide: the last adjudication, else people's first round, else the last by a model."""
    if len(group) == 1 and group[0].round == 1:  # a shortcut for most pairs
        return group
    ranked: dict[str, list[Judgement]] = {}
    for one in group:
        if one.round == 1 or one.basis == ADJUDICATED:
            ranked.setdefault(one.basis, []).append(one)
    if ADJUDICATED in ranked:
        return ranked[ADJUDICATED][-1:]
    return ranked.get(HUMAN) or ranked.get(LLM, [])[-1:]
