"""The command `sweep`: many trials under one parent run, each retrieval computed once.

A sweep is planned first (plan.py): every trial is composed, checked and given its key before anything runs. Trials
that need the same retrievals share a Hydra job (trials.py, execution.py). Trials that have finished before are
skipped. At the end (ending.py), the parent run gets the best trial's metrics, a table of all trials and figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.config.canonical import digest
from harness.config.check import primary
from harness.config.composing import Request, composer, master
from harness.config.launching import launcher_for
from harness.recording import recording
from harness.reports.result import CommandAnswer
from harness.storage.locks import Claim
from harness.sweeps import plan
from harness.sweeps.auto.course import AutoCourse, planned
from harness.sweeps.courses import GridCourse, SearchCourse
from harness.sweeps.definition import HydraLauncher, Sweep, define
from harness.sweeps.ending import Ending
from harness.sweeps.execution import Course, Execution, Forecast, finished_trials, search_counts
from harness.sweeps.search import Auto
from harness.sweeps.submitted import Submitted
from harness.sweeps.trials import Context, Jobs, TrialResult, sweep_lock
from harness.tracking.in_progress import ProcessWork
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import RunRecord, Tracker


def sweep(request: Request) -> CommandAnswer:
    """Plan, run and sum up a sweep. It fails if a trial fails. Raise KeyboardInterrupt after Ctrl-C."""
    began = time.perf_counter()
    defined = define(launcher_of(request))
    if defined.settings["dry_run"]:
        return show_plan(defined)
    return run_trials_under(defined, began)


def launcher_of(request: Request) -> HydraLauncher:
    """What a request asks of Hydra; within `hydras_state`. Raise BadInput for a config that the leash refuses."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    whole, loader = master(request)
    jobs = Jobs()
    launcher = launcher_for(whole, loader, jobs)
    kind = type(launcher).__name__
    submitted = Submitted(launcher) if kind in ("LocalLauncher", "SlurmLauncher") else None
    params: Any = OmegaConf.to_container(whole.hydra.sweeper.params or OmegaConf.create({}))
    return HydraLauncher(
        overrides=[*(f"{key}={value}" for key, value in params.items()), *whole.hydra.overrides.task],
        composer=composer(primary(request.command), request.flags.folders),
        parse=OverridesParser.create(config_loader=loader).parse_overrides,
        check=submitted.check if submitted else lambda: None,
        launch=submitted.launch if submitted else launcher.launch,
        jobs=jobs,
        serial=kind == "BasicLauncher",
        config_dir=str(request.flags.config_dir) if request.flags.config_dir else None,
    )


def show_plan(sweep: Sweep) -> CommandAnswer:
    """Say what the sweep would do, and do nothing."""
    outputs, tracker = Path(sweep.settings["outputs"]), sweep.tracker()
    finished: dict[str, TrialResult] = {}
    if tracker.exists(outputs):
        tracker.connect(outputs)
        finished = finished_trials(sweep, tracker)
    counts: dict[str, Any]
    lines: Iterable[str]
    if isinstance(sweep.way, Auto):
        counts, lines = planned(sweep, sweep.way.seconds)
    elif sweep.points:
        counts = Forecast(sweep, finished)(sweep.points)
        lines = plan.plan_lines(counts)
    else:
        folder = outputs / "sweeps" / sweep.sweep_id
        started = (folder / "study.db").is_file()  # else opening it would make the file
        counts = search_counts(sweep, finished, sweep.open_study(folder) if started else None)
        lines = plan.search_lines(counts, sweep.swept)

    def show(console: Any) -> None:
        for line in lines:
            console.print(line)
        for trial in sweep.points:
            if trial.error:
                console.print(f"cannot run: {' '.join(trial.overrides)}: {trial.error}")

    return CommandAnswer({"sweep_id": sweep.sweep_id, **counts}, show, style=sweep.settings["format"])


def run_trials_under(sweep: Sweep, began: float) -> CommandAnswer:
    """Run the trials under a parent run, an earlier one where the sweep was started before."""
    settings, outputs = sweep.settings, Path(sweep.settings["outputs"]).absolute()
    folder = outputs / "sweeps" / sweep.sweep_id
    sweep.launcher.check()
    with sweep_lock(folder) as token:
        tracker = sweep.tracker()
        tracker.connect(outputs)
        recording.end_abandoned(tracker)
        finished = finished_trials(sweep, tracker)
        record = RunRecord(
            settings["experiment_name"],
            f"sweep {sweep.name}",
            params={f"sweep.{key}": plan.value_text(override) for key, override in sweep.swept.items()},
            tags=sweep.tags,
        )
        earlier = tracker.runs(record.experiment, {"harness.verb": "sweep", "sweep.id": sweep.sweep_id})
        course = course_of(sweep, folder)
        claim = recording.claim_run(tracker, record, None)
        parent = tracker.begin(record, earlier[0] if earlier else None)
        context = Context(
            sweep_id=sweep.sweep_id,
            experiment=record.experiment,
            folder=folder,
            token=token,
            tags=sweep.trial_tags(parent),
            tracking=digest(settings["tracking"]),
        )
        execution = Execution(sweep, tracker, context, finished)
        with _ended(tracker, parent, record, claim):
            raised = execution.run(course)
            return Ending(execution, parent, record, began, course).finish(raised)


def course_of(sweep: Sweep, folder: Path) -> Course:
    """The way through the sweep's trials. folder: of the sweep. BadInput where it cannot begin."""
    if isinstance(sweep.way, Auto):
        return AutoCourse(sweep, folder, sweep.way.seconds)
    study = sweep.open_study(folder)
    return SearchCourse(study) if study else GridCourse()


@contextmanager
def _ended(tracker: Tracker, parent: str | None, record: RunRecord, claim: Claim[ProcessWork] | None) -> Iterator[None]:
    """End the parent run if an error, such as an interruption of its end, leaves it RUNNING; release its claim."""
    try:
        yield
    except BaseException as error:
        recording.name_folder(error, tracker.outputs or Path())
        with suppress(Unreachable):
            if parent and tracker.run(parent).status == "RUNNING":
                tracker.finish(parent, RunRecord(record.experiment, record.name), recording.status_after(error))
        raise
    finally:
        if claim:
            claim.release()
