"""Comparable runs with their scores, and their value and kind of loss on every query or item."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.analysis.board.settings import short_names
from harness.analysis.ranking import Chosen, RankedRun, Wanted, chosen_runs
from harness.analysis.submissions import Submissions, read_submissions
from harness.data.files import some
from harness.errors import BadInput
from harness.gates.calibration import CLOSE
from harness.measures.measures import KINDS, LOSING, MeasureFamily, parse_measure
from harness.measures.score_table import ScoreTable, read_score_table
from harness.progress import watch
from harness.recording.logged_run import Ahead
from harness.statistics.bootstrap import Tallies
from harness.statistics.significance import (
    RESAMPLES,
    ROWS,
    SEED,
    Difference,
    against_first,
    holm,
    paired_differences,
    paired_sums,
    swap_test,
)
from harness.tracking.tracker import RETRIEVAL, LoggedRun, Tracker

LOSSES = KINDS
CODES = {kind: code for code, kind in enumerate(LOSSES)}
SCORES = "scores.csv"


@dataclass(frozen=True, eq=False)
class BoardRuns:
    """R runs that are comparable by a measure, the best first, on the same Q queries or items.

    select_on: the queries that decide the order of the runs, "all" or "public".
    query_ids: in ascending order.
    needs, multi_turn, public: bool [Q], see `ScoreTable`. For items, `needs` is true and `multi_turn` is false.
    values: float64 [R, Q], out of fold if something was learnt from labels; NaN if undefined.
    losses: int8 [R, Q], the place in LOSSES of the list's kind of loss; 0 without a loss, for items, and if the measure
        does not apply or is 1.
    notes: sentences about the runs, for example about runs that were left out.
    seed, resamples: used in tests of pairs.
    submissions: the runs of a text task, whose measures need sums over items; None for retrieval.
    """

    metric: str
    select_on: str
    runs: tuple[RankedRun, ...]
    query_ids: tuple[str, ...]
    needs: np.ndarray
    multi_turn: np.ndarray
    public: np.ndarray
    values: np.ndarray
    losses: np.ndarray
    notes: tuple[str, ...] = ()
    seed: int = SEED
    resamples: int = RESAMPLES
    submissions: Submissions | None = None

    @property
    def choosing(self) -> np.ndarray:
        """bool [Q], the queries that decide the order of the runs."""
        return self.public if self.select_on == "public" else np.ones(len(self.public), bool)

    @property
    def unit(self) -> str:
        return "item" if self.submissions else "query"

    def means(self, rows: np.ndarray) -> np.ndarray:
        """Return the measure of each run over some queries, float64 [R]; NaN without queries. rows: bool [Q]."""
        if self.submissions is None:
            return np.array([known_mean(values) for values in self.values[:, rows]])
        return np.array([one.measure(one.table.sum(axis=0)[None])[0, 0] for one in self._tallies(rows)])

    def gap(self, place: int, rows: np.ndarray) -> float:
        """Return the score of a run minus the score of the best run, over the queries of `rows` that count in both."""
        if self.submissions is None:
            return known_mean((self.values[place] - self.values[0])[rows])
        means = self.means(rows)
        return float(means[place] - means[0])

    def against_first(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (p of the best run against each run, p after Holm's correction) on `rows`, float64 [R]."""
        if self.submissions is None:
            return against_first(self.values[:, rows], self.seed, self.resamples)
        first, *others = self._tallies(rows)
        found = [swap_test(first, other, self.seed, self.resamples)[0][0] for other in others]
        return np.array([np.nan, *found]), np.array([np.nan, *holm(np.array(found))])

    def differences(self, pairs: Sequence[tuple[int, int]], rows: np.ndarray) -> Iterator[Difference]:
        """Yield the difference of each pair of runs over the queries of `rows`, with an uncorrected p."""
        if self.submissions is None:
            values = self.values[:, rows]
            for start in range(0, len(pairs), ROWS):
                first, second = np.array(pairs[start : start + ROWS]).T
                yield from paired_differences(values[first] - values[second], self.seed, self.resamples)
        else:
            tallies = self._tallies(rows)
            for first, second in pairs:
                yield from paired_sums(tallies[first], tallies[second], self.seed, self.resamples)

    def _tallies(self, rows: np.ndarray) -> list[Tallies]:
        assert self.submissions is not None
        return self.submissions.take(rows).tallies([self.metric])


def read_board_runs(tracker: Tracker, asked: Wanted, folder: Path) -> BoardRuns:
    """Return the wanted runs with their scores by query.

    Raise BadInput if the measure is not a mean over queries, if the runs are not comparable, or if a run has no scores
    by query.
    """
    if asked.task == RETRIEVAL:
        check_by_query(asked.metric)
    return of_chosen(tracker, chosen_runs(tracker, asked), asked.metric, folder)


def of_chosen(tracker: Tracker, found: Chosen, metric: str, folder: Path) -> BoardRuns:
    """Return the runs with their scores by query. Raise BadInput as `read_board_runs` does."""
    runs = [one.run for one in found.runs]
    named = [replace(one, name=name) for one, name in zip(found.runs, short_names(runs), strict=True)]
    found = replace(found, runs=named)
    if runs[0].tags.get("task", RETRIEVAL) != RETRIEVAL:
        return of_submissions(found, metric, read_submissions(tracker, runs, folder))
    return of_tables(found, metric, tables(tracker, runs, metric, folder))


def of_submissions(found: Chosen, metric: str, submissions: Submissions) -> BoardRuns:
    """Return the runs of a text task. submissions: one for each run, in the same order."""
    values = submissions.values(metric)
    return BoardRuns(
        metric=metric,
        select_on=found.select_on,
        runs=tuple(found.runs),
        query_ids=submissions.item_ids,
        needs=np.ones(values.shape[1], bool),
        multi_turn=np.zeros(values.shape[1], bool),
        public=submissions.files[0].public,
        values=values,
        losses=np.zeros(values.shape, np.int8),
        notes=tuple(found.notes),
        submissions=submissions,
    )


def of_tables(found: Chosen, metric: str, scored: Sequence[ScoreTable]) -> BoardRuns:
    """Return the runs with their scores. scored: the scores of each run, on the same queries by ascending id."""
    first = scored[0]
    values = np.stack([table.oof.get(metric, table.values[metric]) for table in scored])
    unknown = [""] * len(first.query_ids)
    losses = np.array([[CODES[kind] for kind in table.loss or unknown] for table in scored], np.int8)
    if metric != LOSING:  # a list with a loss may be the best possible by another measure
        losses = np.where(values < 1 - CLOSE, losses, 0).astype(losses.dtype)
    return BoardRuns(
        metric=metric,
        select_on=found.select_on,
        runs=tuple(found.runs),
        query_ids=first.query_ids,
        needs=first.needs,
        multi_turn=first.multi_turn,
        public=first.public,
        values=values,
        losses=losses,
        notes=tuple(found.notes),
    )


def known_mean(values: np.ndarray) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def check_by_query(metric: str) -> None:
    """Raise BadInput for a measure that has no value for each query."""
    if parse_measure(metric).family is MeasureFamily.POOLED:
        raise BadInput(
            f"metric={metric} is not a mean over queries and has no value for each query. Choose another "
            "measure, such as metric=modified_map@3."
        )


def judging(public: np.ndarray, select_on: str, unit: str = "queries") -> np.ndarray:
    """Return the queries or items that judge the runs, bool [N]. Raise BadInput if none is left to judge them."""
    if select_on == "all":
        return np.ones(len(public), bool)
    if public.all():
        raise BadInput(
            f"select_on=public: all {len(public):,} {unit} of these runs are public, so none are left "
            "to judge the runs. Score the runs with a smaller share: public=0.4."
        )
    judges: np.ndarray = ~public
    return judges


def tables(tracker: Tracker, runs: Sequence[LoggedRun], metric: str | None, folder: Path) -> list[ScoreTable]:
    """Return the scores of each run by ascending query_id. Raise BadInput if the runs have different queries.

    metric: read this measure alone; None for all measures.
    """
    found: list[ScoreTable] = []
    wanted = [(run, SCORES) for run in runs]
    with watch("scores by query") as progress, Ahead(tracker, wanted, folder) as files:
        for run in runs:
            found.append(_table(files, run, metric))
            if extra := set(found[-1].query_ids) ^ set(found[0].query_ids):
                raise BadInput(
                    f"Runs {run.named} and {runs[0].named} are scored on different queries: {len(extra)} are in only "
                    f"one of the runs: {some(sorted(extra))}. Score both with missing=zero, or name runs on the same "
                    "queries."
                )
            progress(len(found), len(runs), "runs")
    return found


def _table(files: Ahead, run: LoggedRun, metric: str | None) -> ScoreTable:
    file = files.download(run, SCORES)
    try:
        table = read_score_table(file, only=metric)
    except BadInput as error:
        raise BadInput(f"Run {run.named}: {error}") from None
    if metric and metric not in table.values:
        raise BadInput(f"Run {run.named} has no {metric} by query. Choose another measure or other runs: metric=NAME.")
    return table.by_id()
