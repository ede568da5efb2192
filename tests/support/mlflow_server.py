"""MLflow's servers for tests."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress

# `mlflow`, whose server runs in the same process, not in one of its own that imports MLflow again.
MLFLOW = """
import os, runpy, sys
import mlflow.cli, mlflow.server
def serve(command, extra_env, **_):
    os.environ.update(extra_env)
    sys.argv = command[2:]
    runpy.run_module(command[2], run_name="__main__")
mlflow.server._exec_cmd = serve
mlflow.cli.cli()
"""


@contextmanager
def serving(folder, port=None, processes=1):
    """(address, process) of an MLflow server on this machine, with its files and database in `folder`.

    HARNESS_TEST_DATABASE names another database, such as postgresql://USER@HOST/NAME.
    """
    database = os.environ.get("HARNESS_TEST_DATABASE", f"sqlite:///{folder / 'server.db'}")
    files = (folder / "files").as_uri()
    words = ["--workers", str(processes), "--backend-store-uri", database, "--artifacts-destination", files]
    with started(folder, ["-c", MLFLOW, "server", *words], port or free_port()) as found:
        yield found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(folder, words, port, **variables):
    """(address, process) of `python WORDS`, a server of MLflow, once it answers."""
    command = [sys.executable, *words, "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"} | variables
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "server.log").read_text()
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}", process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
