"""Run one experiment, from a checked config to a tracked result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.analysis.proposals.catalogue import Setup
from harness.analysis.proposals.command_lines import NextCommands
from harness.analysis.ranking import leader
from harness.config.check import Invocation
from harness.config.commands import RunConfig
from harness.config.text import short_id
from harness.data.scripts import Writing
from harness.experiment import preflight, steps
from harness.experiment.plan import Plan
from harness.experiment.session import Clock, Session, open_session
from harness.measures.slices import SliceScore
from harness.progress import stage
from harness.recording import recording, retrieval_run, traces
from harness.reports.evaluation import Evaluation
from harness.tracking.tracker import LoggedRun, RunRecord
from retrievers.base import Ranking

REPEATS = "watch.of"  # tag of a run that a watch has made: the id of the run that it repeats


@dataclass(frozen=True, eq=False, repr=False)
class Result(Evaluation):
    """The results of one experiment, and its files.

    run_id: None if MLflow does not have the run.
    gate, fusion: the rules in `gate.json` and `fusion.json`; None if the run learned no rule.
    slices: the objective's value in each slice of `slices=[...]`.
    predictions: the documents returned, by query. data_notes: sentences about unusual data.
    best_before: the best comparable run that finished before this one.
    private_peeks: how often private scores of the experiment have been seen.
    untraced: why some traces are missing; "" if all were written.
    """

    plan: Plan
    invocation: Invocation
    record: RunRecord
    run_id: str | None
    folder: Path
    predictions: Ranking
    gate: Mapping[str, Any] | None
    fusion: Mapping[str, Any] | None
    slices: Sequence[SliceScore]
    measured: Mapping[str, float]
    data_notes: Sequence[str]
    next_commands: Sequence[str]
    best_before: LoggedRun | None
    private_peeks: int
    traces: int
    untraced: str
    seconds: float

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def experiment(self) -> str:
        return self.record.experiment

    @property
    def trial_key(self) -> str:
        return self.record.tags["trial_key"]

    @property
    def predictions_sha256(self) -> str:
        """Return the sha256 of the submission's rows without document texts, for `harness reproduce` to compare."""
        return self.record.end_tags[retrieval_run.PREDICTED]

    @property
    def unsent(self) -> Path | None:
        """Return the folder to upload with `harness doctor sync` if the tracking server was down; otherwise None."""
        return self.record.unsent

    def _lines(self) -> Iterator[str]:
        run = f"run {short_id(self.run_id)}" if self.run_id else "not in MLflow"
        yield f"{self.name} ({run}, experiment {self.experiment!r})"
        yield from super()._lines()
        yield f"Files: {self.folder}"


def experiment(config: RunConfig, invocation: Invocation, timed: bool = False) -> Result:
    """Run one experiment. timed: time the search even if its results or the words of its queries are cached."""
    return full_experiment(config, invocation, timed)[0]


def full_experiment(
    config: RunConfig, invocation: Invocation, timed: bool = False, repeats: str | None = None
) -> tuple[Result, Session, steps.Outcome]:
    """Run one experiment as `experiment` does. Also return its data with their caches, and all its rankings.

    repeats: the id of the run whose config this is, if the command line does not say it.
    """
    began = time.perf_counter()
    plan = Plan.of(config.document)
    clock = Clock()
    dataset, record = retrieval_run.prepare_run(plan, invocation, clock)
    record.tags |= {REPEATS: repeats} if repeats else {}
    tracker = recording.connect_tracker(plan.made("tracking"), config.outputs)
    target = recording.new_folder(config.outputs.absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        session = open_session(plan, dataset, clock)
        session = replace(session, timed="always") if timed else session
        outcome = steps.with_slices(plan, dataset, steps.run_steps(plan, session))
        with stage("writing files and figures"):
            record.end_tags |= retrieval_run.write_run_files(live.folder, plan, dataset, outcome, plan.light)
            costs = retrieval_run.cost_numbers(plan, session)
            retrieval_run.log_numbers(live.folder, record, outcome, costs, plan.light)
            if not plan.light:
                run_id, words = live.run_id, None if repeats else invocation.overrides
                retrieval_run.write_page(live.folder, record, run_id, plan, dataset, outcome, words)
    setup = Setup(plan, invocation.choices, Writing.of(dataset.documents), len(dataset.documents))
    better = setup.writing.better_tokenizer(plan.tokenizer_of(invocation.choices))
    run_id, sent = live.run_id, not record.unsent
    logged = run_id if sent else None
    traced, untraced = traces.write_traces(plan, session, outcome, tracker, logged) if logged else (0, "")
    result = Result(
        scores=outcome.scores,
        held_out=outcome.held_out,
        objective=outcome.objective,
        plan=plan,
        invocation=invocation,
        record=record,
        run_id=run_id,
        folder=live.folder,
        predictions=outcome.final,
        gate=outcome.decision.fitted,
        fusion=outcome.fusion,
        slices=outcome.slices,
        measured=outcome.measured,
        data_notes=(*dataset.notes, *preflight.notes(dataset, outcome.candidates), *([better.why] if better else [])),
        next_commands=_next_commands(setup, invocation, outcome) if run_id else [],
        best_before=leader(tracker, record, logged) if logged else None,
        private_peeks=tracker.count_private_view(record.experiment) if record.shows_private and sent else 0,
        traces=traced,
        untraced=untraced,
        seconds=round(time.perf_counter() - began, 3),
    )
    return result, session, outcome


def _next_commands(setup: Setup, invocation: Invocation, outcome: steps.Outcome) -> list[str]:
    """Return the commands that may reduce the losses of the run; an empty list if the run was not scored."""
    if (scores := outcome.held_out or outcome.scores) is None:
        return []
    setup = replace(setup, needless=scores.counts["needs_no_retrieval"])
    return NextCommands(setup, invocation).commands(scores.losses)
