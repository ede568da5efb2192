"""What a text task is: items judged, counts that are summed, measures made of the sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.pipeline.cache import Cache

Tallies = Mapping[str, np.ndarray]  # name -> float64 [N]

Marked = Sequence[tuple[str, str]]  # pieces of a text with their marks, "" for none


@dataclass(frozen=True, eq=False)
class JudgedItems:
    """Predictions held against references: N items, in the order of the references.

    kinds:   the kind of each item, such as its question type; the public part is drawn from each kind alike.
    tallies: name -> float64 [N], finite; what does not apply to an item counts 0 for it.
    table:   column -> N cells (text, number or None), what people read of each item.
    marked:  column of the table -> N texts in pieces with marks, for pages that can show them.
    absent:  measure -> why it is not to be had.
    notes:   what else people should know of the data.
    """

    item_ids: tuple[str, ...]
    kinds: tuple[str, ...]
    tallies: dict[str, np.ndarray]
    table: dict[str, list[Any]]
    marked: dict[str, list[Marked]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TextTask(Protocol):
    """Predictions and references of one kind. Constructors check their arguments and load nothing.

    measures: what `measure` gives, the objective among them. counts: tallies whose sums people want to see.
    part: measure -> tally that says which items enter it; all do where it names none.
    version: of the measures; runs of different versions are not compared.
    """

    name: str
    measures: tuple[str, ...]
    counts: tuple[str, ...]
    part: Mapping[str, str]
    version: int

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """Read both files, pair by id, tally. wanted: measures; what none of them needs is not computed."""
        ...

    def measure(self, sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every measure from sums of tallies, each of any shape [...]; NaN where it is undefined or not tallied."""
        ...
