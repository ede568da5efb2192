"""The road of the text tasks: predictions held against references, scored, logged and shown as a run.

What is counted and how the counts make measures is the task's own business (answers.py, corrections.py); everything
else is the same for all of them and here.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import records, report, run_page, text_page
from harness.config import Asked, build, check_part, digest
from harness.lines import opened
from harness.predictions import write_text
from harness.scores import Summary, plain
from harness.store import Store
from harness.tallies import Judgement, TextTask, entering, in_public, measured, summaries
from harness.tracking import LoggedRun, RunRecord, Tracker
from retrievers.base import BadInput, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

TABLE = "tallies.csv"  # what is counted of each item: all that a comparison needs
WORST = 1000  # items in the table of a run's page in MLflow
GIVEN = ("kind", "question", "source", "reference")  # columns of items that the references give
FILES = ("predictions", "references")
KEYS = ("task", *FILES)  # of a config that are a text task's alone
DECIDES = ("task", "metrics", "objective", "public", "seed")  # keys that decide the numbers, beside the two files


@dataclass(frozen=True, eq=False)
class Submission:
    """Predictions as they were scored. public: bool [N], which items the public part has."""

    task: TextTask
    judged: Judgement
    public: np.ndarray
    summary: dict[str, Summary]
    objective: str

    @cached_property
    def parts(self) -> dict[str, dict[str, Summary]]:
        """ "public" and "private" -> measure -> Summary without interval."""
        return {name: self._over(rows) for name, rows in (("public", self.public), ("private", ~self.public))}

    @cached_property
    def by_kind(self) -> dict[str, dict[str, Summary]]:
        """Kind of items -> measure -> Summary without interval; {} where all items are of one kind."""
        kinds = np.array(self.judged.kinds, dtype=object)
        names = sorted(set(self.judged.kinds))
        return {name: self._over(kinds == name) for name in names} if len(names) > 1 else {}

    @cached_property
    def counts(self) -> dict[str, int]:
        found = {"items": len(self.judged.item_ids), "public": int(self.public.sum())}
        return found | {name: round(self.judged.tallies[name].sum()) for name in self.task.counts}

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        return fingerprints(self.judged)

    @cached_property
    def shown(self) -> str:
        """The measure that items are listed by: the objective, or the first that is to be had."""
        known = [name for name, one in self.summary.items() if one.mean == one.mean]
        return self.objective if self.objective in known else known[0] if known else self.objective

    @cached_property
    def values(self) -> np.ndarray:
        """float64 [N]: what `shown` is of each item alone."""
        return self.task.measure(self.judged.tallies)[self.shown]

    def _over(self, rows: np.ndarray) -> dict[str, Summary]:
        means = measured(self.task, self.judged.tallies, rows)
        n = {name: entering(self.task, self.judged.tallies, name, rows) for name in self.summary}
        return {name: Summary(means[name] if rows.any() else np.nan, n[name]) for name in self.summary}


def score(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """The verb `score` of a text task. Returns the JSON document of `harness score task=NAME format=json`."""
    began = time.perf_counter()
    for word in asked.overrides:
        if (key := word.partition("=")[0].partition(".")[0]) in ("dataset", "missing"):
            raise BadInput(f"{word}: {key} is about retrieval. Leave it out with task={asked.choices['task']}.")
    config = absolute(config)
    submission = judge(config)
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or Path(config["predictions"]).name,
        params=params(config, asked.choices["task"]),
        tags=records.provenance({}, config) | tags(config, submission),
        inputs=inputs(config, submission),
    )
    with records.tracked(config, record) as (tracker, run_id, unfinished, folder):
        write(unfinished, record, config, submission)
    folder = record.unsent / "files" if record.unsent else folder
    peeks = 0
    if not record.unsent:
        peeks = tracker.peek(config["experiment_name"])
        save_view(tracker, config)
    document = {
        "run_id": run_id,
        "experiment": config["experiment_name"],
        "task": submission.task.name,
        **_told(submission),
        "files": {"predictions": str(folder / stored(config["predictions"])), "folder": str(folder)},
        "private_peeks": peeks,
        "seconds": round(time.perf_counter() - began, 3),
    }
    report.emit(config["format"], document, lambda console: _show(console, submission, document))
    records.end(record)
    return document


def save_view(tracker: Tracker, config: Mapping[str, Any]) -> None:
    """The experiment's page lists the task's runs, the best first, with its measures as columns."""
    task, objective = named(config), config["objective"]
    shown = [objective, *(name for name in task.measures if name != objective)]
    tracker.view(config["experiment_name"], "runs", {"task": task.name}, shown, ["task.scheme", "predictions"])


def fingerprints(judged: Judgement) -> dict[str, str]:
    """sha256 of what the references say, and of the predictions, however their files look and in whatever order."""
    table, ids = judged.table, judged.item_ids
    order = sorted(range(len(ids)), key=ids.__getitem__)

    def digested(*names: str) -> str:
        return digest({name: [table[name][row] for row in order] for name in names if name in table})

    return {"references": digested("id", *GIVEN), "predictions": digested("id", "prediction")}


def absolute(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with its two files named from the root, so that a run is found again from any folder."""
    for name in FILES:
        if config.get(name) is None:
            raise BadInput(f"{name} is missing. Give it on the command line: {name}=FILE.")
    return {**config} | {name: os.path.abspath(config[name]) for name in FILES}  # noqa: PTH100


def judge(config: Mapping[str, Any]) -> Submission:
    """Read, pair and score the two files of a checked config."""
    task = named(config)
    wanted = measures(task, config)
    predictions, references = (Path(config[name]) for name in FILES)
    judged = task.judge(predictions, references, wanted, Store(Path(config["store"]["path"])))
    public = in_public(judged, config["seed"], config["public"])
    summary = summaries(task, judged.tallies, wanted, config["seed"])
    return Submission(task, judged, public, summary, config["objective"])


def named(config: Mapping[str, Any]) -> TextTask:
    """The task of a config."""
    task: TextTask = build(config["task"], where="task")
    return task


def measures(task: TextTask, config: Mapping[str, Any]) -> Sequence[str]:
    """The measures that are asked for, the objective among them."""
    wanted: Sequence[str] = config["metrics"] or task.measures
    for name in wanted:
        check_measure(task, "metrics", name)
    if config["objective"] not in wanted:
        raise BadInput(f"objective={config['objective']} is not among the metrics: add it to metrics=[...].")
    return wanted


def check_measure(task: TextTask, key: str, name: str) -> None:
    if name not in task.measures:
        known = ", ".join(task.measures)
        near = did_you_mean(name, task.measures)
        raise BadInput(f"{key}: task={task.name} has no measure {name!r}.{near} It has {known}.")


def validated(tracker: Tracker, run: LoggedRun) -> tuple[str, dict[str, Any], int]:
    """(the predictions of a run as they were scored, its resolved config, how many items they are of).

    BadInput where they do not pair with the references any more, or either is not what it was.
    """
    import yaml

    with tempfile.TemporaryDirectory() as folder:
        resolved = yaml.safe_load(tracker.download(run.run_id, "config.yaml", Path(folder)).read_text("utf-8"))
        check_part(resolved["task"], "task")
        file = tracker.download(run.run_id, stored(run.params["predictions"]), Path(folder))
        store = Store(Path(resolved["store"]["path"]))
        judged = named(resolved).judge(file, Path(resolved["references"]), [], store)
        for name, sha256 in fingerprints(judged).items():
            if sha256 != run.tags[f"data.{name}"]:
                raise BadInput(
                    f"The {name} of run {run.run_id} have changed since ({resolved[name]}). Score the file again, or "
                    "put them back."
                )
        with opened(file) as text:
            return text.read().decode(), resolved, len(judged.item_ids)


def params(config: Mapping[str, Any], choice: str | None) -> dict[str, Any]:
    """What was asked, as a run shows it."""
    asked = {name: config[name] for name in (*DECIDES, *FILES)}
    return records.params(asked, {"task": choice})


def tags(config: Mapping[str, Any], submission: Submission) -> dict[str, str]:
    """What a run of a text task is found and compared by."""
    task = submission.task
    return {f"data.{name}": sha256 for name, sha256 in submission.fingerprints.items()} | {
        "harness.verb": "score",
        "task": task.name,
        "trial_key": trial_key(config),
        "objective": config["objective"],
        "version.measures": f"{task.name} {task.version}",
    }


def trial_key(config: Mapping[str, Any]) -> str:
    """sha256 of what decides the numbers: the task with its version, what is asked of it, and the two files."""
    files = []
    for name in FILES:
        with opened(Path(config[name])) as file:
            files.append(hashlib.sha256(file.read()).hexdigest())
    made_with = records.versions(records.packages(config))
    asked = [config[key] for key in DECIDES[1:]]
    return digest([_rules(config["task"]), named(config).version, asked, files, made_with])


def _rules(node: Mapping[str, Any]) -> dict[str, Any]:
    """A part's arguments without those of `runtime:`, parts inside it too."""
    kept = {name: value for name, value in node.items() if name != "runtime"}
    return {name: _rules(value) if isinstance(value, Mapping) else value for name, value in kept.items()}


def inputs(config: Mapping[str, Any], submission: Submission) -> dict[str, tuple[str, str, str, int]]:
    """The data of a run as MLflow shows it: context -> (name, sha256, place, rows)."""
    n, sha256 = len(submission.judged.item_ids), submission.fingerprints
    return {name: (Path(config[name]).name, sha256[name], config[name], n) for name in FILES}


def write(
    folder: Path,
    record: RunRecord,
    config: Mapping[str, Any],
    submission: Submission,
    light: bool = False,
) -> None:
    """A run's files and numbers. light: without what is only looked at: page, figure, table of items, versions."""
    judged = submission.judged
    shutil.copyfile(config["predictions"], folder / stored(config["predictions"]))
    kept = (*DECIDES, *FILES, "experiment_name", "store")
    write_text(folder / "config.yaml", records.resolved({name: config[name] for name in kept}))
    tallied = {name: values.tolist() for name, values in judged.tallies.items()}
    flags = {"public": submission.public.astype(int).tolist()}
    columns = {"id": judged.item_ids, "kind": judged.kinds, **flags, **tallied}
    write_text(folder / TABLE, csv_text(columns))
    record.metrics |= logged(submission)
    if light:
        return
    from harness import text_plots

    write_text(folder / "items.csv", csv_text(judged.table))
    write_text(folder / "requirements.txt", run_page.requirements())
    shown, counts = submission.shown, {name: float(submission.counts[name]) for name in submission.task.counts}
    text_plots.scored(submission.summary, _means_of(submission, shown), shown, folder / "measures.png", counts)
    facts, parts = _facts(config, submission), submission.parts
    by_kind = {name: _means_of(submission, name) for name in submission.summary}
    told = (facts, submission.summary, parts["public"], parts["private"], counts)
    page = text_page.page(submission.task.name, *told, by_kind, judged, submission.values, shown)
    write_text(folder / "report.html", page)
    worst = np.argsort(submission.values, kind="stable")[:WORST]
    record.tables["items.json"] = {name: [cells[i] for i in worst] for name, cells in judged.table.items()}
    names = [path.name for path in folder.iterdir()] + list(record.tables)
    record.found[run_page.NOTE] = text_page.note(*told, judged, shown, names)


def stored(predictions: str) -> str:
    """What a run calls its copy of the predictions file."""
    name = Path(predictions)
    return "predictions" + "".join(name.suffixes[-2:] if name.suffix == ".gz" else [name.suffix])


def logged(submission: Submission) -> dict[str, float]:
    """The numbers of a run by their logged names; what is absent is left out."""
    found = {name: one.mean for name, one in submission.summary.items()}
    for end in ("low", "high"):
        found |= {f"interval_{end}/{name}": getattr(one, end) for name, one in submission.summary.items()}
    for part, means in submission.parts.items():
        found |= {f"{part}/{name}": one.mean for name, one in means.items()}
    found |= {f"count/{name}": float(count) for name, count in submission.counts.items()}
    return {name: value for name, value in found.items() if value == value}


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _told(submission: Submission) -> dict[str, Any]:
    """The submission in numbers as JSON takes them: what is absent or undefined is null."""
    summary = {name: asdict(one) for name, one in submission.summary.items()}
    return plain(
        {
            "metrics": {name: one.mean for name, one in submission.summary.items()},
            "absent": submission.judged.absent,
            "counts": submission.counts,
            "summary": summary,
            **{part: {name: one.mean for name, one in means.items()} for part, means in submission.parts.items()},
            "by_kind": {
                kind: {"items": submission.judged.kinds.count(kind)} | {name: one.mean for name, one in means.items()}
                for kind, means in submission.by_kind.items()
            },
            "notes": list(submission.judged.notes),
        }
    )


def _facts(config: Mapping[str, Any], submission: Submission) -> dict[str, str]:
    """What was scored, for page and description."""
    found = {"Task": submission.task.name, "Scheme": config["task"].get("scheme", "")}
    found |= {"Predictions": Path(config["predictions"]).name, "References": Path(config["references"]).name}
    public = submission.counts["public"]
    found["Items"] = f"{submission.counts['items']}, {public} of them public"
    return {name: said for name, said in found.items() if said}


def _means_of(submission: Submission, measure: str) -> dict[str, tuple[int, float]]:
    """Kind of items -> (how many, the measure)."""
    return {kind: (means[measure].n, means[measure].mean) for kind, means in submission.by_kind.items()}


def _show(console: Console, submission: Submission, document: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("measure")
    for name in ("value", "× 100", "95 % interval", "public", "private"):
        table.add_column(name, justify="right")
    for name, one in submission.summary.items():
        known = one.mean == one.mean
        interval = f"{one.low:.3f} – {one.high:.3f}" if one.low == one.low else ""
        parts = [_number(submission.parts[part][name].mean) for part in ("public", "private")]
        table.add_row(name, _number(one.mean), f"{100 * one.mean:.2f}" if known else "", interval, *parts)
    console.print(table)
    console.print(", ".join(f"{name} {count:,}" for name, count in submission.counts.items()) + ".")
    for kind, means in submission.by_kind.items():
        applies = [name for name, one in means.items() if one.mean == one.mean]
        name = submission.shown if submission.shown in applies or not applies else applies[0]
        console.print(f"  {kind} ({submission.judged.kinds.count(kind)}): {name} {_number(means[name].mean)}")
    for name, reason in submission.judged.absent.items():
        console.print(f"{name} is absent: {reason}", style="bold")
    for note in submission.judged.notes:
        console.print(f"Note: {note}")
    for note in sorted({one.note for one in submission.summary.values() if one.note}):
        console.print(f"Intervals: {note}.", style="dim")
    console.print(f"Files: {document['files']['folder']}")
    if document["run_id"]:
        name = document["experiment"]
        console.print(f"Run {document['run_id']} of experiment {name!r}. Next:")
        console.print(f"  harness ui experiment_name='{name}'")
        task, by = f"task={submission.task.name}", f"metric={submission.shown}"
        console.print(f"  harness compare {task} {by} experiment_name='{name}'")
        console.print(f"  harness export {task} {by} run={document['run_id']}")


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"
