"""The procedure on values that are known: what it tries, in which order, and what it returns."""

import math

import pytest

from harness.commands.sweep.auto.ascent import LEADERS, Choice, Menu, System, ascend
from harness.commands.sweep.auto.procedure import choose

BM25 = System(("retriever=bm25",), ("bm25",), fusible=False)
HYBRIDS = tuple(System((f"retriever={name}",), ("bm25", name), fusible=True) for name in "abc")
PLAIN, AUTO = ("gate=none",), ("gate=auto",)
RRF = ("fusion=rrf",)
MENU = Menu((BM25, *HYBRIDS), (PLAIN, AUTO), ((), RRF), weigh=True)


def tried(menu, value):
    """(everything that was tried, what was chosen)."""
    asked = []

    def note(words):
        asked.append(words)
        return value(words)

    return asked, choose(menu, note)


def test_every_system_comes_first_and_nothing_is_tried_twice():
    asked, _ = tried(MENU, lambda words: 0.5)
    assert asked[:4] == [(*one.words, *PLAIN) for one in MENU.systems]
    assert asked[0] == MENU.baseline
    assert len(asked) == len(set(asked))


def test_only_the_best_systems_go_on():
    worth = {"retriever=bm25": 0.4, "retriever=a": 0.1, "retriever=b": 0.9, "retriever=c": 0.5}
    asked, chosen = tried(MENU, lambda words: worth[words[0]])
    gated = {words[0] for words in asked if words[-1] == "gate=auto"}
    assert gated == {"retriever=b", "retriever=c", "retriever=bm25"}
    assert len(gated) == LEADERS
    assert chosen == ("retriever=b", "gate=none")  # the first of equals


def test_the_best_of_each_part_is_combined():
    """Each part adds its own worth: the fusion .1, the gate .2, a doubled weight of b .05, doubled again as much."""

    def value(words):
        weight = next((float(word.partition("=")[2]) for word in words if word.startswith("fusion.weights.b=")), 1.0)
        steps = 0.05 * min(math.log2(weight), 2)
        return 0.1 * ("fusion=rrf" in words) + 0.2 * ("gate=auto" in words) + steps + 0.3 * (words[0] == "retriever=b")

    asked, chosen = tried(MENU, value)
    assert chosen == ("retriever=b", "fusion=rrf", "fusion.weights.bm25=1", "fusion.weights.b=4", "gate=auto")
    assert len(asked) < 30


def test_without_fusions_weights_and_gates_the_systems_are_all():
    menu = Menu((BM25, *HYBRIDS), ((),), ((),), weigh=False)
    asked, chosen = tried(menu, lambda words: float(words[0] == "retriever=c"))
    assert asked == [one.words for one in menu.systems]
    assert chosen == ("retriever=c",)


def test_what_failed_is_never_chosen():
    def value(words):
        return math.nan if words[0] in ("retriever=a", "retriever=b") or "fusion=rrf" in words else 0.2

    asked, chosen = tried(MENU, value)
    assert chosen == ("retriever=bm25", "gate=none")
    assert not any(words[0] == "retriever=a" for words in asked[4:])


def test_no_weight_is_moved_where_a_model_reranks():
    reranked = System(("retriever=a", "rerank=x"), ("bm25", "a"), fusible=False)
    asked, _ = tried(Menu((reranked,), (PLAIN, AUTO), ((), RRF), weigh=True), lambda words: 0.5)
    assert asked == [("retriever=a", "rerank=x", "gate=none"), ("retriever=a", "rerank=x", "gate=auto")]


def test_a_rounding_error_makes_no_winner():
    _, chosen = tried(MENU, lambda words: 0.3 + 1e-12 * len(words))
    assert chosen == MENU.baseline


@pytest.mark.parametrize("weights", [(), (1.0, 0.25)])
def test_the_words_of_a_choice(weights):
    choice = Choice(HYBRIDS[0], RRF, AUTO, weights)
    moved = ("fusion.weights.bm25=1", "fusion.weights.a=0.25") if weights else ()
    assert choice.words == ("retriever=a", "fusion=rrf", *moved, "gate=auto")


def test_the_generator_returns_its_choice():
    steps = ascend(Menu((BM25,), (PLAIN,), ((),), weigh=False))
    assert next(steps) == [("retriever=bm25", "gate=none")]
    with pytest.raises(StopIteration) as over:
        steps.send({("retriever=bm25", "gate=none"): 0.5})
    assert over.value.value == ("retriever=bm25", "gate=none")
