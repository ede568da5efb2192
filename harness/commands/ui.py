"""The verb `ui`: MLflow's pages on the store of the runs, on this machine alone unless asked otherwise."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.config.components import build
from harness.reports import terminal
from harness.tracking.mlflow_client import redacted
from harness.tracking.tracker import Tracker
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console


START_SECONDS = 120  # a cold start takes 12 to 31


def ui(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Start the server, say where its pages are once it answers, stop it on Ctrl-C. One that runs is only named."""
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(Path(config["outputs"]).absolute())
    if tracker.uri is None:
        raise BadInput("tracking=none keeps no runs to look at. Leave tracking out, or say tracking=mlflow.")
    pages = _pages(tracker, config["experiment_name"])
    if tracker.uri.startswith(("http://", "https://")):
        return _tell(config, redacted(tracker.uri), pages, tracker)
    host = config["host"]
    port = _free_port(host, config["port"])
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    if tracker.artifacts:
        command += ["--artifacts-destination", tracker.artifacts]  # of runs that are logged through this server
    # The store's address goes by the environment: a list of processes shows arguments, and it may hold a password.
    environment = os.environ | {"MLFLOW_BACKEND_STORE_URI": tracker.uri}
    server = subprocess.Popen(  # noqa: S603
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # however it is ended, its server ends, too
    document: dict[str, Any] = {}
    try:
        _wait(server, f"http://{host}:{port}/health")
        if port != config["port"]:
            print(f"Port {config['port']} is taken: using {port}.", file=sys.stderr)  # noqa: T201
        document = _tell(config, f"http://{host}:{port}", pages, tracker)
        if config["format"] == "text":
            print("Ctrl-C stops it.", flush=True)  # noqa: T201
        for _ in server.stderr or ():  # the server's log, read so that it never blocks
            pass
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
    return document


def _pages(tracker: Tracker, experiment: str) -> dict[str, str]:
    """What there is to look at -> path: the experiment, and the best trials of its latest sweep."""
    found = {"url": tracker.page(experiment)}
    sweeps = tracker.runs(experiment, {"harness.verb": "sweep"})
    if sweeps and "sweep.page" in sweeps[0].tags:
        found["sweep"] = sweeps[0].tags["sweep.page"]
    return found


def _tell(config: Mapping[str, Any], address: str, pages: Mapping[str, str], tracker: Tracker) -> dict[str, Any]:
    """Say where the pages are, and open the first one if that was asked for."""
    urls = {name: f"{address}/{page}" for name, page in pages.items()}
    document = {**urls, "store": redacted(tracker.uri)}

    def show(console: Console) -> None:
        console.print(urls["url"])
        if "sweep" in urls:
            console.print(f"The latest sweep's trials, the best first: {urls['sweep']}")

    terminal.emit(config["format"], document, show)
    sys.stdout.flush()
    if config["open"]:
        webbrowser.open(urls["url"])
    return document


def _free_port(host: str, wanted: int) -> int:
    """`wanted` if nobody listens there, else one that the system picks."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if port == 0 or isinstance(error, socket.gaierror):
                    raise BadInput(f"host={host}: {error.strerror}. Use an address of this machine.") from None
                continue
            return probe.getsockname()[1]
    raise AssertionError


def _wait(server: subprocess.Popen[str], health: str) -> None:
    """Until the server answers; RuntimeError with its last words if it ends or never does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            words = server.stderr.read() if server.stderr else ""
            raise RuntimeError(f"the MLflow server ended with {server.returncode}: {words[-2000:]}")
        try:
            with urllib.request.urlopen(health, timeout=2):  # noqa: S310 - our own http address
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"the MLflow server did not answer within {START_SECONDS} s")
