"""`harness doctor` finds what is wrong and says what to do."""

import pytest


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def findings(done):
    return {one["about"]: one for one in done.json["findings"]}


def test_a_sound_set_up(harness):
    found = findings(harness("doctor", "format=json"))
    assert {"python", "mlflow", "hydra-core", "tracking", "cache", "disk", "model hub"} <= set(found)
    assert {one["state"] for name, one in found.items() if name not in ("model hub", "disk")} == {"ok"}
    assert found["model hub"]["state"] == "warning"
    assert "HF_ENDPOINT" in found["model hub"]["remedy"]


def test_text_output(harness):
    assert "cache:" in harness("doctor").out


def test_what_is_broken_ends_with_1_and_a_remedy(harness, tmp_path, monkeypatch):
    import importlib.metadata

    (tmp_path / "file").write_text("")
    real = importlib.metadata.version

    def version(name):
        if name == "rank-bm25":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.1" if name == "rich" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    done = harness("doctor", "store.path=file", "tracking.uri=ftp://nowhere")
    assert done.code == 1
    for expected in ("rank-bm25: not installed", "rich: 0.1, but", "store.path=FOLDER", "ftp://nowhere cannot be used"):
        assert expected in done.out
