"""The lists that are scored: what each query is shown, and the lists that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.config.text import counted
from harness.evaluation.losses import SHOWN
from harness.evaluation.measures import Measure
from retrievers.base import Predictions, Ranking

Lists = Ranking | Predictions
DEEP = 100  # documents from which on a list that may be cut counts as whole: what a run retrieves by default


@dataclass(frozen=True, eq=False)
class ShownLists:
    """The lists shown for each query and the lists they were made from. All have the same queries in the same rows.

    final: the exported lists.
    deep: the gated lists before the cut to `top_k`; None if unknown.
    candidates: the full-depth lists before the gate, for losses and ceilings.
    keep: bool [rows of final], whether the gate shows documents.
    signal: float64 [rows of final], the signal the gate decided by.
    rankings: name -> component ranking, for the oracle fusion.
    top_k: length of the cut; required with `deep`.
    complete: whether the lists end because the system found nothing more; False for lists that may have been cut.
    """

    final: Lists
    deep: Lists | None = None
    candidates: Lists | None = None
    keep: np.ndarray | None = None
    signal: np.ndarray | None = None
    rankings: Mapping[str, Ranking] = field(default_factory=dict)
    top_k: int | None = None
    complete: bool = True

    def __post_init__(self) -> None:
        others = [lists for lists in (self.deep, self.candidates, *self.rankings.values()) if lists is not None]
        if any(lists.query_ids != self.final.query_ids for lists in others):
            raise ValueError("final, deep, candidates and rankings must have the same queries in the same rows")
        if self.deep is not None and self.top_k is None:
            raise ValueError("deep needs top_k, which decides the measures that read it")

    def beyond(self, measures: Sequence[Measure]) -> dict[str, str]:
        """Measure of rankings -> why it is unknown: of a file that may be cut, those that read deeper than it goes.

        A measure without a cut-off reads whole lists.
        """
        if self.complete:
            return {}
        longest = self._longest
        of_rankings = [measure for measure in measures if measure.family.of_rankings]
        deeper = [measure.name for measure in of_rankings if (measure.reach or DEEP) > longest]
        return dict.fromkeys(deeper, f"the longest list has {counted(longest, 'document')}")

    @property
    def are_cut(self) -> bool:
        """Whether relevant documents that were found may be missing: lists that may be cut, and end with the score."""
        return not self.complete and self._longest <= SHOWN

    @property
    def _longest(self) -> int:
        return int((self.final.docs >= 0).sum(axis=1).max(initial=0))

    def reads_final(self, measure: Measure) -> bool:
        """Whether a measure reads the final lists; the others read `deep`."""
        in_final = self.top_k is not None and measure.reach is not None and measure.reach <= self.top_k
        return self.deep is None or in_final or not measure.family.of_rankings
