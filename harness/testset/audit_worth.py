"""What checking more queries is worth: how wide the interval of a run's mean is now, and would be with more."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.data.checked_labels import Checked
from harness.data.labels import qrels_of
from harness.errors import BadInput
from harness.evaluation.checked_values import CheckedValues, checked_values
from harness.evaluation.measures import Measure, MeasureFamily, of_spans, parse
from harness.evaluation.prediction_powered import CheckedSample, estimate
from harness.testset.audit_sample import AuditSample
from harness.testset.judged_set import JudgedSet
from harness.testset.pool import Pool, PooledPair
from harness.testset.resolution import resolve_model_only, resolve_people_only
from retrievers.base import Predictions

MORE = 20  # queries
IMAGINED = 30  # samples with more queries, whose half-widths are averaged


@dataclass(frozen=True)
class Width:
    """Half of a 95 % interval with `checked` queries, which people have settled and the model has judged.

    together: of people's and the model's labels (PPI++). people: of people's labels alone. NaN where there is none,
    such as below 20 queries.
    """

    checked: int
    together: float
    people: float


@dataclass(frozen=True)
class Worth:
    """What more checked queries are worth for a measure of a run: the pooled run that is best by the model's labels.

    more: what is to be expected with 20 more, or all that are left; None if none are.
    """

    metric: str
    run: str
    now: Width
    more: Width | None


def measure_of(metric: str, pool: Pool) -> Measure:
    """BadInput unless a measure is a mean over queries of what the pool knows of its runs. metric: the config key."""
    try:
        one = parse(metric)
    except BadInput as error:
        raise BadInput(str(error).replace("metrics: ", "metric: ", 1)) from None
    if one.family in (MeasureFamily.ABSTENTION, MeasureFamily.POOLED) or of_spans(metric):
        raise BadInput(
            f"metric: {one.name} is no mean over queries that judgements of documents decide. Give another, such as "
            "ndcg@10."
        )
    depths = [run.depth for run in pool.about.runs.values()]
    if depths and (one.k is None or one.k > min(depths)):
        reads = f"reads {one.k} documents" if one.k else "reads whole lists"
        raise BadInput(
            f"metric: {one.name} {reads}, but of each run only the first {min(depths)} are pooled (pool.depth). Give "
            f"{one.name.partition('@')[0]}@{min(depths)}, or pool more."
        )
    return one


def worth(
    judged: JudgedSet, pool: Pool, sample: AuditSample, measure: Measure, relevant_from: int, seed: int = 0
) -> Worth | None:
    """None where nothing can be said: no run was pooled, no model judged, or people have checked no query in full.

    seed: of the imagined samples.
    """
    if not judged.of_models:
        return None
    checked = _checked(judged, sample, relevant_from)
    runs = {run_id: _lists(judged.pairs, run_id) for run_id in pool.about.runs}
    found = {run_id: checked_values({measure: lists}, checked, [*checked.strata]) for run_id, lists in runs.items()}
    best = max(found, key=lambda one: (_mean(found[one].model[measure.name]), one), default=None)
    if best is None or not checked.people.grades:
        return None
    values, strata = _sample(found[best], measure.name)
    more = None
    if left := min(MORE, int((~values.checked).sum())):
        generator = np.random.default_rng(seed)
        widths = [_width(_imagined(values, strata, left, generator)) for _ in range(IMAGINED)]
        more = Width(widths[0].checked, *(_mean([getattr(one, of) for one in widths]) for of in ("together", "people")))
    return Worth(measure.name, pool.about.runs[best].name or best[:8], _width(values), more)


def _checked(judged: JudgedSet, sample: AuditSample, relevant_from: int) -> Checked:
    """The labels by the model, of queries all of whose pooled documents it has judged, and by people, as far as they
    have settled drawn ones of these."""
    queries = [one for query_id, one in judged.queries.items() if query_id in sample.strata]
    given = judged.judgements, queries, judged.pairs, relevant_from
    model, people = resolve_model_only(*given), resolve_people_only(*given)
    lacking = {one.query_id for one in model.open if one.what != "answered"}
    known = [one for one in queries if one.query.query_id not in lacking]
    settled = {*sample.drawn} & people.settled
    return Checked(
        model=qrels_of(map(model.label, known)),
        people=qrels_of(people.label(one) for one in known if one.query.query_id in settled),
        strata={one.query.query_id: sample.strata[one.query.query_id] for one in known},
    )


def _lists(pairs: Iterable[PooledPair], run_id: str) -> Predictions:
    """The lists of a run, as far as they are pooled."""
    ranked: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for pair in pairs:
        if run_id in pair.ranks:
            ranked[pair.query_id].append((pair.ranks[run_id], pair.doc_id))
    index = {doc_id: place for place, doc_id in enumerate(sorted({one for of in ranked.values() for _, one in of}))}
    docs = np.full((len(ranked), max(map(len, ranked.values()), default=0)), -1, np.int32)
    for row, found in enumerate(ranked.values()):
        docs[row, : len(found)] = [index[doc_id] for _, doc_id in sorted(found)]
    return Predictions(tuple(ranked), tuple(index), docs)


def _sample(values: CheckedValues, name: str) -> tuple[CheckedSample, np.ndarray]:
    """Of the queries to which the measure applies by the model's labels; and their strata, int [Q]."""
    applies = ~np.isnan(values.model[name])
    _, strata = np.unique(np.array(values.strata, dtype=str), return_inverse=True)
    people = np.where(values.checked, values.people[name], np.nan)
    strata = strata[applies]
    return CheckedSample(people[applies], values.model[name][applies], values.checked[applies], strata), strata


def _imagined(sample: CheckedSample, strata: np.ndarray, more: int, generator: np.random.Generator) -> CheckedSample:
    """With more checked queries. What people say of them is on the line that their values of checked queries make with
    the model's, but for the distance of a checked query of the same stratum, or of any where none of it is checked."""
    known = sample.checked & ~np.isnan(sample.people)
    slope = _slope(sample.people[known], sample.model[known])
    gaps = sample.people - slope * sample.model
    people, checked = sample.people.copy(), sample.checked.copy()
    for place in generator.permutation(np.flatnonzero(~checked))[:more]:
        alike = np.flatnonzero(known & (strata == strata[place]))
        gap = gaps[generator.choice(alike if len(alike) else np.flatnonzero(known))]
        people[place], checked[place] = np.clip(slope * sample.model[place] + gap, 0, 1), True
    return replace(sample, people=people, checked=checked)


def _slope(people: np.ndarray, model: np.ndarray) -> float:
    """Of the line through both values of each query, from 0 to 1."""
    spread = float(((model - model.mean()) ** 2).sum()) if len(model) else 0.0
    shared = float(((people - people.mean()) * (model - model.mean())).sum()) if spread else 0.0
    return min(max(shared / spread, 0.0), 1.0) if spread else 0.0


def _width(sample: CheckedSample) -> Width:
    both, alone = estimate(sample), estimate(replace(sample, model=np.zeros(len(sample.model))))
    return Width(both.checked, (both.high - both.low) / 2, (alone.high - alone.low) / 2)


def _mean(values: Sequence[float] | np.ndarray) -> float:
    """Of what is known; NaN without any."""
    known = [one for one in values if not math.isnan(one)]
    return float(np.mean(known)) if known else math.nan
