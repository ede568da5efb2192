"""Run the trials of a sweep in batches of Hydra jobs. Skip trials that finished in an earlier start or sweep."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from harness.config.text import runnable
from harness.errors import Failed
from harness.experiment import timing
from harness.sweeps import plan
from harness.sweeps.definition import JobsLost, Sweep
from harness.sweeps.jobs import FullRecord
from harness.sweeps.plan import Trial
from harness.sweeps.report import watch_trials
from harness.sweeps.trial_log import TrialLog
from harness.sweeps.trials import COMPUTED, REUSED, TrialResult, claim_sweep, failed
from harness.tracking.file_hashes import FILE_HASHES
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import Tracker, member_tag


class Forecast:
    """Counts the trials, jobs and retrievals of a plan. finished: trial key -> earlier result."""

    def __init__(self, sweep: Sweep, finished: Mapping[str, TrialResult]) -> None:
        self._sweep, self._finished = sweep, finished
        # Digest of a ranking -> whether the ranking was in the cache when it was first planned.
        self._cached: dict[str, bool] = {}

    def __call__(self, trials: Sequence[Trial]) -> dict[str, Any]:
        runnable = [trial for trial in trials if not trial.error]
        different = {trial.key: trial for trial in runnable}
        todo = [trial for key, trial in different.items() if key not in self._finished]
        depths = plan.depths(runnable)
        if runnable:
            self._cached = self._sweep.planner.cached(runnable[0], depths) | self._cached
        jobs = plan.jobs(todo, depths, self._sweep.trials_per_job)
        unwritten = {digest: count for count, digest in (trial.unwritten for trial in todo)}
        return {
            "trials": len(trials),
            "finished_before": len(different) - len(todo),
            "same": len(runnable) - len(different),
            "cannot_run": len(trials) - len(runnable),
            "only_with": self._sweep.partial,
            "jobs": [len(job.trials) for job in jobs],
            "retrievals": {
                "compute": sum(not self._cached[key] for key in depths),
                "cached": sum(self._cached[key] for key in depths),
            },
            "requests": sum(unwritten.values()),
        } | (plan.keys_by_cost(trials) if self._sweep.points else {})

    def more_retrievals(self, trials: Sequence[Trial]) -> int:
        """Return how many retrievals these trials add to the plan."""
        known = set(self._cached)
        self(trials)
        return sum(not cached for key, cached in self._cached.items() if key not in known)


class Execution:
    """A sweep in progress. finished: trial key -> earlier result. trials, results: keyed by trial number."""

    def __init__(self, sweep: Sweep, log: TrialLog, finished: Mapping[str, TrialResult]) -> None:
        self.sweep, self.log, self.finished = sweep, log, finished
        self.tracker, self.context = log.tracker, log.context
        self.forecast = Forecast(sweep, finished)
        self.trials: dict[int, Trial] = {}
        self.results: dict[int, TrialResult] = {}
        self._launched = 0  # number of jobs
        self._job_of: dict[int, int] = {}  # number of a trial -> number of its job

    def mark_reused(self) -> None:
        """Tag the runs that this sweep reused. The sweep's view in MLflow shows runs with this tag."""
        tag = member_tag(self.context.sweep_id)
        reused = {result.run_id for result in self.results.values() if result.reused and result.run_id}
        if not reused:
            return
        try:
            marked = {run.run_id for run in self.tracker.runs(self.context.experiment, {tag: REUSED})}
            for run_id in sorted(reused - marked):
                self.tracker.tag(run_id, {tag: REUSED})
        except Unreachable as error:
            tell(
                [f"The view of this sweep lacks the runs that it reused, since {error}. Repeat the sweep to add them."]
            )

    def begin_in_full(self, number: int, run_id: str | None, folder: Path) -> FullRecord:
        """Let a helping process write a trial in full, if one runs, see `Helpers.begin_in_full`."""
        helpers = self.sweep.launcher.jobs.helpers
        if helpers is None or number not in self._job_of:
            return lambda: None
        return helpers.begin_in_full(self._job_of[number], number, run_id, folder)

    def log_best(self, numbers: Iterable[int]) -> None:
        """Log these trials, which are the best, if the tracker logs only the best."""
        self.log.log_best({self.results[number].key for number in numbers})
        for number, result in self.results.items():
            if not result.run_id and (logged := self.log.results.get(result.key)):
                self.results[number] = replace(result, run_id=logged.run_id)

    def batch(self, trials: Sequence[Trial], total: int | None = None) -> None:
        """Run the trials whose results are not known. Collect all results. total: number of trials in all batches."""
        self.trials |= {trial.number: trial for trial in trials}
        known = {one.key: one for one in self.results.values() if one.status == "FINISHED"} | dict(self.finished)
        waiting: dict[str, Trial] = {}  # one trial for each key
        for trial in trials:
            if trial.error:  # a trial that cannot run is not logged
                self.results[trial.number] = failed(trial, trial.error)
            elif trial.key not in known:
                waiting.setdefault(trial.key, trial)
        error: Exception | None = None
        try:
            if waiting:
                before = list(self.results.values())
                with watch_trials(self.log, before, total or len(before) + len(waiting), self.trials):
                    self._launch(list(waiting.values()))
        except Exception as raised:  # for example, a worker died, and its trials have failed
            error = raised  # workers that still run have the old token, so they stop before their next trial
            self.context = replace(self.context, token=claim_sweep(self.context.folder))
        finally:
            self.log.read()
            self.log.finish()
            known = self.log.results | known
            self.results |= {one.number: known[one.key] for one in trials if not one.error and one.key in known}
        self._fail_lost(trials, error)

    def _fail_lost(self, trials: Iterable[Trial], error: Exception | None) -> None:
        why = f"{type(error).__name__}: {error}" if error else "all workers must share the outputs folder"
        if isinstance(error, JobsLost):
            tell([str(error)])
        elif isinstance(error, Failed):
            why = str(error)
        for trial in trials:
            if trial.number not in self.results:
                of_job = error.of.get(self._job_of.get(trial.number, -1)) if isinstance(error, JobsLost) else None
                lost = f"its job ended without a result ({(of_job or why).splitlines()[0]})"
                self.results[trial.number] = TrialResult(trial.number, trial.key, None, "FAILED", error=lost)

    def _launch(self, trials: list[Trial]) -> None:
        depths = plan.depths(self.trials.values())
        planned = plan.jobs(trials, depths, self.sweep.trials_per_job)
        own = {key: depths[key] for trial in trials for key in trial.ranking_keys}  # none of a trial that was refused
        cached, timed = self.sweep.planner.cached(trials[0], own), bool(self.sweep.times)
        first, launcher = self._launched, self.sweep.launcher
        jobs = {
            first + n: replace(job, timed=timed, cached=all(cached[key] for key in job.trials[0].ranking_keys))
            for n, job in enumerate(planned)
        }
        self._launched += len(jobs)
        self._job_of |= {trial.number: number for number, job in jobs.items() for trial in job.trials}
        launcher.jobs.write(self.context, jobs)
        overrides = [[*chain(*self.sweep.planner.words(job.trials[0].overrides))] for job in planned]
        for returned in launcher.launch(overrides, first):
            _ = returned.return_value  # raises what a job raised


def finished_trials(sweep: Sweep, tracker: Tracker) -> dict[str, TrialResult]:
    """Return trial key -> result for the finished trials of the experiment.

    If a time is an objective, leave out trials that another sweep measured on another machine.
    """
    tag, wanted = member_tag(sweep.sweep_id), {trial.key for trial in sweep.points}
    found = {}
    for run in tracker.runs(sweep.config.experiment_name, {"harness.verb": "run"}, "FINISHED"):
        key, reused, machine = run.tags.get("trial_key"), run.tags.get(tag) != COMPUTED, run.tags.get(timing.MACHINE)
        timed = sweep.times <= run.metrics.keys() and (
            machine == timing.machine() or (machine is not None and not reused)
        )
        if key and (timed or not sweep.times) and (key in wanted or not wanted):
            found[key] = TrialResult(
                int(run.tags.get("sweep.trial", 0)),
                key,
                run.run_id,
                "FINISHED",
                run.metrics,
                reused=reused,
                objective=run.score(sweep.config.objective, sweep.config.select_on),
                hashes=run.tags.get(FILE_HASHES, "{}"),
            )
    return found


def tell(lines: Iterable[str]) -> None:
    for line in lines:
        print(runnable(line), file=sys.stderr)  # noqa: T201
