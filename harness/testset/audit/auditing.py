"""Audits: draw queries for people to check, compare people with the model, and estimate the worth of more checks.

A stratum contains queries of one kind that are about equally hard for the pooled runs, by the model's judgements. The
first draw fixes the strata. A pilot of ten queries is drawn in proportion to the sizes of the strata. Once people have
checked the pilot, further queries are drawn in proportion to N_s * sd_s (Neyman 1934). N_s is the size of stratum s.
For each checked query, take its value by people minus its value by the model (see `_Values`): sd_s is the standard
deviation of these differences in the stratum. An estimate is the sum of W_s * mean_s over the strata: W_s is the
stratum's share of the queries, and mean_s is the mean over its checked queries. The pilot stays in the sample of n
queries. If the differences are skewed, this biases estimates by an amount of the order of 1/n. In simulations with 40
of 270 queries, the bias is 0 to 0.2 standard errors, and intervals lose at most half a percentage point of coverage.

A judgement counts only if it is blind and was made for the audit: people who see the model's grade tend to repeat it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path

import numpy as np

from harness.data.files import json_file
from harness.data.labels import qrels_of
from harness.data.qrels import Checked
from harness.errors import BadInput
from harness.measures.checked_values import checked_values
from harness.measures.measures import Measure, MeasureFamily, of_spans, parse_measure
from harness.statistics import agreement
from harness.statistics.agreement import DesignEstimate, Drawn, Statistic
from harness.statistics.prediction_powered import CheckedSample, estimate
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from harness.testset.judge.judgements import GRADES, HUMAN, JudgedSet, Judgement, Pair, held
from harness.testset.pool.pool import Pool, pooled_ranking
from harness.testset.review.resolution import RELEVANT_FROM, Resolved, resolve

AUDIT = "audit.json"
AGREEMENT = "agreement.json"  # the file that `harness testset audit` writes
PILOT = 10  # queries in the first draw
AGAIN = 5  # Every fifth drawn query is judged twice.
# Number of difficulty classes -> endings of the strata's names.
LEVELS = {1: ("",), 2: ("/easier", "/harder"), 3: ("/easy", "/medium", "/hard")}
UNKNOWN = "unjudged"  # queries that no model has judged, in a kind where a model has judged other queries
ADDED = "/added "  # "fact/easy/added 1": easy `fact` queries that were added to the test set after the first draw
PRIOR = 2.0  # degrees of freedom that `spreads` gives to the variance of a stratum's group
MORE = 20  # `worth` imagines this many more checked queries.
IMAGINED = 30  # number of imagined samples; `worth` averages the half-widths of their intervals

Rated = tuple[str, int, int]  # query_id, value by the first rater, value by the second rater


def apportion(weights: Sequence[float], least: Sequence[int], most: Sequence[int], total: int) -> list[int]:
    """Return whole numbers in proportion to the weights, by Webster's method.

    Each unit goes to the weight w with the largest w / (n + 1/2), where n is the number of units that w has; the first
    wins ties. A weight of 0 gets only its lower bound, so the sum may stay below `total`. A larger `total` makes no
    number smaller. least, most: the bounds of each number. They override the proportion and the total.
    """
    counts = [min(low, high) for low, high in zip(least, most, strict=True)]
    for _ in range(total - sum(counts)):
        left = [at for at, weight in enumerate(weights) if weight > 0 and counts[at] < most[at]]
        if not left:
            break
        counts[max(left, key=lambda at: weights[at] / (counts[at] + 0.5))] += 1
    return counts


def spreads(strata: Sequence[Sequence[float]], groups: Sequence[str]) -> list[float]:
    """Estimate the standard deviation of each stratum from few values: sqrt((SS + 2 V) / (n - 1 + 2)).

    SS is the sum of squares around the mean of the stratum's n values. V is the variance of the stratum's group:
    (SS + 2 A) / (n - 1 + 2), with SS and n of all values of the group. A is the variance of all values. Because of V, a
    stratum with a few equal values does not get 0. If all values of all strata are equal, or if there are fewer than
    two values, each result is 1. groups: the group of each stratum.
    """
    everything = [value for stratum in strata for value in stratum]
    overall = float(np.var(everything, ddof=1)) if len(everything) > 1 else 0.0
    if overall == 0:
        return [1.0] * len(strata)
    members: dict[str, list[float]] = {}
    for stratum, group in zip(strata, groups, strict=True):
        members.setdefault(group, []).extend(stratum)

    def variance(values: Sequence[float], prior: float) -> float:
        squares = len(values) * float(np.var(values)) if len(values) else 0.0
        return (squares + PRIOR * prior) / (max(len(values) - 1, 0) + PRIOR)

    prior = {group: variance(values, overall) for group, values in members.items()}
    return [math.sqrt(variance(stratum, prior[group])) for stratum, group in zip(strata, groups, strict=True)]


@dataclass(frozen=True)
class AuditSample:
    """The content of `audit.json`. strata: query_id -> stratum, for all queries that could be drawn. drawn: query ids
    in the order of the draw. twice: drawn queries to judge a second time."""

    seed: int
    strata: Mapping[str, str]
    drawn: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, other in (("drawn", "strata"), ("twice", "drawn")):
            ids, known = getattr(self, name), {*getattr(self, other)}
            if strange := [one for one in ids if one not in known]:
                raise ValueError(f"{name} has {strange[0]!r:.60}, which is not in {other}.")
            if repeated := [one for one, count in Counter(ids).items() if count > 1]:
                raise ValueError(f"{name} has {repeated[0]!r:.60} twice.")

    def pi(self, query_id: str) -> float:
        """Return the probability that a query is drawn: the drawn share of its stratum."""
        stratum = self.strata[query_id]
        return self.counts[stratum] / self.sizes[stratum]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return Counter(self.strata.values())

    @cached_property
    def counts(self) -> Mapping[str, int]:
        return Counter(self.strata[one] for one in self.drawn)


def read_audit(folder: Path) -> AuditSample | None:
    """Return the sample of a test set; None before the first draw. Raise BadInput for a damaged file."""
    path = folder / AUDIT
    return row_as(AuditSample, json_file(path), str(path)) if path.exists() else None


def draw(folder: Path, judged: JudgedSet, size: int, seed: int) -> AuditSample:
    """Draw the sample of a test set, or enlarge it to `size` queries. Write and return the sample.

    The first draw stops at the pilot. Once people have checked all drawn queries, a draw enlarges the sample to `size`.
    Then the sample has at least two queries from each stratum that has two, even if this exceeds `size`. A smaller
    `size` removes nothing. Queries that left the test set leave the sample; added queries form new strata. seed: must
    be the same in all draws for a test set; otherwise, raise BadInput.
    """
    with held(folder, AUDIT, "draws for"):
        before = read_audit(folder)
        if before and before.seed != seed:
            raise BadInput(
                f"audit.seed={seed}, but {folder / AUDIT} was drawn with {before.seed}. A new draw after people have "
                f"judged would not be random. Give audit.seed={before.seed}."
            )
        after = draw_sample(before, judged, size, seed)
        if after != before:
            row = encoded(after) | {"strata": dict(sorted(after.strata.items()))}
            write_text(folder / AUDIT, json.dumps(row, ensure_ascii=False, indent=1) + "\n")
    return after


def draw_sample(before: AuditSample | None, judged: JudgedSet, size: int, seed: int) -> AuditSample:
    """Draw as `draw` does, without reading or writing files."""
    old, values = before or AuditSample(seed, {}), _Values(judged)
    strata = {query_id: stratum for query_id, stratum in old.strata.items() if query_id in judged.queries}
    drawn, twice = (tuple(one for one in of if one in strata) for of in (old.drawn, old.twice))
    old = replace(old, strata=strata, drawn=drawn, twice=twice)
    new = _strata(values, [one for one in judged.queries if one not in strata], size, old)
    sample = replace(old, strata={**strata, **new})
    if all(map(judged.checked, drawn)):
        sample = _enlarged(sample, values, size)
    again = {*twice, *{*sample.drawn[AGAIN - 1 :: AGAIN]}.difference(drawn)}
    return replace(sample, twice=tuple(one for one in sample.drawn if one in again))


def _enlarged(sample: AuditSample, values: _Values, size: int) -> AuditSample:
    members: dict[str, list[str]] = defaultdict(list)
    for query_id, stratum in sample.strata.items():
        members[stratum].append(query_id)
    names, already = sorted(members), {*sample.drawn}
    sizes, counts = ([of[name] for name in names] for of in (sample.sizes, sample.counts))
    if size < sum(sizes) and sum(counts) < min(PILOT, size):
        wanted = apportion(sizes, counts, sizes, min(PILOT, size))
    else:
        checked = [[values.difference(one) for one in members[name] if one in already] for name in names]
        kinds = [name.partition("/")[0] for name in names]
        weights = [count * spread for count, spread in zip(sizes, spreads(checked, kinds), strict=True)]
        wanted = apportion(weights, [max(2, count) for count in counts], sizes, size)
    new: list[str] = []
    for name, then, now in zip(names, counts, wanted, strict=True):
        new += _ordered(set(members[name]) - already, sample.seed)[: now - then]
    return replace(sample, drawn=(*sample.drawn, *_ordered(new, sample.seed)))


def _strata(values: _Values, queries: Sequence[str], size: int, old: AuditSample) -> dict[str, str]:
    """Return query_id -> stratum, for new queries. A kind is divided into two or three classes of difficulty if at
    least two queries can be drawn from each class."""
    groups: dict[str, list[str]] = defaultdict(list)
    kinds = {query_id: values.judged.queries[query_id].kind for query_id in queries}
    judged = {kind for query_id, kind in kinds.items() if values.known(query_id)}
    for query_id in _ordered(queries, old.seed):
        kind = kinds[query_id]
        groups[kind if values.known(query_id) or kind not in judged else f"{kind}/{UNKNOWN}"].append(query_id)
    batches = {name.rpartition(ADDED)[2] for name in old.sizes if ADDED in name}
    batch = f"{ADDED}{len(batches) + 1}" if old.strata else ""
    found: dict[str, str] = {}
    for name, group in groups.items():
        expected = min(size, len(queries)) * len(group) / len(queries)
        levels = LEVELS[max(1, min(3, int(expected / 2))) if name in judged else 1]
        for place, query_id in enumerate(sorted(group, key=values.model, reverse=True)):
            found[query_id] = name + levels[place * len(levels) // len(group)] + batch
    return found


class _Values:
    """The values of queries by people's and by the model's judgements.

    The value of a query is the mean nDCG of the pooled runs, computed from the pooled part of their rankings. Grades
    below `RELEVANT_FROM` and missing grades count as 0. A query that needs no retrieval has the value 0."""

    def __init__(self, judged: JudgedSet) -> None:
        queries = tuple(judged.queries.values())
        self.judged = judged
        self._model = resolve(judged.judgements, queries, judged.pairs, by="model")
        self._people = resolve(judged.judgements, queries, judged.pairs, by="people")
        self._runs = sorted({run for pair in judged.pairs for run in pair.ranks})

    def known(self, query_id: str) -> bool:
        return bool(self._runs) and bool(self._model.grades[query_id])

    def model(self, query_id: str) -> float:
        return self._of(query_id, self._model)

    def difference(self, query_id: str) -> float:
        """Return people's value minus the model's."""
        return self._of(query_id, self._people) - self.model(query_id)

    def _of(self, query_id: str, resolved: Resolved) -> float:
        need = resolved.needs.get(query_id)
        if not self._runs or (need and not need.needs):
            return 0.0
        grades = {doc_id: one.grade for doc_id, one in resolved.grades[query_id].items() if one.grade >= RELEVANT_FROM}
        if not (ideal := _dcg(enumerate(sorted(grades.values(), reverse=True), start=1))):
            return 0.0
        pairs = self.judged.pooled[query_id]
        found = [
            _dcg((pair.ranks[run], grades.get(pair.doc_id, 0)) for pair in pairs if run in pair.ranks)
            for run in self._runs
        ]
        return sum(found) / len(found) / ideal


def _dcg(ranked: Iterable[tuple[int, int]]) -> float:
    """Return the sum of grade / log2(rank + 1) for (rank, grade) pairs."""
    return sum(grade / math.log2(rank + 1) for rank, grade in ranked)


def _ordered(queries: Iterable[str], seed: int) -> list[str]:
    return sorted(queries, key=lambda one: (hashlib.sha256(f"{seed}:{one}".encode()).hexdigest(), one))


@dataclass(frozen=True)
class Progress:
    """The progress of an audit.

    drawn: number of drawn queries. checked: drawn queries that people have judged in full.
    stand_for: number of queries, checked or not, in the strata of the checked queries.
    open: number of questions about checked queries on which people disagree or cannot tell.
    not_blind: number of judgements left out because they are not blind.
    """

    drawn: int
    checked: tuple[str, ...]
    stand_for: int
    open: int
    not_blind: int


@dataclass(frozen=True)
class RaterAgreement:
    """The agreement of two raters. counts: [a][b] is the number of pairs with grade a by the first rater and grade b by
    the second rater. If they judged the need for retrieval, the grades are 1 for yes and 0 for no."""

    first: str
    second: str
    counts: tuple[tuple[int, ...], ...]
    statistics: Mapping[str, DesignEstimate]


@dataclass(frozen=True)
class Audit:
    """The comparison of judges on the checked queries.

    models: models that judged pairs.
    model: agreement of people and the model; None if they judged no pair in common.
    kinds: kind of query -> agreement of people and the model on its pairs.
    people: agreement of every two people who judged pairs in common.
    alpha: Krippendorff's alpha of all people; None if no pair was judged by two people.
    again: agreement of people with their own first judgements; None if no person judged a pair twice.
    needs: agreement of people with the drafted kinds on the need for retrieval. differing: queries where they differ.
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


def blind(judged: JudgedSet) -> JudgedSet:
    """Return the test set without people's judgements that are not blind."""
    kept = [one for one in judged.judgements if one.blind or one.basis != HUMAN]
    return JudgedSet(judged.queries, judged.pairs, kept)


def audited(judged: JudgedSet, sample: AuditSample, relevant_from: int, seed: int = 0) -> Audit:
    """Compare the judges on the queries that people have checked. seed: seed of the resampling."""
    every, judged = judged, blind(judged)
    checked = tuple(one for one in sample.drawn if one in judged.queries and judged.checked(one))
    rows = {query_id: row for row, query_id in enumerate(checked)}
    design = Drawn(tuple(sample.strata[one] for one in checked), sample.sizes)

    def compared(first: str, second: str, rated: Sequence[Rated], of: Mapping[str, Statistic]) -> RaterAgreement:
        classes = len(GRADES) if "quadratic_kappa" in of else 2
        queries, ours, theirs = zip(*rated, strict=True) if rated else ((), (), ())
        tables = agreement.tables_of([rows[one] for one in queries], ours, theirs, (len(rows), classes))
        counts = tuple(tuple(int(cell) for cell in row) for row in tables.sum(axis=0))
        return RaterAgreement(first, second, counts, agreement.estimates(tables, design, of, seed))

    of_people, of_model = _grade_statistics(relevant_from)
    queries, wanted = [judged.queries[one] for one in checked], {*checked}
    pairs = [pair for one in checked for pair in judged.pooled[one]]
    said = [one for one in judged.judgements if one.query_id in wanted]
    people, model = (resolve(said, queries, pairs, relevant_from, by) for by in ("people", "model"))
    kinds: dict[str, list[Rated]] = defaultdict(list)
    for query_id in checked:
        both = ((one.grade, model.grades[query_id].get(doc_id)) for doc_id, one in people.grades[query_id].items())
        kinds[judged.queries[query_id].kind] += [(query_id, first, of.grade) for first, of in both if of]
    by_kind = {kind: compared("people", "model", kinds[kind], of_model) for kind in sorted(kinds) if kinds[kind]}
    grades = _grades_by_person(said)
    of_two: dict[tuple[str, str], list[Rated]] = defaultdict(list)
    for (query_id, _), persons in grades.items():
        for first, second in combinations(sorted(persons), 2):
            of_two[first, second].append((query_id, persons[first][0], persons[second][0]))
    again = [(pair[0], of[0], of[1]) for pair, persons in grades.items() for of in persons.values() if len(of) > 1]
    needs = [
        (one, int(people.needs[one].needs), int(judged.queries[one].kind != "none"))
        for one in checked
        if one in people.needs
    ]
    return Audit(
        relevant_from=relevant_from,
        progress=Progress(
            drawn=len(sample.drawn),
            checked=checked,
            stand_for=sum(sample.sizes[one] for one in {sample.strata[one] for one in checked}),
            open=sum(one.what in ("people disagree", "cannot tell") for one in people.open),
            not_blind=len(every.judgements) - len(judged.judgements),
        ),
        models=tuple(sorted({of[-1].judge for (one, _), of in judged.of_models.items() if one in wanted})),
        model=compared("people", "model", [*chain.from_iterable(kinds.values())], of_model) if by_kind else None,
        kinds=by_kind,
        people=tuple(compared(*names, rated, of_people) for names, rated in sorted(of_two.items())),
        alpha=_alpha(grades, rows, design, seed),
        again=compared("first time", "second time", again, of_people) if again else None,
        needs=compared("people", "draft", needs, NEED_STATISTICS),
        differing=tuple(query_id for query_id, first, second in needs if first != second),
    )


NEED_STATISTICS = {
    "agreed": Statistic(agreement.agreed, "no query"),
    "kappa": Statistic(agreement.kappa, "one rater says the same of all queries"),
}


def _grade_statistics(relevant_from: int) -> tuple[dict[str, Statistic], dict[str, Statistic]]:
    """Return (the statistics for two people, the statistics for people and a model)."""

    def sides(of: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        return lambda tables: of(agreement.at_threshold(tables, relevant_from))

    side = f"one rater gives all pairs, or no pair, at least grade {relevant_from}"
    people = {
        "agreed": Statistic(agreement.agreed, "no pair"),
        "kappa": Statistic(sides(agreement.kappa), side),
        "quadratic_kappa": Statistic(agreement.kappa, "one rater gives every pair the same grade"),
    }
    none, every = (f"people find {some} of the pairs relevant" for some in ("none", "all"))
    return people, {
        **people,
        "sensitivity": Statistic(sides(agreement.sensitivity), none),
        "specificity": Statistic(sides(agreement.specificity), every),
    }


def _grades_by_person(said: Iterable[Judgement]) -> dict[Pair, dict[str, list[int]]]:
    """Return pair -> person -> this person's grades for the audit: the first, then any second one."""
    found: dict[Pair, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for one in said:
        if one.basis == HUMAN and one.sample == "audit" and one.grade is not None:
            found[one.pair][one.judge][one.round] = one.grade
    return {
        pair: {person: [grade for _, grade in sorted(rounds.items())] for person, rounds in persons.items()}
        for pair, persons in found.items()
    }


def _alpha(
    grades: Mapping[Pair, Mapping[str, Sequence[int]]], rows: Mapping[str, int], design: Drawn, seed: int
) -> DesignEstimate | None:
    """Return Krippendorff's alpha of people's first grades; None if no pair was judged by two people."""
    units = [(rows[query_id], persons) for (query_id, _), persons in grades.items() if len(persons) > 1]
    if not units:
        return None
    counts = np.array([np.bincount([one[0] for one in of.values()], minlength=len(GRADES)) for _, of in units])
    tables = np.zeros((len(rows), len(GRADES), len(GRADES)))
    np.add.at(tables, [row for row, _ in units], agreement.coincidences(counts))
    alpha = {"alpha": Statistic(agreement.alpha, "all raters give every pair the same grade")}
    return agreement.estimates(tables, design, alpha, seed)["alpha"]


@dataclass(frozen=True)
class Width:
    """Half the width of the 95 % interval of a run's mean value; NaN without an interval. together: from people's and
    the model's labels (PPI++). people: from people's labels alone. checked: number of queries that people have settled
    and the model has judged."""

    checked: int
    together: float
    people: float


@dataclass(frozen=True)
class Worth:
    """How far checking more queries would narrow the interval of the pooled run that is best by the model's labels.
    more: the expected width after `MORE` further queries, or after all if fewer are left; None if none is left."""

    metric: str
    run: str
    now: Width
    more: Width | None


def measure_of(metric: str, pool: Pool) -> Measure:
    """Return the measure `metric`. Raise BadInput unless its value for a query depends on pooled documents alone."""
    try:
        one = parse_measure(metric)
    except BadInput as error:
        raise BadInput(str(error).replace("metrics: ", "metric: ", 1)) from None
    if one.family in (MeasureFamily.ABSTENTION, MeasureFamily.POOLED) or of_spans(metric):
        raise BadInput(
            f"metric: {one.name} cannot be computed for each query from judged documents. Give another measure, such "
            "as ndcg@10."
        )
    depths = [run.depth for run in pool.about.runs.values()]
    if depths and (one.k is None or one.k > min(depths)):
        reads = f"reads {one.k} documents" if one.k else "reads whole lists"
        raise BadInput(
            f"metric: {one.name} {reads}, but only the first {min(depths)} of each run are pooled (pool.depth). Give "
            f"{one.name.partition('@')[0]}@{min(depths)}, or pool more."
        )
    return one


def worth(
    judged: JudgedSet, pool: Pool, sample: AuditSample, measure: Measure, relevant_from: int, seed: int = 0
) -> Worth | None:
    """Estimate how far checking more queries would narrow the interval of the best run's mean. Return None if no run
    was pooled, no model has judged, or people have settled no query. seed: seed of the random draws."""
    if not judged.of_models:
        return None
    checked = _checked(judged, sample, relevant_from)
    runs = {run_id: pooled_ranking(judged.pairs, run_id) for run_id in pool.about.runs}
    found = {run_id: checked_values({measure: lists}, checked, [*checked.strata]) for run_id, lists in runs.items()}
    best = max(found, key=lambda one: (_mean(found[one].model[measure.name]), one), default=None)
    if best is None or not checked.people.grades:
        return None
    values, applies = found[best], ~np.isnan(found[best].model[measure.name])
    _, strata = np.unique(np.array(values.strata, dtype=str), return_inverse=True)
    people = np.where(values.checked, values.people[measure.name], np.nan)
    known = CheckedSample(*(of[applies] for of in (people, values.model[measure.name], values.checked, strata)))
    more = None
    if left := min(MORE, int((~known.checked).sum())):
        generator = np.random.default_rng(seed)
        widths = [_width(_imagined(known, strata[applies], left, generator)) for _ in range(IMAGINED)]
        more = Width(widths[0].checked, _mean([one.together for one in widths]), _mean([one.people for one in widths]))
    return Worth(measure.name, pool.about.runs[best].name or best[:8], _width(known), more)


def _checked(judged: JudgedSet, sample: AuditSample, relevant_from: int) -> Checked:
    """Return the labels by the model and by people. Queries of which the model has not judged all pooled documents
    are left out. Labels by people exist only for drawn queries that people have settled."""
    queries = [one for query_id, one in judged.queries.items() if query_id in sample.strata]
    given = judged.judgements, queries, judged.pairs, relevant_from
    model, people = resolve(*given, by="model"), resolve(*given, by="people")
    lacking = {one.query_id for one in model.open if one.what != "answered"}
    known = [one for one in queries if one.query.query_id not in lacking]
    settled = {*sample.drawn} & people.settled
    return Checked(
        model=qrels_of(map(model.label, known)),
        people=qrels_of(people.label(one) for one in known if one.query.query_id in settled),
        strata={one.query.query_id: sample.strata[one.query.query_id] for one in known},
    )


def _imagined(sample: CheckedSample, strata: np.ndarray, more: int, generator: np.random.Generator) -> CheckedSample:
    """Return the sample as if people had checked `more` further queries. A linear regression on the model's values
    predicts people's value for each of these queries. To this value, add the residual of a checked query, drawn at
    random from the same stratum or, if nothing is checked there, from all strata."""
    known = sample.checked & ~np.isnan(sample.people)
    slope = 0.0
    if known.any():
        off_people, off_model = (of[known] - of[known].mean() for of in (sample.people, sample.model))
        spread = float((off_model**2).sum())
        slope = min(max(float((off_people * off_model).sum()) / spread, 0.0), 1.0) if spread else 0.0
    gaps = sample.people - slope * sample.model
    people, checked = sample.people.copy(), sample.checked.copy()
    for place in generator.permutation(np.flatnonzero(~checked))[:more]:
        alike = np.flatnonzero(known & (strata == strata[place]))
        gap = gaps[generator.choice(alike if len(alike) else np.flatnonzero(known))]
        people[place], checked[place] = np.clip(slope * sample.model[place] + gap, 0, 1), True
    return replace(sample, people=people, checked=checked)


def _width(sample: CheckedSample) -> Width:
    both, alone = estimate(sample), estimate(replace(sample, model=np.zeros(len(sample.model))))
    return Width(both.checked, (both.high - both.low) / 2, (alone.high - alone.low) / 2)


def _mean(values: Sequence[float] | np.ndarray) -> float:
    known = [one for one in values if not math.isnan(one)]
    return float(np.mean(known)) if known else math.nan
