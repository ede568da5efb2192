"""The ways through a sweep's trials: all points of a grid, or batches that a sampler proposes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.config.text import counted
from harness.errors import BadInput
from harness.sweeps import plan
from harness.sweeps.execution import Execution, search_counts, tell
from harness.sweeps.report import best_value
from harness.sweeps.summary import objective_values

if TYPE_CHECKING:
    from harness.sweeps.search import Study
    from harness.sweeps.trials import TrialResult


class GridCourse:
    """All points of a grid, in one batch."""

    automatic = None

    def run(self, execution: Execution) -> None:
        points = execution.sweep.points
        tell(plan.plan_lines(execution.forecast(points)))
        execution.batch(points)


class SearchCourse:
    """Batches that a study proposes, until there are enough trials."""

    automatic = None

    def __init__(self, study: Study) -> None:
        self._study = study

    def run(self, execution: Execution) -> None:
        """Propose points, run them and report their values to the study."""
        sweep, study = execution.sweep, self._study
        settings, planner = sweep.settings["search"], sweep.planner
        tell(plan.search_lines(search_counts(sweep, execution.finished, study), sweep.swept))
        if earlier := study.finished:  # by an earlier start: their results are known, unless they failed
            execution.batch([planner.trial(point.number, point.overrides) for point in earlier], settings["trials"])
            tell([_so_far(execution)])
        while (count := len(study.finished)) < settings["trials"]:
            proposals = study.ask(min(settings["batch"], settings["trials"] - count))
            if not proposals:
                tell([f"The search space is exhausted after {counted(count, 'trial')}."])
                break
            planned = [planner.trial(proposal.number, proposal.overrides) for proposal in proposals]
            if compute := execution.forecast.more_retrievals(planned):
                tell([f"{counted(compute, 'retrieval')} to compute"])
            execution.batch(planned, settings["trials"])
            for proposal in proposals:
                study.tell(proposal.number, _values(execution, execution.results[proposal.number]))
            tell([_so_far(execution)])


def _so_far(execution: Execution) -> str:
    """How far a search is, such as `20/60, best so far 0.7394`."""
    best = best_value(execution.results.values())
    done = f"{len(execution.results)}/{execution.sweep.settings['search']['trials']}"
    return f"{done}, best so far {best:.4f}" if math.isfinite(best) else f"{done}, none has a score yet"


def _values(execution: Execution, result: TrialResult) -> list[float]:
    """The objectives of a trial; NaN where it failed."""
    objectives = execution.sweep.objectives
    values = objective_values(result, objectives, execution.sweep.settings["select_on"])
    if result.status == "FINISHED" and not all(map(math.isfinite, values)):
        raise BadInput(f"objectives={[one.name for one in objectives]}: a trial finished without one of them.")
    return values
