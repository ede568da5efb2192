"""How fast the exported model answers over HTTP, and whether its answers equal the run's.

    python scripts/benchmark_serving.py                                             # the sample
    python scripts/benchmark_serving.py dataset=contest dataset.path=FOLDER retriever=hybrid_lexical gate=auto

Runs `harness run` with the given overrides and exports the model in a temporary folder (with the usual cache), starts
`mlflow models serve` on 127.0.0.1, and sends every query of the run as it was searched for, one per request, so that
query.text=file works too:

- start: seconds from the command to the first answer
- alone, 8 at a time: milliseconds per request on an open connection, after a warm-up round
- search: milliseconds of the search alone, without HTTP, tables and JSON
- equal: number of answers with the documents and scores (to six decimals) of the run's predictions
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
HARNESS = [sys.executable, "-c", "from harness.cli import main; main()"]


def harness(*words: str) -> dict[str, Any]:
    done = subprocess.run([*HARNESS, *words, "format=json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def serve(outputs: Path, uri: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server of the model; return its process and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local"]
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{outputs / 'mlflow.db'}"}
    with (outputs / "serve.log").open("w") as log:
        address = ["-h", "127.0.0.1", "-p", str(port)]
        return subprocess.Popen(
            [*command, *address], env=environment, stdout=log, stderr=log, start_new_session=True
        ), port


def wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if server.poll() is not None:
                raise SystemExit(log.read_text("utf-8")) from None
            time.sleep(0.05)


def timed(
    rows: Sequence[dict[str, Any]], at_once: int, ask: Callable[[str], Any]
) -> tuple[np.ndarray, list[Any], float]:
    """(milliseconds per query, answers, queries/s)."""

    def one(row: dict[str, Any]) -> tuple[float, Any]:
        began = time.perf_counter()
        answer = ask(row["standalone_query"])
        return 1000 * (time.perf_counter() - began), answer

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        took, answers = zip(*pool.map(one, rows), strict=True)
    return np.array(took), list(answers), len(rows) / (time.perf_counter() - began)


def report(name: str, took: np.ndarray, rate: float) -> None:
    p50, p95 = np.percentile(took, [50, 95])
    print(f"| {name} | {p50:.1f} | {p95:.1f} | {took.max():.1f} | {rate:.0f} |", flush=True)


def asker(port: int) -> Callable[[str], list[dict[str, Any]]]:
    """A function that sends one query; each thread has its own connection."""
    own = threading.local()

    def ask(text: str) -> list[dict[str, Any]]:
        own.line = getattr(own, "line", None) or http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        body = json.dumps({"dataframe_records": [{"query": text}]})
        own.line.request("POST", "/invocations", body, {"Content-Type": "application/json"})
        answer = own.line.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {body.decode()}")
        return json.loads(body)["predictions"][0]["documents"]

    return ask


def as_predicted(answer: Sequence[dict[str, Any]], row: dict[str, Any]) -> bool:
    """Whether an answer has the documents and scores of a row of predictions."""
    documents = [(str(doc_id), one["score"]) for doc_id, one in zip(row["topk"], row["references"], strict=True)]
    return [(one["doc_id"], round(one["score"], 6)) for one in answer] == documents


def direct(package: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Time the search alone, in this process."""
    from harness.commands.export.model import load
    from retrievers.base import Query

    searcher = load(package)
    for name in ("", "search"):
        took, _, rate = timed(rows, 1, lambda text: searcher.search([Query.of("query", text)]))
        if name:
            report(name, took, rate)


def main(words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "outputs"
        cache = os.environ.get("HARNESS_CACHE", str(Path("outputs/cache").absolute()))
        where = [f"outputs={outputs}", f"store.path={cache}", "experiment_name=serving"]
        run = harness("run", *where, *words)
        model = harness("export", *where, "model=true")["model"]
        text = Path(run["files"]["predictions"]).read_text("utf-8")
        rows = [row for row in map(json.loads, text.splitlines()) if row["standalone_query"].strip()]
        began = time.perf_counter()
        server, port = serve(outputs, model["uri"])
        try:
            wait(server, port, outputs / "serve.log")
            ask = asker(port)
            ask(rows[0]["standalone_query"])
            print(
                f"{len(rows)} queries, model {model['bytes'] / 1e6:.1f} MB, start {time.perf_counter() - began:.1f} s\n"
            )
            print("| | p50 ms | p95 ms | max ms | queries/s |\n|---|---|---|---|---|")
            timed(rows, 8, ask)
            equal = 0
            for at_once, name in ((1, "alone"), (8, "8 at a time")):
                took, answers, rate = timed(rows, at_once, ask)
                report(name, took, rate)
                equal += sum(map(as_predicted, answers, rows))
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # it runs uvicorn in a child process
            server.wait(30)
        direct(next((outputs / "artifacts").rglob("artifacts/package")), rows)
        print(f"\nequal: {equal} of {2 * len(rows)}")


if __name__ == "__main__":
    main(sys.argv[1:])
