"""The loop of `sweep=auto`: try systems within the budget, choose the best configuration, and score the choice.

A replay repeats the choice once for each fold, without the fold's labels. Labels do not decide which systems are
tried, so a replay finds all rankings in the cache.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.proposals.costs import CostModel
from harness.config.text import counted
from harness.data.files import json_file
from harness.errors import BadInput, Failed
from harness.gates.payoff import queries_to_learn_from
from harness.progress import watch
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from harness.sweeps.auto.budget import StepLog, seconds_text
from harness.sweeps.auto.out_of_fold import (
    FOLDS,
    REPEATS,
    Arithmetic,
    Automatic,
    Budget,
    Replayed,
    judge_procedure,
    replay,
    untried_lines,
)
from harness.sweeps.auto.space import LEADERS, Candidate, SearchSpace, SpaceFinder, Untried, Words, best_of
from harness.sweeps.definition import Sweep
from harness.sweeps.execution import tell
from harness.sweeps.plan import Trial, cache_of
from harness.sweeps.trials import dataset_of

if TYPE_CHECKING:
    from harness.sweeps.execution import Execution

VERSION = 2  # increase it if a change of the code may change which configuration is chosen
SYSTEMS = 0.6  # the share of the budget for component rankings
LEARNING = 0.25  # the maximum share of the budget for learning a kind of gate, including the folds of a replay
REPLAYS = "replays"  # folder in the cache


class AutoLoop:
    """One automatic sweep. seconds: the time budget."""

    def __init__(self, sweep: Sweep, seconds: float) -> None:
        self._sweep, self._budget = sweep, seconds
        self._log = StepLog(sweep.folder / "steps.jsonl")
        self._numbers: dict[Words, int] = {}
        self._made: set[str] = set()  # names of the cache entries of the systems tried so far
        began = time.perf_counter()
        self._space, self._costs = space_and_costs(sweep)
        self._untried = list(self._space.left_out)
        self._log.note("plan", time.perf_counter() - began)

    def __call__(self, execution: Execution) -> Automatic:
        tell(auto_plan_lines(self._space, self._costs, self._budget))
        ran = self._run_systems(execution)
        if not ran:
            raise Failed("sweep=auto: the baseline failed, so other systems cannot be compared with it.")
        space = SearchSpace(tuple(ran), self._affordable_gates())
        began = time.perf_counter()
        winner = best_of(space, lambda asked: self._values(execution, asked))
        self._log.note("choices", time.perf_counter() - began)
        return self._judge(execution, space, (winner, self._values(execution, [winner])[winner]))

    def _run_systems(self, execution: Execution) -> list[Candidate]:
        ran, waiting = [], list[Candidate]()
        for place, one in enumerate(self._space.systems):
            cost = self._cost(one)
            planned = sum(map(self._cost, waiting))
            if place and not self._affords(_step(one), cost + planned, SYSTEMS * self._budget):
                self._leave_out(one.words, cost)
                continue
            waiting.append(one)
            if self._sweep.launcher.jobs.serial or place == 0:
                ran += self._try(execution, waiting)
                waiting = []
        return ran + self._try(execution, waiting)

    def _cost(self, one: Candidate, pace: float | None = None) -> float:
        return self._costs.cost([one.work], self._made, pace or self._log.pace).seconds or 0.0

    def _try(self, execution: Execution, systems: Sequence[Candidate]) -> list[Candidate]:
        if not systems:
            return []
        estimates = [self._cost(one, 1.0) for one in systems]
        began = time.perf_counter()
        values = self._values(execution, [one.trial.overrides for one in systems])
        took = time.perf_counter() - began
        for one, estimate in zip(systems, estimates, strict=True):
            self._log.note(_step(one), took * estimate / sum(estimates), estimate)
            self._made |= one.work.makes
        return [one for one in systems if not math.isnan(values[one.trial.overrides])]

    def _leave_out(self, words: Words, cost: float) -> None:
        self._untried.append(Untried(" ".join(words), f"about {seconds_text(cost)} is too long"))

    def _affords(self, step: str, cost: float, limit: float) -> bool:
        return step in self._log or self._log.spent + cost <= limit

    def _affordable_gates(self) -> tuple[Words, ...]:
        first, *others = self._space.gates
        kept = [first]
        for gate in others:
            cost = self._costs.learning(gate[0].replace("=", "/")) * LEADERS * (1 + FOLDS)
            if gate[0] in self._log or cost <= min(LEARNING * self._budget, self._budget - self._log.spent):
                self._log.note(gate[0], 0.0)
                kept.append(gate)
            else:
                self._leave_out(gate, cost)
        return tuple(kept)

    def _values(self, execution: Execution, asked: Sequence[Words]) -> dict[Words, float]:
        """Run the trials that have no result yet. Return the objective of every trial, NaN if the trial failed."""
        planned: dict[Words, Trial] = {}
        for words in asked:
            number = self._numbers.setdefault(words, len(self._numbers))
            planned[words] = self._sweep.planner.trial(number, words)
        execution.batch([trial for trial in planned.values() if trial.number not in execution.results])
        found = {}
        for words, trial in planned.items():
            objective = execution.results[trial.number].objective
            found[words] = math.nan if objective is None else objective.value
        return found

    def _judge(self, execution: Execution, space: SearchSpace, winner: tuple[Words, float]) -> Automatic:
        arithmetic = Arithmetic(self._sweep.planner)
        rows = arithmetic.labelled(space.baseline).rows
        baseline = space.baseline, arithmetic.values(space.baseline, rows)[rows]
        replays: list[Replayed] = []
        for number in range(REPEATS):
            if replays and not self._affords(f"replay {number}", self._log.seconds("replay") / number, self._budget):
                break
            replays.append(self._replay(space, arithmetic, number))
        objective = next(one.objective for one in execution.results.values() if one.objective is not None)
        raw = objective.estimate is not None
        procedure = judge_procedure(self._sweep.config, replays, winner, baseline, raw)
        parts = {"planning": "plan", "systems": "system", "choices": "choices", "replays": "replay"}
        spent = {name: round(self._log.seconds(kind), 3) for name, kind in parts.items()}
        return Automatic(procedure, len(space.systems), Budget(self._budget, spent), tuple(self._untried))

    def _replay(self, space: SearchSpace, arithmetic: Arithmetic, number: int) -> Replayed:
        config, labelled = self._sweep.config, arithmetic.labelled(space.baseline)
        named = str(space).replace(SearchSpace.__name__, "Menu", 1)  # keys of cached replays contain this older name
        made_of = [VERSION, self._sweep.anchor, named, config.seed, config.select_on, number]

        def build(folder: Path) -> None:
            began = time.perf_counter()
            with watch(f"replay {number + 1} of at most {REPEATS}") as progress:
                made = replay(space, arithmetic.values, labelled, config.seed, number, progress)
            self._log.note(f"replay {number}", time.perf_counter() - began)
            write_text(folder / "replay.json", json.dumps(encoded(made)))

        place = cache_of(self._sweep.planner.trial(0, space.baseline)).folder(REPLAYS, {"made_of": made_of}, build)
        return row_as(Replayed, json_file(place / "replay.json"), str(place / "replay.json"))


def space_and_costs(sweep: Sweep) -> tuple[SearchSpace, CostModel]:
    """Return the search space and the cost model. Raise BadInput if fewer than two queries have labels."""
    base = sweep.planner.trial(0, ())
    if base.error:
        raise base.error
    plan, dataset = base.retrieval, dataset_of(base)
    assert dataset.qrels is not None, "the planner refuses trials without labels"
    turns = dataset.conversations
    rows = queries_to_learn_from(list(turns), dataset.qrels, plan.objective, plan.split, turns).rows
    if len(rows) < 2:
        raise BadInput(
            f"There are {len(rows)} labelled queries that {plan.objective} counts, but sweep=auto needs two or more "
            "to score its choice on queries that it has not seen."
        )
    costs = CostModel.of(cache_of(base), dataset)
    return SpaceFinder(sweep.planner, dataset, base).space(costs), costs


def planned(sweep: Sweep, budget: float) -> tuple[dict[str, Any], list[str]]:
    """Return the plan of a sweep as JSON values and as lines of text."""
    space, costs = space_and_costs(sweep)
    rows = _estimates(space, costs)
    orders = dict.fromkeys(word for one in space.systems for order in one.orders for [word, *_] in order)
    document = {
        "budget": budget,
        "systems": [{"overrides": list(one.words), "seconds": round(cost, 1)} for one, cost in rows],
        "gates": [" ".join(words) for words in space.gates],
        "fusions": list(orders),
        "untried": space.left_out,
    }
    lines = [f"{seconds_text(cost):>8}  {' '.join(one.words)}" for one, cost in rows]
    return document, [*auto_plan_lines(space, costs, budget), *lines, *untried_lines(space.left_out)]


def auto_plan_lines(space: SearchSpace, costs: CostModel, budget: float) -> list[str]:
    """Return the plan in words, without the list of systems."""
    total = sum(cost for _, cost in _estimates(space, costs))
    gates = ", ".join(" ".join(gate) for gate in space.gates if gate)
    orders = max((sum(map(len, one.orders)) for one in space.systems), default=0)
    return [
        f"{counted(len(space.systems), 'system')} to try, about {seconds_text(total)} in all; they may take "
        f"{SYSTEMS:.0%} of the budget of {seconds_text(budget)}",
        f"then {orders} other fusions and weights, and {gates or 'your gate'}; then the same choices again for each of "
        f"{FOLDS} folds, without the fold's labels",
    ]


def _estimates(space: SearchSpace, costs: CostModel) -> list[tuple[Candidate, float]]:
    made, rows = set[str](), []
    for one in space.systems:
        rows.append((one, costs.cost([one.work], made).seconds or 0.0))
        made |= one.work.makes
    return rows


def _step(one: Candidate) -> str:
    return f"system {' '.join(one.words)}"
