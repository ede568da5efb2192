"""`harness load`: what is loaded, logged and shown, and what is refused. See also tests/experiment/test_loading.py."""

import csv
import itertools
import json
import math
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logged_runs import DATA, RUN, TOY, WITHHELD
from search_server import Reply, SearchServer
from virtual_clock import lindley

from harness.data.contest import Contest
from harness.experiment import timing
from harness.experiment.loading import LevelTimes, LoadBounds, LoadLevel, percentile, sent_queries, warm_up
from harness.reports.figure import save
from harness.reports.run_figures import draw_load
from retrievers.base import Document, Query
from retrievers.external.http import HttpRetriever
from retrievers.redaction import register

QUICK = ("concurrency=[1,2]", "queries=20", "format=json")
LOAD = ("load", *TOY, *QUICK)


def fastapi(server, *more):
    return ("load", *TOY, *QUICK, "retriever=fastapi", f"retriever.fastapi.url={server.url}", *more)


def test_a_load_is_logged_beside_the_run_of_the_same_configuration(harness, tracker, toy):
    ran, found = harness(*RUN).json, harness(*LOAD, "rates=[200]").json
    run, loaded = tracker.run(ran["run_id"]), tracker.run(found["run_id"])
    assert loaded.tags["harness.verb"] == "load"
    assert loaded.tags["trial_key"] == run.tags["trial_key"]
    assert (loaded.experiment, loaded.status) == (run.experiment, "FINISHED")
    assert loaded.params.items() >= {**run.params, "concurrency": "[1, 2]", "rates": "[200.0]", "queries": "20"}.items()
    assert loaded.tags[timing.MACHINE] == timing.machine()
    assert [(one["concurrency"], one["rate"], one["sent"]) for one in found["levels"]] == [
        (1, None, 20), (2, None, 20), (None, 200.0, 20),
    ]  # fmt: skip
    assert found["knee"] in found["levels"]
    assert {name: loaded.metrics[name] for name in ("qps", "p95_ms")} == {
        name: pytest.approx(found["knee"][name]) for name in ("qps", "p95_ms")
    }
    assert "objective" not in loaded.metrics
    files = Path(found["files"]["folder"])
    assert {path.name for path in files.iterdir()} >= {"config.yaml", "levels.csv", "load.png", "metrics.json"}
    first, *_ = csv.DictReader((files / "levels.csv").read_text("utf-8").splitlines())
    assert float(first["p95_ms"]) == pytest.approx(found["levels"][0]["p95_ms"])
    numbers = json.loads((files / "metrics.json").read_text("utf-8"))["metrics"]
    assert {name: value for name, value in numbers.items() if name != "load_average"} == {
        name: pytest.approx(value) for name, value in found["knee"].items() if value and name.endswith(("_ms", "qps"))
    }


def test_the_board_and_the_list_show_the_latest_load_of_each_configuration(harness, logged):
    """A load with other settings, such as another top_k, belongs to none of the runs."""
    other, best = (done.json["run_id"] for done in logged(WITHHELD, RUN))
    first, second, _ = (harness(*LOAD, "concurrency=[1]", *more).json for more in ((), (), ("top_k=2",)))
    assert first["run_id"] != second["run_id"]
    wanted = {
        best: (pytest.approx(second["knee"]["p95_ms"]), pytest.approx(second["knee"]["qps"])),
        other: (None, None),
    }
    rows = harness("board", "experiment_name=e", "format=json").json["rows"]
    assert {row["run_id"]: (row["p95_ms"], row["qps"]) for row in rows} == wanted
    [group] = harness("runs", "experiment_name=e", "format=json").json["groups"]
    assert {row["run_id"]: (row["p95_ms"], row["qps"]) for row in group["rows"]} == wanted
    assert {"p95 ms", "qps"} <= {*re.findall(r"p95 ms|qps", harness("runs", "experiment_name=e").text)}
    refusal = harness("compare", "experiment_name=e", f"runs=[{first['run_id']},{best}]").refusal
    assert "is a record of `harness load`, without scores" in refusal


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("concurrency=[0]",), "concurrency=0 is too small: the minimum is 1"),
        (("concurrency=[1,257]",), "concurrency=257 is too large: the maximum is 256 (each worker is a thread)"),
        (("concurrency=4",), "concurrency=4 is not a list of whole numbers"),
        (("rates=[0]",), "rates=0 is too small: the minimum is 0.001"),
        (("rates=[fast]",), "rates=['fast'] is not a list of finite numbers"),
        (("rates=[0.001]",), "at 0.001 queries per second, no query arrives in seconds=5"),
        (("seconds=0",), "seconds=0 is too small"),
        (("queries=0",), "queries=0 is too small"),
        (("timeout=0",), "timeout=0 is too small"),
        (("concurency=[2]",), "Did you mean 'concurrency'?"),
        (("gate=auto",), "gate=auto learns from labels in each run, and a load learns nothing. Load a rule"),
        (("query.text=rewrite", "llm.model=m"), "asks a language model about each query, so a load could cost much"),
        (("retriever=file", "retriever.file.path=run.trec"), "retriever.file only has rankings made elsewhere"),
        (("task=answers",), "`harness load` is about retrieval"),
    ],
)
def test_what_cannot_be_loaded(harness, toy, words, expected):
    Path("run.trec").write_text("7 Q0 d3 1 2 r\n3 Q0 d2 1 2 r\n5 Q0 d1 1 2 r\n")
    assert expected in harness(*LOAD, *words).refusal
    assert not Path("outputs/loads").exists()


def test_a_dataset_without_queries_is_refused(harness, toy, monkeypatch):
    (toy / "eval.jsonl").write_text("")
    assert "eval.jsonl" in harness(*LOAD).refusal
    monkeypatch.setattr(Contest, "queries", lambda self: [])  # as a plug-in's reader could
    (toy / "qrels.jsonl").unlink()
    assert "The dataset has no queries to send." in harness(*LOAD).refusal


@pytest.mark.parametrize("word", ["", "allow=[http://search.example.com]"])
def test_another_machine_must_be_allowed_on_the_command_line(harness, toy, word):
    words = ("load", *TOY, "retriever=fastapi", "retriever.fastapi.url=http://search.example.org:9/search", word)
    refusal = harness(*filter(None, words)).refusal
    assert "retriever.fastapi.url is on another machine, http://search.example.org:9." in refusal
    assert "allow it on the command line: 'allow=[http://search.example.org:9]'" in refusal
    Path("harness.yaml").write_text("allow: [http://search.example.org:9]\n")
    assert "allow can only be given on the command line" in harness(*filter(None, words)).refusal


def test_an_allowed_machine_is_asked(harness, toy):
    """The reserved name is never found, and no query is counted."""
    words = ("retriever=fastapi", "retriever.fastapi.url=http://search.invalid/search", "allow=[http://search.invalid]")
    done = harness("load", *TOY, *QUICK, *words)
    assert done.code == 1
    assert (
        "Talks to search.invalid (retriever.fastapi.url)" in done.err or "has no result from http://search" in done.err
    )


def test_a_server_that_cannot_be_reached(harness, toy):
    done = harness("load", *TOY, *QUICK, "retriever=fastapi", "retriever.fastapi.url=http://127.0.0.1:9/search")
    assert done.code == 1
    assert "connection refused. Is the server running" in done.err
    assert not Path("outputs/loads").exists()


def served(**more):
    ids = [row["docid"] for row in DATA["documents.jsonl"]]
    return SearchServer(lambda text, k: [(doc_id, 3.0 - rank) for rank, doc_id in enumerate(ids)][:k], **more)


def test_a_service_is_asked_for_each_query_in_turn_and_never_again_after_an_error(harness, toy):
    """One request loads the search, ten warm up, and each query is sent once: 40 by one worker, 40 by three."""
    number = itertools.count()

    def fault(asked):
        place = next(number)
        return Reply(503, {"error": "overloaded"}) if place > 50 and place % 2 else None

    with served(fault=fault) as server:
        found = harness(*fastapi(server, "concurrency=[3]", "queries=40")).json
    first, second = found["levels"]
    assert [one["concurrency"] for one in (first, second)] == [1, 3]
    assert [one["errors"] for one in (first, second)] == [0, 20]
    assert (second["timeouts"], second["keeps_up"], second["p95_ms"]) == (0, False, None)
    assert len(server.asked) == 91
    assert server.together <= 3
    assert "HTTP 503: overloaded" in found["errors"][0]
    texts = [asked.query for asked in server.asked[11:51]]
    assert all(len({*texts[start : start + 3]}) == 3 for start in range(38))


def test_an_exception_of_a_python_function_is_an_error_without_secrets(harness, toy, monkeypatch):
    lines = [
        "import itertools", "numbers = itertools.count()", "def search(queries, k):",
        "    if 20 <= next(numbers) < 25:", "        raise OSError('key s3cr3t-0123456789')",
        "    return [[('d1', 1.0)] for _ in queries]",
    ]  # fmt: skip
    Path("my_loaded.py").write_text("\n".join(lines))
    words = ("retriever=python", "retriever.python.function=my_loaded:search", "plugins.allow=[my_loaded]")
    register("LOADED_KEY")
    monkeypatch.setenv("LOADED_KEY", "s3cr3t-0123456789")
    found = harness(*LOAD, *words, "concurrency=[1]").json
    assert (found["levels"][0]["sent"], found["levels"][0]["errors"]) == (20, 5)
    assert "OSError: key" in found["errors"][0]
    assert "s3cr3t" not in found["errors"][0]


def test_a_service_that_answers_too_late(harness, toy):
    number = itertools.count()
    with served(fault=lambda asked: time.sleep(0.6) if next(number) == 15 else None) as server:
        found = harness(*fastapi(server, "concurrency=[1]", "queries=12", "timeout=0.5")).json
    assert (found["levels"][0]["timeouts"], found["errors"]) == (1, [])


def test_what_people_read(harness, toy):
    said = harness("load", *TOY, "concurrency=[2]", "queries=30").text
    assert "queries per second are answered, 95 % of all within" in said
    assert "concurrency=2" in said
    assert "The dataset has 3 queries, which were sent repeatedly." in said
    assert timing.machine() in said
    pasted = harness("load", *TOY, "concurrency=[1]", "queries=25", "format=csv").text
    assert pasted.startswith("level,sent,errors,late,qps,mean,p50,p95,p99,keeps up\nconcurrency=1,25,0,0,")


def test_nothing_is_logged_without_tracking(harness, toy):
    found = harness(*LOAD, "tracking=none").json
    assert found["run_id"] is None
    assert (Path(found["files"]["folder"]) / "levels.csv").is_file()


NOTHING = LevelTimes(1, None, 9, 9, 0, 0.0, *[math.nan] * 4)
LEVELS = {
    "both loops": [LevelTimes(1, None, 9, 0, 0, 10, 1, 1, 2, 3), LevelTimes(None, 5.0, 9, 0, 0, 5, 1, 1, 2, 2000.0)],
    "one level": [LevelTimes(1, None, 9, 0, 0, 10, 1, 1, 2, math.nan)],
    "no answer": [NOTHING, replace(NOTHING, concurrency=4)],
}


@pytest.mark.drawn
@pytest.mark.parametrize("case", LEVELS)
def test_the_figure(case, tmp_path):
    figure = draw_load(LEVELS[case])
    save(figure, tmp_path / "load.png")
    ticks = [one.get_text() for panel in figure.axes for one in panel.get_yticklabels()]
    assert len(figure.axes) == (4 if case == "both loops" else 2)
    assert not any("$" in text for text in ticks)


def test_an_interrupted_load_ends_at_once_and_logs_nothing(harness, toy, tracker):
    def fault(asked):
        if len(server.asked) == 30:
            os.kill(os.getpid(), signal.SIGINT)

    with served(fault=fault) as server:
        done = harness(*fastapi(server, "concurrency=[1,4]", "queries=1000000", "seconds=1000"))
        assert len(server.asked) < 60
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err
    assert not Path("outputs/loads").exists()
    assert tracker.runs("e", {}) == []


SERVICE, QUERIES = 0.07, 100


class Queue:
    """Serves one query after another, each in SERVICE seconds. It waits for times, not locks: delays do not add up."""

    def __init__(self):
        self._free, self._lock = 0.0, threading.Lock()

    def __call__(self, asked):
        with self._lock:
            self._free = end = max(self._free, time.perf_counter()) + SERVICE
        time.sleep(max(0.0, end - time.perf_counter()))


class Canary(threading.Thread):
    """Sleeps for a millisecond again and again. late: by how many seconds it woke up too late, each time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.late, self.over = [], threading.Event()

    def run(self):
        while not self.over.is_set():
            began = time.perf_counter()
            time.sleep(0.001)
            self.late.append(time.perf_counter() - began - 0.001)


def over_http(folder, level, bounds):
    """The waits of the queries of a level, over HTTP to one server of fixed speed."""
    with served(fault=Queue()) as server:
        body = {"query": "{query}", "k": "{k}"}
        retriever = HttpRetriever(server.url, "results[*].id", "results[*].score", body=body, retries=0)
        retriever.index([Document(row["docid"], "") for row in DATA["documents.jsonl"]], folder)

        def ask():
            retriever.search([Query.of("q", "달")], 3)

        warm_up(ask, 4, bounds)
        return sent_queries(ask, level, bounds, level.name).seconds


@pytest.mark.slow
def test_over_http_an_open_loop_measures_what_queueing_theory_says(tmp_path):
    """Three servers at once, since they mostly sleep: 75, 80 and 90 % of the time busy.

    On any machine, no answer can come before that of theory. On a machine whose threads wake up in time, the
    percentiles are those of theory within 5 %.
    """
    bounds = LoadBounds(1000.0, QUERIES, 100.0, seed=2)
    levels = [LoadLevel(None, busy / SERVICE) for busy in (0.75, 0.8, 0.9)]
    folders = [tmp_path / str(place) for place in range(3)]
    for folder in folders:
        folder.mkdir()
    (canary := Canary()).start()
    with ThreadPoolExecutor(3) as pool:
        found = [*pool.map(over_http, folders, levels, [bounds] * 3)]
    canary.over.set()
    for level, waits in zip(levels, found, strict=True):
        arrivals = level.arrivals(bounds)
        theory = lindley(arrivals, SERVICE)
        assert (np.sort(arrivals + waits) >= np.sort(arrivals + theory) - 1e-6).all(), level.name
        if np.percentile(canary.late, 99) < 0.001 and np.percentile(canary.late, 99.9) < 0.002:
            for percent in (50, 95, 99):
                assert percentile(waits, percent) == pytest.approx(percentile(theory, percent), rel=0.05), level.name
