"""Text tasks: a task counts something for each item, sums the counts, and computes measures from the sums."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.config.canonical import digest
from harness.storage.cache import Cache

GIVEN = ("kind", "question", "source", "reference")  # columns that come from the references
ItemCounts = Mapping[str, np.ndarray]  # name -> float64 [N]
Marked = Sequence[tuple[str, str]]  # (piece of a text, its mark or "")


@dataclass(frozen=True, eq=False)
class JudgedItems:
    """Predictions compared with references: N items, in the order of the references.

    item_counts: count -> float64 [N], 0 where the count does not apply to the item.
    table: column -> N cells (text, number or None) to show to people; has the columns `id` and `kind`.
    marked: column -> N texts, each divided into pieces with their marks.
    absent: measure -> why it could not be computed.
    """

    item_counts: dict[str, np.ndarray]
    table: dict[str, list[Any]]
    marked: dict[str, list[Marked]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def item_ids(self) -> tuple[str, ...]:
        return tuple(self.table["id"])

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the items, such as question types. The public part contains the same share of each kind."""
        return tuple(self.table["kind"])

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """The sha256 of references and of predictions, whatever the format of a file and the order of its rows."""
        order = sorted(range(len(self.item_ids)), key=self.item_ids.__getitem__)
        columns = {"references": ("id", *GIVEN), "predictions": ("id", "prediction")}
        return {
            side: digest({name: [self.table[name][row] for row in order] for name in names if name in self.table})
            for side, names in columns.items()
        }


def nfc(text: str) -> str:
    """Return the text in Unicode's composed form, since Korean text from macOS is decomposed."""
    return unicodedata.normalize("NFC", text)


class TextTask(Protocol):
    """A way to compare predictions with references. Constructors check their arguments and load nothing.

    measures: the names that `measure` returns, including the objective.
    counts: the item counts whose sums are shown to people.
    subset: measure -> name of the count that is 1 for items that enter it, else 0. All items enter the other ones.
    version: the version of the measures; runs of different versions are not compared.
    """

    name: str
    measures: tuple[str, ...]
    counts: tuple[str, ...]
    subset: Mapping[str, str]
    version: int

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """Read both files, pair their items by id, and count what the measures in `wanted` need."""
        ...

    def marked(self, item: Mapping[str, str]) -> Marked:
        """Return the pieces of an item's prediction with their marks. item: a row of the table, all cells as text."""
        ...

    def measure(self, sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return measure -> values [...] from sums of item counts [...]; NaN if undefined or if a count is missing."""
        ...

    def says_nothing(self, sums: Mapping[str, float]) -> Collection[str]:
        """Return the measures that are 0/0 with these sums of counts, so that their value is only a convention."""
        ...
