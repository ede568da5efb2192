"""`harness ui` is started, probed and stopped."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from urllib.parse import urlsplit

import pytest
from logged_runs import RUN
from planted_modules import Planted

from harness.errors import BadInput


@pytest.mark.slow
def test_ui_serves_and_takes_runs_on_a_free_port_and_stops_with_its_server(harness, logged, tmp_path):
    logged(RUN)
    planted = Planted(tmp_path)  # neither MLflow nor what it starts imports from the working folder
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = ["ui", "experiment_name=e", f"port={taken.getsockname()[1]}", "format=json"]
        server = subprocess.Popen(
            [sys.executable, "-P", "-c", "from harness.cli import main; main()", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        try:
            url = json.loads(server.stdout.readline())["url"]
            assert f":{taken.getsockname()[1]}/" not in url
            assert re.match(r"http://127\.0\.0\.1:\d+/#/experiments/", url)
            with urllib.request.urlopen(url.partition("#")[0], timeout=30) as page:
                assert b"<title>MLflow" in page.read()
            # The same server takes runs, their files too, under an experiment that it has yet to make.
            address = f"tracking.uri={url.partition('#')[0].rstrip('/')}"
            words = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=서버", address)
            run_id = harness("run", *words, "format=json").json["run_id"]
            exported = harness("export", "experiment_name=서버", "submission=s.csv", address, "format=json").json
            assert exported["run_id"] == run_id
            assert list((tmp_path / "outputs" / "artifacts").rglob(f"{run_id}/artifacts/predictions.jsonl"))
            assert not (tmp_path / "mlartifacts").exists()
            assert planted.executed == []
        finally:
            server.send_signal(signal.SIGTERM)  # test_browser.py has Ctrl-C
            assert server.wait(60) == 0
            with socket.socket() as probe:  # MLflow's own process has gone with it
                assert probe.connect_ex(("127.0.0.1", urlsplit(url).port)) != 0


def test_ui_says_at_once_where_it_will_be_and_starts_no_jobs(harness, monkeypatch):
    monkeypatch.delenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION")
    started = {}

    def popen(command, env, **_):
        started.update(env)
        raise BadInput("far enough")

    monkeypatch.setattr(subprocess, "Popen", popen)
    done = harness("ui", "port=50999", "format=json")
    assert "MLflow starts at http://127.0.0.1:50999" in done.err
    assert done.out == ""
    assert started["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert started["MLFLOW_BACKEND_STORE_URI"].startswith("sqlite:///")


def test_ui_needs_a_store_and_an_address_of_this_machine(harness):
    assert "keeps no runs" in harness("ui", "tracking=none").refusal
    assert "host=no.such.host.invalid" in harness("ui", "host=no.such.host.invalid").refusal
