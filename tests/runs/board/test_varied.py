"""Which keys vary among runs, and how an analysis takes them."""

import numpy as np
import pytest

from harness.runs.board.settings import comparable, runs_by_keys, varied


def keys(*rows):
    return {key.name: key for key in varied(rows)}


def test_values_are_places_in_order():
    found = keys({"gate": "b", "top_k": "10"}, {"gate": "a", "top_k": "9"}, {"gate": "b", "top_k": "10"})
    assert found["gate"].values == ("b", "a")  # as they first occur, which is the best run's first
    assert found["gate"].numbers is None
    assert found["top_k"].values == ("9", "10")  # as numbers
    assert found["top_k"].numbers == (9, 10)
    assert found["top_k"].places.tolist() == [1, 0, 1]


@pytest.mark.parametrize("odd", ["null", "nan", "inf", "", "1,5"])
def test_one_text_that_is_no_number_makes_names_of_all(odd):
    assert keys({"seed": "1"}, {"seed": odd}, {"seed": "2"})["seed"].numbers is None


def test_a_key_is_compared_among_the_runs_that_have_it():
    rows = [{"retriever": "bm25", "retriever.bm25.k1": k1} for k1 in ("7", "8")] + [{"retriever": "dense"}]
    found = varied(rows)
    assert [key.name for key in found] == ["retriever", "retriever.bm25.k1"]
    assert found[1].having.tolist() == [True, True, False]
    assert [(having.sum(), [key.name for key in own]) for having, own in runs_by_keys(found)] == [
        (3, ["retriever"]),
        (2, ["retriever.bm25.k1"]),
    ]


def test_a_reranker_that_a_run_lacks_is_a_value_and_a_fusion_is_none():
    found = keys(
        {"retriever": "hybrid_lexical", "fusion": "rrf", "rerank": "cross_encoder"},
        {"retriever": "hybrid_lexical", "fusion": "combmnz"},
        {"retriever": "bm25"},
    )
    assert found["rerank"].values == ("cross_encoder", "none")
    assert found["fusion"].having.tolist() == [True, True, False]


def test_nothing_varies():
    assert varied([{"retriever": "bm25", "seed": "0"}] * 3) == []
    assert varied([{"retriever": "bm25"}]) == []


def test_what_follows_from_another_key_is_named_by_it():
    rows = [{"retriever": r, "seed": s, "select": s + r[:1]} for r, s in [("bm25", "0"), ("bm25", "1"), ("dense", "2")]]
    [key] = comparable(varied(rows))
    assert (key.name, key.also) == ("seed", ("select", "retriever")) or (key.name, {*key.also}) == (
        "select",
        {"seed", "retriever"},
    )
    # A grid has nothing of the kind.
    grid = [{"retriever": r, "seed": s} for r in ("bm25", "dense") for s in "01"]
    assert [(key.name, key.also) for key in comparable(varied(grid))] == [("retriever", ()), ("seed", ())]


def test_numbers_of_a_search_are_grouped():
    rng = np.random.default_rng(0)
    rows = [{"gate.threshold": str(one), "top_k": str(k)} for one, k in zip(rng.random(64), [1, 2] * 32, strict=True)]
    threshold, top_k = comparable(varied(rows))
    assert len(threshold.values) == 8
    assert np.bincount(threshold.places).tolist() == [8] * 8
    low, high = threshold.values[0].split(" – ")
    assert float(low) < threshold.numbers[0] < float(high)
    assert top_k.values == ("1", "2")


def test_numbers_of_a_grid_are_not_grouped():
    rows = [{"gate.threshold": str(one), "retriever": str(r)} for one in range(20) for r in "abcd"]
    assert len(comparable(varied(rows))[0].values) == 20
