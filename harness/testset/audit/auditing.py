"""What an audit shows: how far the model agrees with people, people with each other, and each person with themselves.

Only judgements that people made for the audit count, and of those only blind ones: who sees the model's grade tends to
give the same. The estimates hold for all queries of the strata, each pair counting as often as its query stands for
others; see `harness.statistics.agreement`.

The audit also says what checking more queries is worth: how wide the interval of a run's mean is now, and how wide it
would be with more.

People check queries that are drawn at random from strata, so that their findings hold for all queries.

audit.json: {seed, strata: {query: stratum}, drawn: [query, ...], twice: [query, ...]}. Strata are fixed by the first
draw. Later draws only add queries, so that a larger audit contains the smaller one.

Strata are kinds of queries, divided by how hard the model's judgements make them for the pooled runs. A pilot of ten
queries is drawn in proportion to the sizes of the strata. Once people have checked it, the rest is drawn in proportion
to size times spread of the difference between people's and the model's values (Neyman 1934).

Strata are drawn from unequally, so every estimate must weight them by size: the sum of W_s * mean_s, W_s being the
share of stratum s. This is unbiased for any numbers that are fixed beforehand. Here they depend on the pilot, which is
part of the sample: where differences are skewed, a stratum whose pilot shows the large ones is drawn from more, and a
bias of the order of 1/n remains. Simulated with 40 of 270 queries: none where differences are symmetric; 0.1 to 0.2
standard errors where one query in seven is far off and all others agree, which costs an interval half a point of
coverage at most. The standard error is smaller by 1 to 10 % than with numbers in proportion to size.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np

from harness.data.files import json_file
from harness.data.labels import Checked, qrels_of
from harness.errors import BadInput
from harness.measures.checked_values import CheckedValues, checked_values
from harness.measures.measures import Measure, MeasureFamily, of_spans, parse_measure
from harness.statistics import agreement
from harness.statistics.agreement import DesignEstimate, Drawn, Statistic
from harness.statistics.prediction_powered import CheckedSample, estimate
from harness.storage.atomic import write_text
from harness.storage.typed import fields_of, row_as
from harness.testset.judge.judgements import GRADES, HUMAN, JudgedSet, Judgement, Pair, held
from harness.testset.pool.pool import Pool, PooledPair
from harness.testset.review.resolution import RELEVANT_FROM, Resolved, resolve
from retrievers.base import Predictions

_PRIOR = 2.0  # degrees of freedom that the spread of the larger whole counts for


def apportion(weights: Sequence[float], least: Sequence[int], most: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to weights (Webster's method: one after the other, to the largest w / (n + 1/2)).

    least, most: bounds of each number; they go before proportion and total. Equal quotients: the first comes first.
    Where all weights that are left are 0, the rest is not given. A larger total gives no smaller number.
    """
    counts = [min(low, high) for low, high in zip(least, most, strict=True)]
    queue = [
        (-weight / (count + 0.5), place)
        for place, (weight, count) in enumerate(zip(weights, counts, strict=True))
        if weight > 0 and count < most[place]
    ]
    heapq.heapify(queue)
    for _ in range(total - sum(counts)):
        if not queue:
            break
        _, place = heapq.heappop(queue)
        counts[place] += 1
        if counts[place] < most[place]:
            heapq.heappush(queue, (-weights[place] / (counts[place] + 0.5), place))
    return counts


def spreads(strata: Sequence[Sequence[float]], groups: Sequence[str]) -> list[float]:
    """Return the standard deviation of each stratum, from few values: sqrt((SS + 2 V) / (n - 1 + 2)).

    SS: the sum of squares around the mean of the stratum's n values. V: the variance of its group, estimated in the
    same way from the group's values and the variance of all. So a stratum with a single value has the spread of its
    group, and none has 0 because its few values happen to agree. Without two values in all, or if all agree, every
    spread is 1.

    groups: of each stratum.
    """
    everything = [value for stratum in strata for value in stratum]
    overall = float(np.var(everything, ddof=1)) if len(everything) > 1 else 0.0
    if overall == 0:
        return [1.0] * len(strata)
    members: dict[str, list[float]] = {}
    for stratum, group in zip(strata, groups, strict=True):
        members.setdefault(group, []).extend(stratum)
    prior = {group: _variance(values, overall) for group, values in members.items()}
    return [math.sqrt(_variance(stratum, prior[group])) for stratum, group in zip(strata, groups, strict=True)]


def _variance(values: Sequence[float], prior: float) -> float:
    """Return the variance of few values, drawn towards `prior`."""
    squares = len(values) * float(np.var(values)) if len(values) else 0.0
    return (squares + _PRIOR * prior) / (max(len(values) - 1, 0) + _PRIOR)


AUDIT = "audit.json"
PILOT = 10  # queries of the first draw
AGAIN = 5  # each of this many drawn queries is judged twice
LEVELS = {1: ("",), 2: ("/easier", "/harder"), 3: ("/easy", "/medium", "/hard")}  # by the number of classes
UNKNOWN = "unjudged"  # the class of queries that no model has judged, or no run was pooled for
ADDED = "/added "  # before the number of a later draw that found new queries


@dataclass(frozen=True)
class AuditSample:
    """The queries of an audit.

    seed: of the draw. strata: query_id -> stratum (its kind and how hard it is), of every query that could be drawn.
    drawn: the drawn queries in the order of the draw. twice: those of them that are judged a second time.
    """

    seed: int
    strata: Mapping[str, str]
    drawn: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, but must be a whole number from 0.")
        known = {"drawn": ("strata", {*self.strata}), "twice": ("drawn", {*self.drawn})}
        for name, (other, those) in known.items():
            ids = getattr(self, name)
            if strange := [one for one in ids if one not in those]:
                raise ValueError(f"{name} has {strange[0]!r:.60}, which {other} does not have.")
            if repeated := [one for one, count in Counter(ids).items() if count > 1]:
                raise ValueError(f"{name} has {repeated[0]!r:.60} twice.")

    def pi(self, query_id: str) -> float:
        """Return the probability with which a query of its stratum was drawn."""
        stratum = self.strata[query_id]
        return self.counts[stratum] / self.sizes[stratum]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Stratum -> the number of its queries."""
        return Counter(self.strata.values())

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Stratum -> the number of its drawn queries."""
        return Counter(self.strata[one] for one in self.drawn)


def read_audit(folder: Path) -> AuditSample | None:
    """Return the sample of a test set; None before the first draw. Raise BadInput for wrong rows."""
    path = folder / AUDIT
    if not path.exists():
        return None
    try:
        return row_as(AuditSample, json_file(path), str(path))
    except BadInput as error:
        raise BadInput(f"{error} Only `harness testset review` writes this file; put back what it wrote.") from None


def draw(folder: Path, judged: JudgedSet, size: int, seed: int) -> AuditSample:
    """Return the sample of a test set, drawn or enlarged to `size` queries, and written.

    The first draw stops at the pilot; the first call after people have checked it goes on. Each stratum gives at least
    two queries if it has them, for which `size` may be exceeded. Nothing is taken back where `size` is smaller than
    before. Queries that left the test set leave the sample; those that were added form strata of their own.

    size: of the sample in the end. seed: of the first draw; later ones must repeat it.
    """
    with held(folder, AUDIT, "draws for"):
        before = read_audit(folder)
        if before and before.seed != seed:
            raise BadInput(
                f"audit.seed={seed}, but {folder / AUDIT} was drawn with {before.seed}. A sample that is drawn "
                f"again after people have judged is a chosen one: give audit.seed={before.seed}."
            )
        after = draw_sample(before, judged, size, seed)
        if after != before:
            row = fields_of(after) | {"strata": dict(sorted(after.strata.items()))}
            write_text(folder / AUDIT, json.dumps(row, ensure_ascii=False, indent=1) + "\n")
    return after


def draw_sample(before: AuditSample | None, judged: JudgedSet, size: int, seed: int) -> AuditSample:
    """As `draw`, without any file."""
    old = _present(before, judged) if before else AuditSample(seed, {})
    values = _Values(judged)
    strata = {**old.strata, **_strata(values, [one for one in judged.queries if one not in old.strata], size, old)}
    sample = replace(old, strata=strata)
    if all(map(judged.checked, sample.drawn)):
        sample = _enlarged(sample, values, size)
    again = {*old.twice, *{*sample.drawn[AGAIN - 1 :: AGAIN]}.difference(old.drawn)}
    return replace(sample, twice=tuple(one for one in sample.drawn if one in again))


def _present(sample: AuditSample, judged: JudgedSet) -> AuditSample:
    """Without queries that have left the test set."""
    strata = {query_id: stratum for query_id, stratum in sample.strata.items() if query_id in judged.queries}
    drawn = tuple(one for one in sample.drawn if one in strata)
    return replace(sample, strata=strata, drawn=drawn, twice=tuple(one for one in sample.twice if one in strata))


def _enlarged(sample: AuditSample, values: _Values, size: int) -> AuditSample:
    """With more drawn queries. Within a stratum, a hash of seed and query decides who is drawn first."""
    members: dict[str, list[str]] = defaultdict(list)
    for query_id, stratum in sample.strata.items():
        members[stratum].append(query_id)
    names, already = sorted(members), {*sample.drawn}
    sizes, counts = [len(members[name]) for name in names], [sample.counts[name] for name in names]
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
    """query_id -> stratum, of queries that have none yet.

    A kind is divided by difficulty into as many classes, three at most, as leave each two of the queries to draw.
    """
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
    """What a query scores: the mean over the pooled runs of nDCG of what the pool knows of their rankings.

    Documents count from `RELEVANT_FROM` on, and are not relevant where nobody has judged them. A query that needs no
    retrieval scores 0, as the runs retrieve something for it.
    """

    def __init__(self, judged: JudgedSet) -> None:
        queries = tuple(judged.queries.values())
        self.judged = judged
        self._model = resolve(judged.judgements, queries, judged.pairs, by="model")
        self._people = resolve(judged.judgements, queries, judged.pairs, by="people")
        self._runs = sorted({run for pair in judged.pairs for run in pair.ranks})

    def known(self, query_id: str) -> bool:
        """Return whether the model's judgements say how hard a query is."""
        return bool(self._runs) and bool(self._model.grades[query_id])

    def model(self, query_id: str) -> float:
        return self._of(query_id, self._model)

    def difference(self, query_id: str) -> float:
        """People's value less the model's."""
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
    """Sum of grade / log2(rank + 1) over (rank, grade)."""
    return sum(grade / math.log2(rank + 1) for rank, grade in ranked)


def _ordered(queries: Iterable[str], seed: int) -> list[str]:
    return sorted(queries, key=lambda one: (hashlib.sha256(f"{seed}:{one}".encode()).hexdigest(), one))


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
    """Return the test set without what people judged with another judgement before their eyes."""
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
        """Return what people say of the checked queries, and what the model does."""
        queries = [self._judged.queries[one] for one in self._checked]
        pairs = [pair for one in self._checked for pair in self._judged.pooled[one]]
        said = [one for one in self._judged.judgements if one.query_id in self._row]
        return (
            resolve(said, queries, pairs, self._relevant_from, by="people"),
            resolve(said, queries, pairs, self._relevant_from, by="model"),
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
        """Return the models whose judgements of the checked queries count."""
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
    model, people = resolve(*given, by="model"), resolve(*given, by="people")
    lacking = {one.query_id for one in model.open if one.what != "answered"}
    known = [one for one in queries if one.query.query_id not in lacking]
    settled = {*sample.drawn} & people.settled
    return Checked(
        model=qrels_of(map(model.label, known)),
        people=qrels_of(people.label(one) for one in known if one.query.query_id in settled),
        strata={one.query.query_id: sample.strata[one.query.query_id] for one in known},
    )


def _lists(pairs: Iterable[PooledPair], run_id: str) -> Predictions:
    """Return the lists of a run, as far as they are pooled."""
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
