"""The search space of `sweep=auto`: the catalogue's proposals that can run here, and the search among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness.analysis.proposals.catalogue import ENCODERS, GATES, Proposal, Setup, models, proposals
from harness.analysis.proposals.command_lines import override_key
from harness.analysis.proposals.costs import CostModel, Workload
from harness.data.dataset import Dataset
from harness.data.scripts import Writing
from harness.errors import BadInput
from harness.gates.calibration import CLOSE
from harness.sweeps.plan import Planner, Trial

Words = tuple[str, ...]  # the overrides of a trial, as key=value

LEADERS = 3  # how many of the best systems are tried with other fusions, with other weights, and with gates
ORDERS = ("fusion", "weights")  # kinds of proposals that reorder the same documents; fusions are tried first
VARIATIONS = ("tokenizer", "bm25", "query", "reranker")  # kinds of proposals that are tried one by one


@dataclass(frozen=True)
class Candidate:
    """A system to try: a retriever, its tokenizer, the text of the queries, perhaps a reranker.

    words: the overrides of the system. orders: overrides to try later, first for other fusions, then for other weights.
    trial: the trial of the system without a gate. promise: a rough estimate of the gain over BM25, to sort systems.
    """

    words: Words
    orders: tuple[tuple[Words, ...], ...]
    trial: Trial = field(repr=False, compare=False)
    work: Workload = field(repr=False, compare=False)
    promise: float = field(repr=False, compare=False)


@dataclass(frozen=True)
class Untried:
    overrides: str
    reason: str


@dataclass(frozen=True)
class SearchSpace:
    """Systems and gates to try. The first system and the first gate make up the baseline."""

    systems: tuple[Candidate, ...]
    gates: tuple[Words, ...]
    left_out: tuple[Untried, ...] = field(default=(), repr=False)

    @property
    def baseline(self) -> Words:
        return self.systems[0].words + self.gates[0]


def best_of(space: SearchSpace, score: Callable[[list[Words]], Mapping[Words, float]]) -> Words:
    """Return the best configuration; of equally good ones, the first. score: configurations -> values, NaN if failed.

    Try all systems without a gate. Then try other fusions, then other weights, then gates. Each of these steps uses
    the best systems so far, `LEADERS` of them.
    """
    values: dict[Words, float] = {}
    of: dict[Words, Candidate] = {}

    def add(asked: Iterable[tuple[Words, Candidate]]) -> None:
        if new := {words: system for words, system in asked if words not in values}:
            of.update(new)
            found = score(list(new))
            values.update({one: -math.inf if math.isnan(found[one]) else found[one] for one in new})

    def leaders() -> list[tuple[Words, Candidate]]:
        best: dict[Candidate, Words] = {}
        for one in sorted(values, key=lambda one: -values[one]):
            if values[one] > -math.inf:
                best.setdefault(of[one], one)
        return [(words, system) for system, words in best.items()][:LEADERS]

    add((system.words + space.gates[0], system) for system in space.systems)
    for step in range(max((len(system.orders) for system in space.systems), default=0)):
        steps = [(words, one, one.orders[step]) for words, one in leaders() if len(one.orders) > step]
        add((changed(words, order), one) for words, one, orders in steps for order in orders)
    add((changed(words, gate), one) for words, one in leaders() for gate in space.gates)
    most = max(values.values())
    return next(one for one, value in values.items() if value >= most - CLOSE)


def changed(words: Words, others: Words) -> Words:
    """Return `words` and `others`. An override in `others` replaces the override in `words` with the same key."""
    return tuple({override_key(word): word for word in (*words, *others)}.values())


class SpaceFinder:
    """Finds the systems to try: the baseline, retrievers with a fitting tokenizer, and variations of each."""

    def __init__(self, planner: Planner, dataset: Dataset, base: Trial) -> None:
        assert dataset.qrels is not None, "the planner refuses trials without labels"
        self._found: dict[str, Candidate] = {}  # trial key -> system; equal trials are tried once
        self._left_out: dict[str, str] = {}
        self._planner, self._fixed = planner, {override_key(word): word for word in planner.fixed}
        known = {kind: {} if kind in self._fixed else models(kind) for kind in ("encoder", "rerank")}
        for kind, found in known.items():
            self._left_out |= {f"{kind}={choice}": why for choice, why in found.items() if why}
        here = {kind: [choice for choice, why in found.items() if not why] for kind, found in known.items()}
        several, grades = dataset.conversations, dataset.qrels.grades
        own = base.choices.get("encoder")
        self._setup = Setup(
            plan=base.retrieval,
            choices=base.choices,
            writing=Writing.of(dataset.documents),
            documents=len(dataset.documents),
            needless=sum(query_id in several and not grades[query_id] for query_id in grades),
            conversations=sum(several.values()),
            encoders=[own] if "encoder" in self._fixed and own else [*ENCODERS, *here["encoder"]],
            rerankers=here["rerank"],
        )
        self._gates = self._find_gates()
        self._start: Words = () if "retriever" in self._fixed else ("retriever=bm25",)
        if "tokenizer" not in self._fixed and (tokenizer := base.choices.get("tokenizer")):
            self._start += (f"tokenizer={tokenizer}",)

    def space(self, costs: CostModel) -> SearchSpace:
        """Return the systems and gates that can run. Raise BadInput if no system can run."""
        if (anchor := self._add(self._start, 0.0)) is None:
            name, why = list(self._left_out.items())[-1]
            raise BadInput(f"sweep=auto finds no system that can run here: {name}: {why}")
        if self._setup.writing.better_tokenizer(self._setup.plan.tokenizer_of(anchor.trial.choices)):
            fitting = itertools.islice(self._options(anchor.trial, "tokenizer"), 1)
            anchor = next((self._add(changed(self._start, words), share) for words, share in fitting), None) or anchor
        starts = [anchor]
        for words, share in self._options(anchor.trial, "retriever"):
            if added := self._add(changed(anchor.words, words), share):
                starts.append(added)
        for start in starts:
            for words, share in self._options(start.trial, *VARIATIONS):
                self._add(changed(start.words, words), (2 * start.promise + share) / 4)
        untried = (Untried(*one) for one in self._left_out.items())
        return SearchSpace(_ordered([*self._found.values()], costs), self._gates, tuple(untried))

    def _find_gates(self) -> tuple[Words, ...]:
        if any(key == "gate" or key.startswith("gate.") for key in self._fixed):
            return ((),)
        if not self._setup.needless:
            why = "every labelled query needs documents, so a gate has nothing to withhold"
            self._left_out[f"gate={','.join(GATES)}"] = why
        ungated = replace(self._setup, choices={**self._setup.choices, "gate": "none"})
        found = [one.changes["gate"] for one in proposals(ungated) if one.kind == "gate"]
        return (("gate=none",), *((f"gate={choice}",) for [choice] in found))

    def _add(self, words: Words, promise: float) -> Candidate | None:
        trial = self._planner.trial(0, (*words, *self._gates[0]))
        if trial.error:
            self._left_out[" ".join(words)] = str(trial.error).partition("\n")[0]
            return None
        plan = trial.retrieval
        reranked = "rerank" in plan.active  # if so, another fusion or weight would need more reranking
        orders = [] if reranked else [self._values(one) for kind in ORDERS for one in self._proposals(trial, kind)]
        work = Workload(plan, [self._planner.rankings[key] for key in trial.ranking_keys])
        made = Candidate(words, tuple(filter(None, orders)), trial, work, promise)
        return self._found.setdefault(trial.key, made)

    def _options(self, trial: Trial, *kinds: str) -> Iterator[tuple[Words, float]]:
        for one in self._proposals(trial, *kinds):
            yield from ((words, one.share) for words in self._values(one))

    def _proposals(self, trial: Trial, *kinds: str) -> list[Proposal]:
        """Return the catalogue's proposals of these kinds. Leave out fusions that learn: they take long."""
        setup = replace(self._setup, plan=trial.retrieval, choices=trial.choices)
        return [one for one in proposals(setup) if one.kind in kinds and one.changes.get("fusion") != ["learned"]]

    def _values(self, one: Proposal) -> tuple[Words, ...]:
        found = []
        for values in one.few or zip(*one.changes.values(), strict=True):
            words = [f"{key}={value}" for key, value in zip(one.changes, values, strict=True)]
            words = [word for word in words if self._fixed.get(override_key(word)) != word]
            if not any(self._is_fixed(override_key(word)) for word in words):
                found.append(tuple(words))
        return tuple(found)

    def _is_fixed(self, key: str) -> bool:
        """Return whether this key or another key of its group, such as another ranking's weight, is fixed."""
        group = key.rpartition(".")[0]
        return key in self._fixed or any(bool(group) and one.startswith(f"{group}.") for one in self._fixed)


def _ordered(found: list[Candidate], costs: CostModel) -> tuple[Candidate, ...]:
    """Put the baseline first, then the others by `promise` per second. Work shared with an earlier one takes 0 s."""
    always = replace(costs, cache=None)  # a restart finds more in the cache, but must keep the order
    first, *left = found
    ordered, made = [first], set(first.work.makes)
    while left:
        best = max(left, key=lambda one: one.promise / (1 + (always.cost([one.work], made).seconds or 0.0)))
        left.remove(best)
        ordered.append(best)
        made |= best.work.makes
    return tuple(ordered)
