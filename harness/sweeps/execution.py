"""Runs the trials of a sweep: in batches, each as Hydra jobs, without the ones that have finished before."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from harness.config.program import runnable
from harness.errors import Failed
from harness.experiment import timing
from harness.sweeps import plan
from harness.sweeps.auto.procedure import Automatic
from harness.sweeps.definition import JobsLost, Sweep
from harness.sweeps.plan import Trial
from harness.sweeps.report import watch_trials
from harness.sweeps.search import Study
from harness.sweeps.trials import COMPUTED, REUSED, Context, TrialResult, claim_sweep, read_journal, refused
from harness.tracking.file_hashes import FILE_HASHES
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker, member_tag


class Forecast:
    """Counts the trials, jobs and retrievals that a plan will take.

    finished: trial key -> result of the trials that finished before.
    """

    def __init__(self, sweep: Sweep, finished: Mapping[str, TrialResult]) -> None:
        self._sweep, self._finished = sweep, finished
        self._cached: dict[str, bool] = {}  # digest of a ranking -> whether it was cached when it was first planned

    def __call__(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """The counts of these trials. `same`: those that have the key of another one."""
        runnable = [trial for trial in trials if not trial.error]
        different = {trial.key: trial for trial in runnable}
        todo = [trial for key, trial in different.items() if key not in self._finished]
        depths = plan.depths(runnable)
        if runnable:
            cached = plan.cached_rankings(self._sweep.planner.rankings, depths, plan.cache_of(runnable[0]))
            self._cached = {key: key in cached for key in depths} | self._cached
        jobs = plan.jobs(todo, depths, self._sweep.trials_per_job)
        unwritten = {digest: count for count, digest in (trial.unwritten for trial in todo)}
        return {
            "trials": len(trials),
            "finished_before": len(different) - len(todo),
            "same": len(runnable) - len(different),
            "cannot_run": len(trials) - len(runnable),
            "only_with": self._sweep.partial,
            "respelt": plan.respelt(self._sweep.swept),
            "jobs": [len(job.trials) for job in jobs],
            "retrievals": {
                "compute": sum(not self._cached[key] for key in depths),
                "cached": sum(self._cached[key] for key in depths),
            },
            "requests": sum(unwritten.values()),
        } | (plan.keys_by_cost(trials) if self._sweep.points else {})

    def more_retrievals(self, trials: Sequence[Trial]) -> int:
        """How many retrievals these trials will compute that no trial planned before needs."""
        known = set(self._cached)
        self(trials)
        return sum(not cached for key, cached in self._cached.items() if key not in known)


class Course(Protocol):
    """A way through a sweep's trials."""

    @property
    def automatic(self) -> Automatic | None:
        """What an automatic sweep found beside its trials; None for other sweeps, and before it is over."""

    def run(self, execution: Execution) -> None:
        """Run the trials, in one batch or several."""


class Execution:
    """A sweep in progress.

    finished: trial key -> result of the trials that finished before.
    trials: number -> trial. results: number -> result.
    """

    def __init__(self, sweep: Sweep, tracker: Tracker, context: Context, finished: Mapping[str, TrialResult]) -> None:
        self.sweep, self.tracker, self.context, self.finished = sweep, tracker, context, finished
        self.forecast = Forecast(sweep, finished)
        self.trials: dict[int, Trial] = {}
        self.results: dict[int, TrialResult] = {}
        self._launched = 0  # jobs
        self._job_of: dict[int, int] = {}  # number of a trial -> of its job

    def run(self, course: Course) -> BaseException | None:
        """Run the trials; returns the error that ended the sweep early, if any."""
        try:
            course.run(self)
        except (Exception, KeyboardInterrupt) as error:
            return error
        return None

    def close_running(self, status: str) -> None:
        """End the runs of trials that are still RUNNING."""
        with suppress(Unreachable):  # they stay RUNNING, and the next start adopts them
            for run in self.context.left_running(self.tracker).values():
                self.tracker.finish(run.run_id, RunRecord(run.experiment, run.name), status)

    def mark_reused(self) -> None:
        """Tag the runs that this sweep has reused as trials of its own, so that its view in MLflow lists them."""
        tag = member_tag(self.context.sweep_id)
        reused = {result.run_id for result in self.results.values() if result.reused and result.run_id}
        if not reused:
            return
        try:
            marked = {run.run_id for run in self.tracker.runs(self.context.experiment, {tag: REUSED})}
            for run_id in sorted(reused - marked):
                self.tracker.tag(run_id, {tag: REUSED})
        except Unreachable as error:
            tell([f"The view of this sweep will lack the runs that it reused, since {error}. To add them, repeat it."])

    def batch(self, trials: Sequence[Trial], total: int | None = None) -> None:
        """Run the trials whose results are not known yet, and collect the results of all of them.

        total: how many trials there will be; None: no more than these.
        """
        self.trials |= {trial.number: trial for trial in trials}
        known = {result.key: result for result in self.results.values() if result.status == "FINISHED"} | dict(
            self.finished
        )
        self._fail_unrunnable(trials)
        waiting: dict[str, Trial] = {}  # one of those that are the same
        for trial in trials:
            if not trial.error and trial.key not in known:
                waiting.setdefault(trial.key, trial)
        error: Exception | None = None
        try:
            if waiting:
                before = list(self.results.values())
                total = total or len(before) + len(waiting)
                with watch_trials(self.context, total, self.trials, self.sweep.objectives[0].name, before=before):
                    self._launch(list(waiting.values()))
        except Exception as raised:  # such as a dead worker: its trials have failed, the others continue
            error = raised
        finally:
            known = {result.key: result for result in read_journal(self.context)[0]} | known
            self.results |= {one.number: known[one.key] for one in trials if not one.error and one.key in known}
        if error:
            self._stop_workers()
        self._fail_lost(trials, error)

    def _fail_unrunnable(self, trials: Iterable[Trial]) -> None:
        """Trials that cannot run have failed; nothing of them is logged, since nothing began."""
        for trial in trials:
            if trial.error:
                self.results[trial.number] = refused(trial, trial.error)

    def _fail_lost(self, trials: Iterable[Trial], error: Exception | None) -> None:
        """Trials without a result have failed. error: what the launcher raised."""
        why = f"{type(error).__name__}: {error}" if error else "workers must share the outputs folder"
        if isinstance(error, JobsLost):
            tell([str(error)])
        elif isinstance(error, Failed):
            why = str(error)
        for trial in trials:
            if trial.number not in self.results:
                of_job = error.of.get(self._job_of.get(trial.number, -1)) if isinstance(error, JobsLost) else None
                lost = f"its job ended without a result ({(of_job or why).splitlines()[0]})"
                self.results[trial.number] = TrialResult(trial.number, trial.key, None, "FAILED", error=lost)

    def _stop_workers(self) -> None:
        """After the launcher failed: claim the sweep anew, so that workers stop, and close the runs they leave."""
        self.context = replace(self.context, token=claim_sweep(self.context.folder))
        self.close_running("FAILED")

    def _launch(self, trials: list[Trial]) -> None:
        jobs = plan.jobs(trials, plan.depths(self.trials.values()), self.sweep.trials_per_job)
        jobs = [replace(job, timed=bool(self.sweep.times)) for job in jobs]
        numbers = range(self._launched, self._launched + len(jobs))
        self._launched += len(jobs)
        self._job_of |= {
            trial.number: number for number, job in zip(numbers, jobs, strict=True) for trial in job.trials
        }
        launcher = self.sweep.launcher
        launcher.jobs.write(self.context, dict(zip(numbers, jobs, strict=True)))
        overrides = [[*chain(*self.sweep.planner.words(job.trials[0].overrides))] for job in jobs]
        for returned in launcher.launch(overrides, numbers[0]):
            _ = returned.return_value  # raises what a job raised


def search_counts(sweep: Sweep, finished: Mapping[str, TrialResult], study: Study | None) -> dict[str, Any]:
    """The counts of a search's plan. finished: as for `Forecast`. study: None before the first start."""
    earlier = [sweep.planner.trial(point.number, point.overrides) for point in study.finished] if study else []
    return {
        "trials": sweep.settings["search"]["trials"],
        "finished_before": sum(trial.key in finished for trial in earlier),
        "only_with": sweep.partial,
        "respelt": plan.respelt(sweep.swept),
    }


def finished_trials(sweep: Sweep, tracker: Tracker) -> dict[str, TrialResult]:
    """trial key -> result of the trials that have finished, in this sweep or elsewhere in the experiment.

    Where times are compared, those of other machines do not count, unless this sweep has measured them there.
    """
    runs = tracker.runs(sweep.settings["experiment_name"], {"harness.verb": "run"}, "FINISHED")
    if sweep.times:
        tag = member_tag(sweep.sweep_id)
        runs = [run for run in runs if sweep.times <= run.metrics.keys() and _timed_here(run, tag)]
    finished = {key: _as_result(run, sweep) for run in runs if (key := run.tags.get("trial_key"))}
    if sweep.points:
        wanted = {trial.key for trial in sweep.points}
        finished = {key: result for key, result in finished.items() if key in wanted}
    return finished


def _timed_here(run: LoggedRun, tag: str) -> bool:
    """Whether a run's times can be compared with this machine's. tag: as for `_as_result`."""
    where = run.tags.get(timing.MACHINE)
    return where == timing.machine() or (where is not None and run.tags.get(tag) == COMPUTED)


def tell(lines: Iterable[str]) -> None:
    """Print lines to standard error."""
    for line in lines:
        print(runnable(line), file=sys.stderr)  # noqa: T201


def _as_result(run: LoggedRun, sweep: Sweep) -> TrialResult:
    """The result of a logged run, which the sweep may have made itself or find in the experiment."""
    return TrialResult(
        int(run.tags.get("sweep.trial", 0)),
        run.tags["trial_key"],
        run.run_id,
        "FINISHED",
        run.metrics,
        reused=run.tags.get(member_tag(sweep.sweep_id)) != COMPUTED,
        objective=run.score(sweep.settings["objective"], sweep.settings["select_on"]),
        hashes=run.tags.get(FILE_HASHES, "{}"),
    )
