"""Choose the runs of `harness compare`: by id, or the best of the experiment."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.analysis.board.expected import Expected, of_board
from harness.analysis.board.runs import judging, of_chosen
from harness.analysis.comparison.comparison import kinds_in_words
from harness.analysis.ranking import Chosen, RankedRun, Wanted, chosen_runs, recommended_runs, require_finished
from harness.config.commands import CompareConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.measures.measures import SPAN_MEASURES, MeasureFamily, of_spans, parse_measure
from harness.recording.run_kind import RunKind, require_kind
from harness.tracking.tracker import LoggedRun, Tracker

CUT = (
    "The documents of these runs were cut from the same texts in different ways. Measures that count documents depend "
    "on the cut, since the runs have different documents. Measures of spans count characters of evidence instead"
)
LABELS = string.ascii_uppercase  # of runs, in tables and figures; one letter each limits how many are compared


@dataclass(frozen=True)
class Choice:
    """The runs to compare, and how they were chosen.

    select_on: "public" if the public queries chose; then the private ones judge.
    family: all candidates of the best runs, best first; () if the runs were named.
    """

    runs: Sequence[LoggedRun]
    select_on: str
    notes: Sequence[str] = ()
    family: Sequence[RankedRun] = ()

    @property
    def labelled(self) -> dict[str, LoggedRun]:
        return dict(zip(LABELS, self.runs, strict=False))


def choose_runs(tracker: Tracker, config: CompareConfig, kind: RunKind) -> Choice:
    """Return the runs that the config names; otherwise the `top` best of the experiment.

    Raise BadInput unless they are finished runs of the kind with the same data and version of the measures. Runs that
    cut the same texts into different documents compare, with a note.
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
            f"They were chosen by the same {kind.unit} that compare them, which flatters the first ones: "
            f"select_on=public chooses by the public {kind.unit} alone, and the private ones judge."
        )
    return Choice(best, found.select_on, notes, ranked)


def _check(chosen: Sequence[LoggedRun], kind: RunKind, metric: str) -> list[str]:
    shared = dict(kind.shared(metric))
    evidence = {run.tags.get("data.evidence") for run in chosen}
    several = len({run.tags.get("data.qrels") for run in chosen}) > 1
    if recut := several and len(evidence) == 1 and None not in evidence:  # other documents of the same texts
        shared.pop("data.qrels", None)
    for run in chosen:
        require_finished(run)
        require_kind(kind, run, "compare it")
        for tag, meaning in shared.items():
            first = next((other for other in chosen if tag in other.tags), run)
            if tag in run.tags and run.tags[tag] != first.tags[tag]:  # a file scored without queries lacks the tag
                raise BadInput(
                    f"Run {run.named} does not have the {meaning} of run {first.named}: {tag} is {run.tags[tag][:12]} "
                    f"and {first.tags[tag][:12]}. Only runs with the same data and measures can be compared."
                )
    return [CUT + ("." if of_spans(metric) else f", as metric={SPAN_MEASURES[0]} does.")] if recut else []


def tested_family(
    tracker: Tracker, choice: Choice, config: CompareConfig, folder: Path
) -> tuple[np.ndarray | None, Expected | None]:
    """Return (p of the best run against its family after Holm's correction, float64 [R]; what to expect of it).

    (None, None) if the runs were named, and for measures without values by query.
    """
    metric, ranked = config.metric, choice.family
    pooled = not config.task and parse_measure(metric).family is MeasureFamily.POOLED
    if not ranked or pooled:
        return None, None
    found = of_chosen(tracker, Chosen(choice.select_on, ranked), metric, folder)
    found = replace(found, seed=config.seed, resamples=config.resamples)
    judges = judging(found.public, choice.select_on)
    return found.against_first(judges)[1], of_board(tracker, found, whole=True)
