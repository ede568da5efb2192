"""How the ranks of submissions shift between a public and a private leaderboard, over many draws of the public part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.evaluation.split import quotas

Score = Callable[[np.ndarray], np.ndarray]  # items that count, [R, N] of 0 and 1 -> scores of M submissions [M, R]

DRAWS = 1000
WARNING = (
    "Warning: the public winner is not the private winner. Who chooses by the public part takes one that is not the "
    "best on the rest."
)
_CELLS = 1 << 22  # items held at once: bounds the memory


@dataclass(frozen=True, eq=False)
class ShakeUp:
    """M submissions, scored on R draws of a public and a private part.

    public, private: float64 [M, R], their scores. Equal scores have equal ranks, the best of them.
    """

    public: np.ndarray
    private: np.ndarray

    @property
    def shifts(self) -> np.ndarray:
        """int [M, R]: ranks lost from the public to the private leaderboard; below 0: won."""
        return ranks(self.private) - ranks(self.public)

    @property
    def winner_loses(self) -> float:
        """Share of the draws in which no public winner wins the private leaderboard too."""
        won = (ranks(self.public) == 1) & (ranks(self.private) == 1)
        return float(1 - won.any(axis=0).mean())

    def sentence(self, measure: str, public: float) -> str:
        """What a person should know of it."""
        worst = np.abs(self.shifts).max(axis=0)
        return (
            f"By {measure}, with {public:.0%} public: in {self.winner_loses:.0%} of {self.public.shape[1]:,} draws the "
            f"public winner is not the private winner; the greatest shift of a rank is {np.median(worst):.0f} in the "
            f"median draw, {worst.max()} at most."
        )


def leaderboards(
    score: Score, public: np.ndarray, strata: np.ndarray, labels: Sequence[str], measure: str, seed: int
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[str]]:
    """(what each of M submissions scores and its rank on both parts, how ranks shift if the part is drawn anew, notes).

    public: bool [N], the part that counts. Nothing can shift where a part is empty: its scores and the shifts are None.
    """
    boards: list[dict[str, Any]] = [{} for _ in labels]
    for part, inside in (("public", public), ("private", ~public)):
        scores = score(inside[None].astype(np.float64)) if inside.any() else np.full((len(labels), 1), np.nan)
        for board, value, rank in zip(boards, scores[:, 0], ranks(scores)[:, 0], strict=True):
            board |= {part: float(value) if np.isfinite(value) else None, f"{part}_rank": int(rank)}
    if public.all() or not public.any():
        return boards, None, []
    share = float(public.mean())
    shaken = shake_up(score, strata, share, seed)
    rows = [
        {"label": label, "mean_shift": float(np.abs(row).mean()), "shifts": _counted(row)}
        for label, row in zip(labels, shaken.shifts, strict=True)
    ]
    told = {"draws": shaken.shifts.shape[1], "winner_loses": shaken.winner_loses, "runs": rows}
    lost = not any(board["public_rank"] == board["private_rank"] == 1 for board in boards)
    return boards, told, [*([WARNING] if lost else []), shaken.sentence(measure, share)]


def shake_up(score: Score, strata: np.ndarray, public: float, seed: int, draws: int = DRAWS) -> ShakeUp:
    """Draw the public part again and again, from each stratum alike, and score both parts. strata: int [N]."""
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
    """int [M, R]: 1 + how many of the M submissions are better by more than rounding."""
    return 1 + (scores[None] > scores[:, None] + 1e-12).sum(axis=1)


def _counted(shifts: np.ndarray) -> dict[str, int]:
    """Ranks lost -> in how many draws."""
    return {str(shift): int(count) for shift, count in zip(*np.unique(shifts, return_counts=True), strict=True)}
