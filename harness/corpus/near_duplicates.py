"""Find near-duplicates: MinHash with banding finds candidates, whose similarity is then computed.

The similarity of two texts is the Jaccard similarity of their sets of shingles: shared shingles / all shingles of both.
A shingle is a run of five characters, after case folding and with white space normalised. If about nine characters of a
400-character text are changed, its similarity to the original is 0.8.

MinHash (Broder 1997): the probability that two sets have the same minimum under a random hash function is their
Jaccard similarity J. With `BANDS` groups of `ROWS` functions, two texts agree in a whole group and become candidates
with probability 1 - (1 - J^ROWS)^BANDS (Leskovec, Rajaraman & Ullman, Mining of Massive Datasets, 3.4): 0.998 at
J = 0.8 and more than 0.999999 at 0.9.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from retrievers.base import Progress, cores

THRESHOLD = 0.8  # minimum similarity of near-duplicates
BANDS, ROWS = 20, 6
BLOCK = 1 << 21  # approximate number of characters to hash, or of bytes to compare, at a time
LEADERS = 3  # number of texts per bucket (the texts with equal keys in a band) that are compared with all the others
COMPARISONS = 40  # maximum number of comparisons per document; without it, a large bucket would take quadratic time


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """Two near-duplicates. a, b: positions of their texts. similarity: at least `THRESHOLD`."""

    a: int
    b: int
    similarity: float


def find_near_duplicates(
    texts: Iterable[str], count: int, folder: Path, progress: Progress | None = None
) -> list[DuplicatePair]:
    """Return the near-duplicates among `count` texts, in ascending order of (a, b).

    A group of n near-duplicates has n - 1 pairs. Each text except the first of its group is the `b` of one pair. That
    pair's `a` is the first text of the group if it is similar enough to `b`; otherwise, a chain of similar texts leads
    from `b` via `a` to the first text. Memory: about 100 bytes per text.

    folder: for temporary files, which take the size of the texts plus 160 bytes per text.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="near_duplicates.") as temporary:
        groups = _Groups(_Signed(texts, count, Path(temporary), progress))
        for band in range(BANDS):
            groups.join(band)
            if progress:
                progress(band + 1, BANDS, "bands")
        return groups.pairs()


class _Signed:
    def __init__(self, texts: Iterable[str], count: int, folder: Path, progress: Progress | None) -> None:
        self._folder, self._texts = folder, folder / "texts"
        factors = np.random.default_rng(0).integers(0, 1 << 32, (BANDS * ROWS, 2), np.uint32)
        factors[:, 0] |= 1
        ends = [np.zeros(1, np.int64)]
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(cores()))
            written = stack.enter_context(self._texts.open("wb"))
            bands = [stack.enter_context(self._band(band).open("wb")) for band in range(BANDS)]
            done = 0
            for block in _blocks(texts):
                encoded = [text.encode("utf-8", "surrogatepass") for text in block]
                written.writelines(encoded)
                ends.append(ends[-1][-1] + np.cumsum([len(one) for one in encoded]))
                for keys, file in zip(_keys(block, factors, pool).T, bands, strict=True):
                    file.write(keys.tobytes())
                done += len(block)
                if progress:
                    progress(done, count, "documents")
        self._offsets = np.concatenate(ends)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _band(self, band: int) -> Path:
        return self._folder / f"band{band}"

    def buckets(self, band: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (documents whose key in the band is not unique, bucket of each), both int64, sorted by bucket."""
        keys = np.fromfile(self._band(band), np.uint64)
        documents = np.flatnonzero(np.diff(self._offsets))  # the documents that are not empty
        documents = documents[np.argsort(keys[documents], kind="stable")]
        begins = np.ones(len(documents) + 1, bool)
        begins[1:-1] = np.diff(keys[documents]) != 0
        shared = ~(begins[1:] & begins[:-1])
        return documents[shared], np.cumsum(begins[:-1])[shared]

    def similarities(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the similarity of each pair (left[i], right[i]), float64 [pairs]."""
        sizes = np.cumsum(np.diff(self._offsets)[np.stack([left, right])].sum(axis=0))
        borders = np.searchsorted(sizes, np.arange(0, sizes[-1] if len(sizes) else 0, BLOCK)).tolist()
        parts = [np.zeros(0)]
        with self._texts.open("rb") as file:
            for first, last in pairwise(sorted({*borders, len(left)})):
                used, places = np.unique(np.stack([left[first:last], right[first:last]]), return_inverse=True)
                texts = []
                for document in used.tolist():
                    file.seek(self._offsets[document])
                    size = self._offsets[document + 1] - self._offsets[document]
                    texts.append(file.read(size).decode("utf-8", "surrogatepass"))
                characters, starts = _flat(texts)
                ours, theirs = places.reshape(2, -1)
                parts.append(_similarities(characters, starts, ours, theirs))
        return np.concatenate(parts)


class _Groups:
    def __init__(self, signed: _Signed) -> None:
        self._signed = signed
        self._parents = np.arange(len(signed))  # parent of each document in the disjoint sets; a root is its own parent
        self._spent = np.zeros(len(signed), np.uint8)  # number of comparisons of each document
        self._found: list[tuple[int, int, float]] = []  # pairs that joined two groups

    def join(self, band: int) -> None:
        documents, buckets = self._signed.buckets(band)
        neighbours = documents[:-1][np.diff(buckets) == 0], documents[1:][np.diff(buckets) == 0]
        for _ in range(LEADERS):
            first = np.searchsorted(buckets, buckets)  # position of the first document of the same bucket
            leaders = documents[first]
            self._compare(leaders, documents)
            apart = self._roots(documents) != self._roots(leaders)
            documents, buckets = documents[apart], buckets[apart]
        self._compare(*neighbours)

    def _compare(self, left: np.ndarray, right: np.ndarray) -> None:
        new = (self._roots(left) != self._roots(right)) & (self._spent[right] < COMPARISONS)
        left, right = left[new], right[new]
        self._spent[right] += 1
        similarities = self._signed.similarities(left, right)
        for p in np.flatnonzero(similarities >= THRESHOLD).tolist():
            a, b = int(left[p]), int(right[p])
            one, other = self._roots(np.array([a, b])).tolist()
            if one != other:
                self._parents[max(one, other)] = min(one, other)
                self._found.append((a, b, float(similarities[p])))

    def _roots(self, documents: np.ndarray) -> np.ndarray:
        roots = self._parents[documents]
        while (further := self._parents[roots] != roots).any():
            roots[further] = self._parents[roots[further]]
        self._parents[documents] = roots
        return roots

    def pairs(self) -> list[DuplicatePair]:
        beside: dict[int, list[tuple[int, float]]] = {}
        for a, b, similarity in self._found:
            beside.setdefault(a, []).append((b, similarity))
            beside.setdefault(b, []).append((a, similarity))
        members = np.array(sorted(beside), np.int64)
        firsts = self._roots(members)
        linked: dict[int, tuple[int, float]] = {}  # document -> (next document on the path to its root, similarity)
        reached = np.unique(firsts).tolist()
        roots = set(reached)
        for document in reached:  # breadth-first search: the loop appends to `reached`
            for other, similarity in beside[document]:
                if other not in linked and other not in roots:
                    linked[other] = document, similarity
                    reached.append(other)
        direct = self._signed.similarities(firsts, members).tolist()
        pairs = []
        for member, first, similarity in zip(members.tolist(), firsts.tolist(), direct, strict=True):
            if member != first:
                a, known = (first, similarity) if similarity >= THRESHOLD else linked[member]
                pairs.append(DuplicatePair(a, member, known))
        return sorted(pairs, key=lambda pair: (pair.a, pair.b))


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    block, size = [], 0
    for text in texts:
        block.append(" ".join(text.casefold().split()))
        size += len(block[-1])
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _keys(texts: list[str], factors: np.ndarray, pool: ThreadPoolExecutor) -> np.ndarray:
    """Return the key of each text in each band, uint64 [texts, BANDS]."""
    from harness.corpus._near_duplicate_kernels import sign

    characters, starts = _flat(texts)
    scale, shift = np.ascontiguousarray(factors.T)
    keys = np.empty((len(texts), BANDS), np.uint64)
    borders = np.searchsorted(starts, np.linspace(0, starts[-1], 4 * cores() + 1))
    borders[0], borders[-1] = 0, len(texts)
    firsts, lasts = borders[:-1].tolist(), borders[1:].tolist()

    def sign_some(first: int, last: int) -> None:
        lows = np.empty(np.diff(starts).max(), np.uint32)
        sign(characters, starts, scale, shift, lows, first, last, keys)

    list(pool.map(sign_some, firsts, lasts))
    return keys


def _similarities(characters: np.ndarray, starts: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    from harness.corpus._near_duplicate_kernels import SHINGLE, similarities

    lengths = np.diff(starts)
    shingles = np.maximum(lengths - SHINGLE + 1, lengths > 0)
    rooms = np.maximum(
        4, 1 << np.frexp(2 * shingles - 1)[1].astype(np.int64)
    )  # the least power of two for twice as many
    borders, found = np.concatenate([[0], np.cumsum(rooms)]), np.zeros(len(left))
    tables, sizes = np.zeros(borders[-1], np.uint64), np.zeros(len(lengths), np.int64)
    similarities(characters, starts, tables, borders, sizes, left, right, found)
    return found


def _flat(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    return characters, np.cumsum([0, *map(len, texts)])
