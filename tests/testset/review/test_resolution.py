"""What judgements come to: who decides, what stays open, and the labels that follow."""

import pytest

from harness.data.labels import qrels_of
from harness.data.testset import EvidencedQuery
from harness.testset.judge.judgements import Judgement, text_digest
from harness.testset.pool.pool import PooledPair
from harness.testset.review.resolution import Grade, Need, Question, resolve
from retrievers.base import Query

KIM, LEE, CHIEF, MODEL, OTHER = "human:kim", "human:lee", "adjudicated:chief", "llm:small#1", "llm:large#1"


def query(query_id, kind="fact"):
    return EvidencedQuery(Query.of(query_id, f"question {query_id}"), kind, (), "")


def said(query_id, doc_id, grade, by, **more):
    """A judgement; of a query's need for retrieval if doc_id is None."""
    needs = grade if doc_id is None else None
    more = {"sample": "" if by.startswith("llm") else "audit"} | more
    text = text_digest(Query.of(query_id, f"question {query_id}"))
    return Judgement(query_id, text, doc_id, None if doc_id is None else grade, by, "2026-01-01", needs, **more)


def pool(*pairs):
    return [PooledPair(*pair.split("/")) for pair in pairs]


WHO = [  # judgements of the pair q/d, and what they come to at relevant_from=2
    ([], "no document judged"),
    ([(1, MODEL)], Grade(1, "llm")),
    ([(1, MODEL), (3, OTHER)], Grade(3, "llm")),  # the last model counts
    ([(1, MODEL), (3, OTHER), (0, MODEL)], Grade(0, "llm")),  # it was asked again
    ([(3, OTHER), (None, MODEL)], "cannot tell"),
    ([(0, KIM), (3, MODEL)], Grade(0, "human")),
    ([(2, KIM), (3, LEE)], Grade(2, "human")),  # the lower median of both
    ([(0, KIM), (1, LEE)], Grade(0, "human")),
    ([(2, KIM), (3, LEE), (3, "human:park")], Grade(3, "human")),
    ([(1, KIM), (2, LEE)], "people disagree"),
    ([(1, KIM), (2, LEE), (2, "human:park")], "people disagree"),  # nobody is outvoted
    ([(1, KIM), (2, LEE), (0, CHIEF)], Grade(0, "adjudicated")),
    ([(1, KIM), (2, LEE), (0, CHIEF), (3, CHIEF)], Grade(3, "adjudicated")),
    ([(2, KIM), (None, CHIEF)], "cannot tell"),
    ([(None, KIM), (3, MODEL)], "cannot tell"),  # a model does not know better
    ([(None, KIM), (3, LEE)], Grade(3, "human")),
    ([(3, KIM), (0, KIM)], Grade(0, "human")),  # kim has changed it
]


@pytest.mark.parametrize(("given_grades", "expected"), WHO)
def test_who_decides(given_grades, expected):
    judgements = [said("q", "d", grade, by) for grade, by in given_grades]
    found = resolve(judgements, [query("q")], pool("q/d"))
    if isinstance(expected, Grade):
        assert found.grades == {"q": {"d": expected}}
        assert (found.open, found.settled) == ((), {"q"})
    else:
        assert [one.what for one in found.open] == [expected]
        assert (found.grades, found.settled) == ({"q": {}}, set())


def test_second_rounds_withdrawn_judgements_and_those_of_another_text_do_not_count():
    late = said("q", "d", 0, KIM, round=2)
    taken_back = [said("q", "d", 0, LEE), said("q", "d", 0, LEE, withdrawn=True)]
    other_text = Judgement("q", "000000000000", "d", 0, "human:park", "2026-01-01T00:00:00Z")
    found = resolve([said("q", "d", 3, KIM), late, *taken_back, other_text], [query("q")], pool("q/d"))
    assert found.grades["q"]["d"] == Grade(3, "human")


NEEDS = [  # kind, judgements of the need, what they come to
    ("fact", [], Need(True, "draft")),
    ("none", [], Need(False, "draft")),
    ("fact", [(False, KIM)], Need(False, "human")),
    ("none", [(False, KIM)], Need(False, "human")),
    ("fact", [(False, MODEL)], Need(True, "draft")),  # models are not asked
    ("fact", [(False, KIM), (True, LEE)], "people disagree"),
    ("fact", [(False, KIM), (True, LEE), (True, CHIEF)], Need(True, "adjudicated")),
    ("fact", [(None, KIM)], "cannot tell"),
]


@pytest.mark.parametrize(("kind", "given_needs", "expected"), NEEDS)
def test_whether_a_query_needs_retrieval(kind, given_needs, expected):
    judgements = [said("q", None, needs, by) for needs, by in given_needs] + [said("q", "d", 2, MODEL)]
    found = resolve(judgements, [query("q", kind)], pool("q/d"))
    if isinstance(expected, Need):
        assert found.needs == {"q": expected}
        assert found.open == ()
    else:
        assert found.open == (Question(expected, "q"),)


def test_open_questions_of_queries():
    queries = [query("drafted"), query("unpooled"), query("half"), query("lacks", "unanswerable"),
               query("greeting", "none"), query("asked", "none"), query("thanks", "none")]  # fmt: skip
    judgements = [
        said("half", "a", 0, MODEL),
        said("lacks", "a", 1, MODEL), said("lacks", "b", 2, MODEL),
        said("asked", None, True, KIM),
        said("thanks", None, True, KIM), said("thanks", "a", 2, KIM),
    ]  # fmt: skip
    pooled = [one.query.query_id for one in queries if one.query.query_id != "unpooled"]
    found = resolve(judgements, queries, pool(*(f"{one}/{doc}" for one in pooled for doc in "ab")))
    assert found.open == (
        Question("no document judged", "drafted"),
        Question("not pooled", "unpooled"),
        Question("unjudged", "half", "b"),
        Question("answered", "lacks", "b"),
        Question("no document judged", "asked"),  # a person says that it needs retrieval
        Question("unjudged", "thanks", "b"),
    )
    assert found.settled == {"greeting"}


def test_labels():
    queries = [query("q1"), query("q2"), query("q3"), query("none", "none"), query("asked", "none"), query("q4"),
               query("lacks", "unanswerable")]  # fmt: skip
    judgements = [
        said("q1", "a", 3, KIM), said("q1", "b", 2, MODEL), said("q1", "c", 1, MODEL), said("q1", "d", 0, CHIEF),
        said("q2", "a", 1, MODEL),
        said("q3", "a", 3, MODEL), said("q3", None, False, KIM),
        said("asked", "a", 2, KIM), said("asked", None, True, KIM),
        said("q4", "a", 2, MODEL), said("q4", "b", 1, KIM),
        said("lacks", "a", 1, MODEL),
    ]  # fmt: skip
    found = resolve(judgements, queries, [])
    labels = {one.query.query_id: found.label(one) for one in queries}
    said_of = {key: (x.needs, x.kind, dict(x.relevant), x.not_relevant, x.basis) for key, x in labels.items()}
    assert said_of == {
        "q1": (True, "fact", {"a": 3, "b": 2}, {"c", "d"}, "adjudicated+human+llm"),
        "q2": (True, "fact", {}, {"a"}, "llm"),
        "q3": (False, "none", {}, set(), "human"),  # whatever the model thinks of its documents
        "none": (False, "none", {}, set(), "draft"),
        "asked": (True, "", {"a": 2}, set(), "human"),
        "q4": (True, "fact", {"a": 2}, {"b"}, "human+llm"),
        "lacks": (True, "unanswerable", {}, {"a"}, "llm"),
    }  # fmt: skip
    qrels = qrels_of(labels.values())
    assert qrels.unmet == {"q2"}, "it needs retrieval, and what was found is of no use"
    assert qrels.needs_retrieval("q2")
    assert not qrels.needs_retrieval("q3")
    stricter = resolve(judgements, queries, [], relevant_from=3)
    assert dict(stricter.label(queries[0]).relevant) == {"a": 3}
    assert stricter.label(queries[0]).not_relevant == {"b", "c", "d"}


def test_a_model_alone_and_people_alone():
    queries = [query("q1"), query("q2"), query("q3"), query("none", "none")]
    judgements = [
        *(said(one, doc, grade, MODEL) for one in ("q1", "q2", "q3") for doc, grade in (("a", 3), ("b", 0))),
        said("q1", "a", 1, KIM), said("q1", "b", 2, KIM), said("q1", None, True, KIM),
        said("q1", "b", 0, KIM, sample="repair"),  # a repair improves labels, and is no check
        said("q2", "a", 2, KIM), said("q2", "b", 2, KIM),  # nobody was asked whether it needs retrieval
        said("q1", "a", 3, LEE, blind=False),  # who saw the model's grade
        said("q3", "a", 3, KIM, sample="repair"), said("q3", "b", 2, KIM, sample="all"), said("q3", None, True, KIM),
        said("none", None, False, KIM),
    ]  # fmt: skip
    pairs = pool(*(f"{one}/{doc}" for one in ("q1", "q2", "q3") for doc in "ab"))
    model = resolve(judgements, queries, pairs, by="model")
    assert model.open == ()
    assert dict(model.label(queries[0]).relevant) == {"a": 3}
    people = resolve(judgements, queries, pairs, by="people")
    assert people.settled == {"q1", "none"}
    assert people.open == (Question("unjudged", "q2"), Question("no document judged", "q3"))
    assert dict(people.label(queries[0]).relevant) == {"b": 2}
    assert resolve(judgements, queries, pairs).grades["q1"]["b"].grade == 0, "the repair counts for labels"
    assert Question("people disagree", "q1", "a") in resolve(judgements, queries, pairs).open
