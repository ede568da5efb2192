"""`harness doctor engine` lists what the harness keeps in Milvus and drops what it is told to, nothing else."""

import json
import re

import pytest

from harness.commands.doctor.engine import Collection, _doomed
from harness.storage.cache import Cache
from retrievers.engines.milvus import Address, Milvus, connect

FINISHED, OTHER, FOREIGN = f"rh_{'a' * 40}", f"rh_{'b' * 40}", "rh_of_somebody_else"
HALF = f"rh_{'a' * 40}_unfinished_{'c' * 32}"
GONE = f"rh_{'d' * 40}"


def make(client, name, rows=3, **field):
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", **(field or {"datatype": DataType.SPARSE_FLOAT_VECTOR}))
    index = client.prepare_index_params()
    kind = "FLAT" if field else "SPARSE_INVERTED_INDEX"
    index.add_index("vector", index_type=kind, metric_type="IP")
    client.create_collection(name, schema=schema, index_params=index)
    vector = [0.5, 1.0] if field else {1: 0.5}
    client.upsert(name, [{"id": i, "vector": vector} for i in range(rows)])


@pytest.fixture
def kept(fresh_lite, monkeypatch, tmp_path):
    """Collections of this store, of another, half-filled and foreign; and a store that knows one, and a lost one."""
    from pymilvus import DataType

    client = connect().client
    make(client, FINISHED, datatype=DataType.FLOAT_VECTOR, dim=2)
    for name in (OTHER, HALF, FOREIGN):
        make(client, name)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    store = Cache(tmp_path / "cache")
    for name, place in ((FINISHED, "index/engine.json"), (GONE, "engine.json")):

        def build(folder, name=name, place=place):
            (folder / place).parent.mkdir(exist_ok=True)
            (folder / place).write_text(json.dumps({"collection": name, "rows": 3}))

        store.folder("indexes", {"index": name}, build)
    return client


def states(document):
    return {one["name"]: one["state"] for one in document["collections"]}


ALL = {FINISHED: "finished", OTHER: "unknown", HALF: "unfinished", GONE: "missing"}


def test_what_is_there_is_listed(harness, kept, fresh_lite):
    found = harness("doctor engine", "format=json").json
    assert states(found) == ALL
    assert found["pruned"] == []
    by_name = {one["name"]: one for one in found["collections"]}
    assert (by_name[FINISHED]["kind"], by_name[FINISHED]["dimensions"], by_name[FINISHED]["rows"]) == ("dense", 2, 3)
    assert (by_name[OTHER]["kind"], by_name[OTHER]["dimensions"]) == ("sparse", None)
    assert found["address"] == str(fresh_lite)
    said = harness("doctor engine").out
    assert all(name in said for name in ALL)
    assert FOREIGN not in said
    assert "another store may" in said


@pytest.mark.parametrize(("prune", "gone"), [("unfinished", {HALF}), ("unknown", {HALF, OTHER})])
def test_only_what_is_named_is_pruned(harness, kept, prune, gone):
    found = harness("doctor engine", f"prune={prune}", "format=json").json
    assert {one["name"] for one in found["pruned"]} == gone
    assert states(found) == {name: state for name, state in ALL.items() if name not in gone}
    assert set(kept.list_collections()) == {FINISHED, OTHER, HALF, FOREIGN} - gone


def test_what_was_pruned_is_said(harness, kept):
    said = harness("doctor engine", "prune=unknown").out
    assert "Pruned 2 collections:" in said
    assert f"{OTHER} (unknown, 3 rows)" in said


def test_nothing_is_there(harness, fresh_lite, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    said = harness("doctor engine", "prune=unknown")
    assert said.code == 0
    assert "No collection of the harness" in said.out


def test_on_a_server_an_unfinished_collection_is_dropped_only_once_it_is_old():
    milvus = Milvus(None, Address("http://somewhere:19530", "http://somewhere:19530", None), "2.5.0")
    for hours, doomed in ((None, False), (23.9, False), (24.1, True)):
        one = Collection(HALF, "unfinished", "sparse", None, 3, hours)
        assert _doomed(one, "unfinished", 24, milvus) is doomed
        assert _doomed(one, None, 24, milvus) is False


def test_a_damaged_record_is_not_believed(harness, kept, tmp_path):
    for record in (tmp_path / "cache").rglob("engine.json"):
        record.write_text(json.dumps({"collection": OTHER, "rows": 3}))
    found = states(harness("doctor engine", "format=json").json)
    assert found == {FINISHED: "unknown", OTHER: "unknown", HALF: "unfinished"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prune=all"], "prune='all' is not one of unfinished, unknown"),
        (["prune=true"], "prune=.*is not one of unfinished, unknown"),
        (["prune=unknwon"], "Did you mean 'unknown'"),
        (["older_hours=-1"], "older_hours=-1"),
    ],
)
def test_bad_keys_are_refused(harness, fresh_lite, words, message):
    done = harness("doctor engine", *words)
    assert done.code == 2
    assert re.search(message, done.err), done.err
