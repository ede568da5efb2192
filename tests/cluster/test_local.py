"""Work on shards in this process."""

import pytest

from harness.cluster.cluster import Local, ShardWork
from harness.errors import BadInput


def test_jobs_are_done_in_order_and_the_progress_counts_their_sizes():
    seen = []
    work = ShardWork(str.upper, ["a", "b", "c"], [2, 3, 5])
    assert Local(10).run(work, lambda *state: seen.append(state)) == ["A", "B", "C"]
    assert seen == [(2, 10, "documents"), (5, 10, "documents"), (10, 10, "documents")]


@pytest.mark.parametrize("shard", [0, -1, True, 1.5, "many"])
def test_a_shard_has_at_least_one_document(shard):
    with pytest.raises(BadInput, match="at least 1"):
        Local(shard)
