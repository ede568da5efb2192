"""What a person is asked: all of an audit, a second round, suspicious pairs, and open questions."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from harness.data.testset import EvidencedQuery
from harness.testset.audit.auditing import AuditSample
from harness.testset.judge.judgements import JudgedSet, Judgement, JudgementLog, text_digest
from harness.testset.pool.pool import PooledPair
from harness.testset.review.desk import Desk, ReviewLedger, items, shuffled
from retrievers.base import Document, Query

KINDS = {"a": "fact", "b": "fact", "c": "none"}
QUERIES = {name: EvidencedQuery(Query.of(name, f"about {name}"), kind, (), "") for name, kind in KINDS.items()}
PAIRS = [
    PooledPair("a", "a1", {"run": 1}, seed=True),
    PooledPair("a", "a2", near_duplicate=True),
    PooledPair("a", "a3", pi=0.2),
    PooledPair("b", "b1", {"run": 1}),
    PooledPair("b", "b2", {"run": 2}),
    PooledPair("c", "c1", {"run": 1}),
]
SAMPLE = AuditSample(0, KINDS, ("a", "c"), ("a",))


def said(query_id, doc_id, grade=None, by="human:kim", **more):
    values = {"at": "2026-11-22T09:30:00Z", "sample": "" if by.startswith("llm") else "audit"} | more
    text = text_digest(QUERIES[query_id].query)
    return Judgement(query_id=query_id, text=text, doc_id=doc_id, grade=grade, by=by, **values)


def asked(sample, *judgements, reviewer="kim", audit=SAMPLE):
    return items(sample, reviewer, JudgedSet(QUERIES, PAIRS, judgements), audit)


def reasons(found):
    return Counter(found.values())


def pairs(found):
    return {(one.query_id, one.doc_id, one.round) for one in found}


ALL_OF_A = {("a", None, 1), ("a", "a1", 1), ("a", "a2", 1), ("a", "a3", 1)}
JUDGED_A = (said("a", None, needs=True), said("a", "a1", 3), said("a", "a2", 0), said("a", "a3", None))
JUDGED_C = (said("c", None, needs=False),)


def test_an_audit_asks_all_of_the_drawn_queries_with_the_need_first():
    found = asked("audit")
    assert pairs(found) == ALL_OF_A | {("c", None, 1), ("c", "c1", 1)}
    assert {one.sample for one in found} == {"audit"}
    assert {(one.query_id, one.pi) for one in found} == {("a", 0.5), ("c", 1.0)}
    places = [(one.query_id, one.doc_id) for one in found]
    for query_id in ("a", "c"):
        own = [place for place, (query, _) in enumerate(places) if query == query_id]
        assert own == list(range(own[0], own[-1] + 1)), "a query's questions stand together"
        assert places[own[0]] == (query_id, None)
    assert reasons(found) == {"first round": 6}


def test_what_a_person_has_judged_is_not_asked_again_and_documents_of_no_use_neither():
    found = asked("audit", *JUDGED_A[:2], *JUDGED_C, reviewer="lee")
    assert {one for one in pairs(found) if one[2] == 1} == {("a", "a2", 1), ("a", "a3", 1)}
    elsewhere = replace(JUDGED_A[1], sample="repair"), said("a", None, needs=True, by="llm:m#1")
    assert pairs(asked("audit", *elsewhere)) == pairs(asked("audit")), (
        "for repair nothing is drawn; models are not asked"
    )
    both = (said("c", None, needs=False), said("c", None, needs=True, by="human:lee"))
    assert ("c", "c1", 1) in pairs(asked("audit", *both))
    assert ("c", "c1", 1) not in pairs(asked("audit", *both, said("c", None, needs=False, by="adjudicated:ann")))


def test_the_second_round_is_for_another_person_and_for_the_same_one_at_the_end():
    again = {(query, doc, 2) for query, doc, _ in ALL_OF_A}
    assert pairs(asked("audit", *JUDGED_A)) == {("c", None, 1), ("c", "c1", 1)}
    lee = asked("audit", *JUDGED_A, reviewer="lee")
    assert pairs(lee) == again | {("c", None, 1), ("c", "c1", 1)}
    assert [one.round for one in lee] == [1, 1, 2, 2, 2, 2]
    assert reasons(lee) == {"second round": 4, "first round": 2}
    own = asked("audit", *JUDGED_A, *JUDGED_C)
    assert pairs(own) == again
    twice = [replace(one, round=2, by="human:lee") for one in JUDGED_A]
    assert pairs(asked("audit", *JUDGED_A, *JUDGED_C, *twice)) == set()


def test_pairs_that_the_pool_gains_are_all_that_is_asked():
    done = (*JUDGED_A, *JUDGED_C, *(replace(one, round=2) for one in JUDGED_A))
    more = JudgedSet(QUERIES, [*PAIRS, PooledPair("a", "a9", {"new": 1}), PooledPair("b", "b9", {"new": 1})], done)
    assert pairs(items("audit", "kim", more, SAMPLE)) == {("a", "a9", 1)}


def by_model(*grades, by="llm:m#1"):
    ids = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]
    return [said(*pair, grade, by) for pair, grade in zip(ids, grades, strict=False)]


@pytest.mark.parametrize(
    ("grades", "suspicious"),
    [
        ((3, 3, 0, 0, 1), {}),
        ((1, 1, 0, 0, 0), {"the query was drafted from the document, but the model finds it irrelevant": {"a1"}}),
        ((3, 3, 0, 3, None), {"no grade by the model": {"b2"}}),
        ((3, 3, 2, 0, 0), {"the model finds the document relevant, but no run ranks it high": {"a3"}}),
        ((3, 1, 0, 0, 0), {"the query was drafted from a near-duplicate that the model graded differently": {"a2"}}),
    ],
)
def test_suspicious_pairs(grades, suspicious):
    found = asked("repair", *by_model(*grades))
    assert reasons(found) == {why: len(ids) for why, ids in suspicious.items()}
    assert {one.doc_id for one in found} == set().union(*suspicious.values())
    assert all((one.sample, one.pi, one.round) == ("repair", 1.0, 1) for one in found)


def test_two_models_that_differ_are_suspicious_and_the_queries_with_most_pairs_come_first():
    first, last = by_model(3, 3, 0, 1, 0), by_model(3, 3, 0, 2, 1, by="llm:other#2")
    assert reasons(asked("repair", *first, *last)) == {"two models differ": 1}  # 0 and 1 are on the same side
    assert not asked("repair", *first, *last, said("b", "b1", 2))
    for reviewer in ("kim", "lee", "ann", "bo"):
        found = asked("repair", *by_model(1, 2, 2, None), reviewer=reviewer)
        assert [one.query_id for one in found] == ["a", "a", "a", "b"]


def test_all_is_what_no_person_has_judged():
    of_b = {("b", doc_id, 1) for doc_id in (None, "b1", "b2")}
    assert pairs(asked("all", *by_model(1, 1, 1, 1, 1))) == ALL_OF_A | of_b | {("c", None, 1), ("c", "c1", 1)}
    assert pairs(asked("all", *JUDGED_A, *JUDGED_C)) == of_b


def test_open_questions_are_what_people_disagree_about_or_the_last_judge_cannot_tell():
    other = (said("a", "a1", 0, "human:lee"), said("b", None, needs=True, sample="all"), said("b", "b1", sample="all"))
    found = asked("open", *JUDGED_A, *JUDGED_C, *other, said("b", "b2", None, "llm:m#1"))
    assert pairs(found) == {("a", "a1", 1), ("a", "a3", 1), ("b", "b1", 1), ("b", "b2", 1)}
    assert reasons(found) == {"cannot tell": 3, "people disagree": 1}
    assert {(one.query_id, one.sample, one.pi) for one in found} == {("a", "audit", 0.5), ("b", "repair", 1.0)}


def test_an_answer_to_an_unanswerable_query_is_asked_about_once():
    queries = {**QUERIES, "b": replace(QUERIES["b"], kind="unanswerable")}
    answered = said("b", "b1", 3, "llm:m#1"), said("b", "b2", 0, "llm:m#1")
    assert pairs(items("open", "kim", JudgedSet(queries, PAIRS, answered))) == {("b", "b1", 1)}
    settled = said("b", "b1", 2, "adjudicated:kim", blind=False)
    assert not items("open", "kim", JudgedSet(queries, PAIRS, (*answered, settled)))


def test_the_order_depends_on_names_and_ids_alone():
    found = asked("audit")
    assert shuffled(reversed(found), "kim") == list(found)
    orders = {tuple(one.pair for one in asked("audit", reviewer=name)) for name in "abcdefgh"}
    assert len(orders) > 4


@pytest.mark.parametrize("sample", ["all", "audit"])
def test_nothing_tells_who_ranked_or_judged_a_document(sample, tmp_path):
    """All that the server may send is the same if other runs rank the documents, and others say the opposite."""

    def told(pairs, grade):
        judges = ("llm:secret-model#1", "human:secret-lee")
        others = [said(one.query_id, one.doc_id, grade, by) for one in pairs[:3] for by in judges]
        judged, queries = JudgedSet(QUERIES, pairs, others), {name: one.query for name, one in QUERIES.items()}
        documents = {one.doc_id: Document(one.doc_id, "about the sea") for one in pairs}
        ledger = ReviewLedger(JudgementLog(tmp_path), queries, ["human:kim"])
        desk = Desk("human:kim", items(sample, "kim", judged, SAMPLE), judged, documents, ledger)
        keys = [key for group in desk.items()["queries"] for key in group]
        return json.dumps([desk.items(), desk.texts(keys), desk.found("sea"), desk.changes(0)])

    opposite = [
        PooledPair(one.query_id, one.doc_id, {"secret-run": 9}, not one.seed, not one.near_duplicate, 1.2 - one.pi)
        for one in PAIRS
    ]
    assert told(PAIRS, 3) == told(opposite, 0)
    assert "about the sea" in told(opposite, 3)
    assert not any(word in told(opposite, 3) for word in ("secret", "fact", '"a1"'))
