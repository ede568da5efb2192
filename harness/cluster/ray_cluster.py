"""A Ray cluster: each job is a Ray task. All nodes take tasks. If a node dies, other nodes repeat its tasks."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from harness import children
from harness.cluster import ray_worker
from harness.cluster.cluster import Documents, ResultT, ShardWork, checked_shard
from harness.cluster.ray_connection import TRIES, Connection, RayNode, connect, living_nodes, ray_module
from harness.cluster.ray_worker import NodeNeeds, node_versions
from harness.errors import BadInput, Failed
from retrievers.base import MOST_CORES, AtMost, Progress

log = logging.getLogger(__name__)

Cores = Annotated[int, AtMost(MOST_CORES, "no node has more cores")]
Gpus = Annotated[float, AtMost(64, "no node has more GPUs")]
LOOK_SECONDS = 1.0  # time between two checks of the jobs and the nodes
WAIT_SECONDS = 600.0  # time to wait for a core while other programs use all cores
ANSWER_SECONDS = 60.0  # time for nodes to answer when they are examined


class RayCluster:
    """Works on the nodes of a Ray cluster. Each node must have this package, and see the store under the same path.

    shard: the approximate number of documents in a shard.
    address: HOST:PORT of the cluster's head | auto: a cluster that runs on this machine | None: the address in the
        variable RAY_ADDRESS, or if it is unset, a new cluster on this machine for this command.
    encoding_cores: the cores of a worker that encodes. None: the smallest node's cores, divided among its GPU workers.
    encoding_gpus: the GPUs of a worker that encodes, such as 1, or 0.5 if two workers share one. 0: encodes on cores.
    """

    recorded_as = "cluster/ray"
    version = 1

    def __init__(
        self,
        shard: Documents = 50_000,
        address: str | None = None,
        encoding_cores: Cores | None = None,
        encoding_gpus: Gpus = 0,
    ) -> None:
        if checked_shard(shard) is None:
            raise BadInput("cluster.shard is null, but nodes divide the work by shards. Give a size such as 50000.")
        if encoding_cores is not None and encoding_cores < 1:
            raise BadInput(f"cluster.runtime.encoding_cores is {encoding_cores}: give at least 1, or null for all.")
        if encoding_gpus < 0 or (encoding_gpus > 1 and encoding_gpus != int(encoding_gpus)):
            raise BadInput(
                f"cluster.runtime.encoding_gpus is {encoding_gpus}: give a whole number, a share of a GPU such "
                "as 0.5, or 0 for none."
            )
        self.shard: int | None = shard
        self._address, self._cores, self._gpus = address, encoding_cores, float(encoding_gpus)

    def run(self, work: ShardWork[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        """Do as `Cluster.run` does. Also raise BadInput if the cluster cannot be joined or its nodes are unfit."""
        if not work.jobs:
            return []
        connection = connect(self._address)
        encoding = self._encoding_cores(living_nodes())
        nodes, gpus = living_nodes(), self._gpus if work.needs == "model" else 0.0
        cores = encoding if work.needs == "model" else even_share(nodes, len(work.jobs))
        with _probe(work.store) as probe:
            wanted = NodeNeeds(node_versions(), work.store, probe)
            return _ShardJobs(connection, work, wanted, (cores, gpus), progress).results()

    def examined(self) -> str:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        connection, ray = connect(self._address), ray_module()
        self._encoding_cores(nodes := [node for node in living_nodes() if node.cores])
        task, wanted = ray.remote(num_cpus=0)(ray_worker.examine), NodeNeeds(node_versions())
        asked = {
            task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.number, soft=False)).remote(wanted): (
                node
            )
            for node in nodes
        }
        answered, silent = ray.wait([*asked], num_returns=len(asked), timeout=ANSWER_SECONDS)
        if silent:
            names = ", ".join(asked[one].name for one in silent)
            raise Failed(f"cluster=ray: no worker has answered within {ANSWER_SECONDS:.0f} s on {names}.")
        try:
            problems = ray.get(answered)
        except ray.exceptions.RayError as error:
            raise Failed(f"cluster=ray: a worker could not start: {_reason(error)}") from None
        if problem := next(filter(None, problems), ""):
            raise BadInput(problem)
        where = "on this machine alone" if connection.asked is None else f"at {connection.head}"
        return f"Ray {ray.__version__} {where}: {_counts(nodes)}; all nodes have equal versions"

    def _encoding_cores(self, nodes: list[RayNode]) -> int:
        shares = [node.share(self._gpus) for node in nodes]
        cores = self._cores or min(filter(None, shares), default=0)
        if any(0 < cores <= node.cores and share for node, share in zip(nodes, shares, strict=True)):
            return cores
        has = _counts(nodes)
        if self._gpus:
            raise BadInput(
                f"cluster.runtime.encoding_gpus is {self._gpus:g}, but no node of the cluster has so many. The cluster "
                f"has {has}. Start a node with GPUs (`ray start --num-gpus=N`), or set the key to 0 to encode on cores."
            )
        raise BadInput(
            f"cluster.runtime.encoding_cores is {cores}, but no node of the cluster has so many. The cluster has {has}."
            if cores
            else f"cluster=ray: no node of the cluster has a core for work ({has})."
        )


def even_share(nodes: list[RayNode], jobs: int) -> int:
    """Return the number of cores for each worker: one, or more if there are fewer jobs than cores."""
    most = max((node.cores for node in nodes), default=1)
    return max(1, min(sum(node.cores for node in nodes) // jobs, most))


def _counts(nodes: list[RayNode]) -> str:
    cores, gpus = sum(node.cores for node in nodes), sum(node.gpus for node in nodes)
    return f"{len(nodes)} nodes, {cores} cores, {gpus:g} GPUs"


@functools.cache
def _task(inherits: bool) -> Any:
    """Return the Ray task of all jobs. Since it never changes, workers and their models are kept for other jobs.

    inherits: as in `Connection`.
    """
    return ray_module().remote(
        max_calls=0,  # by default, a worker with a GPU ends after one job
        max_retries=TRIES - 1,
        scheduling_strategy="SPREAD",
        runtime_env={} if inherits else {"env_vars": children.SAFE},
    )(ray_worker.do_job)


@contextlib.contextmanager
def _probe(store: str | None) -> Iterator[str | None]:
    """Create a file in the store, for nodes to find. Yield its path, or None if the store is not a folder."""
    if store is None or "://" in store:
        yield None
        return
    file = Path(store, f".shared-{uuid.uuid4().hex}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    try:
        yield str(file.absolute())
    finally:
        file.unlink(missing_ok=True)


class _ShardJobs:
    """The jobs of one piece of work, the longest first. share: the cores and the GPUs of each job."""

    def __init__(
        self,
        connection: Connection,
        work: ShardWork[Any, Any],
        wanted: NodeNeeds,
        share: tuple[int, float],
        progress: Progress | None,
    ) -> None:
        self._connection, self._work, self._wanted, self._progress = connection, work, wanted, progress
        self._share, self._ray = share, ray_module()
        self._done_parts = ray_worker.DoneParts(uuid.uuid4().hex)
        self._running: dict[Any, int] = {}  # reference to a result -> job
        self._results: dict[int, Any] = {}
        self._full: dict[int, str] = {}  # job that met a full disk -> id of the node with this disk
        self._unanswered, self._began = 0, time.monotonic()

    def results(self) -> list[Any]:
        jobs = range(len(self._work.jobs))
        try:
            for job in sorted(jobs, key=lambda job: -self._work.sizes[job]):
                self._submit(job)
            while self._running:
                awaited = [*self._running]
                for reference in self._ray.wait(awaited, num_returns=len(awaited), timeout=LOOK_SECONDS)[0]:
                    self._take(reference)
                if self._running:
                    self._look()
                self._report()
        finally:
            for reference in self._running:  # an error left these tasks running
                self._ray.cancel(reference, force=True)
            if not self._unanswered:
                self._done_parts.forget()
        return [self._results[job] for job in jobs]

    def _submit(self, job: int, **options: Any) -> None:
        packed = self._ray.put((self._work.do, self._work.jobs[job]))
        cores, gpus = self._share
        task = _task(self._connection.inherits).options(num_cpus=cores, num_gpus=gpus, **options)
        reference = task.remote([packed], job, self._wanted, self._done_parts)
        self._running[reference] = job

    def _take(self, reference: Any) -> None:
        job = self._running.pop(reference)
        try:
            kind, value, node, number = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # an error outside the job's own code
            raise Failed(f"cluster=ray: a job failed:\n{error}") from None
        except self._ray.exceptions.RayError as error:
            raise Failed(
                f"cluster=ray: a job has lost its worker {TRIES} times. If a node's memory is too small for a shard, "
                f"lower cluster.shard. Ray says: {_reason(error)}"
            ) from None
        match kind:
            case "done":
                self._results[job] = value
            case "full":
                self._move(job, f"{value} (on {node})", number)
            case "broken":
                raise Failed(f"cluster=ray: a job failed on {node}:\n{value}")
            case _:
                raise (Failed if kind == "failed" else BadInput)(value)

    def _move(self, job: int, problem: str, number: str) -> None:
        """Move a job off a node with a full disk. Raise Failed if the job was moved before or no other node is left."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        full = {number, *self._full.values()}
        other = next((node for node in self._nodes() if node.number not in full), None)
        if job in self._full or other is None:
            raise Failed(f"{problem}. Free some space there and run the same command again.")
        log.warning("cluster=ray: %s: another node takes over its job", problem)
        self._full[job] = number
        self._submit(job, scheduling_strategy=NodeAffinitySchedulingStrategy(other.number, soft=True))

    def _nodes(self) -> list[RayNode]:
        cores, gpus = self._share
        return [node for node in living_nodes() if node.cores >= cores and node.gpus >= gpus]

    def _look(self) -> None:
        """Raise Failed if the head is gone, no node is left, or none becomes free. Without this, Ray waits or exits."""
        self._unanswered = 0 if self._connection.alive() else self._unanswered + 1
        if self._unanswered > 1:
            raise Failed(
                f"cluster=ray: the head of the cluster at {self._connection.head} no longer answers. Finished work "
                "is in the cache: run the same command again when the cluster is back."
            )
        if self._unanswered:
            return
        if not self._nodes():
            raise Failed("cluster=ray: no suitable node is left. Add nodes, and run the same command again.")
        if not self._results and time.monotonic() - self._began > WAIT_SECONDS and not self._parts():
            raise Failed(
                f"cluster=ray: no worker could start within {WAIT_SECONDS / 60:.0f} minutes, because the cores of the "
                "nodes are in use. `ray status` shows what uses them."
            )

    def _report(self) -> None:
        if self._progress is None:
            return
        asks = self._work.needs == "model" and self._running and not self._unanswered
        sizes, parts = self._work.sizes, self._parts() if asks else {}
        part = sum(parts.get(job, 0.0) * sizes[job] for job in self._running.values())
        self._progress(sum(sizes[job] for job in self._results) + int(part), sum(sizes), self._work.unit)

    def _parts(self) -> dict[int, float]:
        with contextlib.suppress(self._ray.exceptions.RayError):
            return self._done_parts.parts()
        return {}


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
