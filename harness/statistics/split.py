"""Divide queries into a public and a private part, and measure how the ranks of runs shift over many draws."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.data.qrels import Qrels
from retrievers.base import remembered


@dataclass(frozen=True)
class Split:
    """How labelled queries are divided into a public and a private part.

    public: the share of the public part, 0 to 1.
    seed: the seed of the draw and of the bootstrap.
    select_on: the queries that gates are fitted to and runs are ranked by.
    """

    public: float = 0.4
    seed: int = 0
    select_on: Literal["all", "public"] = "all"


def draw_public(item_ids: Sequence[str], strata: np.ndarray, seed: int, public: float = 0.4) -> np.ndarray:
    """Return the public part, bool [Q]: round(public * Q) items, the same share of each stratum. strata: int [Q].

    Only the ids and the seed decide: in each stratum, the items with the lowest hashes of `seed:id` are public.
    """
    draw = np.array([hashlib.sha256(f"{seed}:{item_id}".encode()).hexdigest() for item_id in item_ids], dtype="U64")
    chosen = np.zeros(len(item_ids), bool)
    for which, quota in quotas(strata, public).items():
        rows = np.flatnonzero(strata == which)
        chosen[rows[np.argsort(draw[rows])][:quota]] = True
    return chosen


def quotas(strata: np.ndarray, public: float) -> dict[int, int]:
    """Return stratum -> number of public items, by the largest-remainder method; ties go to the first stratum."""
    names, sizes = np.unique(strata, return_counts=True)
    whole = np.floor(public * sizes).astype(np.intp)
    left_over = round(public * len(strata)) - whole.sum()
    whole[np.argsort(whole - public * sizes, kind="stable")[:left_over]] += 1
    return dict(zip(names.tolist(), whole.tolist(), strict=True))


@remembered
def public_part(qrels: Qrels, *, scored: tuple[str, ...], multi_turn: frozenset[str], part: Split) -> np.ndarray:
    """Return whether each scored query is public, bool [Q]. The public part is drawn from all labelled queries."""
    labelled = list(qrels.grades)
    needs = np.array([qrels.needs_retrieval(query_id) for query_id in labelled])
    turns = np.array([query_id in multi_turn for query_id in labelled])
    chosen = dict(zip(labelled, draw_public(labelled, 2 * needs + turns, part.seed, part.public), strict=True))
    return np.array([chosen[query_id] for query_id in scored])


Score = Callable[[np.ndarray], np.ndarray]  # draws [R, N] (1 if the item is drawn, else 0) -> scores of M runs [M, R]

DRAWS = 1000
EXPECTED = 0.2  # if the parts' winners differ in at least this share of random splits, a disagreement is normal
_CELLS = 1 << 22  # maximum number of draws times items in memory at once


@dataclass(frozen=True, eq=False)
class ShakeUp:
    """The scores of M runs on R draws of a public and a private part, float64 [M, R]."""

    public: np.ndarray
    private: np.ndarray

    @property
    def shifts(self) -> np.ndarray:
        """The ranks lost from the public to the private leaderboard, int [M, R]; negative where ranks are gained."""
        return ranks(self.private) - ranks(self.public)

    @property
    def winner_loses(self) -> float:
        won = (ranks(self.public) == 1) & (ranks(self.private) == 1)
        return float(1 - won.any(axis=0).mean())

    def sentence(self, measure: str, public: float) -> str:
        """Return the shake-up in one sentence. public: the share of the public part, 0 to 1."""
        worst = np.abs(self.shifts).max(axis=0)
        draws, loses = self.public.shape[1], 100 * self.winner_loses
        return (
            f"By {measure}, with {100 * public:.0f} % public: in {loses:.0f} % of {draws:,} draws the "
            f"public winner is not the private winner; the largest rank shift is {np.median(worst):.0f} in the median "
            f"draw and {worst.max()} at most."
        )


@dataclass(frozen=True)
class Standing:
    """The scores of a run on the public and the private part (None for an empty part), and its ranks there."""

    public: float | None
    public_rank: int
    private: float | None
    private_rank: int


@dataclass(frozen=True)
class RunShifts:
    """How the rank of a run shifts.

    mean_shift: how far apart the run's ranks in the two parts of a draw are, on average.
    shifts: ranks lost from the public to the private part (negative if ranks are gained) -> number of draws.
    """

    label: str
    mean_shift: float
    shifts: Mapping[str, int]


@dataclass(frozen=True)
class ShakeUpSummary:
    """How ranks shift over new draws. winner_loses: share of draws whose public winner is not the private winner."""

    draws: int
    winner_loses: float
    runs: tuple[RunShifts, ...]


@dataclass(frozen=True)
class Standings:
    """The standing of each run, None if the runs have different public parts. shake_up: None if a part is empty."""

    boards: tuple[Standing | None, ...]
    shake_up: ShakeUpSummary | None = None
    notes: tuple[str, ...] = ()


def standings(
    score: Score, public: np.ndarray, strata: np.ndarray, labels: Sequence[str], measure: str, seed: int
) -> Standings:
    """Return the scores and ranks of M runs on both parts, and how ranks shift over new draws of the parts.

    public: bool [N], whether an item is in the public part. strata: int [N].
    """
    scores = [
        score(inside[None].astype(np.float64)) if inside.any() else np.full((len(labels), 1), np.nan)
        for inside in (public, ~public)
    ]
    halves = [
        [(value if np.isfinite(value) else None, rank) for value, rank in zip(of[:, 0].tolist(), placed, strict=True)]
        for of, placed in ((one, ranks(one)[:, 0].tolist()) for one in scores)
    ]
    boards = tuple(Standing(*shown, *hidden) for shown, hidden in zip(*halves, strict=True))
    if public.all() or not public.any():
        return Standings(boards)
    share = float(public.mean())
    shaken = shake_up(score, strata, share, seed)
    rows = []
    for label, row in zip(labels, shaken.shifts, strict=True):
        counts = zip(*np.unique(row, return_counts=True), strict=True)
        shifts = {str(shift): int(count) for shift, count in counts}
        rows.append(RunShifts(label, float(np.abs(row).mean()), shifts))
    lost = not any(board.public_rank == board.private_rank == 1 for board in boards)
    notes = (*([_disagree(boards, shaken)] if lost else []), shaken.sentence(measure, share))
    return Standings(boards, ShakeUpSummary(shaken.public.shape[1], shaken.winner_loses, tuple(rows)), notes)


def _disagree(boards: Sequence[Standing], shaken: ShakeUp) -> str:
    private = [board.private or 0.0 for board in boards]
    gap = max(private) - max(value for value, board in zip(private, boards, strict=True) if board.public_rank == 1)
    said = f"Public and private disagree on the winner (the public winner is {gap:.3f} behind in the private part)"
    if shaken.winner_loses >= EXPECTED:
        return f"{said}: expected for runs this close."
    return f"{said}. Only {100 * shaken.winner_loses:.0f} % of random splits disagree, so these two parts differ."


def shake_up(score: Score, strata: np.ndarray, public: float, seed: int, draws: int = DRAWS) -> ShakeUp:
    """Draw the public part many times and score both parts. strata: int [N]. public: the share drawn per stratum."""
    generator = np.random.default_rng(seed)
    shares = quotas(strata, public)
    rows = {which: np.flatnonzero(strata == which) for which in shares}
    parts = []
    step = max(1, _CELLS // len(strata))
    for start in range(0, draws, step):
        drawn = np.zeros((min(step, draws - start), len(strata)))
        for which, quota in shares.items():
            keys = generator.random((len(drawn), len(rows[which])))
            first = np.argpartition(keys, min(quota, keys.shape[1] - 1), axis=1)[:, :quota]
            np.put_along_axis(drawn, rows[which][first], 1, axis=1)
        parts.append((score(drawn), score(1 - drawn)))
    shown, hidden = zip(*parts, strict=True)
    return ShakeUp(np.hstack(shown), np.hstack(hidden))


def ranks(scores: np.ndarray) -> np.ndarray:
    """Return ranks, int [M, R]: 1 + the number of runs whose score is greater by more than a rounding error."""
    return 1 + (scores[None] > scores[:, None] + 1e-12).sum(axis=1)
