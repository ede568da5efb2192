"""Locks and claims: what a process that died has left is found by the next one, and nothing else is touched."""

import os
import socket
from dataclasses import dataclass

import pytest
from filelock import FileLock
from interruptions import exit_codes

from harness.storage.locks import abandoned, claim


@dataclass(frozen=True)
class Duty:
    folder: str | None = None
    scratch: bool = False


DUTY = Duty("runs/1", scratch=True)


def test_a_claim_of_a_process_that_died_is_abandoned(tmp_path):
    assert exit_codes(lambda: claim(tmp_path, DUTY) and os._exit(9)) == [9]
    [found] = abandoned(tmp_path, Duty)
    assert found.work == DUTY
    found.release()
    assert list(abandoned(tmp_path, Duty)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_claim_is_not_abandoned_while_its_process_lives(tmp_path):
    held = claim(tmp_path, DUTY)
    assert list(abandoned(tmp_path, Duty)) == []
    held.unlock()
    for _ in range(2):  # looking changes nothing
        assert [(one.name, one.work) for one in abandoned(tmp_path, Duty)] == [(held.name, DUTY)]
    held.release()
    held.release()
    assert list(abandoned(tmp_path / "nowhere", Duty)) == list(abandoned(tmp_path, Duty)) == []


def test_claims_of_other_hosts_are_left_to_them(tmp_path, monkeypatch):
    claim(tmp_path, DUTY).unlock()
    assert len(list(abandoned(tmp_path, Duty))) == 1
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert list(abandoned(tmp_path, Duty)) == []


def test_where_files_cannot_be_locked_a_claim_is_only_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(FileLock, "acquire", lambda *_, **__: (_ for _ in ()).throw(OSError(38, "no locks")))
    assert claim(tmp_path, DUTY).name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", '{"folder"', "[]", '{"unknown": 1}', '{"folder": 5}', "[" * 100_000])
def test_a_process_that_died_before_it_wrote_its_claim_and_a_damaged_one(tmp_path, content):
    held = claim(tmp_path, DUTY)
    held.file.write_text(content)
    held.unlock()
    (tmp_path / f"{held.name[:-1]}x").mkdir()
    assert [one.work for one in abandoned(tmp_path, Duty)] == [None]
