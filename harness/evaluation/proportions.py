"""Proportions of few cases, with Wilson's interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959963984540054  # the normal quantile of a 95 % interval


@dataclass(frozen=True)
class Proportion:
    """`count` of `of` cases; `of` > 0."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval (1927), which keeps to [0, 1] and has a width even where all cases are the same."""
        centre = self.share + Z**2 / (2 * self.of)
        margin = Z * math.sqrt(self.share * (1 - self.share) / self.of + Z**2 / (4 * self.of**2))
        scale = 1 + Z**2 / self.of
        low, high = (centre - margin) / scale, (centre + margin) / scale
        return (0.0 if self.count == 0 else low), (1.0 if self.count == self.of else high)

    def text(self) -> str:
        """`18 of 20 (90 %, 95 % interval 70 to 97 %)`."""
        low, high = (100 * end for end in self.interval)
        return f"{self.count:,} of {self.of:,} ({100 * self.share:.0f} %, 95 % interval {low:.0f} to {high:.0f} %)"
