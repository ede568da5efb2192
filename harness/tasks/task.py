"""A text task judges items by counts, sums the counts, and computes measures from the sums."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.storage.cache import Cache

ItemCounts = Mapping[str, np.ndarray]  # name -> float64 [N]

Marked = Sequence[tuple[str, str]]  # pieces of a text with their marks, "" for none


@dataclass(frozen=True, eq=False)
class JudgedItems:
    """Predictions compared with references: N items, in the order of the references.

    kinds: such as question types; the public part has the same share of each. item_counts: 0 where one does not apply.
    table: column -> N cells (text, number or None), for people. marked: column -> N texts in pieces with marks.
    absent: measure -> why it could not be computed.
    """

    item_ids: tuple[str, ...]
    kinds: tuple[str, ...]
    item_counts: dict[str, np.ndarray]
    table: dict[str, list[Any]]
    marked: dict[str, list[Marked]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def nfc(text: str) -> str:
    """Return the text in Unicode's composed form: Korean written on macOS comes decomposed."""
    return unicodedata.normalize("NFC", text)


class TextTask(Protocol):
    """Predictions and references of one kind. Constructors check their arguments and load nothing.

    measures: the names that `measure` returns, the objective among them.
    counts: the item counts whose sums are shown to people.
    subset: measure -> the item count, 0 or 1, of the items that enter it; all items enter the others.
    version: of the measures; runs of different versions are not compared.
    """

    name: str
    measures: tuple[str, ...]
    counts: tuple[str, ...]
    subset: Mapping[str, str]
    version: int

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """Read both files, pair their items by id, and count. wanted: compute only what these measures need."""
        ...

    def marked(self, item: Mapping[str, str]) -> Marked:
        """Return the prediction of an item in pieces with marks. item: a row of the table, as text."""
        ...

    def measure(self, sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every measure from sums of item counts, of any shape [...]; NaN if undefined or not counted."""
        ...

    def says_nothing(self, sums: Mapping[str, float]) -> Collection[str]:
        """Return the measures whose value is only a convention for items with these sums of counts."""
        ...
