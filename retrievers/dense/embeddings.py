"""Embeddings on disk and in memory. Equal texts are encoded once, and an interrupted call can be resumed."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from retrievers.base import Progress, new_array

# Vectors are written to disk when one of these limits is reached. A killed process loses those not yet written.
WRITE_SECONDS, WRITE_BYTES = 10.0, 64 << 20
COPIED = 1 << 16  # number of rows copied at a time

# Yields (rows int64 [n], vectors of these rows float32 [n, D]), in any order.
Vectors = Generator[tuple[np.ndarray, np.ndarray], None, None]

# Is called once, with the rows of distinct texts, int64 [n], and whether each of them is still to encode, bool [n].
# Yields each of these rows at most once, and all that are still to encode.
Encode = Callable[[np.ndarray, np.ndarray], Vectors]


class BadVector(ValueError):
    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"the vector of text {row} {reason}")
        self.row, self.reason = row, reason


def write_embeddings(texts: Sequence[str], folder: Path, encode: Encode, progress: Progress | None = None) -> None:
    """Write the vectors of N texts to folder/embeddings.npy, float32 [N, D]; shape [0, 0] without texts.

    After an interruption, a call with the same folder and texts encodes only the texts whose vectors are not on disk
    yet. If `encode` groups all texts, whether encoded or not, into the same batches, the vectors have the same bits as
    without the interruption. Raise BadVector if a vector is not finite, or if the vectors differ in length.

    progress: called as progress(done, total, "documents"), first with the number of documents already on disk.
    """
    blocks, finished = Blocks(folder), folder / "embeddings.npy"
    if not finished.exists():
        owners = _owners(texts)
        left, width = owners == np.arange(len(owners)), 0
        for part in blocks.read():
            left[part["rows"]], width = False, part["vectors"].shape[1]
        with closing(_encoded(encode, owners, left, width, progress, "documents")) as batches, blocks:
            for rows, vectors in batches:
                width = vectors.shape[1]
                blocks.add(rows=rows, vectors=vectors)
        write_whole(finished, lambda file: _assemble(file, blocks, owners, width))
    blocks.remove()


def collect_embeddings(texts: Sequence[str], encode: Encode, progress: Progress | None = None) -> np.ndarray:
    """Return the vectors of Q texts, float32 [Q, D]. `write_embeddings` explains the arguments and errors."""
    owners = _owners(texts)
    embeddings = np.zeros((len(texts), 0), np.float32)
    with closing(_encoded(encode, owners, owners == np.arange(len(owners)), 0, progress, "queries")) as batches:
        for rows, vectors in batches:
            if not embeddings.size:
                embeddings = np.zeros((len(texts), vectors.shape[1]), np.float32)
            embeddings[rows] = vectors
    return embeddings[owners]


def _encoded(
    encode: Encode, owners: np.ndarray, left: np.ndarray, width: int,
    progress: Progress | None, unit: str,
) -> Vectors:  # fmt: skip
    """Yield and check the vectors of the rows where `left`, bool [N], is true. width: vector length; 0 if unknown."""
    copies = np.bincount(owners, minlength=len(owners))  # number of texts that share a row's vector
    done = int(copies[~left].sum())
    if progress:
        progress(done, len(owners), unit)
    if not left.any():
        return
    distinct = np.flatnonzero(copies)
    with closing(encode(distinct, left[distinct])) as batches:
        for rows, vectors in batches:
            width = width or vectors.shape[1]
            if vectors.shape[1] != width:
                raise BadVector(int(rows[0]), f"has {vectors.shape[1]} dimensions where others have {width}")
            bad = ~np.isfinite(vectors).all(axis=1)
            if bad.any():
                raise BadVector(int(rows[bad][0]), "contains NaN or infinity")
            new = left[rows]
            yield rows[new], vectors[new]
            done += int(copies[rows[new]].sum())
            if progress:
                progress(done, len(owners), unit)


def _assemble(file: BinaryIO, blocks: Blocks, owners: np.ndarray, width: int) -> None:
    embeddings = new_array(Path(file.name), np.float32, len(owners), width)
    written = np.zeros(len(owners), bool)
    for part in blocks.read():
        embeddings[part["rows"]], written[part["rows"]] = part["vectors"], True
    if not written[owners].all():
        raise RuntimeError("the encoder left texts out")
    repeats = np.flatnonzero(owners != np.arange(len(owners)))
    for first in range(0, len(repeats), COPIED):
        rows = repeats[first : first + COPIED]
        embeddings[rows] = embeddings[owners[rows]]


def _owners(texts: Sequence[str]) -> np.ndarray:
    """Return, for each text, the row of the first text equal to it, int64 [N]. Only these rows are encoded."""
    first: dict[str, int] = {}
    return np.fromiter((first.setdefault(text, row) for row, text in enumerate(texts)), np.int64, len(texts))


class Blocks:
    """Named arrays, added in parts and kept in files named by checksum. The end of `with` writes unwritten parts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: list[dict[str, np.ndarray]] = []
        self._size, self._began = 0, time.monotonic()

    def add(self, **part: np.ndarray) -> None:
        """Add a part: array name -> array. `write` joins arrays of the same name along the first dimension."""
        self._parts.append(part)
        self._size += sum(array.nbytes for array in part.values())
        if self._size >= WRITE_BYTES or time.monotonic() - self._began >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        if self._parts:
            buffer = io.BytesIO()
            joined: Any = {name: np.concatenate([one[name] for one in self._parts]) for name in self._parts[0]}
            np.savez(buffer, **joined)
            content = buffer.getvalue()
            name = f"block-{hashlib.sha256(content).hexdigest()}.npz"
            write_whole(self._folder / name, lambda file: file.write(content))
        self._parts, self._size, self._began = [], 0, time.monotonic()

    def read(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield all parts on disk. Delete damaged files, so that the caller computes their parts again."""
        for path in sorted(self._folder.glob("block-*.npz")):
            content = path.read_bytes()
            if path.stem == f"block-{hashlib.sha256(content).hexdigest()}":
                with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                    yield dict(arrays)
            else:
                path.unlink()

    def remove(self) -> None:
        for path in self._folder.glob("block-*"):
            path.unlink()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.write()


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file that is complete or absent, even after a crash."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w+b") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
