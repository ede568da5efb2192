"""A comparison as a report, as tables to paste, and as the page of a board."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.analysis.board import page as board_page
from harness.analysis.board.settings import changed_settings, short_names
from harness.analysis.comparison.comparison import (
    ALPHA,
    Changed,
    Comparison,
    PairedResult,
    PartDifference,
    RunScores,
    ShownDocument,
    kinds_in_words,
)
from harness.analysis.comparison.scored_runs import ScoredRuns
from harness.analysis.ranking import Chosen, RankedRun
from harness.config.commands import CompareConfig
from harness.config.text import counted
from harness.measures.objective import Objective
from harness.measures.objective import score_kind as kind_of_value
from harness.measures.scores import UNANSWERABLE
from harness.reports.markup import ABSENT, number
from harness.reports.report import Report
from harness.reports.tables import MARK, Cell, Column, Number, Rows, Table, best_marked
from harness.statistics.split import Standing
from harness.tasks.task import GIVEN
from harness.tracking.tracker import Tracker

PLACES = 5  # a note names at most this many pairs
WIDE = 6  # if there are more measures, a pasted table has a row for each, instead of a column
ALONE = "Each p is for one pair and one measure, without correction."


# ---- As a report


def title(comparison: Comparison) -> str:
    """Return for example `3 runs of first on 110 queries`, for an experiment named `first`."""
    runs, experiment = comparison.runs, comparison.runs[0].run.experiment
    return f"{len(runs)} {comparison.noun} of {experiment} on {comparison.count:,} {comparison.judges}{comparison.unit}"


def comparison_report(comparison: Comparison, details: bool = False, changed: bool = True) -> Report:
    """Return the report of a comparison.

    details: show all measures of all pairs. Otherwise, show the tables of the first pair alone.
    changed: show the queries or items that differ most. False for a board, whose page has them in another place.
    """
    tables = [_runs(comparison).without_empty(), *_settings(comparison), *_differences(comparison, details)]
    pairs = {one.pair for one in comparison.differences} if details else {comparison.first_pair}
    whole = {one.pair: one.found.n for one in comparison.in_metric}
    parts = [one for one in comparison.splits if one.pair in pairs and one.measure == comparison.metric]
    parts = [one for one in parts if 0 < one.n < whole[one.pair]]  # parts with some of the queries, but not all
    if parts:
        tables.append(_by_part(comparison, parts))
    if comparison.slices:
        tables.append(_by_slice(comparison, [one for one in comparison.slices if one.pair in pairs]))
    if comparison.loses:
        tables.append(_losses(comparison.runs))
    if details and comparison.shake_up:
        tables.append(_shake_up(comparison))
    if changed:
        tables += _changed(comparison, details)
    expected = [comparison.expected.sentence] if comparison.expected else []
    notes = [*comparison.notes, *(comparison.left_out if details else ())]
    return Report(title(comparison), [*comparison.verdicts, *comparison.reversals, *expected], tables, notes)


def _runs(comparison: Comparison) -> Table:
    """Return one row per run. A text task has a column for each of its many measures, without intervals."""
    runs, metric, holes = comparison.runs, comparison.metric, comparison.unjudged
    kinds = list(dict.fromkeys(run.kind for run in runs))
    measures = _measures(comparison) if comparison.task else []
    scores = measures or [f"estimate of {metric}" if comparison.estimated else metric, "raw"]
    beside = ["public", "private"] if comparison.task else [f"judged@{holes.k}" if holes else "judged", UNANSWERABLE]
    columns = [Column(""), Column("id"), *(Column(name, "value") for name in scores), Column("kind")]
    columns += [*(Column(name, "value") for name in beside), Column("run")]
    rows: Rows = []
    for run, name in zip(runs, short_names([one.run for one in runs]), strict=True):
        raw = run.metrics[metric] if comparison.estimated else None
        scored: list[Cell] = [run.metrics[name] for name in measures]
        scored = scored or [_score(comparison, run, metric), raw]
        kind = run.kind if len(kinds) > 1 or not measures else ""
        ends = _ranked(run.board) if comparison.task else [holes and holes.judged[run.label], run.unanswerable]
        rows.append([run.label, run.run.short_id, *scored, kind, *ends, name])
    said = f"{' or '.join(kinds).capitalize()}. The columns public and private show {metric}, with ranks in brackets."
    return Table(comparison.noun.capitalize(), columns, rows, [said] if measures else [])


def _ranked(board: Standing | None) -> list[Cell]:
    if board is None:
        return [None, None]
    halves = ((board.public, board.public_rank), (board.private, board.private_rank))
    return [Number(math.nan if value is None else value, beside=rank) for value, rank in halves]


def _settings(comparison: Comparison) -> list[Table]:
    settings = changed_settings([one.run.params for one in comparison.runs])
    rows: Rows = [[name, *(ABSENT if one is None else one for one in values)] for name, values in settings.items()]
    columns = [Column(name) for name in ("", *(run.label for run in comparison.runs))]
    return [Table("What differs", columns, rows)] if rows else []


def _differences(comparison: Comparison, details: bool) -> Iterator[Table]:
    metric, several = comparison.metric, comparison.several
    if several:
        yield replace(_paired(comparison, comparison.in_metric, True, details), caption=f"Differences in {metric}")
    if details or not several:
        rest = [one for one in comparison.differences if details or one.pair == comparison.first_pair]
        lines = [] if comparison.estimated or comparison.pairs == 1 else [ALONE]
        found = _paired(comparison, rest, False, details)
        yield replace(found, caption="Differences in all measures", notes=[*lines, *found.notes])


def _paired(comparison: Comparison, rows: Sequence[PairedResult], corrected: bool, details: bool) -> Table:
    """Return one row per difference. Notes say why a value or an interval is missing.

    corrected: show p corrected for all pairs, or for all slices. The p of an estimate is always corrected.
    details: show other tests and the effect size.
    """
    estimated, several, sliced = comparison.estimated, comparison.several, any(one.slice for one in rows)
    corrected, measured = corrected or estimated, not (several or sliced) or len({one.measure for one in rows}) > 1
    tests = f"Holm, {len(comparison.slices):,} tests" if sliced else comparison.correction
    correction = tests if corrected else ""
    raw, tested = details and corrected, details and not estimated
    shown: list[tuple[Column, Callable[[PairedResult], Cell]]] = [
        (Column("pair"), lambda one: str(one.pair) if several else ""),
        (Column("slice"), lambda one: one.slice.name if one.slice else ""),
        (Column("measure"), lambda one: one.measure if measured else ""),
        (Column("estimate" if estimated else "difference", "difference"), _difference),
        (Column(f"p ({correction})" if correction else "p", "p"), lambda one: one.p_holm if corrected else one.found.p),
        (Column("raw mean", "difference", on="screen"), lambda one: one.found.mean if estimated else None),
        (Column("wins", "count", on="paste"), lambda one: one.found.wins),
        (Column("ties", "count", on="paste"), lambda one: one.found.ties),
        (Column("losses", "count", on="paste"), lambda one: one.found.losses),
        (Column("win/tie/loss", on="screen"), lambda one: f"{one.found.wins}/{one.found.ties}/{one.found.losses}"),
        (Column(comparison.unit, "count"), lambda one: one.found.n),
        (Column("raw p" if estimated else "p", "p", on="screen"), lambda one: one.found.p if raw else None),
        (Column("p of t-test", "p", on="screen"), lambda one: one.found.p_t if tested else None),
        (Column("Cohen's d", "difference", 2, on="screen"), lambda one: one.found.effect if tested else None),
    ]
    columns, cells = [column for column, _ in shown], [[cell(one) for _, cell in shown] for one in rows]
    return Table("Differences", columns, cells, _reasons(rows), "differences").without_empty()


def _reasons(rows: Sequence[PairedResult]) -> list[str]:
    notes: dict[str, list[str]] = {}
    measures, pairs = len({one.measure for one in rows}) > 1, len({str(one.pair) for one in rows}) > 1
    for one in rows:
        if note := one.note:
            part = [one.slice.name] if one.slice else []
            names = [str(one.pair)] * (pairs or not (measures or part)) + [one.measure] * measures + part
            notes.setdefault(note, []).append(" ".join(names))
    return [f"{', '.join(at[:PLACES])}{' …' if len(at) > PLACES else ''}: {note}." for note, at in notes.items()]


def _by_slice(comparison: Comparison, found: Sequence[PairedResult]) -> Table:
    caption = f"Differences in {comparison.metric} by slice"
    return replace(_paired(comparison, found, True, False), caption=caption, name="slices")


def _by_part(comparison: Comparison, found: Sequence[PartDifference]) -> Table:
    cells = {(str(one.pair), one.part): Number(one.mean, beside=one.n) for one in found}
    pairs, parts = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    rows: Rows = [[part, *(cells.get((pair, part)) for pair in pairs)] for part in parts]
    columns = [Column("kind"), *(Column(pair, "difference") for pair in pairs)]
    noun = {"queries": "query", "items": "item"}[comparison.unit]
    note = f"Mean difference ({comparison.unit}), not tested."
    return Table(f"Differences in {comparison.metric} by kind of {noun}", columns, rows, [note])


def _losses(runs: Sequence[RunScores]) -> Table:
    lost = {run.label: run.losses or {} for run in runs}
    kinds = list(dict.fromkeys(kind for losses in lost.values() for kind, value in losses.items() if value))
    rows: Rows = [[label, *(losses.get(kind) for kind in kinds)] for label, losses in lost.items()]
    columns = [Column(""), *(Column(kind, "value") for kind in kinds)]
    return Table("Where the score is lost", columns, rows, ["Parts of 1 − modified_map@3."])


def _shake_up(comparison: Comparison) -> Table:
    assert comparison.shake_up is not None
    draws = comparison.shake_up.draws
    boards = {run.label: run.board for run in comparison.runs if run.board}
    rows: Rows = []
    for run in comparison.shake_up.runs:
        moved = [(int(shift), count / draws) for shift, count in run.shifts.items()]
        falls, stays, rises = (
            sum(share for shift, share in moved if is_so(shift))
            for is_so in (lambda shift: shift > 0, lambda shift: shift == 0, lambda shift: shift < 0)
        )
        rows.append([run.label, *_ranked(boards[run.label]), falls, stays, rises, run.mean_shift])
    columns = [
        Column(""),
        Column("public", "value"),
        Column("private", "value"),
        *(Column(name, "percent", 0) for name in ("falls", "stays", "rises")),
        Column("ranks moved on average", "value", 2),
    ]
    note = f"{comparison.metric} and ranks are from the actual split. Other columns are from {draws:,} random splits."
    return Table("How ranks move from public to private", columns, rows, [note])


def _changed(comparison: Comparison, details: bool) -> Iterator[Table]:
    for pair in dict.fromkeys(one.pair for one in comparison.changed if details or one.pair == comparison.first_pair):
        mine = [one for one in comparison.changed if one.pair == pair]
        noun = comparison.unit.capitalize()
        caption = f"{noun} that differ most in {comparison.metric} between {pair.first} and {pair.second}"
        if comparison.task:
            yield _items_table(mine, caption)
        else:
            yield Table(caption, notes=[line for one in mine for line in _query_lines(one)])


def _query_lines(one: Changed) -> Iterator[str]:
    yield ": ".join(filter(None, (one.item_id, one.about["query"])))
    for label, documents in (one.documents or {}).items():
        first, *rest = documents or [ShownDocument("nothing returned")]
        said = " ".join(filter(None, ("✓" if first.relevant else "", first.doc_id, first.snippet)))
        others = f"; {', '.join(document.doc_id for document in rest)}" if rest else ""
        yield f"  {label} {number(one.values[label])}  {said}{others}"


def _items_table(items: Sequence[Changed], caption: str) -> Table:
    labels = (items[0].pair.first, items[0].pair.second)
    given = [name for name in GIVEN if name != "kind" and any(one.about.get(name) for one in items)]
    columns = [Column("id"), *(Column(label, "value") for label in labels), *map(Column, given)]
    rows: Rows = [
        [
            one.item_id,
            *(one.values[label] for label in labels),
            *(one.about.get(name) or ABSENT for name in given),
            *((one.predictions or {}).get(label) or ABSENT for label in labels),
        ]
        for one in items
    ]
    return Table(caption, [*columns, *(Column(f"{label} says") for label in labels)], rows)


# ---- Ready to paste


def pasted(comparison: Comparison, style: str) -> list[Table]:
    """Return the tables to paste: for CSV a single table with all numbers, otherwise the runs and the differences."""
    if style == "csv":
        return [_all(comparison)]
    sliced = [_by_slice(comparison, comparison.slices)] if comparison.slices else []
    return [_pasted_runs(comparison), _pasted_differences(comparison), *sliced]


def _pasted_runs(comparison: Comparison) -> Table:
    runs, measures = comparison.runs, _measures(comparison)
    what = "estimates" if comparison.estimated else "means"
    kinds: dict[str, str] = {run.kind: ", ".join(one.label for one in runs if one.kind == run.kind) for run in runs}
    caption = f"{title(comparison)}: {what} with 95 % intervals in brackets, {kinds_in_words(kinds)}."
    legend = f"Bold: the highest value. {MARK}: differs from {comparison.best} at {ALPHA}. Test: {_test(comparison)}."
    n = {one.measure: one.found.n for one in comparison.differences if one.found.n != comparison.count}
    fewer = {count: [name for name in n if n[name] == count] for count in n.values()}
    notes = [f"On {count:,} {comparison.unit}: {', '.join(names)}." for count, names in fewer.items()]
    scores = [best_marked([_score(comparison, run, name) for run in runs]) for name in measures]
    columns = [Column("run"), *(Column(name, "value") for name in measures)]
    rows: Rows = [[name, *cells] for name, *cells in zip(_names(runs), *scores, strict=True)]
    if len(measures) > WIDE:
        columns = [Column("measure"), *(Column(name, "value") for name in _names(runs))]
        rows = [[name, *cells] for name, cells in zip(measures, scores, strict=True)]
    return Table(caption, columns, rows, [legend, *notes], "runs")


def _pasted_differences(comparison: Comparison) -> Table:
    several = comparison.several
    wanted = comparison.in_metric if several else _ordered(comparison)
    over = f"in {comparison.metric}" if several else f"of {comparison.first_pair}"
    caption = f"Differences {over} on {comparison.count:,} {comparison.judges}{comparison.unit}, 95 % intervals."
    notes = [f"{'; '.join(_names(comparison.runs))}.", f"{MARK}: differs from 0 at {ALPHA}. Test: {_test(comparison)}."]
    return replace(_paired(comparison, wanted, several, False), caption=caption, notes=notes)


def _all(comparison: Comparison) -> Table:
    sliced = bool(comparison.slices)
    names = ("run", "run_id", "name", "minus", "minus_id", "measure", "kind", *["slice"] * sliced)
    texts = [Column(name) for name in names]
    numbers = [Column("value", "value"), Column("p", "p"), Column("p_holm", "p")]
    counts = [Column(name, "count") for name in ("pairs", comparison.unit, "wins", "ties", "losses")]
    n = {one.measure: one.found.n for one in comparison.differences}
    rows: Rows = [
        [
            *(run.label, run.run.run_id, run.run.name, "", "", name, run.kind, *[""] * sliced),
            *(_score(comparison, run, name), None, None, None, n[name], None, None, None),
        ]
        for run in comparison.runs
        for name in _measures(comparison)
    ]
    runs = {run.label: run.run for run in comparison.runs}
    others = len(comparison.in_metric)
    tested = [
        (one, "", comparison.pairs if one.measure == comparison.metric else others) for one in _ordered(comparison)
    ]
    tested += [(one, one.slice.name, len(comparison.slices)) for one in comparison.slices if one.slice]
    for one, part, pairs in tested:
        first, second = runs[one.pair.first], runs[one.pair.second]
        p = one.estimate.found.p if one.estimate else one.found.p
        rows.append([
            *(one.pair.first, first.run_id, first.name, one.pair.second, second.run_id, one.measure),
            *("", *[part] * sliced),
            *(_difference(one), p, one.p_holm, pairs, one.found.n, one.found.wins, one.found.ties, one.found.losses),
        ])  # fmt: skip
    return Table(title(comparison), [*texts, *numbers, *counts], rows, name="comparison")


def _names(runs: Sequence[RunScores]) -> list[str]:
    return [f"{run.label}: {name}" for run, name in zip(runs, short_names([one.run for one in runs]), strict=True)]


def _measures(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys([comparison.metric, *(one.measure for one in comparison.differences)]))


def _ordered(comparison: Comparison) -> list[PairedResult]:
    return sorted(comparison.differences, key=lambda one: one.measure != comparison.metric)


def _score(comparison: Comparison, run: RunScores, name: str) -> Number:
    """Return the score of a run, marked if it differs significantly from the score of the best run."""
    both = {comparison.best, run.label}
    marked = any(
        one.p_holm <= ALPHA
        for one in comparison.differences
        if one.measure == name and {one.pair.first, one.pair.second} == both
    )
    if run.estimates:
        found = run.estimates.get(name)
        return Number(found.value, found.low, found.high, marked) if found else Number(math.nan)
    return Number(run.metrics[name], *run.intervals.get(name, (math.nan, math.nan)), marked)


def _difference(one: PairedResult) -> Number:
    found, significant = one.found, one.p_holm <= ALPHA
    if one.estimate:
        return Number(one.estimate.found.value, one.estimate.found.low, one.estimate.found.high, significant)
    return Number(found.mean, found.low, found.high, significant)


def _test(comparison: Comparison) -> str:
    test = "Student's test of estimates (PPI++)" if comparison.estimated else "two-sided paired randomisation test"
    if not comparison.correction:
        return test
    shown = len(comparison.in_metric)
    others = "" if shown == comparison.pairs else f" for {comparison.metric}, over {counted(shown, 'pair')} for others"
    return f"{test}, Holm's correction over {comparison.pairs:,} pairs{others}"


# ---- As a page


def board_html(comparison: Comparison, runs: ScoredRuns, tracker: Tracker, folder: Path, config: CompareConfig) -> str:
    """Return the board of compared runs, each named with its label. folder: where files are downloaded to."""
    metric, select_on = comparison.metric, config.select_on or "all"
    chose = runs.public if select_on == "public" else np.ones(len(runs.public))
    means = runs.score(metric)(chose[None].astype(np.float64))[:, 0].tolist()
    names = short_names([one.run for one in comparison.runs])
    placed = []
    for one, name, mean in zip(comparison.runs, names, means, strict=True):
        kind = kind_of_value(bool(one.out_of_fold), select_on)
        score = one.run.score(metric, select_on) or Objective(metric, mean, kind=kind)
        placed.append(RankedRun(one.run, score, name=f"{one.label}: {name}"))
    best_first = sorted(range(len(placed)), key=lambda place: -placed[place].score.value)
    chosen = Chosen(select_on, [placed[place] for place in best_first], comparison.notes)
    found = replace(runs.on_board(chosen, metric, best_first), seed=config.seed, resamples=config.resamples)
    said = comparison_report(comparison, details=True, changed=False)
    return board_page.html(board_page.assembled(found, tracker, folder, comparison.expected, said))
