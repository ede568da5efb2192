"""Comparable runs with their scores, and their value and kind of loss on every query or item."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board.settings import short_names
from harness.analysis.ranking import Chosen, RankedRun, Wanted, chosen_runs
from harness.config.components import check_component
from harness.data.files import some
from harness.data.tables import AGAIN, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput
from harness.gates.calibration import CLOSE
from harness.measures.measures import KINDS, LOSING, MeasureFamily, parse_measure
from harness.measures.score_table import ScoreTable, read_score_table
from harness.progress import watch
from harness.recording import task_run
from harness.recording.logged_run import Ahead, logged_value, read_config
from harness.statistics import significance
from harness.statistics.bootstrap import Tallies
from harness.statistics.significance import RESAMPLES, SEED, Difference
from harness.tasks.scored_file import tallied, task_of, task_rules
from harness.tasks.task import GIVEN, TextTask
from harness.tracking.tracker import RETRIEVAL, LoggedRun, NoFile, Tracker

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
    losses: int8 [R, Q], each list's kind of loss, as an index into LOSSES; 0 without a loss, for items, and where the
        measure does not apply or is 1.
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
        """Return the score of a run minus that of the best run, over the queries of `rows` where both have a value."""
        if self.submissions is None:
            return known_mean((self.values[place] - self.values[0])[rows])
        means = self.means(rows)
        return float(means[place] - means[0])

    def against_first(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (p of the best run against each run, p after Holm's correction), each float64 [R]. rows: bool [Q]."""
        if self.submissions is None:
            return significance.against_first(self.values[:, rows], self.seed, self.resamples)
        first, *others = self._tallies(rows)
        found = [significance.swap_test(first, other, self.seed, self.resamples)[0][0] for other in others]
        return np.array([np.nan, *found]), np.array([np.nan, *significance.holm(np.array(found))])

    def differences(self, pairs: Sequence[tuple[int, int]], rows: np.ndarray) -> Iterator[Difference]:
        """Yield the difference of each pair of runs over the queries of `rows`, with an uncorrected p."""
        if self.submissions is None:
            values = self.values[:, rows]
            for start in range(0, len(pairs), significance.ROWS):
                first, second = np.array(pairs[start : start + significance.ROWS]).T
                yield from significance.paired_differences(values[first] - values[second], self.seed, self.resamples)
        else:
            tallies = self._tallies(rows)
            for first, second in pairs:
                yield from significance.paired_sums(tallies[first], tallies[second], self.seed, self.resamples)

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


def of_chosen(
    tracker: Tracker, found: Chosen, metric: str, folder: Path, known: dict[str, ScoreTable] | None = None
) -> BoardRuns:
    """Return the runs with their scores by query. Raise BadInput as `read_board_runs` does. known: see `tables`."""
    runs = [one.run for one in found.runs]
    named = [replace(one, name=name) for one, name in zip(found.runs, short_names(runs), strict=True)]
    found = replace(found, runs=named)
    if runs[0].tags.get("task", RETRIEVAL) != RETRIEVAL:
        return of_submissions(found, metric, read_submissions(tracker, runs, folder))
    return of_tables(found, metric, tables(tracker, runs, metric, folder, known))


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
    if metric != LOSING:  # these are losses in the measure LOSING; drop them where `metric` is 1 or undefined
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
    """Return the queries or items on which runs are compared, bool [N]. Raise BadInput if there are none."""
    if select_on == "all":
        return np.ones(len(public), bool)
    if public.all():
        raise BadInput(
            f"select_on=public: all {len(public):,} {unit} of these runs are public, so none are left "
            "to judge the runs. Score the runs with a smaller public share, such as public=0.4."
        )
    judges: np.ndarray = ~public
    return judges


def tables(
    tracker: Tracker,
    runs: Sequence[LoggedRun],
    metric: str | None,
    folder: Path,
    known: dict[str, ScoreTable] | None = None,
) -> list[ScoreTable]:
    """Return the scores of each run by ascending query_id. Raise BadInput if the runs have different queries.

    metric: read this measure alone; None for all measures.
    known: run id -> its scores, if they were read before; those that are read are added.
    """
    known = {} if known is None else known
    found: list[ScoreTable] = []
    wanted = [(run, SCORES) for run in runs if run.run_id not in known]
    with watch("scores by query") as progress, Ahead(tracker, wanted, folder) as files:
        for run in runs:
            if run.run_id not in known:
                known[run.run_id] = _table(files, run, metric)
            found.append(known[run.run_id])
            if extra := set(found[-1].query_ids) ^ set(found[0].query_ids):
                raise BadInput(
                    f"Runs {run.named} and {runs[0].named} are scored on different queries: {len(extra)} are in only "
                    f"one of the runs: {some(sorted(extra))}. Set missing=zero to score both on all queries, or choose "
                    "runs with the same queries."
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
        raise BadInput(f"Run {run.named} has no {metric} by query. Choose another measure (metric=NAME) or other runs.")
    return table.by_id()


# ---- Submissions to a text task: scored files from the tracking store

ItemRow = Mapping[str, str]  # column -> cell


@dataclass(frozen=True, eq=False)
class ScoredSubmission:
    """A scored file with N items in the order of their ids.

    node: the logged config of the task. public: bool [N], the items of the public part.
    counts: name of a count -> float64 [N].
    items: id -> row of `items.csv`; {} if the run has no such file.
    """

    run: LoggedRun
    node: dict[str, Any]
    item_ids: tuple[str, ...]
    kinds: tuple[str, ...]
    public: np.ndarray
    counts: dict[str, np.ndarray]
    items: Mapping[str, ItemRow]

    def take(self, rows: np.ndarray) -> ScoredSubmission:
        places = np.flatnonzero(rows)
        return replace(
            self,
            item_ids=tuple(self.item_ids[place] for place in places),
            kinds=tuple(self.kinds[place] for place in places),
            public=self.public[rows],
            counts={name: values[rows] for name, values in self.counts.items()},
        )


@dataclass(frozen=True, eq=False)
class Submissions:
    """Submissions with the same items, scored by the same rules."""

    files: Sequence[ScoredSubmission]

    @cached_property
    def task(self) -> TextTask:
        return task_of(self.files[0].node)

    @property
    def item_ids(self) -> tuple[str, ...]:
        return self.files[0].item_ids

    def take(self, rows: np.ndarray) -> Submissions:
        return self if rows.all() else Submissions([file.take(rows) for file in self.files])

    def values(self, metric: str) -> np.ndarray:
        """Return the metric of each of R submissions on each item, float64 [R, N]."""
        return np.stack([self.task.measure(file.counts)[metric] for file in self.files])

    def tallies(self, names: Sequence[str]) -> list[Tallies]:
        return [tallied(self.task, file.counts, names) for file in self.files]

    def texts(self, item_id: str) -> tuple[dict[str, str], list[ItemRow]]:
        """Return (an item's texts, which are the same in all submissions; the item's row in each submission)."""
        items = [file.items.get(item_id, {}) for file in self.files]
        return {name: item[name] for item in reversed(items) for name in GIVEN if name in item}, items


def read_submissions(tracker: Tracker, runs: Sequence[LoggedRun], folder: Path) -> Submissions:
    """Read the submissions. Raise BadInput unless all were scored on the same items by the same rules."""
    files: list[ScoredSubmission] = []
    wanted = [(run, name) for run in runs for name in ("config.yaml", task_run.TABLE, "items.csv")]
    with watch("scores by item") as progress, Ahead(tracker, wanted, folder) as downloads:
        for run in runs:
            files.append(_submission(downloads, run))
            _check_same(files[0], files[-1])
            progress(len(files), len(runs), "runs")
    return Submissions(files)


def _check_same(first: ScoredSubmission, other: ScoredSubmission) -> None:
    same, own = task_rules(first.node), task_rules(other.node)
    if other.item_ids != first.item_ids:
        raise BadInput(f"Runs {other.run.named} and {first.run.named} were scored on different items. {AGAIN}")
    for name, rule in same.items():
        if own.get(name) != rule:
            raise BadInput(
                f"Run {other.run.named} was scored with task.{name}={own.get(name)}, but run {first.run.named} with "
                f"{rule}. Such scores cannot be compared. Score both files with the same task.{name}."
            )
    if (other.public != first.public).any():
        raise BadInput(
            f"Runs {other.run.named} and {first.run.named} have different public parts. Score both with the same "
            "`public` and `seed`."
        )


def _submission(downloads: Ahead, run: LoggedRun) -> ScoredSubmission:
    node = logged_value(read_config(downloads.download(run, "config.yaml")), "task", dict)
    tallies = downloads.download(run, task_run.TABLE)
    try:
        texts = downloads.download(run, "items.csv")
    except NoFile:  # the trials of a sweep do not log texts
        texts = None
    try:
        check_component(node, "task")
        columns = read_columns(tallies)
        ids, kinds = taken_ids(columns, "id", tallies), taken(columns, "kind", tallies)
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.intp)
        public = number_column(taken(columns, "public", tallies), "public", tallies)[order] == 1
        counts = {name: number_column(cells, name, tallies)[order] for name, cells in columns.items()}
        task = task_of(node)
        for name in task.counts:
            if name not in counts:
                taken(columns, name, tallies)
        items = _items(texts, task) if texts else {}
    except BadInput as error:
        raise BadInput(f"Run {run.named}: {error}") from None
    return ScoredSubmission(
        run,
        node,
        item_ids=tuple(ids[row] for row in order),
        kinds=tuple(kinds[row] for row in order),
        public=public,
        counts=counts,
        items=items,
    )


def _items(file: Path, task: TextTask) -> dict[str, dict[str, str]]:
    """Return id -> column -> cell. Raise BadInput if the file lacks a column that the task shows."""
    columns = read_columns(file)
    ids = taken_ids(dict(columns), "id", file)
    try:
        task.marked(dict.fromkeys(columns, ""))
    except KeyError as error:
        raise BadInput(f"{file}:1: there is no column {error}. {AGAIN}") from None
    rows = zip(*columns.values(), strict=True)
    return {item_id: dict(zip(columns, cells, strict=True)) for item_id, cells in zip(ids, rows, strict=True)}
