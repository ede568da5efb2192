"""Which queries people check, so that what they find holds for all: drawn at random from strata.

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

How many to draw from each stratum.
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
from pathlib import Path

import numpy as np
from filelock import FileLock

from harness.data.files import json_file
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.storage.typed import fields_of, row_as
from harness.testset.judge.judgements import JudgedSet
from harness.testset.review.resolution import RELEVANT_FROM, Resolved, resolve_model_only, resolve_people_only

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
    """The standard deviation of each stratum, from few values: sqrt((SS + 2 V) / (n - 1 + 2)).

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
    """The variance of few values, drawn towards `prior`."""
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
        """The probability with which a query of its stratum was drawn."""
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
    """The sample of a test set, drawn or enlarged to `size` queries, and written.

    The first draw stops at the pilot; the first call after people have checked it goes on. Each stratum gives at least
    two queries if it has them, for which `size` may be exceeded. Nothing is taken back where `size` is smaller than
    before. Queries that left the test set leave the sample; those that were added form strata of their own.

    size: of the sample in the end. seed: of the first draw; later ones must repeat it.
    """
    with FileLock(folder / f".{AUDIT}.lock"):
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
        self._model = resolve_model_only(judged.judgements, queries, judged.pairs)
        self._people = resolve_people_only(judged.judgements, queries, judged.pairs)
        self._runs = sorted({run for pair in judged.pairs for run in pair.ranks})

    def known(self, query_id: str) -> bool:
        """Whether the model's judgements say how hard a query is."""
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
