"""Rankings of shards become the ranking of the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.base import Ranking
from retrievers.sharding import merge_rankings


def test_ties_across_shards_go_by_id():
    one = Ranking.from_scores({"q": {"b": 2.0, "d": 1.0}, "r": {}})
    two = Ranking.from_scores({"q": {"a": 2.0, "c": 1.0}, "r": {"a": -1.0}})
    assert merge_rankings([one, two], 3).to_dict() == {"q": {"a": 2.0, "b": 2.0, "c": 1.0}, "r": {"a": -1.0}}


def test_of_measurements_the_mean_stays():
    parts = [Ranking((), (), np.zeros((0, 0), np.int32), np.zeros((0, 0)), {"index_recall": x}) for x in (1.0, 0.5)]
    assert merge_rankings(parts, 3).measured == {"index_recall": 0.75}


def test_other_queries_are_refused():
    with pytest.raises(ValueError, match="same queries"):
        merge_rankings([Ranking.from_scores({"q": {}}), Ranking.from_scores({"r": {}})], 1)


@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3), max_size=12), st.integers(1, 20), st.integers(0, 14))
def test_merging_shards_is_ranking_the_whole(rows, parts, k):
    scores = {f"q{i}": {f"d{n}": float(row[i]) for n, row in enumerate(rows)} for i in range(3)}

    def shard(part):
        return {query: dict(list(row.items())[part::parts]) for query, row in scores.items()}

    shards = [Ranking.from_scores(shard(part), k) for part in range(parts)]
    assert merge_rankings(shards, k).to_dict() == Ranking.from_scores(scores, k).to_dict()
