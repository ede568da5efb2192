"""Milvus from the command line: what is refused before anything is done, what is mended, and where the token goes."""

import base64
import contextlib
import http.server
import json
import re
import socket
import sys
import threading
from pathlib import Path

import pytest
from milvus_servers import guarded, lite_server

pytest.importorskip("pymilvus", reason="needs the extra [milvus]")

from retrievers.engines import milvus as connections
from retrievers.engines.milvus import connect

RUN = ("run", "dataset=contest", "dataset.path=toy", "tokenizer=word", "retriever.bm25.engine=milvus")
TOKEN = "root:Sesam-77-offne-dich"
PASSWORD = TOKEN.partition(":")[2]


@pytest.fixture(autouse=True)
def no_milvus(monkeypatch):
    for name in ("HARNESS_MILVUS_URI", "HARNESS_MILVUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def closed():
    """An address at which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


@contextlib.contextmanager
def web_server():
    """An address that answers, but not as Milvus."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def here(address):
    return lambda: contextlib.nullcontext(address)


# (what opens an address, the token, the exit code, the message)
ADDRESSES = {
    "no address": (here(""), "", 2, r"HARNESS_MILVUS_URI is not set: give the address"),
    "no scheme": (here("localhost:19530"), "", 2, r"HARNESS_MILVUS_URI is 'localhost:19530': give http://host:port"),
    "a file": (here("old.db"), "", 2, r"old\.db is a file, and no database of milvus-lite 3"),
    "a folder that is not there": (here("no/where/x.db"), "", 2, r"there is no folder .*no/where"),
    "a token in the address": (here(f"http://{TOKEN}@127.0.0.1:1"), "", 2, r"holds a user or a password: .*_TOKEN"),
    "a wrong address": (closed, TOKEN, 1, r"no Milvus server answers at http://127.*Connection refused"),
    "another server": (web_server, TOKEN, 1, r"something answers at .* but not as Milvus does"),
    "no token": (lambda: guarded(TOKEN), "", 2, r"wants a user: HARNESS_MILVUS_TOKEN is not set"),
    "a wrong token": (lambda: guarded("root:other"), TOKEN, 2, r"wants a user: HARNESS_MILVUS_TOKEN is wrong"),
    "an old server": (lambda: guarded(TOKEN, "v2.2.1"), TOKEN, 2, r"version v2\.2\.1, too old .*: 2\.3 or newer"),
}


@pytest.mark.parametrize("case", ADDRESSES)
@pytest.mark.parametrize("command", ["run", "doctor engine"])
def test_an_address_that_cannot_be_used_ends_the_command_at_once(harness, toy, tmp_path, monkeypatch, command, case):
    opening, token, code, message = ADDRESSES[case]
    (tmp_path / "old.db").write_text("SQLite")
    monkeypatch.setattr(connections, "CONNECT", 0.5)
    before = set(tmp_path.rglob("*"))
    with opening() as address:
        monkeypatch.setenv("HARNESS_MILVUS_URI", address)
        monkeypatch.setenv("HARNESS_MILVUS_TOKEN", token)
        done = harness(*RUN) if command == "run" else harness(command)
    assert done.code == code, done.err
    assert re.search(message, done.err), done.err
    assert PASSWORD not in done.out + done.err
    left = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert left <= {"outputs", "cache", "harness.log"}, "nothing is begun"


KEYS = {
    "okapi": (["retriever.bm25.variant=okapi"], r"engine=milvus takes no variant=okapi, .* use lucene, l or plus"),
    "a typing error": (["retriever.bm25.engine=milvsu"], r"engine is 'milvsu'.*Did you mean 'milvus'"),
    "a delta that the variant has not": (["retriever.bm25.delta=1"], r"variant=lucene has no delta"),
}


@pytest.mark.parametrize("case", KEYS)
def test_arguments_that_do_not_fit_are_refused_without_a_server(harness, toy, case):
    words, message = KEYS[case]
    done = harness(*RUN, *words)
    assert done.code == 2
    assert re.search(message, done.err), done.err


def test_a_server_without_sparse_vectors_is_refused_and_told_which_has_them(harness, toy, monkeypatch):
    with guarded(TOKEN, "v2.3.5") as address:
        monkeypatch.setenv("HARNESS_MILVUS_URI", address)
        monkeypatch.setenv("HARNESS_MILVUS_TOKEN", TOKEN)
        done = harness(*RUN)
    assert done.code == 2
    assert "of version v2.3.5, too old for sparse vectors: 2.4 or newer is needed" in done.err


def test_more_documents_than_milvus_returns_are_refused_before_anything_is_indexed(harness, toy, tmp_path, monkeypatch):
    monkeypatch.setattr("retrievers.engines.proposing.LIMIT", 2)
    done = harness(*RUN, "top_k=3")
    assert done.code == 2
    assert "Milvus returns at most 2 documents of a query. Lower depth" in done.err


def test_a_missing_package_is_named_with_the_command_that_installs_it(harness, toy, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(tmp_path / "lite.db"))
    monkeypatch.delitem(sys.modules, "pymilvus")
    monkeypatch.setattr(connections, "find_spec", lambda name: None)
    for words in (RUN, ("doctor engine",)):
        done = harness(*words)
        assert done.code == 2
        assert "pip install -c constraints.txt -e '.[milvus]'" in done.err


def predictions(done):
    text = Path(done.json["files"]["predictions"]).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def other_rows(name):
    connect().client.upsert(name, [{"id": 0, "vector": {0: 9.0}}])


def fewer_rows(name):
    connect().client.delete(name, ids=[1])


def no_collection(name):
    connect().drop(name)


@pytest.mark.parametrize("spoil", [other_rows, fewer_rows, no_collection])
def test_what_is_changed_behind_our_back_is_filled_again(harness, toy, fresh_lite, monkeypatch, tmp_path, spoil):
    monkeypatch.setattr("retrievers.engines.collection.SETTLING", 0.1)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(fresh_lite))
    plain = harness(*RUN[:-1], "format=json", "tracking=none")
    harness(*RUN, "format=json", "tracking=none", "depth=2", "top_k=2")
    [name] = connect().collections()
    spoil(name)
    again = harness(*RUN, "format=json", "tracking=none")  # deeper: the ranking that is cached will not do
    assert "it is filled again" in again.err
    assert predictions(again) == predictions(plain)
    assert connect().count(name) == 3


SHOWN = (TOKEN, PASSWORD, base64.b64encode(TOKEN.encode()).decode())  # as the client sends it


def assert_not_kept(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        assert not any(secret.encode() in content for secret in SHOWN), path


def test_the_token_is_kept_nowhere(harness, toy, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "outputs" / "cache"))
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", TOKEN)
    with lite_server(tmp_path / "server") as address:
        monkeypatch.setenv("HARNESS_MILVUS_URI", address)
        done = [harness(*RUN), harness("doctor engine", "format=json"), harness("doctor engine", "prune=unknown")]
        assert [one.code for one in done] == [0, 0, 0], done[0].err
        assert connect().address.token == TOKEN

        # A server that fails in the middle of a run: its message, and what the failed run leaves.
        def fails(engine, *_):
            with engine.doing("searching"):
                raise _rejected(f"no access for {TOKEN} ({SHOWN[2]})")

        monkeypatch.setattr("retrievers.engines.sparse.found_ids", fails)
        failed = harness(*RUN, "retriever.bm25.k1=2")
    assert failed.code == 1
    assert "failed while searching: " in failed.err
    for one in [*done, failed]:
        assert not any(secret in one.out + one.err for secret in SHOWN)
    assert not any(secret in caplog.text for secret in SHOWN)
    assert_not_kept(tmp_path / "outputs")


def _rejected(message):
    from pymilvus.exceptions import MilvusException

    return MilvusException(65535, message)


def test_shards_of_a_corpus_have_collections_of_their_own(harness, toy, fresh_lite, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(fresh_lite))
    plain = harness(*RUN[:-1], "format=json", "tracking=none")
    sharded = harness(*RUN, "cluster.shard=1", "format=json", "tracking=none")
    assert predictions(sharded) == predictions(plain)
    listed = harness("doctor engine", "format=json").json["collections"]
    assert [(one["state"], one["rows"]) for one in listed] == [("finished", 1)] * 3
