"""Search services as retrievers of whole runs and sweeps: what is asked again, what is timed, and what stays secret."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from raw_server import RawServer
from search_server import Reply, SearchServer

import harness as package
from harness.commands.export import model
from harness.errors import BadInput
from harness.experiment import session
from harness.experiment.plan import Plan
from retrievers.base import Document, Query
from retrievers.external import http_client
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Word
from retrievers.redaction import RedactingFormatter

DATA = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json")
SECRET = "ApiKey s3cr3t-0123456789"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, own_cache):
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)


@pytest.fixture
def server(toy, tmp_path):
    """BM25 on the tiny data set, behind HTTP. Its attribute `broken` makes it fail."""
    rows = [json.loads(line) for line in (toy / "documents.jsonl").read_text("utf-8").splitlines()]
    engine, folder = BM25(Word(), threads=1), tmp_path / "engine"
    folder.mkdir()
    engine.index([Document(row["docid"], row["content"]) for row in rows], folder)

    def fault(asked):
        return Reply(500, {"error": f"no luck with {asked.headers.get('Authorization')}"}) if made.broken else None

    with SearchServer(lambda text, k: engine.search([Query.of("q", text)], k).row(0), fault=fault) as made:
        made.broken = False
        yield made


def words(server, *more):
    address = f"retriever.fastapi.url={server.url}"
    return (*DATA, "retriever=fastapi", address, "retriever.fastapi.runtime.retries=0", *more)


@pytest.mark.slow
def test_results_are_cached_under_the_declared_version(harness, toy, server):
    """Times come from the search itself: the service is not asked again, and a cached ranking keeps its latency."""
    found, plain = (harness("run", *each, "tracking=none").json for each in (words(server), DATA))
    assert Path(found["files"]["predictions"]).read_text() == Path(plain["files"]["predictions"]).read_text()
    assert found["metrics"] == plain["metrics"]
    times = found["measured"]
    assert set(times) == {"ms_per_query", "ms_per_query/fastapi", "latency_p50_ms/fastapi", "latency_p95_ms/fastapi"}
    assert times["ms_per_query"] == times["latency_p50_ms/fastapi"] > 0
    for more, asked in [
        ((), 3), (("top_k=1", "retriever.fastapi.runtime.parallel=1"), 3), (("depth=5",), 3),
        (("retriever.fastapi.version=2",), 6), (("retriever.fastapi.body.k=7",), 9), ((), 9),
    ]:  # fmt: skip
        done = harness("run", *words(server, "tracking=none", *more)).json
        assert len(server.asked) == asked, more
    assert done["measured"] == times
    session.ask_anew()  # as another process does
    swept = harness("sweep", *words(server, "top_k=1,2", "objectives=[modified_map@3,ms_per_query]")).json
    assert swept["best"]["objectives"]["ms_per_query"] > 0
    measured = harness("run", *words(server, "tracking=none", "retriever=[bm25,fastapi]")).json["measured"]
    assert measured["ms_per_query"] == measured["ms_per_query/bm25"] + measured["latency_p50_ms/fastapi"]
    assert "ms_per_query_low/bm25" in measured
    assert "ms_per_query_low" not in measured, "a service has no range of passes"
    assert len(server.asked) == 9


def test_a_service_that_changes_is_asked_in_each_process(harness, toy, server):
    changing = words(server, "retriever.fastapi.cache=false", "tracking=none")
    assert harness("run", *changing, "gate=score", "gate.signal=query_characters", "gate.threshold=1").code == 0
    assert harness("run", *changing, "top_k=1").code == 0
    assert len(server.asked) == 3, "one process asks once"
    first, second = package.run(*changing), package.run(*changing)
    assert len(server.asked) == 9, "each call from Python asks"
    assert first.trial_key != second.trial_key
    session.ask_anew()  # as another process does
    assert harness("run", *changing).code == 0
    assert len(server.asked) == 12
    assert harness("run", *words(server, "tracking=none")).code == 0
    assert len(server.asked) == 15, "nothing was left for those that cache"


@pytest.mark.slow
def test_a_sweep_over_a_service_that_changes(harness, toy, server):
    for asked in (3, 6):
        found = harness("sweep", *words(server, "retriever.fastapi.cache=false", "top_k=1,2")).json
        assert (found["trials"]["finished"], found["trials"].get("finished_before", 0)) == (2, 0)
        assert len(server.asked) == asked, "once for all trials"
        session.ask_anew()  # as another process does
    for _ in range(2):
        assert harness("sweep", *words(server, "top_k=1,2")).code == 0
        assert len(server.asked) == 9, "finished trials are skipped"


def test_a_run_that_cannot_be_repeated_is_no_model():
    run, plan = SimpleNamespace(short_id="3f2a91b0"), Plan({}, {}, {"far": {"_target_": "x", "cache": False}}, {}, 3, 9)
    with pytest.raises(BadInput, match=r"Run 3f2a91b0 has retriever\.far\.cache=false: its results may change"):
        model._require_same_key(run, plan, None)


KEYED = "+retriever.fastapi.runtime.headers_env.Authorization=ES_AUTH"


def require_no_secret(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert "traceback.txt" in {path.name for path in files}
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]


def test_a_failing_service_fails_the_run_and_no_secret_is_written(harness, toy, server, monkeypatch, tmp_path, tracker):
    monkeypatch.setenv("ES_AUTH", SECRET)
    server.broken = True
    done = harness("run", *words(server, KEYED))
    assert done.code == 1
    assert f"has no result from {server.url}: HTTP 500" in " ".join(done.err.split())
    assert "HTTP 500: no luck with [key]." in done.err
    server.broken = False
    assert harness("run", *words(server, KEYED)).code == 0
    assert server.asked[-1].headers["Authorization"] == SECRET
    runs = tracker.runs("retrieval", {})
    assert [run.status for run in runs] == ["FINISHED", "FAILED"]
    assert not any("headers_env" in name for run in runs for name in run.params)
    assert runs[0].params["retriever.fastapi.version"] == "1"
    require_no_secret(tmp_path)


def test_a_key_in_place_of_a_status_line_is_written_nowhere(harness, toy, monkeypatch, tmp_path):
    monkeypatch.setenv("ES_AUTH", SECRET)
    with RawServer(lambda wire: wire.send(b"ERR bad key " + wire.header("Authorization") + b"\r\n\r\n")) as broken:
        done = harness("run", *words(broken, KEYED))
    assert done.code == 1
    assert "ERR bad key [key]" in done.err
    require_no_secret(tmp_path)
    assert any(isinstance(one.formatter, RedactingFormatter) for one in logging.getLogger().handlers)
