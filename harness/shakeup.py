"""How the ranks of submissions shift between a public and a private leaderboard, over many draws of the public part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.stats import quotas

DRAWS = 1000
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


def shake_up(
    score: Callable[[np.ndarray], np.ndarray], strata: np.ndarray, public: float, seed: int, draws: int = DRAWS
) -> ShakeUp:
    """Draw the public part again and again, from each stratum alike, and score both parts.

    score: items that count, float64 [R, N] of 0 and 1 -> scores of M submissions, float64 [M, R]. strata: int [N].
    """
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
