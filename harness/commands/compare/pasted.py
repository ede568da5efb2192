"""A comparison as tables to paste into a paper: what each run scores, and how the pairs differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from harness.board.settings import short_names
from harness.commands.compare import page
from harness.commands.compare.comparison import (
    ALPHA,
    Comparison,
    PairedResult,
    RetrievalScores,
    RunScores,
)
from harness.config.text import counted
from harness.reports.tables import MARK, Cell, Column, Number, Table, best_marked

WIDE = 6  # measures that fit beside each other; more stand below each other


def tables(comparison: Comparison, style: str) -> list[Table]:
    """The tables in a style: for CSV all numbers in one, else the runs and the differences of the pairs."""
    return [_all(comparison)] if style == "csv" else [_runs(comparison), _differences(comparison)]


def _runs(comparison: Comparison) -> Table:
    """What the runs score, one row per run; one row per measure where there are more of these than fit."""
    runs, measures = comparison.runs, _measures(comparison)
    cells = {name: best_marked([_score(comparison, run, name) for run in runs]) for name in measures}
    names = _names(runs)
    columns: list[Column]
    rows: list[list[Cell]]
    if len(measures) <= WIDE:
        columns = [Column("run"), *(Column(name, "value") for name in measures)]
        rows = [[name, *(cells[measure][place] for measure in measures)] for place, name in enumerate(names)]
    else:
        columns = [Column("measure"), *(Column(name, "value") for name in names)]
        rows = [[measure, *cells[measure]] for measure in measures]
    caption = f"{page.title(comparison)}: {_means(comparison)}, {_kinds(runs)}."
    return Table("runs", caption, columns, rows, [*_legend(comparison), *_other_counts(comparison)])


def _names(runs: Sequence[RunScores]) -> list[str]:
    return [f"{run.label}: {name}" for run, name in zip(runs, short_names([one.run for one in runs]), strict=True)]


def _differences(comparison: Comparison) -> Table:
    """One row per pair by the metric; of two runs one row per measure."""
    several, found = comparison.several, _ordered(comparison)
    wanted = [one for one in found if one.measure == comparison.metric] if several else found
    corrected = several and comparison.correction
    numbers = [Column("difference", "difference"), Column(f"p ({comparison.correction})" if corrected else "p", "p")]
    counts = [Column(name, "count") for name in ("wins", "ties", "losses", comparison.unit)]
    rows: list[list[Cell]] = [
        [
            str(one.pair) if several else one.measure,
            _difference(one),
            Number(_p_holm(one) if several else _p(one)),
            *map(Number, _counts(one)),
        ]
        for one in wanted
    ]
    over = f"in {comparison.metric}" if several else f"of {comparison.first_pair}"
    caption = f"Differences {over} on {comparison.count:,} {comparison.judges}{comparison.unit}, 95 % intervals."
    notes = [f"{'; '.join(_names(comparison.runs))}.", f"{MARK} differs from 0 at {ALPHA}: {_test(comparison)}."]
    return Table("differences", caption, [Column("pair" if several else "measure"), *numbers, *counts], rows, notes)


def _all(comparison: Comparison) -> Table:
    """All numbers: first a row for each run and measure, then one for each pair of runs and measure."""
    unit = comparison.unit
    texts = [Column(name) for name in ("run", "run_id", "name", "minus", "minus_id", "measure", "kind")]
    numbers = [Column("value", "value"), Column("p", "p"), Column("p_holm", "p")]
    counts = [Column(name, "count") for name in ("pairs", unit, "wins", "ties", "losses")]
    rows = [*_run_rows(comparison), *_pair_rows(comparison)]
    return Table("comparison", page.title(comparison), [*texts, *numbers, *counts], rows)


def _run_rows(comparison: Comparison) -> Iterator[list[Cell]]:
    n = {one.measure: one.found.n for one in comparison.differences}
    for run in comparison.runs:
        for name in _measures(comparison):
            texts = [run.label, run.run.run_id, run.run.name, "", "", name, run.kind]
            numbers = [_score(comparison, run, name), *map(Number, (*[math.nan] * 3, n[name], *[math.nan] * 3))]
            yield [*texts, *numbers]


def _pair_rows(comparison: Comparison) -> Iterator[list[Cell]]:
    runs = {run.label: run.run for run in comparison.runs}
    for one in _ordered(comparison):
        first, second = runs[one.pair.first], runs[one.pair.second]
        texts = [one.pair.first, first.run_id, first.name, one.pair.second, second.run_id, one.measure, ""]
        wins, ties, losses, n = _counts(one)
        pairs = comparison.pairs if one.measure == comparison.metric else len(comparison.in_metric)
        yield [*texts, _difference(one), *map(Number, (_p(one), _p_holm(one), pairs, n, wins, ties, losses))]


def _measures(comparison: Comparison) -> list[str]:
    """The measures that are compared, that of the verdicts first."""
    names = dict.fromkeys(one.measure for one in comparison.differences)
    return [comparison.metric, *(name for name in names if name != comparison.metric)]


def _ordered(comparison: Comparison) -> list[PairedResult]:
    """The differences, those in the metric first."""
    rest = [one for one in comparison.differences if one.measure != comparison.metric]
    return [*comparison.in_metric, *rest]


def _score(comparison: Comparison, run: RunScores, name: str) -> Number:
    """What a run scores; the mark where it differs from the best run."""
    both = {comparison.best, run.label}
    marked = any(
        _significant(one)
        for one in comparison.differences
        if one.measure == name and {one.pair.first, one.pair.second} == both
    )
    if isinstance(run, RetrievalScores) and run.estimates:
        found = run.estimates.get(name)
        return Number(found.value, found.low, found.high, marked) if found else Number(math.nan)
    return Number(run.metrics[name], *run.intervals.get(name, (math.nan, math.nan)), marked)


def _difference(one: PairedResult) -> Number:
    found = one.found
    if one.estimate:
        estimated = one.estimate.found
        return Number(estimated.value, estimated.low, estimated.high, _significant(one))
    return Number(found.mean, found.low, found.high, _significant(one))


def _p(one: PairedResult) -> float:
    return one.estimate.found.p if one.estimate else one.found.p


def _p_holm(one: PairedResult) -> float:
    return one.estimate.p_holm if one.estimate else one.found.p_holm


def _significant(one: PairedResult) -> bool:
    return _p_holm(one) <= ALPHA


def _counts(one: PairedResult) -> tuple[int, int, int, int]:
    return one.found.wins, one.found.ties, one.found.losses, one.found.n


def _means(comparison: Comparison) -> str:
    what = "estimates" if _estimated(comparison) else "means"
    return f"{what} with 95 % intervals in brackets"


def _kinds(runs: Sequence[RunScores]) -> str:
    """What the values rest on: `out of fold`, or `in sample (A) or out of fold (B, C)`."""
    kinds: dict[str, list[str]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run.label)
    if len(kinds) == 1:
        return next(iter(kinds))
    return " or ".join(f"{kind} ({', '.join(labels)})" for kind, labels in kinds.items())


def _legend(comparison: Comparison) -> list[str]:
    return [f"Bold: the highest. {MARK} differs from {comparison.best} at {ALPHA}: {_test(comparison)}."]


def _test(comparison: Comparison) -> str:
    test = "Student's test of estimates (PPI++)" if _estimated(comparison) else "two-sided paired randomisation test"
    if not comparison.correction:
        return test
    shown = len(comparison.in_metric)
    others = "" if shown == comparison.pairs else f" in {comparison.metric}, over {counted(shown, 'pair')} in others"
    return f"{test}, Holm's correction over {comparison.pairs:,} pairs{others}"


def _other_counts(comparison: Comparison) -> list[str]:
    """A note on measures that apply to some of the queries only."""
    n = {one.measure: one.found.n for one in comparison.differences if one.found.n != comparison.count}
    of = {count: [name for name in n if n[name] == count] for count in n.values()}
    return [f"On {count:,} {comparison.unit}: {', '.join(names)}." for count, names in of.items()]


def _estimated(comparison: Comparison) -> bool:
    return any(one.estimate for one in comparison.differences)
