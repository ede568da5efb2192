"""Which other machines a command talks to."""

import subprocess
import sys

import pytest

from retrievers import hosts


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.setenv(hosts.NAMED, "")


def test_another_machine_is_named_once_without_a_secret(capsys):
    for _ in range(2):
        hosts.name_host("https://me:secret@far.example:8443/path?key=secret#secret", "tracking.uri")
    hosts.name_host("ray://10.0.0.7:6379", "RAY_ADDRESS")
    assert capsys.readouterr().err == "Talks to far.example:8443 (tracking.uri)\nTalks to 10.0.0.7:6379 (RAY_ADDRESS)\n"


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:5000", "http://[::1]:1/a", "http://localhost", "https://a.localhost/", "sqlite:////a/b.db",
     "file:///a", "runs.db", "", "http://[::1"],
)  # fmt: skip
def test_this_machine_is_not_named(capsys, address):
    hosts.name_host(address, "x")
    assert capsys.readouterr().err == ""


def test_processes_of_a_command_do_not_repeat_it(capsys):
    hosts.name_host("https://far.example", "x")
    code = "from retrievers.hosts import name_host; name_host('https://far.example', 'x')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""


@pytest.mark.parametrize("given", ["tracking.uri", "MLFLOW_TRACKING_URI"])
def test_a_tracking_server_is_named_with_what_gives_its_address(harness, toy, monkeypatch, given):
    address = "http://me:secret@tracking.invalid:5000"
    words = ["runs"]
    monkeypatch.setattr("harness.tracking.mlflow_tracker.open_client", refused)
    if given == "tracking.uri":
        words.append(f"tracking.uri={address}")
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    done = harness(*words)
    assert f"Talks to tracking.invalid:5000 ({given})\n" in done.err
    assert "secret" not in done.err


def test_a_language_model_and_a_search_service_are_named_before_they_are_asked(harness, toy, monkeypatch):
    monkeypatch.setattr("retrievers.external.http_client.Connections.__init__", refused)
    words = (
        "run",
        "dataset=contest",
        "dataset.path=toy",
        "tracking=none",
        "retriever=http",
        "retriever.http.ids=hits[*].id",
    )
    done = harness(*words, "retriever.http.url=https://search.example/find?secret={query}")
    assert "Talks to search.example (" in done.err, done.err
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    done = harness(*words[:4], "tokenizer=word", "gate=llm", "llm.model=m")
    assert "Talks to api.openai.com (llm.base_url)\n" in done.err


def refused(*_):
    raise RuntimeError("far enough")
