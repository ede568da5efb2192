"""The comments of the configs, as help shows them."""

import pytest

from harness.cli import COMMANDS
from harness.config import check, manual


@pytest.mark.parametrize("command", COMMANDS)
def test_every_key_of_a_command_has_a_comment(command):
    found = manual.manual(check.primary(command))
    assert found.about.endswith(".")
    assert not [key for key, entry in found.keys.items() if not entry.comment]


@pytest.mark.parametrize("group", sorted(manual.manual("sweep").groups))
def test_every_choice_says_what_it_is_and_every_key_what_it_does(group):
    assert all(manual.read_manual(path).about for path in manual.choice_files(group).values())
    if group not in manual.RECIPES:  # they set what others explain
        bare = [key for key, entry in manual.all_keys(group).items() if not entry.comment]
        assert not [key for key in bare if not {"bigram", "bleurt", "weights"} & {*key.split(".")}]


def test_entries_are_read_with_values_and_the_comments_beside_and_below():
    keys = manual.manual_keys("gate", "score")
    assert keys["gate.k"] == manual.Entry("10", "number of top documents that mean_top_k, zscore and others read")
    assert keys["gate.signal"].comment.endswith("(the last two are slow, but cached)")  # two lines
    assert manual.manual_keys("task", "retrieval")["metrics"].value.startswith("[modified_map@3, ")
    assert "hydra" not in str(manual.manual("sweep").keys)


def test_a_hybrid_has_the_keys_of_its_parts():
    keys = manual.manual_keys("retriever", "hybrid_lexical")
    assert {"retriever.bm25.k1", "retriever.bigram.k1", "fusion.weights.bigram"} <= set(keys)


def test_a_command_has_the_keys_of_its_groups_alone():
    assert manual.manual("run").has("dataset.path")
    assert manual.manual("run").has("experiment_name")
    assert not manual.manual("ui").has("dataset.path")
    assert not manual.manual("run").has("search.trials")
    assert manual.manual("sweep").has("search.trials")
