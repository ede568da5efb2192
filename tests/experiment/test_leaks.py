"""Queries that stand word for word in documents."""

import pytest

from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.experiment import preflight
from retrievers.base import Document, Query, Ranking, Turn

QUESTIONS = [f"왜 달의 모양은 {number}월에 변해?" for number in range(20)]


def dataset(held, questions=QUESTIONS):
    """One document for each question; the first `held` of them hold it, in other cases and spaces."""
    texts = [f"FAQ:  {one.replace(' ', '  ')} 답." if n < held else f"답 {n}" for n, one in enumerate(questions)]
    documents = tuple(Document(f"d{n:02d}", text) for n, text in enumerate(texts))
    return Dataset("d", documents, tuple(Query.of(f"q{n:02d}", one) for n, one in enumerate(questions)), None)


def ranking(of):
    """Each query finds its own document."""
    return Ranking.from_scores({one.query_id: {one.query_id.replace("q", "d"): 1.0} for one in of.queries})


@pytest.mark.parametrize(("held", "told"), [(0, False), (2, False), (3, True), (20, True)])
def test_some_of_them_are_said_and_one_or_two_are_chance(held, told):
    of = dataset(held)
    said = list(preflight.notes(of, ranking(of)))
    assert bool(said) == told
    if told:
        assert said[0].startswith(f"{held} of 20 queries stand word for word in a document (q00 in d00, q01 in d01")


def test_relevant_documents_are_read_even_if_nothing_found_them():
    of = dataset(20)
    labelled = Dataset("d", of.documents, of.queries, Qrels({one.query_id: {"d00": 1.0} for one in of.queries}))
    nothing = Ranking.from_scores({one.query_id: {} for one in of.queries})
    assert preflight.copied(of, nothing)[0] == {}
    assert preflight.copied(labelled, nothing)[0] == {"q00": "d00"}


def test_short_queries_tell_nothing_and_of_a_conversation_the_last_turn_counts():
    short = dataset(20, [f"달 {number}" for number in range(20)])
    assert preflight.copied(short, ranking(short)) == ({}, 0)
    of = dataset(1)
    talk = Query("q00", (Turn("user", "안녕"), Turn("assistant", "네"), Turn("user", QUESTIONS[0])))
    assert preflight.copied(Dataset("d", of.documents, (talk,), None), ranking(of))[0] == {"q00": "d00"}
