"""The course of an automatic sweep: systems by their promise and cost, then what follows from their values, then the
same again without the labels of each fold.

Systems are chosen by promise, cost and budget alone. So what is computed depends on no label, and the replays of the
procedure find every component ranking in the cache.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.sweep.auto.ascent import LEADERS, Menu, Words, ascend
from harness.commands.sweep.auto.bench import Bench
from harness.commands.sweep.auto.budget import StepLog, seconds_text
from harness.commands.sweep.auto.catalogue import Candidate, Catalogue, catalogue
from harness.commands.sweep.auto.costs import TRIAL, Costs
from harness.commands.sweep.auto.outcome import Automatic, untried_lines
from harness.commands.sweep.auto.procedure import FOLDS, REPEATS, Replay, judged, replay
from harness.commands.sweep.definition import Sweep
from harness.commands.sweep.execution import tell
from harness.commands.sweep.plan import Trial, cache_of
from harness.commands.sweep.work import dataset_of, expected_data
from harness.config.canonical import digest
from harness.config.text import counted
from harness.data.dataset import Dataset, conversations
from harness.gates.payoff import payoffs
from harness.pipeline.run_config import RunConfig
from harness.progress import watch
from retrievers.base import BadInput, Failed, Ranking

if TYPE_CHECKING:
    from harness.commands.sweep.execution import Execution

VERSION = 1  # raise it when the same labels give another choice
SYSTEMS = 0.6  # share of the budget for component rankings
LEARNING = 0.25  # share for each kind of gate, with the replays
ARITHMETIC = 150  # evaluations of fusions and weights in a sweep and its replays, about


class AutoCourse:
    """The course of one sweep. folder: of the sweep, where the log and the replays are kept."""

    def __init__(self, sweep: Sweep, folder: Path, seconds: float) -> None:
        self.automatic: Automatic | None = None
        self._sweep, self._folder, self._budget = sweep, folder, seconds
        self._log = StepLog(folder / "steps.jsonl")
        self._numbers: dict[Words, int] = {}
        self._untried: list[tuple[str, str]] = []
        self._made: set[str] = set()  # by the systems that were tried
        began = time.perf_counter()
        self.catalogue, self._costs = listed(sweep)
        self._untried += self.catalogue.left_out
        self._log.note("plan", time.perf_counter() - began)

    def run(self, execution: Execution) -> None:
        tell(plan_lines(self.catalogue, self._costs, self._budget))
        ran = self._systems(execution)
        if not ran:
            raise Failed("sweep=auto: the baseline failed, so that there is nothing to go by.")
        menu = self._menu(ran, self._arithmetic(execution))
        winner = self._ascend(execution, menu)
        self.automatic = self._judge(execution, menu, winner)

    def _systems(self, execution: Execution) -> list[Candidate]:
        """Try the systems that the budget allows; returns those that did not fail."""
        ran, waiting = [], list[Candidate]()
        for place, one in enumerate(self.catalogue.candidates):
            cost = self._cost(one)
            planned = sum(map(self._cost, waiting))
            if place and not self._affords(_step(one), cost + planned, SYSTEMS * self._budget):
                self._untried.append((" ".join(one.system.words), f"about {seconds_text(cost)} are too many"))
                continue
            waiting.append(one)
            if self._sweep.launcher.serial or place == 0:
                ran += self._try(execution, waiting)
                waiting = []
        return ran + self._try(execution, waiting)

    def _cost(self, one: Candidate) -> float:
        """Seconds that a system will take, of what is not cached."""
        return self._costs.seconds(one.trial, self._made | self._costs.cached(one.trial), self._log.pace)

    def _try(self, execution: Execution, systems: Sequence[Candidate]) -> list[Candidate]:
        """Run the trials of systems; returns those that did not fail. [] without systems."""
        if not systems:
            return []
        there = [self._made | self._costs.cached(one.trial) for one in systems]
        estimates = [self._costs.seconds(one.trial, made) for one, made in zip(systems, there, strict=True)]
        began = time.perf_counter()
        values = self._values(execution, [one.trial.overrides for one in systems])
        took = time.perf_counter() - began
        for one, estimate in zip(systems, estimates, strict=True):
            self._log.note(_step(one), took * estimate / sum(estimates), estimate)
            self._made |= self._costs.made(one.trial)
        return [one for one in systems if not math.isnan(values[one.trial.overrides])]

    def _affords(self, step: str, cost: float, limit: float) -> bool:
        return step in self._log or self._log.spent + cost <= limit

    def _arithmetic(self, execution: Execution) -> float:
        """Seconds to fuse, score and log a trial: of the quickest system, when it was first tried."""
        if "trial" not in self._log:
            took = [result.seconds for result in execution.results.values() if result.seconds > 0]
            self._log.note("trial", min(took, default=TRIAL))  # a run that was there before took none
        return self._log.seconds("trial")

    def _menu(self, ran: Sequence[Candidate], trial: float) -> Menu:
        """What the procedure may choose from, without what would take too long with all replays. trial: seconds."""
        found = self.catalogue
        fusions, weigh = found.fusions, found.weigh
        if not self._allowed("fusions", ARITHMETIC * trial, "fusion, fusion.weights"):
            fusions, weigh = found.fusions[:1], False
        gates = [found.gates[0]]
        for gate in found.gates[1:]:
            name = gate[0].partition("=")[2]
            cost = self._costs.learning(name) * LEADERS * (1 + FOLDS)
            if self._allowed(f"gate {name}", cost, gate[0]):
                gates.append(gate)
        return Menu(tuple(one.system for one in ran), tuple(gates), fusions, weigh)

    def _allowed(self, step: str, cost: float, name: str) -> bool:
        """Whether a kind of choice is within its share of the budget; it is remembered, if so."""
        if step in self._log or cost <= min(LEARNING * self._budget, self._budget - self._log.spent):
            self._log.note(step, 0.0)
            return True
        self._untried.append((name, f"about {seconds_text(cost)} are too many"))
        return False

    def _ascend(self, execution: Execution, menu: Menu) -> tuple[Words, float]:
        """Carry the procedure out with all labels; returns the winner and its value."""
        steps, values = ascend(menu), dict[Words, float]()
        began = time.perf_counter()
        asked = next(steps)
        while True:
            new = self._values(execution, asked)
            values |= new
            try:
                asked = steps.send(new)
            except StopIteration as over:
                self._log.note("choices", time.perf_counter() - began)
                return over.value, values[over.value]

    def _values(self, execution: Execution, asked: Sequence[Words]) -> dict[Words, float]:
        """The objectives of trials, which are run unless they are known; NaN where a trial failed."""
        planned: dict[Words, Trial] = {}
        for words in asked:
            number = self._numbers.setdefault(words, len(self._numbers))
            planned[words] = self._sweep.planner.trial(number, words)
        new = [trial for trial in planned.values() if trial.number not in execution.results]
        execution.batch(new)
        found = {}
        for words, trial in planned.items():
            objective = execution.results[trial.number].objective
            found[words] = math.nan if objective is None else objective.value
        return found

    def _judge(self, execution: Execution, menu: Menu, winner: tuple[Words, float]) -> Automatic:
        """Replay the procedure without each fold, as often as the budget allows."""
        bench, settings = Bench(self._sweep.planner), self._sweep.settings
        rows = bench.labelled(menu.baseline).rows
        baseline = bench.values(menu.baseline, rows)[rows]
        replays: list[Replay] = []
        for number in range(REPEATS):
            if replays and not self._affords(f"replay {number}", self._log.seconds("replay") / number, self._budget):
                break
            replays.append(self._replay(menu, bench, number))
        result = next(one for one in execution.results.values() if one.objective is not None)
        assert result.objective is not None
        procedure = judged(
            settings["objective"],
            settings["select_on"],
            replays,
            winner,
            (menu.baseline or ("the run as it is",), baseline),
            settings["seed"],
            raw=result.objective.estimate is not None,
        )
        parts = {"planning": "plan", "systems": "system", "choices": "choices", "replays": "replay"}
        seconds = {name: self._log.seconds(kind) for name, kind in parts.items()}
        return Automatic(procedure, len(menu.systems), self._budget, tuple(self._untried), seconds)

    def _replay(self, menu: Menu, bench: Bench, number: int) -> Replay:
        """One replay, from the folder where an earlier start has left it."""
        settings = self._sweep.settings
        made_of = digest([VERSION, self._sweep.anchor, str(menu), settings["seed"], settings["select_on"]])
        file = self._folder / f"replay-{number}.json"
        if (found := Replay.read(file, made_of)) is not None:
            return found
        labelled = bench.labelled(menu.baseline)
        with self._log.step(f"replay {number}"), watch(f"replay {number + 1} of at most {REPEATS}") as progress:
            made = replay(menu, bench, labelled.rows, labelled.needs, settings["seed"], number, progress)
        made.write(file, made_of)
        return made


def listed(sweep: Sweep) -> tuple[Catalogue, Costs]:
    """What a sweep may try, and the estimates of what that costs."""
    planner = sweep.planner
    base = planner.trial(0, ())
    if base.error:
        raise base.error
    expected = expected_data(RunConfig.of(base.config), base.fingerprints)
    dataset = dataset_of(expected, base.choices["dataset"] or "")
    _check_queries(RunConfig.of(base.config), dataset)
    costs = Costs.of(planner, dataset, cache_of(base))
    return catalogue(planner, dataset, base, costs), costs


def _check_queries(config: RunConfig, dataset: Dataset) -> None:
    """BadInput unless two queries can choose, of which one scores what the other has chosen."""
    assert dataset.qrels is not None, "the planner refuses trials without labels"
    nothing, turns = (
        Ranking.from_scores({query.query_id: {} for query in dataset.queries}),
        conversations(dataset.queries),
    )
    rows = payoffs(nothing, dataset.qrels, config.objective, 0, split=config.split, multi_turn=turns).rows
    if len(rows) < 2:
        raise BadInput(
            f"sweep=auto has {len(rows)} labelled queries to choose by, of those that {config.objective} counts: it "
            "needs two or more, so that its choice can be scored on queries that it has not seen."
        )


def planned(sweep: Sweep, budget: float) -> tuple[dict[str, Any], list[str]]:
    """The plan of a sweep that has not begun, or goes on: for the JSON document, and in words."""
    found, costs = listed(sweep)
    rows = _estimates(found, costs)
    document = {
        "budget": budget,
        "systems": [{"overrides": list(one.system.words), "seconds": round(cost, 1)} for one, cost in rows],
        "gates": [" ".join(words) for words in found.gates],
        "fusions": [" ".join(words) for words in found.fusions if words],
        "untried": [{"overrides": words, "reason": why} for words, why in found.left_out],
    }
    lines = [f"{seconds_text(cost):>8}  {' '.join(one.system.words)}" for one, cost in rows]
    return document, [*plan_lines(found, costs, budget), *lines, *untried_lines(found.left_out)]


def plan_lines(found: Catalogue, costs: Costs, budget: float) -> list[str]:
    """The plan in words, without its systems."""
    total = sum(cost for _, cost in _estimates(found, costs))
    gates = ", ".join(" ".join(gate) for gate in found.gates if gate)
    fusions = f"{counted(len(found.fusions), 'fusion')}{' with weights' if found.weigh else ''}"
    return [
        f"{counted(len(found.candidates), 'system')} to try, about {seconds_text(total)} in all; of the budget of "
        f"{seconds_text(budget)}, {SYSTEMS:.0%} are for them",
        f"then {fusions}, {gates or 'your gate'}, and the same without each of {FOLDS} folds",
    ]


def _estimates(found: Catalogue, costs: Costs) -> list[tuple[Candidate, float]]:
    """The systems in their order, with the seconds that each takes after those before it."""
    there, rows = set[str](), []
    for one in found.candidates:
        rows.append((one, costs.seconds(one.trial, there | costs.cached(one.trial))))
        there |= costs.made(one.trial)
    return rows


def _step(one: Candidate) -> str:
    return f"system {' '.join(one.system.words)}"
