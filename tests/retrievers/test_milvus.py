"""Vectors in milvus-lite against the exact index, collections that are half-filled or wrong, and refused servers."""

import os
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from fakes import TrigramEncoder
from milvus_servers import answering, closed, guarded, lite_server
from pymilvus.exceptions import MilvusException

from harness.errors import BadInput, Failed
from retrievers.dense import milvus as module
from retrievers.dense.dense import Dense
from retrievers.dense.milvus import Milvus, MilvusIndex, connect_milvus
from retrievers.dense.vectors import Flat
from retrievers.testing import check_retriever

TOKEN = "root:Sesam-77-offne-dich"
PASSWORD = TOKEN.partition(":")[2]
WORDS = ("dataset=contest", "dataset.path=toy", "retriever=dense", "encoder=lsa", "experiment_name=m")


def random(rows, width, seed):
    vectors = np.random.default_rng(seed).standard_normal((rows, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def whole(rows, width, seed):
    """Small whole numbers: many products tie."""
    return np.random.default_rng(seed).integers(-3, 4, (rows, width)).astype(np.float32)


VECTORS, QUERIES = random(20, 4, 1), random(2, 4, 2)


def collections():
    return set(connect_milvus().client.list_collections())


def assert_found(index):
    assert index.search(QUERIES, VECTORS, 3).measured == {"index_recall": 1.0}


@pytest.fixture
def build(fresh_lite, tmp_path):
    """Builds an index and returns it; the collections end with the test."""

    def built(vectors=VECTORS, index=None):
        index = index or MilvusIndex()
        index.build(vectors, tmp_path)
        return index

    return built


CASES = {
    "unit vectors": (random(300, 48, 1), random(10, 48, 2)),
    "ties": (whole(150, 3, 3), whole(10, 3, 4)),
    "one document": (random(1, 8, 9), random(3, 8, 10)),
    "long vectors": (1e15 * random(50, 8, 12), 1e15 * random(3, 8, 13)),
}


@pytest.mark.parametrize("case", CASES)
def test_flat_finds_what_the_exact_index_finds(build, tmp_path, case):
    vectors, queries = CASES[case]
    index, flat = build(vectors), Flat()
    flat.build(vectors, tmp_path)
    for k in (1, 10, 30):
        found, expected = index.search(queries, vectors, k), flat.search(queries, vectors, k)
        np.testing.assert_array_equal(found.docs, expected.docs)
        np.testing.assert_array_equal(found.scores, expected.scores)  # in every bit
        assert found.measured == {"index_recall": 1.0}


def test_parameters_of_an_approximate_index_reach_the_server(monkeypatch, build):
    vectors, queries = random(200, 16, 1), random(20, 16, 2)
    recalls, sent, client = [], [], connect_milvus().client
    create = client.create_index
    monkeypatch.setattr(client, "create_index", lambda name, index, **how: (sent.extend(index), create(name, index)))
    for nprobe in (1, 200):
        index = MilvusIndex("IVF_FLAT", build={"nlist": 8}, search={"nprobe": nprobe})
        recalls.append(build(vectors, index).search(queries, vectors, 10).measured["index_recall"])
    assert recalls[0] < recalls[1] == 1.0
    [built] = [one.to_dict() for one in sent]  # the same build: one collection for both
    assert (built["index_type"], built["metric_type"], built["nlist"]) == ("IVF_FLAT", "IP", 8)
    build(vectors, MilvusIndex("IVF_FLAT", build={"nlist": 4}))
    assert len(collections()) == len(sent) == 2


def test_recall_is_measured_on_a_sample_of_the_queries(build, monkeypatch):
    index, queries, asked = build(), random(20, 4, 2), []
    search = index._flat.search
    monkeypatch.setattr(index._flat, "search", lambda some, *words: (asked.append(len(some)), search(some, *words))[1])
    monkeypatch.setattr(MilvusIndex, "_most_measured", 5)
    assert index.search(queries, VECTORS, 2).measured == {"index_recall": 1.0}
    assert asked == [5]
    assert index.search(queries, VECTORS, 2, measure=False).measured == {}


@pytest.mark.slow
def test_it_keeps_the_contract(fresh_lite, tmp_path):
    check_retriever(lambda: Dense(TrigramEncoder(), MilvusIndex()), tmp_path)
    assert not any("unfinished" in name for name in collections())


def test_no_documents_need_no_collection_and_equal_vectors_share_one(monkeypatch, build):
    nothing = np.zeros((0, 0), np.float32)
    assert build(nothing).search(np.zeros((2, 0), np.float32), nothing, 5).docs.shape == (2, 0)
    assert collections() == set()
    build()
    monkeypatch.setattr(MilvusIndex, "_send", None)  # sending again would fail
    build(VECTORS.copy())


SPOILED = {
    "fewer rows": lambda client, name: client.delete(name, ids=[3]),
    "more rows": lambda client, name: client.upsert(name, [{"id": 77, "vector": [9.0] * 4}]),
    "no collection": lambda client, name: client.drop_collection(name),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_collection_that_is_missing_or_wrong_is_filled_again(monkeypatch, build, tmp_path, spoil):
    monkeypatch.setattr(module, "SETTLING", 1)
    build()
    [name] = collections()
    spoil(connect_milvus().client, name)
    other = MilvusIndex()
    other.load(tmp_path)
    assert_found(other)
    assert collections() == {name}
    assert connect_milvus().client.query(name, filter="", output_fields=["count(*)"])[0]["count(*)"] == 20


@pytest.mark.parametrize("killed", [True, False])
def test_an_interrupted_upload_is_never_searched(monkeypatch, build, killed):
    monkeypatch.setattr(module, "MESSAGE", 5 * 32)  # 5 rows a message
    call = Milvus.call

    def never_drops(self, method, *arguments, **named):
        return None if method == "drop_collection" else call(self, method, *arguments, **named)

    def stop(done, total, unit):
        assert (total, unit) == (20, "documents sent to Milvus")
        if done >= 10:
            raise KeyboardInterrupt

    index = MilvusIndex()
    index.progress = stop
    with monkeypatch.context() as patch:
        if killed:
            patch.setattr(Milvus, "call", never_drops)
        with pytest.raises(KeyboardInterrupt):
            build(index=index)
    assert len(collections()) == killed
    assert_found(build())


def test_of_two_uploads_the_first_wins(build):
    index = MilvusIndex()
    index.progress = lambda *_: build()  # a whole upload during this one
    assert_found(build(index=index))
    assert len(collections()) == 1


FAULTS = {
    "upsert": (MilvusException(1, "no space left on device"), r"failed in upsert: .*no space left on device"),
    "create_index": (MilvusException(1, "unknown index_type"), "failed in create_index: unknown index_type"),
    "search": (MilvusException(65535, f"no access for {TOKEN} ({PASSWORD})"), r"failed in search: .*\[key\]"),
}


@pytest.mark.parametrize("method", FAULTS)
def test_an_error_of_the_server_is_a_failure_without_secrets(monkeypatch, build, method):
    error, message = FAULTS[method]
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", TOKEN)

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(connect_milvus().client, method, fails)
    with pytest.raises(Failed, match=message) as caught:
        build().search(QUERIES, VECTORS, 3)
    assert PASSWORD not in str(caught.value)
    assert not any("unfinished" in name for name in collections())


def test_rows_of_the_collection_that_are_no_documents_are_a_failure(build):
    assert_found(index := build())
    SPOILED["more rows"](connect_milvus().client, *collections())
    with pytest.raises(Failed, match="returned ids that rh_"):
        index.search(VECTORS, VECTORS, 3)


@pytest.mark.parametrize(("arguments", "k", "message"), [
    ({"candidates": 0}, 1, "index.candidates is 0"),
    ({"candidates": 16_385}, 1, "to 16,384"),
    ({"candidates": 5}, 6, "index.candidates is 5: raise it to at least 6"),
])  # fmt: skip
def test_arguments_are_checked(fresh_lite, arguments, k, message):
    with pytest.raises(BadInput, match=message):
        MilvusIndex(**arguments).check_size(100, k)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "HARNESS_MILVUS_URI is not set: give"),
        ("localhost:19530", "is 'localhost:19530': give HARNESS_MILVUS_URI as http://host:port"),
        ("ftp://host:1", "is 'ftp://host:1'"),
        ("http://host", "is 'http://host'"),
        ("http://host:19530/database", "is 'http://host:19530/database'"),
        (f"http://{TOKEN}@127.0.0.1:1", "holds a user or a password"),
        ("old.db", r"old\.db is not a folder of milvus-lite 3"),
        ("no/where/x.db", "its parent folder is missing"),
        (closed, "no Milvus server answers at http://127"),
        (answering, "no Milvus server answers at http://127"),
        (lambda: guarded("root:other"), "refuses the token: give user:password"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_at_once(monkeypatch, tmp_path, where, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.db").write_text("SQLite")
    monkeypatch.setattr(module, "CONNECT", 0.5)
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", TOKEN)
    with where() if callable(where) else nullcontext(where) as address:
        monkeypatch.setenv("HARNESS_MILVUS_URI", address)
        with pytest.raises(Failed if callable(where) else BadInput, match=message) as caught:
            connect_milvus()
    assert PASSWORD not in str(caught.value)
    monkeypatch.setenv("HARNESS_MILVUS_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", "root:비밀")
    with pytest.raises(BadInput, match="printable ASCII"):  # a token is sent in a header
        connect_milvus()


@pytest.mark.parametrize("package", ["pymilvus", "milvus_lite"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path, package):
    known = module.find_spec
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else known(name))
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(tmp_path / "x.db"))
    with pytest.raises(BadInput, match=rf"package {package}.*pip install -c constraints.txt -e '\.\[milvus\]'"):
        connect_milvus()


@pytest.mark.slow
def test_pymilvus_is_imported_without_its_own_variables(lite, monkeypatch, tmp_path):
    """A path in MILVUS_URI breaks the import of pymilvus; and milvus-lite serves one process."""
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(lite))
    connect_milvus()
    code = (
        "import os\nfrom retrievers.dense.milvus import connect_milvus\n"
        "try:\n    connect_milvus()\n"
        "except Exception as error:\n    print(type(error).__name__, error, os.environ['MILVUS_URI'])"
    )
    environment = os.environ | {"MILVUS_URI": "/some/path.db", "MILVUS_CONN_TIMEOUT": "soon"}
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert done.stdout.startswith(f"Failed milvus-lite could not open {lite}: ")
    assert done.stdout.endswith("/some/path.db\n")
    assert done.stderr == ""


@pytest.mark.slow
def test_a_run_has_the_numbers_of_the_exact_index_and_keeps_no_secret(harness, tracker, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", TOKEN)
    store = f"store.path={tmp_path / 'outputs' / 'cache'}"
    with lite_server(tmp_path / "server") as address:
        monkeypatch.setenv("HARNESS_MILVUS_URI", address)
        ours, theirs = (
            harness("run", *WORDS, store, f"index={index}", "format=json").json for index in ("flat", "milvus")
        )
    assert theirs["metrics"] == ours["metrics"]
    [run] = [one for one in tracker.runs("m", {"harness.verb": "run"}) if "index_recall/dense" in one.metrics]
    assert run.metrics["index_recall/dense"] == 1.0
    written = [path for path in (tmp_path / "outputs").rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [path for path in written for word in (PASSWORD, address) if word.encode() in path.read_bytes()] == []
