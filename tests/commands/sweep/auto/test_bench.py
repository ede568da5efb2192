"""Values by arithmetic: those that the trials have, and no gain where labels are drawn at random."""

from dataclasses import replace

import numpy as np
import pytest

from harness.commands.sweep import command
from harness.commands.sweep.auto import bench as benches
from harness.commands.sweep.auto.ascent import Menu, System
from harness.commands.sweep.auto.bench import Bench
from harness.commands.sweep.auto.procedure import choose, replay
from harness.commands.sweep.work import dataset_of

WORDS = ("retriever=hybrid_lexical", "tokenizer=word", "query.text=user_turns", "rerank=none", "fusion.weights.bm25=1")
AUTO = ("gate=auto", "gate.signals=[top_score,margin]", "gate.sources=[bm25]", "gate.repeats=1", "gate.folds=3")
LEARNED = ("fusion=learned", "fusion.folds=3", "fusion.repeats=1")


@pytest.fixture
def bench(harness, monkeypatch):
    """A bench for the sample."""
    swept = []
    monkeypatch.setattr(command, "planned", lambda sweep, _: swept.append(sweep) or ({}, []))
    assert harness("sweep", "sweep=auto", "tokenizer=word", "dry_run=true").code == 0
    return Bench(swept[0].planner)


@pytest.mark.parametrize(
    ("learns", "select_on"),
    [(("gate=none",), "all"), (AUTO, "public"), (("gate=none", *LEARNED), "all"), ((*AUTO, *LEARNED), "public")],
)
def test_the_bench_gives_a_trial_the_value_that_its_run_has(harness, learns, select_on):
    words = ("sweep=auto", *WORDS, *(("fusion=rrf",) if "fusion=learned" not in learns else ()), *learns)
    found = harness("sweep", *words, f"select_on={select_on}", "tracking=none", "format=json").json
    assert found["trials"]["finished"] == 1
    assert found["procedure"]["baseline"] == pytest.approx(found["best"]["value"], abs=1e-12)
    # Nothing was chosen: only what a gate and a fusion learn from a tenth fewer labels differs.
    assert found["procedure"]["value"] == pytest.approx(found["best"]["value"], abs=0.1)
    assert found["procedure"]["queries"] == (60 if select_on == "all" else 24)


def test_labels_of_other_queries_brought_together_bring_no_gain(bench, monkeypatch):
    """Each query gets the labels of another: nothing finds them, and the luckiest of six systems is no better."""
    kinds, tokenizers = ("bm25", "hybrid_lexical"), ("word", "whitespace", "char_ngram")
    systems = tuple(
        System((f"retriever={kind}", f"tokenizer={tokenizer}"), (kind,), fusible=False)
        for kind in kinds
        for tokenizer in tokenizers
    )
    menu = Menu(systems, (("gate=none",),), ((),), weigh=False)
    gains, lucks = [], []
    for draw in range(25):

        def permuted(expected, name, draw=draw):
            dataset = dataset_of(expected, name)
            names = [one for one, grades in dataset.qrels.grades.items() if grades]
            others = np.random.default_rng(draw).permutation(names)
            grades = dict(dataset.qrels.grades) | {
                one: dataset.qrels.grades[other] for one, other in zip(names, others, strict=True)
            }
            return replace(dataset, qrels=replace(dataset.qrels, grades=grades))

        monkeypatch.setattr(benches, "dataset_of", permuted)
        one = Bench(bench.planner, _rankings=bench._rankings)
        labelled = one.labelled(menu.baseline)
        baseline = one.values(menu.baseline, labelled.rows)[labelled.rows].mean()
        found = replay(menu, one, labelled.rows, labelled.needs, seed=0, number=0)
        best = choose(menu, lambda words, one=one, rows=labelled.rows: one.values(words, rows)[rows].mean())
        gains.append(np.mean(found.values) - baseline)
        lucks.append(one.values(best, labelled.rows)[labelled.rows].mean() - baseline)
    error = np.std(gains, ddof=1) / 5  # of the mean of 25
    assert abs(np.mean(gains)) < 3 * error + 1e-9
    assert np.mean(lucks) > np.mean(gains) + 2 * error


def test_payoffs_drawn_at_random_bring_no_gain_to_what_learns(bench, monkeypatch):
    """Whatever is shown earns as much on average: a gate that had seen a label of its own would seem to gain."""
    menu = Menu((System(("retriever=bm25", "tokenizer=word"), ("bm25",), False),), (("gate=none",), AUTO), ((),), False)
    plain, drawn = Bench._payoff, {}

    def random(self, made, candidates):
        payoff = plain(self, made, candidates)
        return replace(payoff, values=drawn["values"] + 0 * payoff.values)

    monkeypatch.setattr(Bench, "_payoff", random)
    gains = []
    for draw in range(25):
        drawn["values"] = np.random.default_rng(draw).integers(0, 2, (60, 4)).astype(float)
        one = Bench(bench.planner, _rankings=bench._rankings)
        labelled = one.labelled(menu.baseline)
        found = replay(menu, one, labelled.rows, labelled.needs, seed=0, number=0)
        gains.append(np.mean(found.values) - one.values(menu.baseline, labelled.rows).mean())
    assert abs(np.mean(gains)) < 3 * np.std(gains, ddof=1) / 5
