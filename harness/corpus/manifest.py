"""What a documents folder holds, and what it was made of: its `manifest.json`, which is written last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.documents_folder import DOCUMENTS, FILES, MANIFEST, NEAR_DUPLICATES, VERSION
from harness.data.files import field, json_file, required, sha256_of
from harness.errors import BadInput
from harness.storage.atomic import write_text

SUMMED = (FILES, DOCUMENTS, NEAR_DUPLICATES)
COUNTS = ("files", "texts", "documents", "spans", "characters", "near_duplicates")
BINS = 10  # of the documents' lengths, about


@dataclass(frozen=True)
class Lengths:
    """How long the documents are, in characters. bins: (at most so many, how many documents), ascending."""

    least: int
    median: int
    most: int
    bins: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, lengths: np.ndarray) -> Lengths:
        """lengths: of at least one document."""
        most = int(lengths.max())
        step = next(size for power in range(20) for n in (1, 2, 5) if (size := n * 10**power) * BINS >= most)
        ends = range(step, most + step, step)
        counts = np.diff(np.searchsorted(np.sort(lengths), ends, side="right"), prepend=0)
        return cls(int(lengths.min()), int(np.median(lengths)), most, tuple(zip(ends, counts.tolist(), strict=True)))

    @classmethod
    def read(cls, value: Mapping[str, Any], where: str) -> Lengths:
        least, median, most = (_number(value, name, where) for name in ("least", "median", "most"))
        bins = field(value, "bins", list, where)
        if not all(isinstance(one, list) and [type(inner) for inner in one] == [int, int] for one in bins):
            raise BadInput(f"{where}: bins must be a list of pairs of whole numbers.")
        return cls(least, median, most, tuple((end, count) for end, count in bins))


@dataclass(frozen=True)
class Prepared:
    """What a documents folder holds.

    files, texts: how many; equal texts count once. spans: places of the documents. characters: of the texts.
    near_duplicates: pairs. skipped: path -> why the file could not be read.
    """

    files: int
    texts: int
    documents: int
    spans: int
    characters: int
    near_duplicates: int
    lengths: Lengths
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """inputs: digest of the files and settings. chunk: the settings. sums: name -> sha256 of the other files."""

    inputs: str
    chunk: Mapping[str, Any]
    prepared: Prepared
    sums: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write `manifest.json`; equal manifests give equal bytes."""
        row = {"version": VERSION, "inputs": self.inputs, "chunk": self.chunk}
        text = json.dumps({**row, **asdict(self.prepared), "sha256": self.sums}, ensure_ascii=False)
        write_text(folder / MANIFEST, f"{text}\n")

    def changed(self, folder: Path) -> str | None:
        """The first of the other files in a folder that is not as it was written; None if all are."""
        sums = self.sums.items()
        return next((one for one, sha in sums if not (folder / one).is_file() or sha256_of(folder / one) != sha), None)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in a finished folder. BadInput, with the file, for anything that is none."""
        path = folder / MANIFEST
        where, row = str(path), json_file(path)
        sums, skipped = field(row, "sha256", dict, where), field(row, "skipped", dict, where)
        if {*sums} != {*SUMMED} or not all(isinstance(one, str) for one in [*sums.values(), *skipped.values()]):
            raise BadInput(f"{where}: sha256 and skipped must hold texts, and sha256 one for {', '.join(SUMMED)}.")
        prepared = Prepared(
            **{name: _number(row, name, where) for name in COUNTS},
            lengths=Lengths.read(field(row, "lengths", dict, where), where),
            skipped=skipped,
        )
        return cls(field(row, "inputs", str, where), field(row, "chunk", dict, where), prepared, sums)


def _number(row: Mapping[str, Any], name: str, where: str) -> int:
    value = required(row, name, where)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{where}: {name} is {value!r:.60}, but must be a whole number, at least 0.")
    return value
