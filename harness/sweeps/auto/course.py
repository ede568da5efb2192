"""`sweep=auto`: a loop that tries the catalogue's proposals until its budget ends, and scores its choice out of fold.

Systems are chosen by promise, cost and budget alone. So what is computed depends on no label, and the replays of the
procedure find every component ranking in the cache.
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
from harness.data.dataset import Dataset, conversations
from harness.data.files import json_file
from harness.errors import BadInput, Failed
from harness.experiment.plan import Plan
from harness.gates.payoff import payoffs
from harness.progress import watch
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from harness.sweeps.auto.budget import StepLog, seconds_text
from harness.sweeps.auto.menu import LEADERS, Choices, Menu, SystemTrial, Untried, Words, choices, climb
from harness.sweeps.auto.procedure import (
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
from harness.sweeps.definition import Sweep
from harness.sweeps.execution import tell
from harness.sweeps.plan import Trial, cache_of
from harness.sweeps.trials import dataset_of, expected_data
from retrievers.base import Ranking

if TYPE_CHECKING:
    from harness.sweeps.execution import Execution

VERSION = 2  # raise it when the same labels give another choice
SYSTEMS = 0.6  # share of the budget for component rankings
LEARNING = 0.25  # share for each kind of gate, with the replays
REPLAYS = "replays"  # in the cache


class AutoCourse:
    """The course of one sweep. folder: of the sweep, where the log is kept. seconds: its budget."""

    def __init__(self, sweep: Sweep, folder: Path, seconds: float) -> None:
        self._sweep, self._budget = sweep, seconds
        self._log = StepLog(folder / "steps.jsonl")
        self._numbers: dict[Words, int] = {}
        self._made: set[str] = set()  # by the systems that were tried
        began = time.perf_counter()
        self.choices, self._costs = choices_and_costs(sweep)
        self._untried = list(self.choices.left_out)
        self._log.note("plan", time.perf_counter() - began)

    def __call__(self, execution: Execution) -> Automatic:
        tell(auto_plan_lines(self.choices, self._costs, self._budget))
        ran = self._systems(execution)
        if not ran:
            raise Failed("sweep=auto: the baseline failed, so that there is nothing to go by.")
        menu = self._menu(ran)
        began = time.perf_counter()
        winner = climb(menu, lambda asked: self._values(execution, asked))
        self._log.note("choices", time.perf_counter() - began)
        return self._judge(execution, menu, (winner, self._values(execution, [winner])[winner]))

    def _systems(self, execution: Execution) -> list[SystemTrial]:
        """Try the systems that the budget allows; return those that did not fail."""
        ran, waiting = [], list[SystemTrial]()
        for place, one in enumerate(self.choices.systems):
            cost = self._cost(one)
            planned = sum(map(self._cost, waiting))
            if place and not self._affords(_step(one), cost + planned, SYSTEMS * self._budget):
                self._leave_out(one.system.words, cost)
                continue
            waiting.append(one)
            if self._sweep.launcher.serial or place == 0:
                ran += self._try(execution, waiting)
                waiting = []
        return ran + self._try(execution, waiting)

    def _cost(self, one: SystemTrial, pace: float | None = None) -> float:
        """Return the seconds that a system will take, of what is not cached."""
        return self._costs.cost([one.work], self._made, pace or self._log.pace).seconds or 0.0

    def _try(self, execution: Execution, systems: Sequence[SystemTrial]) -> list[SystemTrial]:
        """Run the trials of systems; return those that did not fail."""
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
        self._untried.append(Untried(" ".join(words), f"about {seconds_text(cost)} are too many"))

    def _affords(self, step: str, cost: float, limit: float) -> bool:
        return step in self._log or self._log.spent + cost <= limit

    def _menu(self, ran: Sequence[SystemTrial]) -> Menu:
        """Return what the procedure may choose from, without gates that take too long to learn with all replays."""
        gates = [self.choices.gates[0]]
        for gate in self.choices.gates[1:]:
            cost = self._costs.learning(gate[0].replace("=", "/")) * LEADERS * (1 + FOLDS)
            if gate[0] in self._log or cost <= min(LEARNING * self._budget, self._budget - self._log.spent):
                self._log.note(gate[0], 0.0)
                gates.append(gate)
            else:
                self._leave_out(gate, cost)
        return Menu(tuple(one.system for one in ran), tuple(gates))

    def _values(self, execution: Execution, asked: Sequence[Words]) -> dict[Words, float]:
        """Return the objectives of trials, which are run unless they are known; NaN where a trial failed."""
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

    def _judge(self, execution: Execution, menu: Menu, winner: tuple[Words, float]) -> Automatic:
        """Replay the procedure without each fold, as often as the budget allows."""
        arithmetic, config = Arithmetic(self._sweep.planner), self._sweep.config
        rows = arithmetic.labelled(menu.baseline).rows
        baseline = arithmetic.values(menu.baseline, rows)[rows]
        replays: list[Replayed] = []
        for number in range(REPEATS):
            if replays and not self._affords(f"replay {number}", self._log.seconds("replay") / number, self._budget):
                break
            replays.append(self._replay(menu, arithmetic, number))
        result = next(one for one in execution.results.values() if one.objective is not None)
        assert result.objective is not None
        procedure = judge_procedure(
            config.objective,
            config.select_on,
            replays,
            winner,
            (menu.baseline, baseline),
            config.seed,
            raw=result.objective.estimate is not None,
        )
        parts = {"planning": "plan", "systems": "system", "choices": "choices", "replays": "replay"}
        spent = {name: round(self._log.seconds(kind), 3) for name, kind in parts.items()}
        return Automatic(procedure, len(menu.systems), Budget(self._budget, spent), tuple(self._untried))

    def _replay(self, menu: Menu, arithmetic: Arithmetic, number: int) -> Replayed:
        """Return one replay, from the cache if an earlier start has left it there."""
        config, labelled = self._sweep.config, arithmetic.labelled(menu.baseline)
        made_of = [VERSION, self._sweep.anchor, str(menu), config.seed, config.select_on, number]

        def build(folder: Path) -> None:
            with self._log.step(f"replay {number}"), watch(f"replay {number + 1} of at most {REPEATS}") as progress:
                made = replay(menu, arithmetic.values, labelled.rows, labelled.needs, config.seed, number, progress)
            write_text(folder / "replay.json", json.dumps(encoded(made)))

        place = cache_of(self._sweep.planner.trial(0, menu.baseline)).folder(REPLAYS, {"made_of": made_of}, build)
        return row_as(Replayed, json_file(place / "replay.json"), str(place / "replay.json"))


def choices_and_costs(sweep: Sweep) -> tuple[Choices, CostModel]:
    """Return what a sweep may try, and the estimates of what that costs."""
    planner = sweep.planner
    base = planner.trial(0, ())
    if base.error:
        raise base.error
    plan = base.retrieval
    dataset = dataset_of(expected_data(plan, base.fingerprints), base.choices["dataset"] or "")
    _check_queries(plan, dataset)
    costs = CostModel.of(cache_of(base), dataset)
    return choices(planner, dataset, base, costs), costs


def _check_queries(plan: Plan, dataset: Dataset) -> None:
    """Raise BadInput unless two queries can choose, of which one scores what the other has chosen."""
    assert dataset.qrels is not None, "the planner refuses trials without labels"
    nothing = Ranking.from_scores({query.query_id: {} for query in dataset.queries})
    turns = conversations(dataset.queries)
    rows = payoffs(nothing, dataset.qrels, plan.objective, 0, split=plan.split, multi_turn=turns).rows
    if len(rows) < 2:
        raise BadInput(
            f"sweep=auto has {len(rows)} labelled queries to choose by, of those that {plan.objective} counts: it "
            "needs two or more, so that its choice can be scored on queries that it has not seen."
        )


def planned(sweep: Sweep, budget: float) -> tuple[dict[str, Any], list[str]]:
    """Return the plan of a sweep, for the JSON document and in words."""
    found, costs = choices_and_costs(sweep)
    rows = _estimates(found, costs)
    orders = dict.fromkeys(word for one in found.systems for order in one.system.orders for [word, *_] in order)
    document = {
        "budget": budget,
        "systems": [{"overrides": list(one.system.words), "seconds": round(cost, 1)} for one, cost in rows],
        "gates": [" ".join(words) for words in found.gates],
        "fusions": list(orders),
        "untried": found.left_out,
    }
    lines = [f"{seconds_text(cost):>8}  {' '.join(one.system.words)}" for one, cost in rows]
    return document, [*auto_plan_lines(found, costs, budget), *lines, *untried_lines(found.left_out)]


def auto_plan_lines(found: Choices, costs: CostModel, budget: float) -> list[str]:
    """Return the plan in words, without its systems."""
    total = sum(cost for _, cost in _estimates(found, costs))
    gates = ", ".join(" ".join(gate) for gate in found.gates if gate)
    orders = max((sum(map(len, one.system.orders)) for one in found.systems), default=0)
    return [
        f"{counted(len(found.systems), 'system')} to try, about {seconds_text(total)} in all; of the budget of "
        f"{seconds_text(budget)}, {SYSTEMS:.0%} are for them",
        f"then {orders} other fusions and weights, {gates or 'your gate'}, and the same without each of {FOLDS} folds",
    ]


def _estimates(found: Choices, costs: CostModel) -> list[tuple[SystemTrial, float]]:
    """Return the systems in their order, with the seconds that each takes after those before it."""
    made, rows = set[str](), []
    for one in found.systems:
        rows.append((one, costs.cost([one.work], made).seconds or 0.0))
        made |= one.work.makes
    return rows


def _step(one: SystemTrial) -> str:
    return f"system {' '.join(one.system.words)}"
