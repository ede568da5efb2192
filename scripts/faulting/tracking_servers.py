"""An MLflow server over PostgreSQL, with files in an S3-compatible store: all on this machine, in a temporary folder.

PostgreSQL's own programs (`initdb`, `pg_ctl`) must be installed, `psycopg2-binary` too, and `moto[server]`, which
stands for the object store. Everything listens on 127.0.0.1 alone and is stopped at the end.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

BUCKET = "mlflow"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
DEBIAN = Path("/usr/lib/postgresql")  # VERSION/bin: the server's programs, which are not on the path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Postgres:
    """A PostgreSQL server with a database `mlflow`. PostgreSQL refuses root: then it runs as the user `postgres`."""

    folder: Path
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        if self._as:
            found = pwd.getpwnam("postgres")
            os.chown(self.folder, found.pw_uid, found.pw_gid)
        self._run("initdb", "-D", self.data, "-U", "mlflow", "--auth=trust", "--encoding=UTF8")
        self.start()
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "mlflow", "mlflow")

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://mlflow@127.0.0.1:{self.port}/mlflow"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """mode: of `pg_ctl stop`; `immediate` ends it as a crash does."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def _run(self, program: str, *words: str | Path) -> None:
        command = [*self._as, _program(program), *words]
        with (self.folder / "programs.log").open("a") as log:  # the server that pg_ctl starts would keep a pipe open
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        if done.returncode:
            sys.exit(f"{program} failed:\n{(self.folder / 'programs.log').read_text()[-3000:]}")


def _program(name: str) -> str:
    found = sorted(DEBIAN.glob(f"*/bin/{name}"))
    if path := shutil.which(name) or (str(found[-1]) if found else None):
        return path
    sys.exit(f"{name} is missing: install PostgreSQL, such as with `apt-get install postgresql`.")


class MlflowServer:
    """An MLflow server with several workers. environment: besides this process's own."""

    def __init__(self, folder: Path, database: str, files: str, workers: int, environment: dict[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        self._command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
            "--workers", str(workers), "--backend-store-uri", database, "--artifacts-destination", files,
        ]  # fmt: skip
        without = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._environment = os.environ | without | environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "mlflow.log").open("a") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(f"{self.address}/health", self._process, self.folder / "mlflow.log")

    def kill(self) -> None:
        """End the server and its workers by SIGKILL."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers."""
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"The server ended:\n{log.read_text()[-3000:]}")
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=2).close()
            return
        time.sleep(0.2)
    sys.exit(f"{address} does not answer:\n{log.read_text()[-3000:]}")


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """The address of an S3-compatible store with an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=os.environ | KEYS)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/moto-api/", process, folder / "s3.log")
        urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")).close()
        yield address
    finally:
        process.kill()
        process.wait()


@dataclass
class Servers:
    """All three. folder: of their files. store: the address of the object store."""

    folder: Path
    store: str
    postgres: Postgres
    mlflow: MlflowServer

    def files(self) -> dict[str, str]:
        """Return RUN/artifacts/FILE -> MD5 of every file in the object store."""
        import boto3

        keys = {name.lower(): value for name, value in KEYS.items() if name != "AWS_DEFAULT_REGION"}
        client = boto3.client("s3", endpoint_url=self.store, region_name=KEYS["AWS_DEFAULT_REGION"], **keys)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        found = [one for page in pages for one in page.get("Contents", [])]
        return {one["Key"].split("/", 2)[2]: one["ETag"].strip('"') for one in found}


@contextmanager
def tracking_servers(workers: int = 4) -> Iterator[Servers]:
    """An MLflow server over PostgreSQL with its files in an object store. workers: processes of the MLflow server."""
    folder = Path(tempfile.mkdtemp(prefix="tracking-servers-"))
    folder.chmod(0o711)  # the database's user passes through
    places = [folder / name for name in ("postgres", "mlflow")]
    for place in places:
        place.mkdir()
    try:
        with object_store(folder) as store:
            postgres = Postgres(places[0])
            mlflow = MlflowServer(
                places[1], postgres.uri, f"s3://{BUCKET}/runs", workers, KEYS | {"MLFLOW_S3_ENDPOINT_URL": store}
            )
            try:
                mlflow.start()
                yield Servers(folder, store, postgres, mlflow)
            finally:
                mlflow.kill()
                postgres.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
