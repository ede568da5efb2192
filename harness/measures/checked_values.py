"""Score ranked lists by people's labels and by a model's labels of the same queries; `checked.csv` has the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.text import counted
from harness.data.predictions import Predictions
from harness.data.qrels import Checked, Qrels
from harness.data.tables import csv_text, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput
from harness.measures.judged import Judged, judge_lists
from harness.measures.measures import Measure, MeasureFamily, of_spans
from harness.statistics.prediction_powered import NO_ESTIMATE, CheckedSample, Estimate, difference, estimate
from harness.storage.typed import encoded
from retrievers.base import Ranking

FILE = "checked.csv"
FIRST_HIT = ("hit", "mrr", "modified_mrr")  # documents below the first hit do not change these measures
PEOPLE, MODEL, UNJUDGED = "people/", "model/", "unjudged/"  # prefixes of columns in checked.csv


@dataclass(frozen=True, eq=False)
class CheckedValues:
    """Scores by people's and by a model's labels, on the Q queries that could have been drawn for people to check.

    checked: bool [Q], whether people have checked the query.
    people, model: measure -> float64 [Q]; NaN where the measure does not apply by these labels. `people` is also
        NaN for unchecked queries.
    unjudged: measure -> float64 [Q], the number of documents that the measure reads but no person has judged.
    undrawn: the number of scored queries that are left out because they could not have been drawn.
    """

    query_ids: tuple[str, ...]
    strata: tuple[str, ...]
    checked: np.ndarray
    people: Mapping[str, np.ndarray]
    model: Mapping[str, np.ndarray]
    unjudged: Mapping[str, np.ndarray]
    undrawn: int = 0

    @property
    def outside(self) -> bool:
        return any(np.nansum(counts) > 0 for counts in self.unjudged.values())

    def take(self, rows: np.ndarray) -> CheckedValues:
        """Return the part with the queries in `rows`, in that order. rows: int [n], or bool [Q]."""
        places = np.arange(len(self.query_ids))[rows]
        people, model, unjudged = (
            {name: values[rows] for name, values in of.items()} for of in (self.people, self.model, self.unjudged)
        )
        ids, strata = (tuple(of[place] for place in places) for of in (self.query_ids, self.strata))
        return CheckedValues(ids, strata, self.checked[rows], people, model, unjudged, self.undrawn)

    def within(self, query_ids: Sequence[str]) -> CheckedValues:
        wanted = frozenset(query_ids)
        return self.take(np.array([one in wanted for one in self.query_ids], bool))

    def estimate(self, name: str) -> Estimate | None:
        if name not in self.people:
            return None
        missing, sample = self._unjudged_note(name), self._sample(name)
        return sample.without_value(missing) if missing else estimate(sample)

    def without_estimate(self) -> Estimate:
        """Return an estimate with counts and a note but no value, for a measure whose values by query are unknown."""
        others = int((~self.checked).sum())
        note = f"{NO_ESTIMATE}the measure has no values by query that are computed from people's labels"
        return Estimate(math.nan, checked=len(self.checked) - others, others=others, note=note)

    def difference(self, other: CheckedValues, name: str) -> Estimate:
        if name not in self.people or name not in other.people:
            return self.without_estimate()
        missing, sample = self._unjudged_note(name) or other._unjudged_note(name), self._sample(name)
        return sample.without_value(missing) if missing else difference(sample, other._sample(name))

    def estimates(self) -> dict[str, Estimate]:
        return {name: found for name in self.people if (found := self.estimate(name))}

    def _sample(self, name: str) -> CheckedSample:
        _, strata = np.unique(np.array(self.strata, dtype=str), return_inverse=True)
        return CheckedSample(self.people[name], self.model[name], self.checked, strata)

    def _unjudged_note(self, name: str) -> str:
        count = int(np.nansum(self.unjudged[name]))
        if not count:
            return ""
        queries = counted(int((self.unjudged[name] > 0).sum()), "checked query")
        return f"{NO_ESTIMATE}people have not judged {counted(count, 'document')} that the measure reads for {queries}"


def checked_values(
    reads: Mapping[Measure, Ranking | Predictions], checked: Checked, scored: Sequence[str]
) -> CheckedValues:
    """Score lists by people's and by the model's labels, on the queries that could have been drawn for people to check.

    Raise BadInput if one of these queries has no label from the model. Leave out measures that are not means over
    queries. Leave out measures of spans too, as people's judgements of documents do not change them.

    reads: measure -> the lists that the measure reads. scored: the queries to score.
    """
    drawable = [one for one in scored if one in checked.strata]
    known = {*checked.model.grades, *checked.model.unanswerable}
    if lacking := [one for one in drawable if one not in known]:
        raise BadInput(
            f"{counted(len(lacking), 'query')} that people may check got no label from the model, such as "
            f"{lacking[0]!r:.60}. Freeze the test set again: harness testset freeze"
        )
    judgements = {*checked.people.grades, *checked.people.unanswerable}
    people, model = (_Scorer(qrels, drawable) for qrels in (checked.people, checked.model))
    left_out = (MeasureFamily.POOLED, MeasureFamily.SHOWN)
    wanted = {one: lists for one, lists in reads.items() if one.family not in left_out and not of_spans(one.name)}
    return CheckedValues(
        query_ids=tuple(drawable),
        strata=tuple(checked.strata[one] for one in drawable),
        checked=np.array([one in judgements for one in drawable], bool),
        people={one.name: people.values(one, lists) for one, lists in wanted.items()},
        model={one.name: model.values(one, lists) for one, lists in wanted.items()},
        unjudged={one.name: people.unjudged(one, lists) for one, lists in wanted.items()},
        undrawn=len(scored) - len(drawable),
    )


class _Scorer:
    """Scores lists by one set of labels. Results have a value for each query of `query_ids`; NaN if it has no label."""

    def __init__(self, qrels: Qrels, query_ids: Sequence[str]) -> None:
        self._qrels = qrels
        self._labelled = tuple(one for one in query_ids if one in qrels.grades)
        self._rows = np.array([one in qrels.grades for one in query_ids], bool)
        self._judged: dict[int, Judged] = {}

    def values(self, measure: Measure, lists: Ranking | Predictions) -> np.ndarray:
        return self._spread(measure.values(self._judge(lists)))

    def unjudged(self, measure: Measure, lists: Ranking | Predictions) -> np.ndarray:
        """Return the number of documents that a measure reads but the labels do not judge, float64 [Q]."""
        base, judged = measure.name.partition("@")[0], self._judge(lists)
        if measure.family is MeasureFamily.ABSTENTION or measure.whole or measure.lists == "condensed":
            return self._spread(np.zeros(len(self._labelled)))  # these measures read no unjudged document
        depth = np.full(len(judged.needs), np.inf if measure.k is None else measure.k)
        if base in FIRST_HIT:
            depth = np.minimum(depth, judged.first)
        depth = np.minimum(depth, judged.returned)
        known = (judged.gains > 0) | judged.repeats if judged.holes is None else judged.known
        read = np.arange(1, known.shape[1] + 1) <= depth[:, None]
        return self._spread(np.where(judged.needs, (read & ~known).sum(axis=1), 0.0))

    def _judge(self, lists: Ranking | Predictions) -> Judged:
        if id(lists) not in self._judged:
            self._judged[id(lists)] = judge_lists(lists, self._qrels, self._labelled)
        return self._judged[id(lists)]

    def _spread(self, values: np.ndarray) -> np.ndarray:
        found = np.full(len(self._rows), np.nan)
        found[self._rows] = values
        return found


def averaged_checked(several: Sequence[CheckedValues]) -> CheckedValues:
    """Average each query's values over `several`, but keep the greatest of its counts of unjudged documents."""
    first = several[0]

    def mean(name: str, of: str) -> np.ndarray:
        return np.mean([getattr(one, of)[name] for one in several], axis=0)

    def same(name: str, of: str) -> bool:
        return all((np.isnan(getattr(one, of)[name]) == np.isnan(getattr(first, of)[name])).all() for one in several)

    kept = [name for name in first.people if same(name, "people") and same(name, "model")]
    return replace(
        first,
        people={name: mean(name, "people") for name in kept},
        model={name: mean(name, "model") for name in kept},
        unjudged={name: np.max([one.unjudged[name] for one in several], axis=0) for name in kept},
    )


def checked_table_text(values: CheckedValues) -> str:
    """Return the text of `checked.csv`: a row for each query in `values`. An empty cell means NaN."""
    columns: dict[str, list[Any]] = {"query_id": list(values.query_ids), "stratum": list(values.strata)}
    columns["checked"] = values.checked.astype(int).tolist()
    for name in values.people:
        parts = {PEOPLE: values.people, MODEL: values.model, UNJUDGED: values.unjudged}
        columns |= {f"{part}{name}": encoded(of[name]) for part, of in parts.items()}
    return csv_text(columns)


def read_checked_table(file: Path) -> CheckedValues:
    """Read a file written by `checked_table_text`, without rounding numbers. Raise BadInput if the file is damaged."""
    columns = read_columns(file)
    query_ids = taken_ids(columns, "query_id", file)
    strata = taken(columns, "stratum", file)
    checked = number_column(taken(columns, "checked", file), "checked", file) == 1
    names = [name.removeprefix(PEOPLE) for name in columns if name.startswith(PEOPLE)]

    def part(kind: str) -> dict[str, np.ndarray]:
        cells = {name: taken(columns, kind + name, file) for name in names}
        return {name: number_column(column, kind + name, file, lacking=True) for name, column in cells.items()}

    return CheckedValues(query_ids, tuple(strata), checked, part(PEOPLE), part(MODEL), part(UNJUDGED))
