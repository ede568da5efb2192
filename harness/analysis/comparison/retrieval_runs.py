"""Retrieval runs on the same queries, read from the tracking store to be compared.

Documents that compared runs show and nobody has judged: which runs the holes in the labels punish.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path

import numpy as np

from harness.analysis.board.lists import ListReader, Returned
from harness.analysis.board.queries import read_again
from harness.analysis.board.runs import SCORES, BoardRun, BoardRuns, known_mean, of_tables
from harness.analysis.comparison.comparison import (
    Changed,
    Pair,
    Rows,
    RunScores,
    ScoredRuns,
    ShownDocument,
    Unjudged,
    UnjudgedDocument,
)
from harness.analysis.ranking import require_labels
from harness.config.commands import CompareConfig
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.files import some
from harness.data.predictions import read_predictions
from harness.data.qrels import Qrels
from harness.errors import BadInput, did_you_mean
from harness.measures import checked_values
from harness.measures.checked_values import CheckedValues
from harness.measures.judged import judge_lists
from harness.measures.measures import OOF, SHOWN, MeasureFamily, parse_measure
from harness.measures.objective import Kind, score_kind
from harness.measures.score_table import ScoreTable, read_score_table
from harness.measures.scores import UNANSWERABLE
from harness.recording.logged_run import Ahead, in_full, load_unchanged, logged_value, read_config
from harness.recording.retrieval_run import CHECKED
from harness.recording.run_kind import RunKind
from harness.reports.markup import snippet
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.prediction_powered import Estimate, EstimatedDifference
from harness.statistics.significance import Difference, differences, holm
from harness.statistics.split import Score, Standing
from harness.tracking.tracker import LoggedRun, Tracker

DOCUMENTS = 3  # shown of each list
GAP = 0.05  # difference in the share of judged documents from which on it is said
NAMED = 10  # documents named in a sentence


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run to compare.

    label:       its name in tables and figures.
    table:       its scores by query, the queries by ascending id.
    predictions: its predictions file. config: its config.yaml.
    checked:     its values by people's and by a model's labels, on the same queries; None for other labels.
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

    def take(self, rows: np.ndarray) -> ComparedRun:
        """Return the run on some of the queries, bool [Q]."""
        table = self.table.take(rows)
        return replace(self, table=table, checked=self.checked and self.checked.within(table.query_ids))

    def kind(self, config: CompareConfig) -> Kind:
        """Return what its values rest on. Private queries are held out unless the run learnt from their labels, too."""
        learnt_from_them = bool(self.table.oof) and self.run.select_on == "all"
        apart = config.select_on == "public"
        return "held out" if apart and not learnt_from_them else score_kind(bool(self.table.oof), "all")


def read_retrieval_runs(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> RetrievalRuns:
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
    return RetrievalRuns(runs, tracker)


def _read(tracker: Tracker, run: LoggedRun, label: str, folder: Path) -> ComparedRun:
    folder.mkdir()
    scores = tracker.download(run, SCORES, folder)
    try:
        table = read_score_table(scores)
    except BadInput as error:
        raise BadInput(f"Run {run.named}: {error}") from None
    predictions = tracker.download(run, RunKind().predictions(run), folder)
    config, checked = tracker.download(run, "config.yaml", folder), None
    if CHECKED in run.tags:
        checked = checked_values.read_checked_table(tracker.download(run, checked_values.FILE, folder))
        checked = checked.take(np.array(sorted(range(len(checked.query_ids)), key=checked.query_ids.__getitem__)))
    return ComparedRun(label, run, table.by_id(), predictions, config, checked)


@dataclass(frozen=True, eq=False)
class RetrievalRuns(ScoredRuns):
    """Retrieval runs whose tables have the same queries in the same order. tracker: where they are logged."""

    noun, unit = "runs", "queries"
    runs: Sequence[ComparedRun]
    tracker: Tracker

    @property
    def labels(self) -> list[str]:
        return [run.label for run in self.runs]

    @property
    def query_ids(self) -> tuple[str, ...]:
        return self.runs[0].table.query_ids

    @property
    def public(self) -> np.ndarray:
        return self.runs[0].table.public

    @property
    def strata(self) -> np.ndarray:
        return 2 * self.runs[0].table.needs + self.runs[0].table.multi_turn

    @property
    def apart(self) -> tuple[LoggedRun, LoggedRun] | None:
        first = self.runs[0].run
        return next(((run.run, first) for run in self.runs if (run.table.public != self.public).any()), None)

    @property
    def _checked(self) -> list[CheckedValues]:
        """What each run scores by both sets of labels; empty for labels of one origin."""
        known = [run.checked for run in self.runs if run.checked]
        return known if len(known) == len(self.runs) else []

    def take(self, rows: np.ndarray) -> RetrievalRuns:
        return self if rows.all() else replace(self, runs=[run.take(rows) for run in self.runs])

    def measures(self, metric: str, judges: np.ndarray) -> tuple[list[str], list[str]]:
        """Those that count the same queries in every run."""
        first, *others = [run.values for run in self.runs]
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
        if left := sorted({name for run in self.runs for name in run.values} - set(shared)):
            notes.append(f"Left out, since some run has no value of them: {', '.join(left)}.")
        return same, notes

    def score(self, metric: str) -> Score:
        return partial(_masked_means, self.values(metric))

    def values(self, metric: str) -> np.ndarray:
        return np.stack([run.values[metric] for run in self.runs])

    def differences(
        self, names: Sequence[str], config: CompareConfig, pairs: Sequence[Rows]
    ) -> dict[Rows, list[Difference]]:
        values = np.stack([self.values(name) for name in names], axis=1)
        return differences(values, config.seed, config.resamples, pairs)

    def part_gaps(self, names: Sequence[str], pair: Rows) -> Iterator[tuple[str, str, int, float]]:
        table = next((run.table for run in self.runs if "data.queries" in run.run.tags), self.runs[0].table)
        parts = {"single-turn": ~table.multi_turn, "multi-turn": table.multi_turn}
        parts |= {"needs retrieval": table.needs, "needs none": ~table.needs}
        parts |= {"public": self.public, "private": ~self.public} if self.public.any() and not self.apart else {}
        for name in names:
            first, second = (self.runs[row].values[name] for row in pair)
            for part, inside in parts.items():
                gaps = (first - second)[inside]
                yield name, part, int((~np.isnan(gaps)).sum()), known_mean(gaps)

    def scores(self, names: Sequence[str], config: CompareConfig, boards: Sequence[Standing | None]) -> list[RunScores]:
        checked = self._checked
        return [
            RunScores(
                label=run.label,
                run=run.run,
                kind=run.kind(config),
                metrics={name: known_mean(run.values[name]) for name in names},
                intervals={} if checked else _intervals(run, names, config),
                board=board,
                estimates=_estimates(checked[place], names) if checked else None,
                out_of_fold=bool(run.table.oof),
                as_written={name: known_mean(run.table.values[name]) for name in names},
                losses={} if config.select_on == "public" else run.losses,
                unanswerable=run.run.metrics.get(UNANSWERABLE),
            )
            for place, (run, board) in enumerate(zip(self.runs, boards, strict=True))
        ]

    def estimated(self, names: Sequence[str], pairs: Sequence[Rows]) -> Mapping[Rows, Sequence[EstimatedDifference]]:
        return estimated_differences(self._checked, pairs, names) if self._checked else {}

    def changed(self, pair: Pair, row: int, values: Mapping[str, float]) -> Changed:
        query_id, known = self.query_ids[row], self._known
        documents = {}
        for label in values:
            one, grades = known.returned[label].get(query_id), known.grades.get(label)
            documents[label] = [
                ShownDocument(doc, known.snippet(doc), None if grades is None else doc in grades.get(query_id, {}))
                for doc in (one.docs[:DOCUMENTS] if one else ())
            ]
        about = {"query_id": query_id, "query": known.queries.get(query_id)}
        return Changed(pair, query_id, values, about, documents=documents)

    def on_board(self, metric: str, select_on: str, placed: Sequence[BoardRun], order: Sequence[int]) -> BoardRuns:
        tables = [self.runs[place].table for place in order]
        return of_tables(metric, select_on, list(zip(placed, tables, strict=True)))

    def notes(self) -> list[str]:
        notes = [checked_note(float((~self._checked[0].checked).mean()))] if self._checked else []
        notes += self._holes[1]
        if honest := [run.label for run in self.runs if run.table.oof]:
            notes.append(
                f"{', '.join(honest)} learnt from these labels: values and losses are out of fold, decided without the "
                "query's own label; the documents shown are those of the lists as written."
            )
        if self.apart:
            notes.append("The runs split the queries into public and private in different ways: no such parts.")
        return notes + self._known.notes

    def unjudged(self) -> Unjudged | None:
        return self._holes[0]

    @cached_property
    def _holes(self) -> tuple[Unjudged | None, list[str]]:
        return unjudged(self.runs)

    @cached_property
    def _known(self) -> _Known:
        return _known(self.runs, self.tracker)


@dataclass(frozen=True, eq=False)
class _Known:
    """What can be said of queries and documents.

    returned: label -> query_id -> what the run returned. grades: label -> query_id -> its relevant documents, of runs
    whose labels could be read again. queries: query_id -> text. texts: doc_id -> text in predictions.
    """

    returned: Mapping[str, Mapping[str, Returned]]
    grades: Mapping[str, Mapping[str, Mapping[str, float]]]
    queries: Mapping[str, str]
    texts: Mapping[str, str]
    datasets: Sequence[Dataset]
    notes: list[str]

    def snippet(self, doc_id: str) -> str | None:
        found = (one.by_id[doc_id].indexed_text for one in self.datasets if doc_id in one.by_id)
        text = self.texts.get(doc_id) or next(found, None)
        return None if text is None else snippet(text)


def _known(runs: Sequence[ComparedRun], tracker: Tracker) -> _Known:
    """Read the lists, and the data again."""
    reader = ListReader(Ahead(tracker, [], Path()))
    returned = {run.label: reader.read(run.predictions) for run in runs}
    every = [(query_id, one) for of in returned.values() for query_id, one in of.items()]
    made = [run for run in runs if "data.documents" in run.run.tags] or runs  # scored files name no documents
    data, places, notices = read_again([run.run for run in made], tracker)
    by_labels = {run.run.tags["data.qrels"]: data[place] for run, place in zip(made, places, strict=True)}
    read = {run.label: by_labels.get(run.run.tags["data.qrels"]) for run in runs}
    datasets = [one.dataset for one in data if one.dataset]
    queries = {query.query_id: query.text for one in datasets for query in one.queries}
    return _Known(
        returned,
        grades={label: one.grades for label, one in read.items() if one and one.grades is not None},
        queries=queries | {query_id: one.text for query_id, one in reversed(every) if one.text},
        texts={doc: text for _, one in every for doc, text in zip(one.docs, one.contents, strict=False)},
        datasets=datasets,
        notes=[
            "Relevant documents are not marked and some texts are missing below, since the data could not be read "
            f"again: {one.why}"
            for one in notices[:1]
        ],
    )


def _masked_means(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return means over the queries of `rows` [R, Q] of M runs [M, Q], NaN where a query does not count: [M, R]."""
    known = rows @ ~np.isnan(values[0])
    return (rows @ np.nan_to_num(values).T).T / np.where(known > 0, known, np.nan)


def _intervals(run: ComparedRun, names: Sequence[str], config: CompareConfig) -> dict[str, tuple[float, float]]:
    """Return the intervals of a run's means: those that it has logged, so that they are the same everywhere; those of
    others, and of the private queries alone, are computed."""
    logged = {name: run.run.score(name, "all") for name in names} if config.select_on != "public" else {}
    ends = {name: (one.low, one.high) for name, one in logged.items() if one and one.low == one.low}
    if missing := [name for name in names if name not in ends]:
        values = np.stack([run.values[name] for name in missing])
        lows, highs, _ = bootstrap_means(values, config.seed, resamples=config.resamples)
        ends |= {one: (float(a), float(b)) for one, a, b in zip(missing, lows, highs, strict=True) if a == a}
    return ends


# ---- Labels that come partly from a model: differences are estimated from the queries that people have checked


def _estimates(checked: CheckedValues, names: Sequence[str]) -> dict[str, Estimate]:
    return {name: found for name in names if (found := checked.estimate(name))}


def estimated_differences(
    runs: Sequence[CheckedValues], pairs: Sequence[Rows], names: Sequence[str]
) -> Mapping[Rows, Sequence[EstimatedDifference]]:
    """Return (first, second) -> the estimate for each measure. runs: on the same queries in the same order."""
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


def checked_note(share: float) -> str:
    """Return what to know of a comparison by labels that come partly from a model. share: of the queries."""
    return (
        f"The labels of {100 * share:.0f} % of the queries are a model's: the verdict goes by estimates of what "
        "people's labels would give (PPI++). Numbers called raw, and those by query or kind of query, rest on labels "
        "of both origins: neither their p nor their size knows what the model gets wrong."
    )


# ---- Documents that nobody has judged


def unjudged(runs: Sequence[ComparedRun]) -> tuple[Unjudged | None, list[str]]:
    """Return (what the labels leave open; None where they do not say which documents were judged, notes)."""
    try:
        labels = _labels(runs)
    except (BadInput, OSError) as error:
        return None, [f"How much of the documents shown was judged is unknown, since labels could not be read: {error}"]
    notes = _unmet(labels[runs[0].label], runs[0].table.query_ids)
    if not all(any((qrels.not_relevant or {}).values()) for qrels in labels.values()):
        return None, notes
    k = min(int(read_config(run.config).get("top_k", SHOWN)) for run in runs)
    judged: dict[str, float] = {}
    documents: dict[str, list[UnjudgedDocument]] = {}
    for run in runs:
        judged[run.label], documents[run.label] = _shown(run, labels[run.label], k)
    punished, warnings = _warnings(judged, k)
    listed = [one for label in punished for one in documents[label]]
    named = [_named(label, documents[label]) for label in punished]
    return Unjudged(k, judged, listed), [*warnings, *named, *notes]


def _labels(runs: Sequence[ComparedRun]) -> dict[str, Qrels]:
    """Return label -> the run's labels, read once for all runs with the same. BadInput if they have changed since."""
    found: dict[str, Qrels] = {}
    for run in runs:
        digest = run.run.tags["data.qrels"]
        if digest not in found:
            source = logged_value(read_config(run.config), "dataset", dict)
            qrels = load_unchanged(run.run, source, ("qrels",)).qrels
            assert qrels is not None  # its fingerprint is that of the run's
            found[digest] = qrels
    return {run.label: found[run.run.tags["data.qrels"]] for run in runs}


def _unmet(qrels: Qrels, query_ids: Sequence[str]) -> list[str]:
    """Return a note on queries that every run fails."""
    unmet = [query_id for query_id in query_ids if query_id in qrels.unmet]
    if not unmet:
        return []
    need = "needs" if len(unmet) == 1 else "need"
    return [
        f"{counted(len(unmet), 'query')} {need} retrieval, and no document that was judged is relevant, so that every "
        f"run scores 0 there: {some(unmet)}."
    ]


def _shown(run: ComparedRun, qrels: Qrels, k: int) -> tuple[float, list[UnjudgedDocument]]:
    """Return (mean share of judged documents among the first k, those that nobody has judged)."""
    lists = read_predictions(run.predictions)
    found = judge_lists(lists, qrels, [query_id for query_id in run.table.query_ids if query_id in qrels.grades])
    assert found.holes is not None
    holes = found.holes
    documents = []
    for row, column in np.argwhere((holes.first & ~found.known & found.needs[:, None])[:, :k]).tolist():
        doc_id = holes.doc_ids[holes.docs[row, column]]
        documents.append(UnjudgedDocument(run.label, holes.query_ids[row], doc_id, column + 1))
    return known_mean(parse_measure(f"judged@{k}").values(found)), documents


def _warnings(judged: Mapping[str, float], k: int) -> tuple[list[str], list[str]]:
    """Return (labels of the runs that the labels punish, a sentence for each pair that differs by more than GAP)."""
    punished: dict[str, None] = {}
    said = []
    for pair in combinations(judged, 2):
        less, more = sorted(pair, key=judged.__getitem__)
        if judged[more] - judged[less] > GAP:
            punished[less] = None
            said.append(
                f"Warning: less of {less} was judged than of {more}: judged@{k} is {judged[less]:.3f} against "
                f"{judged[more]:.3f}. Documents that nobody has judged count as not relevant, which punishes {less}."
            )
    return [*punished], said


def _named(label: str, documents: Sequence[UnjudgedDocument]) -> str:
    pairs = [f"{one.doc_id} for query {one.query_id}" for one in documents]
    whole = " All are in comparison.json." if len(pairs) > NAMED else ""
    return f"Documents of {label} to judge: {some(pairs, NAMED)}.{whole}"
