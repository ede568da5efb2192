"""`harness export`: write the best finished run of an experiment as a validated submission, with its provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.analysis.board.expected import Expected, shown_of_run
from harness.analysis.ranking import SCORED, chosen_run, settled
from harness.commands.export.ledger import Export, Ledger, Submission, now, provenance_of
from harness.commands.export.model import RegisteredModel, log_model, prepared_model
from harness.config.check import Invocation
from harness.config.commands import ExportConfig
from harness.errors import BadInput
from harness.measures.measures import parse_measure
from harness.recording.logged_run import in_full
from harness.recording.recording import open_store
from harness.recording.run_kind import RunKind, require_kind
from harness.reports.markup import interval
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.storage.cache import open_cache
from harness.storage.typed import INLINE, encoded
from harness.tracking.tracker import RETRIEVAL, LoggedRun, mlflow_name


@dataclass(frozen=True)
class ExportAnswer:
    """An exported submission.

    run_id, metric, value, low, high, kind: the run, and the score by which it was chosen. written: whether the file is
    new. size: the unit (queries or items) -> how many the submission has. number: the position among all submissions
    of the ledger. new: whether this content had not been exported before. expected: the value to expect on new queries.
    """

    run_id: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    kind: str | None
    sha256: str
    submission: Path
    written: bool
    size: Mapping[str, int] = field(metadata=INLINE)
    provenance: Path
    number: int
    new: bool
    model: RegisteredModel | None
    expected: Expected | None


def export(config: ExportConfig, invocation: Invocation) -> CommandAnswer:
    """Write the submission of `run`, by default the best run by `metric`, and enter it in the ledger."""
    kind = RunKind(config.task)
    tracker = open_store(config)
    verbs = ("run",) if kind.name == RETRIEVAL else SCORED  # for retrieval, runs of `harness score` cannot be exported
    config, notes = settled(tracker, config, kind.name, verbs)
    if not kind.task:
        parse_measure(config.metric)
    elif config.model or config.against:
        raise BadInput(f"Only retrieval runs can have `model` or `against`: leave them out with task={kind.name}.")
    run = in_full(tracker, chosen_run(tracker, config, kind.name, verbs))
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.short_id} is {run.status}: only finished runs can be exported.")
    require_kind(kind, run, "export it")
    ledger = Ledger.of(config.outputs)
    target = _target(config.submission, ledger, run, kind)
    valid = kind.validated(tracker, run, config.against)
    line = _line(run, config, target, hashlib.sha256(valid.predictions.encode()).hexdigest())
    name, served, model = config.model_name or run.experiment, None, None
    with ExitStack() as prepared:
        with ledger.locked():
            ledger.settle(tracker)
            ledger.require_free(line)
            if config.model:
                cache = open_cache(config.store.path)
                served = prepared.enter_context(prepared_model(tracker, run, valid, cache, name, config.allow))
            target.parent.mkdir(parents=True, exist_ok=True)
            there = target.exists()
            ledger.export(line, valid.predictions, _provenance(run, line, valid.config))
            ledger.settle(tracker)
            submission = ledger.submissions()[line.sha256]
        if served:
            model = log_model(tracker, served, name)
    shown = ("run_id", "metric", "value", "low", "high", "kind", "sha256")
    found = ExportAnswer(
        **{name: getattr(line, name) for name in shown},
        submission=target,
        written=not there,
        size={kind.unit: valid.count},
        provenance=provenance_of(target),
        number=submission.number,
        new=submission.exports[0].time == line.time,
        model=model,
        expected=shown_of_run(tracker, run, line.metric, config.select_on),
    )
    words = (f"submission={target}", "public=SCORE")
    steps = [Place.of(config, invocation).command("export record", *words)] if found.new else []
    return CommandAnswer(found, Report("", files=[*notes, *_lines(found, run, submission)], steps=steps))


def _lines(found: ExportAnswer, run: LoggedRun, submission: Submission) -> Iterator[str]:
    ends = interval(found.low, found.high, absent="")
    value = f"{found.value:.4f}{f' (95 % interval {ends})' if ends else ''}" if found.kind else ""
    score = f"{value}, {found.kind}" if value else "not scored"
    [(unit, count)] = found.size.items()
    yield f"Run {run.named}, {found.metric} {score}: a valid submission of {count} {unit}."
    if found.expected:
        yield found.expected.sentence
    yield f"Submission: {found.submission}{'' if found.written else ' (already there)'}"
    yield f"Provenance: {found.provenance}"
    if model := found.model:
        before = f" (before: {model.before})" if model.before else ""
        yield f"Model: {model.name}, version {model.version}, alias {model.alias}{before}."
        yield f"To serve it: {model.serve}"
    if found.new:
        yield f"This is submission {submission.number} of the ledger. Record its leaderboard score."
    else:
        yield f"This is not a new submission: the same content is {submission.about}."


def _target(submission: Path | None, ledger: Ledger, run: LoggedRun, kind: RunKind) -> Path:
    """Return `submission`; by default, a file beside the ledger, named after the day (UTC) and the run."""
    suffix = Path(kind.predictions(run).removesuffix(".gz")).suffix
    target = submission or (ledger.folder / f"submission-{now()[:10]}-{run.short_id}{suffix}")
    if target.is_dir():
        raise BadInput(f"submission={target} is a folder. Name a file in it.")
    if target.absolute() == ledger.file:
        raise BadInput(f"submission={target} is the ledger of all submissions. Choose another name.")
    return target


def _line(run: LoggedRun, config: ExportConfig, target: Path, sha256: str) -> Export:
    metric = config.metric
    score = run.score(metric, config.select_on or run.select_on)
    measures = {mlflow_name(name) for name in (metric, run.objective.name if run.objective else metric)}
    shown = encoded(score) or {}
    return Export(
        time=now(),
        sha256=sha256,
        file=str(target.absolute()),
        run_id=run.run_id,
        run_name=run.name,
        experiment=run.experiment,
        metric=metric,
        trial_key=run.tags.get("trial_key"),
        queries=run.tags.get("data.queries") or run.tags.get("data.references"),
        **{name: shown.get(name) for name in ("value", "low", "high", "kind")},
        metrics={name: value for name, value in sorted(run.metrics.items()) if name.rpartition("/")[2] in measures},
    )


def _provenance(run: LoggedRun, line: Export, config: Mapping[str, Any]) -> str:
    made_with = ("data.", "git.", "version.", "trial_key")
    names = ("sha256", "run_id", "run_name", "experiment", "metric", "value", "kind")
    content = {name: getattr(line, name) for name in names} | {
        "metrics": dict(sorted(run.metrics.items())),
        "made_with": {name: value for name, value in sorted(run.tags.items()) if name.startswith(made_with)},
        "config": config,
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
