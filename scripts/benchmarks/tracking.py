"""Logging, tracing and serving against bare MLflow, and where the seconds of a run go."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from measuring import ROOT, Table, apart, harness, in_turns, opened_tracker, timed, watched

from harness.cli import call
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import RunRecord, mlflow_name

ROUNDS, SLOW_ROUNDS, AT_ONCE = 15, 3, 8  # passes, passes of the slowest way; queries at a time
SYNCHRONOUS = {"MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false"}


def tracking(*words: str, rounds: int = ROUNDS) -> None:
    """Compare the time for logging a run with bare MLflow calls that log the same, to SQLite and to a server over HTTP.

    WORDS are overrides of `harness run`; tracking.detail=light logs as the trials of a sweep do. One run is made and
    then logged repeatedly, alternating between the harness, an `MlflowClient` with as few calls, and one call per
    value, as most programs do. The time for making the files (figures, page, table) is printed separately.
    """
    from mlflow_server import serving as mlflow_server

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record, made = one_run(folder, words)
        assert record.folder is not None
        files = [path.stat().st_size for path in record.folder.rglob("*") if path.is_file()]
        about = f"{len(record.params)} params, {len(record.metrics)} metrics, {len(record.tables)} tables"
        print(f"{about}, {len(files)} files of {sum(files) / 1000:,.0f} kB; page and figures took {made:.0f} ms\n")
        columns = ("harness, ms", "few bare calls", "one call per value", "harness over bare", "min - max")
        table = Table("store", *columns)
        with mlflow_server(folder) as (address, _):
            for label, uri in (("SQLite", f"sqlite:///{folder / 'bench.db'}"), ("HTTP", address)):
                tracker = MlflowTracker(uri, "full" if record.tables else "light")
                tracker.connect(folder)
                tracker.begin(RunRecord("bench", "makes the experiment"))
                ways = [lambda log=log, to=tracker: log(to, record) for log in (_ours, _bare, _single)]
                spent = 1000 * in_turns(ways[:2], rounds)
                slow = 1000 * in_turns(ways[2:], min(SLOW_ROUNDS, rounds))
                ratios = spent[:, 0] / spent[:, 1]
                medians = [*map(float, np.median(spent, axis=0)), float(np.median(slow)), float(np.median(ratios))]
                table.row(label, *medians, f"{ratios.min():.2f} - {ratios.max():.2f}")


def one_run(folder: Path, words: Sequence[str]) -> tuple[RunRecord, float]:
    """Return the record of one run with its folder of files, and the ms that its page and figures took."""
    from harness.recording import recording, retrieval_run

    caught, took = list[RunRecord](), list[float]()
    plain_write, plain_end = retrieval_run.write_page, recording.LiveRun.end

    def write(*arguments: Any) -> None:
        took.append(1000 * timed(lambda: plain_write(*arguments))[0])

    def end(run: recording.LiveRun, status: str) -> None:
        caught.append(run.record)
        plain_end(run, status)

    with mock.patch.object(retrieval_run, "write_page", write), mock.patch.object(recording.LiveRun, "end", end):
        for _ in range(2):  # the first imports and compiles
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert call("run", ["format=json", f"outputs={folder}", *words]) == 0, "the run failed"
    caught[-1].folder = Path(json.loads(out.getvalue())["files"]["folder"])
    return caught[-1], took[-1] if took else 0.0


def _ours(tracker: MlflowTracker, record: RunRecord) -> None:
    record.experiment = "bench"
    tracker.finish(tracker.begin(record), record, "FINISHED")


def _bare(tracker: MlflowTracker, record: RunRecord) -> None:
    """Log the same content with MLflow's client, one call per kind of content."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

    client, now = tracker.client, int(1000 * time.time())
    experiment = client.get_experiment_by_name("bench")
    run_id = client.create_run(experiment.experiment_id, tags=record.tags, run_name=record.name).info.run_id
    client.log_batch(
        run_id,
        [Metric(mlflow_name(name), value, now, 0) for name, value in record.metrics.items()],
        [Param(name, str(value)) for name, value in record.params.items()],
        [RunTag(name, value) for name, value in record.end_tags.items()],
    )
    inputs = []
    for context, one in record.inputs.items():
        about = Dataset(one.name, one.sha256[:36], "local", json.dumps({"uri": one.source}))
        inputs.append(DatasetInput(about, [InputTag("context", context)]))
    if inputs and tracker.detail != "light":
        client.log_inputs(run_id, inputs)
    client.log_artifacts(run_id, str(record.folder))
    for name, table in record.tables.items():
        rows = list(zip(*table.values(), strict=True))
        client.log_text(run_id, json.dumps({"columns": list(table), "data": rows}, ensure_ascii=False), name)
    client.set_terminated(run_id)


def _single(tracker: MlflowTracker, record: RunRecord) -> None:
    """Log with one call per param, metric, tag and file."""
    client = tracker.client
    experiment = client.get_experiment_by_name("bench")
    run_id = client.create_run(experiment.experiment_id, run_name=record.name).info.run_id
    for name, value in (record.tags | record.end_tags).items():
        client.set_tag(run_id, name, value)
    for name, value in record.params.items():
        client.log_param(run_id, name, str(value))
    for name, value in record.metrics.items():
        client.log_metric(run_id, mlflow_name(name), value)
    assert record.folder is not None
    for path in record.folder.iterdir():
        client.log_artifact(run_id, str(path))
    client.set_terminated(run_id)


def traces(count: int = 1000) -> None:
    """Compare the time per trace, and how many arrive: as `trace=all` writes them, and by MLflow's own tracing.

    A trace is as large as that of a hybrid retriever: seven spans, three of them with ten documents of 300 Korean
    characters each. MLflow's are written with its default settings and synchronously, each in a process of its own,
    since their tracking address is global.
    """
    from mlflow_server import serving as mlflow_server

    with tempfile.TemporaryDirectory() as name, mlflow_server(Path(name)) as (server, _):
        table = Table("store", "by", "ms per trace", "arrived", "complete")
        for uri in (f"sqlite:///{name}/own.db", server):
            opened_tracker(Path(name), uri)
            table.row(uri.partition(":")[0], "retrieval-harness", *our_traces(uri, count))
            for label, setting in (("MLflow, default", {}), ("MLflow, synchronous", SYNCHRONOUS)):
                cells = apart(own_traces, uri, count, environment={"MLFLOW_DISABLE_TELEMETRY": "true"} | setting)
                table.row(uri.partition(":")[0], label, *cells)


def _example() -> Any:
    from harness.recording.traces import CONTENT, DOCUMENTS
    from harness.tracking.mlflow_spans import TraceSpan

    documents = [
        {"page_content": "가" * CONTENT, "metadata": {"relevance": 0, "rank": n, "score": 1.5, "doc_id": str(n)}}
        for n in range(DOCUMENTS)
    ]
    query = {"query": "정상파가 뭐야?"}
    words = TraceSpan("tokenise", "PARSER", query, ["정상파", "뭐"])
    ranked = [TraceSpan(name, "RETRIEVER", query, documents, children=(words,)) for name in "ab"]
    fusion = TraceSpan("fusion", "CHAIN", {}, documents)
    gate = TraceSpan("gate", "GUARDRAIL", {"signal": 1.0}, {"retrieve": True})
    return TraceSpan("retrieval", "CHAIN", query, documents[:3], children=(*ranked, fusion, gate))


def our_traces(uri: str, count: int) -> tuple[float, int, int]:
    """Write traces in batches, as the harness does; return the cells of a row."""
    from harness.recording.traces import BATCH
    from harness.tracking.mlflow_spans import Trace, write_spans

    tracker = opened_tracker(Path.cwd(), uri)
    run_id = tracker.begin(RunRecord(f"ours {time.time()}", "r"))
    experiment_id = tracker.client.get_run(run_id).info.experiment_id
    root, began = _example(), time.perf_counter()
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        write_spans(tracker.client, run_id, experiment_id, [Trace(root, {"query_id": str(n)}) for n in numbers])
    return _arrived(uri, count, time.perf_counter() - began, experiment_id)


def own_traces(uri: str, count: int) -> tuple[float, int, int]:
    """Write traces with MLflow's context managers; return the cells of a row."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    experiment_id = mlflow.set_experiment(f"own {time.time()}").experiment_id

    def enter(span: Any) -> None:
        with mlflow.start_span(span.name, span_type=span.kind) as live:
            live.set_inputs(span.inputs)
            live.set_outputs(span.outputs)
            for part in span.children:
                enter(part)

    root, began = _example(), time.perf_counter()
    for _ in range(count):
        enter(root)
    mlflow.flush_trace_async_logging()
    return _arrived(uri, count, time.perf_counter() - began, experiment_id)


def _arrived(uri: str, count: int, spent: float, experiment_id: str) -> tuple[float, int, int]:
    """Return ms per trace, how many traces arrived, and how many of them with all spans."""
    from mlflow import MlflowClient

    client, arrived, whole, token = MlflowClient(uri), 0, 0, None
    while True:
        page = client.search_traces(locations=[experiment_id], max_results=200, page_token=token)
        arrived, whole = arrived + len(page), whole + sum(len(trace.data.spans) == 7 for trace in page)
        if not (token := page.token):
            return 1000 * spent / count, arrived, whole


def served(rows: Sequence[dict[str, Any]], at_once: int, ask: Callable[[str], Any]) -> tuple[list[float], int]:
    """Ask all queries; return the cells of a row, and how many answers equal the predictions."""

    def asked(row: dict[str, Any]) -> tuple[float, Any]:
        return timed(lambda: ask(row["standalone_query"]))

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        took, answers = zip(*pool.map(asked, rows), strict=True)
    rate = len(rows) / (time.perf_counter() - began)
    cells = [*map(float, np.percentile(1000 * np.array(took), [50, 95, 100])), rate]
    return cells, sum(map(_as_predicted, answers, rows))


def serving(*words: str) -> None:
    """Measure how fast the exported model answers over HTTP, and whether its answers equal the run's.

    Runs `harness run` with the given WORDS and exports the model in a temporary folder (with the usual cache), starts
    `mlflow models serve` on 127.0.0.1, and sends every query of the run as it was searched for, one per request:

    - start: seconds from the command to the first answer
    - alone, 8 at a time: milliseconds per request on an open connection, after a warm-up round
    - search: milliseconds of the search alone, without HTTP, tables and JSON
    - equal: number of answers with the documents and scores (to six decimals) of the run's predictions
    """
    from harness.commands.export.model import load_model
    from retrievers.base import Query

    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "outputs"
        cache = os.environ.get("HARNESS_CACHE", str(Path("outputs/cache").absolute()))
        where = [f"outputs={outputs}", f"store.path={cache}", "experiment_name=serving"]
        _, run = harness("run", *where, *words)
        model = harness("export", *where, "model=true")[1]["model"]
        lines = Path(run["files"]["predictions"]).read_text("utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if row["standalone_query"].strip()]
        began, equal = time.perf_counter(), 0
        with _model_server(outputs, model["uri"]) as ask:
            ask(rows[0]["standalone_query"])
            start = time.perf_counter() - began
            print(f"{len(rows)} queries, model {model['bytes'] / 1e6:.1f} MB, start {start:.1f} s\n")
            table = Table("", "p50 ms", "p95 ms", "max ms", "queries/s")
            served(rows, AT_ONCE, ask)
            for at_once, name in ((1, "alone"), (AT_ONCE, f"{AT_ONCE} at a time")):
                cells, right = served(rows, at_once, ask)
                table.row(name, *cells)
                equal += right
        searcher = load_model(next((outputs / "artifacts").rglob("artifacts/package")))
        found = [served(rows, 1, lambda text: searcher.search([Query.of("query", text)]) and ())[0] for _ in range(2)]
        table.row("search", *found[1])
        print(f"\nequal: {equal} of {2 * len(rows)}")


@contextlib.contextmanager
def _model_server(outputs: Path, uri: str) -> Iterator[Callable[[str], Any]]:
    """Serve the model; give a function that sends one query over an open connection."""
    import urllib3

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local"]
    command += ["-h", "127.0.0.1", "-p", address.partition(":")[2]]
    environment = os.environ | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{outputs / 'mlflow.db'}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),  # it starts uvicorn
    }
    pool = urllib3.PoolManager(maxsize=AT_ONCE, retries=False, timeout=120)

    def ready() -> bool:
        if server.poll() is not None:
            raise SystemExit((outputs / "serve.log").read_text("utf-8"))
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return pool.request("GET", f"http://{address}/ping").status == 200
        return False

    def ask(text: str) -> Any:
        answer = pool.request("POST", f"http://{address}/invocations", json={"dataframe_records": [{"query": text}]})
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.data.decode()}")
        return answer.json()["predictions"][0]["documents"]

    with (outputs / "serve.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        watched(ready, 600)
        yield ask
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)  # it runs uvicorn in a child process
        server.wait(30)


def _as_predicted(answer: Sequence[dict[str, Any]], row: dict[str, Any]) -> bool:
    """Return whether an answer has the documents and scores of a row of predictions."""
    documents = [(str(doc_id), one["score"]) for doc_id, one in zip(row["topk"], row["references"], strict=True)]
    return [(one["doc_id"], round(one["score"], 6)) for one in answer] == documents


def profile(*words: str) -> int:
    """Show where the seconds of `harness run` go when an earlier run has cached everything.

    WORDS are overrides of the run, such as retriever=dense encoder=local encoder.path=FOLDER. Read the second call; the
    first fills the cache. Start, Hydra and checks are counted from the start of this process.
    """
    from harness.commands import run as command

    hz, spent = os.sysconf("SC_CLK_TCK"), dict[str, float]()
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / hz
    plain_connect, plain_run = MlflowTracker.connect, command.run

    def now() -> float:
        return float(Path("/proc/uptime").read_text().split()[0]) - started

    def noted(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            took, result = timed(lambda: function(*arguments, **named))
            spent[label] = spent.get(label, 0.0) + took
            return result

        return wrapper

    def connect(self: MlflowTracker, outputs: Path) -> None:
        noted("import mlflow", importlib.import_module)("mlflow")
        noted("import its SQL store", importlib.import_module)("mlflow.store.tracking.sqlalchemy_store")
        noted("open the store", plain_connect)(self, outputs)

    def run(*arguments: Any) -> Any:
        spent["start, Hydra, checks"] = now()
        return plain_run(*arguments)

    MlflowTracker.connect, command.run = connect, run  # type: ignore[method-assign]
    for owner, name, label in (
        (MlflowTracker, "begin", "log the run"),
        (MlflowTracker, "finish", "log the run"),
        (command.steps, "run", "ranking from the cache, scores, intervals"),
        (command.retrieval_run, "write_page", "import matplotlib, write the page"),
    ):
        setattr(owner, name, noted(label, getattr(owner, name)))
    with contextlib.redirect_stdout(sys.stderr):
        code = call("run", [*words])
    spent["total"] = now()
    table = Table("step", "seconds")
    for label, value in spent.items():
        table.row(label, f"{value:.2f}")
    heavy = [name for name in ("torch", "sentence_transformers", "faiss", "kiwipiepy", "numba") if name in sys.modules]
    print(f"\nimported: {', '.join(heavy) or 'no model and no index'}")
    return code
