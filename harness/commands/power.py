"""`harness power`: compute how many labelled queries are needed to tell two runs apart."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board.runs import check_by_query, judging, read_board_runs
from harness.analysis.ranking import RankedRun, Wanted, chosen_runs, needed_metric, recommended_runs, settled
from harness.config.check import Invocation
from harness.config.commands import PowerConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.progress import stage
from harness.recording import run_files
from harness.recording.recording import open_store
from harness.recording.retrieval_run import CHECKED
from harness.recording.run_kind import require_retrieval
from harness.reports.markup import number, p_value, percent, signed
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.statistics.power import MOST, TellingApart, telling_apart
from harness.tracking.tracker import Tracker

BAR = 20  # length of the bar for a power of 100 %, in characters
# Key of `testset draft` -> the param under which a run logs the value of this key.
DRAFTED = {"testset": "dataset.path", "documents": "dataset.documents"}


@dataclass(frozen=True, eq=False)
class PairValues:
    """Two runs, the better first. notes: how the runs were chosen.

    gaps: float64 [Q], the first run's value minus the second's on each query that counts; NaN if a value is unknown.
    judges: "private " if only private queries count, "" if all queries count.
    """

    metric: str
    first: RankedRun
    second: RankedRun
    gaps: np.ndarray
    judges: str
    notes: Sequence[str]


def power(config: PowerConfig, invocation: Invocation) -> CommandAnswer:
    require_retrieval(config.task, "power")
    with tempfile.TemporaryDirectory() as folder:
        files = run_files.open_run_files(config.runs or (), config, invocation, Path(folder) / "files")
        tracker = files or open_store(config)
        config, notes = settled(tracker, config)
        pair = read_pair(tracker, Wanted.of(config), Path(folder))
    pair = replace(pair, notes=[*notes, *pair.notes])
    _check(pair)
    with stage("repeating the test"):
        told = telling_apart(pair.gaps, float(config.power), float(config.alpha))
    n, total = told.found.n, len(pair.gaps)
    some = f"{pair.metric} applies to {n:,} of {total:,} labelled queries. All numbers here are about these {n:,}."
    pair = replace(pair, notes=[*pair.notes, *([some] if n < total else []), *told.notes])
    words = [*run_files.scoring_words(invocation), f"runs=[{','.join(config.runs or ())}]"] if files else []
    steps = _next(pair, told, Place.of(config, invocation), words)
    return CommandAnswer(_document(pair, told), _report(pair, told, steps), lambda _: [_curve(pair, told)])


def read_pair(tracker: Tracker, asked: Wanted, folder: Path) -> PairValues:
    """Return the two named runs. By default, return the best run and the next best that differs from it on a query.

    If a named run is a sweep, take its recommended trial. Raise BadInput unless the runs can be compared by query
    and all labels come from people.
    """
    check_by_query(asked.metric)
    if asked.runs is not None:
        if len(asked.runs) != 2:
            said = counted(len(asked.runs), "run")
            raise BadInput(f"runs names {said}. Name the two to tell apart: 'runs=[ID,ID]'.")
        return _pair(tracker, asked, [run.run_id for run in recommended_runs(tracker, asked.runs)], [], folder)
    best, *others = (one.run.run_id for one in chosen_runs(tracker, asked).runs)
    notes = [
        f"Of {counted(len(others) + 1, 'run')}, these are the best by {asked.metric} and the next best that "
        "differs from it on some query."
    ]
    if len(others) > 1:
        notes = [
            f"{notes[0]} They were chosen by their scores, so the lead is partly luck: the true difference is likely "
            "smaller, and finding it takes more queries. To choose another pair: 'runs=[ID,ID]'."
        ]
    for other in others:
        own = folder / other
        own.mkdir()
        pair = _pair(tracker, asked, [best, other], notes, own)
        if np.nansum(np.abs(pair.gaps)) > 0:
            break
    return pair


def _pair(tracker: Tracker, asked: Wanted, ids: list[str], notes: Sequence[str], folder: Path) -> PairValues:
    found = read_board_runs(tracker, replace(asked, runs=ids), folder)
    first, second = found.runs
    if partly := [one.run.named for one in found.runs if CHECKED in one.run.tags]:
        raise BadInput(
            f"The labels of {' and '.join(partly)} come partly from a model. The certainty of a difference then "
            "depends on the number of queries that people have checked. `harness compare` estimates the difference; "
            "`harness testset audit` computes how much it would help to check more queries."
        )
    values = found.values[:, judging(found.public, found.select_on)]
    if (np.isnan(values[0]) != np.isnan(values[1])).any():
        raise BadInput(
            f"metric={asked.metric} applies to different queries in the two runs, so their values cannot be "
            "compared query by query. Choose another measure: metric=NAME."
        )
    judges = "private " if found.select_on == "public" else ""
    return PairValues(found.metric, first, second, values[0] - values[1], judges, [*notes, *found.notes])


def _check(pair: PairValues) -> None:
    known = pair.gaps[~np.isnan(pair.gaps)]
    names = f"Runs {pair.first.run.named} and {pair.second.run.named}"
    if len(known) < 2:
        raise BadInput(
            f"{names}: {pair.metric} applies to {counted(len(known), f'{pair.judges}query')}, and at least two are "
            "needed to estimate the variance. Label more queries, or choose another measure: metric=NAME."
        )
    if not known.any():
        raise BadInput(
            f"{names} have the same {pair.metric} on each of {len(known):,} {pair.judges}queries: no number of queries "
            "like these tells them apart. Choose other runs, or a measure on which they differ: "
            "metric=NAME."
        )


def _document(pair: PairValues, told: TellingApart) -> dict[str, Any]:
    found = told.found
    runs = [
        {"label": label, "run_id": run.run.run_id, "short_name": run.name, "name": run.run.name, "objective": run.score}
        for label, run in zip("AB", (pair.first, pair.second), strict=True)
    ]
    return {
        "metric": pair.metric,
        "judged_on": "private" if pair.judges else "all",
        "runs": runs,
        "n": found.n,
        "mean_difference": found.mean,
        "mean_difference_interval": [found.low, found.high],
        "sd": told.sd,
        **{name: getattr(found, name) for name in ("p", "wins", "ties", "losses")},
        "power": told.wanted,
        "alpha": told.alpha,
        "queries_needed": told.queries_needed,
        "queries_needed_interval": [told.low, told.high],
        **{name: getattr(told, name) for name in ("smallest_difference", "power_now", "curve")},
        "notes": pair.notes,
    }


def _report(pair: PairValues, told: TellingApart, steps: Sequence[str]) -> Report:
    found = told.found
    share, n = f"{100 * told.wanted:.0f} % power", _queries(pair, told)
    smallest = "none" if told.smallest_difference is None else number(abs(told.smallest_difference))
    answers = [
        f"Queries needed to find this difference with {share}: {_count(told.queries_needed)}{_between(told)}.",
        f"Smallest difference that {n} find with {share}: {smallest}.",
        f"Power of {n} for this difference: {percent(told.power_now)}.",
        f"Observed: A − B {signed(found.mean)} (95 % {found.low:+.3f} to {found.high:+.3f}), p {p_value(found.p)} "
        f"for this pair alone; standard deviation {told.sd:.3f}; A is better on {found.wins:,}, B on {found.losses:,}, "
        f"{found.ties:,} queries tie.",
        f"A: {pair.first.run.named}",
        f"B: {pair.second.run.named}",
    ]
    shown = replace(_curve(pair, told), caption="With other numbers of queries", notes=())
    title = f"{pair.first.name} (A) and {pair.second.name} (B): {pair.metric} on {n}"
    return Report(title, answers, [shown], pair.notes, steps=steps)


def _queries(pair: PairValues, told: TellingApart) -> str:
    return counted(told.found.n, f"{pair.judges}query")


def _between(told: TellingApart) -> str:
    if told.queries_needed is None or told.low is None:
        return ""
    return f" (95 %: {told.low:,} {'or more, no upper limit' if told.high is None else f'to {told.high:,}'})"


def _count(queries: int | None) -> str:
    return f"more than {MOST:,}" if queries is None else f"{queries:,}"


def _curve(pair: PairValues, told: TellingApart) -> Table:
    """Return a table with one row per number of queries: the power and the smallest difference that would be found."""
    found = told.found
    columns = [
        Column("queries", "count"),
        Column("power", "percent", 0),
        Column("", on="screen"),
        Column("smallest difference", "value"),
    ]
    rows: Rows = [
        [one.queries, one.power, "█" * round(BAR * one.power), one.smallest and abs(one.smallest)] for one in told.curve
    ]
    legend = (
        f"A: {pair.first.name}; B: {pair.second.name}. Power for the observed difference, A − B "
        f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}] on {_queries(pair, told)}; smallest difference with "
        f"power {told.wanted:g}. Two-sided paired randomisation test at {told.alpha:g}."
    )
    caption = f"To tell two runs apart by {pair.metric}: {_count(told.queries_needed)} queries needed"
    return Table(f"{caption}{_between(told)}.", columns, rows, [legend], "power")


def _next(pair: PairValues, told: TellingApart, place: Place, files: Sequence[str]) -> list[str]:
    """Return the next commands. files: overrides that name compared files and their labels; empty for logged runs."""
    first, second = pair.first.run, pair.second.run
    words = files or [f"runs=[{first.short_id},{second.short_id}]"]
    metric = pair.metric if files else needed_metric(pair.metric, first, second)
    found = [place.command("compare", *words, metric=metric)]
    needed = told.queries_needed
    if first.params.get("dataset") == "testset" and (needed is None or needed > told.found.n):
        folders = [f"{key}={first.params[of]}" for key, of in DRAFTED.items() if first.params.get(of, "null") != "null"]
        found.append(place.command("testset draft", *folders, "model=NAME", "dry_run=true"))
    return found
