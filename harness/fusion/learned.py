"""The fusion that learns from labels: fixed, with learnt weights, or with a small ranker, if held-out queries agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import BadInput
from harness.fusion.pool import CandidatePool, FusionLabels
from harness.fusion.rule import VERSION, FusionRule
from harness.fusion.weights import STRENGTHS, Ranker, WeightGrid, Weights
from harness.gates import calibration
from harness.gates.calibration import CLOSE
from harness.gates.learned import INNER, Folds, Repeats
from harness.storage.typed import encoded
from retrievers.base import Ranking
from retrievers.combine.fusion import WeightedSum

FIXED, WEIGHTS = "fixed", "weights"
TRIED = (FIXED, WEIGHTS, *(f"ranker, strength {strength:g}" for strength in STRENGTHS))


class LearnedFusion:
    """Learns from labels how to fuse two or more component rankings.

    It starts from a fixed fusion: the sum of z-scores with the given weights. It changes weights and normalisation, or
    corrects them by a logistic regression, only if that earns more on held-out queries by over one standard error.

    weights: ranking name -> weight in the fixed fusion, 0 to 1e9; default 1.
    folds: of the labelled queries, for out-of-fold lists. repeats: how often they are split anew. With a gate that
        learns, the gate's folds and repeats are used for both.
    """

    recorded_as = "fusion/learned"
    version = 1
    learns = True

    def __init__(self, weights: dict[str, float] | None = None, folds: Folds = 10, repeats: Repeats = 5) -> None:
        calibration.check_splits(folds, repeats)
        self._fixed = WeightedSum(weights=weights)
        self._weights, self.folds, self.repeats = weights or {}, folds, repeats

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput for a single ranking, if a weight names no ranking, or if all weights are 0."""
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
    """What was learnt from some queries. held_out: mean objective of each of TRIED; empty with too few queries."""

    rule: FusionRule
    chosen: str
    held_out: Mapping[str, float]
    why: str


class Learning:
    """Rules from the labels of any part of the n queries `pool.rows`, each learnt once."""

    def __init__(
        self, rankings: Mapping[str, Ranking], depth: int, labels: FusionLabels, start: Mapping[str, float]
    ) -> None:
        self.pool = CandidatePool(rankings, depth, labels)
        self._rankings, self._depth, self._objective = rankings, depth, labels.objective
        self._names = sorted(rankings)
        self._grid = WeightGrid(self.pool, start)
        self._ranker = Ranker(self.pool, self._names)
        self._learnt: dict[bytes, Learnt] = {}
        self._corrected: dict[tuple[bytes, int], list[Weights]] = {}

    @property
    def every(self) -> np.ndarray:
        return np.ones(len(self.pool.rows), bool)

    def split(self, count: int, number: int, used: np.ndarray | None = None) -> np.ndarray:
        """Return the fold of each query, int [n]; -1: not used. Each number gives another split."""
        rows = np.flatnonzero(self.every if used is None else used)
        fold = np.full(len(self.pool.rows), -1)
        fold[rows] = calibration.split(self.pool.needs[rows], count, self.pool.seed, number)
        return fold

    def learnt(self, used: np.ndarray) -> Learnt:
        """Return what is learnt from the queries `used`, bool [n]."""
        key = np.packbits(used).tobytes()
        if key not in self._learnt:
            self._learnt[key] = self._learn(used)
        return self._learnt[key]

    def crossed(self, fold: np.ndarray) -> Ranking:
        """Fuse each query to learn from by a rule learnt without its fold, and all others by the final rule.

        fold: int [n]; -1: not used. If any is -1, the lists of all queries without a fold are empty.
        """
        rules: dict[FusionRule, list[int]] = {}
        for training, held_out in calibration.held_out(fold):
            rules.setdefault(self.learnt(training).rule, []).extend(self.pool.rows[held_out].tolist())
        if (fold >= 0).all():
            rest = np.setdiff1d(np.arange(len(self._ids)), self.pool.rows)
            rules.setdefault(self.learnt(self.every).rule, []).extend(rest.tolist())
        return self._by_rules(rules)

    def unseen(self, used: np.ndarray) -> Ranking:
        """Fuse each query in `used`, bool [n], by a rule learnt from others in it. All other lists are empty."""
        return self.crossed(self.split(INNER, 0, used))

    def fused(self) -> Ranking:
        return self.learnt(self.every).rule.fuse(self._rankings, self._depth)

    def to_json(self) -> dict[str, Any]:
        """Return the content of fusion.json: the rule learnt from all labels, and its score on them."""
        every = self.every
        found, needs = self.learnt(every), self.pool.needs
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

    @property
    def _ids(self) -> tuple[str, ...]:
        return next(iter(self._rankings.values())).query_ids

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
        simple, why = 0, "On held-out queries, neither other weights nor the ranker earn over one standard error more."
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
    return f"On held-out queries it earns {gain:.4f} more than {simpler}, with a standard error of {error:.4f}."
