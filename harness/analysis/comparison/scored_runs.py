"""Runs from the tracking store on the same queries or items, and their comparison pair by pair."""

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
from harness.analysis.board.runs import BoardRuns, Submissions, judging, known_mean, of_submissions, of_tables, tables
from harness.analysis.comparison import slices
from harness.analysis.comparison.comparison import (
    Changed,
    Comparison,
    Pair,
    PairedResult,
    PartDifference,
    RunScores,
    ShownDocument,
    Unjudged,
    UnjudgedDocument,
    pair_verdict,
)
from harness.analysis.ranking import Chosen, require_labels
from harness.config.commands import CompareConfig
from harness.config.text import counted
from harness.data.attributes import Slice, slices_by
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
from harness.measures.score_table import ScoreTable
from harness.measures.scores import UNANSWERABLE
from harness.recording.logged_run import Ahead, in_full, load_unchanged, logged_value, read_config
from harness.recording.retrieval_run import CHECKED
from harness.recording.run_kind import RunKind
from harness.reports.markup import snippet
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.prediction_powered import EstimatedDifference
from harness.statistics.significance import (
    Difference,
    differences,
    holm,
    pairs_of,
    sliced_differences,
    tally_differences,
)
from harness.statistics.significance import Pair as Rows
from harness.statistics.split import Score, Standing, Standings, standings
from harness.tasks.scored_file import check_measure, measure_all, measure_kind, strata, summaries
from harness.tracking.tracker import LoggedRun, Tracker

CHANGED = 10  # at most this many queries or items are shown for each pair of runs
DOCUMENTS = 3  # at most this many documents of each list are shown
GAP = 0.05  # a larger difference in the share of judged documents gives a warning
NAMED = 10  # a sentence names at most this many documents
CHECKED_NOTE = (
    "A model wrote the labels of {} % of the queries. So the verdict uses estimates of the scores that people's labels "
    "would give (PPI++). Raw numbers, and numbers for single queries or kinds of queries, come from all labels, the "
    "model's included. They and their p are not corrected for the model's errors."
)


# ---- Runs of retrieval


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A retrieval run to compare.

    table: the scores by query, in the order of the query ids. predictions, config: the files of the run.
    checked: the values by people's and by a model's labels on the same queries; None without labels by a model.
    """

    label: str
    run: LoggedRun
    table: ScoreTable
    predictions: Path
    config: Path
    checked: CheckedValues | None = None

    @property
    def values(self) -> dict[str, np.ndarray]:
        """The values by query: measure -> float64 [Q]; out of fold if the run learnt from the labels."""
        return self.table.oof or self.table.values

    @property
    def losses(self) -> dict[str, float]:
        prefix = f"{OOF if self.table.oof else ''}loss/"
        return {k.removeprefix(prefix): v for k, v in sorted(self.run.metrics.items()) if k.startswith(prefix)}

    def take(self, rows: np.ndarray) -> ComparedRun:
        table = self.table.take(rows)
        return replace(self, table=table, checked=self.checked and self.checked.within(table.query_ids))

    def kind(self, config: CompareConfig) -> Kind:
        """Return the kind of the values. Private queries are held out unless the run learnt from all labels."""
        learnt_from_them = bool(self.table.oof) and self.run.select_on == "all"
        held_out = config.select_on == "public" and not learnt_from_them
        return "held out" if held_out else score_kind(bool(self.table.oof), "all")


def read_retrieval_runs(tracker: Tracker, chosen: Mapping[str, LoggedRun], folder: Path) -> RetrievalRuns:
    """Download the runs. chosen: label -> run. Raise BadInput unless all are scored on the same queries."""
    for run in chosen.values():
        require_labels(run)
    scored = tables(tracker, [*chosen.values()], None, folder)
    runs = []
    for (label, run), table in zip(chosen.items(), scored, strict=True):
        own, checked = folder / run.run_id, None
        if CHECKED in run.tags:
            checked = checked_values.read_checked_table(tracker.download(run, checked_values.FILE, own))
            checked = checked.take(np.array(sorted(range(len(checked.query_ids)), key=checked.query_ids.__getitem__)))
        predictions = tracker.download(run, RunKind().predictions(run), own)
        config = tracker.download(run, "config.yaml", own)
        runs.append(ComparedRun(label, in_full(tracker, run), table, predictions, config, checked))
    return RetrievalRuns(runs, tracker)


@dataclass(frozen=True, eq=False)
class RetrievalRuns:
    """R retrieval runs whose tables have the same N queries in the same order."""

    noun, unit, task = "runs", "queries", None
    runs: Sequence[ComparedRun]
    tracker: Tracker

    @property
    def labels(self) -> list[str]:
        return [run.label for run in self.runs]

    @property
    def public(self) -> np.ndarray:
        """bool [N], the queries of the public part."""
        return self.runs[0].table.public

    @property
    def strata(self) -> np.ndarray:
        """int [N], the stratum of each query. The public part is drawn by stratum."""
        return 2 * self.runs[0].table.needs + self.runs[0].table.multi_turn

    @property
    def apart(self) -> tuple[LoggedRun, LoggedRun] | None:
        """A run whose public part differs from the first run's, and the first run; None if no public part differs."""
        first = self.runs[0].run
        return next(((run.run, first) for run in self.runs if (run.table.public != self.public).any()), None)

    @property
    def _checked(self) -> list[CheckedValues]:
        """Each run's values by people's labels and by a model's labels; [] if a run has no labels by a model."""
        known = [run.checked for run in self.runs if run.checked]
        return known if len(known) == len(self.runs) else []

    def take(self, rows: np.ndarray) -> RetrievalRuns:
        return self if rows.all() else replace(self, runs=[run.take(rows) for run in self.runs])

    def measures(self, metric: str, judges: np.ndarray) -> tuple[list[str], list[str]]:
        """Return (measures defined on the same queries in all runs, notes). Raise BadInput if they lack `metric`."""
        first, *others = [run.values for run in self.runs]
        applies = [name for name, values in first.items() if not np.isnan(values).all()]
        shared = [name for name in applies if all(name in values for values in others)]
        same = [name for name in shared if all((np.isnan(v[name]) == np.isnan(first[name])).all() for v in others)]
        if metric not in same:
            reason = "is not defined on the same queries in every run"
            if parse_measure(metric).family is MeasureFamily.POOLED:
                reason = "has no value by query"
            elif metric not in shared:
                reason = "is not in the scores of every run"
            raise BadInput(f"metric={metric} {reason}.{did_you_mean(metric, same)} All runs have: {', '.join(same)}.")
        notes = []
        if own := [name for name in shared if name not in same]:
            notes.append(f"Measures left out, since their queries differ between runs: {', '.join(own)}.")
        if left := sorted({name for run in self.runs for name in run.values} - set(shared)):
            notes.append(f"Measures left out, since some run has no values of them: {', '.join(left)}.")
        return same, notes

    def score(self, metric: str) -> Score:
        """Return a function that scores the runs over some of the queries."""
        return partial(_masked_means, self.values(metric))

    def values(self, metric: str) -> np.ndarray:
        """Return the metric of each run on each query, float64 [R, N]; NaN where the metric does not apply."""
        return np.stack([run.values[metric] for run in self.runs])

    def differences(
        self, names: Sequence[str], config: CompareConfig, pairs: Sequence[Rows]
    ) -> dict[Rows, list[Difference]]:
        values = np.stack([self.values(name) for name in names], axis=1)
        return differences(values, config.seed, config.resamples, pairs)

    def estimated(self, names: Sequence[str], pairs: Sequence[Rows]) -> Mapping[Rows, Sequence[EstimatedDifference]]:
        """Return each pair's estimated differences in all measures; {} unless labels come partly from a model."""
        runs = self._checked
        if not runs:
            return {}
        found = [[runs[first].difference(runs[second], name) for name in names] for first, second in pairs]
        p = np.array([[one.p for one in row] for row in found])
        unknown = np.isnan(p)  # pairs without an interval
        corrected = np.array([holm(column) for column in np.where(unknown, 1.0, p).T]).T
        corrected[unknown] = np.nan
        return {
            pair: [*map(EstimatedDifference, row, own)]
            for pair, row, own in zip(pairs, found, corrected.tolist(), strict=True)
        }

    def slices(self, names: Sequence[str], metric: str) -> list[Slice]:
        """Return the slices in which the metric applies to some query. Raise BadInput for bad names."""
        if not names:
            return []
        made = next((run for run in self.runs if "data.queries" in run.run.tags), self.runs[0])
        known = slices.logged_attributes(made.run, read_config(made.config), names)
        applies = ~np.isnan(self.runs[0].values[metric])
        every = slices_by(names, known, self.runs[0].table.query_ids)
        return [one for one in every if (one.inside & applies).any()]

    def part_gaps(self, names: Sequence[str], pair: Rows) -> Iterator[tuple[str, str, int, float]]:
        """Yield (measure, part, number of queries, mean difference) of a pair."""
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
                estimates={one: found for one in names if (found := checked[place].estimate(one))} if checked else None,
                out_of_fold=bool(run.table.oof),
                as_written={name: known_mean(run.table.values[name]) for name in names},
                losses={} if config.select_on == "public" else run.losses,
                unanswerable=run.run.metrics.get(UNANSWERABLE),
            )
            for place, (run, board) in enumerate(zip(self.runs, boards, strict=True))
        ]

    def changed(self, pair: Pair, row: int, values: Mapping[str, float]) -> Changed:
        """Return a query with the documents of each run of a pair. values: label of a run -> its value."""
        query_id, known = self.runs[0].table.query_ids[row], self._known
        documents = {}
        for label in values:
            one, grades = known.returned[label].get(query_id), known.grades.get(label)
            documents[label] = [
                ShownDocument(doc, known.snippet(doc), None if grades is None else doc in grades.get(query_id, {}))
                for doc in (one.docs[:DOCUMENTS] if one else ())
            ]
        about = {"query_id": query_id, "query": known.queries.get(query_id)}
        return Changed(pair, query_id, values, about, documents=documents)

    def on_board(self, found: Chosen, metric: str, order: Sequence[int]) -> BoardRuns:
        """Return the runs as a board. order: for each run of `found`, its index in `self.runs`."""
        return of_tables(found, metric, [self.runs[place].table for place in order])

    def notes(self) -> list[str]:
        notes = [*self._holes[1]]
        if self._checked:
            share = float((~self._checked[0].checked).mean())
            notes.insert(0, CHECKED_NOTE.format(f"{100 * share:.0f}"))
        if honest := [run.label for run in self.runs if run.table.oof]:
            notes.append(
                f"{', '.join(honest)} learnt from these labels. So values and losses are out of fold: they do not use "
                "the query's own label. The documents shown are from the logged lists, which may use that label."
            )
        if self.apart:
            notes.append("Public and private parts are left out, since the runs have different public queries.")
        return notes + self._known.notes

    @property
    def unjudged(self) -> Unjudged | None:
        return self._holes[0]

    @cached_property
    def _holes(self) -> tuple[Unjudged | None, list[str]]:
        return _unjudged(self.runs)

    @cached_property
    def _known(self) -> _Known:
        return _Known.of(self.runs, self.tracker)


@dataclass(frozen=True, eq=False)
class _Known:
    """Lists, labels and texts of the runs.

    returned: label of a run -> query_id -> returned list.
    grades: label of a run -> query_id -> {doc_id: grade} of relevant documents, for runs whose qrels could be read
        again.
    queries: query_id -> text. texts: doc_id -> text in the file of predictions.
    """

    returned: Mapping[str, Mapping[str, Returned]]
    grades: Mapping[str, Mapping[str, Mapping[str, float]]]
    queries: Mapping[str, str]
    texts: Mapping[str, str]
    datasets: Sequence[Dataset]
    notes: list[str]

    @classmethod
    def of(cls, runs: Sequence[ComparedRun], tracker: Tracker) -> _Known:
        reader = ListReader(Ahead(tracker, [], Path()))
        returned = {run.label: reader.read(run.predictions) for run in runs}
        every = [(query_id, one) for of in returned.values() for query_id, one in of.items()]
        made = [run for run in runs if "data.documents" in run.run.tags] or runs  # scored files log no documents
        data, places, notices = read_again([run.run for run in made], tracker)
        by_labels = {run.run.tags["data.qrels"]: data[place] for run, place in zip(made, places, strict=True)}
        read = {run.label: by_labels.get(run.run.tags["data.qrels"]) for run in runs}
        datasets = [one.dataset for one in data if one.dataset]
        queries = {query.query_id: query.text for one in datasets for query in one.queries}
        return cls(
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

    def snippet(self, doc_id: str) -> str | None:
        found = (one.by_id[doc_id].indexed_text for one in self.datasets if doc_id in one.by_id)
        text = self.texts.get(doc_id) or next(found, None)
        return None if text is None else snippet(text)


def _masked_means(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the means [M, R] of M runs over R sets of queries. values: [M, Q], NaN if undefined. rows: [R, Q]."""
    known = rows @ ~np.isnan(values[0])
    return (rows @ np.nan_to_num(values).T).T / np.where(known > 0, known, np.nan)


def _intervals(run: ComparedRun, names: Sequence[str], config: CompareConfig) -> dict[str, tuple[float, float]]:
    logged = {name: run.run.score(name, "all") for name in names} if config.select_on != "public" else {}
    ends = {name: (one.low, one.high) for name, one in logged.items() if one and one.low == one.low}
    if missing := [name for name in names if name not in ends]:
        values = np.stack([run.values[name] for name in missing])
        lows, highs, _ = bootstrap_means(values, config.seed, resamples=config.resamples)
        ends |= {one: (float(a), float(b)) for one, a, b in zip(missing, lows, highs, strict=True) if a == a}
    return ends


# ---- Unjudged documents, and the runs that score too low because of them


def _unjudged(runs: Sequence[ComparedRun]) -> tuple[Unjudged | None, list[str]]:
    """Return (the unjudged documents, or None if it is unknown which documents were judged; notes)."""
    try:
        labels = _labels(runs)
    except (BadInput, OSError) as error:
        return None, [f"The share of judged documents is unknown, since labels could not be read: {error}"]
    notes = []
    if unmet := [query_id for query_id in runs[0].table.query_ids if query_id in labels[runs[0].label].unmet]:
        need = "needs" if len(unmet) == 1 else "need"
        notes.append(
            f"{counted(len(unmet), 'query')} {need} retrieval, but no judged document is relevant, so every run scores "
            f"0 there: {some(unmet)}."
        )
    if not all(any((qrels.not_relevant or {}).values()) for qrels in labels.values()):
        return None, notes
    k = min(int(read_config(run.config).get("top_k", SHOWN)) for run in runs)
    judged: dict[str, float] = {}
    documents: dict[str, list[UnjudgedDocument]] = {}
    for run in runs:
        judged[run.label], documents[run.label] = _shown(run, labels[run.label], k)
    punished: dict[str, None] = {}
    warnings = []
    for pair in combinations(judged, 2):
        less, more = sorted(pair, key=judged.__getitem__)
        if judged[more] - judged[less] > GAP:
            punished[less] = None
            warnings.append(
                f"Warning: fewer documents of {less} were judged than of {more}: judged@{k} is {judged[less]:.3f} "
                f"against {judged[more]:.3f}. Unjudged documents count as not relevant, so {less} scores too low."
            )
    named = [_named(label, documents[label]) for label in punished]
    listed = [one for label in punished for one in documents[label]]
    return Unjudged(k, judged, listed), [*warnings, *named, *notes]


def _labels(runs: Sequence[ComparedRun]) -> dict[str, Qrels]:
    """Return the label of each run -> its qrels; equal qrels are read once. Raise BadInput if qrels have changed."""
    found: dict[str, Qrels] = {}
    for run in runs:
        digest = run.run.tags["data.qrels"]
        if digest not in found:
            source = logged_value(read_config(run.config), "dataset", dict)
            qrels = load_unchanged(run.run, source, ("qrels",)).qrels
            assert qrels is not None  # else `load_unchanged` would have raised BadInput
            found[digest] = qrels
    return {run.label: found[run.run.tags["data.qrels"]] for run in runs}


def _shown(run: ComparedRun, qrels: Qrels, k: int) -> tuple[float, list[UnjudgedDocument]]:
    """Return (the mean share of judged documents among the first k of each list, the unjudged documents there)."""
    lists = read_predictions(run.predictions)
    found = judge_lists(lists, qrels, [query_id for query_id in run.table.query_ids if query_id in qrels.grades])
    assert found.holes is not None
    holes = found.holes
    documents = []
    for row, column in np.argwhere((holes.first & ~found.known & found.needs[:, None])[:, :k]).tolist():
        doc_id = holes.doc_ids[holes.docs[row, column]]
        documents.append(UnjudgedDocument(run.label, holes.query_ids[row], doc_id, column + 1))
    return known_mean(parse_measure(f"judged@{k}").values(found)), documents


def _named(label: str, documents: Sequence[UnjudgedDocument]) -> str:
    pairs = [f"{one.doc_id} for query {one.query_id}" for one in documents]
    whole = " All are in comparison.json." if len(pairs) > NAMED else ""
    return f"Documents of {label} to judge: {some(pairs, NAMED)}.{whole}"


# ---- Runs of a text task


@dataclass(frozen=True, eq=False)
class TaskRuns:
    """Submissions to a text task, with the same methods as `RetrievalRuns`. labels: the name of each submission."""

    noun, unit, apart, unjudged = "submissions", "items", None, None
    labels: Sequence[str]
    found: Submissions

    @property
    def task(self) -> str:
        return self.found.task.name

    @property
    def public(self) -> np.ndarray:
        return self.found.files[0].public

    @property
    def strata(self) -> np.ndarray:
        return strata(self.found.files[0].kinds)

    def take(self, rows: np.ndarray) -> TaskRuns:
        return replace(self, found=self.found.take(rows))

    def measures(self, metric: str, judges: np.ndarray) -> tuple[list[str], list[str]]:
        task, files = self.found.task, self.found.files
        check_measure(task, "metric", metric)
        means = [measure_all(task, file.counts, judges) for file in files]
        shared = [name for name in task.measures if all(mean[name] == mean[name] for mean in means)]
        if metric not in shared:
            lacking = next(file.run for file, of in zip(files, means, strict=True) if of[metric] != of[metric])
            raise BadInput(f"metric={metric} is absent from run {lacking.named}. All runs have: {', '.join(shared)}.")
        return shared, []

    def score(self, metric: str) -> Score:
        tallies = self.found.tallies([metric])
        return lambda rows: np.vstack([one.measure(rows @ one.table) for one in tallies])

    def values(self, metric: str) -> np.ndarray:
        return self.found.values(metric)

    def differences(
        self, names: Sequence[str], config: CompareConfig, pairs: Sequence[Rows]
    ) -> dict[Rows, list[Difference]]:
        return tally_differences(self.found.tallies(names), config.seed, config.resamples, pairs)

    def estimated(self, names: Sequence[str], pairs: Sequence[Rows]) -> Mapping[Rows, Sequence[EstimatedDifference]]:
        return {}

    def slices(self, names: Sequence[str], metric: str) -> list[Slice]:
        if names:
            raise BadInput(
                f"slices: items of task={self.task} have no attributes. Leave out slices: differences by kind of item "
                "are always shown."
            )
        return []

    def part_gaps(self, names: Sequence[str], pair: Rows) -> Iterator[tuple[str, str, int, float]]:
        task, files = self.found.task, self.found.files
        kinds = np.array(files[0].kinds, dtype=object)
        every = sorted({*files[0].kinds})
        parts = [(kind, kinds == kind, measure_kind) for kind in every] if len(every) > 1 else []
        if self.public.any():
            parts += [("public", self.public, measure_all), ("private", ~self.public, measure_all)]
        for part, inside, measure in parts:
            ours, theirs = (measure(task, files[row].counts, inside) for row in pair)
            for name in names:
                gap = ours[name] - theirs[name] if inside.any() else math.nan
                yield name, part, int(inside.sum()), float(gap)

    def scores(self, names: Sequence[str], config: CompareConfig, boards: Sequence[Standing | None]) -> list[RunScores]:
        found = []
        kind: Kind = "held out" if config.select_on == "public" else "in sample"
        for label, file, board in zip(self.labels, self.found.files, boards, strict=True):
            known = summaries(self.found.task, file.counts, names, config.seed, config.resamples)
            ends = {name: (one.low, one.high) for name, one in known.items() if one.low == one.low}
            means = {name: one.mean for name, one in known.items()}
            found.append(RunScores(label=label, run=file.run, kind=kind, metrics=means, intervals=ends, board=board))
        return found

    def changed(self, pair: Pair, row: int, values: Mapping[str, float]) -> Changed:
        item_id = self.found.item_ids[row]
        both = Submissions([self.found.files[self.labels.index(label)] for label in values])
        texts, items = both.texts(item_id)
        said = {label: item.get("prediction") for label, item in zip(values, items, strict=True)}
        return Changed(pair, item_id, values, {"id": item_id, **texts}, predictions=said)

    def on_board(self, found: Chosen, metric: str, order: Sequence[int]) -> BoardRuns:
        return of_submissions(found, metric, Submissions([self.found.files[place] for place in order]))

    def notes(self) -> list[str]:
        bare = [label for label, file in zip(self.labels, self.found.files, strict=True) if not file.items]
        if bare:
            return [f"No texts of {', '.join(bare)}: trials of a sweep log none. Score their files to see the texts."]
        return []


# ---- The comparison

ScoredRuns = RetrievalRuns | TaskRuns


def compare_runs(runs: ScoredRuns, config: CompareConfig, family: np.ndarray | None = None) -> Comparison:
    """Compare runs. Raise BadInput unless every run has the metric.

    config: with `select_on=public`, the public queries or items choose the best run, and the private ones test it.
    family: float64 [R], the corrected p of each of R runs against the best of them, in order of score. `runs` are the
        first of these R runs. If `family` is None, p is corrected over the pairs of `runs`.
    """
    metric, labels, private = config.metric, runs.labels, config.select_on == "public"
    if private and runs.apart:
        raise BadInput(
            f"select_on=public: runs {runs.apart[0].named} and {runs.apart[1].named} have different public parts. "
            "Make both with the same `public` and `seed`, or use select_on=all."
        )
    judges = judging(runs.public, config.select_on or "all", runs.unit)
    names, left_out = runs.measures(metric, judges)
    score = runs.score(metric)
    ranked = Standings((None,) * len(labels))
    if not runs.apart:
        ranked = standings(score, runs.public, runs.strata, labels, metric, config.seed)
    chose = runs.public if private else np.ones(len(judges))
    best = 0 if family is not None else int(np.argmax(score(chose[None].astype(np.float64))))
    tested = pairs_of(len(labels), best if config.pairs == "best" else None)
    runs = runs.take(judges)
    results, corrected_for = _tested(runs, config, names, tested, family)
    sliced = _sliced(runs, config, tested)
    values, chosen = runs.values(metric), []
    if private:
        chosen = [
            f"select_on=public: the {int((~judges).sum()):,} public {runs.unit} choose the best run and count for "
            f"nothing else; the {int(judges.sum()):,} private ones judge."
        ]
    return Comparison(
        noun=runs.noun,
        unit=runs.unit,
        task=runs.task,
        metric=metric,
        best=labels[best],
        count=int(judges.sum()),
        judges="private " if private else "",
        verdicts=[
            pair_verdict(one, corrected_for, f"private {runs.unit}" if private else runs.unit)
            for one in results
            if one.measure == metric
        ],
        notes=[*chosen, *runs.notes(), *ranked.notes],
        runs=runs.scores(names, config, ranked.boards),
        differences=results,
        splits=[PartDifference(_pair(labels, rows), *one) for rows in tested for one in runs.part_gaps(names, rows)],
        changed=[
            runs.changed(_pair(labels, rows), row, {labels[run]: float(values[run, row]) for run in rows})
            for rows in tested
            for row in _most_changed(values[rows[0]] - values[rows[1]])
        ],
        shake_up=ranked.shake_up,
        pairs=corrected_for,
        left_out=left_out,
        unjudged=runs.unjudged,
        slices=sliced,
        reversals=[*slices.reversals([one for one in results if one.measure == metric], sliced)],
    )


def _tested(
    runs: ScoredRuns, config: CompareConfig, names: Sequence[str], pairs: Sequence[Rows], family: np.ndarray | None
) -> tuple[list[PairedResult], int]:
    """Return (a result for each pair and measure, the number of pairs that the metric's p is corrected for)."""
    at = names.index(config.metric)
    found, estimated, count = runs.differences(names, config, pairs), runs.estimated(names, pairs), len(pairs)
    if estimated:  # drop the raw intervals, which ignore errors in the model's labels
        found = {pair: [replace(one, low=math.nan, high=math.nan, note="") for one in of] for pair, of in found.items()}
    elif family is not None and config.pairs == "best":
        count = len(family) - 1
        for (_, other), of in found.items():
            of[at] = replace(of[at], p_holm=float(family[other]))
    return [
        PairedResult(_pair(runs.labels, pair), name, one, estimated[pair][place] if estimated else None)
        for pair in pairs
        for place, (name, one) in enumerate(zip(names, found[pair], strict=True))
    ], count


def _sliced(runs: ScoredRuns, config: CompareConfig, pairs: Sequence[Rows]) -> list[PairedResult]:
    metric, values = config.metric, runs.values(config.metric)
    if not (cut := runs.slices(config.slices, metric)):
        return []
    gaps = np.stack([values[first] - values[second] for first, second in pairs])
    inside = np.stack([one.inside for one in cut])
    found = sliced_differences(gaps, inside, config.seed, config.resamples)
    estimated = [runs.take(rows).estimated([metric], pairs) for rows in inside]
    named = [_pair(runs.labels, rows) for rows in pairs]
    guesses = {_pair(runs.labels, rows): [of[rows][0] for of in estimated] for rows in pairs if all(estimated)}
    return slices.slice_differences(cut, metric, dict(zip(named, found, strict=True)), guesses)


def _pair(labels: Sequence[str], rows: Rows) -> Pair:
    return Pair(*(labels[row] for row in rows))


def _most_changed(gaps: np.ndarray) -> list[int]:
    """Return the rows of the largest differences, at most CHANGED, largest first, without 0 and NaN. gaps: [N]."""
    sizes = np.abs(np.nan_to_num(gaps))
    return [int(row) for row in np.argsort(-sizes, kind="stable")[:CHANGED] if sizes[row]]
