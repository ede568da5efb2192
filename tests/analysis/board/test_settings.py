"""The settings in which runs differ, the short names that say them, and how an analysis takes the keys that vary."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.board.settings import (
    changed_settings,
    changes,
    comparable,
    overrides_in_words,
    runs_by_keys,
    short_names,
    varied,
)
from harness.tracking.tracker import LoggedRun


def params(**named):
    return {key.replace("__", "."): one for key, one in named.items()}


def run(number, **named):
    return LoggedRun(
        f"{number:032x}", f"{named.get('retriever', 'run')}-{number}", "e", "FINISHED", {}, params(**named), {}
    )


def test_what_follows_from_another_choice_is_no_difference_of_its_own():
    """The hybrid brings keys that BM25 lacks: only those that were set count."""
    plain = params(retriever="bm25", gate="none", tokenizer="word")
    hybrid = params(
        retriever="hybrid_lexical", gate="score", tokenizer="kiwi", fusion="rrf", fusion__k="60",
        fusion__weights__bm25="2", retriever__bigram__k1="1.5", retriever__bigram__b="0.5", gate__threshold="3",
        gate__signal="top_score", gate__source="null",
        tokenizer__tags='["NN*", "NR", "NP", "VV*", "VA*", "XR", "SL", "SN", "SH", "MA*"]',
    )  # fmt: skip
    assert changed_settings([plain, hybrid]) == {
        "retriever": ["bm25", "hybrid_lexical"], "gate": ["none", "score"], "tokenizer": ["word", "kiwi"],
        "fusion": [None, "rrf"], "fusion.weights.bm25": [None, "2"], "retriever.bigram.b": [None, "0.5"],
        "gate.threshold": [None, "3"],
    }  # fmt: skip
    other = params(retriever="hybrid_lexical", fusion="rrf", fusion__k="10")
    assert changed_settings([plain, hybrid, other])["fusion.k"] == [None, "60", "10"]
    more = {"retriever": "bm25", "top_k": "1"}, {"retriever": "bm25", "top_k": "2"}, {**other, "fusion.k": "60",
            "top_k": "2"}  # fmt: skip
    assert changes(more) == [
        {"top_k": ("1", "2")}, {"retriever": ("bm25", "hybrid_lexical"), "fusion": (None, "rrf")}
    ]  # fmt: skip


def test_short_names_say_no_more_than_they_must():
    kinds = [("hybrid_light", "auto", "3"), ("hybrid_light", "none", "3"), ("bm25", "auto", "1"), ("bm25", "auto", "2")]
    runs = [run(place, retriever=one, gate=gate, top_k=k) for place, (one, gate, k) in enumerate(kinds)]
    names = ["hybrid_light · auto", "hybrid_light · none", "bm25 · auto · top 1", "bm25 · auto · top 2"]
    assert short_names(runs) == names
    own = replace(runs[2], name="mine")
    assert short_names([*runs[:2], own]) == [*names[:2], "mine"], "a name that a person gave stays"
    assert (own.named, runs[3].named) == ("00000000 (mine)", "00000000 (bm25 · auto)")
    # A file is called by its name, and what nothing else tells apart by its id.
    file = replace(run(1, predictions="first.csv", top_k="3"), tags={"harness.verb": "score"})
    named = short_names([run(0, retriever="bm25", gate="none", top_k="2"), file, replace(file, run_id="x")])
    assert named == ["bm25 · none", "run-1 · 00000000", "run-1 · x"]
    same = [run(n, retriever="bm25", gate="none", tags="x" * 40 + end) for n, end in enumerate(("", "y"))]
    same = [replace(one, run_id=f"{place}{one.run_id}") for place, one in enumerate(same)]
    assert short_names(same) == ["bm25 · none · 00000000", "bm25 · none · 10000000"]


def test_a_name_says_what_differs_and_not_what_most_runs_have():
    """One run has another weight; its neighbour in the ranking, and most others, have the usual one."""
    weights = [("1", "0.5"), ("1", "1"), ("2", "1"), ("0.5", "1"), ("1", "2"), ("1", "3")]
    runs = [
        run(place, retriever="hybrid_light", gate="auto", fusion__weights__bm25=bm25, fusion__weights__dense=dense)
        for place, (bm25, dense) in enumerate(weights)
    ]
    auto = "hybrid_light · auto"
    assert short_names(runs) == [
        f"{auto} · dense 0.5", f"{auto} · dense 1", f"{auto} · dense 1 · bm25 2", f"{auto} · dense 1 · bm25 0.5",
        f"{auto} · dense 2", f"{auto} · dense 3",
    ]  # fmt: skip
    usual = [run(9 + place, retriever="hybrid_light", gate="auto", fusion__weights__bm25="1",
                 fusion__weights__dense=f"{place + 4}") for place in range(2)]  # fmt: skip
    assert short_names([*runs, *usual])[0] == f"{auto} · dense 0.5"


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 3), min_size=2, max_size=8))
def test_names_are_never_equal(values):
    runs = [run(place, retriever="bm25", x=x, y=y, z=z) for place, (x, y, z) in enumerate(values)]
    runs = [replace(one, run_id=f"{place:08x}") for place, one in enumerate(runs)]
    assert len(set(short_names(runs))) == len(runs)


def test_overrides_of_a_trial_in_words():
    words = ["retriever=bm25", "gate=auto", "fusion.weights.dense=0.5", "retriever.bm25.k1=1", "retriever.b.k1=2"]
    assert overrides_in_words(words) == "bm25 · auto · dense 0.5 · bm25.k1 1 · b.k1 2"
    assert overrides_in_words(["top_k=3", "+x='a b'"]) == "top 3 · x a b"
    assert overrides_in_words([]) == ""


# ---- Keys that vary


def keys(*rows):
    return {key.name: key for key in varied(rows)}


def test_values_are_places_in_order():
    found = keys({"gate": "b", "top_k": "10"}, {"gate": "a", "top_k": "9"}, {"gate": "b", "top_k": "10"})
    assert (found["gate"].values, found["gate"].numbers) == (("b", "a"), None)  # as they occur: the best run's first
    assert (found["top_k"].values, found["top_k"].numbers) == (("9", "10"), (9, 10))
    assert found["top_k"].places.tolist() == [1, 0, 1]
    for odd in ("null", "nan", "inf", "", "1,5"):
        assert keys({"seed": "1"}, {"seed": odd}, {"seed": "2"})["seed"].numbers is None, odd
    # A reranker that a run lacks is a value; a fusion that its retriever does not bring is none.
    hybrid = {"retriever": "hybrid_lexical", "fusion": "rrf", "rerank": "cross_encoder"}
    found = keys(hybrid, {"retriever": "hybrid_lexical", "fusion": "combmnz"}, {"retriever": "bm25"})
    assert found["rerank"].values == ("cross_encoder", "none")
    assert found["fusion"].having.tolist() == [True, True, False]


def test_a_key_is_compared_among_the_runs_that_have_it():
    rows = [{"retriever": "bm25", "retriever.bm25.k1": k1} for k1 in ("7", "8")] + [{"retriever": "dense"}]
    found = varied(rows)
    assert [key.name for key in found] == ["retriever", "retriever.bm25.k1"]
    assert found[1].having.tolist() == [True, True, False]
    assert [(having.sum(), [key.name for key in own]) for having, own in runs_by_keys(found)] == [
        (3, ["retriever"]),
        (2, ["retriever.bm25.k1"]),
    ]


def test_what_follows_from_another_key_is_named_by_it():
    rows = [{"retriever": r, "seed": s, "select": s + r[:1]} for r, s in [("bm25", "0"), ("bm25", "1"), ("dense", "2")]]
    [key] = comparable(varied(rows))
    assert {key.name, *key.also} == {"seed", "select", "retriever"}
    assert key.name != "retriever"
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
    grid = [{"gate.threshold": str(one), "retriever": str(r)} for one in range(20) for r in "abcd"]
    assert len(comparable(varied(grid))[0].values) == 20  # each recurs
