"""The score of the procedure: no held-out label reaches what scores it, and chance is not taken for a gain."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.gates.calibration import folds
from harness.sweeps.auto import loop, out_of_fold
from harness.sweeps.auto.out_of_fold import FOLDS, Arithmetic, Automatic, Budget, Replayed, judge_procedure, replay
from harness.sweeps.auto.space import Candidate, SearchSpace
from harness.sweeps.trials import dataset_of

PLAIN = ("gate=none",)


def system(*words):
    return Candidate(words, (), trial=None, work=None, promise=0.0)


SYSTEMS = tuple(system(f"retriever=r{number}") for number in range(30))
SPACE = SearchSpace(SYSTEMS, (PLAIN,))
ROWS = np.arange(60)


def replayed(values, rows=ROWS, number=0):
    """The replay of systems with these values by query, and the rows whose labels were known at each question."""
    table, asked = dict(zip([(*one.words, *PLAIN) for one in SYSTEMS], values, strict=True)), set()

    def by_query(words, known):
        asked.add(tuple(known))
        return table[words]

    return replay(SPACE, by_query, SimpleNamespace(rows=rows, needs=np.ones(60, bool)), 0, number), asked


def test_equally_good_systems_bring_no_gain():
    """30 systems whose values are drawn alike: the best of them looks good by luck, the procedure does not."""
    gains, lucks = [], []
    for draw in range(60):
        values = np.random.default_rng(draw).random((30, 60))
        found, _ = replayed(values, number=draw % 3)
        gains.append(np.mean(found.values) - values[0].mean())
        lucks.append(values.mean(axis=1).max() - values[0].mean())
    # The mean of 60 gains, each with a standard deviation of about .05: .02 is three standard errors.
    assert abs(np.mean(gains)) < 0.02
    assert np.mean(lucks) > 0.06


def test_a_system_that_is_better_is_found():
    values = np.random.default_rng(0).random((30, 60))
    values[7] += 0.3
    found, _ = replayed(values)
    assert set(found.chosen) == {("retriever=r7", "gate=none")}
    assert found.values == tuple(values[7])


def test_no_fold_sees_its_own_labels():
    values = np.random.default_rng(1).random((30, 60))
    fold = folds(np.ones(60, bool), FOLDS, 500)
    assert replayed(values)[1] == {tuple(np.flatnonzero(fold != one)) for one in range(FOLDS)}
    found, _ = replayed(values, ROWS[:3])  # few queries have as many folds
    assert len(found.chosen) == len(found.values) == 3


def numbers(values, baseline, **named):
    replays = [Replayed(tuple(row), (("a",), ("b",))) for row in values]
    raw = named.pop("raw", False)
    config = SimpleNamespace(**{"objective": "map", "select_on": "all", "seed": 0} | named)
    return judge_procedure(config, replays, (("a",), 0.9), (("base",), np.array(baseline)), raw)


def test_the_numbers_by_hand():
    values = [[1.0, 0.5] * 20, [1.0, 0.0] * 20]  # of each query on average: 1, .25
    found = numbers(values, [0.5, 0.25] * 20)
    assert (found.value, found.baseline, found.winner) == (0.625, 0.375, 0.9)
    assert (found.queries, found.repeats, found.folds) == (40, 2, 2)
    assert found.difference == pytest.approx(0.25)
    assert found.difference_low < 0.25 < found.difference_high
    # 20 queries of 40 differ, all in one direction: of 10,000 ways to swap, none is as far apart but by chance 2^-19.
    assert found.p < 0.001
    assert "scores map 0.6250" in found.sentence
    assert "0.2500 better than base (0.3750)" in found.sentence
    assert "worse than base" in replace(found, difference=-0.1).sentence
    assert found.agreement == 0.5  # two of four folds chose the winner
    assert found.kind == "out of fold"
    assert numbers(values, [0.5, 0.25] * 20, select_on="public").kind == "public, out of fold"


@pytest.mark.parametrize(
    ("count", "named", "note"), [(10, {}, "Only 10 labelled queries"), (40, {"raw": True}, "model")]
)
def test_numbers_without_intervals(count, named, note):
    found = numbers([[1.0, 0.5] * (count // 2)], [0.5, 0.5] * (count // 2), **named)
    assert all(map(math.isnan, (found.low, found.high, found.p)))
    assert note in found.notes[0]
    assert "p =" not in found.sentence
    metrics = Automatic(found, 1, Budget(1.0)).metrics()
    assert (metrics.get("procedure/p"), metrics["procedure/value"]) == (None, 0.75)


WORDS = ("sweep=auto", "retriever=hybrid_lexical", "retriever.bm25.k1=1.5", "tokenizer=word", "rerank=none",
         "query.text=user_turns", "fusion.weights.bm25=1", "tracking=none", "format=json")  # fmt: skip
AUTO = ("gate=auto", "gate.signals=[top_score,margin]", "gate.sources=[bm25]", "gate.repeats=1", "gate.folds=3")
LEARNED = ("fusion=learned", "fusion.folds=3", "fusion.repeats=1")


@pytest.fixture
def arithmetic(harness, monkeypatch):
    """Values for the sample."""
    swept = []
    monkeypatch.setattr(loop, "planned", lambda sweep, _: swept.append(sweep) or ({}, []))
    assert harness("sweep", "sweep=auto", "tokenizer=word", "dry_run=true").code == 0
    return Arithmetic(swept[0].planner)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learns", "select_on", "queries"), [(("gate=none", "fusion=rrf"), "all", 60), ((*AUTO, *LEARNED), "public", 24)]
)
def test_arithmetic_gives_a_trial_the_value_that_its_run_has(harness, monkeypatch, learns, select_on, queries):
    monkeypatch.setattr(loop, "REPEATS", 1)
    monkeypatch.setattr(out_of_fold, "FOLDS", 5)
    found = harness("sweep", *WORDS, *learns, f"select_on={select_on}").json
    assert found["trials"]["finished"] == 1
    assert found["procedure"]["baseline"] == pytest.approx(found["best"]["value"], abs=1e-12)
    # Nothing was chosen: only what a gate and a fusion learn from a tenth fewer labels differs.
    assert found["procedure"]["value"] == pytest.approx(found["best"]["value"], abs=0.1)
    assert found["procedure"]["queries"] == queries


@pytest.mark.slow
def test_needs_drawn_at_random_bring_no_gain_to_what_learns(arithmetic, monkeypatch):
    """A random half needs no documents, the other half the first that is found: whatever is shown earns as much on
    average, and a gate that had seen a label of its own would seem to gain."""
    space = SearchSpace((system("retriever=bm25", "tokenizer=word"),), (PLAIN, AUTO))
    arithmetic.labelled(space.baseline)
    [ranking] = arithmetic._rankings.values()
    first = {query: next(iter(docs)) for query, docs in ranking.to_dict().items() if docs}
    gains = []
    for draw in range(16):
        needless = set(np.random.default_rng(draw).permutation(list(first))[: len(first) // 2])

        def drawn(trial, needless=needless):
            dataset = dataset_of(trial)
            grades = {query: {} if query in needless else {doc: 1} for query, doc in first.items()}
            return replace(dataset, qrels=replace(dataset.qrels, grades=grades))

        monkeypatch.setattr(out_of_fold, "dataset_of", drawn)
        one = Arithmetic(arithmetic.planner, _rankings=arithmetic._rankings)
        labelled = one.labelled(space.baseline)
        found = replay(space, one.values, labelled, seed=0, number=0)
        gains.append(np.mean(found.values) - one.values(space.baseline, labelled.rows)[labelled.rows].mean())
    assert abs(np.mean(gains)) < 3 * np.std(gains, ddof=1) / 4
