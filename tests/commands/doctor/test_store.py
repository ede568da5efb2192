"""What `harness doctor` says of the cache."""

import pytest

from harness.commands.doctor import command
from harness.config.commands import DoctorConfig


def finding(path):
    [found] = command.cache_findings(DoctorConfig.of({"store": {"path": str(path)}, "plugins": {"allow": []}}))
    return found


def test_a_folder_whose_locks_work(tmp_path):
    found = finding(tmp_path)
    assert (found.about, found.state) == ("cache", "ok")
    assert "locks work (" in found.said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_locks(tmp_path, monkeypatch):
    """A stand-in for a network file system that is mounted without them."""
    monkeypatch.setattr(command, "_TRY_LOCK", "")
    found = finding(tmp_path)
    assert found.state == "warning"
    assert "processes compute the same twice" in found.said
    assert "store.path=FOLDER" in found.remedy


@pytest.mark.parametrize(("path", "message"), [("file", "File exists"), ("s3://nowhere/x", "has no bucket 'nowhere'")])
def test_what_cannot_be_used(tmp_path, monkeypatch, request, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    if path.startswith("s3:"):
        request.getfixturevalue("place")
    found = finding(path)
    assert found.state == "error"
    assert message in found.said


def test_a_bucket(place):
    found = finding(place.url)
    assert found.state == "warning", "moto has no https"
    assert "0 entries, 0.0 MB" in found.said
    assert "what is sent is not encrypted" in found.said
