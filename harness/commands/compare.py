"""`harness compare`: two or more finished runs on the same data, and whether the data can tell them apart."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis import ranking
from harness.analysis.board.expected import expected_of_run
from harness.analysis.comparison import page
from harness.analysis.comparison.choice import Choice, choose_runs, tested_family
from harness.analysis.comparison.comparison import Comparison
from harness.analysis.comparison.scored_runs import ScoredRuns, TaskRuns, compare_runs, read_retrieval_runs
from harness.analysis.submissions import read_submissions
from harness.config.check import Invocation
from harness.config.commands import CompareConfig
from harness.errors import BadInput
from harness.measures import measures
from harness.recording import provenance, recording, run_files
from harness.recording.run_kind import RunKind
from harness.reports import report
from harness.reports.result import CommandAnswer
from harness.storage.atomic import write_text
from harness.tracking.tracker import RunRecord, Tracker

if TYPE_CHECKING:
    from pandas import DataFrame


def _compared(
    tracker: Tracker, choice: Choice, kind: RunKind, folder: Path, config: CompareConfig
) -> tuple[Comparison, str]:
    """Compare runs; return the comparison and its page. folder: for downloads."""
    runs: ScoredRuns
    if kind.task:
        runs = TaskRuns([*choice.labelled], read_submissions(tracker, choice.runs, folder))
    else:
        runs = read_retrieval_runs(tracker, choice.labelled, folder)
    p, expected = tested_family(tracker, choice, config, folder)
    found = compare_runs(runs, config, p)
    if not (choice.family or kind.task):
        expected = expected_of_run(tracker, choice.labelled[found.best], config.metric, choice.select_on)
    found = replace(found, notes=[*choice.notes, *found.notes], expected=expected)
    return found, page.board_html(found, runs, tracker, folder, config)


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """A comparison. run_id, experiment: None for a comparison of files, which is not logged."""

    comparison: Comparison
    run_id: str | None
    experiment: str | None
    folder: Path
    private_peeks: int

    @property
    def verdicts(self) -> list[str]:
        """Return one sentence for each pair of runs."""
        return [*self.comparison.verdicts]

    @cached_property
    def differences(self) -> DataFrame:
        """Return one row per pair and measure: the difference, its interval and its test. Imports pandas."""
        import pandas

        return pandas.DataFrame([one.difference_json() | one.test_json() for one in self.comparison.differences])

    @property
    def files(self) -> dict[str, str]:
        return {name: str(self.folder / f"comparison.{name}") for name in ("md", "html", "json")}

    def __repr__(self) -> str:
        title, runs = page.title(self.comparison), self.comparison.runs
        return "\n".join([title, *(f"{one.label}: {one.run.named}" for one in runs), *self.verdicts])

    def _repr_html_(self) -> str:
        return report.report_html(page.comparison_report(self.comparison))


def compare(config: CompareConfig, invocation: Invocation) -> CommandAnswer:
    """Compare runs, and present the result. With `fail_if`, fail after everything is written."""
    gated = config.fail_if is not None
    if gated and len(config.runs or ()) != 2:
        raise BadInput("fail_if=worse asks whether one run is worse than another: name both, 'runs=[BASE,NEW]'.")
    compared = compare_and_log(config, invocation)
    said = replace(page.comparison_report(compared.comparison), files=[f"Files: {compared.files['html']}, .md, .json"])
    base, new = compared.comparison.runs[:2]
    worse = f"{new.run.named} is worse than {base.run.named} in {compared.comparison.metric} (fail_if=worse)."
    failed = worse if gated and compared.comparison.in_metric[0].better == base.label else None
    pasted = partial(page.pasted, compared.comparison)
    return CommandAnswer(compared_document(compared), said, pasted, compared, failed)


def compare_and_log(config: CompareConfig, invocation: Invocation) -> Compared:
    """Compare runs pair by pair, and log the result; a comparison of files is not logged."""
    kind = RunKind(config.task)
    if config.metric is not None and not kind.task:  # the runs' own task knows its measures, not the config's
        measures.parse_measure(config.metric)
    with tempfile.TemporaryDirectory() as folder:
        files = run_files.open_run_files(config.runs or (), config, invocation, Path(folder) / "files", config.seed)
        tracker = files or recording.open_store(config, "keeps no runs to compare")
        config, notes = ranking.settled(tracker, config, kind.name)
        choice = choose_runs(tracker, config, kind)
        choice = replace(choice, notes=[*notes, *choice.notes])
        config = config.changed(select_on=choice.select_on)
        found, html = _compared(tracker, choice, kind, Path(folder), config)
    record = _record(found, kind, config)
    target = recording.new_folder(config.outputs.absolute() / "comparisons")
    with recording.live_run(tracker, record, target) as live:
        peeks = tracker.count_private_view(record.experiment)
        compared = Compared(found, live.run_id, None if files else record.experiment, target, peeks)
        document = json.dumps(compared_document(compared), ensure_ascii=False, allow_nan=False) + "\n"
        details = report.report_markdown(page.comparison_report(found, details=True))
        for ending, text in {"json": document, "md": details, "html": html}.items():
            write_text(live.folder / f"comparison.{ending}", text)
    return compared


def compared_document(one: Compared) -> dict[str, Any]:
    head = {"run_id": one.run_id, "experiment": one.experiment}
    return head | one.comparison.to_json() | {"files": one.files, "private_peeks": one.private_peeks}


def _record(comparison: Comparison, kind: RunKind, config: CompareConfig) -> RunRecord:
    runs = [one.run for one in comparison.runs]
    inputs = [tag.removeprefix("data.") for tag in kind.shared(config.metric) if tag.startswith("data.")]
    names = {"harness.verb": "compare", "mlflow.note.content": "\n\n".join(comparison.verdicts)}
    found = {f"{one.pair.first}-{one.pair.second}": one.found for one in comparison.in_metric}
    numbers = {f"difference/{pair}": one.mean for pair, one in found.items()}
    numbers |= {f"p_holm/{pair}": one.p_holm for pair, one in found.items()}
    return RunRecord(
        runs[0].experiment,
        f"compare {' '.join(run.short_id for run in runs)}",
        params={"runs": [run.run_id for run in runs]}
        | {"metric": config.metric, "resamples": config.resamples, "seed": config.seed, "pairs": config.pairs},
        tags=provenance.provenance({name: runs[0].tags.get(f"data.{name}") for name in inputs}) | names,
        metrics={name: value for name, value in numbers.items() if value == value},
    )
