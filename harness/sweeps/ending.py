"""The end of a sweep: the summary, the full log of the best trial, the board, the parent run, and the answer."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board import page
from harness.analysis.board.expected import Expected, Replay, RunFamily, of_experiment
from harness.analysis.board.runs import SCORES, BoardRuns, of_chosen, of_tables, tables
from harness.analysis.ranking import Chosen, RankedRun, ReadRuns, Wanted, distinct, of_runs
from harness.config.commands import RunConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.measures.measures import grows_with
from harness.measures.score_table import ScoreTable, read_score_table
from harness.recording import recording
from harness.recording.run_kind import RunKind
from harness.recording.task_run import save_view
from harness.reports.next_steps import Place
from harness.reports.result import CommandAnswer
from harness.storage.atomic import write_text
from harness.sweeps import plan
from harness.sweeps.auto.out_of_fold import Automatic
from harness.sweeps.execution import Execution, tell
from harness.sweeps.jobs import FullRecord
from harness.sweeps.recommendation import Edge, edges
from harness.sweeps.report import sweep_report, write_sweep_files
from harness.sweeps.summary import SweepSummary
from harness.sweeps.trials import Context, Runner, TrialResult
from harness.tracking import file_hashes
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import OBJECTIVE_METRICS, RunRecord, Tracker, member_tag


def write_boards(execution: Execution, summary: SweepSummary, folder: Path, place: Place, read: ReadRuns) -> None:
    """Write `board.html`, or `board-0.html`, `board-1.html` … for groups of trials. read: see `Wanted`.

    Write no board for a text task, for an objective that is not a mean over queries, for fewer than two different
    trials, or for trials that are not uploaded. Write none with select_on=public, since a board shows private scores.
    """
    kind, config, tracker = execution.sweep.kind, execution.sweep.config, execution.tracker
    shown = kind.task is None and tracker.keeps_runs and config.select_on == "all"
    if not shown or not kind.is_query_mean(config.objective):
        return
    if waiting := len(_unsent(execution.context)):
        repeat = f"Upload them with `{place.command('doctor sync')}`, then repeat the sweep."
        tell([f"There is no board of the trials: {counted(waiting, 'run')} not uploaded yet. {repeat}"])
        return
    for number, part in enumerate(summary.parts):
        ids = {result.key: result.run_id for result in part.results.values() if result.status == "FINISHED"}
        if len(wanted := set(filter(None, ids.values()))) < 2:
            continue
        try:
            best = ids.get(part.results[part.best].key) if part.best is not None else None
            trials = [
                tracker.run(best) if run.run_id == best else run  # the best trial has now been logged in full
                for run in reversed(read.finished())
                if run.run_id in wanted
            ]
            found = of_runs(tracker, trials, config.objective, config.select_on)
            chosen = replace(found, runs=distinct(found.runs))
            if len(chosen.runs) < 2:
                continue
            with tempfile.TemporaryDirectory() as downloads:
                runs = of_chosen(tracker, chosen, config.objective, Path(downloads), read.tables)
                content = page.html(page.assembled(runs, tracker, Path(downloads), part.expected))
            write_text(folder / f"board{f'-{number}' if part.apart else ''}.html", content)
        except (BadInput, Unreachable) as error:
            tell([f"There is no board of the trials: {error}"])


def _unsent(context: Context) -> list[Path]:
    return [*context.folder.glob("trials/*.unsent")]


@dataclass(frozen=True)
class Ending:
    """The end of a sweep. parent, record: the parent run's id and record. began: time.perf_counter() at the start."""

    execution: Execution
    parent: str | None
    record: RunRecord
    began: float
    automatic: Automatic | None
    _begun: list[FullRecord] = field(default_factory=list)

    @cached_property
    def _read(self) -> ReadRuns:
        """The finished runs of the experiment, as they were when the trials had ended, and their scores."""
        return ReadRuns(cache(partial(self.execution.tracker.runs, self.record.experiment, {}, "FINISHED")))

    def finish(self, raised: BaseException | None) -> CommandAnswer:
        """Sum up the sweep and close the parent run. raised: the error that ended the sweep early; None: no error."""
        interrupted = isinstance(raised, KeyboardInterrupt)
        self.execution.mark_reused()
        summary = self._summary(complete=raised is None)
        best: dict[str, Path] = {}
        numbers: dict[str, float] = {}
        for place, part in enumerate(summary.parts if raised is None else ()):
            if part.best is not None:
                folder = self._best_folder(part, place)
                best[part.label], numbers = folder, self._log_best_in_full(part, folder)
        failed = summary.counts()["failed"] > 0
        status = "KILLED" if interrupted else "FAILED" if failed or raised else "FINISHED"
        self._close_parent(summary, {} if summary.groups else numbers, status)
        self.execution.log.drop_copies()
        if raised is None:
            self.execution.log.close()
        unsent = len(_unsent(self.execution.context)) + bool(self.record.unsent)
        document = self._document(summary, best, unsent)
        style, failure = self.execution.sweep.config.format, "" if failed or unsent else None
        report = sweep_report(summary, document, self._place, self.execution.sweep.launcher.overrides)
        answer = CommandAnswer(document, report, failed=failure, style=style)
        if raised is not None:
            answer.emit(style)
        if interrupted:
            tell(["Interrupted. Repeat the same command to resume."])
        if unsent:
            tell([f"{counted(unsent, 'run')} not logged yet. Upload with `{self._place.command('doctor sync')}`."])
        if raised is not None:
            raise raised
        return answer

    @property
    def _place(self) -> Place:
        sweep = self.execution.sweep
        return Place(sweep.config.document, {}, sweep.launcher.config_dir)

    def _summary(self, complete: bool) -> SweepSummary:
        summary = self._grouped()
        if not complete:
            return summary
        if (most := self.execution.tracker.best) is not None:
            self.execution.log_best(number for part in summary.parts for number in part.finished[:most])
            summary = self._grouped()
        if not summary.groups:
            if summary.best is not None:  # beside this process, which judges the sweep meanwhile
                run_id = summary.results[summary.best].run_id
                self._begun.append(self.execution.begin_in_full(summary.best, run_id, self._best_folder(summary, 0)))
            return self._judged(summary)
        return replace(summary, groups=[self._judged(group) for group in summary.groups])

    def _grouped(self) -> SweepSummary:
        execution = self.execution
        sweep, results = execution.sweep, execution.results
        return SweepSummary(
            sweep_id=sweep.sweep_id,
            run_id=self.parent,
            experiment=self.record.experiment,
            trials=execution.trials,
            results=results,
            skipped=set(execution.finished),
            objectives=sweep.objectives,
            select_on=sweep.config.select_on,
            automatic=self.automatic,
            only_best=execution.tracker.best,
        ).grouped()

    def _judged(self, summary: SweepSummary) -> SweepSummary:
        execution, best = self.execution, summary.best
        if best is None:
            return summary
        sweep, context = execution.sweep, execution.context
        replay = summary.automatic.replay(sweep.sweep_id) if summary.automatic else None
        found = expected(summary.results, best, execution.tracker, context, sweep.config, replay, read=self._read)
        return replace(summary, expected=found, edges=self._edges(summary, best))

    def _edges(self, summary: SweepSummary, best: int) -> list[Edge]:
        execution, objective = self.execution, summary.objectives[0].name
        if not execution.sweep.kind.is_query_mean(objective):
            return []

        def by_query(trials: Sequence[int]) -> np.ndarray:
            results = [summary.results[trial] for trial in trials]
            scored = _scores(results, execution.tracker, execution.context, objective)
            known = of_tables(Chosen(summary.select_on, ()), objective, scored)
            counts = ~np.isnan(known.values).any(axis=0)
            counts &= known.public if summary.select_on == "public" else True
            if counts.sum() < 2:
                raise BadInput("the trials share fewer than two scored queries.")
            return known.values[:, counts]

        def possible(edge: Edge) -> bool:
            words = [(word.partition("=")[0], word) for word in summary.trials[best].overrides]
            moved = [f"{edge.key}={edge.beyond}" if key == edge.key else word for key, word in words]
            return execution.sweep.planner.trial(0, moved).error is None

        try:
            grows = partial(grows_with, objective)
            return [*filter(possible, edges(summary.points, best, execution.sweep.axes, by_query, grows))]
        except (BadInput, Unreachable, OSError):
            return []

    def _best_folder(self, part: SweepSummary, place: int) -> Path:
        return self.execution.context.folder / (f"best-{place}" if part.apart else "best")

    def _log_best_in_full(self, summary: SweepSummary, folder: Path) -> dict[str, float]:
        execution, context = self.execution, self.execution.context
        trial, result = execution.trials[summary.best or 0], summary.results[summary.best or 0]
        tracker = copy.copy(execution.tracker)
        tracker.detail = "full"
        record = self._begun.pop()() if self._begun else None
        if record is None:
            [job] = plan.jobs([trial], plan.depths([trial]), None)
            record = Runner(job, context).full_record(trial, result.run_id, folder)
        record.folder = folder
        if result.run_id and "queries/scored" not in result.metrics:  # else the run is already logged in full
            try:
                tracker.log(result.run_id, record)
            except Unreachable as error:
                tell([f"The best trial is not logged in full, since {error}. Repeat the sweep. Its files: {folder}"])
        return record.metrics

    def _close_parent(self, summary: SweepSummary, numbers: Mapping[str, float], status: str) -> None:
        tracker, folder = self.execution.tracker, self.execution.context.folder
        files = write_sweep_files(summary, folder / "summary")
        if status == "FINISHED":
            write_boards(self.execution, summary, files, self._place, self._read)
        self.record.metrics = dict(numbers) | summary.parent_metrics()
        self.record.objective = summary.ranked_by
        self.record.tables = {"trials.json": summary.table()}
        self.record.end_tags = summary.parent_tags(self._pages(summary))
        recording.LiveRun(tracker, self.record, folder / "parent", files, run_id=self.parent).end(status)

    def _pages(self, summary: SweepSummary) -> dict[str, str]:
        sweep, tracker, member = self.execution.sweep, self.execution.tracker, member_tag(self.execution.sweep.sweep_id)
        found: dict[str, str] = {}
        with suppress(Unreachable):
            if task := sweep.kind.task:
                save_view(tracker, sweep.config.experiment_name, task)
            for place, part in enumerate(summary.parts):
                if part.best is None:
                    continue
                tags: dict[str, str | None] = {member: None}
                if part.apart:
                    label = part.label.replace("'", "’")  # a straight quote would end the label in MLflow's filter
                    tags[f"{member}.group"] = label
                    for run_id in {result.run_id for result in part.results.values() if result.run_id}:
                        tracker.tag(run_id, {f"{member}.group": label})
                name = f"sweep-{sweep.sweep_id}{f'-{place}' if part.apart else ''}"
                shown = [*OBJECTIVE_METRICS, *(objective.name for objective in part.objectives[1:])]
                found[part.label] = tracker.view(part.experiment, name, tags, shown, list(sweep.swept or part.axes()))
        return found

    def _document(self, summary: SweepSummary, best: Mapping[str, Path], unsent: int) -> dict[str, Any]:
        execution, record = self.execution, self.record
        views = 0 if record.unsent else execution.tracker.count_private_view(record.experiment, summary.private_views)
        return summary.document() | {
            "plan": execution.forecast(list(execution.trials.values())),
            "files": {
                "folder": str(execution.context.folder),
                "best": str(best[""]) if "" in best else None,
                "best_of_groups": {label: str(folder) for label, folder in best.items() if label},
            },
            "private_peeks": views,
            "unsent": unsent,
            "seconds": round(time.perf_counter() - self.began, 3),
        }


def expected(
    results: Mapping[int, TrialResult],
    best: int,
    tracker: Tracker,
    context: Context,
    config: RunConfig,
    replay: Replay | None = None,
    read: ReadRuns | None = None,
) -> Expected | None:
    """Return the score to expect of the experiment's best run on new queries. read: see `Wanted`.

    Leave out runs that are not comparable with the trial `best`. If the trials are not logged, only the sweep's own
    trials count. Return None if the objective is not a mean over queries, or if there is only one run.
    """
    objective = config.objective
    if not RunKind(config.document.get("task")).is_query_mean(objective):
        return None
    best_first = sorted(results, key=lambda number: number != best)
    different: dict[str, TrialResult] = {}
    for result in (results[number] for number in best_first if results[number].status == "FINISHED"):
        different.setdefault(result.key, result)
    own = list(different.values())
    try:
        if all(result.run_id for result in own):
            like = tracker.run(own[0].run_id or "")
            asked = Wanted(config.experiment_name, objective, config.select_on, like=like, read=read)
            return of_experiment(tracker, asked, replay=replay)
    except Unreachable:
        return None
    ranked = [RankedRun(one.logged(context), one.objective) for one in own if one.objective]
    if len(ranked) < len(own) or not all(one.run_id or _file(context, one).exists() for one in own):
        return None

    def values_of(count: int) -> BoardRuns:
        scored = _scores(own[:count], tracker, context, objective)
        return of_tables(Chosen(config.select_on, ranked[:count]), objective, scored)

    return RunFamily(objective, config.select_on, ranked, len(ranked), values_of, alone=True).expected(replay)


def _scores(results: Sequence[TrialResult], tracker: Tracker, context: Context, metric: str) -> list[ScoreTable]:
    if all(result.run_id for result in results):
        with tempfile.TemporaryDirectory() as folder:
            runs = [tracker.run(result.run_id or "") for result in results]
            return tables(tracker, runs, metric, Path(folder))
    found = []
    for result in results:
        with tempfile.TemporaryDirectory() as folder:
            if result.run_id:
                file = tracker.download(tracker.run(result.run_id), SCORES, Path(folder))
            else:
                file_hashes.verify(result.logged(context), SCORES, file := _file(context, result))
            found.append(read_score_table(file, metric).by_id())
        if found[-1].query_ids != found[0].query_ids or (found[-1].public != found[0].public).any():
            raise BadInput("the trials are scored on different queries.")
    return found


def _file(context: Context, result: TrialResult) -> Path:
    return context.folder / "trials" / str(result.number) / SCORES
