"""`harness sweep`: run many trials under one parent run, and compute each retrieval once.

Before anything runs, the config of every trial is composed and checked, and its trial key is computed. Trials that
need the same retrievals share a Hydra job; finished trials are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from harness.config.check import primary
from harness.config.composing import Request, composer, shared_by_trials
from harness.config.launching import launcher_for
from harness.recording import recording
from harness.recording.recording import ProcessWork
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.storage.locks import Claim
from harness.sweeps.definition import HydraLauncher, Sweep, define
from harness.sweeps.ending import Ending
from harness.sweeps.execution import Execution, finished_trials
from harness.sweeps.jobs import MANY, Helpers, Jobs
from harness.sweeps.submitted import Submitted
from harness.sweeps.trial_log import TrialLog
from harness.sweeps.trials import COMPUTED, Context, TrialResult, sweep_lock
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import CLAIM, PARENT, RunRecord, Tracker, member_tag


def sweep(request: Request) -> CommandAnswer:
    """Plan, run and sum up a sweep. The command fails if a trial fails. Raise KeyboardInterrupt after Ctrl-C."""
    began = time.perf_counter()
    defined = define(launcher_of(request))
    if defined.config.dry_run:
        return show_plan(defined)
    return run_trials_under(defined, began)


def launcher_of(request: Request) -> HydraLauncher:
    """Return a sweep's overrides and Hydra launcher. Call in `with hydras_state()`. Raise BadInput for a bad config."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    whole, loader = shared_by_trials(request)
    jobs = Jobs()
    launcher = launcher_for(whole, loader, jobs)
    kind = type(launcher).__name__
    jobs.helpers = Helpers() if kind == "BasicLauncher" else None
    submitted = Submitted(launcher) if kind in ("LocalLauncher", "SlurmLauncher") else None
    words = [one for one in request.overrides if not one.lstrip("+~").startswith("hydra")]
    params: Any = OmegaConf.to_container(whole.hydra.sweeper.params or OmegaConf.create({}))
    return HydraLauncher(
        overrides=[*(f"{key}={value}" for key, value in params.items()), *words],
        composer=composer(primary(request.command), request.flags.folders),
        parse=OverridesParser.create(config_loader=loader).parse_overrides,
        check=submitted.check if submitted else lambda: None,
        launch=submitted.launch if submitted else launcher.launch,
        jobs=jobs,
        config_dir=str(request.flags.config_dir) if request.flags.config_dir else None,
    )


def show_plan(sweep: Sweep) -> CommandAnswer:
    outputs, tracker = sweep.config.outputs, sweep.tracker()
    finished: dict[str, TrialResult] = {}
    if tracker.exists(outputs):
        tracker.connect(outputs)
        context = Context(sweep.sweep_id, sweep.config.experiment_name, sweep.folder, "", {})
        log = TrialLog(tracker, context)
        if tracker.best is not None:
            log.read()
        finished = log.kept() | finished_trials(sweep, tracker)
    counts, lines = sweep.way.planned(sweep, finished)
    refused = [f"cannot run: {' '.join(trial.overrides)}: {trial.error}" for trial in sweep.points if trial.error]
    said = Report("", files=[*lines, *refused])
    return CommandAnswer({"sweep_id": sweep.sweep_id, **counts}, said, style=sweep.config.format)


def run_trials_under(sweep: Sweep, began: float) -> CommandAnswer:
    """Run the trials under a new parent run, or under the existing one if the sweep was started before."""
    sweep.launcher.check()
    helpers = sweep.launcher.jobs.helpers
    with sweep_lock(sweep.folder) as token, helpers or nullcontext():
        if helpers:
            helpers.start(len(sweep.points) // MANY)
        tracker = sweep.tracker()
        tracker.connect(sweep.config.outputs.absolute())
        recording.end_abandoned(tracker)
        record = RunRecord(
            sweep.config.experiment_name,
            f"sweep {sweep.way.name or ' '.join(sweep.swept) or sweep.sweep_id}",
            params={f"sweep.{key}": (one.input_line or "").partition("=")[2] for key, one in sweep.swept.items()},
            tags=sweep.tags,
        )
        earlier = tracker.runs(record.experiment, {"harness.verb": "sweep", "sweep.id": sweep.sweep_id})
        run_trials = sweep.way.runner(sweep)
        claim = recording.claim_run(tracker, record, None)
        parent = tracker.begin(record, earlier[0] if earlier else None)
        tags = sweep.tags | {"harness.verb": "run", member_tag(sweep.sweep_id): COMPUTED}
        context = Context(
            sweep_id=sweep.sweep_id,
            experiment=record.experiment,
            folder=sweep.folder,
            token=token,
            tags=tags | {name: record.tags[name] for name in [CLAIM] if claim} | ({PARENT: parent} if parent else {}),
        )
        with _ended(tracker, parent, record, claim):
            log = TrialLog(tracker, context)
            log.recover()
            execution = Execution(sweep, log, log.kept() | finished_trials(sweep, tracker))
            automatic, raised = None, None
            try:
                automatic = run_trials(execution)
            except (Exception, KeyboardInterrupt) as error:
                raised = error
            return Ending(execution, parent, record, began, automatic).finish(raised)


@contextmanager
def _ended(tracker: Tracker, parent: str | None, record: RunRecord, claim: Claim[ProcessWork] | None) -> Iterator[None]:
    """End the parent run if an error, such as a late Ctrl-C, leaves it RUNNING. Finally release `claim`."""
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
