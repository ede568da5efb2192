"""What the contract says about a retriever that breaks it: where two lists differ first, and the likely cause."""

import pytest

from retrievers.base import DocIds, Document, Query, Ranking
from retrievers.testing import contract

CORPUS = [Document(f"d{i:02}", f"text {i}") for i in range(30)]
RULE = "at most k documents, and fewer are the first of more"


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


def problem(make, folder, rule=RULE):
    return dict(contract(make, CORPUS, [Query.of("q1", "text")], folder))[rule]


def falling(count):
    return [(f"d{i:02}", 50.0 - i) for i in range(count)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            lambda k: [*falling(2), *((f"d{i:02}", 7.0) for i in (range(9, 30) if k > 3 else range(20, 30)))],
            "k=3 and the first 3 of k=10 differ for query q1, first at place 3: 'd20' with 7.0 and 'd09' with 7.0. "
            "Their scores are equal: order ties by a rule that always holds, such as by id.",
        ),
        (
            lambda k: [("d01", 9.0 + (k == 1)), ("d02", 3.0)],
            "first at place 1: 'd01' with 10.0 and 'd01' with 9.0. Its score changes: does it depend on k, on",
        ),
        (
            lambda k: falling(30) if k != 3 else [*falling(2), ("d07", 43.0)],
            "first at place 3: 'd07' with 43.0 and 'd02' with 48.0. An approximate index, such as HNSW, finds",
        ),
        (
            lambda k: falling(30 if k < 40 else 8),
            "k=40 and k=10 differ for query q1, first at place 9: nothing and 'd08' with 42.0. One list ends there",
        ),
        (lambda k: falling(30), ""),
    ],
    ids=["ties", "scores", "approximate", "cut off", "right"],
)
def test_the_first_difference_and_its_likely_cause(rows, expected, tmp_path):
    said = problem(lambda: Fake(rows), tmp_path)
    assert expected in said
    assert bool(said) == bool(expected)
