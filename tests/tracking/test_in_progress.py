"""Claims: what a process that died has left is found by the next one, and nothing else is touched."""

import multiprocessing
import os
import socket

import pytest

from harness.tracking import in_progress
from harness.tracking.in_progress import Work, abandoned, claim

WORK = Work(experiment="e", store="sqlite:///x")


def _die(outputs):
    claim(outputs, WORK)
    os._exit(9)


def test_a_claim_of_a_process_that_died_is_abandoned(tmp_path):
    process = multiprocessing.Process(target=_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    [found] = abandoned(tmp_path)
    assert found.work == WORK
    found.release()
    assert list(abandoned(tmp_path)) == []
    assert list((tmp_path / ".claims").iterdir()) == []


def test_a_claim_is_not_abandoned_while_its_process_lives(tmp_path):
    held = claim(tmp_path, WORK)
    assert list(abandoned(tmp_path)) == []
    held.unlock()
    assert [one.name for one in abandoned(tmp_path)] == [held.name]
    assert [one.name for one in abandoned(tmp_path)] == [held.name], "looking changes nothing"
    held.release()
    held.release()
    assert list(abandoned(tmp_path)) == []


def test_claims_of_other_hosts_are_left_to_them(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    claim(tmp_path, WORK).unlock()
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    assert list(abandoned(tmp_path)) == []
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert len(list(abandoned(tmp_path))) == 1


def test_where_files_cannot_be_locked_a_claim_is_only_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(in_progress, "_lock", lambda descriptor: None)
    assert claim(tmp_path, WORK).name
    assert list((tmp_path / ".claims").iterdir()) == []


@pytest.mark.parametrize("content", ["", '{"folder"', "[]", '{"unknown": 1}'])
def test_a_process_that_died_before_it_wrote_its_claim(tmp_path, content):
    held = claim(tmp_path, WORK)
    held.file.write_text(content)
    held.unlock()
    assert [one.work for one in abandoned(tmp_path)] == [None]


def test_nothing_is_abandoned_where_nothing_was_claimed(tmp_path):
    assert list(abandoned(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"folder": 5}', '{"scratch": "yes"}', '{"folder": "..", "scratch": true}', '{"folder": "/"}'],
)
def test_a_damaged_claim_says_nothing_and_no_folder_elsewhere_is_ours(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    claim = in_progress.claim(tmp_path, Work())
    claim.unlock()
    claim.file.write_text(content)
    assert [found.work for found in in_progress.abandoned(tmp_path)] == [None]
