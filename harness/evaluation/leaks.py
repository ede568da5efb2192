"""Queries that stand word for word in documents, so that finding them says little of questions that people ask."""

from __future__ import annotations

from collections.abc import Iterator

from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.files import some
from retrievers.base import Qrels, Ranking

LOOKED_AT = 5  # documents of each list, besides the relevant ones
WORDS, LETTERS = 3, 10  # a shorter query may stand anywhere
LEAST, SHARE = 3, 0.05  # queries, and their share, from which on this is no accident


def copied(dataset: Dataset, ranking: Ranking) -> tuple[dict[str, str], int]:
    """(query -> a document with its last user turn word for word, how many queries are long enough to tell).

    ranking: what was retrieved; of it the first documents of each query are read, and those that are relevant.
    """
    lists, found, told = ranking.top(LOOKED_AT).to_dict(), dict[str, str](), 0
    grades = (dataset.qrels or Qrels({})).grades
    for query in dataset.queries:
        words = _plain(query.user_turns[-1])
        if len(words.split()) < WORDS or len(words) < LETTERS:
            continue
        told += 1
        for doc_id in dict.fromkeys([*grades.get(query.query_id, ()), *lists.get(query.query_id, ())]):
            if words in _plain(dataset.by_id[doc_id].indexed_text):
                found[query.query_id] = doc_id
                break
    return found, told


def notes(dataset: Dataset, ranking: Ranking) -> Iterator[str]:
    """What people should know of it, if there is enough of it."""
    found, told = copied(dataset, ranking)
    if len(found) >= LEAST and len(found) >= SHARE * told:
        where = some([f"{query_id} in {doc_id}" for query_id, doc_id in found.items()], 3)
        yield (
            f"{len(found):,} of {counted(told, 'query')} stand word for word in a document ({where}). Do the documents "
            "hold the questions? Then a high score says little of questions that they do not hold."
        )


def _plain(text: str) -> str:
    """Lower case, with one space between words, and without what ends a sentence."""
    return " ".join(text.casefold().split()).rstrip("?!. ")
