"""Time per trace, and how many arrive: written as `trace=all` writes them, and by MLflow's own tracing.

    python scripts/benchmark_traces.py                          # 1,000 traces to SQLite, then 1,000 to a server
    python scripts/benchmark_traces.py 200

A trace is as large as that of a hybrid retriever: seven spans, three of them with ten documents of 300 Korean
characters each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.tracking.mlflow_spans import Span, Trace, write
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.traces import BATCH, CONTENT, DOCUMENTS
from harness.tracking.tracker import RunRecord

PORT = 5091
MS = 1000


def example() -> Span:
    documents = [
        {"page_content": "가" * CONTENT, "metadata": {"relevance": 0, "rank": n, "score": 1.5, "doc_id": str(n)}}
        for n in range(DOCUMENTS)
    ]
    words = Span("tokenise", "PARSER", {"query": "정상파가 뭐야?"}, ["정상파", "뭐"])
    ranked = [Span(name, "RETRIEVER", {"query": "정상파가 뭐야?"}, documents, parts=(words,)) for name in "ab"]
    last = (Span("fusion", "CHAIN", {}, documents), Span("gate", "GUARDRAIL", {"signal": 1.0}, {"retrieve": True}))
    return Span("retrieval", "CHAIN", {"query": "정상파가 뭐야?"}, documents[:3], parts=(*ranked, *last))


def ours(uri: str, count: int) -> None:
    """Write traces in batches, as the harness does."""
    tracker = MlflowTracker(uri)
    tracker.connect(Path.cwd())
    run_id = tracker.begin(RunRecord(f"ours {time.time()}", "r"))
    experiment_id = tracker.client.get_run(run_id).info.experiment_id
    root = example()
    began = time.perf_counter()
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        write(tracker.client, run_id, experiment_id, [Trace(root, {"query_id": str(n)}) for n in numbers])
    report("retrieval-harness", uri, count, time.perf_counter() - began, experiment_id)


def own(uri: str, count: int) -> None:
    """Write traces with MLflow's context managers; in a separate process, since their tracking address is global."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    experiment_id = mlflow.set_experiment(f"own {time.time()}").experiment_id

    def enter(span: Span) -> None:
        with mlflow.start_span(span.name, span_type=span.kind) as live:
            live.set_inputs(span.inputs)
            live.set_outputs(span.outputs)
            for part in span.parts:
                enter(part)

    root = example()
    began = time.perf_counter()
    for _ in range(count):
        enter(root)
    mlflow.flush_trace_async_logging()
    name = "MLflow, " + ("synchronous" if os.environ.get("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING") else "default")
    report(name, uri, count, time.perf_counter() - began, experiment_id)


def report(name: str, uri: str, count: int, seconds: float, experiment_id: str) -> None:
    """Print the time per trace, and how many traces arrived with all spans."""
    from mlflow import MlflowClient

    client, arrived, whole, token = MlflowClient(uri), 0, 0, None
    while token or not arrived:
        page = client.search_traces(locations=[experiment_id], max_results=200, page_token=token)
        arrived, whole = arrived + len(page), whole + sum(len(trace.data.spans) == 7 for trace in page)
        if not (token := page.token):
            break
    place = uri.partition(":")[0]
    print(
        f"{place:7} {name:22} {MS * seconds / count:6.1f} ms per trace, {arrived} of {count} arrived, {whole} complete"
    )


@contextmanager
def serving(folder: Path):
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(PORT), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **quiet)
    try:
        for _ in range(300):
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health").close()
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{PORT}"
    finally:
        os.killpg(process.pid, 9)
        process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["own"]:
        sys.exit(own(sys.argv[2], int(sys.argv[3])))
    traces = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as name:
        MlflowTracker().connect(Path(name))
        with serving(Path(name)) as server:
            for address in (f"sqlite:///{name}/mlflow.db", server):
                ours(address, traces)
                for setting in ({}, {"MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false"}):
                    command = [sys.executable, str(Path(__file__).resolve()), "own", address, str(traces)]
                    quiet = {"stderr": subprocess.DEVNULL, "cwd": name}
                    subprocess.run(command, env=os.environ | setting, check=True, **quiet)
