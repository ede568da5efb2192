"""Writing embeddings, shared by encoders: equal texts are encoded once, and an interrupted call resumes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from retrievers.base import Progress

FLUSH_SECONDS = 2.0  # of work that a killed process loses at most
COPIED = 1 << 16  # rows copied at a time

# (rows int64 [n], their vectors float32 [n, D]), in any order.
Vectors = Generator[tuple[np.ndarray, np.ndarray], None, None]


class BadVector(ValueError):
    """An encoder gave an unusable vector.

    row: index of its text among the texts that were encoded.
    reason: what is wrong with the vector.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"the vector of text {row} {reason}")
        self.row = row
        self.reason = reason


def write_embeddings(
    texts: Sequence[str], folder: Path, encode: Callable[[np.ndarray], Vectors], progress: Progress | None = None
) -> None:
    """Write the vectors of N texts to folder/embeddings.npy, float32 [N, D]; without texts it is [0, 0].

    After an interruption of any kind, the next call with the same folder and texts encodes only what was not yet on
    disk, which is the last seconds' work. Vectors found on disk are used only if their checksum is right. Raise
    BadVector if a vector is not finite or not as long as the others.

    texts: N texts.
    folder: exists; empty, or left by an interrupted call.
    encode: called once with rows of distinct texts (int64 [n]); yields the vectors of each row once. Equal texts share
        one vector.
    progress: called as progress(done, total, "documents"); the first call reports what was already on disk.
    """
    if (folder / "embeddings.npy").exists():  # interrupted between writing this file and removing the journal
        (folder / "progress.jsonl").unlink(missing_ok=True)
        return
    owners = _owners(texts)
    copies = np.bincount(owners, minlength=len(texts))  # number of documents that share a row's vector
    unfinished = _Unfinished(folder, len(texts))
    done = int(copies[unfinished.done].sum())
    if progress:
        progress(done, len(texts), "documents")
    rows = np.flatnonzero((copies > 0) & ~unfinished.done)
    if len(rows):
        with closing(encode(rows)) as batches:
            try:
                for batch, vectors in batches:
                    unfinished.put(batch, vectors)
                    done += int(copies[batch].sum())
                    if progress:
                        progress(done, len(texts), "documents")
            finally:
                unfinished.flush()
    if not unfinished.done[owners].all():
        raise RuntimeError("the encoder left texts out")
    unfinished.finish(owners)


def collect_embeddings(
    texts: Sequence[str], encode: Callable[[np.ndarray], Vectors], progress: Progress | None = None
) -> np.ndarray:
    """Return the vectors of Q texts, float32 [Q, D]; without texts it is [0, 0].

    Arguments and errors are those of write_embeddings, but nothing is written; `progress` counts distinct queries.
    """
    owners = _owners(texts)
    rows = np.unique(owners)
    embeddings = np.zeros((0, 0), np.float32)
    if len(rows):
        with closing(encode(rows)) as batches:
            done = 0
            for batch, vectors in batches:
                if not embeddings.size:
                    embeddings = np.zeros((len(texts), vectors.shape[1]), np.float32)
                _check(batch, vectors, embeddings.shape[1])
                embeddings[batch] = vectors
                done += len(batch)
                if progress:
                    progress(done, len(rows), "queries")
    return embeddings[owners]


def _owners(texts: Sequence[str]) -> np.ndarray:
    """For each text the row of the first equal text, int64 [N]."""
    first: dict[str, int] = {}
    return np.fromiter((first.setdefault(text, row) for row, text in enumerate(texts)), np.int64, len(texts))


def _check(rows: np.ndarray, vectors: np.ndarray, dimensions: int) -> None:
    if vectors.shape[1] != dimensions:
        raise BadVector(int(rows[0]), f"has {vectors.shape[1]} dimensions where others have {dimensions}")
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise BadVector(int(rows[bad][0]), "contains NaN or infinity")


class _Unfinished:
    """Embeddings being written: partial.npy, a memory map, and progress.jsonl, a journal of its valid rows.

    A line of the journal lists rows and the sha256 of their vectors; it is written after them. So the checksum reveals
    a truncated line, or one whose vectors did not reach the disk, and such a line is ignored.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._finished = folder / "embeddings.npy"
        self._path, self._journal = folder / "partial.npy", folder / "progress.jsonl"
        self.done = np.zeros(count, bool)
        self._embeddings: np.memmap | None = None
        self._fresh: list[np.ndarray] = []  # rows added since the last line of the journal
        self._flushed = time.monotonic()
        self._resume()

    def _resume(self) -> None:
        try:
            embeddings = np.lib.format.open_memmap(self._path, "r+")
            for line in self._journal.read_bytes().splitlines():
                self.done[_valid_rows(line, embeddings)] = True
        except (FileNotFoundError, ValueError, EOFError):
            pass  # no earlier call got that far, or it was interrupted while creating the file
        if self.done.any():
            self._embeddings = embeddings
        else:
            self._journal.unlink(missing_ok=True)

    def put(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        if self._embeddings is None:
            self._embeddings = _reserved(self._path, (len(self.done), vectors.shape[1]))
        _check(rows, vectors, self._embeddings.shape[1])
        self._embeddings[rows] = vectors
        self.done[rows] = True
        self._fresh.append(rows)
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the vectors added so far to disk, then a line of the journal."""
        if self._embeddings is not None and self._fresh:
            rows = np.concatenate(self._fresh)
            self._embeddings.flush()
            line = json.dumps({"rows": rows.tolist(), "sha256": _digest(self._embeddings[rows])})
            with self._journal.open("a", encoding="ascii") as file:
                file.write(f"\n{line}")  # line break first: the previous line may be truncated
        self._fresh, self._flushed = [], time.monotonic()

    def finish(self, owners: np.ndarray) -> None:
        """Copy each vector to all equal texts and give the file its final name."""
        if self._embeddings is None:
            np.save(self._path, np.zeros((0, 0), np.float32), allow_pickle=False)
        else:
            repeats = np.flatnonzero(owners != np.arange(len(owners)))
            for start in range(0, len(repeats), COPIED):
                rows = repeats[start : start + COPIED]
                self._embeddings[rows] = self._embeddings[owners[rows]]
            self._embeddings.flush()
            self._embeddings = None  # closes it: some systems cannot rename an open file
        self._path.replace(self._finished)
        self._journal.unlink(missing_ok=True)


def _reserved(path: Path, shape: tuple[int, int]) -> np.memmap:
    """Return a new memory-mapped float32 array; raise OSError if the disk has no room for it.

    Without the reservation, a full disk would kill the process in the middle of the work.
    """
    embeddings = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return embeddings


def _valid_rows(line: bytes, embeddings: np.ndarray) -> np.ndarray:
    """Return the rows that a line of the journal lists; none if its checksum does not match their vectors."""
    try:
        entry = json.loads(line)
        rows = np.array(entry["rows"], np.int64)
        if rows.min() >= 0 and _digest(embeddings[rows]) == entry["sha256"]:
            return rows
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        pass  # truncated or damaged
    return np.zeros(0, np.int64)


def _digest(vectors: np.ndarray) -> str:
    return hashlib.sha256(vectors.tobytes()).hexdigest()
