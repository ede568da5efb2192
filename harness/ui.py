"""The verb `ui`: MLflow's pages on the store of the runs, on this machine alone unless asked otherwise."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import report
from harness.config import Asked, build
from harness.mlflow_store import redacted
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console

START_SECONDS = 120  # a cold start takes 12 to 31


def ui(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Start the server, say where it is once it answers, and stop it on Ctrl-C."""
    tracker = build(config["tracking"], where="tracking")
    tracker.connect(Path(config["outputs"]).absolute())
    if getattr(tracker, "uri", None) is None:
        raise BadInput("tracking=none keeps no runs to look at. Leave tracking out, or say tracking=mlflow.")
    page = _page(tracker, config["experiment_name"])
    if tracker.uri.startswith(("http://", "https://")):
        document = {"url": f"{redacted(tracker.uri)}/{page}", "store": redacted(tracker.uri)}
        report.emit(config["format"], document, lambda console: console.print(document["url"]))
        return document
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
    try:
        _wait(server, f"http://{host}:{port}/health")
        document = {"url": f"http://{host}:{port}/{page}", "store": redacted(tracker.uri)}

        def show(console: Console) -> None:
            if port != config["port"]:
                console.print(f"Port {config['port']} is taken: using {port}.")
            console.print(f"{document['url']}\nCtrl-C stops it.")

        report.emit(config["format"], document, show)
        sys.stdout.flush()
        for _ in server.stderr or ():  # the server's log, read so that it never blocks
            pass
        server.wait()
    except KeyboardInterrupt:
        document = {}
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
    return document


def _page(tracker: Any, experiment: str) -> str:
    found = tracker.client.get_experiment_by_name(experiment)
    return f"#/experiments/{found.experiment_id}/runs" if found else ""


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
