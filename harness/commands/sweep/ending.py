"""The end of a sweep: its summary, the best trial logged in full, the parent run, and the result on the terminal."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands.sweep import plan
from harness.commands.sweep.execution import Execution, tell
from harness.commands.sweep.optimism import optimism_of
from harness.commands.sweep.report import show, write_files
from harness.commands.sweep.summary import Summary
from harness.commands.sweep.trials import Runner, member_tag
from harness.reports import terminal
from harness.tracking import recording
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import RunRecord, ranked_by


@dataclass(frozen=True)
class Ending:
    """execution: of the sweep, whose trials are over. parent: id of the parent run. record: the parent's.

    began: time.perf_counter() at the start of the sweep.
    """

    execution: Execution
    parent: str | None
    record: RunRecord
    began: float

    def finish(self, raised: BaseException | None) -> None:
        """Sum up, close the parent run and show the result.

        raised: the error that ended the sweep early; it is raised again. SystemExit(1) if a trial failed or a run
        could not be logged.
        """
        interrupted = isinstance(raised, KeyboardInterrupt)
        if raised is not None:
            self.execution.close_running("KILLED" if interrupted else "FAILED")
        self.execution.mark_reused()
        summary = self._summary(complete=raised is None)
        best: Path | None = None
        numbers: dict[str, float] = {}
        if summary.best is not None and raised is None:
            best, numbers = self._log_best_in_full(summary)
        failed = any(result.status == "FAILED" for result in summary.results.values())
        self._close_parent(summary, numbers, "KILLED" if interrupted else "FAILED" if failed or raised else "FINISHED")
        context = self.execution.context
        unsent = [*context.folder.glob("trials/*.unsent"), *([self.record.unsent] if self.record.unsent else [])]
        document = self._document(summary, best, len(unsent))
        style = self.execution.sweep.settings["format"]
        terminal.emit(style, document, lambda console: show(console, summary, document))
        if interrupted:
            tell(["Interrupted. Repeat the same command to resume."])
        if unsent:
            tell([f"{len(unsent)} runs are not logged yet: `harness doctor sync` uploads them."])
        if raised is not None:
            raise raised
        if failed or unsent:
            raise SystemExit(1)

    def _summary(self, complete: bool) -> Summary:
        """complete: whether all trials are over; the optimism of fewer would mean nothing."""
        execution = self.execution
        sweep, results = execution.sweep, execution.results
        optimism = optimism_of(results, execution.tracker, execution.context, sweep.settings) if complete else None
        return Summary(
            sweep_id=sweep.sweep_id,
            run_id=self.parent,
            experiment=self.record.experiment,
            trials=execution.trials,
            results=results,
            skipped=set(execution.finished),
            objectives=sweep.objectives,
            select_on=sweep.settings["select_on"],
            optimism=optimism,
        )

    def _log_best_in_full(self, summary: Summary) -> tuple[Path, dict[str, float]]:
        """Log the best trial as `harness run` does: all measures, tables, figures, texts. (its folder, its metrics)"""
        execution, context = self.execution, self.execution.context
        trial, result = execution.trials[summary.best or 0], summary.results[summary.best or 0]
        tracker = copy.copy(execution.tracker)
        tracker.detail = "full"
        [job] = plan.jobs([trial], plan.depths([trial]), None)
        folder = context.folder / "best"
        record = Runner(job, tracker, context).full_record(trial, result.run_id, folder)
        if result.run_id and "queries/scored" not in result.metrics:  # else it is logged in full already
            try:
                tracker.log(result.run_id, record)
            except Unreachable as error:
                tell([f"The best trial is not logged in full, since {error}. Its files: {folder}"])
        return folder, record.metrics

    def _close_parent(self, summary: Summary, numbers: Mapping[str, float], status: str) -> None:
        """numbers: metrics of the best trial in full."""
        tracker, folder = self.execution.tracker, self.execution.context.folder
        files = write_files(summary, folder / "summary")
        self.record.metrics = dict(numbers) | summary.parent_metrics()
        self.record.tables = {"trials.json": summary.table()}
        self.record.end_tags = summary.parent_tags(self._page(summary))
        recording.LiveRun(tracker, self.record, folder / "parent", files, run_id=self.parent).end(status)

    def _page(self, summary: Summary) -> str:
        """Where the tracker's pages list the trials, best first; "" if there are none, or no such pages."""
        if summary.best is None:
            return ""
        sweep, tracker = self.execution.sweep, self.execution.tracker
        names = [objective.name for objective in summary.objectives]
        key = ranked_by(summary.results[summary.best].metrics, names[0], summary.select_on) or names[0]
        shown = [key, *names, f"interval_low/{names[0]}", f"interval_high/{names[0]}"]
        with suppress(Unreachable):
            sweep.kind.save_view(tracker, sweep.settings)
            return tracker.view(
                summary.experiment,
                f"sweep-{sweep.sweep_id}",
                {member_tag(sweep.sweep_id): None},
                shown,
                list(sweep.swept),
            )
        return ""

    def _document(self, summary: Summary, best: Path | None, unsent: int) -> dict[str, Any]:
        """The JSON document of the command. best: folder of the best trial. unsent: runs that are not logged yet."""
        execution, record = self.execution, self.record
        views = 0 if record.unsent else execution.tracker.count_private_view(record.experiment, summary.private_views)
        return summary.to_json() | {
            "plan": execution.forecast(list(execution.trials.values())),
            "files": {"folder": str(execution.context.folder), "best": best and str(best)},
            "private_peeks": views,
            "unsent": unsent,
            "seconds": round(time.perf_counter() - self.began, 3),
        }
