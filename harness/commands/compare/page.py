"""A comparison in sections, for the terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.board.settings import changed_settings
from harness.commands.compare.comparison import (
    Board,
    ChangedItem,
    ChangedQuery,
    Comparison,
    Pair,
    PairedResult,
    PartDifference,
    RetrievalComparison,
    RetrievalScores,
    ShownDocument,
    TaskComparison,
)
from harness.evaluation.scores import UNANSWERABLE
from harness.reports.markup import ABSENT, interval, number, p_value, signed
from harness.reports.sections import Section

GIVEN = ("question", "source", "reference")  # texts of an item that all submissions share
PLACES = 5  # named in a note


@dataclass(frozen=True)
class Column:
    """A column of a table of differences. text: the cell of one difference."""

    title: str
    text: Callable[[PairedResult], str]


def _interval(one: PairedResult) -> str:
    low, high = one.found.low, one.found.high
    return f"{low:+.3f} to {high:+.3f}" if low == low else ABSENT


def _estimated_interval(one: PairedResult) -> str:
    found = one.estimate.found if one.estimate else None
    return f"{found.low:+.3f} to {found.high:+.3f}" if found and found.low == found.low else ABSENT


def _effect(one: PairedResult) -> str:
    effect = one.found.effect
    return ABSENT if effect is None or math.isnan(effect) else f"{effect:+.2f}"


PAIR = Column("pair", lambda one: str(one.pair))
MEASURE = Column("measure", lambda one: one.measure)
MEAN = Column("mean", lambda one: signed(one.found.mean))
DIFFERENCE = Column("difference", MEAN.text)
INTERVAL = Column("95 % interval", _interval)
P_HOLM = Column("p (Holm)", lambda one: p_value(one.found.p_holm))  # `_titled` says over how many pairs
P = Column("p", lambda one: p_value(one.found.p))
COUNTS = Column("win/tie/loss", lambda one: f"{one.found.wins}/{one.found.ties}/{one.found.losses}")

QUERIES = Column("queries", lambda one: f"{one.found.n:,}")
P_T = Column("p of t-test", lambda one: p_value(one.found.p_t))
EFFECT = Column("Cohen's d", _effect)

ESTIMATE = Column("estimate", lambda one: signed(one.estimate.found.value if one.estimate else None))
ESTIMATED_INTERVAL = Column("95 % interval", _estimated_interval)
P_ESTIMATE = Column("p (Holm)", lambda one: p_value(one.estimate.p_holm if one.estimate else None))
RAW = Column("raw mean", MEAN.text)

SHORT = (MEAN, INTERVAL, P, COUNTS, QUERIES)
IN_METRIC = (MEAN, INTERVAL, P_HOLM, COUNTS, QUERIES)
DETAILED = (PAIR, MEASURE, *SHORT, P_T, EFFECT)
DETAILED_IN_METRIC = (PAIR, MEASURE, *IN_METRIC, P, P_T, EFFECT)
# For labels that come partly from a model.
SHORT_ESTIMATED = (ESTIMATE, ESTIMATED_INTERVAL, P_ESTIMATE, RAW, COUNTS, QUERIES)
DETAILED_ESTIMATED = (PAIR, MEASURE, *SHORT_ESTIMATED, Column("raw p", P.text))
OF_FILES = (PAIR, MEASURE, DIFFERENCE, INTERVAL, P_HOLM, P, COUNTS)
ALONE = "p is of each pair and measure alone, without correction."


def title(comparison: Comparison) -> str:
    runs, experiment = comparison.runs, comparison.runs[0].run.experiment
    return f"{len(runs)} {comparison.noun} of {experiment} on {comparison.count:,} {comparison.judges}{comparison.unit}"


def heading(comparison: RetrievalComparison) -> str:
    """The title of the page: `A, B and C compared: first on 110 queries`."""
    *others, last = (run.label for run in comparison.runs)
    where = f"{comparison.runs[0].run.experiment} on {comparison.count:,} {comparison.judges}{comparison.unit}"
    return f"{', '.join(others)} and {last} compared: {where}"


def run_sections(comparison: RetrievalComparison, details: bool) -> list[Section]:
    """A comparison of retrieval runs.

    details: all pairs and measures; otherwise all pairs by the metric, and more on the first pair only.
    """
    changed = [one for one in comparison.changed if details or one.pair == comparison.first_pair]
    queries = (_changed_queries if details else _short_changed_queries)(comparison.metric, changed)
    return [*run_tables(comparison, details), *queries, *_notes(comparison, details)]


def run_tables(comparison: RetrievalComparison, details: bool = True) -> list[Section]:
    """What is said of the runs as wholes, the verdict first. details: as for `run_sections`."""
    metric, several = comparison.metric, comparison.several
    pairs = {one.pair for one in comparison.differences} if details else {comparison.first_pair}
    estimated = any(one.estimate for one in comparison.differences)
    found = [_verdict(comparison), _runs(comparison), *_settings(comparison)]
    if several:
        heading, figures = f"Differences in {metric}", ["differences"]
        short = (Column("", PAIR.text), *(SHORT_ESTIMATED if estimated else IN_METRIC))
        columns = (DETAILED_ESTIMATED if estimated else DETAILED_IN_METRIC) if details else short
        found.append(_differences(heading, comparison.in_metric, _titled(columns, comparison), figures=figures))
    if details or not several:
        rows = [one for one in comparison.differences if one.pair in pairs]
        short = (Column("", MEASURE.text), *(SHORT_ESTIMATED if estimated else SHORT))
        columns = (DETAILED_ESTIMATED if estimated else DETAILED) if details else short
        lines = [] if estimated or comparison.pairs == 1 else [ALONE]
        figures = [] if several else ["differences"]
        titled = _titled(columns, comparison)
        found.append(_differences("Differences in all measures", rows, titled, lines, figures))
    whole = {one.pair: one.found.n for one in comparison.in_metric}
    splits = [one for one in comparison.splits if one.pair in pairs and one.measure == metric]
    splits = [one for one in splits if 0 < one.n < whole[one.pair]]  # none or all of the queries are no part
    if splits:
        found.append(_splits(metric, splits) if details else _short_splits(metric, splits))
    if comparison.loses:
        found.append(_losses(comparison.runs))
    return [*found, Section("Values of each query", figures=["queries"])] if details else found


def run_report(comparison: RetrievalComparison) -> list[Section]:
    """What stands on the page: all but the queries, which are there by themselves."""
    return [*run_tables(comparison), *_notes(comparison, True)]


def file_report(comparison: TaskComparison) -> list[Section]:
    """What stands on the page: all but the items, which are there by themselves."""
    return [*file_tables(comparison), *_notes(comparison, True)]


def file_sections(comparison: TaskComparison, details: bool) -> list[Section]:
    """A comparison of submissions to a text task.

    details: all pairs and measures; otherwise all pairs by the metric, and the items of the first pair.
    """
    changed = [one for one in comparison.changed if details or one.pair == comparison.first_pair]
    return [
        *file_tables(comparison, details),
        *_changed_items(comparison.metric, changed),
        *_notes(comparison, details),
    ]


def file_tables(comparison: TaskComparison, details: bool = True) -> list[Section]:
    """What is said of the submissions as wholes. details: as for `file_sections`."""
    wanted = comparison.differences if details or not comparison.several else comparison.in_metric
    columns = OF_FILES if comparison.correction else [one for one in OF_FILES if one is not P]
    found = [
        _verdict(comparison),
        _submissions(comparison),
        *_settings(comparison),
        _differences("Differences", wanted, _titled(columns, comparison), figures=["differences"]),
    ]
    if comparison.splits:
        found.append(_by_kind(comparison.metric, comparison.splits))
    return found


def _runs(comparison: RetrievalComparison) -> Section:
    metric = comparison.metric
    estimated = any(run.estimates for run in comparison.runs)
    value = [f"estimate of {metric}", "95 % interval", "raw"] if estimated else [metric]
    holes, apart = comparison.unjudged, any(run.unanswerable is not None for run in comparison.runs)
    beside = [f"judged@{holes.k}"] if holes else []
    header = ["", "id", *value, "kind", *beside, *([UNANSWERABLE] if apart else []), "run"]
    rows = []
    for run in comparison.runs:
        more = [holes.judged[run.label]] if holes else []
        numbers = [*more, *([run.unanswerable] if apart else [])]
        cells = [number(run.metrics[metric])]
        if estimated:
            found = run.estimates.get(metric)
            cells = [*([number(found.value), interval(found.low, found.high)] if found else [ABSENT] * 2), *cells]
        rows.append([run.label, run.run.short_id, *cells, run.kind, *map(number, numbers), run.run.name])
    return Section("Runs", (), header, rows)


def _submissions(comparison: TaskComparison) -> Section:
    names = list(comparison.runs[0].metrics)
    kinds = list(dict.fromkeys(run.kind for run in comparison.runs))
    header = ["", "id", *names, *(["kind"] if len(kinds) > 1 else []), "public", "private", "run"]
    rows = []
    for run in comparison.runs:
        means = [number(run.metrics[name]) for name in names]
        rows.append(
            [
                run.label,
                run.run.short_id,
                *means,
                *([run.kind] if len(kinds) > 1 else []),
                *_board(run.board),
                run.run.name,
            ]
        )
    lines = [f"{' or '.join(kinds).capitalize()}. Public and private: {comparison.metric}, and ranks in brackets."]
    return Section("Submissions", lines, header, rows)


def _settings(comparison: Comparison) -> list[Section]:
    """The settings in which the runs differ."""
    settings = changed_settings([one.run.params for one in comparison.runs])
    rows = [[name, *(ABSENT if value is None else value for value in values)] for name, values in settings.items()]
    return [Section("What differs", (), ["", *(run.label for run in comparison.runs)], rows)] if rows else []


def _board(board: Board | None) -> list[str]:
    if board is None:
        return [ABSENT] * 2
    return [f"{number(board.public)} ({board.public_rank})", f"{number(board.private)} ({board.private_rank})"]


def _verdict(comparison: Comparison) -> Section:
    return Section("Verdict", verdicts(comparison))


def verdicts(comparison: Comparison) -> list[str]:
    """Whether the runs differ, and what to expect of the best."""
    return [*comparison.verdicts, *([comparison.expected.sentence] if comparison.expected else [])]


def _notes(comparison: Comparison, details: bool) -> list[Section]:
    """What a reader must know besides; last, since it decides nothing."""
    lines = [*comparison.notes, *(comparison.left_out if details else ())]
    return [Section("Notes", lines, figures=["shake_up"])] if lines else []


def _titled(columns: Sequence[Column], comparison: Comparison) -> list[Column]:
    """The columns, those of a corrected p with what it is corrected for."""
    said = f"({comparison.correction})" if comparison.correction else ""
    return [replace(one, title=one.title.replace("(Holm)", said).strip()) for one in columns]


def _differences(
    title: str,
    differences: Sequence[PairedResult],
    columns: Sequence[Column],
    lines: Sequence[str] = (),
    figures: Sequence[str] = (),
) -> Section:
    """A table with one row per difference; below `lines`, each note with the differences that it is about."""
    notes: dict[str, list[str]] = {}
    several = len({one.measure for one in differences}) > 1
    for one in differences:
        if note := one.estimate.found.note if one.estimate else one.found.note:
            notes.setdefault(note, []).append(f"{one.pair} {one.measure}" if several else str(one.pair))
    noted = [f"{', '.join(at[:PLACES])}{' …' if len(at) > PLACES else ''}: {note}." for note, at in notes.items()]
    rows = [[column.text(one) for column in columns] for one in differences]
    return Section(title, [*lines, *noted], [column.title for column in columns], rows, figures)


def _splits(metric: str, splits: Sequence[PartDifference]) -> Section:
    """One row per pair, one column per part."""
    parts = list(dict.fromkeys(one.part for one in splits))
    cells = {(one.pair, one.part): f"{signed(one.mean)} ({one.n:,})" for one in splits}
    rows = [[str(pair), *(cells[pair, part] for part in parts)] for pair in dict.fromkeys(pair for pair, _ in cells)]
    heading = f"Differences in {metric} by kind of query"
    return Section(heading, ["Mean difference (queries), not tested."], ["", *parts], rows)


def _short_splits(metric: str, splits: Sequence[PartDifference]) -> Section:
    """One pair's differences in one sentence."""
    words = [f"{one.part} {signed(one.mean)} ({one.n:,})" for one in splits]
    heading = f"{splits[0].pair} in {metric} by kind of query (queries), not tested"
    return Section(heading, [", ".join(words)])


def _by_kind(metric: str, splits: Sequence[PartDifference]) -> Section:
    """One row per part, one column per pair."""
    pairs = list(dict.fromkeys(str(one.pair) for one in splits))
    rows: dict[str, list[str]] = {}
    for one in splits:
        rows.setdefault(f"{one.part} ({one.n:,})", []).append(signed(one.mean))
    heading = f"Differences in {metric} by kind of item"
    return Section(heading, ["Items in brackets; not tested."], ["", *pairs], [[k, *v] for k, v in rows.items()])


def _losses(runs: Sequence[RetrievalScores]) -> Section:
    kinds = list(dict.fromkeys(kind for run in runs for kind, value in run.losses.items() if value))
    rows = [[run.label, *(number(run.losses.get(kind)) for kind in kinds)] for run in runs]
    return Section("Where the score is lost", ["Parts of 1 − modified_map@3."], ["", *kinds], rows, ["losses"])


def _changed_queries(metric: str, changed: Sequence[ChangedQuery]) -> list[Section]:
    """One section per pair: its queries with both values and both runs' first documents."""
    pairs: dict[Pair, list[list[str]]] = {}
    for one in changed:
        labels = (one.pair.first, one.pair.second)
        values = [number(one.values[label]) for label in labels]
        documents = [_listed(one.documents[label]) for label in labels]
        pairs.setdefault(one.pair, []).append([_query(one), *values, *documents])
    return [
        Section(
            f"Queries that differ most in {metric} between {pair.first} and {pair.second}",
            (),
            ["query", pair.first, pair.second, f"first documents of {pair.first}", f"of {pair.second}"],
            rows,
        )
        for pair, rows in pairs.items()
    ]


def _short_changed_queries(metric: str, changed: Sequence[ChangedQuery]) -> list[Section]:
    """One pair's queries as lines: the text of the first document of each list, the ids of the others."""
    lines = []
    for one in changed:
        lines.append(_query(one))
        for label, documents in one.documents.items():
            first, *rest = documents or [ShownDocument("nothing returned")]
            others = f"; {', '.join(document.doc_id for document in rest)}" if rest else ""
            lines.append(f"  {label} {number(one.values[label])}  {_document(first)}{others}")
    if not changed:
        return []
    pair = changed[0].pair
    return [Section(f"Queries that differ most in {metric} between {pair.first} and {pair.second}", lines)]


def _changed_items(metric: str, changed: Sequence[ChangedItem]) -> list[Section]:
    """One section per pair: its items with both values, the texts given and both predictions."""
    pairs: dict[Pair, list[list[str]]] = {}
    given = [name for name in GIVEN if any(one.texts.get(name) for one in changed)]
    for one in changed:
        labels = (one.pair.first, one.pair.second)
        row = [one.item_id, *(number(one.values[label]) for label in labels)]
        row += [one.texts.get(name, ABSENT) for name in given]
        pairs.setdefault(one.pair, []).append([*row, *(one.predictions[label] or ABSENT for label in labels)])
    return [
        Section(
            f"Items that differ most in {metric} between {pair.first} and {pair.second}",
            (),
            ["id", pair.first, pair.second, *given, f"{pair.first} says", f"{pair.second} says"],
            rows,
        )
        for pair, rows in pairs.items()
    ]


def _query(one: ChangedQuery) -> str:
    return f"{one.item_id}: {one.query}" if one.query else one.item_id


def _document(one: ShownDocument) -> str:
    return " ".join(filter(None, ("✓" if one.relevant else "", one.doc_id, one.snippet)))


def _listed(documents: Sequence[ShownDocument]) -> str:
    return "\n".join(f"{rank}. {_document(one)}" for rank, one in enumerate(documents, start=1)) or "nothing returned"
