"""Shared fixtures: a working folder, the command line called in this process, and real data where it is available."""

import functools
import gc
import os
import shutil
import sqlite3
import sys
import sysconfig
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import buckets
import hypothesis
import pytest
from filelock import FileLock
from logged_runs import Done, LoggedRuns, write_toy
from mlflow_server import serving
from text_tasks import write_answers, write_corrections

from harness import cli
from harness.experiment.timing import Timing
from harness.tracking.mlflow_tracker import MlflowTracker

hypothesis.settings.register_profile(
    "shared",
    deadline=None,  # a busy machine must not fail a test
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],  # an example may reuse a test's folder
)
hypothesis.settings.load_profile("shared")

gc.set_threshold(50_000, 20, 100)  # looking for garbage among the libraries' objects was a quarter of all time

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"


def pytest_addoption(parser):
    parser.addoption("--server", action="store_true", help="log to an MLflow server instead of SQLite files")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One worker more than cores: some tests wait for servers, browsers and disks."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config, items):
    """Run files with slow tests first, so that no worker is left alone with one at the end."""
    if config.getoption("--server"):
        for item in items:
            if item.get_closest_marker("local"):
                item.add_marker(pytest.mark.skip(reason="needs a tracking store on this machine"))
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_generate_tests(metafunc):
    """What a store keeps and finds again is asked of a server as well."""
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    if "stored" in marks and "local" not in marks and not metafunc.config.getoption("--server"):
        server = pytest.param("server", marks=pytest.mark.slow)
        metafunc.parametrize("store_kind", ["file", server], indirect=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker gets whole files, but one of them all that needs the session's MLflow server, so that one is started."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrServer(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "server" if nodeid.endswith("[server]") else super()._split_scope(nodeid)

    return ByFileOrServer(config, log)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # what was imported stays


def pytest_sessionfinish():
    gc.freeze()  # pytest looks for garbage twice more, among all that is left


@pytest.fixture(scope="session")
def common(tmp_path_factory):
    """A folder that all workers of this session share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "common"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def s3_server():
    with buckets.serving() as address:
        yield address


@pytest.fixture
def place(s3_server, monkeypatch, tmp_path):
    """A place in a bucket, and this machine's copies in a folder of the test."""
    for name, value in (buckets.ENVIRONMENT | {"AWS_ENDPOINT_URL": s3_server}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARNESS_CACHE_LOCAL", str(tmp_path / "machine"))
    return buckets.Place()


@pytest.fixture(scope="session", autouse=True)
def cache(common):
    """One cache for the whole session, so that the sample is tokenised once; no tracking server from outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(common / "cache"))
        patch.setenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")  # processes of a server that nobody here uses
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """An empty cache, which each test names alike: configs that depend on this name need not be composed again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", "cache")


@pytest.fixture(scope="session", autouse=True)
def activated():
    """Printed commands begin with the name of the program, as where the virtual environment is activated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", sysconfig.get_path("scripts"), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session", autouse=True)
def unannounced():
    """On a busy machine any stage may be slow; what a command prints does not depend on that here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.progress.SLOW_SECONDS", float("inf"))
        yield


@pytest.fixture(scope="session", autouse=True)
def unwritten():
    """Files need not reach the disk: a test kills processes, never the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session")
def lite(tmp_path_factory):
    """A folder of milvus-lite, which serves this process alone."""
    return tmp_path_factory.mktemp("milvus") / "lite.db"


@pytest.fixture
def fresh_lite(tmp_path_factory, monkeypatch):
    """A milvus-lite of this test alone, named by the environment: the folder of its data."""
    from milvus_lite import server_manager_instance as manager
    from pymilvus.client import grpc_handler

    path = tmp_path_factory.mktemp("milvus") / "lite.db"
    soon = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(min(seconds, 0.005)))
    monkeypatch.setattr(grpc_handler, "time", soon)  # it asks twice a second whether a server is ready
    monkeypatch.setenv("HARNESS_MILVUS_URI", str(path))
    monkeypatch.delenv("HARNESS_MILVUS_TOKEN", raising=False)
    yield path
    manager.release_server(str(path))


@pytest.fixture(scope="session")
def unsynced():
    """Nor do databases: SQLite would wait for the disk most of the time."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from harness.tracking.mlflow_client import _write_lazily

    def at_once(connection, _):
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    _write_lazily()  # sets another value, and so must come first
    event.listen(Engine, "connect", at_once)
    yield
    event.remove(Engine, "connect", at_once)


@pytest.fixture(scope="session")
def fresh_database(common, unsynced):
    """An MLflow database without runs: making one takes seconds, copying it none."""
    folder = common / "database"
    with FileLock(common / "database.lock"):
        if not (made := folder / "made").exists():
            MlflowTracker().connect(folder)
            connection = sqlite3.connect(folder / "mlflow.db")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is written ahead goes into the one file
            connection.close()
            made.touch()
    import mlflow.store.db.utils

    with pytest.MonkeyPatch.context() as patch:  # it reads all of its migrations for each database that is opened
        latest = mlflow.store.db.utils._get_latest_schema_revision
        patch.setattr(mlflow.store.db.utils, "_get_latest_schema_revision", functools.cache(latest))
        yield folder / "mlflow.db"


@pytest.fixture(scope="session")
def rouge_scorer():
    """Google's package; its logging would otherwise close pytest's standard error when Hydra configures logging."""
    from absl import logging
    from rouge_score import rouge_scorer

    logging.get_absl_handler().python_handler.stream = sys.__stderr__
    return rouge_scorer


@pytest.fixture
def ranx(monkeypatch):
    """The package as plain Python: its kernels compile for a minute when it is new."""
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    import ranx

    return ranx


@pytest.fixture(scope="session")
def server(tmp_path_factory, fresh_database):
    """The address of an MLflow server shared by the tests of a worker."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copyfile(fresh_database, folder / "server.db")
    with serving(folder) as (address, _):
        yield address


@pytest.fixture
def store_kind(request):
    """`file` or `server`."""
    return getattr(request, "param", "server" if request.config.getoption("--server") else "file")


@pytest.fixture
def fresh_store(tmp_path, monkeypatch, request, fresh_database, store_kind):
    """A tracking store without runs: a file in `outputs`, or a server without experiments."""
    (tmp_path / "outputs").mkdir()
    if store_kind == "file":
        shutil.copyfile(fresh_database, tmp_path / "outputs" / "mlflow.db")
        yield
        return
    address = request.getfixturevalue("server")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(MlflowTracker.__init__, "__defaults__", (address, *MlflowTracker.__init__.__defaults__[1:]))
    yield
    tracker = MlflowTracker(address)
    tracker.connect(tmp_path)
    for one in tracker.client.search_experiments():
        if one.experiment_id != "0":
            tracker.client.rename_experiment(one.experiment_id, str(uuid.uuid4()))  # frees the name
            tracker.client.delete_experiment(one.experiment_id)


EMPTY_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000"
    "3a7e9b550000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)


@pytest.fixture
def undrawn(request, monkeypatch):
    """Figures are not rendered, and those of a run not even laid out, except in tests marked `drawn`."""
    if request.node.get_closest_marker("drawn"):
        return
    from matplotlib.axis import _LazyTickList
    from matplotlib.figure import Figure

    def no_ticks(self, axis, _):
        if axis is None:
            return self
        setattr(axis, name := "majorTicks" if self._major else "minorTicks", [])
        return getattr(axis, name)

    monkeypatch.setattr(_LazyTickList, "__get__", no_ticks)  # half of the time of laying out

    def blank(self, file, **_):
        file.write(EMPTY_PNG) if hasattr(file, "write") else Path(file).write_bytes(EMPTY_PNG)

    monkeypatch.setattr(Figure, "savefig", blank)
    monkeypatch.setattr("harness.reports.run_page.overview", lambda scores, file, *_: blank(None, file))
    monkeypatch.setattr("harness.reports.run_page.draw_gate", lambda view: Figure())


@pytest.fixture
def untimed(monkeypatch):
    """Nothing is timed, so that whoever counts what is computed counts no timed passes."""
    monkeypatch.setattr("harness.experiment.timing.timed_part", lambda work, n: Timing(1.0, 1.0, 1.0))


@pytest.fixture
def harness(undrawn, tmp_path, monkeypatch, capsys, fresh_store):
    """Call a command in a folder with nothing but a fresh tracking store: harness("run", "top_k=5") -> Done."""
    monkeypatch.chdir(tmp_path)

    def call(command: str, *words: str) -> Done:
        capsys.readouterr()
        code = cli.call(command, list(words))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def real_data():
    """The folder of real data next to the checkout; without it the test is skipped."""
    if not DATA.is_dir():
        pytest.skip("no real data next to this checkout")
    return DATA


@pytest.fixture
def toy(tmp_path):
    """A tiny dataset in the contest's layout: three documents and three queries, one of which needs no retrieval."""
    folder = tmp_path / "toy"
    return folder if folder.exists() else write_toy(folder)


@pytest.fixture
def logged(request, harness, tmp_path, fresh_database, common, store_kind):
    """Run commands that log: logged(RUN, WITHHELD) -> [Done, Done], at once where another test has run them before.

    The commands run once per session, in a folder that holds nothing but `toy`; each test gets a copy of what they
    leave there, and may change it. So a fixture of a module that only reads runs is

        @pytest.fixture
        def runs(logged):
            return [done.json["run_id"] for done in logged(WITHHELD, RUN)]

    with commands from tests/support/logged_runs.py where they will do, as each other list of commands costs its time.
    `export` has to run in the test: the checksums of the ledger's lines hold for the folder that it was written in.
    Whatever a test patches comes after the call, and so does whatever opens its store (`tracker`).
    """
    templates = LoggedRuns(common / "logged", fresh_database)

    def log(*commands):
        if store_kind == "server" or request.node.get_closest_marker("drawn"):
            if not (tmp_path / "toy").exists():
                write_toy(tmp_path / "toy")
            return [harness(*command) for command in commands]
        return templates.copy_to(tmp_path, commands, harness)

    return log


@pytest.fixture
def files(tmp_path):
    """A folder with five sentences to correct and two submissions."""
    write_corrections(tmp_path)
    return tmp_path


@pytest.fixture
def answers(tmp_path):
    """A folder with four answers and their reasons; the predictions are right in two, and give a reason in three."""
    write_answers(tmp_path)
    return tmp_path


@pytest.fixture
def tracker(tmp_path, fresh_store):
    """The tracker of a test's own store, connected."""
    connected = MlflowTracker()
    connected.connect(tmp_path / "outputs")
    return connected
