"""The digest of ranked lists."""

import hashlib

import numpy as np

from harness.experiment.file_scores import lists_digest
from retrievers.base import Ranking


def test_the_digest_is_that_of_the_lists_by_id():
    lists = Ranking.from_scores({"q2": {"b": 2.0, "한": 1.0}, "q1": {"a": 1.0}, "q0": {}})
    for lengths, expected in {
        (2, 1, 0): '[["q0"],["q1","a"],["q2","b","한"]]',
        (1, 1, 0): '[["q0"],["q1","a"],["q2","b"]]',
    }.items():
        assert lists_digest(lists.cut(np.array(lengths))) == hashlib.sha256(expected.encode()).hexdigest()
