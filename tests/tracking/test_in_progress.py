"""Claims of runs: no folder outside `outputs` is taken for one that a dead process has left."""

import json

import pytest

from harness.tracking.in_progress import ProcessWork, abandoned_work, claim_work


@pytest.mark.parametrize(
    ("folder", "known"),
    [("outputs/runs/1", True), ("..", False), ("/", False), ("outputs", False), ("a\0", False), ("\ud800", False)],
)
def test_no_folder_elsewhere_is_ours(tmp_path, monkeypatch, folder, known):
    monkeypatch.chdir(tmp_path)
    made = claim_work(tmp_path / "outputs", ProcessWork())
    made.unlock()
    made.file.write_text(json.dumps({"folder": folder, "scratch": True}))
    found = [one.work for one in abandoned_work(tmp_path / "outputs")]
    assert found == [ProcessWork(folder, scratch=True) if folder == "outputs/runs/1" else None]
