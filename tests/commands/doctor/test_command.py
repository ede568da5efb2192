"""`harness doctor` finds what is wrong and says what to do."""

import importlib.metadata
import os
import time

import pytest

from harness.commands.doctor import command
from harness.config.commands import DoctorConfig
from harness.reports import figure
from harness.storage.cache import Cache
from retrievers import compiling


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def findings(done):
    return {one["about"]: one for one in done.json["findings"]}


def test_a_sound_set_up(harness):
    found = findings(harness("doctor", "format=json"))
    assert {"python", "mlflow", "hydra-core", "faiss-cpu", "tracking", "cache", "disk", "model hub"} <= set(found)
    assert {one["state"] for name, one in found.items() if name not in ("model hub", "disk", "fonts")} == {"ok"}
    assert found["model hub"]["state"] == "warning"
    assert "HF_ENDPOINT" in found["model hub"]["remedy"]
    assert harness("doctor").commands == [["run"]]


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A cache of three entries: (kind, bytes, days unused) as named, and one that a killed builder left."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    store = Cache(tmp_path / "cache")
    for kind, size, days in (("tokens", 3_000_000, 1), ("indexes", 1_000_000, 40), ("rankings", 10_000, 20)):
        identity = {"index": {"target": "retrievers.lexical.bm25.BM25", "arguments": {"model": kind}}}
        place = store.folder(kind, identity, lambda folder, size=size: (folder / "data").write_bytes(bytes(size)))
        then = time.time() - days * 86_400
        os.utime(place / "manifest.json", (then, then))
    left = tmp_path / "cache" / "embeddings" / f"{'a' * 64}.unfinished"
    left.mkdir(parents=True)
    (left / "data").write_bytes(b"half")
    return store


def listed(done):
    return [entry["kind"] for entry in done.json["entries"]]


def test_the_cache_is_listed_by_size_and_by_age(harness, kept):
    assert listed(harness("doctor cache", "format=json")) == ["tokens", "indexes", "rankings", "embeddings"]
    done = harness("doctor cache", "sort=age", "format=json")
    assert listed(done) == ["indexes", "rankings", "tokens", "embeddings"]
    found = done.json
    assert (found["kinds"]["tokens"]["entries"], found["bytes"] > 4_010_000) == (1, True)
    assert found["entries"][0]["about"] == "BM25 indexes"
    assert [entry["state"] for entry in found["entries"]] == ["finished"] * 3 + ["unfinished"]
    said = harness("doctor cache", "show=1").out
    assert "4.0 MB in all" in said
    assert "embeddings: 1 entry" in said


@pytest.mark.parametrize(
    ("prune", "left"),
    [
        ("prune.unused_days=30", {"tokens", "rankings", "embeddings"}),
        ("prune.unused_days=0.5", {"embeddings"}),
        ("prune.keep_gb=0.0035", {"tokens", "rankings", "embeddings"}),  # the longest unused go first
        ("prune.keep_gb=0", set()),
        ("prune.keep_gb=1", {"tokens", "indexes", "rankings", "embeddings"}),
    ],
)
def test_the_cache_is_pruned_by_age_and_size(harness, kept, prune, left):
    done = harness("doctor cache", prune, "format=json")
    assert set(listed(done)) == left
    assert done.json["pruned"]["entries"] == 4 - len(left)
    assert {entry.kind for entry in kept.entries()} == left


def test_damaged_entries_are_pruned_and_foreign_folders_stay(harness, kept, tmp_path):
    [tokens] = (tmp_path / "cache" / "tokens").glob("*/manifest.json")
    tokens.write_text("")
    (tmp_path / "cache" / "notes" / "mine").mkdir(parents=True)
    said = harness("doctor cache").out
    for expected in ("tokens (damaged)", "notes (foreign)", "Damaged: 1 entry"):
        assert expected in said
    assert findings(harness("doctor", "format=json"))["cache"]["state"] == "warning"
    found = harness("doctor cache", "prune.keep_gb=1", "format=json").json
    assert (found["pruned"]["entries"], found["damaged"], found["foreign"]) == (1, 0, 1)
    assert not tokens.parent.exists()
    assert harness("doctor cache", "prune.keep_gb=0", "format=json").json["foreign"] == 1
    assert (tmp_path / "cache" / "notes" / "mine").is_dir()


def test_what_is_broken_ends_with_1_and_a_remedy(harness, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    real = importlib.metadata.version

    def version(name):
        if name in ("rank-bm25", "torch"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.1" if name == "rich" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    done = harness("doctor", "store.path=file", "tracking.uri=ftp://nowhere")
    assert done.code == 1
    for expected in (
        "warning  torch: not installed: dense retrieval",
        "pip install 'retrieval-harness[dense]'",
        "rank-bm25: not installed",
        "rich: 0.1, but",
        "store.path=FOLDER",
        "ftp://nowhere cannot be used",
    ):
        assert expected in done.out


@pytest.mark.parametrize(("font", "state"), [("NanumGothic", "ok"), (None, "warning")])
def test_a_font_for_hangul_is_looked_for(monkeypatch, font, state):
    monkeypatch.setattr(figure, "hangul_font", lambda: font)
    [found] = command._fonts(None)
    assert (found.state, bool(found.remedy)) == (state, font is None)
    assert (font or "Latin letters") in found.said


def finding(path):
    [found] = command.cache_findings(DoctorConfig.of({"store": {"path": str(path)}, "plugins": {"allow": []}}))
    return found


def test_whether_locks_work_in_a_folder(tmp_path, monkeypatch):
    found = finding(tmp_path)
    assert (found.about, found.state) == ("cache", "ok")
    assert "locks work (" in found.said
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(command, "_TRY_LOCK", "")  # stands for a network file system that is mounted without them
    found = finding(tmp_path)
    assert found.state == "warning"
    assert "processes compute some results twice" in found.said
    assert "store.path=FOLDER" in found.remedy


@pytest.mark.parametrize(("path", "message"), [("file", "File exists"), ("s3://nowhere/x", "has no bucket 'nowhere'")])
def test_what_cannot_be_used(tmp_path, monkeypatch, place, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    found = finding(path)
    assert (found.state, message in found.said) == ("error", True)


def test_kernels_are_compiled_and_reported(harness, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "code"))
    monkeypatch.setattr("retrievers.compiling.KERNELS", ())
    compiling.code_folder.cache_clear()
    try:
        assert "not compiled for this processor" in findings(harness("doctor", "format=json"))["kernels"]["said"]
        found = harness("doctor warm", "format=json").json
        assert (found["compiled"], found["folder"]) == (True, str(compiling.code_folder()))
        assert "All kernels were compiled already" in harness("doctor warm").out
        assert findings(harness("doctor", "format=json"))["kernels"]["said"].startswith("compiled for this processor")
        (compiling.code_folder() / compiling.READY).unlink()
        monkeypatch.setattr(compiling, "_places", lambda: [])
        done = harness("doctor warm")
        assert (done.code, "Let NUMBA_CACHE_DIR name a folder" in done.err) == (1, True)
        assert findings(harness("doctor", "format=json"))["kernels"]["state"] == "warning"
    finally:
        compiling.code_folder.cache_clear()
