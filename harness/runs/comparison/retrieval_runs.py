"""Retrieval runs on the same queries, read from the tracking store and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.files import field, json_lines, numbered_lines, some, unique_rows
from harness.data.predictions import read_predictions
from harness.errors import BadInput, did_you_mean
from harness.measures import checked_values
from harness.measures.checked_values import CheckedValues
from harness.measures.measures import OOF, MeasureFamily, parse_measure
from harness.measures.objective import Kind, score_kind
from harness.measures.score_table import ScoreTable, read_score_table
from harness.recording.logged_run import in_full, load_unchanged, logged_value, read_config
from harness.recording.retrieval_run import CHECKED
from harness.recording.run_kind import RunKind
from harness.reports.markup import raw_share, snippet
from harness.runs.comparison.comparison import (
    ALPHA,
    ChangedQuery,
    ComparedQuery,
    Pair,
    PairedResult,
    PartDifference,
    RetrievalComparison,
    RetrievalScores,
    ScoredLists,
    Settings,
    ShownDocument,
    Standings,
    most_changed,
    pair_verdict,
    standings,
    unjudged,
)
from harness.runs.ranking import require_labels
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.prediction_powered import NO_ESTIMATE, NO_INTERVAL, Estimate, EstimatedDifference
from harness.statistics.significance import Difference, differences, holm
from harness.tracking.tracker import LoggedRun, Tracker

_Rows = TypeVar("_Rows", ScoreTable, CheckedValues)
SHOWN = 3  # documents shown of each list


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run to compare.

    label:       its name in tables and figures.
    table:       its scores by query, the queries by ascending id.
    predictions: its predictions file. config: its config.yaml.
    checked:     its values by people's and by a model's labels, the queries by ascending id; None for other labels.
    """

    label: str
    run: LoggedRun
    table: ScoreTable
    predictions: Path
    config: Path
    checked: CheckedValues | None = None

    @property
    def values(self) -> dict[str, np.ndarray]:
        """measure -> float64 [Q]; all out of fold if the run learnt from the labels."""
        return self.table.oof or self.table.values

    @property
    def losses(self) -> dict[str, float]:
        """The parts of 1 - modified_map@3, out of fold if the values are."""
        prefix = f"{OOF if self.table.oof else ''}loss/"
        return {k.removeprefix(prefix): v for k, v in sorted(self.run.metrics.items()) if k.startswith(prefix)}

    @property
    def scored_lists(self) -> ScoredLists:
        return ScoredLists(self.label, self.run, self.table.query_ids, self.predictions, self.config)

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """query_id -> the row of the predictions in the contest's layout; empty for a TREC run."""
        _, first = next(numbered_lines(self.predictions), (0, ""))
        if not first.lstrip().startswith("{"):
            return {}
        rows = unique_rows(self.predictions, json_lines(self.predictions), "eval_id")
        return {query_id: row for where, query_id, _, row in rows if field(row, "topk", list, where) is not None}

    @cached_property
    def lists(self) -> dict[str, list[str]]:
        """query_id -> its first documents."""
        predictions = read_predictions(self.predictions)
        rows = zip(predictions.query_ids, predictions.docs[:, :SHOWN].tolist(), strict=True)
        return {query_id: [predictions.doc_ids[doc] for doc in docs if doc >= 0] for query_id, docs in rows}


def read_retrieval_runs(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> list[ComparedRun]:
    """Download the runs. chosen: label -> run. BadInput unless all are scored on the same queries."""
    for run in chosen.values():
        require_labels(run)
    runs = [_read(tracker, in_full(tracker, run), label, folder / label) for label, run in chosen.items()]
    first = runs[0]
    for other in runs[1:]:
        if extra := set(other.table.query_ids) ^ set(first.table.query_ids):
            raise BadInput(
                f"Runs {other.run.named} and {first.run.named} are scored on "
                f"different queries: {len(extra)} are in only one of them: {some(sorted(extra))}. Score both with "
                "missing=zero, or compare runs on the same queries."
            )
    return runs


def compare_retrieval(
    runs: Sequence[ComparedRun], settings: Settings, family: np.ndarray | None = None
) -> RetrievalComparison:
    """Compare runs whose tables have the same queries in the same order, the best first if there is a family.

    Raises BadInput unless every run has the metric by query.

    family: float64 [R], p by the metric of the first run against each of R runs, of which these are the first, after
    correction over all of them; None: over the pairs of these runs.
    """
    metric, labels = settings.metric, [run.label for run in runs]
    names, left_out = _shared_measures(runs, metric)
    at = names.index(metric)
    parts, part_notes = _parts(runs)
    in_metric = np.stack([run.values[metric] for run in runs])
    ranked = _standings(runs, parts, in_metric, settings)
    chose = runs[0].table.public if settings.judges else slice(None)
    best = 0 if family is not None else int(np.argmax([_mean(row[chose]) for row in in_metric]))
    tested = settings.tested(len(runs), best)
    judges = _judges(runs, settings)
    runs = [replace(run, table=run.table.take(judges)) for run in runs]
    apart = ("public", "private") if settings.judges else ()
    parts = {name: inside[judges] for name, inside in parts.items() if name not in apart}
    values = np.stack([[run.values[name] for name in names] for run in runs])
    found = differences(values, settings.seed, settings.resamples, tested)
    checked = _checked(runs)
    whole = family is not None and settings.pairs == "best" and not checked
    if family is not None and whole:
        found = {rows: _corrected(of, at, family[rows[1]]) for rows, of in found.items()}
    corrected_for = len(family) - 1 if family is not None and whole else len(tested)
    estimated = estimated_differences(checked, list(found), names) if checked else None
    found = without_intervals(found) if checked else found
    pairs = {rows: Pair(*(labels[row] for row in rows)) for rows in found}
    queries, text_notes = _queries(runs, values[:, at])
    holes, hole_notes = unjudged([run.scored_lists for run in runs])
    changed = [one for pair in pairs.values() for one in _changed(pair, queries)]
    unit = f"{settings.judges}queries"
    said = [checked_note(float((~checked[0].checked).mean()))] if checked else []
    return RetrievalComparison(
        metric=metric,
        best=labels[best],
        count=values.shape[2],
        judges=settings.judges,
        verdicts=[
            estimated_verdict(pair, estimated[rows][at], metric, found[rows][at].mean, corrected_for)
            if estimated and found[rows][at].ties < found[rows][at].n
            else pair_verdict(pair, found[rows][at], metric, corrected_for, unit)
            for rows, pair in pairs.items()
        ],
        notes=[
            *said,
            *settings.judged_by(judges, "queries"),
            *(holes.notes if holes else ()),
            *hole_notes,
            *_learnt(runs),
            *part_notes,
            *text_notes,
            *ranked.notes,
        ],
        runs=[
            RetrievalScores(
                label=run.label,
                run=run.run,
                metrics={name: _mean(run.values[name]) for name in names},
                intervals={} if checked else _intervals(run, names, settings),
                kind=_kind(run, settings),
                board=board,
                out_of_fold=bool(run.table.oof),
                as_written={name: _mean(run.table.values[name]) for name in names},
                losses={} if settings.judges else run.losses,
                estimates=_estimates(checked[place], names) if checked else {},
            )
            for place, (run, board) in enumerate(zip(runs, ranked.boards, strict=True))
        ],
        differences=[
            PairedResult(pair, name, one, estimated[rows][place] if estimated else None)
            for rows, pair in pairs.items()
            for place, (name, one) in enumerate(zip(names, found[rows], strict=True))
        ],
        splits=[
            PartDifference(pair, name, part, n=int((~np.isnan(gaps[inside])).sum()), mean=_mean(gaps[inside]))
            for (first, second), pair in pairs.items()
            for name, gaps in zip(names, values[first] - values[second], strict=True)
            for part, inside in parts.items()
        ],
        changed=changed,
        shake_up=ranked.shake_up,
        pairs=corrected_for,
        by_query=values[:, at],
        unjudged=holes,
        left_out=left_out,
    )


def _corrected(found: Sequence[Difference], at: int, p: float) -> list[Difference]:
    """The differences of a pair; p: of the one at a place, after correction."""
    return [replace(one, p_holm=float(p)) if place == at else one for place, one in enumerate(found)]


def _read(tracker: Tracker, run: LoggedRun, label: str, folder: Path) -> ComparedRun:
    folder.mkdir()
    scores = tracker.download(run, "scores.csv", folder)
    try:
        table = read_score_table(scores)
    except BadInput as error:
        raise BadInput(f"Run {run.named}: {error}") from None
    predictions = tracker.download(run, RunKind().predictions(run), folder)
    config, checked = tracker.download(run, "config.yaml", folder), None
    if CHECKED in run.tags:
        checked = _ordered(checked_values.read_checked_table(tracker.download(run, checked_values.FILE, folder)))
    return ComparedRun(label, run, _ordered(table), predictions, config, checked)


def _checked(runs: Sequence[ComparedRun]) -> list[CheckedValues]:
    """What each run scores by both sets of labels, on the queries that judge; empty for labels of one origin."""
    known = [run.checked for run in runs if run.checked]
    return [one.within(runs[0].table.query_ids) for one in known] if len(known) == len(runs) else []


def _estimates(checked: CheckedValues, names: Sequence[str]) -> dict[str, Estimate]:
    return {name: found for name in names if (found := checked.estimate(name))}


def _ordered(table: _Rows) -> _Rows:
    """The table with its queries by ascending id."""
    return table.take(np.array(sorted(range(len(table.query_ids)), key=table.query_ids.__getitem__), np.intp))


def _judges(runs: Sequence[ComparedRun], settings: Settings) -> np.ndarray:
    """bool [Q], the queries that judge. BadInput if those that chose cannot be told from them."""
    first, *others = runs
    if settings.judges and (other := next((o for o in others if (o.table.public != first.table.public).any()), None)):
        raise BadInput(
            f"select_on=public: run {other.run.named} has another public part than run "
            f"{first.run.run_id} ({first.run.name}). Make both with the same `public` and `seed`, or use select_on=all."
        )
    return settings.judging(first.table.public, "queries")


def _kind(run: ComparedRun, settings: Settings) -> Kind:
    """What a run's values rest on. The private queries are held out unless the run learnt from their labels, too."""
    learnt_from_them = bool(run.table.oof) and run.run.select_on == "all"
    return "held out" if settings.judges and not learnt_from_them else score_kind(bool(run.table.oof), "all")


def _shared_measures(runs: Sequence[ComparedRun], metric: str) -> tuple[list[str], list[str]]:
    """(measures that count the same queries in every run, notes on what is not compared)."""
    first, *others = [run.values for run in runs]
    applies = [name for name, values in first.items() if not np.isnan(values).all()]
    shared = [name for name in applies if all(name in values for values in others)]
    same = [name for name in shared if all((np.isnan(v[name]) == np.isnan(first[name])).all() for v in others)]
    if metric not in same:
        everywhere = "counts other queries in each run" if metric in shared else "is not in the scores of every run"
        reason = "is no mean of queries" if parse_measure(metric).family is MeasureFamily.POOLED else everywhere
        raise BadInput(f"metric={metric} {reason}.{did_you_mean(metric, same)} All runs have: {', '.join(same)}.")
    notes = []
    if own := [name for name in shared if name not in same]:
        notes.append(f"Left out, since they count other queries in each run: {', '.join(own)}.")
    if left := sorted({name for run in runs for name in run.values} - set(shared)):
        notes.append(f"Left out, since some run has no value of them: {', '.join(left)}.")
    return same, notes


def _learnt(runs: Sequence[ComparedRun]) -> list[str]:
    """A note on the runs whose values are out of fold."""
    honest = [run.label for run in runs if run.table.oof]
    return [
        f"{', '.join(honest)} learnt from these labels: values and losses are out of "
        "fold, decided without the query's own label; the documents shown are those of the lists as written."
    ] * bool(honest)


def _parts(runs: Sequence[ComparedRun]) -> tuple[dict[str, np.ndarray], list[str]]:
    """(part -> bool [Q], which queries are in it; a note if the runs have different public parts)."""
    table = next((run.table for run in runs if "data.queries" in run.run.tags), runs[0].table)
    parts = {"single-turn": ~table.multi_turn, "multi-turn": table.multi_turn}
    parts |= {"needs retrieval": table.needs, "needs none": ~table.needs}
    if any((run.table.public != table.public).any() for run in runs):
        return parts, ["The runs split the queries into public and private in different ways: no such parts."]
    return parts | {"public": table.public, "private": ~table.public}, []


def _standings(
    runs: Sequence[ComparedRun], parts: Mapping[str, np.ndarray], values: np.ndarray, settings: Settings
) -> Standings:
    """values: float64 [runs, Q], the metric."""
    if "public" not in parts:
        return Standings((None,) * len(runs))
    table, labels = runs[0].table, [run.label for run in runs]
    strata = 2 * table.needs + table.multi_turn
    return standings(partial(_masked_means, values), table.public, strata, labels, settings)


def _changed(pair: Pair, queries: Sequence[ComparedQuery]) -> list[ChangedQuery]:
    """The queries that differ most between two runs."""
    both = (pair.first, pair.second)
    gaps = np.nan_to_num([one.values[pair.first] - one.values[pair.second] for one in queries])
    return [
        ChangedQuery(
            pair=pair,
            item_id=queries[row].query_id,
            difference=float(gaps[row]),
            values={label: queries[row].values[label] for label in both},
            documents={label: queries[row].documents[label] for label in both},
            query=queries[row].text,
        )
        for row in most_changed(gaps)
    ]


def _queries(runs: Sequence[ComparedRun], values: np.ndarray) -> tuple[list[ComparedQuery], list[str]]:
    """(all queries with their texts and marked documents, a note if the dataset cannot be read).

    values: float64 [runs, Q], the metric.
    """
    texts, snippets = _logged_texts(runs)
    notes: list[str] = []
    relevant: dict[str, Mapping[str, Mapping[str, float]]] = {}
    datasets: dict[str, Dataset] = {}
    try:
        datasets = _reloaded(runs)
    except (BadInput, OSError) as error:
        notes.append(
            "Relevant documents are not marked and some texts are missing below, since the data could not be read "
            f"again: {error}"
        )
    else:
        for dataset in datasets.values():
            texts = {query.query_id: query.text for query in dataset.queries} | texts
        relevant = {label: dataset.qrels.grades for label, dataset in datasets.items() if dataset.qrels}

    def text_of(doc_id: str) -> str | None:
        known = (one.by_id[doc_id].indexed_text for one in datasets.values() if doc_id in one.by_id)
        return snippets[doc_id] if doc_id in snippets else next(known, None)

    def document(label: str, query_id: str, doc_id: str) -> ShownDocument:
        text = None if (whole := text_of(doc_id)) is None else snippet(whole)
        known = relevant.get(label)
        return ShownDocument(doc_id, text, doc_id in known.get(query_id, {}) if known else None)

    return [
        ComparedQuery(
            query_id,
            texts.get(query_id),
            values={run.label: float(value) for run, value in zip(runs, values[:, row], strict=True)},
            documents={
                run.label: [document(run.label, query_id, doc_id) for doc_id in run.lists.get(query_id, ())]
                for run in runs
            },
        )
        for row, query_id in enumerate(runs[0].table.query_ids)
    ], notes


def _logged_texts(runs: Sequence[ComparedRun]) -> tuple[dict[str, str], dict[str, str]]:
    """(query_id -> text, doc_id -> text) of the predictions that have them."""
    queries: dict[str, str] = {}
    texts: dict[str, str] = {}
    for run in runs:
        for query_id, row in run.rows.items():
            if isinstance(query := row.get("standalone_query"), str) and query:
                queries.setdefault(query_id, query)
            references = row.get("references")
            for doc_id, reference in zip(row["topk"], references if isinstance(references, list) else (), strict=False):
                if isinstance(reference, Mapping) and isinstance(text := reference.get("content"), str):
                    texts[str(doc_id)] = text
    return queries, texts


def _reloaded(runs: Sequence[ComparedRun]) -> dict[str, Dataset]:
    """label -> the run's dataset, read once for all runs with the same labels. BadInput if one has changed since."""
    found: dict[str, Dataset] = {}
    for run in runs:
        labels = run.run.tags["data.qrels"]
        if "data.documents" in run.run.tags and labels not in found:
            found[labels] = load_unchanged(run.run, logged_value(read_config(run.config), "dataset", dict))
    if not found:
        raise BadInput("these runs were scored from files, which name no documents.")
    return {run.label: found[run.run.tags["data.qrels"]] for run in runs if run.run.tags["data.qrels"] in found}


def _masked_means(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float64 [M, R]: means over the queries of `rows` [R, Q] of M runs [M, Q], NaN where a query does not count."""
    counted = rows @ ~np.isnan(values[0])
    return (rows @ np.nan_to_num(values).T).T / np.where(counted > 0, counted, np.nan)


def _intervals(run: ComparedRun, names: Sequence[str], settings: Settings) -> dict[str, tuple[float, float]]:
    """The intervals of a run's means: those that it has logged, so that they are the same everywhere; those of others,
    and of the private queries alone, are computed."""
    logged = {name: run.run.score(name, "all") for name in names} if not settings.judges else {}
    ends = {name: (one.low, one.high) for name, one in logged.items() if one and one.low == one.low}
    if missing := [name for name in names if name not in ends]:
        values = np.stack([run.values[name] for name in missing])
        lows, highs, _ = bootstrap_means(values, settings.seed, resamples=settings.resamples)
        ends |= {one: (float(a), float(b)) for one, a, b in zip(missing, lows, highs, strict=True) if a == a}
    return ends


def _mean(values: np.ndarray) -> float:
    """The mean of what is not NaN; NaN if there is nothing."""
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else np.nan


# ---- Labels that come partly from a model: differences are estimated from the queries that people have checked

Estimated = Mapping[tuple[int, int], Sequence[EstimatedDifference]]


def estimated_differences(
    runs: Sequence[CheckedValues], pairs: Sequence[tuple[int, int]], names: Sequence[str]
) -> Estimated:
    """(first, second) -> the estimate for each measure. runs: on the same queries in the same order."""
    found = {(first, second): [runs[first].difference(runs[second], name) for name in names] for first, second in pairs}
    # A pair without an interval could be no difference, as far as anybody knows.
    p = np.array([[one.p if one.p == one.p else 1.0 for one in row] for row in found.values()])
    corrected = np.array([holm(column) for column in p.T]).T
    return {
        pair: [
            EstimatedDifference(one, float(q) if one.p == one.p else math.nan) for one, q in zip(row, of, strict=True)
        ]
        for (pair, row), of in zip(found.items(), corrected, strict=True)
    }


def without_intervals(found: Mapping[tuple[int, int], Sequence[Difference]]) -> dict[tuple[int, int], list[Difference]]:
    """Raw differences, without intervals: these would ignore the model's errors."""
    return {pair: [replace(one, low=math.nan, high=math.nan, note="") for one in row] for pair, row in found.items()}


def estimated_verdict(pair: Pair, one: EstimatedDifference, metric: str, raw: float, pairs: int) -> str:
    """One sentence: which run of a pair is better by the metric, or that the checked queries cannot tell.

    raw: the mean difference by labels of both origins. pairs: how many pairs p is corrected for.
    """
    a, b, found = pair.first, pair.second, one.found
    beside = f"the raw difference, {raw_share(found)}, is {raw:+.3f}"
    if math.isnan(found.low):
        known = "" if math.isnan(found.value) else f"the estimate of {metric} of {a} − {b} is {found.value:+.3f}; "
        reason = found.note.removeprefix(NO_ESTIMATE).removeprefix(NO_INTERVAL)
        return f"{a} and {b} cannot be told apart: {reason}; {known}{beside}."
    p = f"p {'< 0.001' if one.p_holm < 0.001 else f'= {one.p_holm:.2g}'}"
    p += f" after Holm over {pairs} pairs" if pairs > 1 else ""
    checked = f"{counted(found.checked, 'checked query')} of {found.checked + found.others:,}"
    if one.p_holm > ALPHA:
        return (
            f"No difference between {a} and {b} can be told from {checked}: the estimate of {metric} of {a} − {b} is "
            f"{found.value:.3f} (95 % {found.low:.3f} to {found.high:.3f}), {p}; {beside}."
        )
    low, high = found.low, found.high
    if found.value < 0:
        a, b, low, high = b, a, -found.high, -found.low
    return (
        f"{a} is better than {b} by {abs(found.value):.3f} (95 % {low:.3f} to {high:.3f}) in {metric}, estimated from "
        f"{checked}, {p}; {beside}."
    )


def checked_note(share: float) -> str:
    """What to know of a comparison by labels that come partly from a model. share: of the queries."""
    return (
        f"The labels of {100 * share:.0f} % of the queries are a model's: the verdict goes by estimates of what "
        "people's labels would give (PPI++). Numbers called raw, and those by query or kind of query, rest on labels "
        "of both origins: neither their p nor their size knows what the model gets wrong."
    )
