"""Logged runs read back: which run a command is about, and that changed data are refused by name."""

import pytest

from harness.errors import BadInput
from harness.recording.logged_run import read_config, require_unchanged
from harness.tracking.tracker import LoggedRun

RUN = LoggedRun("r1", "n", "e", "FINISHED", {}, {}, {"data.documents": "a" * 64, "data.qrels": "b" * 64})
PLACES = {"documents": "docs.jsonl", "queries": "eval.jsonl", "qrels": "qrels.jsonl"}


def test_unchanged_data_pass():
    require_unchanged(RUN, {"documents": "a" * 64, "queries": None}, PLACES, "Put them back.")


def test_everything_that_has_changed_is_named():
    with pytest.raises(BadInput) as refused:
        require_unchanged(RUN, {"documents": "c" * 64, "queries": None, "qrels": None}, PLACES, "Put them back.")
    assert str(refused.value) == (
        "Run r1 used other data: the documents have changed (docs.jsonl: sha256 aaaaaaaaaaaa… then, "
        "cccccccccccc… now); "
        "the labels have changed (qrels.jsonl: sha256 bbbbbbbbbbbb… then, none now). Put them back."
    )


@pytest.mark.parametrize("text", ["a: [", "- 5", "!!python/object/apply:os.system ['touch hacked']", "\xff\xfe"])
def test_a_damaged_config_is_refused(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text, "latin-1")
    with pytest.raises(BadInput, match=r"config\.yaml of the run is damaged"):
        read_config(file)
    assert not (tmp_path / "hacked").exists()
