"""All runs among which the best of an experiment was chosen: its test against each, and what to expect of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.board.expected import Expected, Family, Values, of_family
from harness.board.runs import tables
from harness.commands.compare.choice import Choice
from harness.commands.compare.comparison import Settings
from harness.evaluation.measures import Family as Kind
from harness.evaluation.measures import parse
from harness.evaluation.significance import against_first
from harness.tracking.tracker import Tracker


def tested(
    tracker: Tracker, choice: Choice, settings: Settings, folder: Path
) -> tuple[np.ndarray | None, Expected | None]:
    """(p of the best run against each run of the choice's family, in their order, after Holm's correction over all of
    them, float64 [R]; what to expect of it on new queries).

    (None, None) where runs were named, and for a measure without values by query. folder: for downloads.
    """
    metric, ranked = settings.metric, choice.family
    if not ranked or parse(metric).family is Kind.POOLED:
        return None, None
    folder.mkdir()
    known = Values.of(tables(tracker, [one.run for one in ranked], metric, folder), metric)
    expected = of_family(tracker, Family(metric, choice.select_on, ranked, len(ranked), known.first))
    judges = settings.judging(known.public, "queries")
    return against_first(known.values[:, judges], settings.seed, settings.resamples)[1], expected
