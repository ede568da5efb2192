"""What an audit compares: whose judgements enter, of which queries, and which of them count."""

import json
import math

import pytest
from judged_sets import judged_set

from harness.testset.audit.auditing import audited, read_audit
from harness.testset.judge.judgements import Judgement, JudgementLog, read_judged_set, text_digest
from harness.testset.pool.pool import read_pool

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
