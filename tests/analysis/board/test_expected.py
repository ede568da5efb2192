"""The score to expect of the best of many runs: by hand, by plain loops, in a simulation, in every command."""

import math
from dataclasses import replace

import numpy as np
import pytest
from boards import made_run
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_runs import SWEEP

from harness.analysis.board.expected import FOLDS, MOST, REPEATS, Expected, Replay, RunFamily, cross_validated_choice
from harness.analysis.board.runs import BoardRuns
from harness.gates.calibration import folds
from harness.statistics.prediction_powered import Estimate
from harness.storage.typed import encoded


def family(rows, public=None, needs=None, of=0, **more):
    """Runs of these values, the best first. public: the queries that choose; None: all."""
    values = np.array(rows, float)
    everywhere = np.ones(values.shape[1], bool)
    part = everywhere if public is None else np.array(public)
    runs = [made_run(n, "bm25", "none", n, float(np.nanmean(row[part]))) for n, row in enumerate(values)]
    select_on, needs = "all" if public is None else "public", everywhere if needs is None else np.array(needs)
    ids, losses = tuple(map(str, range(len(part)))), np.zeros(values.shape, np.int8)
    known = BoardRuns("modified_map@3", select_on, tuple(runs), ids, needs, ~everywhere, part, values, losses)
    return RunFamily("modified_map@3", select_on, runs, of, lambda count: known, **more)


def test_queries_that_do_not_count_in_every_run_are_left_out():
    rows = np.array([[1, 0, 1, 0.5, 1], [0, 1, 1, 0, 0.5]])
    needs = np.array([1, 1, 0, 1, 1], bool)
    spoilt = np.insert(rows, [1, 3], math.nan, axis=1)
    spoilt[0, 1], spoilt[1, 4] = 0.7, 0.9  # NaN in one run is enough
    found = family(spoilt, needs=np.insert(needs, [1, 3], True)).expected(None)
    assert found.value == family(rows, needs=needs).expected(None).value
    for too_few in ([[1, 0, 1]], [[1], [0]], [[1, math.nan, math.nan], [0, 1, 0]]):  # runs or queries
        assert family(too_few).expected(None) is None


def test_where_the_public_queries_choose_the_private_ones_say():
    generator = np.random.default_rng(1)
    rows, public = generator.random((9, 40)), generator.random(40) < 0.4
    rows = rows[np.argsort(-rows[:, public].mean(axis=1))]
    found = family(rows, public=public).expected(Replay("s", 1.0, 0.1))
    assert found.how == "private"  # whatever a replay of the public queries says
    assert (found.value, found.private) == (pytest.approx(rows[0, ~public].mean()), 40 - public.sum())
    assert found.low < found.value < found.high
    assert "Mean of" in found.sentence
    assert "the public queries chose it" in replace(found, best=1.0).sentence
    # Without private queries, the choice among the public ones is cross-validated.
    whole = family(rows, public=np.ones(40, bool)).expected(None)
    assert (whole.how, whole.value) == ("choice", family(rows).expected(None).value)


THREE = [[1, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]]


def test_a_replay_says_more_than_the_choice_among_its_trials():
    runs = family(THREE)
    assert runs.expected(None).how == "choice"
    found = runs.expected(Replay("s", 0.75, 0.6, 0.4, 0.8))
    assert (found.how, found.value, found.low, found.high, found.best) == ("replay", 0.6, 0.4, 0.8, 0.75)
    # A run that no replay knows is better: the replay is of another choice.
    assert runs.expected(Replay("s", 0.7, 0.6)).how == "choice"


def test_a_number_that_does_not_know_all_runs_and_one_of_a_models_labels_say_so():
    runs = family(THREE)
    first, *others = runs.runs
    member = replace(first, run=replace(first.run, tags={"sweep.s": "computed"}))
    replayed = replace(runs, runs=[member, *others]).expected(Replay("s", 0.75, 0.6))
    assert (replayed.runs, replayed.of) == (1, 3)
    assert replayed.sentence.endswith("It rests on 1 of the 3 comparable runs.")
    assert replace(runs, of=7).expected(None).sentence.endswith("It rests on 3 of the 7 comparable runs.")
    assert "rests" not in runs.expected(None).sentence
    estimated = replace(first, score=replace(first.score, estimate=Estimate(0.7, 0.6, 0.8, 5, 3, 0.9)))
    assert [replace(runs, runs=[one, *others]).expected(None).raw for one in (first, estimated)] == [False, True]


def test_many_runs_are_not_read_where_a_command_is_to_be_quick():
    rows = np.random.default_rng(0).random((MOST + 1, 12))
    rows = rows[np.argsort(-rows.mean(axis=1))]
    unread = replace(family(rows), read=lambda count: pytest.fail("read"))
    found = unread.expected(None, MOST)
    assert (found.how, math.isnan(found.value)) == ("unknown", True)
    assert found.sentence == (
        "201 runs are comparable, but at most 200 are read here: `harness board` says what to expect on new queries."
    )
    assert unread.expected(Replay("s", 1.0, 0.5), MOST).value == 0.5  # which needs no scores
    assert family(rows).expected(None).how == family(rows[:MOST]).expected(None, MOST).how == "choice"


def test_the_words():
    found = Expected("map@3", "r", 0.7697, 0.7390, 0.665, 0.805, "replay", 56, 56)
    assert found.sentence == (
        "Expect about 0.739 on new queries (95 % interval 0.665 – 0.805): 0.770 is partly luck, because the same "
        "labels chose it. (Replay of the whole sweep, out of fold.)"
    )
    among = replace(found, how="choice", low=math.nan, high=math.nan)
    assert "Expect about 0.739 on new queries: " in among.sentence
    assert among.sentence.endswith("(Cross-validated choice among 56 runs.)")
    assert "among 56 trials of this sweep" in replace(among, alone=True).sentence
    assert "the choice shows no sign of luck" in replace(among, best=0.7391).sentence
    assert replace(among, raw=True).sentence.startswith("Expect a raw value of about 0.739")
    assert "0.739" in found.words.ko
    plain = encoded(among)
    assert (plain["value"], plain["low"], plain["sentence"]) == (0.739, None, among.sentence)


# The cross-validated choice


def by_loops(rows, needs, seed):
    """Plain Python: the best of the other folds, for every fold of every dealing. rows: whole numbers, so exact."""
    n = len(rows[0])
    total = 0
    for repeat in range(REPEATS):
        fold = folds(np.array(needs), min(FOLDS, n), 1000 * seed + repeat).tolist()
        for number in set(fold):
            learnt = [sum(value for value, f in zip(row, fold, strict=True) if f != number) for row in rows]
            own = [sum(value for value, f in zip(row, fold, strict=True) if f == number) for row in rows]
            best = [one for one, elsewhere in zip(own, learnt, strict=True) if elsewhere == max(learnt)]
            total += sum(best) / len(best)
    return total / n / REPEATS


drawn_rows = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=2, max_size=6),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


@settings(deadline=None)
@given(drawn=drawn_rows, seed=st.integers(0, 5))
def test_the_choice_equals_plain_loops(drawn, seed):
    rows, needs = np.array(drawn[0], float), np.array(drawn[1])
    assert cross_validated_choice(rows, needs, seed) == pytest.approx(by_loops(drawn[0], needs, seed), abs=1e-12)


def test_it_is_unbiased_where_the_best_is_not():
    """Runs that are right with probability .6 on each of 40 queries, independently: that is how good all of them are,
    and how good a choice among them is on other queries."""
    generator, unseen, best = np.random.default_rng(0), [], []
    for seed in range(300):
        rows = (generator.random((12, 40)) < 0.6).astype(float)
        unseen.append(cross_validated_choice(rows, np.ones(40, bool), seed))
        best.append(rows.mean(axis=1).max())
    assert np.mean(unseen) == pytest.approx(0.6, abs=3 * np.std(unseen) / math.sqrt(300))
    assert np.mean(best) > 0.7


# Everywhere


AUTO = (
    *("sweep=auto", "dataset=sample", "retriever=hybrid_lexical", "tokenizer=word", "gate=none", "budget=1h"),
    *("query.text=user_turns", "rerank=none", "fusion.weights.bm25=1", "experiment_name=e"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "how", "commands"),
    [
        (SWEEP[1:-1], "choice", ("runs", "export", "board", "compare", "advise")),
        ((*SWEEP[1:-1], "select_on=public"), "private", ("runs", "board")),
        (AUTO, "replay", ("runs", "board")),
    ],
)
def test_the_same_number_and_the_same_words_everywhere(harness, logged, words, how, commands):
    sweep = logged(("sweep", *words, "format=json"))[0].json
    found = sweep["expected"]
    assert (found["how"], found["runs"]) == (how, found["of"])
    for command in commands:
        said = harness(command, "experiment_name=e", "format=json").json
        assert (command, (said["groups"][0] if command == "runs" else said)["expected"]) == (command, found)
        if how == "choice":
            assert harness(command, "experiment_name=e").out.count(found["sentence"]) == 1, command
    if how == "choice":
        assert found["sentence"] in harness("sweep", *words).out
        # A board of some runs says how many it lacks; another run than the best has no such number.
        best, *_, worst = (one["run_id"] for one in sweep["top"])
        some = harness("board", f"runs=[{best},{worst}]", "experiment_name=e", "format=json").json["expected"]
        assert (some["runs"], some["of"]) == (2, found["of"])
        assert harness("export", f"run={worst}", "experiment_name=e", "format=json").json["expected"] is None
