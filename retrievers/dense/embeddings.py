"""The writer of embeddings, shared by encoders: equal texts once, and a stopped call is gone on with."""

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

FLUSH_SECONDS = 2.0  # of work that a kill loses at most
COPIED = 1 << 16  # rows copied at a time

# (rows int64 [n], their vectors float32 [n, D]), in any order.
Vectors = Generator[tuple[np.ndarray, np.ndarray], None, None]


class BadVector(ValueError):
    """An encoder gave a vector that cannot be used.

    row: the place of its text among the texts that were encoded. said: what is wrong with it.
    """

    def __init__(self, row: int, said: str) -> None:
        super().__init__(f"the vector of text {row} {said}")
        self.row = row
        self.said = said


def write_embeddings(
    texts: Sequence[str], folder: Path, encode: Callable[[np.ndarray], Vectors], progress: Progress | None = None
) -> None:
    """Fill folder/embeddings.npy, float32 [N, D], with the vectors of N texts; without texts it is [0, 0].

    encode: yields the vector of each row that it is given, once. Of equal texts it is given one, and all share its
    vector. Whenever the process is stopped, the next call with the same folder and texts encodes only what was not
    on the disk, that is the last seconds' work; no vector is taken up unless its checksum is right.
    `progress` counts documents; what it is told first was taken up.
    BadVector where a vector is not finite or not as long as the others.
    """
    if (folder / "embeddings.npy").exists():  # stopped after the work, and before anyone noted that it was finished
        (folder / "progress.jsonl").unlink(missing_ok=True)
        return
    owners = _owners(texts)
    standing = np.bincount(owners, minlength=len(texts))  # for how many documents a row's vector stands
    unfinished = _Unfinished(folder, len(texts))
    done = int(standing[unfinished.done].sum())
    if progress:
        progress(done, len(texts), "documents")
    rows = np.flatnonzero((standing > 0) & ~unfinished.done)
    if len(rows):
        with closing(encode(rows)) as found:
            try:
                for some, vectors in found:
                    unfinished.put(some, vectors)
                    done += int(standing[some].sum())
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
    """The vectors of Q texts, float32 [Q, D], without texts [0, 0]; as write_embeddings, but kept nowhere."""
    owners = _owners(texts)
    rows = np.unique(owners)
    embeddings = np.zeros((0, 0), np.float32)
    if len(rows):
        with closing(encode(rows)) as found:
            done = 0
            for some, vectors in found:
                if not embeddings.size:
                    embeddings = np.zeros((len(texts), vectors.shape[1]), np.float32)
                _check(some, vectors, embeddings.shape[1])
                embeddings[some] = vectors
                done += len(some)
                if progress:
                    progress(done, len(rows), "queries")
    return embeddings[owners]


def _owners(texts: Sequence[str]) -> np.ndarray:
    """int64 [N]: for each text the first row that holds the same."""
    first: dict[str, int] = {}
    return np.fromiter((first.setdefault(text, row) for row, text in enumerate(texts)), np.int64, len(texts))


def _check(rows: np.ndarray, vectors: np.ndarray, dimensions: int) -> None:
    if vectors.shape[1] != dimensions:
        raise BadVector(int(rows[0]), f"has {vectors.shape[1]} dimensions where others have {dimensions}")
    wrong = ~np.isfinite(vectors).all(axis=1)
    if wrong.any():
        raise BadVector(int(rows[wrong][0]), "holds NaN or infinity")


class _Unfinished:
    """The embeddings under way: partial.npy, a memory map, and progress.jsonl, which says what in it can be believed.

    A line of progress.jsonl names rows and the sha256 of their vectors; it is written after these were. So a line that
    is broken off, or that names what did not reach the disk, is known by its checksum and counts for nothing.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._finished = folder / "embeddings.npy"
        self._path, self._journal = folder / "partial.npy", folder / "progress.jsonl"
        self.done = np.zeros(count, bool)
        self._embeddings: np.memmap | None = None
        self._fresh: list[np.ndarray] = []  # rows put since the last line
        self._flushed = time.monotonic()
        self._take_up()

    def _take_up(self) -> None:
        try:
            found = np.lib.format.open_memmap(self._path, "r+")
            for line in self._journal.read_bytes().splitlines():
                self.done[_believed(line, found)] = True
        except (FileNotFoundError, ValueError, EOFError):
            pass  # no call got that far, or one was stopped while it made the file
        if self.done.any():
            self._embeddings = found
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
        """Bring what was put to the disk, and say so."""
        if self._embeddings is not None and self._fresh:
            rows = np.concatenate(self._fresh)
            self._embeddings.flush()
            line = json.dumps({"rows": rows.tolist(), "sha256": _digest(self._embeddings[rows])})
            with self._journal.open("a", encoding="ascii") as file:
                file.write(f"\n{line}")  # the line break comes first, since the line before may be broken off
        self._fresh, self._flushed = [], time.monotonic()

    def finish(self, owners: np.ndarray) -> None:
        """Give equal texts the vector of the first of them, and the file its name."""
        if self._embeddings is None:
            np.save(self._path, np.zeros((0, 0), np.float32), allow_pickle=False)
        else:
            repeats = np.flatnonzero(owners != np.arange(len(owners)))
            for start in range(0, len(repeats), COPIED):
                some = repeats[start : start + COPIED]
                self._embeddings[some] = self._embeddings[owners[some]]
            self._embeddings.flush()
            self._embeddings = None  # closed: some systems rename no file that is in use
        self._path.replace(self._finished)
        self._journal.unlink(missing_ok=True)


def _reserved(path: Path, shape: tuple[int, int]) -> np.memmap:
    """A new memory-mapped float32 array; OSError where the disk has no room for it.

    Without the reservation the process would be killed in the middle of the work by a disk that fills up.
    """
    embeddings = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return embeddings


def _believed(line: bytes, embeddings: np.ndarray) -> np.ndarray:
    """The rows that a line of the journal names, if their vectors are those that it was written for."""
    try:
        said = json.loads(line)
        rows = np.array(said["rows"], np.int64)
        if rows.min() >= 0 and _digest(embeddings[rows]) == said["sha256"]:
            return rows
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        pass  # broken off, or damaged
    return np.zeros(0, np.int64)


def _digest(vectors: np.ndarray) -> str:
    return hashlib.sha256(vectors.tobytes()).hexdigest()
