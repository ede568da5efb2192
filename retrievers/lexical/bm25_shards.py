"""BM25 over shards: what is counted in each, summed over all, and known of the whole corpus in a shard's search.

A survey is a folder for one shard:

vocabulary.json: its terms, in the order of first use.
counts.npy:      int64 [V], documents of the shard with each term.
survey.json:     {documents, terms}: how many documents, and how many terms they have in all.

A summary is a folder for the corpus. Its terms are numbered in the order of first use, as one index would number them:

summary.json:    {documents, terms}, as above.
counts.npy:      int64 [V], documents with each term.
terms.txt:       the terms in ascending order one after another, UTF-8.
term_ends.npy:   int64 [V + 1], 0 and then the end of each term in bytes.
numbers.npy:     int32 [V], the number of each term of terms.txt.
KEY.npy:         int32, the number of each term of a survey; KEY is the sha256 of its vocabulary.json.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from retrievers.lexical.tokenize import Tokens

KNOWN = 8  # vocabularies of queries whose numbers are kept: the shards that a process searches share them


class Columns(NamedTuple):
    """The columns of an index that the terms of queries refer to: term t has the postings starts[t] to ends[t] - 1.

    starts, ends: int64 [T].
    floors: float64 [T], what a term adds to every document.
    """

    starts: np.ndarray
    ends: np.ndarray
    floors: np.ndarray


def write_survey(tokens: Tokens, counts: np.ndarray, folder: Path) -> None:
    """Write the survey of a shard. counts: int64 [V], documents with each term."""
    (folder / "vocabulary.json").write_text(json.dumps(tokens.vocabulary), encoding="ascii")
    np.save(folder / "counts.npy", counts, allow_pickle=False)
    sizes = {"documents": len(tokens), "terms": len(tokens.ids)}
    (folder / "survey.json").write_text(json.dumps(sizes), encoding="ascii")


def write_summary(surveys: Sequence[Path], folder: Path) -> None:
    """Write the summary of a corpus. surveys: of its shards, in their order; read one at a time."""
    numbers: dict[str, int] = {}
    counts = np.zeros(0, np.int64)
    sizes = {"documents": 0, "terms": 0}
    for one in surveys:
        text = (one / "vocabulary.json").read_bytes()
        terms = json.loads(text)
        mine = np.fromiter((numbers.setdefault(term, len(numbers)) for term in terms), np.int32, len(terms))
        np.save(folder / f"{_key(text)}.npy", mine, allow_pickle=False)
        if len(numbers) > len(counts):
            counts = np.concatenate([counts, np.zeros(len(numbers) - len(counts), np.int64)])
        counts[mine] += np.load(one / "counts.npy", allow_pickle=False)
        for name, size in json.loads((one / "survey.json").read_text(encoding="ascii")).items():
            sizes[name] += size
    np.save(folder / "counts.npy", counts, allow_pickle=False)
    (folder / "summary.json").write_text(json.dumps(sizes), encoding="ascii")
    _save_terms(numbers, folder)


def _save_terms(numbers: dict[str, int], folder: Path) -> None:
    ascending = sorted(numbers)  # by code point, and so by UTF-8
    ends = np.zeros(len(ascending) + 1, np.int64)
    with (folder / "terms.txt").open("wb") as file:
        for i, term in enumerate(ascending):
            ends[i + 1] = ends[i] + file.write(term.encode("utf-8", "surrogatepass"))
    np.save(folder / "term_ends.npy", ends, allow_pickle=False)
    found = np.fromiter((numbers[term] for term in ascending), np.int32, len(ascending))
    np.save(folder / "numbers.npy", found, allow_pickle=False)


class CorpusStatistics:
    """The statistics of a corpus, read from the disk as far as they are needed.

    documents: how many. mean_length: terms of a document in the mean. counts: int64 [V], documents with each term.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        sizes = json.loads((folder / "summary.json").read_text(encoding="ascii"))
        self.documents = int(sizes["documents"])
        self.mean_length = mean_length(sizes["terms"], self.documents)
        self.counts = _load(folder, "counts")
        self._ends, self._numbers = _load(folder, "term_ends"), _load(folder, "numbers")
        self._texts = np.memmap(folder / "terms.txt", np.uint8, "r") if self._ends[-1] else np.zeros(0, np.uint8)
        self.numbers = functools.lru_cache(KNOWN)(self._look_up)

    def numbers_of(self, survey: Path) -> np.ndarray:
        """Return the number of each term of a survey, int32."""
        return _load(self._folder, _key((survey / "vocabulary.json").read_bytes()))

    def _look_up(self, terms: tuple[str, ...]) -> np.ndarray:
        """Return the number of each term, int64; -1 for terms that the corpus has not."""
        return np.fromiter(
            (self._number(term.encode("utf-8", "surrogatepass")) for term in terms), np.int64, len(terms)
        )

    def _number(self, term: bytes) -> int:
        low, high = 0, len(self._numbers)
        while low < high:
            middle = (low + high) // 2
            if self._term(middle) < term:
                low = middle + 1
            else:
                high = middle
        return int(self._numbers[low]) if low < len(self._numbers) and self._term(low) == term else -1

    def _term(self, place: int) -> bytes:
        return self._texts[self._ends[place] : self._ends[place + 1]].tobytes()


@functools.lru_cache(maxsize=2)
def corpus_statistics(folder: Path) -> CorpusStatistics:
    """Return the summary in a folder, opened once for all shards that a process works on; it must not change."""
    return CorpusStatistics(folder)


def mean_length(terms: int, documents: int) -> float:
    """Terms of a document in the mean; 0 without documents."""
    return terms / documents if documents else 0.0


def by_number(tokens: Tokens, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens whose terms are numbered in the order of their numbers in the corpus: (ids int32 [T], those numbers).

    numbers: int32 [V], unique.
    """
    order = np.argsort(numbers)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place[tokens.ids] if len(order) else np.empty(0, np.int32), numbers[order]


class ShardTerms:
    """The terms of one shard's index among those of the corpus.

    numbers: int32 [S], ascending, the terms that the shard has.
    starts: int64 [S + 1], where the postings of each start.
    summary: of the corpus. idf: float64 [V], of all its terms.
    floor: what a term adds to every document, over its idf; where it is 0, `idf` is not read.
    """

    def __init__(
        self, numbers: np.ndarray, starts: np.ndarray, summary: CorpusStatistics, idf: np.ndarray, floor: float
    ) -> None:
        self._numbers, self._starts, self._summary = numbers, starts, summary
        self._idf, self._floor = idf, floor

    def columns(self, vocabulary: tuple[str, ...]) -> tuple[Columns, np.ndarray]:
        """Return (a column for each term, the place of each term's column, -1 for terms that the corpus has not).

        A term that only other shards have has an empty column: it adds its floor.
        """
        numbers = self._summary.numbers(vocabulary)
        places = np.searchsorted(self._numbers, numbers)
        inside = np.minimum(places, max(len(self._numbers) - 1, 0))
        here = (numbers >= 0) & (places < len(self._numbers))
        if len(self._numbers):
            here &= self._numbers[inside] == numbers
        starts = np.where(here, self._starts[inside], 0)
        ends = np.where(here, self._starts[np.minimum(inside + 1, len(self._starts) - 1)], 0)
        floors = np.zeros(len(numbers))
        if self._floor:
            floors[numbers >= 0] = self._idf[numbers[numbers >= 0]] * self._floor
        return Columns(starts, ends, floors), np.where(numbers >= 0, np.arange(len(numbers)), -1)


def _key(vocabulary: bytes) -> str:
    return hashlib.sha256(vocabulary).hexdigest()


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
