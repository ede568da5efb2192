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
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


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


def rows(done):
    return Path(done["files"]["predictions"]).read_text("utf-8")


def test_a_service_ranks_as_the_retriever_behind_it(harness, toy, server):
    found = harness("run", *words(server, "tracking=none")).json
    plain = harness("run", *DATA, "tracking=none").json
    assert rows(found) == rows(plain)
    assert found["metrics"] == plain["metrics"]


def test_results_are_cached_under_the_declared_version(harness, toy, server, monkeypatch):
    for more, asked in [
        ((), 3), ((), 3), (("top_k=1", "retriever.fastapi.runtime.parallel=1"), 3), (("depth=5",), 3),
        (("retriever.fastapi.version=2",), 6), (("retriever.fastapi.body.k=7",), 9), ((), 9),
    ]:  # fmt: skip
        assert harness("run", *words(server, "tracking=none", *more)).code == 0
        assert len(server.asked) == asked, more
    session.ask_anew()  # as another process does
    harness("run", *words(server, "tracking=none"))
    assert len(server.asked) == 9


def test_a_service_that_changes_is_asked_in_each_process(harness, toy, server, monkeypatch):
    changing = words(server, "retriever.fastapi.cache=false", "tracking=none")
    first = harness("run", *changing, "gate=score", "gate.signal=query_characters", "gate.threshold=1").json
    harness("run", *changing, "top_k=1")
    assert len(server.asked) == 3, "one process asks once"
    session.ask_anew()  # as another process does
    assert rows(harness("run", *changing).json) == rows(first)
    assert len(server.asked) == 6
    harness("run", *words(server, "tracking=none"))
    assert len(server.asked) == 9, "nothing was left for those that cache"


def test_each_call_from_python_asks_a_service_that_changes(toy, server, monkeypatch):
    monkeypatch.chdir(toy.parent)
    changing = words(server, "retriever.fastapi.cache=false", "tracking=none")
    first, second = package.run(*changing), package.run(*changing)
    assert len(server.asked) == 6
    assert first.trial_key != second.trial_key


@pytest.mark.slow
def test_a_sweep_over_a_service_that_changes(harness, toy, server, monkeypatch):
    sweep = ("sweep", *words(server, "retriever.fastapi.cache=false", "top_k=1,2"))
    for asked in (3, 6):
        found = harness(*sweep).json
        assert found["trials"]["finished"] == 2
        assert found["trials"].get("finished_before", 0) == 0
        assert len(server.asked) == asked, "once for all trials"
        session.ask_anew()  # as another process does
    harness("sweep", *words(server, "top_k=1,2"))
    assert len(server.asked) == 9
    harness("sweep", *words(server, "top_k=1,2"))
    assert len(server.asked) == 9, "finished trials are skipped"


def test_a_run_that_cannot_be_repeated_is_no_model():
    run, plan = SimpleNamespace(short_id="3f2a91b0"), Plan({}, {}, {"far": {"_target_": "x", "cache": False}}, {}, 3, 9)
    with pytest.raises(BadInput, match=r"Run 3f2a91b0 has retriever\.far\.cache=false: what it finds may change"):
        model._require_same_key(run, plan, None)


# Times


def test_latency_comes_from_the_search_itself(harness, toy, server):
    """The service is not asked again to be timed, and a cached ranking keeps the latency of its search."""
    first = harness("run", *words(server, "tracking=none")).json["measured"]
    assert len(server.asked) == 3
    assert set(first) == {"ms_per_query", "ms_per_query/fastapi", "latency_p50_ms/fastapi", "latency_p95_ms/fastapi"}
    assert first["ms_per_query"] == first["latency_p50_ms/fastapi"] > 0
    assert harness("run", *words(server, "tracking=none", "top_k=2")).json["measured"] == first


def test_a_hybrid_adds_up_what_its_parts_take(harness, toy, server):
    done = harness("run", *words(server, "tracking=none", "retriever=[bm25,fastapi]"))
    measured = done.json["measured"]
    assert measured["ms_per_query"] == measured["ms_per_query/bm25"] + measured["latency_p50_ms/fastapi"]
    assert "ms_per_query_low/bm25" in measured
    assert "ms_per_query_low" not in measured, "a service has no range of passes"


@pytest.mark.slow
def test_a_sweep_for_speed_does_not_ask_again(harness, toy, server):
    harness("run", *words(server, "tracking=none"))
    found = harness("sweep", *words(server, "top_k=1,2", "objectives=[modified_map@3,ms_per_query]")).json
    assert found["best"]["objectives"]["ms_per_query"] > 0
    assert len(server.asked) == 3


# Failures and secrets


def test_a_failing_service_fails_the_run_and_no_secret_is_written(harness, toy, server, monkeypatch, tmp_path):
    from mlflow import MlflowClient

    monkeypatch.setenv("ES_AUTH", SECRET)
    keyed = words(server, "+retriever.fastapi.runtime.headers_env.Authorization=ES_AUTH")
    server.broken = True
    done = harness("run", *keyed)
    assert done.code == 1
    assert f"has no result from {server.url}: HTTP 500" in " ".join(done.err.split())
    assert "HTTP 500: no luck with [key]." in done.err
    server.broken = False
    assert harness("run", *keyed).code == 0
    assert server.asked[-1].headers["Authorization"] == SECRET
    client = MlflowClient(f"sqlite:///{tmp_path}/outputs/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("retrieval").experiment_id])
    assert sorted(run.info.status for run in runs) == ["FAILED", "FINISHED"]
    assert not any("headers_env" in name for run in runs for name in run.data.params)
    assert runs[0].data.params["retriever.fastapi.version"] == "1"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]


def test_a_key_in_place_of_a_status_line_is_written_nowhere(harness, toy, monkeypatch, tmp_path):
    monkeypatch.setenv("ES_AUTH", SECRET)
    with RawServer(lambda wire: wire.send(b"ERR bad key " + wire.header("Authorization") + b"\r\n\r\n")) as broken:
        done = harness("run", *words(broken, "+retriever.fastapi.runtime.headers_env.Authorization=ES_AUTH"))
    assert done.code == 1
    assert "ERR bad key [key]" in done.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert "traceback.txt" in {path.name for path in files}
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]
    assert any(isinstance(one.formatter, RedactingFormatter) for one in logging.getLogger().handlers)


def test_an_unset_variable_is_found_before_the_run_begins(harness, toy, server, tmp_path, monkeypatch):
    monkeypatch.delenv("ES_AUTH", raising=False)
    done = harness("run", *words(server, "+retriever.fastapi.runtime.headers_env.Authorization=ES_AUTH"))
    assert done.code == 2
    assert "The environment variable ES_AUTH is not set" in done.err
    assert not list((tmp_path / "outputs").glob("runs/*"))


def test_one_query(harness, toy, server):
    found = harness("search", *words(server, "query=물은 몇 도에서 끓어?", "top_k=2")).json
    assert found["documents"][0]["doc_id"] == "d2"
    assert len(server.asked) == 1
