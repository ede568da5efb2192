"""The verb `sweep`: many trials under one parent run, for the price of the retrievals that they share.

Plan first (plan.py): every trial is composed, checked and given its key before anything runs. Then one Hydra job for
each group of trials that need the same retrievals (trials.py). What finished before is skipped; the parent run gets
the best trial's numbers, the table of all trials and pictures (sweep_report.py).
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.sweep import plan
from harness.commands.sweep.optimism import optimism_of
from harness.commands.sweep.plan import Composer, Planner, Trial
from harness.commands.sweep.report import Summary, objective_values, show, watch, write_files
from harness.commands.sweep.search import Direction, Grid, Search, Study, axis_of
from harness.commands.sweep.trials import Context, Jobs, Result, Runner, fail, owned, read_journal, take, write_journal
from harness.config.canonical import digest
from harness.config.check import Invocation
from harness.config.components import build
from harness.evaluation import measures
from harness.reports import terminal
from harness.tasks import scored_file
from harness.tracking import provenance, recording, task_run
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import LESS_IS_BETTER, LoggedRun, RunRecord, Tracker, ranked_by
from retrievers.base import BadInput

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig


PER_JOB = 25  # trials of a grid's job under a launcher that runs jobs side by side


@dataclass(frozen=True)
class Seam:
    """What a sweep takes of Hydra. words: of the command line and of the sweeper's params, in this order.

    compose: overrides -> whole config. group: whether a key is a config group. parse: words -> overrides.
    launch: (overrides of each job, number of the first) -> what the jobs returned; every job calls `jobs`.
    """

    words: Sequence[str]
    compose: Callable[[list[str]], DictConfig]
    group: Callable[[str], bool]
    parse: Callable[[list[str]], list[Override]]
    launch: Callable[[list[list[str]], int], Sequence[JobReturn]]
    jobs: Jobs
    serial: bool
    trials_per_job: int | None


def unplanned(config: dict[str, Any], invocation: Invocation) -> None:
    """What Hydra calls where another sweeper than ours was chosen."""
    raise BadInput(
        "harness sweep plans its trials itself: leave out hydra/sweeper and hydra.mode. "
        "Hydra's own multirun, one job a trial, is `harness run -m`."
    )


def sweep(seam: Seam) -> None:
    """Plan, run and sum up a sweep. Raises SystemExit(1) if a trial failed, KeyboardInterrupt after Ctrl-C."""
    began = time.perf_counter()
    fixed, swept = plan.split(seam.parse(list(seam.words)))
    planner = Planner(Composer(seam.compose, seam.group), fixed)
    tried = [planner.trial(0, [plan.corner(override, last) for override in swept.values()]) for last in (False, True)]
    points: list[Trial] = []
    if isinstance(build(planner.settings["search"], where="search"), Grid):
        points = tried = [planner.trial(n, words) for n, words in enumerate(plan.combinations(plan.lists(swept)))]
    if all(trial.error for trial in tried):
        raise next(trial.error for trial in tried if trial.error)
    anchor = next(trial.key for trial in tried if not trial.error)
    one = Sweep(seam, fixed, swept, planner, points, anchor, began)
    if one.settings["dry_run"]:
        one.show_plan()
    else:
        one.run()


@dataclass
class Sweep:
    """A sweep in progress. points: the trials of a grid; a search proposes its own. anchor: the key of one trial."""

    seam: Seam
    fixed: list[str]
    swept: dict[str, Override]
    planner: Planner
    points: list[Trial]
    anchor: str
    began: float
    trials: dict[int, Trial] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)
    skipped: dict[str, Result] = field(default_factory=dict)  # trial key -> what an earlier start found
    launched: int = 0  # jobs
    retrievals: dict[str, bool] = field(default_factory=dict)  # digest of a raw ranking -> whether it was kept before

    @property
    def settings(self) -> dict[str, Any]:
        return self.planner.settings

    @property
    def _per_job(self) -> int | None:
        """How many trials a job has at most: what is to run side by side must be several jobs."""
        side_by_side = PER_JOB if self.points else 1
        return self.seam.trials_per_job or (None if self.seam.serial else side_by_side)

    @cached_property
    def objectives(self) -> list[tuple[str, Direction]]:
        """(name, direction), the first is the run's objective."""
        names = self.settings["objectives"] or [self.settings["objective"]]
        if names[0] != self.settings["objective"]:
            raise BadInput(f"objectives={names} must begin with the objective, which is {self.settings['objective']}.")
        for name in names:
            if "task" in self.settings:
                scored_file.check_measure(scored_file.task_of(self.settings), "objectives", name)
            elif not name.startswith(LESS_IS_BETTER) and measures.parse(name).name not in self.settings["metrics"]:
                raise BadInput(f"objectives: {name} is not among the metrics: add it to metrics=[...].")
        return [(name, "minimize" if name.startswith(LESS_IS_BETTER) else "maximize") for name in names]

    @cached_property
    def sweep_id(self) -> str:
        """The same for the same trials, so that a sweep that is started again goes on with its parent run."""
        if self.points:
            what: list[Any] = sorted(trial.key or " ".join(trial.words) for trial in self.points)
        else:
            search = {k: v for k, v in self.settings["search"].items() if k not in ("trials", "batch")}
            words = [override.input_line for override in self.swept.values()]
            what = [search, words, self.anchor]
        return digest([what, self.objectives])[:12]

    def show_plan(self) -> None:
        """Say what the sweep would do, and do nothing."""
        tracker = self._tracker()
        if tracker.exists(Path(self.settings["outputs"])):
            tracker.connect(Path(self.settings["outputs"]))
            self._remember(tracker)
        document = {"sweep_id": self.sweep_id, **self._plan(self.points)}
        if not self.points:
            document = {"sweep_id": self.sweep_id, "trials": self.settings["search"]["trials"]}

        def tell(console: Any) -> None:
            search = [
                f"{document['trials']} trials of a search over {', '.join(self.swept)}: each batch has its own plan"
            ]
            for line in plan.spoken(document) if self.points else search:
                console.print(line)
            for trial in self.points:
                if trial.error:
                    console.print(f"cannot run: {' '.join(trial.words)}: {trial.error}")

        terminal.emit(self.settings["format"], document, tell)

    def run(self) -> None:
        outputs = Path(self.settings["outputs"]).absolute()
        with owned(outputs / "sweeps" / self.sweep_id) as (folder, token):
            tracker = recording.open_tracker(self.settings)
            self._remember(tracker)
            record = RunRecord(
                self.settings["experiment_name"],
                f"sweep {' '.join(self.swept) or self.sweep_id}",
                params={f"sweep.{key}": plan.said(one) for key, one in self.swept.items()},
                tags=self._tags(None) | {"harness.verb": "sweep"},
            )
            earlier = tracker.runs(record.experiment, {"harness.verb": "sweep", "sweep.id": self.sweep_id})
            study = None if self.points else self._study(folder)
            parent = tracker.begin(record, earlier[0] if earlier else None)
            store = digest(self.settings["tracking"])
            self.context = Context(self.sweep_id, record.experiment, folder, token, self._tags(parent), store)
            self._end(tracker, parent, record, self._all(tracker, study))

    def _end(self, tracker: Tracker, parent: str | None, record: RunRecord, raised: BaseException | None) -> None:
        """Sum up, close the parent run, show the result, and end as the trials did."""
        killed = isinstance(raised, KeyboardInterrupt)
        if raised is not None:
            self._close_running(tracker, "KILLED" if killed else "FAILED")
        summary = Summary(
            self.sweep_id,
            parent,
            record.experiment,
            self.trials,
            self.results,
            set(self.skipped),
            self.objectives,
            self.settings["select_on"],
            None if raised else optimism_of(self.results, tracker, self.context, self.settings),
        )
        failed = [result for result in summary.results.values() if result.status == "FAILED"]
        best_folder: Path | None = None
        completed: dict[str, float] = {}
        if summary.best is not None and raised is None:
            best_folder, completed = self._complete_best(tracker, summary)
        files = write_files(summary, self.context.folder / "summary")
        record.metrics = completed | summary.parent_metrics()
        record.tables = {"trials.json": summary.table()}
        record.end_tags = summary.parent_tags(self._page(tracker, summary))
        status = "KILLED" if killed else "FAILED" if failed or raised else "FINISHED"
        recording.LiveRun(tracker, record, self.context.folder / "parent", files, run_id=parent).end(status)
        unsent = [*self.context.folder.glob("trials/*.unsent"), *([record.unsent] if record.unsent else [])]
        document = summary.to_json() | {
            "plan": self._plan(list(self.trials.values())),
            "files": {"folder": str(self.context.folder), "best": best_folder and str(best_folder)},
            "private_peeks": 0 if record.unsent else tracker.count_private_view(record.experiment, summary.peeks),
            "unsent": len(unsent),
            "seconds": round(time.perf_counter() - self.began, 3),
        }
        terminal.emit(self.settings["format"], document, lambda console: show(console, summary, document))
        if killed:
            print("Interrupted. The same command goes on where it stopped.", file=sys.stderr)  # noqa: T201
        if unsent:
            self._tell([f"{len(unsent)} runs wait to be logged: `harness doctor sync` sends them."])
        if raised is not None:
            raise raised
        if failed or unsent:
            raise SystemExit(1)

    def _all(self, tracker: Tracker, study: Study | None) -> BaseException | None:
        """Run every trial; what ended the sweep before its time, if anything did."""
        try:
            if study is None:
                self._tell(plan.spoken(self._plan(self.points)))
                self._batch(tracker, self.points)
            else:
                self._search(tracker, study)
        except (Exception, KeyboardInterrupt) as error:
            return error
        return None

    def _study(self, folder: Path) -> Study:
        axes = {key: axis_of(override) for key, override in self.swept.items()}
        search: Search = build(self.settings["search"], where="search")
        return search.open(folder / "study.db", axes, self.objectives, self.sweep_id)

    def _search(self, tracker: Tracker, study: Study) -> None:
        """Ask for points, run them, tell what they gave, until there are enough."""
        trials, batch = self.settings["search"]["trials"], self.settings["search"]["batch"]
        if earlier := study.points:  # of an earlier start: known, but for those that failed
            self._batch(tracker, [self.planner.trial(point.number, point.words) for point in earlier])
        while study.told < trials:
            proposals = study.ask(min(batch, trials - study.told))
            if not proposals:
                self._tell([f"The search space is exhausted after {study.told} trials."])
                break
            planned = [self.planner.trial(proposal.number, proposal.words) for proposal in proposals]
            self._tell(plan.spoken(self._plan(planned)))
            self._batch(tracker, planned)
            for proposal in proposals:
                found = self.results[proposal.number].metrics
                values = objective_values(found, self.objectives, self.settings["select_on"])
                if self.results[proposal.number].status == "FINISHED" and not all(map(math.isfinite, values)):
                    raise BadInput(
                        f"objectives={[name for name, _ in self.objectives]}: a trial finished without one of them. "
                        "Rankings that an earlier version kept have no ms_per_query: see harness doctor cache."
                    )
                study.tell(proposal.number, values)

    def _batch(self, tracker: Tracker, trials: Sequence[Trial]) -> None:
        """Run those of the trials that are not known yet, and collect the results of all."""
        self.trials |= {trial.number: trial for trial in trials}
        known = {result.key: result for result in self.results.values() if result.status == "FINISHED"} | self.skipped
        waiting: dict[str, Trial] = {}
        for trial in trials:
            if trial.error:
                self.results[trial.number] = fail(trial, trial.error, tracker, self.context)
                write_journal(self.context, self.results[trial.number])
            elif trial.key not in known:
                waiting.setdefault(trial.key, trial)
        error: Exception | None = None
        try:
            if waiting:
                objective, select_on = self.objectives[0][0], self.settings["select_on"]
                with watch(self.context, len(waiting), objective, self.trials, select_on):
                    self._launch(list(waiting.values()))
        except Exception as raised:  # a worker died, say: its trials have failed, the others go on
            error = raised
        finally:
            found = {result.key: result for result in read_journal(self.context)[0]}
            for trial in trials:
                if not trial.error and (result := known.get(trial.key) or found.get(trial.key)):
                    self.results[trial.number] = result
        if error:
            self._take_over(tracker)
        for trial in trials:
            if trial.number not in self.results:
                why = f"{type(error).__name__}: {error}" if error else "workers must share the outputs folder"
                lost = f"its job ended without a result ({why.splitlines()[0]})"
                self.results[trial.number] = Result(trial.number, trial.key, None, "FAILED", error=lost)

    def _take_over(self, tracker: Tracker) -> None:
        """A launcher gave up: workers that are still there stop, and what is RUNNING is closed."""
        self.context = replace(self.context, token=take(self.context.folder))
        self._close_running(tracker, "FAILED")

    def _close_running(self, tracker: Tracker, status: str) -> None:
        with suppress(Unreachable):  # they stay RUNNING, and the next start takes them up
            for run in self.context.left_running(tracker).values():
                tracker.finish(run.run_id, RunRecord(run.experiment, run.name), status)

    def _launch(self, trials: list[Trial]) -> None:
        jobs = plan.jobs(trials, plan.depths(self.trials.values()), self._per_job)
        numbers = range(self.launched, self.launched + len(jobs))
        self.launched += len(jobs)
        self.seam.jobs.hand_out(self.context, dict(zip(numbers, jobs, strict=True)))
        overrides = [[*self.fixed, *job.trials[0].words] for job in jobs]
        for returned in self.seam.launch(overrides, numbers[0]):
            _ = returned.return_value  # raises what a job raised

    def _complete_best(self, tracker: Tracker, summary: Summary) -> tuple[Path, dict[str, float]]:
        """Log the best trial in full, as `harness run` does: all measures, tables, figures, texts. (folder, numbers)"""
        trial, result = self.trials[summary.best or 0], summary.results[summary.best or 0]
        full = copy.copy(tracker)
        full.detail = "full"
        [job] = plan.jobs([trial], plan.depths([trial]), None)
        folder = self.context.folder / "best"
        record = Runner(job, full, self.context).full_record(trial, result.run_id, folder)
        if result.run_id and "queries/scored" not in result.metrics:  # it is in full already
            try:
                full.log(result.run_id, record)
            except Unreachable as error:
                self._tell([f"The best trial is not logged in full, since {error}. Its files: {folder}"])
        return folder, record.metrics

    def _page(self, tracker: Tracker, summary: Summary) -> str:
        """Where the store's pages list the trials, the best first; "" where there are none, or no such pages."""
        if summary.best is None:
            return ""
        names = [name for name, _ in self.objectives]
        key = ranked_by(summary.results[summary.best].metrics, names[0], summary.select_on) or names[0]
        shown = [key, *names, f"interval_low/{names[0]}", f"interval_high/{names[0]}"]
        tags = {"harness.verb": "run", "sweep.id": self.sweep_id}
        with suppress(Unreachable):
            if "task" in self.settings:
                task_run.save_view(tracker, self.settings)
            return tracker.view(summary.experiment, f"sweep-{self.sweep_id}", tags, shown, list(self.swept))
        return ""

    def _plan(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Counts: trials, those that finished before or are the same as another, jobs, retrievals."""
        sound = [trial for trial in trials if not trial.error]
        different = {trial.key: trial for trial in sound}
        todo = [trial for key, trial in different.items() if key not in self.skipped]
        depths = plan.depths(sound)
        if sound:
            kept = plan.kept(self.planner.rankings, depths, plan.cache_of(sound[0]))
            self.retrievals = {need: need in kept for need in depths} | self.retrievals
        jobs = plan.jobs(todo, depths, self._per_job)
        return {
            "trials": len(trials),
            "finished_before": len(different) - len(todo),
            "same": len(sound) - len(different),
            "cannot_run": len(trials) - len(sound),
            "jobs": [len(job.trials) for job in jobs],
            "retrievals": {
                "compute": sum(not self.retrievals[need] for need in depths),
                "cached": sum(self.retrievals[need] for need in depths),
            },
        } | (plan.kinds_of_keys(trials) if self.points else {})

    def _tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line, file=sys.stderr)  # noqa: T201

    def _tracker(self) -> Tracker:
        tracker: Tracker = build(self.settings["tracking"], where="tracking")
        return tracker

    def _remember(self, tracker: Tracker) -> None:
        """Learn from the tracker which trials have finished, in this sweep or elsewhere in the experiment."""
        runs = tracker.runs(self.settings["experiment_name"], {"harness.verb": "run"}, "FINISHED")
        self.skipped = {key: _as_result(run) for run in runs if (key := run.tags.get("trial_key"))}
        if self.points:
            wanted = {trial.key for trial in self.points}
            self.skipped = {key: result for key, result in self.skipped.items() if key in wanted}

    def _tags(self, parent: str | None) -> dict[str, str]:
        tags = {"harness.verb": "run", "sweep.id": self.sweep_id, "objective": self.objectives[0][0]}
        return provenance.provenance({}) | tags | ({"mlflow.parentRunId": parent} if parent else {})


def _as_result(run: LoggedRun) -> Result:
    number = int(run.tags.get("sweep.trial", 0))
    return Result(number, run.tags["trial_key"], run.run_id, "FINISHED", run.metrics)
