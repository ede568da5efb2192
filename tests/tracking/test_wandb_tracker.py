"""tracking=wandb, offline: what is stored for `wandb sync`, and what is refused."""

import socket
import sys
from pathlib import Path

import pytest

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "tracking=wandb")


@pytest.mark.slow
def test_an_offline_run_has_its_config_and_summary_and_nothing_of_the_machine(harness, toy, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(socket, "gethostname", lambda: "machine-of-mine")
    done = harness("run", *TOY, "experiment_name=e", "run_name=first", "format=json")
    assert done.json["run_id"] is None
    wandb.teardown()  # as at the end of a process: W&B's own process has written all
    [stored] = Path("outputs/wandb").glob("offline-run-*/run-*.wandb")
    content = stored.read_bytes()
    for expected in (b"first", b"trial_key", b"retriever", b"modified_map@3", b"FINISHED"):
        assert expected in content
    assert b"machine-of-mine" not in content


def refused(harness, said):
    done = harness("run", *TOY)
    assert (done.code, said in done.err, Path("outputs/runs").exists()) == (2, True, False), done.err


def test_without_a_key_nothing_is_computed(harness, toy, tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr("wandb.login", lambda **_: False)
    refused(harness, "Set the environment variable WANDB_API_KEY; or set WANDB_MODE=offline")


@pytest.mark.parametrize("folder", ["wandb", ".wandb"])
def test_a_folder_does_not_say_where_the_key_is_sent(harness, toy, tmp_path, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "settings").write_text("[default]\nbase_url = http://theirs.example\n")
    refused(harness, f"{folder}/settings: W&B takes settings from this file, such as where it sends runs and the key")


def test_without_the_package_nothing_is_computed(harness, toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    refused(harness, "tracking=wandb needs a package: pip install wandb")
