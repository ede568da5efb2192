"""The digest of ranked lists."""

import hashlib

import numpy as np

from harness.experiment.file_scores import heads_digest, lists_digest
from retrievers.base import Ranking


def test_the_digest_of_heads_is_that_of_the_lists_cut():
    lists = Ranking.from_scores({"q2": {"b": 2.0, "한": 1.0}, "q1": {"a": 1.0}, "q0": {}})
    seen = set()
    for lengths in ([2, 1, 0], [1, 1, 0], [0, 1, 0], [2, 1, 0]):  # the last from memory
        cut = lists.cut(np.array(lengths))
        assert heads_digest(lists, cut.lengths) == lists_digest(cut)
        seen.add(lists_digest(cut))
    assert len(seen) == 3
    assert lists_digest(lists) == hashlib.sha256('[["q0"],["q1","a"],["q2","b","한"]]'.encode()).hexdigest()
