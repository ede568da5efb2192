"""Other machines are named before a command talks to them."""

import subprocess
import sys

import pytest

from retrievers import hosts


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.setenv(hosts.NAMED, "")


def test_another_machine_is_named_once_without_a_secret(capsys):
    """Child processes of a command do not repeat the notice."""
    for _ in range(2):
        hosts.name_host("https://me:secret@far.example:8443/path?key=secret#secret", "tracking.uri")
    hosts.name_host("ray://10.0.0.7:6379", "RAY_ADDRESS")
    assert capsys.readouterr().err == "Talks to far.example:8443 (tracking.uri)\nTalks to 10.0.0.7:6379 (RAY_ADDRESS)\n"
    code = "from retrievers.hosts import name_host; name_host('ray://10.0.0.7:6379', 'x')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:5000", "http://[::1]:1/a", "http://localhost", "https://a.localhost/", "sqlite:////a/b.db",
     "file:///a", "runs.db", "", "http://[::1"],
)  # fmt: skip
def test_this_machine_is_not_named(capsys, address):
    hosts.name_host(address, "x")
    assert capsys.readouterr().err == ""


def refused(*_):
    raise RuntimeError("far enough")


def test_every_kind_of_server_is_named_before_it_is_asked(harness, toy, monkeypatch):
    monkeypatch.setattr("harness.tracking.mlflow_tracker.open_client", refused)
    monkeypatch.setattr("retrievers.external.http_client.Connections.__init__", refused)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    words = ("run", "dataset=contest", "dataset.path=toy", "tracking=none")
    url = "retriever.http.url=https://search.example/find?secret={query}"
    done = harness(*words, "retriever=http", "retriever.http.ids=hits[*].id", url)
    assert "Talks to search.example (" in done.err, done.err
    assert "Talks to api.openai.com (llm.base_url)\n" in harness(*words, "gate=llm", "llm.model=m").err
    address = "http://me:secret@tracking.invalid:5000"
    by_key = harness("runs", f"tracking.uri={address}").err
    assert "Talks to tracking.invalid:5000 (tracking.uri)\n" in by_key
    monkeypatch.setenv(hosts.NAMED, "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    by_variable = harness("runs").err
    assert "Talks to tracking.invalid:5000 (MLFLOW_TRACKING_URI)\n" in by_variable
    assert "secret" not in by_key + by_variable
