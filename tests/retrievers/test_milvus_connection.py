"""Addresses of Milvus, what is refused before anything is sent, and what messages never show."""

import os
import socket
import subprocess
import sys

import pytest

from retrievers.base import BadInput, Failed
from retrievers.engines import milvus as module
from retrievers.engines.milvus import Address, Milvus, connect, is_finished, is_unfinished, unfinished

NAME = "rh_" + "0123456789" * 4
PASSWORD = "Sesam-77"

REFUSED = [
    ("", "HARNESS_MILVUS_URI is not set"),
    ("localhost:19530", "a path that ends in .db"),
    ("data/milvus", "a path that ends in .db"),
    ("ftp://host:1", "such as http://localhost:19530"),
    ("http://host", "give http://host:port"),
    ("http://:19530", "give http://host:port"),
    ("http://host:99999", "is no address"),
    ("http://host:19530/database", "nothing may follow the port"),
    (f"http://root:{PASSWORD}@host:19530", "holds a user or a password"),
    (f"https://{PASSWORD}@host:19530", "holds a user or a password"),
    ("missing/folder/x.db", "there is no folder"),
]


@pytest.mark.parametrize(("uri", "expected"), REFUSED)
def test_an_address_that_cannot_work_is_refused(monkeypatch, tmp_path, uri, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_MILVUS_URI", uri)
    with pytest.raises(BadInput, match=expected) as caught:
        connect()
    assert PASSWORD not in str(caught.value)


def test_a_file_is_no_database(monkeypatch, tmp_path):
    (tmp_path / "old.db").write_text("SQLite")
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(tmp_path / "old.db"))
    with pytest.raises(BadInput, match="is a file"):
        connect()


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, who may write anywhere
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(tmp_path / "x.db"))
    with pytest.raises(BadInput, match=f"no right to write to {tmp_path}"):
        connect()


def test_a_token_must_fit_into_a_header(monkeypatch):
    monkeypatch.setenv("HARNESS_MILVUS_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", "root:비밀")
    with pytest.raises(BadInput, match="printable ASCII"):
        connect()


@pytest.mark.parametrize("package", ["pymilvus", "milvus_lite"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path, package):
    known = module.find_spec
    monkeypatch.delitem(sys.modules, "pymilvus", raising=False)
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else known(name))
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(tmp_path / "x.db"))
    with pytest.raises(BadInput, match=r"pip install -c constraints.txt -e '\.\[milvus\]'"):
        connect()


def test_a_wrong_address_is_told_at_once(monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nothing listens there
        monkeypatch.setenv("HARNESS_MILVUS_URI", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("HARNESS_MILVUS_TOKEN", f"root:{PASSWORD}")
        with pytest.raises(Failed, match=r"no Milvus server answers at .*Connection refused") as caught:
            connect()
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "refused"), [("v2.2.16", True), ("1.1", True), ("v2.3.5-lite", False), ("v3.0.1", False)]
)
def test_an_old_server_is_refused(version, refused):
    engine = Milvus(None, Address("http://h:1", "http://h:1", None), version)
    if refused:
        with pytest.raises(BadInput, match=f"of version {version}, too old for the harness: 2.3 or newer is needed"):
            engine.require(module.OLDEST, "the harness")
    else:
        engine.require(module.OLDEST, "the harness")


def test_errors_say_their_reason_and_never_the_token(monkeypatch):
    from pymilvus.exceptions import MilvusException

    monkeypatch.setenv("HARNESS_MILVUS_TOKEN", f"root:{PASSWORD}")
    engine = Milvus(None, Address("http://h:1", "http://h:1", None, f"root:{PASSWORD}"), "v2.3.5")
    assert PASSWORD not in repr(engine)
    said = "Milvus at http://h:1 failed while searching: no room for .key. or .key."
    with pytest.raises(Failed, match=said) as caught, engine.doing("searching"):
        raise MilvusException(1, f"no room\nfor root:{PASSWORD} or {PASSWORD}")
    assert caught.value.__cause__ is None
    with pytest.raises(BadInput, match="does not allow searching"), engine.doing("searching"):
        raise MilvusException(65535, "PrivilegeSearch: permission deny to guest")


def test_pymilvus_is_imported_without_its_own_variables(lite, monkeypatch, tmp_path):
    """A path in MILVUS_URI, or in a file .env, breaks the import of pymilvus; and milvus-lite serves one process."""
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(lite))
    connect()
    code = (
        "import os\nfrom retrievers.engines.milvus import connect\n"
        "try:\n    connect()\n"
        "except Exception as error:\n    print(type(error).__name__, error, os.environ['MILVUS_URI'])"
    )
    environment = os.environ | {"MILVUS_URI": "/some/path.db", "MILVUS_CONN_TIMEOUT": "soon"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"Failed another process has {lite} open")
    assert done.stdout.endswith("/some/path.db\n")
    assert done.stderr == ""


def test_only_names_of_the_harness_are_its_own():
    assert is_finished(NAME)
    assert not is_unfinished(NAME)
    started = unfinished(NAME)
    assert is_unfinished(started)
    assert not is_finished(started)
    assert started != unfinished(NAME)
    for other in ("rh_", "documents", NAME + "0", NAME.upper(), f"{NAME}_unfinished_", f"my_{NAME}", f"{NAME}\n"):
        assert not is_finished(other)
        assert not is_unfinished(other)


def test_collections_of_others_are_neither_listed_nor_dropped(milvus):
    from pymilvus import DataType

    engine, started = connect(), unfinished(NAME)
    schema = engine.client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
    for name in ("of_somebody_else", NAME, started):
        engine.client.create_collection(name, schema=schema)
    try:
        assert {NAME, started} <= set(engine.collections())
        assert "of_somebody_else" not in engine.collections()
        with pytest.raises(ValueError, match="no collection of the harness"):
            engine.drop("of_somebody_else")
        engine.drop(NAME)
        engine.drop(started)
        assert not {NAME, started} & set(engine.collections())
        assert engine.client.has_collection("of_somebody_else")
    finally:
        engine.client.drop_collection("of_somebody_else")
