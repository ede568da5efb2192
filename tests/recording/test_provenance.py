"""What is asked of git in a folder whose checkout is a stranger's."""

import subprocess

import pytest

from harness.recording import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one commit, as the working folder."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    (tmp_path / "a.txt").write_text("first")
    git("add", "a.txt")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first")
    return tmp_path


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_and_whether_something_has_changed(checkout, tmp_path_factory, monkeypatch):
    tags = provenance.provenance({})
    assert tags["git.commit"] == tags["mlflow.source.git.commit"] == git("rev-parse", "HEAD")
    assert tags["git.dirty"] == "false"
    (checkout / "a.txt").write_text("second")
    assert provenance.provenance({})["git.dirty"] == "true"
    monkeypatch.chdir(tmp_path_factory.mktemp("no-checkout"))
    tags = provenance.provenance({})
    assert (tags["git.commit"], "git.dirty" in tags) == ("none", False)


@pytest.mark.parametrize(
    "setting", ["core.fsmonitor", "filter.theirs.clean", "filter.theirs.process", "core.hooksPath"]
)
def test_commands_of_the_checkout_are_not_run(checkout, setting):
    executed = checkout.parent / f"{checkout.name}.executed"
    command = checkout / "post-index-change"
    command.write_text(f"#!/bin/sh\ntouch '{executed}'\ncat\n")
    command.chmod(0o755)
    (checkout / ".gitattributes").write_text("*.txt filter=theirs\n")
    git("config", setting, str(checkout if setting == "core.hooksPath" else command))
    (checkout / "a.txt").write_text("other")
    assert provenance.provenance({})["git.dirty"] == "true"
    assert not executed.exists()
    subprocess.run(["git", "status"], check=False, capture_output=True)
    assert executed.exists() or setting == "core.hooksPath"  # which git status itself may leave alone
