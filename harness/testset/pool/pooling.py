"""Pools (K. Sparck Jones and C. van Rijsbergen 1975), and whether their judgements can score other runs.

Reusability (J. Zobel 1998): each run is scored without the documents that no other run brought into the pool. The
drop of its score shows by how much the pool underrates a new run. A sample of documents that no run ranked high shows
how many relevant documents the pool misses (C.-E. Särndal et al. 1992).
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.config.text import counted
from harness.data.labels import UNANSWERABLE, Label
from harness.data.qrels import Qrels
from harness.data.testset import EvidencedQuery
from harness.measures.judged import judge_lists
from harness.measures.measures import parse_measure
from harness.testset.pool.pool import Pool, PooledPair, pairs_by_query, pooled_ranking
from harness.testset.review.resolution import Resolved

COPIES = 20  # A document brings at most 20 near-duplicates into the pool; a notice may be repeated thousands of times.


@dataclass(frozen=True)
class Sources:
    """Where the documents of a pool come from. lists: run id -> query_id -> documents, best first. seeds: query_id ->
    documents with evidence. groups: doc_id -> the document and all documents that nearly repeat it."""

    lists: Mapping[str, Mapping[str, Sequence[str]]]
    seeds: Mapping[str, Collection[str]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Draw:
    """A random draw of `sample` documents per query, from those below rank `depth` in the runs' lists."""

    depth: int
    sample: int
    seed: int


def pooled(
    query_ids: Iterable[str], before: Iterable[PooledPair], sources: Sources, draw: Draw
) -> tuple[PooledPair, ...]:
    """Return the pairs of a pool, sorted by query and document: the pairs in `before`, and pairs from the sources.

    The `pi` of a drawn pair becomes 1 if it now also comes from a run, has evidence or is a near-duplicate. If a query
    still has drawn documents, no more are drawn for it. The drawn documents are a sample of all documents that ranked
    below the pooled depth at the time of the draw.
    query_ids: the test set's queries; pairs of other queries are left out.
    """
    had = pairs_by_query(sorted(query_ids), before)
    return tuple(pair for query_id, pairs in had.items() for pair in _of_query(query_id, pairs, sources, draw))


def _of_query(query_id: str, had: Sequence[PooledPair], sources: Sources, draw: Draw) -> list[PooledPair]:
    ranks: dict[str, dict[str, int]] = {pair.doc_id: dict(pair.ranks) for pair in had}
    below: dict[str, None] = {}
    for run_id, lists in sources.lists.items():
        documents = lists.get(query_id, ())
        for rank, doc_id in enumerate(documents[: draw.depth], start=1):
            ranks.setdefault(doc_id, {})[run_id] = rank
        below |= dict.fromkeys(documents[draw.depth :])
    seeds = sources.seeds.get(query_id, ())
    groups = {seed: [one for one in sources.groups.get(seed, ()) if one != seed] for seed in seeds}
    near = {copy for copies in groups.values() for copy in copies[:COPIES]} - set(seeds)
    certain = {doc_id for doc_id, found in ranks.items() if found} | near | set(seeds)
    drawn = {pair.doc_id: pair.pi for pair in had if pair.doc_id not in certain}
    if not drawn:
        rest = [doc_id for doc_id in below if doc_id not in certain]
        chosen = _drawn(query_id, rest, draw)
        drawn = {doc_id: len(chosen) / len(rest) for doc_id in chosen}
    return [
        PooledPair(query_id, doc_id, ranks.get(doc_id, {}), doc_id in seeds, doc_id in near, drawn.get(doc_id, 1.0))
        for doc_id in sorted(certain | drawn.keys())
    ]


def _drawn(query_id: str, documents: Sequence[str], draw: Draw) -> list[str]:
    begun = hashlib.sha256(f"{draw.seed}\0{query_id}\0".encode("utf-8", "surrogatepass"))

    def place(doc_id: str) -> bytes:
        hashed = begun.copy()
        hashed.update(doc_id.encode("utf-8", "surrogatepass"))
        return hashed.digest()

    return heapq.nsmallest(draw.sample, documents, key=place)


DEEPEST = 10  # `reusability` computes nDCG@10, or nDCG at the smallest depth of a pooled run if that is less.


@dataclass(frozen=True)
class LeftOut:
    """The scores of a run with all labels, and without the labels of the pairs that no other run brought into the pool.

    alone: number of these pairs. score, place: the run's score with all labels, and its place among the runs, from 1.
    without, place_without: the same without the labels of these pairs.
    """

    run_id: str
    name: str
    alone: int
    score: float
    without: float
    place: int
    place_without: int

    @property
    def change(self) -> float:
        return self.without - self.score


@dataclass(frozen=True)
class Reusability:
    """How each run's score changes without the documents that only this run pooled. measure: name of the measure.
    queries: number of queries in the mean. runs: in the order of the pool."""

    measure: str
    queries: int
    runs: tuple[LeftOut, ...]

    @property
    def worst(self) -> LeftOut:
        return max(self.runs, key=lambda run: abs(run.change))

    @property
    def moved(self) -> int:
        return sum(run.place != run.place_without for run in self.runs)

    def text(self) -> str:
        one, count = self.worst, len(self.runs)
        changed = f"at most {abs(one.change):.3f} ({one.name}: {one.score:.3f} becomes {one.without:.3f})"
        moved = f"{self.moved} of {count} runs" if self.moved else "no run"
        return (
            f"Reusability: without the documents that no other run pooled, a run's {self.measure} would change by "
            f"{changed}, and {moved} would change places. This is based on {counted(self.queries, 'query')} whose "
            "pairs are all judged."
        )


@dataclass(frozen=True)
class Missed:
    """An estimate, from drawn documents, of how many relevant documents are not judged. All fields but
    `queries` are numbers of documents.

    judged: drawn documents with a grade. found: the relevant documents among them.
    below: estimated number of documents that could have been drawn. labelled: known relevant documents.
    estimated: estimate of all relevant documents in the lists, where each drawn document counts 1 / pi.
    error: standard error of `estimated`, for independent draws.
    """

    queries: int
    judged: int
    found: int
    below: float
    labelled: int
    estimated: float
    error: float

    def text(self) -> str:
        drawn = f"{self.judged:,} documents drawn from below pool.depth"
        on = f"This is based on {counted(self.queries, 'query')} whose pairs are all judged."
        if not self.found:
            most = 3 / self.judged * self.below  # by the rule of three, with 95 % confidence
            return f"None of {drawn} is relevant: with 95 % confidence, fewer than {most:,.0f} are missing. {on}"
        missing = self.estimated - self.labelled
        return (
            f"Judgements miss an estimated {missing:,.0f} of {self.estimated:,.0f} relevant documents that the runs "
            f"retrieved (standard error {self.error:,.0f}): {self.found:,} of {drawn} are relevant. {on}"
        )


def reusability(pool: Pool, resolved: Resolved, queries: Sequence[EvidencedQuery]) -> Reusability | None:
    """Estimate how far the pool underrates other runs' nDCG; None if it has fewer than two runs or no query counts.

    The measure is the nDCG of each run's pooled documents; the run's gate is ignored. A query counts if it needs
    retrieval and has an answer, and if all of its pooled pairs are judged.
    """
    labels = _settled(resolved, queries)
    runs = pool.about.runs
    if len(runs) < 2 or not labels:
        return None
    measure = parse_measure(f"ndcg@{min(DEEPEST, *(run.depth for run in runs.values()))}")
    pairs = [pair for pair in pool.pairs if pair.query_id in labels]
    rankings = {run_id: pooled_ranking(pairs, run_id, labels) for run_id in runs}

    @functools.cache
    def scores(left_out: str | None) -> dict[str, float]:
        """Return run id -> score, without the labels of pairs that only the run `left_out` brought into the pool."""
        qrels = _qrels(labels, [] if left_out is None else [one for one in pairs if _alone(one, left_out)])
        return {run_id: float(np.mean(measure.values(judge_lists(one, qrels)))) for run_id, one in rankings.items()}

    found = [
        LeftOut(
            run_id,
            run.name,
            sum(_alone(pair, run_id) for pair in pool.pairs),
            scores(None)[run_id],
            scores(run_id)[run_id],
            _place(scores(None), run_id),
            _place(scores(run_id), run_id),
        )
        for run_id, run in runs.items()
    ]
    return Reusability(measure.name, len(labels), tuple(found))


def missed(pool: Pool, resolved: Resolved, queries: Sequence[EvidencedQuery]) -> Missed | None:
    """Estimate how many relevant documents the judgements miss; None if no drawn document is judged. Use the same
    queries as `reusability`."""
    labels = _settled(resolved, queries)
    pairs = [pair for pair in pool.pairs if pair.query_id in labels]
    drawn = [pair for pair in pairs if pair.pi < 1]
    if not drawn:
        return None
    found = [pair.pi for pair in drawn if pair.doc_id in labels[pair.query_id].relevant]
    labelled = sum(len(label.relevant) for label in labels.values())
    return Missed(
        queries=len(labels),
        judged=len(drawn),
        found=len(found),
        below=sum(1 / pair.pi for pair in drawn),
        labelled=labelled,
        estimated=labelled + sum(1 / pi - 1 for pi in found),
        error=math.sqrt(sum((1 - pi) / pi**2 for pi in found)),
    )


def _settled(resolved: Resolved, queries: Sequence[EvidencedQuery]) -> dict[str, Label]:
    """Return query_id -> label, for queries that need retrieval, have an answer and have no open questions."""
    settled = resolved.settled
    labels = (resolved.label(one) for one in queries if one.query.query_id in settled)
    return {one.query_id: one for one in labels if one.needs and one.kind != UNANSWERABLE}


def _alone(pair: PooledPair, run_id: str) -> bool:
    return pair.ranks.keys() == {run_id} and not pair.seed and not pair.near_duplicate


def _qrels(labels: Mapping[str, Label], without: Sequence[PooledPair]) -> Qrels:
    """Return qrels without the pairs in `without`. A query without relevant documents still needs retrieval."""
    grades = {query_id: dict(one.relevant) for query_id, one in labels.items()}
    for pair in without:
        grades[pair.query_id].pop(pair.doc_id, None)
    return Qrels(grades, abstention=False)


def _place(scores: Mapping[str, float], run_id: str) -> int:
    return 1 + sum(other > scores[run_id] for other in scores.values())
