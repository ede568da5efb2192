"""Signals by hand and against plain loops, what a gate may try, and random queries."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fakes import FakeInputs
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.gates.signals import SIGNALS, random_queries, signal_choices, signal_of, signal_spec
from retrievers.base import Query, Ranking

RANKED = [name for name, spec in SIGNALS.items() if spec.reads == "ranking" and not spec.slow]


# q1: 5, 3, 1.  q2: one document, 2.  q3: nothing.  q4: three equal scores.  K = 3.
RANKING = Ranking.from_scores(
    {"q1": {"a": 5.0, "b": 3.0, "c": 1.0}, "q2": {"a": 2.0}, "q3": {}, "q4": {"a": 4.0, "b": 4.0, "c": 4.0}}
)
# 4, 1, 9 and no words: sqrt(words) = 2, 1, 3 and, as at least one word counts, 1.
TEXTS = ["when did it end", "moon", "a b c d e f g h i", " "]


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [
        ("top_score", 3, [5, 2, 0, 4]),
        # q2: no second document, whose score counts 0
        ("margin", 3, [2, 2, 0, 0]),
        # q1: 9/3. q2: (2 + 0 + 0)/3. q4: 12/3
        ("mean_top_k", 3, [3, 2 / 3, 0, 4]),
        # k = 4 is deeper than any row: q1 9/4, q4 12/4
        ("mean_top_k", 4, [9 / 4, 1 / 2, 0, 3]),
        # q1: mean 3, variance (4 + 0 + 4)/3. q2: 2, 0, 0 has mean 2/3, variance (16/9 + 4/9 + 4/9)/3 = 8/9
        ("std_top_k", 3, [math.sqrt(8 / 3), math.sqrt(8 / 9), 0, 0]),
        # q1: 5, 3 has mean 4, std 1. q2: 2, 0 has mean 1, std 1
        ("std_top_k", 2, [1, 1, 0, 0]),
        # q1: (5 - 3)/sqrt(8/3). q2: (4/3)/sqrt(8/9) = sqrt(2). q3, q4: all equal, 0
        ("zscore", 3, [2 / math.sqrt(8 / 3), math.sqrt(2), 0, 0]),
        # q1: (5 - 4)/1. q2: (2 - 1)/1
        ("zscore", 2, [1, 1, 0, 0]),
        # corpus (mean of the 3 columns): 3, 2/3, 0, 4. q1: sqrt(8/3)/3. q2: sqrt(8/9)/(2/3) = sqrt(2). q3: corpus 0
        ("nqc", 3, [math.sqrt(8 / 3) / 3, math.sqrt(2), 0, 0]),
        # std of the first 2 over the same corpus: 1/3, 1/(2/3)
        ("nqc", 2, [1 / 3, 3 / 2, 0, 0]),
        # q1: (4 - 3)/2. q2: (1 - 2/3)/1. q4: (4 - 4)/1
        ("wig", 2, [1 / 2, 1 / 3, 0, 0]),
        # k = 4 pads the head, not the corpus: q1 (9/4 - 3)/2, q2 1/2 - 2/3, q4 3 - 4
        ("wig", 4, [-3 / 8, -1 / 6, 0, -1]),
        ("query_words", 3, [4, 1, 9, 0]),
        ("query_characters", 3, [15, 4, 17, 1]),
    ],
)
def test_signals_by_hand(name, k, expected):
    found = signal_of(FakeInputs({"bm25": RANKING}, TEXTS), name, "bm25", k)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_agreement_by_hand():
    def ranked(*rows):
        names = ("same", "some", "short", "none", "both empty")
        return Ranking.from_scores(
            {name: {doc: 9.0 - place for place, doc in enumerate(row)} for name, row in zip(names, rows, strict=True)}
        )

    one, other = ranked("abc", "abc", "a", "", ""), ranked("cba", "zbya", "az", "z", "")
    third = Ranking.from_scores({query: {"a": 1.0} for query in one.query_ids})
    two, three = FakeInputs({"x": one, "y": other}), FakeInputs({"x": one, "y": other, "z": third})
    # some: {a, b, c} and {z, b, y} share b. short: 1 of the 2 that the longer list holds.
    np.testing.assert_allclose(signal_of(two, "agreement", "x", 3), [1, 1 / 3, 1 / 2, 0, 0])
    # k = 2: {a, b} and {c, b}; {a, b} and {z, b}
    np.testing.assert_allclose(signal_of(two, "agreement", "x", 2), [1 / 2, 1 / 2, 1 / 2, 0, 0])
    # k = 10, deeper than both. some: a and b of the 4
    np.testing.assert_allclose(signal_of(two, "agreement", "x", 10), [1, 1 / 2, 1 / 2, 0, 0])
    # the third has `a` alone: it shares 1 of 3, 1 of 3, 1 of 1, 0 of 1, 0 of 1
    averaged = [(1 + 1 / 3) / 2, (1 / 3 + 1 / 3) / 2, (1 / 2 + 1) / 2, 0, 0]
    np.testing.assert_allclose(signal_of(three, "agreement", "x", 3), averaged)


def test_coverage_by_hand():
    texts = {"a": "the moon moves", "b": "", "c": "unread"}
    ranking = Ranking.from_scores(
        {"q1": {"a": 2.0, "c": 1.0}, "q2": {"a": 2.0}, "q3": {"b": 2.0}, "q4": {}, "q5": {"a": 1.0}}
    )
    # q1: of {the, moon, rises} the first document has two, and `the` counts once. q2: all. q3: an empty document.
    # q4: no document. q5: no terms.
    queries = ["the the moon rises", "moon", "moon", "moon", " "]
    found = signal_of(FakeInputs({"bm25": ranking}, queries, texts), "coverage", "bm25", 3)
    np.testing.assert_allclose(found, [2 / 3, 1, 0, 0, 0])


def noise(lengths: list[int], tops: list[float]) -> tuple[list[Query], Ranking]:
    queries = [Query.of(f"random-{i}", " ".join(["w"] * length)) for i, length in enumerate(lengths)]
    pairs = zip(queries, tops, strict=True)
    return queries, Ranking.from_scores({query.query_id: {"a": top} if top else {} for query, top in pairs})


@pytest.mark.parametrize(
    ("lengths", "tops", "expected"),
    [
        # sqrt(words) 1, 1, 3, 3; the means of each pair, 2 and 6, lie on 0 + 2 sqrt(words), residuals -1, 1, -1, 1,
        # s = 1. q1: 5 - 2*2. q2: 2 - 2*1. q3: 0 - 2*3. q4: no word counts as one, 4 - 2*1
        ([1, 1, 9, 9], [1, 3, 5, 7], [1, 0, -6, 2]),
        # all of one length: b = 0, mean 2, s = 1
        ([4, 4], [1, 3], [3, 0, -2, 2]),
        # no documents for the second: its top counts 0. Mean 2, s = 2
        ([4, 4], [4, 0], [3 / 2, 0, -1, 1]),
        # a perfect line and equal scores leave no residuals
        ([1, 4, 9], [1, 2, 3], [0, 0, 0, 0]),
        ([1, 4, 4], [0.1, 0.1, 0.1], [0, 0, 0, 0]),
    ],
)
def test_background_by_hand(lengths, tops, expected):
    found = signal_of(FakeInputs({"bm25": RANKING}, TEXTS, noise=noise(lengths, tops)), "background", "bm25", 3)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0.1, 50)), min_size=3, max_size=12))
def test_background_is_the_least_squares_line(drawn):
    lengths, tops = [length for length, _ in drawn], [top for _, top in drawn]
    found = signal_of(FakeInputs({"bm25": RANKING}, TEXTS, noise=noise(lengths, tops)), "background", "bm25", 3)
    roots = np.sqrt(lengths)
    slope, intercept = np.polyfit(roots, tops, 1) if len(set(lengths)) > 1 else (0.0, np.mean(tops))
    spread = np.std(np.array(tops) - intercept - slope * roots)
    if spread > 1e-6:  # nearer to a perfect line the two differ by rounding
        expected = (np.array([5, 2, 0, 4]) - intercept - slope * np.array([2, 1, 3, 1])) / spread
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_what_decides_a_cached_signal():
    texts = {doc_id: f"text of {doc_id}" for doc_id in "abc"}
    weaker = Ranking(RANKING.query_ids, RANKING.doc_ids, RANKING.docs, RANKING.scores / 2)

    def decides(name: str, ranking=RANKING, queries=TEXTS, texts=texts) -> Mapping[str, Any]:
        given = FakeInputs({"bm25": ranking}, queries, texts, noise([1, 1], [1, 3]))
        signal_of(given, name, "bm25", 3)
        [found] = given.remembered
        return found

    for name in ("coverage", "background"):
        assert decides(name) == decides(name) != decides(name, queries=["a b", *TEXTS[1:]])
        assert (decides(name)["signal"], decides(name)["source"]) == (name, "bm25")
    assert decides("coverage") != decides("coverage", texts=texts | {"a": "another"})
    assert decides("background") != decides("background", weaker)


def test_a_signal_is_computed_once():
    given = FakeInputs({"bm25": RANKING}, TEXTS, noise=noise([1, 1], [1, 3]))
    first = signal_of(given, "background", "bm25", 3)
    assert signal_of(given, "background", "bm25", 3) is first
    assert len(given.remembered) == 1
    means = [signal_of(FakeInputs({"bm25": RANKING}), "mean_top_k", "bm25", 3) for _ in range(2)]
    assert means[0] is means[1]  # of one ranking, whichever inputs hold it
    with pytest.raises(ValueError, match="read-only"):
        means[0][0] = 1.0


EXACT = st.integers(-(10**6), 10**6).map(lambda n: n / 1024)  # sums of these are exact, in whatever order


@st.composite
def rankings(draw, count=1, scores=EXACT):
    """`count` rankings of the same queries, each with its own documents of a to h; some rows are empty."""
    rows = draw(st.integers(1, 4))
    row = st.dictionaries(st.sampled_from("abcdefgh"), st.one_of(scores, st.sampled_from([-1.0, 0.0, 1.0])), max_size=8)
    return [Ranking.from_scores({f"q{i}": draw(row) for i in range(rows)}) for _ in range(count)]


def plain(ranking: Ranking, name: str, k: int, words: list[int]) -> list[float]:
    """Every signal of one ranking, one query at a time."""
    found = []
    for i, length in enumerate(words):
        whole = [score for _, score in ranking.row(i)]
        corpus = math.fsum(whole) / max(ranking.docs.shape[1], 1)
        first = [*whole, *[0.0] * k][:k]
        top, second = ([*whole, 0.0, 0.0])[:2]
        mean = math.fsum(first) / k
        std = math.sqrt(math.fsum((score - mean) ** 2 for score in first) / k)
        found.append(
            {
                "top_score": top,
                "margin": top - second,
                "mean_top_k": mean,
                "std_top_k": std,
                "zscore": (top - mean) / std if len(set(first)) > 1 else 0.0,
                "nqc": std / abs(corpus) if corpus else 0.0,
                "wig": (mean - corpus) / math.sqrt(max(length, 1)),
            }[name]
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKED)
@given(rankings(), st.integers(2, 12), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_signals_equal_plain_loops(name, drawn, k, words):
    (ranking,) = drawn
    words = words[: len(ranking.query_ids)]
    found = signal_of(FakeInputs({"bm25": ranking}, ["w " * length for length in words]), name, "bm25", k)
    np.testing.assert_allclose(found, plain(ranking, name, k, words), rtol=1e-9, atol=1e-9)


@given(rankings(count=2), st.integers(1, 10))
def test_agreement_equals_sets(drawn, k):
    one, other = drawn
    found = signal_of(FakeInputs({"x": one, "y": other}), "agreement", "x", k)
    for i, share in enumerate(found):
        mine, theirs = ({doc_id for doc_id, _ in ranking.row(i)[:k]} for ranking in drawn)
        assert share == len(mine & theirs) / max(len(mine), len(theirs), 1)
    assert found.tolist() == signal_of(FakeInputs({"x": one, "y": other}), "agreement", "y", k).tolist()


@given(rankings(), st.lists(st.text("abc ", max_size=8), min_size=12, max_size=12))
def test_coverage_equals_sets(drawn, texts):
    (ranking,) = drawn
    documents = dict(zip("abcdefgh", texts[4:], strict=True))
    queries = texts[: len(ranking.query_ids)]
    found = signal_of(FakeInputs({"bm25": ranking}, queries, documents), "coverage", "bm25", 3)
    for i, share in enumerate(found):
        terms = set(queries[i].split())
        document = documents[ranking.row(i)[0][0]] if ranking.row(i) else ""
        assert share == (sum(term in document.split() for term in terms) / len(terms) if terms else 0.0)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(
    "ranking",
    [
        Ranking(("q",), (), np.zeros((1, 0), np.int32), np.zeros((1, 0))),
        Ranking(("q",), (), np.full((1, 3), -1, np.int32), np.zeros((1, 3))),
        Ranking.from_scores({"q": {"a": -2.0}}),
        Ranking.from_scores({"q": {"a": 0.1, "b": 0.1, "c": 0.1}}),
        Ranking.from_scores({"q": {"a": 0.3, "b": -0.1, "c": -0.2}}),
    ],
    ids=["no columns", "an empty row", "negative", "flat", "mean 0"],
)
def test_degenerate_rankings(name, ranking):
    given = FakeInputs({"x": ranking, "y": ranking}, texts=dict.fromkeys("abc", "two"), noise=noise([2], [1.0]))
    for k in (2, 3, 10):
        found = signal_of(given, name, "x", k)
        assert found.shape == (1,)
        assert np.isfinite(found).all()


def test_what_is_0_but_for_rounding_is_0():
    """The mean of 0.1, 0.1, 0.1 is not 0.1, and 0.3 - 0.1 - 0.2 is not 0."""
    flat = FakeInputs({"bm25": Ranking.from_scores({"q": {"a": 0.1, "b": 0.1, "c": 0.1}})})
    assert signal_of(flat, "std_top_k", "bm25", 3)[0] != 0
    assert signal_of(flat, "zscore", "bm25", 3).tolist() == [0.0]
    ranking = Ranking.from_scores({"q": {"a": 0.3, "b": -0.1, "c": -0.2}})
    assert ranking.scores.sum() != 0
    assert signal_of(FakeInputs({"bm25": ranking}), "nqc", "bm25", 3).tolist() == [0.0]


def test_registered_signals():
    assert list(SIGNALS) == [
        *("top_score", "margin", "mean_top_k", "std_top_k", "zscore", "nqc", "wig", "agreement"),
        *("query_words", "query_characters", "coverage", "background"),
    ]
    places = {name for name, spec in SIGNALS.items() if spec.places}
    assert places == {"mean_top_k", "std_top_k", "zscore", "nqc", "wig", "agreement"}
    assert {name for name, spec in SIGNALS.items() if spec.slow} == {"coverage", "background"}
    assert {name for name, spec in SIGNALS.items() if spec.reads == "query"} == {"query_words", "query_characters"}
    assert all(spec.compute.__doc__ for spec in SIGNALS.values())


def test_choices():
    names = ["top_score", "agreement", "query_words"]
    assert signal_choices(names, ["a"]) == [("a", "top_score"), (None, "query_words")]
    top = [("a", "top_score"), ("b", "top_score")]
    assert signal_choices(names, ["a", "b"]) == [*top, ("a", "agreement"), (None, "query_words")]
    agreeing = [source for source, name in signal_choices(names, ["a", "b", "c"]) if name == "agreement"]
    assert agreeing == ["a", "b", "c"]


def test_an_unknown_signal_is_named():
    for ask in (lambda: signal_spec("top_scor"), lambda: signal_choices(["top_scor"], ["a"])):
        with pytest.raises(BadInput, match=r"'top_scor' is not a gate signal.*Did you mean 'top_score'"):
            ask()


def test_random_queries():
    texts = ["moon  moon moon moon", "", " \n", "sun"]
    asked = [Query.of("1", "one"), Query.of("2", "one two three"), Query.of("3", "")]
    found = random_queries(texts, asked)
    assert [query.query_id for query in found] == [f"random-{i}" for i in range(200)]
    assert found == random_queries(texts, asked)
    words = [query.text.split(" ") for query in found]
    # A third of the real queries has three words, the others count as one; 200 draws: sd 7.
    assert {len(one) for one in words} == {1, 3}
    assert abs(sum(len(one) == 3 for one in words) - 200 / 3) < 28
    # First a document, then a word of it: half of the words are `sun`, though it is one word of five.
    drawn = [word for one in words for word in one]
    assert set(drawn) == {"moon", "sun"}
    assert abs(drawn.count("sun") / len(drawn) - 1 / 2) < 0.12


def test_random_queries_need_words():
    with pytest.raises(BadInput, match="blank"):
        random_queries(["", " "], [Query.of("1", "one")])
