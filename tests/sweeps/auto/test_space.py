"""What the procedure tries on known values, in which order, and what it returns; and what the catalogue gives it."""

import math

import pytest

from harness.sweeps.auto import loop
from harness.sweeps.auto.space import Candidate, SearchSpace, best_of


def system(*words, orders=()):
    return Candidate(words, orders, trial=None, work=None, promise=0.0)


BM25 = system("retriever=bm25")
ORDERS = ((("fusion=rrf",),), (("weight=2",), ("weight=4",)))
HYBRIDS = tuple(system(f"retriever={name}", orders=ORDERS) for name in "abc")
PLAIN, AUTO = ("gate=none",), ("gate=auto",)
SPACE = SearchSpace((BM25, *HYBRIDS), (PLAIN, AUTO))


def tried(space, value):
    """(everything that was tried, what was chosen)."""
    asked = []

    def score(new):
        asked.extend(new)
        return {words: value(words) for words in new}

    return asked, best_of(space, score)


def test_every_system_comes_first_and_only_the_best_go_on():
    worth = {"retriever=bm25": 0.4, "retriever=a": 0.1, "retriever=b": 0.9, "retriever=c": 0.5}
    asked, chosen = tried(SPACE, lambda words: worth[words[0]])
    assert asked[:4] == [(*one.words, *PLAIN) for one in SPACE.systems]
    assert asked[0] == SPACE.baseline
    assert len(asked) == len(set(asked)), "nothing is tried twice"
    gated = {words[0] for words in asked if "gate=auto" in words}
    assert gated == {"retriever=b", "retriever=c", "retriever=bm25"}
    assert chosen == ("retriever=b", "gate=none")  # the first of equals


def test_the_best_of_each_part_is_combined():
    """Each part adds its own worth: the fusion .1, the gate .2, a weight of 2 .05, of 4 as much again."""

    def value(words):
        weight = next((float(word.partition("=")[2]) for word in words if word.startswith("weight=")), 1.0)
        parts = 0.1 * ("fusion=rrf" in words) + 0.2 * ("gate=auto" in words) + 0.05 * math.log2(weight)
        return parts + 0.3 * (words[0] == "retriever=b")

    asked, chosen = tried(SPACE, value)
    assert chosen == ("retriever=b", "gate=auto", "fusion=rrf", "weight=4")
    assert len(asked) < 20


def test_what_failed_is_never_chosen():
    def value(words):
        return math.nan if words[0] in ("retriever=a", "retriever=b") or "fusion=rrf" in words else 0.2

    asked, chosen = tried(SPACE, value)
    assert chosen == ("retriever=bm25", "gate=none")
    assert not any(words[0] == "retriever=a" for words in asked[4:])


def test_without_orders_and_gates_the_systems_are_all():
    space = SearchSpace((BM25, system("retriever=a", "rerank=x")), ((),))
    asked, chosen = tried(space, len)
    assert asked == [("retriever=bm25",), chosen] == [("retriever=bm25",), ("retriever=a", "rerank=x")]
    _, chosen = tried(SPACE, lambda words: 0.3 + 1e-12 * len(words))
    assert chosen == SPACE.baseline, "a rounding error makes no winner"


@pytest.fixture
def listed(harness, monkeypatch):
    """What a sweep of the sample would choose from, by the words of its command line."""
    swept = []
    monkeypatch.setattr(loop, "planned", lambda sweep, _: swept.append(sweep) or ({}, []))

    def of(*words):
        assert harness("sweep", "sweep=auto", "dry_run=true", *words).code == 0
        return loop.space_and_costs(swept[-1])[0]

    return of


@pytest.mark.slow
def test_the_catalogue_gives_systems_orders_and_gates(listed):
    found = listed()
    systems = [" ".join(one.words) for one in found.systems]
    assert systems[0] == "retriever=bm25 tokenizer=kiwi"
    for more in ("", " retriever.bm25.k1=2.4 retriever.bm25.b=0.75", " query.text=last"):
        assert f"retriever=hybrid_light tokenizer=kiwi{more}" in systems
    assert len(systems) == len(set(systems)) == 20
    assert found.gates == (("gate=none",), ("gate=auto",), ("gate=depth",), ("gate=classifier",))
    light = next(one for one in found.systems if one.words[0] == "retriever=hybrid_light")
    assert [order[0] for order in light.orders] == [
        ("fusion=weighted_sum",), ("fusion.weights.bm25=0.3",), ("fusion.weights.bigram=0.3",),
        ("fusion.weights.dense=0.3",),
    ]  # fmt: skip
    assert any("encoder=bge_m3" in one.overrides for one in found.left_out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixed", "systems", "gates"),
    [
        (["retriever=hybrid_lexical", "retriever.bm25.k1=2", "query.text=last", "tokenizer=word"], 1, 4),
        (["retriever=bm25", "gate=score", "gate.threshold=3", "query.text=last"], 3, 1),
        (["encoder=lsa", "tokenizer=kiwi", "query.text=last", "retriever.bm25.k1=2"], 4, 4),  # bm25, three mixtures
    ],
)
def test_what_is_fixed_is_kept(listed, fixed, systems, gates):
    found = listed(*fixed)
    assert (len(found.systems), len(found.gates)) == (systems, gates), found.systems
    kept = {word.partition("=")[0] for word in fixed}
    assert kept.isdisjoint(word.partition("=")[0] for one in found.systems for word in one.words)
