"""Does advice help? Following the first advice three times, against a full grid, and against advice at random.

    python scripts/backtest_advice.py DATA [NAME ...]     # NAME: contest, korquad, cranfield; none: all three

DATA holds the folders science_qa, korquad and cranfield. Everything is judged out of fold: for each of five folds,
everything is learnt, advised and chosen by the labels of the other four, and the lists of what was so chosen are scored
on the fold. Followed: plain BM25 as `harness run` has it, then three times the first advice on the best so far.
Random: the same with any idea of the same catalogue. Grid: the best of all of GRID's combinations. KorQuAD has one
question for each paragraph.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from harness.analysis.proposals import ladder
from harness.analysis.proposals.advising import (
    BuiltRun,
    OpenTrial,
    Situation,
    open_proposals,
    open_trials,
    tried_values,
)
from harness.analysis.proposals.catalogue import catalogue
from harness.analysis.proposals.ladder import CommandLine, ComposedRun
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.experiment import steps
from harness.experiment.plan import Plan
from harness.experiment.session import Session, open_dataset
from harness.gates.calibration import folds
from harness.measures.judged import judge_lists
from harness.measures.measures import parse_measure
from harness.recording import retrieval_run
from harness.storage.cache import Cache

FOLDS, STEPS, DRAWS = 5, 3, 12
MIXTURES = ("hybrid_lexical", "hybrid_light", "hybrid")
FUSIONS = ("weighted_sum", "rrf", "combmnz", "distribution_based")


@dataclass(frozen=True)
class Case:
    """name: of the data. words: that choose them. objective: what ranks. tokenizers, gates: of the grid."""

    name: str
    words: Mapping[str, str]
    objective: str
    tokenizers: Sequence[str] = ("kiwi", "char_ngram")
    gates: Sequence[str] = ("none",)

    def grid(self) -> Iterator[dict[str, str]]:
        for tokenizer, gate in itertools.product(self.tokenizers, self.gates):
            yield {"retriever": "bm25", "tokenizer": tokenizer, "gate": gate}
            for mixture, fusion in itertools.product(MIXTURES, FUSIONS):
                encoder = {"encoder": "use_multilingual"} if mixture == "hybrid" else {}
                yield {"retriever": mixture, "tokenizer": tokenizer, "gate": gate, "fusion": fusion} | encoder


@dataclass(frozen=True)
class Found:
    """A configuration and its values: of the labels that choose, and by query on the fold."""

    words: CommandLine
    composed: ComposedRun
    key: str
    chooses: float
    held_out: np.ndarray
    params: Mapping[str, str]


@dataclass(eq=False)
class Fold:
    """What is found with some labels, and scored on others. chooses: the ids of the queries that choose."""

    data: Dataset
    chooses: Sequence[str]
    held_out: Sequence[str]
    cache: Cache
    known: dict[str, Found] = field(default_factory=dict)
    places: dict[tuple[str, frozenset[str]], Situation] = field(default_factory=dict)

    @functools.cached_property
    def seen(self) -> Dataset:
        """The data with the labels that choose."""
        assert self.data.qrels is not None
        kept = {query_id: self.data.qrels.grades[query_id] for query_id in self.chooses}
        return replace(self.data, qrels=Qrels(kept, self.data.qrels.abstention))

    def found(self, words: CommandLine) -> Found:
        name = " ".join(words.words)
        if name not in self.known:
            composed = words.composed()
            config, choices = Plan.of(composed.config), composed.invocation.choices
            built = BuiltRun(composed, words, self.seen, self.cache)
            outcome = steps.run_steps(config, Session(self.seen, built.session.queries, self.cache, timed="never"))
            assert outcome.objective is not None
            key = retrieval_run.retrieval_trial_key(config, self.seen.fingerprints, built.facts.texts)
            params = retrieval_run.retrieval_params(config, choices)
            params = {name: str(value) for name, value in params.items()}
            self.known[name] = Found(
                words, composed, key, outcome.objective.value, self._scored(config, outcome), params
            )
        return self.known[name]

    def _scored(self, plan: Plan, outcome: steps.Outcome) -> np.ndarray:
        measure, shown = parse_measure(plan.objective), outcome.decision.shown
        final = outcome.candidates.cut(np.minimum(shown, plan.top_k))
        reads_final = not measure.family.of_rankings or (measure.reach or plan.top_k + 1) <= plan.top_k
        assert self.data.qrels is not None
        lists = final if reads_final else outcome.candidates.where(shown > 0)
        return measure.values(judge_lists(lists, self.data.qrels, self.held_out))

    def situation(self, tried: Sequence[Found]) -> Situation:
        best = chosen(tried)
        keys = frozenset(one.key for one in tried)
        if (best.key, keys) not in self.places:
            others = [one.params for one in tried if one is not best]
            built = BuiltRun(best.composed, best.words, self.seen, self.cache, keys, tried_values(best.params, others))
            self.places[best.key, keys] = built.situation(built.evidence())
        return self.places[best.key, keys]


def chosen(tried: Sequence[Found]) -> Found:
    return max(tried, key=lambda one: one.chooses)  # the first of equals


def walk(fold: Fold, start: CommandLine, step: Callable[[Situation], list[OpenTrial]]) -> list[Found]:
    """What is chosen at the start, and after each step."""
    tried = [fold.found(start)]
    best = [tried[0]]
    for _ in range(STEPS):
        tried += [fold.found(trial.line) for trial in step(fold.situation(tried))]
        best.append(chosen(tried))
    return best


def first_advice(situation: Situation) -> list[OpenTrial]:
    return next((trials for _, trials in open_proposals(situation)), [])


def random_advice(generator: random.Random) -> Callable[[Situation], list[OpenTrial]]:
    def step(situation: Situation) -> list[OpenTrial]:
        ideas = catalogue(situation.setup)
        generator.shuffle(ideas)
        found = (list(open_trials(situation, idea)) for idea in ideas)
        return next((trials for trials in found if trials), [])

    return step


def backtest(case: Case, cache: Cache) -> None:
    began = time.perf_counter()
    base = CommandLine(
        {key: value for key, value in case.words.items() if key in ladder.GROUPS},
        {key: value for key, value in case.words.items() if key not in ladder.GROUPS}
        | {"objective": case.objective, "metrics": [case.objective]},
    )
    data = open_dataset(Plan.of(base.composed().config), case.name)
    parts = list(split(data, cache))
    followed = []
    for fold in parts:
        followed.append(path := walk(fold, base, first_advice))
        print(f"  fold of {len(fold.held_out)}: {' -> '.join(told(one, path[0]) for one in path)}", flush=True)
    grid = [chosen([fold.found(base.changed(one)) for one in case.grid()]) for fold in parts]
    plain, best = mean([path[0] for path in followed]), mean(grid)
    print(f"{case.name}, {case.objective}, {sum(len(one.held_out) for one in parts)} queries, out of fold")
    print(f"  plain BM25 {plain:.4f}; grid of {sum(1 for _ in case.grid())}: {best:.4f} ({told(grid[0], grid[0])})")

    def line(name: str, value: float) -> None:
        gain = (value - plain) / (best - plain)
        print(f"  {name:<22} {value:.4f}  {value / best:.1%} of the grid, {gain:.0%} of its gain", flush=True)

    for place in range(1, STEPS + 1):
        line(f"after {place} of {STEPS} steps", mean([path[place] for path in followed]))
    generators = [random.Random(draw) for draw in range(DRAWS)]
    drawn = [mean([walk(fold, base, random_advice(one))[-1] for fold in parts]) for one in generators]
    line(f"random, mean of {DRAWS}", statistics.mean(drawn))
    print(f"  random: {min(drawn):.4f} to {max(drawn):.4f}, standard deviation {statistics.stdev(drawn):.4f}")
    print(f"  {time.perf_counter() - began:.0f} s", flush=True)


def mean(found: Sequence[Found]) -> float:
    return float(np.nanmean(np.concatenate([one.held_out for one in found])))


def told(one: Found, start: Found) -> str:
    """What a configuration has that the start has not."""
    said = [word for word in one.words.words if one is start or word not in start.words.words]
    return f"{' '.join(word for word in said if not word.startswith(('dataset', 'metrics', 'objective'))) or 'plain'}"


def split(data: Dataset, cache: Cache) -> Iterator[Fold]:
    assert data.qrels is not None
    ids = [query.query_id for query in data.queries if query.query_id in data.qrels.grades]
    fold = folds(np.array([data.qrels.needs_retrieval(one) for one in ids]), FOLDS, 0)
    for number in range(FOLDS):
        chooses = [one for one, inside in zip(ids, fold != number, strict=True) if inside]
        yield Fold(data, chooses, [one for one in ids if one not in set(chooses)], cache)


def cases(data: Path, scratch: Path) -> Iterator[Case]:
    if (folder := data / "science_qa").is_dir():
        files = {"documents": "documents.jsonl", "queries": "eval.jsonl", "qrels": "qrels_public.jsonl"}
        words = {"dataset": "contest", **{f"dataset.{key}": str(folder / file) for key, file in files.items()}}
        yield Case("contest", words, "modified_map@3", ("kiwi", "char_ngram"), ("none", "auto"))
    if (file := data / "korquad" / "KorQuAD_v1.0_dev.json").is_file():
        yield Case("korquad", {"dataset": "squad", "dataset.path": str(_one_question_each(file, scratch))}, "mrr@10")
    if (folder := data / "cranfield").is_dir():
        words = {"dataset": "beir", "dataset.path": str(folder)}
        yield Case("cranfield", words, "ndcg@10", ("kiwi", "snowball"))


def _one_question_each(file: Path, scratch: Path) -> Path:
    """KorQuAD with the first question of each paragraph."""
    content = json.loads(file.read_text("utf-8"))
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = paragraph["qas"][:1]
    small = scratch / "korquad.json"
    small.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    return small


def main(data: str, *names: str) -> None:
    remembered = functools.cache(lambda words: plain_compose("run", list(words), silent=True))
    plain_compose = ladder.compose
    ladder.compose = lambda _, words, silent: remembered(tuple(words))  # Hydra composes the same words once
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases(Path(data), Path(scratch)):
            if not names or case.name in names:
                backtest(case, Cache(Path(case_cache())))


def case_cache() -> Path:
    """The cache that `harness run` would use here."""
    return Plan.of(CommandLine({}, {}).composed().config).cache


if __name__ == "__main__":
    main(*sys.argv[1:])
