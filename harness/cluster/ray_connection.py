"""The connection of this process to a Ray cluster: one at an address, or one started for the command."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness import children
from harness.errors import BadInput
from retrievers.base import cores
from retrievers.hosts import name_host

ANSWER_SECONDS = 5.0  # time for the head of a cluster to answer
TRIES = 3  # maximum number of starts of a job whose workers die
OBJECTS = 128 * 2**20  # bytes of shared memory for a cluster started here: jobs and results are small
# Ray uses HTTP/2. A client sends HTTP/2's fixed first bytes and empty settings; a server answers with its settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
SETTINGS = 4  # the fourth byte of such an answer, which gives its type
HOW_TO_JOIN = (
    "Most likely its token differs: run `ray get-auth-token` on the head, put the token into RAY_AUTH_TOKEN or "
    "~/.ray/auth_token on this machine, and set RAY_AUTH_MODE=token."
)


@dataclass(frozen=True)
class Connection:
    """A connection to a cluster.

    head: HOST:PORT of the cluster's head. asked: the requested address; None: a cluster for this process alone.
    ours: whether this module made the connection and must end it.
    """

    head: str
    asked: str | None
    ours: bool

    @property
    def inherits(self) -> bool:
        """Whether the workers have the environment variables of this process."""
        return self.ours and self.asked is None

    def alive(self) -> bool:
        """Return whether the head still answers. A minute after the head is gone, Ray ends this process."""
        return not _unanswered(self.head)


@dataclass(frozen=True)
class RayNode:
    number: str
    name: str
    cores: int
    gpus: float

    def share(self, gpus: float) -> int:
        """Return the cores of a worker that takes `gpus` GPUs; 0 if no such worker fits. gpus=0: it takes all cores."""
        count = int(self.gpus / gpus) if gpus else 1
        return max(1, self.cores // count) if count and self.cores else 0


def living_nodes() -> list[RayNode]:
    return [
        RayNode(
            number=one["NodeID"],
            name=f"{one['NodeManagerHostname']} ({one['NodeManagerAddress']}), node {one['NodeID'][:8]}",
            cores=int(one["Resources"].get("CPU", 0)),
            gpus=one["Resources"].get("GPU", 0.0),
        )
        for one in ray_module().nodes()
        if one["Alive"]
    ]


_connection: Connection | None = None
_folder: str | None = None  # holds the files of a cluster started here


def ray_module() -> Any:
    """Return the module ray. Ray sends usage reports only if the user enables them. It writes logs only to files."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0")
    os.environ.setdefault("RAY_task_oom_retries", str(TRIES - 1))  # by default, Ray tries for ever
    # By default, Ray lowers its workers' priority by 15, so other programs can take most of their time.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # If this variable is unset, Ray warns that its default will become 0.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray._private.worker
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise BadInput("cluster=ray needs the package ray: pip install -c constraints.txt -e '.[ray]'") from None
    from harness.cluster import ray_worker

    ray.cloudpickle.register_pickle_by_value(ray_worker)  # so that a node can report that it lacks this package
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Ray would print lines about dead workers to standard output, which is only for the command's own result.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    return ray


def connect(address: str | None) -> Connection:
    """Return the connection to a cluster. Raise BadInput if there is no cluster, or if it refuses this process."""
    global _connection
    where = "cluster.runtime.address" if address else "RAY_ADDRESS"
    asked = address or os.environ.get("RAY_ADDRESS") or None
    ray = ray_module()
    if ray.is_initialized() and (_connection is None or _connection.asked == asked):
        _connection = _connection or Connection(ray.get_runtime_context().gcs_address, asked, ours=False)
        return _connection
    disconnect()
    if asked is not None:
        _require_cluster(asked, where)
    try:
        with _few_services():
            ray.init(**_target(asked), log_to_driver=False, configure_logging=False, **isolated(ray))
    except Exception as error:
        what = f"{where}={asked}" if asked else "cluster=ray"
        raise BadInput(f"{what}: {_explained(error)}") from None
    atexit.register(disconnect)
    _connection = Connection(ray.get_runtime_context().gcs_address, asked, ours=True)
    return _connection


def disconnect() -> None:
    global _connection, _folder
    if _connection is None or not _connection.ours:
        return
    _connection = None
    ray_module().shutdown()
    if _folder:
        shutil.rmtree(_folder, ignore_errors=True)
        _folder = None


@contextlib.contextmanager
def _few_services() -> Iterator[None]:
    """Let a new cluster start without dashboard, autoscaler and log monitor. Ray has no arguments for that."""
    from ray._private import node, parameter

    of_node, params = node.Node.start_api_server, parameter.RayParams
    node.Node.start_api_server = lambda self, **_: setattr(self, "_webui_url", None)
    parameter.RayParams = functools.partial(params, no_monitor=True, include_log_monitor=False)
    try:
        yield
    finally:
        node.Node.start_api_server, parameter.RayParams = of_node, params


def isolated(ray: Any) -> dict[str, Any]:
    """Return arguments of `ray.init` that keep the working folder off the workers' import path."""

    class RayJob(ray.job_config.JobConfig):  # type: ignore[misc, name-defined]
        def _runtime_env_has_working_dir(self) -> bool:
            return True

    return {"job_config": RayJob()}


def _target(address: str | None) -> dict[str, Any]:
    global _folder
    if address is not None:
        return {"address": address}
    os.environ.update(children.SAFE)
    _folder = tempfile.mkdtemp(prefix="ray-")  # short, because it is part of the paths of sockets
    return {
        "address": "local",
        "num_cpus": cores(),
        "object_store_memory": OBJECTS,
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": _folder,
    }


def _require_cluster(asked: str, where: str) -> None:
    """Raise BadInput unless Ray answers at an address. Without this check, `ray.init` would try for two minutes."""
    if asked == "auto":
        return
    host, _, port = asked.rpartition(":")
    if "://" in asked or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInput(
            f"{where}={asked}: give HOST:PORT of the cluster's head, as `ray start --head --port=6379` prints it, or "
            "auto for a cluster that runs on this machine."
        )
    name_host(f"ray://{asked}", where)
    if problem := _unanswered(asked):
        raise BadInput(
            f"{where}={asked}: {problem}. Is the cluster running (`ray status --address={asked}`), and is this the "
            "port of its head, not of its dashboard?"
        )


def _unanswered(address: str) -> str:
    """Return the problem with the head of a cluster, or "" if the head answers in time."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return ""
            connection.sendall(GREETING)
            connection.settimeout(ANSWER_SECONDS)
            answer = connection.recv(9)
    except OSError as error:
        return f"nothing answers there ({error.strerror or error})"
    return "" if answer[3:4] == bytes([SETTINGS]) else "something other than Ray answers there"


def _explained(error: Exception) -> str:
    import ray.exceptions

    if isinstance(error, ray.exceptions.AuthenticationError):
        return f"the cluster requires a token, and this process has none or a different one. {HOW_TO_JOIN}"
    reason = " ".join(str(error).split())
    if "Failed to connect to Ray cluster" in reason:  # the head answers; only Ray's logs hold the reason
        return f"the cluster does not let this process in. {HOW_TO_JOIN}"
    return (
        f"this machine cannot work with the cluster: {reason:.600}. Run the command on a machine of the cluster, with "
        "the same versions of Python and Ray."
    )
