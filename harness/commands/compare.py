"""`harness compare`: compare finished runs on the same data, and say whether the data tell them apart."""

from __future__ import annotations

import json
import string
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis import ranking
from harness.analysis.board.expected import Expected, expected_of_run, of_board
from harness.analysis.board.runs import judging, of_chosen, read_submissions
from harness.analysis.comparison import page
from harness.analysis.comparison.comparison import Comparison, kinds_in_words
from harness.analysis.comparison.scored_runs import ScoredRuns, TaskRuns, compare_runs, read_retrieval_runs
from harness.analysis.ranking import Chosen, RankedRun, Wanted, chosen_runs, recommended_runs, require_finished
from harness.config.check import Invocation
from harness.config.commands import CompareConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.measures import measures
from harness.measures.measures import SPAN_MEASURES, MeasureFamily, of_spans, parse_measure
from harness.recording import provenance, recording, run_files
from harness.recording.run_kind import RunKind, require_kind
from harness.reports import report
from harness.reports.markup import marked
from harness.reports.result import CommandAnswer
from harness.reports.tables import FORMATS, rendered
from harness.storage.atomic import write_text
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker
from retrievers.base import check_choice

if TYPE_CHECKING:
    from pandas import DataFrame


CUT = (
    "The documents of these runs were cut from the same texts in different ways. Measures that count documents depend "
    "on the cut, since the runs have different documents. Measures of spans count characters of evidence instead"
)
LABELS = string.ascii_uppercase  # labels of runs in tables and figures: at most 26 runs are compared


def _compared(
    tracker: Tracker, choice: Choice, kind: RunKind, folder: Path, config: CompareConfig
) -> tuple[Comparison, str]:
    """Return the comparison of the chosen runs, and its HTML page. folder: for downloaded files of the runs."""
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
    """A comparison, and where it is logged. run_id, experiment: None if files of rankings were compared.

    failure: with `fail_if`, why the command line would exit with code 1; None if it would not.
    """

    comparison: Comparison
    run_id: str | None
    experiment: str | None
    folder: Path
    private_peeks: int
    failure: str | None = None

    @property
    def verdicts(self) -> list[str]:
        """Return one sentence for each pair of runs."""
        return [*self.comparison.verdicts]

    @cached_property
    def differences(self) -> DataFrame:
        """Return one row per pair and measure: the difference, its interval and its test. Imports pandas."""
        import pandas

        return pandas.DataFrame([one.as_json(False) | one.as_json(True) for one in self.comparison.differences])

    @cached_property
    def slices(self) -> DataFrame:
        """Return one row per pair and slice: the difference in the metric and its test. Imports pandas."""
        import pandas

        return pandas.DataFrame([one.as_json(False) | one.as_json(True) for one in self.comparison.slices])

    def table(self, style: str) -> str:
        """Return what `format=STYLE` prints: a table to paste, in the style "latex", "markdown" or "csv"."""
        check_choice("style", style, FORMATS)
        return rendered(page.pasted(self.comparison, style), style)

    @property
    def files(self) -> dict[str, str]:
        return {name: str(self.folder / f"comparison.{name}") for name in ("md", "html", "json")}

    def __repr__(self) -> str:
        title, runs = page.title(self.comparison), self.comparison.runs
        return "\n".join([title, *(f"{one.label}: {one.run.named}" for one in runs), *self.verdicts])

    def _repr_html_(self) -> str:
        return report.report_html(page.comparison_report(self.comparison))


def compare(config: CompareConfig, invocation: Invocation) -> CommandAnswer:
    """Compare runs. With `fail_if`, first write everything, and then fail if the second run is worse."""
    gated = config.fail_if is not None
    if gated and len(config.runs or ()) != 2:
        raise BadInput("fail_if=worse asks whether one run is worse than another: name both, 'runs=[BASE,NEW]'.")
    compared = compare_and_log(config, invocation)
    said = replace(page.comparison_report(compared.comparison), files=[f"Files: {compared.files['html']}, .md, .json"])
    base, new = compared.comparison.runs[:2]
    worse = f"{new.run.named} is worse than {base.run.named} in {compared.comparison.metric} (fail_if=worse)."
    failed = worse if gated and compared.comparison.in_metric[0].better == base.label else None
    pasted = partial(page.pasted, compared.comparison)
    return CommandAnswer(compared_document(compared), said, pasted, replace(compared, failure=failed), failed)


def compare_and_log(config: CompareConfig, invocation: Invocation) -> Compared:
    """Compare runs pair by pair. Log the result, unless `runs` names files of rankings instead of logged runs."""
    kind = RunKind(config.task)
    if config.metric is not None and not kind.task:  # `TaskRuns.measures` checks the metric of a text task
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
    note = "\n\n".join([*comparison.verdicts, *map(marked, comparison.reversals)])
    names = {"harness.verb": "compare", "mlflow.note.content": note}
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


@dataclass(frozen=True)
class Choice:
    """The runs to compare, and how they were chosen.

    select_on: "public" if the runs were chosen on the public queries; they are then compared on the private queries.
    family: all runs from which the best were chosen, the best first; () if the runs were named.
    """

    runs: Sequence[LoggedRun]
    select_on: str
    notes: Sequence[str] = ()
    family: Sequence[RankedRun] = ()

    @property
    def labelled(self) -> dict[str, LoggedRun]:
        return dict(zip(LABELS, self.runs, strict=False))


def choose_runs(tracker: Tracker, config: CompareConfig, kind: RunKind) -> Choice:
    """Return the runs that the config names, or the `top` best of the experiment.

    Raise BadInput unless all are finished runs of `kind`, with the same data and the same version of the measures. The
    documents may differ if they were cut from the same texts; a note then says so.
    """
    if config.runs:
        if not 2 <= len(config.runs) <= len(LABELS):
            raise BadInput(f"runs names {counted(len(config.runs), 'run')}. Name 2 to {len(LABELS)}: 'runs=[ID,ID]'.")
        runs = recommended_runs(tracker, config.runs)
        made_on_public = all(run.select_on == "public" for run in runs)
        choice = Choice(runs, config.select_on or ("public" if made_on_public else "all"))
    else:
        choice = _best(tracker, config, kind)
    return replace(choice, notes=[*choice.notes, *_check(choice.runs, kind, config.metric)])


def _best(tracker: Tracker, config: CompareConfig, kind: RunKind) -> Choice:
    found = chosen_runs(tracker, replace(Wanted.of(config), runs=None))
    ranked, notes = found.runs, [*found.notes]
    best = [one.run for one in ranked[: config.top]]
    counts = Counter(one.score.kind for one in ranked)
    kinds = kinds_in_words({kind: counted(count, "run") for kind, count in counts.items()})
    notes.append(f"The {len(best)} best of {len(ranked)} runs by {config.metric}, {kinds}.")
    if len(ranked) > len(best) and found.select_on == "all":
        notes.append(
            f"The same {kind.unit} choose and compare these runs. This flatters the best runs. With select_on=public, "
            f"the public {kind.unit} choose the runs, and the private {kind.unit} compare them."
        )
    return Choice(best, found.select_on, notes, ranked)


def _check(chosen: Sequence[LoggedRun], kind: RunKind, metric: str) -> list[str]:
    shared = dict(kind.shared(metric))
    evidence = {run.tags.get("data.evidence") for run in chosen}
    several = len({run.tags.get("data.qrels") for run in chosen}) > 1
    if recut := several and len(evidence) == 1 and None not in evidence:  # the runs cut the same texts differently
        shared.pop("data.qrels", None)
    for run in chosen:
        require_finished(run)
        require_kind(kind, run, "compare it")
        for tag, meaning in shared.items():
            first = next((other for other in chosen if tag in other.tags), run)
            if tag in run.tags and run.tags[tag] != first.tags[tag]:  # a run of `harness score` may lack the tag
                raise BadInput(
                    f"Run {run.named} does not have the {meaning} of run {first.named}: {tag} is {run.tags[tag][:12]}, "
                    f"not {first.tags[tag][:12]}. Only runs with the same data and measures can be compared."
                )
    return [CUT + ("." if of_spans(metric) else f", as metric={SPAN_MEASURES[0]} does.")] if recut else []


def tested_family(
    tracker: Tracker, choice: Choice, config: CompareConfig, folder: Path
) -> tuple[np.ndarray | None, Expected | None]:
    """Test the best run against the R runs of `choice.family`. Return (p-values, expected score of the best run).

    p-values: float64 [R], corrected by Holm's method; NaN for the best run itself. Return (None, None) if the runs were
    named, or if the measure has no value per query.
    """
    metric, ranked = config.metric, choice.family
    pooled = not config.task and parse_measure(metric).family is MeasureFamily.POOLED
    if not ranked or pooled:
        return None, None
    found = of_chosen(tracker, Chosen(choice.select_on, ranked), metric, folder)
    found = replace(found, seed=config.seed, resamples=config.resamples)
    judges = judging(found.public, choice.select_on)
    return found.against_first(judges)[1], of_board(tracker, found, whole=True)
