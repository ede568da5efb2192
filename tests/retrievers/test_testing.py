"""The contract's report on a retriever that breaks it names the first difference of two lists."""

import pytest

from retrievers.base import DocIds, Document, Query, Ranking
from retrievers.testing import contract

CORPUS = [Document(f"d{i:02}", f"text {i}") for i in range(30)]


class Fake:
    """Returns rows(k) for each query."""

    def __init__(self, rows):
        self._rows = rows

    def index(self, documents, folder):
        DocIds.save(folder, documents)

    def load(self, folder):
        pass

    def search(self, queries, k):
        return Ranking.from_scores({query.query_id: dict(self._rows(k)[:k]) for query in queries}, k)


def falling(count):
    return [(f"d{i:02}", 50.0 - i) for i in range(count)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            lambda k: [*falling(2), *((f"d{i}", 7.0) for i in range(10 if k > 3 else 20, 30))],
            "k=3 and the first 3 of k=10 differ for query q1, first at place 3: 'd20' with 7.0 and 'd10' with 7.0",
        ),
        (lambda k: [("d01", 9.0 + (k == 1)), ("d02", 3.0)], "at place 1: 'd01' with 10.0 and 'd01' with 9.0"),
        (lambda k: falling(30 if k < 40 else 8), "k=40 and k=10 differ for query q1, first at place 9: nothing and"),
        (lambda k: falling(30), ""),
    ],
    ids=["ties", "scores", "cut off", "right"],
)
def test_the_first_difference(rows, expected, tmp_path):
    found = dict(contract(lambda: Fake(rows), CORPUS, [Query.of("q1", "text")], tmp_path))
    said = found["at most k documents; a smaller k gives the first ones"]
    assert expected in said
    assert bool(said) == bool(expected)
