"""A fusion that learns from labels. It keeps a fixed fusion unless another scores higher on held-out queries.

Weights are chosen from a grid: each point is a normalisation of scores or ranks, and a weight for each ranking. The
objective of each query at each point is computed once, so learning from a part of the queries is arithmetic on a table.

The ranker adjusts the chosen weights by a logistic regression of relevance on a candidate's features. Regularisation
keeps coefficients near 0, except for the score by these weights. So few labels hardly change the order of candidates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.fusion.pool import CandidatePool, FusionLabels
from harness.fusion.rule import VERSION, FusionRule
from harness.gates import calibration
from harness.gates.calibration import CLOSE
from harness.gates.learned import INNER, Folds, Repeats
from harness.progress import watch
from harness.storage.typed import encoded
from retrievers.base import Ranking
from retrievers.combine.fusion import WeightedSum

START = "z_score"  # the normalisation of the fixed fusion and of fusion=weighted_sum
NORMALISATIONS = (START, "min_max", "reciprocal_rank_60", "reciprocal_rank_10")
POINTS = 100  # maximum number of weightings to try with each normalisation
FINEST = 20  # maximum number of equal steps between the weights 0 and 1
FEATURES = ("z_score", "min_max", "reciprocal_rank_10", "returned")  # what the ranker reads from each ranking
STRENGTHS = (0.1, 1.0)  # inverse strengths of regularisation that the ranker tries
FIRST = 20  # the ranker learns from this many documents at the top of each ranking
MOST = 500  # maximum number of queries that the ranker learns from; a few coefficients need no more
ANCHORED = 10.0  # factor by which the fusion's score is enlarged, so that its coefficient is penalised less
STEPS = 100  # maximum number of steps of Newton's method; about ten are enough
Weights = Mapping[tuple[str, str], float]  # (ranking, feature) -> weight

FIXED, WEIGHTS = "fixed", "weights"
TRIED = (FIXED, WEIGHTS, *(f"ranker, strength {strength:g}" for strength in STRENGTHS))


class LearnedFusion:
    """Learns from labels how to fuse two or more component rankings.

    Learning starts from a fixed fusion, the sum of z-scores with the given weights. Another normalisation, other
    weights, or a logistic regression replace the fixed fusion only if held-out queries gain more than a standard error.

    weights: ranking name -> weight in the fixed fusion, 0 to 1e9, by default 1.
    folds: number of parts into which labelled queries are split; each part is fused by a rule learnt without it.
    repeats: number of different splits into folds. If the gate learns, its folds and repeats are used instead.
    """

    recorded_as = "fusion/learned"
    version = 1
    learns = True

    def __init__(self, weights: dict[str, float] | None = None, folds: Folds = 10, repeats: Repeats = 5) -> None:
        calibration.check_splits(folds, repeats)
        self._fixed = WeightedSum(weights=weights)
        self._weights, self.folds, self.repeats = weights or {}, folds, repeats

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput if there is only one ranking, if a weight names no ranking, or if all weights are 0."""
        if len(names) < 2:
            raise BadInput(
                f"fusion=learned learns how to fuse several rankings, but the retriever has only {', '.join(names)}. "
                "Choose a retriever with several, such as retriever=hybrid_lexical, or leave fusion=learned out."
            )
        self._fixed.check(names)

    def learn(self, rankings: Mapping[str, Ranking], depth: int, labels: FusionLabels) -> Learning:
        start = {name: float(self._weights.get(name, 1.0)) for name in sorted(rankings)}
        return Learning(rankings, depth, labels, start)


@dataclass(frozen=True)
class Learnt:
    """What was learnt. held_out: kind of rule -> mean objective on held-out queries; empty for too few queries."""

    rule: FusionRule
    chosen: str
    held_out: Mapping[str, float]
    why: str


class Learning:
    """Learns rules from the labels of any subset of `pool.rows`, the n labelled queries. Each rule is learnt once."""

    def __init__(
        self, rankings: Mapping[str, Ranking], depth: int, labels: FusionLabels, start: Mapping[str, float]
    ) -> None:
        self.pool = CandidatePool(rankings, depth, labels)
        self._rankings, self._depth, self._objective = rankings, depth, labels.objective
        self._names, self._ids = sorted(rankings), next(iter(rankings.values())).query_ids
        self.every = np.ones(len(self.pool.rows), bool)
        self._grid = WeightGrid(self.pool, start)
        self._ranker = Ranker(self.pool, self._names)
        self._learnt: dict[bytes, Learnt] = {}
        self._corrected: dict[tuple[bytes, int], list[Weights]] = {}

    def split(self, count: int, number: int, used: np.ndarray | None = None) -> np.ndarray:
        """Return each query's fold, int [n]; -1 if unused. Different values of `number` give different splits."""
        rows = np.flatnonzero(self.every if used is None else used)
        fold = np.full(len(self.pool.rows), -1)
        fold[rows] = calibration.split(self.pool.needs[rows], count, self.pool.seed, number)
        return fold

    def learnt(self, used: np.ndarray) -> Learnt:
        """Return the result of learning from the queries in `used`, bool [n]."""
        key = np.packbits(used).tobytes()
        if key not in self._learnt:
            self._learnt[key] = self._learn(used)
        return self._learnt[key]

    def crossed(self, fold: np.ndarray) -> Ranking:
        """Fuse the queries of each fold by a rule learnt from the other folds.

        If all n queries of `pool.rows` have a fold, all other queries are fused by the rule learnt from these n.
        Otherwise, every query without a fold gets an empty list.

        fold: int [n]; -1 for queries without a fold.
        """
        rules: dict[FusionRule, list[int]] = {}
        for training, held_out in calibration.held_out(fold):
            rules.setdefault(self.learnt(training).rule, []).extend(self.pool.rows[held_out].tolist())
        if (fold >= 0).all():
            rest = np.setdiff1d(np.arange(len(self._ids)), self.pool.rows)
            rules.setdefault(self.learnt(self.every).rule, []).extend(rest.tolist())
        return self._by_rules(rules)

    def unseen(self, used: np.ndarray) -> Ranking:
        """Split the queries in `used`, bool [n], into INNER folds, and return the result of `crossed` for them."""
        return self.crossed(self.split(INNER, 0, used))

    def fused(self) -> Ranking:
        return self.learnt(self.every).rule.fuse(self._rankings, self._depth)

    def to_json(self) -> dict[str, Any]:
        """Return the content of fusion.json: the rule learnt from all labels, and its objective on the same labels."""
        found, needs = self.learnt(self.every), self.pool.needs
        rows = np.arange(len(needs))
        notes = []
        if not self.pool.relevant.any():
            notes.append("no relevant document is among the candidates: all fusions are equally good")
        if len(needs) == 1:
            notes.append("only one query to learn from: none can be held out")
        return {
            "version": VERSION,
            "rule": encoded(found.rule),
            "chosen": found.chosen,
            "why": found.why,
            "objective": self._objective,
            "depth": self._depth,
            "learnt_from": {"queries": len(needs), "needs_no_retrieval": int((~needs).sum())},
            "in_sample": {
                FIXED: float(self._grid.values[0].mean()),
                "chosen": float(self.pool.earned(self.pool.scores(found.rule.weights, rows), rows).mean()),
            },
            "held_out": dict(found.held_out),
            "notes": notes,
        }

    def _learn(self, used: np.ndarray) -> Learnt:
        if used.sum() < 2:
            rule = FusionRule.of(self._names, self._grid.points[0])
            return Learnt(rule, FIXED, {}, "Too few queries to hold some out.")
        fold, point = self.split(INNER, 0, used), self._grid.pick(used)
        earned = np.full((len(TRIED), len(used)), np.nan)
        earned[0] = self._grid.values[0]
        for training, outside in calibration.held_out(fold):
            held_out = np.flatnonzero(outside)
            picked = self._grid.pick(training)
            earned[1, held_out] = self._grid.values[picked, held_out]
            for row, weights in enumerate(self._correct(picked, training), start=2):
                earned[row, held_out] = self.pool.earned(self.pool.scores(weights, held_out), held_out)
        earned = earned[:, used]
        held = dict(zip(TRIED, earned.mean(axis=1).tolist(), strict=True))
        gain, error = _paired(earned[1] - earned[0])
        simple, why = 0, "On held-out queries, neither other weights nor the ranker gain more than one standard error."
        if gain > error + CLOSE:
            simple, why = 1, _because(gain, error, "the fixed fusion")
        best = 2 + int(earned[2:].mean(axis=1).argmax())
        gain, error = _paired(earned[best] - earned[simple])
        if gain > error + CLOSE:
            why = _because(gain, error, ("the fixed fusion", "the weights alone")[simple])
            weights, chosen = self._correct(point, used)[best - 2], TRIED[best]
        else:
            weights, chosen = self._grid.points[point * simple], TRIED[simple]
        return Learnt(FusionRule.of(self._names, weights), chosen, held, why)

    def _correct(self, point: int, used: np.ndarray) -> list[Weights]:
        key = np.packbits(used).tobytes(), point
        if key not in self._corrected:
            self._corrected[key] = self._ranker.learn(self._grid.points[point], used)
        return self._corrected[key]

    def _by_rules(self, rules: Mapping[FusionRule, Sequence[int]]) -> Ranking:
        docs = np.full((len(self._ids), self._depth), -1, np.int32)
        scores = np.zeros(docs.shape)
        doc_ids: tuple[str, ...] = ()
        for rule, listed in rules.items():
            rows = np.array(listed, int)
            fused = rule.fuse({name: ranking.take(rows) for name, ranking in self._rankings.items()}, self._depth)
            docs[rows, : fused.docs.shape[1]], scores[rows, : fused.docs.shape[1]] = fused.docs, fused.scores
            doc_ids = fused.doc_ids
        return Ranking(self._ids, doc_ids, docs, scores)


def _paired(differences: np.ndarray) -> tuple[float, float]:
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def _because(gain: float, error: float, simpler: str) -> str:
    return f"On held-out queries, this earns {gain:.4f} more than {simpler}, with a standard error of {error:.4f}."


class WeightGrid:
    """The G weightings to try. points: each weighting as (ranking, feature) -> weight; the first is the fixed fusion.
    values: the objective of each query with each weighting, float64 [G, n].
    """

    def __init__(self, pool: CandidatePool, start: Mapping[str, float]) -> None:
        names, total = list(start), sum(start.values())
        places = [(START, np.array([start[name] / total for name in names]))]
        places += [(kind, weights) for kind in NORMALISATIONS for weights in simplex(len(names))]
        self.points: list[Weights] = [{(name, START): weight for name, weight in start.items()}]
        self.points += [
            {(name, kind): float(weight) for name, weight in zip(names, weights, strict=True) if weight}
            for kind, weights in places[1:]
        ]
        # The distance of each point from the fixed fusion, plus 1 / FINEST if the normalisation is not START.
        self._far = np.array(
            [np.abs(weights - places[0][1]).sum() + (kind != START) / FINEST for kind, weights in places]
        )
        every = np.arange(len(pool.rows))
        self.values = np.empty((len(self.points), len(every)))
        with watch("fusion") as progress:
            for number, point in enumerate(self.points):
                self.values[number] = pool.earned(pool.scores(point, every), every)
                progress(number + 1, len(self.points), "weightings")
        self._squares = self.values**2

    def pick(self, used: np.ndarray) -> int:
        """Return the index of the weighting nearest to the fixed fusion, among all that are about as good as the best.

        A weighting is about as good if its mean objective over the queries in `used`, bool [n], is lower than the best
        by at most one standard error of the paired difference (after Breiman et al. 1984).
        """
        count = int(used.sum())
        if count < 2:
            return 0
        weight = used.astype(np.float64)
        totals, squares = self.values @ weight, self._squares @ weight
        best = int((totals > totals.max() - CLOSE).argmax())
        less = (totals[best] - totals) / count
        spread = squares - 2 * self.values @ (self.values[best] * weight) + squares[best]
        error = np.sqrt(np.maximum(spread / count - less**2, 0) / (count - 1))
        near = np.flatnonzero(less <= error + CLOSE)
        return int(near[self._far[near].argmin()])


def simplex(size: int) -> Iterator[np.ndarray]:
    """Yield at most POINTS weightings: weights of at least 0 that add up to 1, float64 [size]."""
    finer = (steps for steps in range(FINEST, 1, -1) if math.comb(steps + size - 1, size - 1) <= POINTS)
    steps = next(finer, 1)
    for walls in itertools.combinations(range(steps + size - 1), size - 1):
        ends = np.array([-1, *walls, steps + size - 1])
        yield (np.diff(ends) - 1) / steps


class Ranker:
    """Learns a logistic regression of relevance from the candidates near the top of any ranking.

    Each query has the same weight. Half of it goes to the relevant candidates, half to the other candidates.
    """

    def __init__(self, pool: CandidatePool, names: list[str]) -> None:
        self._pool, self._features = pool, [(name, feature) for name in names for feature in FEATURES]
        near = pool.near(FIRST)
        relevant = pool.relevant & near
        hits, misses = relevant.sum(axis=1), (near & ~relevant).sum(axis=1)
        teaching = np.flatnonzero((hits > 0) & (misses > 0))
        teaching = teaching[:: max(1, -(-len(teaching) // MOST))]
        kept = np.zeros(near.shape, bool)
        kept[teaching] = near[teaching]
        self._owner, self._column = np.nonzero(kept)
        self._relevant = relevant[self._owner, self._column].astype(np.float64)
        self._share = 0.5 / np.where(self._relevant > 0, hits[self._owner], misses[self._owner])
        self._values = np.column_stack([np.zeros(len(self._owner)), *(self._of(one) for one in self._features)])
        self._scores: dict[tuple[tuple[tuple[str, str], float], ...], np.ndarray] = {}

    def learn(self, fusion: Weights, used: np.ndarray) -> list[Weights]:
        """Return corrected weights of `fusion` for each of STRENGTHS, learnt from the queries in `used`, bool [n]."""
        rows = used[self._owner]
        if not rows.any():
            return [fusion] * len(STRENGTHS)
        columns = self._values[rows]
        columns[:, 0] = self._score(fusion)[rows]
        spread = columns.std(axis=0)
        flat = spread <= 1e-12 * np.abs(columns).max(axis=0)
        scale = np.where(flat, 1.0, spread)
        scale[0] /= ANCHORED
        scaled = np.where(flat, 0.0, (columns - columns.mean(axis=0)) / scale)
        relevant, share = self._relevant[rows], self._share[rows]
        found: list[Weights] = []
        for strength in STRENGTHS:
            first, *others = (regress(scaled, relevant, strength * share) / scale).tolist()
            learnt = {key: first * weight for key, weight in fusion.items()}
            for feature, weight in zip(self._features, others, strict=True):
                learnt[feature] = learnt.get(feature, 0.0) + weight
            found.append(learnt)
        return found

    def _score(self, fusion: Weights) -> np.ndarray:
        if (key := tuple(fusion.items())) not in self._scores:
            self._scores[key] = np.sum([weight * self._of(feature) for feature, weight in fusion.items()], axis=0)
        return self._scores[key]

    def _of(self, feature: tuple[str, str]) -> np.ndarray:
        found: np.ndarray = self._pool.feature(*feature)[self._owner, self._column]
        return found


def regress(columns: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the coefficients, float64 [F], of a logistic regression with a free intercept and an L2 penalty.

    Newton's method, whose steps are halved while they raise the loss, takes a fifth of the time of scikit-learn's
    LogisticRegression, and gives the same result.

    columns: float64 [m, F]. labels: 1 or 0, float64 [m]. weights: the weights of the m rows, float64 [m].
    """
    columns = np.column_stack([np.ones(len(columns)), columns])
    held = np.array([0.0, *np.ones(columns.shape[1] - 1)])
    signs = np.where(labels > 0, -1.0, 1.0)

    def loss(found: np.ndarray, logits: np.ndarray) -> float:
        return float(weights @ np.logaddexp(0.0, signs * logits) + held @ found**2 / 2)

    found, logits = np.zeros(columns.shape[1]), np.zeros(len(columns))
    now = loss(found, logits)
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(logits, -500, 500)))
        slope = columns.T @ (weights * (chance - labels)) + held * found
        curve = columns.T @ ((weights * chance * (1 - chance))[:, None] * columns) + np.diag(held)
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        if slope @ step < 1e-10 * (1 + now):
            break
        change = columns @ step
        while (after := loss(found - step, logits - change)) > now and np.abs(step).max() > 1e-12:
            step, change = step / 2, change / 2
        found, logits, now = found - step, logits - change, after
    return found[1:]
