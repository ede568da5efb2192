"""Measures the cache in a bucket against moto, a server of S3 in Python, on this machine. Each part prints one line.

    python scripts/benchmark_store.py small           # 1,000 small entries sent, and fetched by another machine
    python scripts/benchmark_store.py large           # an entry of 1 GB; needs 4 GB of memory and 3 GB of disk
    python scripts/benchmark_store.py race            # 8 processes of 4 "machines" need the same entry
    python scripts/benchmark_store.py killed          # and the one that builds is killed, again and again
    python scripts/benchmark_store.py run             # a run that is cached: in a folder and in a bucket

moto keeps objects in memory and serves them with one interpreter, so its speeds say what a client costs at least, not
what a real store does. "Machines" are processes with copies of their own. Another server: set AWS_ENDPOINT_URL, the
credentials and BENCHMARK_BUCKET.
"""

from __future__ import annotations

import json
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.storage.cache import LOCAL, open_cache

SERVER = (
    "import sys; from moto.server import ThreadedMotoServer; "
    "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False); server.start(); "
    "print(server.get_host_and_port()[1], flush=True); sys.stdin.read()"
)
MAIN = "from harness.cli import main; main()"
SMALL, GIGABYTE, RACES, KILLS = 1000, 10**9, 3, 5
spawn = multiprocessing.get_context("spawn")


@contextmanager
def bucket() -> Iterator[str]:
    """A place in a bucket of a server."""
    if os.environ.get("BENCHMARK_BUCKET"):
        yield f"s3://{os.environ['BENCHMARK_BUCKET']}/{uuid.uuid4().hex}"
        return
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
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


def on(machine: Path, url: str) -> Any:
    """The cache as a machine with a copy of its own opens it."""
    os.environ[LOCAL] = str(machine)
    return open_cache(url)


def said(**values: Any) -> None:
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}))


def small(url: str, folder: Path) -> None:
    def build(into: Path) -> None:
        (into / "data.json").write_text("{}" * 500)

    seconds = []
    for machine in ("one", "two"):
        cache, began = on(folder / machine, url), time.perf_counter()
        for number in range(SMALL):
            cache.folder("small", {"n": number}, build if machine == "one" else None)
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    listed = len(cache.entries())
    said(
        part="small",
        entries=SMALL,
        up_s=seconds[0],
        down_s=seconds[1],
        list_s=time.perf_counter() - began,
        listed=listed,
    )


def large(url: str, folder: Path) -> None:
    def build(into: Path) -> None:
        with (into / "data.bin").open("wb") as file:
            for _ in range(100):
                file.write(os.urandom(GIGABYTE // 100))

    began = time.perf_counter()
    build(folder)
    plain = time.perf_counter() - began
    seconds = []
    for machine in ("one", "two"):
        cache, began = on(folder / machine, url), time.perf_counter()
        cache.folder("large", {}, build if machine == "one" else None)
        seconds.append(time.perf_counter() - began)
    said(part="large", bytes=GIGABYTE, write_s=plain, build_and_up_s=seconds[0], down_s=seconds[1])


def _need(url: str, machine: Path, log: Path, takes: float) -> None:
    def build(into: Path) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(takes)
        np.save(into / "data.npy", np.arange(10))

    assert np.load(on(machine, url).folder("raced", {"log": str(log)}, build) / "data.npy").sum() == 45


def _racing(url: str, folder: Path, log: Path, takes: float) -> list[Any]:
    log.touch()
    work = [(url, folder / f"machine{number % 4}", log, takes) for number in range(8)]
    processes = [spawn.Process(target=_need, args=one) for one in work]
    for process in processes:
        process.start()
    return processes


def race(url: str, folder: Path) -> None:
    builds = []
    for number in range(RACES):
        log = folder / f"race{number}"
        for process in _racing(url, folder, log, 2.0):
            process.join()
            assert process.exitcode == 0
        builds.append(len(log.read_text().split()))
    said(part="race", processes=8, machines=4, builds=builds)


def killed(url: str, folder: Path) -> None:
    took = []
    for number in range(KILLS):
        log = folder / f"killed{number}"
        processes = _racing(url, folder, log, 3.0)
        while not log.read_text():
            time.sleep(0.05)
        os.kill(int(log.read_text()), signal.SIGKILL)
        began = time.perf_counter()
        for process in processes:
            process.join()
        took.append(time.perf_counter() - began)
        assert sorted(process.exitcode for process in processes) == [-signal.SIGKILL] + [0] * 7
        assert len(log.read_text().split()) == 2, "the killed one, and one other"
    said(part="killed", kills=KILLS, median_s=statistics.median(took), slowest_s=max(took), of_which_building_s=3.0)


def run(url: str, folder: Path) -> None:
    os.environ |= {LOCAL: str(folder / "one"), "HARNESS_CACHE": "unused"}

    def seconds(store: str) -> float:
        words = [
            "run",
            "tracking=none",
            f"outputs={folder / 'outputs'}",
            f"store.path={store}",
            "retriever=hybrid_lexical",
        ]
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", MAIN, *words], check=True, capture_output=True)
        return time.perf_counter() - began

    stores = {"folder": str(folder / "folder"), "bucket": url}
    first = {name: seconds(store) for name, store in stores.items()}
    again: dict[str, list[float]] = {name: [] for name in stores}
    for _ in range(5):  # in turns
        for name, store in stores.items():
            again[name].append(seconds(store))
    shutil.rmtree(folder / "one")
    fetched = seconds(url)
    medians = {f"cached_{name}_s": statistics.median(values) for name, values in again.items()}
    said(part="run", **{f"first_{name}_s": value for name, value in first.items()}, **medians, fetched_s=fetched)


if __name__ == "__main__":
    part = {"small": small, "large": large, "race": race, "killed": killed, "run": run}.get(" ".join(sys.argv[1:]))
    if part is None:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as scratch, bucket() as place:
        part(place, Path(scratch))
