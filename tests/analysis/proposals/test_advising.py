"""Advice from lists and labels: bounds worked by hand, what is proposed and what is not, and command lines."""

from dataclasses import replace

import numpy as np
import pytest

from harness.analysis.proposals.advising import (
    BuiltRun,
    OtherRuns,
    advise,
    beyond,
    open_trials,
    part_ceilings,
    tried_values,
    untold,
)
from harness.analysis.proposals.catalogue import Setup, catalogue, perfect_gate, proposals
from harness.analysis.proposals.command_lines import CommandLine, words_of_run
from harness.analysis.proposals.costs import RATES, START, Workload
from harness.analysis.proposals.evidence import Lists, RunEvidence, rank_counts
from harness.config.components import recorded
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.data.scripts import Writing
from harness.experiment import timing
from harness.experiment.plan import Plan
from harness.measures.measures import parse_measure
from harness.recording.retrieval_run import retrieval_params
from harness.storage.cache import Cache
from harness.tracking.tracker import LoggedRun
from retrievers.base import Document, Query, Ranking, Turn

QRELS = Qrels({"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}, "q4": {}, "q5": {"e": 1}})
IDS = tuple(QRELS.grades)


def ranking(**lists):
    """Documents by query, the best first."""
    return Ranking.from_scores({one: {doc: -rank for rank, doc in enumerate(lists.get(one, ""))} for one in IDS})


# modified_map@3 of these lists: 1 for q1, 1/3 for q2 (rank 3), 0 for q3 (rank 5), q4 (shown, and needs none) and q5.
BM25 = ranking(q1="axyz", q2="xyb", q3="xyzwc", q4="xy", q5="xyz")
BIGRAM = ranking(q1="xa", q2="bx", q3="xyz", q4="z", q5="xe")
VALUES = np.array([1, 1 / 3, 0, 0, 0])
NEEDS = np.array([True, True, True, False, True])
SIGNAL = np.array([5.0, 4, 3, 2, 1])


def evidence(lists=None, **changes):
    found = RunEvidence(
        measure=parse_measure("modified_map@3"),
        top_k=3,
        qrels=QRELS,
        query_ids=IDS,
        needs=NEEDS,
        multi_turn=np.zeros(5, bool),
        values=VALUES,
        kept=np.ones(5),
        lists=lists or Lists(BM25, {"bm25": BM25}),
        signal=SIGNAL,
    )
    return replace(found, **changes)


def bounds(found, elsewhere=None):
    return {one.of.split(" (")[0]: pytest.approx(one.bound) for one in part_ceilings(found, elsewhere)}


def test_what_perfect_parts_would_add():
    # A gate that is right wins q4. The best order of what was found wins 2/3 of q2, and q3; all documents q5 as well.
    assert bounds(evidence()) == {
        "a ranking with all relevant documents first": (2 / 3 + 1 + 1) / 5,
        "the retrieved documents in the best order": (2 / 3 + 1) / 5,
        "a gate that is always right": 1 / 5,
    }
    both = evidence(Lists(BM25, {"bm25": BM25, "bigram": BIGRAM}))
    assert bounds(both)["the documents of all component rankings in the best order"] == (2 / 3 + 1 + 1) / 5
    # Another run solves q2 and q5, and is worse elsewhere; NaN: it has not scored q3.
    other = np.array([0, 1, np.nan, 0, 1])
    [last] = [one for one in part_ceilings(evidence(), other) if "(" in one.of]
    assert last.bound == pytest.approx((2 / 3 + 1) / 5)
    assert "on 2 queries, another run beats this one" in last.of


def test_queries_that_are_withheld_gain_nothing_by_other_rankings():
    # The gate withholds q2 always and q3 in half of the repetitions.
    withheld = evidence(kept=np.array([1, 0, 0.5, 0, 1]), values=np.array([1, 0, 0, 1, 0]))
    assert bounds(withheld)["a ranking with all relevant documents first"] == (0.5 + 1) / 5
    assert perfect_gate(withheld) == pytest.approx((1 / 3) / 5)  # q2 would be shown
    # A reranker reaches no deeper than it reads: q3's document is at rank 5.
    assert [evidence().reordered(depth).tolist()[:3] for depth in (4, 5)] == [[1, 1, 0], [1, 1, 1]]


def test_a_standard_measure_gains_nothing_by_withholding():
    measure, values = parse_measure("mrr@10"), np.array([1, 1 / 3])
    found = evidence(measure=measure, query_ids=("q1", "q2"), needs=NEEDS[:2], values=values, kept=np.ones(2),
                     multi_turn=np.zeros(2, bool), signal=None)  # fmt: skip
    assert not found.reads_shown
    assert perfect_gate(found) == 0
    assert bounds(found)["a ranking with all relevant documents first"] == (2 / 3) / 2


def test_where_relevant_documents_stand():
    bm25, bigram = rank_counts(evidence(Lists(BM25, {"bm25": BM25, "bigram": BIGRAM})))
    # Of BM25: q1; q2; q3, which bigram has not; q5 nowhere. Of bigrams: q2; q1 and q5; q3 nowhere.
    assert (tuple(bm25.found.values()), bm25.never, bm25.alone) == ((1, 2, 3, 3), 1, 1)
    assert (tuple(bigram.found.values()), bigram.never, bigram.alone) == ((1, 3, 3, 3), 1, 1)
    assert rank_counts(replace(evidence(), lists=None)) == []
    # AUROC of the signal: three of the four that need documents have more than q4's 2.
    assert [evidence(signal=one).auroc for one in (SIGNAL, np.ones(5), None)] == [3 / 4, 0.5, None]


LANGUAGES = {"HANGUL": "Korean", "LATIN": "English"}


def setup(*words, script="HANGUL", **changes):
    composed = CommandLine({}, {}).changed(dict(word.split("=") for word in words)).composed()
    given = {"encoders": ("lsa",), "evidence": evidence()} | changes
    writing = Writing(LANGUAGES[script], script)
    return Setup(Plan.of(composed.config), composed.invocation.choices, writing, 1000, **given)


def kinds(found):
    return [(one.kind, *(value for values in one.changes.values() for value in values)) for one in proposals(found)]


def of_kind(kind, found):
    return [one for one in proposals(found) if one.kind == kind]


def test_a_gate_is_proposed_where_queries_need_none():
    [auto] = [one for one in of_kind("gate", setup()) if one.changes == {"gate": ["auto"]}]
    assert auto.bound == pytest.approx(0.2)
    assert auto.bound * auto.share == pytest.approx(0.2 * 0.8 * (2 * 0.75 - 1))  # by how well the signal separates
    assert "1 of 1 query that need no documents still get some" in auto.why
    none_needless = evidence(needs=np.ones(5, bool), qrels=Qrels(QRELS.grades, abstention=False))
    assert not of_kind("gate", setup(evidence=none_needless))
    costly = evidence(kept=np.array([1, 0, 1, 1, 1]), values=np.array([1, 0, 0, 0, 0]))
    assert ("gate", "none") in kinds(setup("gate=score", "gate.threshold=5", evidence=costly))


def test_tokens_and_rankings_follow_the_script():
    assert kinds(setup(script="LATIN"))[0] == ("tokenizer", "snowball")
    assert ("tokenizer", "kiwi") not in kinds(setup())
    assert kinds(setup("tokenizer=word"))[0] == ("tokenizer", "kiwi")
    setups = [setup(script=script, evidence=evidence(signal=None)) for script in ("HANGUL", "LATIN")]
    korean, english = ([one.changes["retriever"][0] for one in of_kind("retriever", made)] for made in setups)
    assert korean[0] == "hybrid_light"
    assert "hybrid_lexical" not in english  # bigrams cost more than they bring
    assert "hybrid" in english


def test_only_what_can_win_something_is_proposed():
    perfect = evidence(Lists(ranking(q1="a", q2="b", q3="c", q5="e"), {}), values=np.ones(5), kept=NEEDS.astype(float))
    assert proposals(setup("gate=auto", evidence=perfect)) == []
    assert not of_kind("query", setup())
    conversations = evidence(multi_turn=np.array([False, False, True, True, False]))  # q4 needs no documents
    [one] = of_kind("query", setup(evidence=conversations))
    assert (one.changes, one.bound) == ({"query.text": ["last"]}, pytest.approx(1 / 5))


def test_fewer_documents_are_proposed_by_what_they_bring():
    # In the contest's MAP a late hit costs: [1, 0, 1] scores (1 + 2/3) / 2 and [1] scores 1.
    qrels = Qrels({"q1": {"a": 1, "b": 1}})
    one, none = np.ones(1, bool), np.zeros(1, bool)
    found = RunEvidence(parse_measure("modified_map@3"), 3, qrels, ("q1",), one, none, np.array([5 / 6]), np.ones(1),
                        Lists(Ranking.from_scores({"q1": {"a": 3, "x": 2, "b": 1}}), {}))  # fmt: skip
    fewer = {one.changes["top_k"][0]: one for one in of_kind("top_k", setup(evidence=found))}
    assert fewer.keys() == {"1", "2"}
    assert fewer["1"].bound == pytest.approx(1 / 6)
    assert fewer["1"].exact


def test_what_was_tried_in_vain_is_less_likely():
    def expected(varied):
        return next(one.expected for one in catalogue(setup(varied=varied)) if one.kind == "tokenizer")

    assert expected({"tokenizer": 2}) == pytest.approx(0.6**2 * expected({}))
    others = [{"tokenizer": "word"}, {"tokenizer": "kiwi"}]
    assert tried_values({"tokenizer": "kiwi", "gate": "none"}, others) == {"tokenizer": 1}


def test_without_evidence_the_usual_gain_alone_orders():
    """What a first run proposes, and what an automatic sweep tries."""
    first = setup(evidence=None, needless=10, conversations=2)
    assert of_kind("gate", first)[0].changes == {"gate": ["auto"]}
    assert of_kind("retriever", first)[0].changes == {"retriever": ["hybrid_light"]}
    assert {one.bound for one in proposals(first)} == {1.0}
    assert {"tokenizer", "query", "depth", "bm25"} <= {one.kind for one in catalogue(first)}
    plain = setup(evidence=None)
    assert of_kind("gate", plain) == of_kind("query", plain) == []
    assert of_kind("retriever", setup(evidence=None, script="LATIN"))[0].changes["encoder"] == ["lsa"]


def run(number, value, **changed):
    metrics = {"objective": value}
    tags = {"objective.name": "modified_map@3", "objective.kind": "in sample", "harness.verb": "run"}
    return LoggedRun(f"{number:032x}", f"run {number}", "e", "FINISHED", metrics, {"retriever": "bm25"} | changed, tags)


def test_numbers_that_are_best_at_the_end_go_on():
    # k1 = 0.6, 1.2, 2.4, each better on all queries by more than a standard error
    values = np.stack([VALUES - 0.1, VALUES - 0.2]) + np.arange(5) / 1000
    own, tried = {"retriever": "bm25", "retriever.bm25.k1": "2.4"}, ("1.2", "0.6")
    others = OtherRuns([run(n, 0.1, **{"retriever.bm25.k1": k1}) for n, k1 in enumerate(tried)], values)
    [one] = beyond(own, evidence(), others)
    assert one.changes == {"retriever.bm25.k1": ["4.8"]}
    assert one in proposals(setup(beyond=[one]))
    middle = {"retriever": "bm25", "retriever.bm25.k1": "0.9"}
    assert beyond(middle, evidence(), others) == []
    files = [replace(one, tags=one.tags | {"harness.verb": "score"}) for one in others.runs]  # without settings
    assert beyond(own, evidence(), OtherRuns(files, values)) == []


def test_runs_that_the_queries_do_not_tell_apart():
    near = OtherRuns([run(1, 0.2)], np.array([[1, 0, 0.2, 0, 0]]))  # two differences of five: no test can be sure
    assert untold(run(0, 0.2), evidence(), near).run == near.runs[0]
    assert untold(run(1, 0.2), evidence(), near) is None  # the run itself, or one that returns the same
    assert untold(run(0, 0.2), evidence(), OtherRuns([run(1, 0.2)], VALUES[None])) is None  # equal values
    assert untold(run(0, 0.2), evidence(), OtherRuns([], np.zeros((0, 5)))) is None


WORDS = [
    [],
    ["retriever=hybrid_lexical", "fusion.weights.bm25=0.5", "top_k=2"],
    ["tokenizer=char_ngram", "tokenizer.high=3", "retriever.bm25.k1=0.9"],
    ["retriever=hybrid", "encoder=lsa", "encoder.dimensions=64", "fusion=rrf"],
    ["dataset=squad", "dataset.path=a.json", "retriever=hybrid_lexical", "tokenizer=word"],
    ["gate=score", "gate.threshold=3.5", "dataset=contest", "dataset.path=my data", "objective=mrr@10"],
]


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
def test_the_words_of_a_logged_run_give_its_config(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = CommandLine({}, {}).changed(dict(word.split("=") for word in words))
    composed = given.composed()
    logged = {name: recorded(node) for name, node in composed.config.items() if name != "tracking"}
    params = retrieval_params(Plan.of(composed.config), composed.invocation.choices)
    logged_params = {name: str(value) for name, value in params.items()}
    found = words_of_run(logged_params, logged)
    assert set(found.words) == set(words)
    assert found.composed().config == composed.config


def test_changed_choices_keep_what_they_need_and_leave_out_what_only_others_had():
    words = CommandLine({"dataset": "squad"}, {"dataset.path": "a.json", "top_k": 2}).changed({"retriever": "hybrid"})
    assert words.words == ["dataset=squad", "retriever=hybrid", "dataset.path=a.json", "top_k=2"]
    words = CommandLine({"retriever": "hybrid_lexical"}, {"fusion.weights.bigram": 0.5, "top_k": 2})
    assert words.changed({"retriever": "hybrid"}).words == ["retriever=hybrid", "top_k=2"]
    assert words.changed({"top_k": "5"}).words == ["retriever=hybrid_lexical", "fusion.weights.bigram=0.5", "top_k=5"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """BM25 on three documents that have never been read."""
    texts = {"a": "달은 지구의 위성이다", "b": "물은 섭씨 100도에서 끓는다", "c": "빛은 빠르다"}
    documents = tuple(Document(name, text) for name, text in texts.items())
    queries = tuple(Query(one, (Turn("user", "달"),)) for one in IDS)
    line = CommandLine({"tokenizer": "word"}, {})
    data = Dataset("toy", documents, queries, Qrels({"q1": {"a": 1}, "q2": {"b": 1}}))
    return BuiltRun(line.composed(), line, data, Cache(tmp_path_factory.mktemp("cache")))


def test_costs_are_measured_once_this_machine_has_read_as_much(built):
    assert not built.cached
    costs = built.situation(built.evidence()).costs  # computes the rankings
    assert built.cached
    new = [built.line.changed({"retriever": "hybrid_lexical"}), built.line.changed({"tokenizer": "char_ngram"})]
    trials = [Plan.of(line.composed().config) for line in new]
    works = [Workload.of(trial, built.facts) for trial in trials]
    assert costs.cost([Workload.of(built.plan, built.facts)]).reason == "all rankings are cached"
    letters = sum(len(one.indexed_text) for one in built.dataset.documents) + len(built.dataset.queries)
    guess = costs.cost(works)  # the bigrams of hybrid_lexical are those of tokenizer=char_ngram
    untimed = "a guess, since tokenizer/char_ngram has not been timed on this machine yet"
    assert guess.reason == f"1 ranking to compute; {untimed}"
    assert guess.seconds == pytest.approx(START + letters * RATES["tokenizer/char_ngram"] / 1e6 + 2 * costs.arithmetic)
    rate = timing.Timing(1e6, 1e6, 1e6)  # a second for each letter
    timing.remember(built.cache, timing.reading(trials[1].tokenizer), rate)
    assert costs.cost(works).reason == "1 ranking to compute"
    assert costs.cost(works).seconds == pytest.approx(START + letters + 2 * costs.arithmetic)
    assert replace(costs, cache=None).cost(works).reason.startswith("2 rankings to compute; a guess, since tokenizer/w")
    assert costs.cost(works, made=works[1].makes).reason == "all rankings are cached"


@pytest.mark.slow
def test_advice_is_what_the_machine_can_try_and_nobody_has(built):
    situation = built.situation(built.evidence())
    first = advise(situation, 20)
    assert len({one.kind for one in first}) == len(first)  # one of each kind
    [retriever] = [one for one in first if one.kind == "retriever"]
    trials = [trial for one in of_kind("retriever", situation.setup) for trial in open_trials(situation, one)]
    [key] = [trial.key for trial in trials if trial.line.words == list(retriever.words)]
    again = advise(replace(situation, tried=frozenset([key])), 20)
    assert retriever.words not in [one.words for one in again]
    assert not any("rerank" in word or "bge" in word for one in first for word in one.words)  # no such model here
