"""The cache in a bucket."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from measuring import Table, harness, seconds

from harness.storage.cache import LOCAL, open_cache

SERVER = (
    "import sys; from moto.server import ThreadedMotoServer; "
    "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False); server.start(); "
    "print(server.get_host_and_port()[1], flush=True); sys.stdin.read()"
)


def store(what: Literal["small", "race", "killed", "run"], *, entries: int = 1000, times: int = 3) -> None:
    """Measure the cache in a bucket against moto, a server of S3 in Python, on this machine.

    small: --entries small entries sent, and fetched by another machine
    race: 8 processes of 4 "machines" need the same entry, --times times
    killed: and the one that builds is killed
    run: a run that is cached, in a folder and in a bucket, in turns

    moto keeps objects in memory and serves them with one interpreter: its speeds say what a client costs at least.
    "Machines" are processes with local copies of their own. For another server set AWS_ENDPOINT_URL, the credentials
    and BENCHMARK_BUCKET.
    """
    with tempfile.TemporaryDirectory() as name, _bucket() as url:
        if what == "small":
            _small(url, Path(name), entries)
        elif what == "run":
            _run(url, Path(name), times)
        else:
            _race(url, Path(name), times, kill=what == "killed")


@contextlib.contextmanager
def _bucket() -> Iterator[str]:
    """Give a place in a bucket of a server."""
    if os.environ.get("BENCHMARK_BUCKET"):
        yield f"s3://{os.environ['BENCHMARK_BUCKET']}/{uuid.uuid4().hex}"
        return
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes)  # type: ignore[call-overload]
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    from s3fs import S3FileSystem

    S3FileSystem(skip_instance_cache=True).call_s3("create_bucket", Bucket="bench")
    try:
        yield "s3://bench/store"
    finally:
        server.terminate()
        server.wait()


def _on(machine: Path, url: str) -> Any:
    """Return the cache as a machine with a copy of its own opens it."""
    os.environ[LOCAL] = str(machine)
    return open_cache(url)


def _small(url: str, folder: Path, count: int) -> None:
    def build(into: Path) -> None:
        (into / "data.json").write_text("{}" * 500)

    def all_of(machine: str, builder: Any) -> None:
        cache = _on(folder / machine, url)
        for number in range(count):
            cache.folder("small", {"n": number}, builder)

    table = Table("entries", "up, s", "down, s", "list, s", "listed")
    spent = [seconds(lambda: all_of("one", build)), seconds(lambda: all_of("two", None))]
    cache = _on(folder / "two", url)
    spent.append(seconds(cache.entries))
    table.row(count, *spent, len(cache.entries()))


def need(url: str, machine: Path, log: Path, takes: float) -> None:
    """Need an entry that takes so many seconds to build; each builder adds a line to the log."""

    def build(into: Path) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(takes)
        np.save(into / "data.npy", np.arange(10))

    assert np.load(_on(machine, url).folder("raced", {"log": str(log)}, build) / "data.npy").sum() == 45


def _race(url: str, folder: Path, times: int, kill: bool) -> None:
    spawn = multiprocessing.get_context("spawn")
    table = Table("time", "processes", "machines", "builds", "seconds after the kill" if kill else "seconds")
    took = []
    for number in range(times):
        log = folder / f"log{number}"
        log.touch()
        jobs = [(url, folder / f"machine{one % 4}", log, 3.0 if kill else 2.0) for one in range(8)]
        processes = [spawn.Process(target=need, args=job) for job in jobs]
        for process in processes:
            process.start()
        while kill and not log.read_text():
            time.sleep(0.05)
        if kill:
            os.kill(int(log.read_text()), signal.SIGKILL)
        took.append(seconds(lambda processes=processes: [process.join() for process in processes]))
        codes, builds = sorted(process.exitcode for process in processes), len(log.read_text().split())
        assert (codes, builds) == (([-signal.SIGKILL] + [0] * 7, 2) if kill else ([0] * 8, 1)), (codes, builds)
        table.row(number, 8, 4, builds, took[-1])
    print(f"median {statistics.median(took):.1f} s, slowest {max(took):.1f} s")


def _run(url: str, folder: Path, times: int) -> None:
    os.environ |= {LOCAL: str(folder / "one"), "HARNESS_CACHE": "unused"}
    words = ["run", "tracking=none", f"outputs={folder / 'outputs'}", "retriever=hybrid_lexical"]
    stores = {"folder": str(folder / "folder"), "bucket": url}

    def spent(place: str) -> float:
        return harness(*words, f"store.path={place}")[0]

    first = {name: spent(place) for name, place in stores.items()}
    again = [{name: spent(place) for name, place in stores.items()} for _ in range(times)]  # in turns
    shutil.rmtree(folder / "one")
    fetched = {"folder": "", "bucket": spent(url)}
    table = Table("store", "first run, s", "cached, s", "on another machine, s")
    for name in stores:
        table.row(name, first[name], statistics.median(one[name] for one in again), fetched[name])
