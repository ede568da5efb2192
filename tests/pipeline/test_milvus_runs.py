"""Runs whose vectors lie in Milvus: their numbers, what is logged of them, and what never is."""

import socket

import pytest

WORDS = ("dataset=contest", "dataset.path=toy", "retriever=dense", "encoder=lsa", "experiment_name=m")
SECRET = "Sesam-77"


@pytest.fixture
def secret(lite, monkeypatch):
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(lite))
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", f"root:{SECRET}")


def test_a_run_has_the_numbers_of_the_exact_index_and_no_secret(secret, lite, harness, tracker, toy, tmp_path):
    store = f"store.path={tmp_path / 'cache'}"  # where no other test has been
    ours, theirs = (harness("run", *WORDS, store, f"index={index}", "format=json").json for index in ("flat", "milvus"))
    assert theirs["metrics"] == ours["metrics"]
    [run] = [one for one in tracker.runs("m", {"harness.verb": "run"}) if "certified/dense" in one.metrics]
    assert run.metrics["certified/dense"] == 1.0
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "engine.json" for path in written)
    assert [path for path in written for word in (SECRET, str(lite)) if word.encode() in path.read_bytes()] == []


def test_an_address_is_no_key(secret, harness, toy):
    done = harness("run", *WORDS, "tracking=none", "index=milvus", "index.uri=http://localhost:19530")
    assert done.code == 2
    assert "uri" in done.err


def test_a_server_that_does_not_answer_leaves_nothing(monkeypatch, harness, tracker, toy, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nothing listens there
        monkeypatch.setenv("HARNESS_MILVUS_URI", f"http://127.0.0.1:{unused.getsockname()[1]}")
        done = harness("run", *WORDS, "index=milvus", f"store.path={tmp_path / 'cache'}")
    assert done.code == 1
    assert "no Milvus server answers" in done.err
    assert "Traceback" not in done.err
    assert tracker.runs("m", {}) == []
    assert not (tmp_path / "outputs" / "runs").exists()
