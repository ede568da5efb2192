"""What an audit shows: how far the model agrees with people, people with each other, and each person with themselves.

Only judgements that people made for the audit count, and of those only blind ones: who sees the model's grade tends to
give the same. The estimates hold for all queries of the strata, each pair counting as often as its query stands for
others; see `harness.statistics.agreement`.

What checking more queries is worth: how wide the interval of a run's mean is now, and would be with more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from harness.data.labels import Checked, qrels_of
from harness.errors import BadInput
from harness.measures.checked_values import CheckedValues, checked_values
from harness.measures.measures import Measure, MeasureFamily, of_spans, parse_measure
from harness.statistics import agreement
from harness.statistics.agreement import DesignEstimate, Drawn, Statistic
from harness.statistics.prediction_powered import CheckedSample, estimate
from harness.testset.audit.sample import AuditSample
from harness.testset.judge.judgements import GRADES, HUMAN, JudgedSet, Judgement, Pair
from harness.testset.pool.pool import Pool, PooledPair
from harness.testset.review.resolution import Resolved, resolve_model_only, resolve_people_only
from retrievers.base import Predictions

AGREEMENT = "agreement.json"  # what `harness testset audit` writes
Rated = tuple[str, int, int]  # query_id, what the first says, what the second says


@dataclass(frozen=True)
class Progress:
    """How far the audit is.

    drawn: the number of drawn queries. checked: those of which people have judged the need for retrieval and all pooled
    documents. stand_for: how many queries could have been drawn from their strata.
    open: pairs of checked queries that people disagree about or cannot tell. not_blind: judgements left out for it.
    """

    drawn: int
    checked: tuple[str, ...]
    stand_for: int
    open: int
    not_blind: int


@dataclass(frozen=True)
class RaterAgreement:
    """Two raters of the same pairs.

    counts: how many pairs the first gives grade a and the second grade b, [a][b]; of needs, 0 is no and 1 yes.
    statistics: name -> estimate.
    """

    first: str
    second: str
    counts: tuple[tuple[int, ...], ...]
    statistics: Mapping[str, DesignEstimate]


@dataclass(frozen=True)
class Audit:
    """What an audit shows.

    models: that judged the pairs of the checked queries. model: people and the model, None if it judged none of them.
    kinds: the same for each kind of query. people: every two people who judged the same pairs. alpha: of all people,
    None if no pair was judged by two. again: people's first and second judgement of the same pairs, if there are any.
    needs: people and the kinds of the drafts, on whether queries need retrieval. differing: the queries on which these
    differ.
    """

    relevant_from: int
    progress: Progress
    models: tuple[str, ...]
    model: RaterAgreement | None
    kinds: Mapping[str, RaterAgreement]
    people: tuple[RaterAgreement, ...]
    alpha: DesignEstimate | None
    again: RaterAgreement | None
    needs: RaterAgreement
    differing: tuple[str, ...]


def audited(judged: JudgedSet, sample: AuditSample, relevant_from: int, seed: int = 0) -> Audit:
    """Compare the judges of the queries that people have checked. seed: of the resamples."""
    return _Material(judged, sample, relevant_from, seed).audit()


def blind(judged: JudgedSet) -> JudgedSet:
    """The test set without what people judged with another judgement before their eyes."""
    kept = [one for one in judged.judgements if one.blind or one.basis != HUMAN]
    return JudgedSet(judged.queries, judged.pairs, kept)


class _Material:
    """The checked queries of an audit with what was said of them."""

    def __init__(self, judged: JudgedSet, sample: AuditSample, relevant_from: int, seed: int) -> None:
        self._judged, self._sample = blind(judged), sample
        self._not_blind = len(judged.judgements) - len(self._judged.judgements)
        self._relevant_from, self._seed = relevant_from, seed
        self._checked = tuple(one for one in sample.drawn if one in judged.queries and self._judged.checked(one))
        self._row = {query_id: row for row, query_id in enumerate(self._checked)}
        self._drawn = Drawn(tuple(sample.strata[one] for one in self._checked), sample.sizes)

    def audit(self) -> Audit:
        people, model = self._resolved
        rated = [
            (query_id, one.grade, model.grades[query_id][doc_id].grade)
            for query_id in self._checked
            for doc_id, one in people.grades[query_id].items()
            if doc_id in model.grades[query_id]
        ]
        kinds: dict[str, list[Rated]] = defaultdict(list)
        for one in rated:
            kinds[self._judged.queries[one[0]].kind].append(one)
        of_model = self._statistics(second_knows=True)
        again = self._again()
        needs = self._needs()
        of_needs = {
            "agreed": Statistic(agreement.agreed, "no query"),
            "kappa": Statistic(agreement.kappa, "one of them says the same of all queries"),
        }
        return Audit(
            relevant_from=self._relevant_from,
            progress=self._progress(),
            models=self._models(),
            model=self._compared("people", "model", rated, of_model) if rated else None,
            kinds={kind: self._compared("people", "model", kinds[kind], of_model) for kind in sorted(kinds)},
            people=self._people(),
            alpha=self._alpha(),
            again=self._compared("first time", "second time", again, self._statistics()) if again else None,
            needs=self._compared("people", "draft", needs, of_needs, classes=2),
            differing=tuple(query_id for query_id, first, second in needs if first != second),
        )

    @cached_property
    def _resolved(self) -> tuple[Resolved, Resolved]:
        """What people say of the checked queries, and what the model does."""
        queries = [self._judged.queries[one] for one in self._checked]
        pairs = [pair for one in self._checked for pair in self._judged.pooled[one]]
        said = [one for one in self._judged.judgements if one.query_id in self._row]
        return (
            resolve_people_only(said, queries, pairs, self._relevant_from),
            resolve_model_only(said, queries, pairs, self._relevant_from),
        )

    @cached_property
    def _by_person(self) -> Mapping[Pair, Mapping[str, Sequence[Judgement]]]:
        """Pair -> person -> their judgements for the audit with a grade, the first round first."""
        found: dict[Pair, dict[str, list[Judgement]]] = defaultdict(lambda: defaultdict(list))
        for one in self._judged.judgements:
            if one.basis == HUMAN and one.sample == "audit" and one.grade is not None and one.query_id in self._row:
                found[one.pair][one.judge].append(one)
        for judges in found.values():
            for said in judges.values():
                said.sort(key=lambda one: one.round)
        return found

    def _progress(self) -> Progress:
        strata = {self._sample.strata[one] for one in self._checked}
        asked = {"people disagree", "cannot tell"}
        return Progress(
            drawn=len(self._sample.drawn),
            checked=self._checked,
            stand_for=sum(self._sample.sizes[one] for one in strata),
            open=sum(one.what in asked for one in self._resolved[0].open),
            not_blind=self._not_blind,
        )

    def _models(self) -> tuple[str, ...]:
        """The models whose judgements of the checked queries count."""
        said = self._judged.of_models.items()
        return tuple(sorted({several[-1].judge for (query_id, _), several in said if query_id in self._row}))

    def _people(self) -> tuple[RaterAgreement, ...]:
        """Every two people who judged the same pairs, by what each said the first time."""
        rated: dict[tuple[str, str], list[Rated]] = defaultdict(list)
        for (query_id, _), judges in self._by_person.items():
            for first, second in combinations(sorted(judges), 2):
                grades = (judges[first][0].grade or 0, judges[second][0].grade or 0)
                rated[first, second].append((query_id, *grades))
        return tuple(self._compared(*names, found, self._statistics()) for names, found in sorted(rated.items()))

    def _again(self) -> list[Rated]:
        return [
            (query_id, said[0].grade or 0, said[1].grade or 0)
            for (query_id, _), judges in self._by_person.items()
            for said in judges.values()
            if len(said) > 1
        ]

    def _alpha(self) -> DesignEstimate | None:
        """Of all people, by what each said of a pair the first time."""
        units = [(self._row[query_id], judges) for (query_id, _), judges in self._by_person.items() if len(judges) > 1]
        if not units:
            return None
        counts = np.zeros((len(units), len(GRADES)), np.int64)
        for unit, (_, judges) in enumerate(units):
            for said in judges.values():
                counts[unit, said[0].grade or 0] += 1
        tables = np.zeros((len(self._checked), len(GRADES), len(GRADES)))
        np.add.at(tables, [row for row, _ in units], agreement.coincidences(counts))
        alpha = {"alpha": Statistic(agreement.alpha, "all of them give every pair the same grade")}
        return agreement.estimates(tables, self._drawn, alpha, self._seed)["alpha"]

    def _needs(self) -> list[Rated]:
        people = self._resolved[0].needs
        kinds = {one: self._judged.queries[one].kind for one in self._checked}
        return [(one, int(people[one].needs), int(kinds[one] != "none")) for one in self._checked if one in people]

    def _compared(
        self, first: str, second: str, rated: Sequence[Rated], statistics: Mapping[str, Statistic], classes: int = 4
    ) -> RaterAgreement:
        rows, grades, others = ([self._row[one[0]] for one in rated], [one[1] for one in rated], [r[2] for r in rated])
        tables = agreement.tables_of(rows, grades, others, (len(self._checked), classes))
        counts = tuple(tuple(int(cell) for cell in row) for row in tables.sum(axis=0))
        return RaterAgreement(first, second, counts, agreement.estimates(tables, self._drawn, statistics, self._seed))

    def _statistics(self, second_knows: bool = False) -> dict[str, Statistic]:
        """Return statistics of two raters. second_knows: also how well it knows what the first finds relevant."""

        def sides(tables: np.ndarray) -> np.ndarray:
            return agreement.at_threshold(tables, self._relevant_from)

        side = f"one of them puts all pairs on the same side of grade {self._relevant_from}"
        found = {
            "agreed": Statistic(agreement.agreed, "no pair"),
            "kappa": Statistic(lambda tables: agreement.kappa(sides(tables)), side),
            "quadratic_kappa": Statistic(agreement.kappa, "one of them gives every pair the same grade"),
        }
        if second_knows:
            none, every = (f"people find {some} of the pairs relevant" for some in ("none", "all"))
            found["sensitivity"] = Statistic(lambda tables: agreement.sensitivity(sides(tables)), none)
            found["specificity"] = Statistic(lambda tables: agreement.specificity(sides(tables)), every)
        return found


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
        one = parse_measure(metric)
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
