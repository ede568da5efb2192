"""`harness ui`: serve MLflow's pages of the runs, by default to this machine alone."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import webbrowser
from collections.abc import Mapping

from harness import children, interruption
from harness.config.check import Invocation
from harness.config.commands import UiConfig
from harness.recording.recording import open_store
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.tracking.mlflow_client import shown_address, without_login
from harness.tracking.tracker import Tracker

START_SECONDS = 120  # how long the server may take to start; a cold start takes 12 to 31 seconds


def ui(config: UiConfig, invocation: Invocation) -> CommandAnswer:
    """Print the addresses of MLflow's pages. Serve the pages until Ctrl-C, unless the store is a server."""
    host, port = config.host, children.on_port(lambda port: _probed(config.host, port), config.host, config.port)
    address = f"http://{host}:{port}"
    tracker = open_store(config, "keeps no runs to look at")
    assert tracker.uri is not None
    if tracker.uri.startswith(("http://", "https://")):
        return _announce(config, without_login(tracker.uri), _pages(tracker, config.experiment_name), tracker)
    taken = f" (port {config.port} is taken)" if port != config.port else ""
    print(f"MLflow starts at {address}{taken}; that takes 10 to 40 s ...", file=sys.stderr, flush=True)  # noqa: T201
    server = _start(tracker, host, port)
    answer = CommandAnswer({}, None)
    with interruption.until_interrupted():
        try:
            pages = _pages(tracker, config.experiment_name)  # while the server starts
            _wait(server, f"{address}/health")
            answer = _announce(config, address, pages, tracker)
            if config.format == "text":
                print("Press Ctrl-C to stop the server.", flush=True)  # noqa: T201
            for _ in server.stderr or ():  # read the server's log: a full pipe would block the server
                pass
            server.wait()
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
    return answer


def _start(tracker: Tracker, host: str, port: int) -> subprocess.Popen[str]:
    command = ["-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    # Uvicorn, which MLflow starts, would put the working folder first on the import path. Name another folder.
    command += ["--uvicorn-opts", shlex.join(["--app-dir", sysconfig.get_path("stdlib")])]
    if tracker.artifacts:
        command += ["--artifacts-destination", tracker.artifacts]  # for runs that are logged through this server
    # The store's address may hold a password, and process lists show arguments: pass the address in the environment.
    jobs = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # The pages need no job processes.
    variables = jobs | os.environ | {"MLFLOW_BACKEND_STORE_URI": str(tracker.uri)}
    return children.start(command, variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _pages(tracker: Tracker, experiment: str) -> dict[str, str]:
    """Return JSON key -> path of a page: the experiment's page, and the page of its latest sweep if there is one."""
    pages = {"url": tracker.page(experiment)}
    sweeps = tracker.runs(experiment, {"harness.verb": "sweep"})
    if sweeps and "sweep.page" in sweeps[0].tags:
        pages["sweep"] = sweeps[0].tags["sweep.page"]
    return pages


def _announce(config: UiConfig, address: str, pages: Mapping[str, str], tracker: Tracker) -> CommandAnswer:
    urls = {name: f"{address}/{page}" for name, page in pages.items()}
    document = {**urls, "store": shown_address(tracker.uri)}
    sweep = [f"The latest sweep's trials, the best first: {urls['sweep']}"] if "sweep" in urls else []
    CommandAnswer(document, Report("", files=[urls["url"], *sweep])).emit(config.format)
    if config.open:
        webbrowser.open(urls["url"])
    return CommandAnswer(document, None)


def _probed(host: str, port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[str], health: str) -> None:
    """Wait until the server answers. Raise RuntimeError if it takes too long or ends; if it ends, quote its log."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            output = server.stderr.read() if server.stderr else ""
            raise RuntimeError(f"The MLflow server ended with exit code {server.returncode}: {output[-2000:]}")
        try:
            with urllib.request.urlopen(health, timeout=2):  # noqa: S310 - our own http address
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"The MLflow server did not answer within {START_SECONDS} s")
