"""Audits: the queries that people check, whose judgements count, and what is compared."""

import json
import math

import numpy as np
import pytest
from judged_sets import judged_set

from harness.data.testset import EvidencedQuery
from harness.errors import BadInput
from harness.testset.audit.auditing import AUDIT, apportion, audited, draw, draw_sample, read_audit, spreads
from harness.testset.judge.judgements import JudgedSet, Judgement, JudgementLog, read_judged_set, text_digest
from harness.testset.pool.pool import PooledPair, read_pool
from retrievers.base import Query

MODEL, KIM, LEE = "llm:judge#0123abcd", "human:kim", "human:lee"


@pytest.fixture
def made(tmp_path):
    """8 topics: 0 fact, 1 search, 2 conversation, 3 unanswerable, 4 fact, 5 search, 6 none, 7 conversation. Six of them
    are drawn, all but 5 and 7, and each kind is a stratum."""
    found = judged_set(tmp_path)
    found.pool()
    found.judge(MODEL)
    drawn = [found.query_ids[one] for one in (6, 0, 3, 4, 1, 2)]
    content = {"seed": 0, "strata": found.kinds, "drawn": drawn, "twice": drawn[:1]}
    (found.folder / "audit.json").write_text(json.dumps(content))
    return found


def checked_by(made, by, *topics, **more):
    made.judge(by, [made.query_ids[one] for one in topics], needs=True, **({"sample": "audit"} | more))


def say(made, by, topic, doc_id, grade=None, needs=None, **more):
    query = made.queries[made.query_ids[topic]]
    one = Judgement(query.query_id, text_digest(query), doc_id, grade, by, "2026-11-23T00:00:00Z", needs, **more)
    JudgementLog(made.folder).append([one])


def shown(made, relevant_from=2):
    return audited(read_judged_set(made.folder), read_audit(made.folder), relevant_from)


def test_judges_who_say_the_same_agree_and_each_kind_is_shown(made):
    checked_by(made, KIM, 0, 1, 2, 3, 4, 6)
    found = shown(made)
    assert (len(found.progress.checked), found.progress.drawn, found.progress.stand_for) == (6, 6, 8)
    assert found.model.statistics["kappa"].value == 1
    assert sorted(found.kinds) == ["conversation", "fact", "search", "unanswerable"]  # no model judges kind none
    assert math.isnan(found.kinds["unanswerable"].statistics["kappa"].value)
    assert (found.models, found.people, found.alpha, found.again) == (("judge#0123abcd",), (), None, None)
    pairs = sum(len(read_pool(made.folder).by_query[made.query_ids[one]]) for one in (0, 1, 2, 3, 4))
    assert sum(map(sum, found.model.counts)) == found.model.statistics["agreed"].pairs == pairs


def test_only_queries_that_are_checked_in_full_for_the_audit_and_blind_count(made):
    checked_by(made, KIM, 0, 4)
    checked_by(made, KIM, 3, sample="repair")
    checked_by(made, KIM, 2, blind=False)
    pool = read_pool(made.folder).by_query
    say(made, KIM, 1, pool[made.query_ids[1]][0].doc_id, 0, sample="audit")  # one pair of topic 1, and not its need
    found = shown(made)
    assert found.progress.checked == (made.query_ids[0], made.query_ids[4])  # in the order of the draw
    assert found.progress.stand_for == 2  # the stratum fact
    assert found.progress.not_blind == 1 + len(pool[made.query_ids[2]])
    assert set(found.kinds) == {"fact"}


def test_people_are_compared_with_each_other_and_with_themselves(made):
    checked_by(made, KIM, 0, 4, 1, 2)
    checked_by(made, LEE, 0, round=2)
    checked_by(made, KIM, 4, round=2)
    say(made, KIM, 4, made.doc_ids[4][1], 2, sample="audit", round=2)  # 3 the first time: relevant, both times
    say(made, LEE, 0, made.doc_ids[0][1], 1, sample="audit", round=2)  # kim says 3
    found = shown(made)
    [both] = found.people
    assert (both.first, both.second) == ("kim", "lee")
    assert both.counts[3][1] == 1
    assert sum(map(sum, both.counts)) == len(read_pool(made.folder).by_query[made.query_ids[0]])
    assert found.again.counts[3][2] == 1
    assert found.again.statistics["kappa"].value == 1
    assert found.again.statistics["quadratic_kappa"].value < 1
    assert found.alpha.value < 1
    assert found.model.statistics["kappa"].value == 1  # the first round alone is what people say


def test_the_model_that_judged_last_counts_and_the_threshold_is_given(made):
    checked_by(made, KIM, 0, 4)
    made.judge("llm:lenient#9999ffff", grade=lambda query_id, doc_id: max(1, made.truth(query_id, doc_id)))
    found = shown(made)
    assert found.models == ("lenient#9999ffff",)
    assert found.model.statistics["specificity"].value == 1
    assert shown(made, relevant_from=1).model.statistics["specificity"].value == 0


def test_needs_are_compared_with_the_kinds_of_the_drafts(made):
    checked_by(made, KIM, 0, 1, 2, 4, 6)
    say(made, KIM, 4, None, needs=False, sample="audit")
    found = shown(made)
    assert found.needs.counts == ((1, 1), (0, 3))  # people, draft: none/none; topic 4: no, yes; the rest
    assert found.differing == (made.query_ids[4],)
    # Both fact queries were checked: strata of 2, 2, 2 and 1 queries, one or two of each checked; 4 differs, which
    # stands for itself: 1 of 1 + 2 + 2 + 2 (search, conversation) queries; the stratum none is one query.
    assert found.needs.statistics["agreed"].value == pytest.approx(1 - 1 / 7)


MANY = ["fact"] * 60 + ["search"] * 30 + ["none"] * 30


def queries(kinds):
    return {f"q{n:03}": EvidencedQuery(Query.of(f"q{n:03}", f"text {n}"), kind, (), "") for n, kind in enumerate(kinds)}


def said(query, doc_id, **more):
    values = {"grade": None, "by": "human:kim", "at": "2026-11-22T09:30:00Z", "sample": "audit"} | more
    return Judgement(query_id=query.query_id, text=text_digest(query), doc_id=doc_id, **values)


def graded(kinds=MANY, people=(), differ=lambda query_id: False):
    """Each query has three documents, ranked 1 to 3 by one run. The model finds the n-th of them relevant for query n
    modulo 3, so that a third of the queries is easy. People agree with it; where they differ, nothing is relevant."""
    asked = queries(kinds)
    pairs, judgements = [], []
    for n, (query_id, one) in enumerate(asked.items()):
        for rank in (1, 2, 3):
            pairs.append(PooledPair(query_id, f"d{rank}", {"run": rank}))
            grade = 3 if rank == n % 3 + 1 else 0
            if one.kind != "none":
                judgements.append(said(one.query, f"d{rank}", grade=grade, by="llm:judge#01", sample=""))
            if query_id in people:
                grade = 0 if differ(query_id) else grade
                judgements.append(said(one.query, f"d{rank}", grade=grade))
        if query_id in people:
            judgements.append(said(one.query, None, needs=one.kind != "none"))
    return JudgedSet(asked, pairs, judgements)


THIRDS = ("easy", "medium", "hard")


def test_strata_are_kinds_with_thirds_by_difficulty_and_unjudged_queries_apart():
    sample = draw_sample(None, graded(), 40, 0)
    thirds = {f"{kind}/{level}": size for kind, size in {"fact": 20, "search": 10}.items() for level in THIRDS}
    assert sample.sizes == {**thirds, "none": 30}
    for query_id, stratum in sample.strata.items():
        level = THIRDS[int(query_id[1:]) % 3]
        assert stratum in ("none", f"fact/{level}", f"search/{level}")
    full = graded()
    some = [one for one in full.judgements if one.query_id not in ("q000", "q001")]
    sample = draw_sample(None, JudgedSet(full.queries, full.pairs, some), 40, 0)
    assert sample.sizes["fact/unjudged"] == 2
    assert set(draw_sample(None, JudgedSet(full.queries, full.pairs, ()), 40, 0).sizes) == {"fact", "search", "none"}


@pytest.mark.parametrize(
    ("size", "strata"),
    [
        (6, {"fact", "search", "none"}),  # of 120 queries: fact gives 3, search and none 1.5
        (12, {"fact/easy", "fact/medium", "fact/hard", "search", "none"}),  # fact 6, search 3
        (16, {"fact/easy", "fact/medium", "fact/hard", "search/easier", "search/harder", "none"}),
    ],
)
def test_a_kind_is_divided_only_if_each_part_gives_two(size, strata):
    assert set(draw_sample(None, graded(), size, 0).sizes) == strata


def test_the_pilot_comes_first_and_the_rest_where_people_and_the_model_differ_more():
    first = draw_sample(None, graded(), 40, 0)
    assert len(first.drawn) == 10
    assert first.counts["none"] == 2  # 10 * 30 / 120 = 2.5
    assert draw_sample(first, graded(people=first.drawn[:9]), 40, 0) == first
    rest = draw_sample(first, graded(people=first.drawn), 40, 0)
    assert rest.drawn[:10] == first.drawn
    assert len(rest.drawn) == 40
    assert rest.strata == first.strata
    assert rest.counts["none"] == 10  # people and model agree in all: in proportion to the sizes
    assert len(rest.twice) == 8
    assert {*first.twice} < {*rest.twice} <= {*rest.drawn}
    odd = [one for one in first.drawn if first.strata[one].startswith("fact")][::2]
    differing = draw_sample(first, graded(people=first.drawn, differ=lambda one: one in odd), 40, 0)
    assert set(differing.drawn) != set(rest.drawn)
    assert min(differing.counts.values()) >= 2
    assert sum(1 / differing.pi(one) for one in differing.drawn) == pytest.approx(120)  # weights give back all queries


def test_a_larger_audit_contains_the_smaller_one():
    pilot = draw_sample(None, graded(), 30, 0)
    small = draw_sample(pilot, graded(people=pilot.drawn), 30, 0)
    large = draw_sample(small, graded(people=small.drawn), 60, 0)
    assert large.drawn[:30] == small.drawn
    assert {*large.twice} & {*small.drawn} == {*small.twice}
    assert draw_sample(large, graded(people=large.drawn), 20, 0) == large
    assert set(draw_sample(large, graded(people=large.drawn), 500, 0).drawn) == {*large.strata}


def test_added_queries_are_strata_of_their_own_and_those_that_left_are_gone():
    pilot = draw_sample(None, graded(), 40, 0)
    more = graded([*MANY, *["fact"] * 30])
    later = draw_sample(pilot, more, 40, 0)
    assert later.drawn == pilot.drawn
    assert {later.strata[f"q{n}"] for n in range(120, 150)} == {f"fact/{level}/added 1" for level in THIRDS}
    again = draw_sample(later, graded([*MANY, *["fact"] * 32]), 40, 0)
    assert {again.strata[f"q{n}"] for n in (150, 151)} == {"fact/added 2"}
    fewer = graded(MANY[:90])
    left = draw_sample(pilot, fewer, 40, 0)
    assert set(left.strata) == set(fewer.queries)
    assert left.drawn == tuple(one for one in pilot.drawn if one in fewer.queries)


def test_the_weighted_mean_is_right_and_the_plain_one_is_not():
    """Strata with other means, drawn from unequally: sum of W_s mean_s is right on average, the mean of all is not."""
    draws = np.random.default_rng(0)
    sizes, means = np.array([150, 100, 50]), np.array([0.9, 0.5, 0.1])
    people = [
        np.clip(draws.normal(mean, 0.05 + 0.3 * (mean < 0.5), size), 0, 1)
        for size, mean in zip(sizes, means, strict=True)
    ]
    truth = np.concatenate(people).mean()
    weighted, plain = [], []
    for _ in range(2000):
        mixed = [draws.permutation(one) for one in people]
        pilot = apportion(sizes.tolist(), [0] * 3, sizes.tolist(), 10)
        weights = sizes * spreads([one[:n] for one, n in zip(mixed, pilot, strict=True)], "abc")
        counts = apportion(weights.tolist(), pilot, sizes.tolist(), 40)
        found = [one[:n] for one, n in zip(mixed, counts, strict=True)]
        weighted.append(sum(one.mean() * size for one, size in zip(found, sizes, strict=True)) / sizes.sum())
        plain.append(np.concatenate(found).mean())
    assert abs(np.mean(weighted) - truth) < 0.003
    assert abs(np.mean(plain) - truth) > 0.03


@pytest.mark.parametrize(
    ("weights", "least", "most", "total", "counts"),
    [
        ((53, 24, 23), (0, 0, 0), (99, 99, 99), 7, [3, 2, 2]),  # 106, 48, 46, 35.3, 21.2, 16, 15.3
        ((1, 1), (3, 0), (9, 9), 4, [3, 1]),
        ((1, 9), (0, 0), (9, 2), 5, [3, 2]),
        ((0, 1), (0, 0), (9, 9), 3, [0, 3]),
        ((0, 0), (1, 0), (9, 9), 3, [1, 0]),
        ((1, 1), (5, 5), (2, 9), 3, [2, 5]),
    ],
)  # fmt: skip
def test_apportioning(weights, least, most, total, counts):
    assert apportion(weights, least, most, total) == counts


def test_spreads():
    """Of 0, 1 | 0.5, 0.5, 0.5 | - | 0.5: the variance of all is 0.5 / 5 = 0.1. Group x, the first two:
    (0.5 + 2 * 0.1) / (4 + 2). Group y: (0 + 2 * 0.1) / (0 + 2)."""
    x, y = 0.7 / 6, 0.1
    assert spreads([[0, 1], [0.5, 0.5, 0.5], [], [0.5]], "xxyy") == pytest.approx(
        np.sqrt([(0.5 + 2 * x) / 3, 2 * x / 4, y, y])
    )
    assert spreads([[1, 1], [1]], "xy") == spreads([[1], []], "xy") == [1, 1]


def test_the_file_is_what_was_drawn(tmp_path):
    sample = draw(tmp_path, graded(), 40, 7)
    assert read_audit(tmp_path) == sample == draw(tmp_path, graded(), 40, 7)
    with pytest.raises(BadInput, match=r"audit\.seed=8, but .*audit\.json was drawn with 7"):
        draw(tmp_path, graded(), 40, 8)
    assert read_audit(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"drawn": ["q9"]}, "drawn has 'q9', which is not in strata"),
        ({"drawn": ["q1", "q1"]}, "drawn has 'q1' twice"),
        ({"twice": ["q2"]}, "twice has 'q2', which is not in drawn"),
    ],
)
def test_wrong_files(tmp_path, change, says):
    content = {"seed": 0, "strata": {"q1": "fact", "q2": "fact"}, "drawn": ["q1"], "twice": []} | change
    (tmp_path / AUDIT).write_text(json.dumps(content))
    with pytest.raises(BadInput) as refused:
        read_audit(tmp_path)
    assert says in str(refused.value)
    assert AUDIT in str(refused.value)
