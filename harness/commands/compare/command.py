"""The verb `compare`: two or more finished runs on the same queries, and whether the queries can tell them apart."""

from __future__ import annotations

import json
import string
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.commands.compare import figures as compare_figures
from harness.commands.compare import page as compare_page
from harness.commands.compare import task_page, task_runs
from harness.commands.compare.retrieval_runs import Compared, comparison
from harness.config.check import Invocation
from harness.data.files import some, write_text
from harness.evaluation import measures
from harness.evaluation.score_table import Table, read_table
from harness.reports import sections, terminal
from harness.tasks import scored_file
from harness.tasks.task import TextTask
from harness.tracking import provenance
from harness.tracking.recording import live_run, new_folder, open_tracker
from harness.tracking.tracker import RETRIEVAL_RUNS, LoggedRun, RunRecord, Tracker, ranked_by
from retrievers.base import BadInput, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console


LABELS = string.ascii_uppercase  # the names of the runs in tables and pictures, which bounds their number
RUN_ID = 32  # characters
DATA, TEXT_DATA = ("queries", "qrels"), ("references",)
SAME = {"data.qrels": "labels", "data.queries": "queries", "version.measures": "version of the measures"}
TEXT_SAME = {"data.references": "references", "version.measures": "version of the measures"}


def compare(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Compare runs pair by pair. Returns the JSON document of `harness compare format=json`."""
    task = scored_file.task_of(config) if "task" in config else None
    if not task:
        measures.parse(config["metric"])
    outputs = Path(config["outputs"]).absolute()
    tracker = open_tracker(config)
    if not tracker.keeps_files:
        raise BadInput("tracking=none keeps no runs to compare. Leave tracking out, or say tracking=mlflow.")
    with tempfile.TemporaryDirectory() as scratch:
        chosen, notes = (_named(tracker, config), []) if config["runs"] else _best(tracker, config, task)
        _check(chosen, task)
        read = task_runs.read if task else _read
        compared = task_runs.comparison if task else comparison
        runs: Any = read(tracker, dict(zip(LABELS, chosen, strict=False)), Path(scratch))
        found = compared(runs, config)
    found["notes"] = notes + found["notes"]
    experiment, data = chosen[0].experiment, TEXT_DATA if task else DATA
    record = RunRecord(
        experiment,
        f"compare {' '.join(run.run_id[:8] for run in chosen)}",
        params={"runs": [run.run_id for run in chosen]} | {k: config[k] for k in ("metric", "resamples", "seed")},
        tags=provenance.provenance({name: chosen[0].tags.get(f"data.{name}") for name in data})
        | {"harness.verb": "compare", "mlflow.note.content": "\n\n".join(found["verdicts"])},
        metrics=_logged(found, config["metric"]),
    )
    page: Any = task_page if task else compare_page
    folder = new_folder(outputs / "comparisons")
    with live_run(tracker, record, folder) as live:
        files = {name: str(folder / f"comparison.{name}") for name in ("md", "html", "json")}
        document = {"run_id": live.run_id, "experiment": experiment, **found, "files": files}
        document["private_peeks"] = tracker.count_private_view(experiment)
        title, whole = page.title(document), page.described(document, whole=True)
        figures = (
            task_page.figures(document)
            if task
            else compare_figures.figures(document, *(run.values[config["metric"]].tolist() for run in runs[:2]))
        )
        write_text(live.folder / "comparison.json", json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
        write_text(live.folder / "comparison.md", sections.markdown(title, whole))
        write_text(live.folder / "comparison.html", sections.html(title, whole, figures))

    def show(console: Console) -> None:
        sections.show(console, title, page.described(document, whole=False))
        console.print(f"Files: {files['html']}, .md, .json")

    terminal.emit(config["format"], document, show)
    return document


def _named(tracker: Tracker, config: Mapping[str, Any]) -> list[LoggedRun]:
    """The runs that `runs` names by their ids, or by the beginnings of ids of the experiment."""
    words, experiment = config["runs"], config["experiment_name"]
    if not 2 <= len(words) <= len(LABELS):
        raise BadInput(f"runs names {len(words)} runs. Name 2 to {len(LABELS)}: 'runs=[ID,ID]'.")
    known: list[LoggedRun] = []
    found = {}
    for word in words:
        if len(word) == RUN_ID:
            run = tracker.run(word)
        else:
            known = known or tracker.runs(experiment, {})
            matching = [run for run in known if run.run_id.startswith(word)]
            if len(matching) != 1:
                ids = [run.run_id for run in matching or known]
                near = "" if matching else did_you_mean(word, ids)
                raise BadInput(
                    f"runs: {len(matching) or 'no'} runs of experiment {experiment!r} begin with {word!r}.{near}"
                    f" {'They' if matching else 'Its runs'} are {some(ids) if ids else 'none'}. Give whole ids, or say "
                    "experiment_name=..."
                )
            run = matching[0]
        if run.run_id in found:
            raise BadInput(f"runs names {run.run_id} twice. Name runs that differ.")
        found[run.run_id] = run
    return list(found.values())


def _best(tracker: Tracker, config: Mapping[str, Any], task: TextTask | None) -> tuple[list[LoggedRun], list[str]]:
    """The `top` best finished runs, each configuration once, the earliest of equals first; and notes on the choice."""
    metric, experiment, select_on = (config[name] for name in ("metric", "experiment_name", "select_on"))
    tags = {"task": task.name} if task else RETRIEVAL_RUNS
    tracker.require_scored(experiment, metric, select_on, tags)
    earliest: dict[str, LoggedRun] = {}
    for run in reversed(tracker.runs(experiment, tags, "FINISHED")):
        earliest.setdefault(run.tags.get("trial_key", run.run_id), run)
    runs, notes = list(earliest.values()), []
    scheme = config.get("task", {}).get("scheme")
    if scheme in (schemes := {run.params.get("task.scheme") for run in runs}) and len(schemes) > 1:
        runs = [run for run in runs if run.params.get("task.scheme") == scheme]
        notes = [f"Runs of task.scheme={scheme} alone: such scores do not compare with those of another."]
    logged = [(run, ranked_by(run.metrics, metric, select_on)) for run in runs]
    ranked = [(run.metrics[name], run) for run, name in logged if name]
    best = [run for _, run in sorted(ranked, key=lambda one: -one[0])][: config["top"]]
    if len(best) < 2:
        raise BadInput(
            f"experiment {experiment!r}: {len(ranked)} finished runs with {metric} differ, and top={config['top']} of "
            "them is too few: two at least are compared. Make more, or name them: 'runs=[ID,ID]'."
        )
    items = "items" if task else "queries"
    part = "the public part" if select_on == "public" else f"all {items}"
    notes.append(f"The {len(best)} best of {len(ranked)} runs by {metric} of {part}.")
    if len(ranked) > 2 and select_on == "all":
        notes.append(
            f"They were chosen by the same {items} that compare them, which flatters the first ones: "
            f"select_on=public chooses by the public {items} alone, and the private ones judge."
        )
    return best, notes


def _check(chosen: Sequence[LoggedRun], task: TextTask | None) -> None:
    """Refuse runs that are not finished, are of another task, or have other data or measures than the first."""
    for run in chosen:
        if (verb := run.tags.get("harness.verb")) not in ("run", "score"):
            raise BadInput(f"{_named_as(run)} is a record of `harness {verb}`, without scores of its own.")
        if run.status != "FINISHED":
            raise BadInput(f"{_named_as(run)} is {run.status}: only finished runs can be compared.")
        if (kind := run.tags.get("task", "retrieval")) != (task.name if task else "retrieval"):
            raise BadInput(f"{_named_as(run)} is of task={kind}. Say task={kind} to compare such runs.")
        if not task and "data.qrels" not in run.tags:
            raise BadInput(f"{_named_as(run)} has no labels, and so no scores. Give them with dataset.qrels=FILE.")
        for tag, what in (TEXT_SAME if task else SAME).items():
            _check_same(tag, what, [one for one in chosen if tag in one.tags], run)


def _read(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> list[Compared]:
    """The runs, by label, with their tables and files, refused unless they are scored on the same queries."""
    runs = [_files(tracker, run, label, folder / label) for label, run in chosen.items()]
    for one in runs[1:]:
        if extra := set(one.table.query_ids) ^ set(runs[0].table.query_ids):
            raise BadInput(
                f"{_named_as(one.run)} and {_named_as(runs[0].run)} are scored on other queries: {len(extra)} are in "
                f"one alone: {some(sorted(extra))}. Score both with missing=zero, or compare runs on the same queries."
            )
    return runs


def _check_same(tag: str, what: str, known: Sequence[LoggedRun], run: LoggedRun) -> None:
    """Refuse a run whose tag is not that of the first run that has it: a file scored without queries has no queries."""
    if tag in run.tags and run.tags[tag] != known[0].tags[tag]:
        raise BadInput(
            f"{_named_as(run)} has other {what} than {_named_as(known[0])}: {tag} is {run.tags[tag][:12]} and "
            f"{known[0].tags[tag][:12]}. Only runs on the same queries, labels and measures can be compared."
        )


def _files(tracker: Tracker, run: LoggedRun, label: str, folder: Path) -> Compared:
    folder.mkdir()
    suffix = Path(run.params["predictions"]).suffix if run.tags.get("harness.verb") == "score" else ".jsonl"
    try:
        table = read_table(tracker.download(run.run_id, "scores.csv", folder))
    except BadInput as error:
        raise BadInput(
            f"{_named_as(run)} has no scores.csv: it was made by an earlier version. Make it again to compare it."
        ) from error
    files = [tracker.download(run.run_id, name, folder) for name in (f"predictions{suffix}", "config.yaml")]
    return Compared(label, run, _ordered(table), *files)


def _ordered(table: Table) -> Table:
    """The table with its queries by ascending id."""
    order = np.array(sorted(range(len(table.query_ids)), key=table.query_ids.__getitem__), np.intp)
    needs, multi_turn, public = (flags[order] for flags in (table.needs, table.multi_turn, table.public))
    values, oof = ({name: one[order] for name, one in columns.items()} for columns in (table.values, table.oof))
    return Table(tuple(table.query_ids[i] for i in order), needs, multi_turn, public, values, oof)


def _named_as(run: LoggedRun) -> str:
    return f"run {run.run_id} ({run.name})"


def _logged(found: Mapping[str, Any], metric: str) -> dict[str, float]:
    """The numbers of the comparison's own run: each pair's difference and corrected p by the metric."""
    numbers = {
        f"difference/{one['a']}-{one['b']}": one["mean"] for one in found["differences"] if one["measure"] == metric
    }
    numbers |= {f"p_holm/{one['a']}-{one['b']}": one["p_holm"] for one in found["tests"] if one["measure"] == metric}
    return {name: value for name, value in numbers.items() if value is not None}
