"""A Ray cluster: shards are worked on by workers on all of its nodes, and again elsewhere where one dies."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from harness.cluster.cluster import Documents, ResultT, ShardWork, checked_shard
from harness.cluster.ray_connection import Connection, connect, ray_module
from harness.cluster.ray_crew import STATE, Crew, Member, Node, Shape, living_nodes, reason
from harness.errors import BadInput, Failed
from retrievers.base import MOST_CORES, AtMost, Progress

log = logging.getLogger(__name__)

Cores = Annotated[int, AtMost(MOST_CORES, "no node has as many cores")]
Gpus = Annotated[float, AtMost(64, "no node has as many GPUs")]
ASK_SECONDS = 1.0  # between two looks at how far the jobs are
TRIES = 3  # deaths of its worker, after which a job is given up

_crew: Crew | None = None  # of this process: workers keep their models and opened indexes between two calls of `run`


class RayCluster:
    """Works on the nodes of a Ray cluster. All of them have this package, and the store under the same path.

    shard: about how many documents a shard has.
    address: HOST:PORT of the cluster's head, or auto: one that runs on this machine. None: as the environment variable
        RAY_ADDRESS says; without it, a cluster on this machine alone while the command runs.
    encoding_cores: cores of a worker that encodes; None: all of its node, or the share of each GPU.
    encoding_gpus: GPUs of a worker that encodes, such as 1, or 0.5 for two workers on one; 0: it encodes on cores.
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
            raise BadInput("cluster.shard is null: nodes share the work by shards. Give one such as 50000.")
        if encoding_cores is not None and encoding_cores < 1:
            raise BadInput(f"cluster.runtime.encoding_cores is {encoding_cores}: give at least 1, or null for all.")
        if encoding_gpus < 0 or (encoding_gpus > 1 and encoding_gpus != int(encoding_gpus)):
            raise BadInput(
                f"cluster.runtime.encoding_gpus is {encoding_gpus}: give a whole number, or less than 1 where several "
                "workers share a GPU; 0 for none."
            )
        self.shard: int | None = shard
        self._address, self._encoding = address, Shape(encoding_cores, float(encoding_gpus))

    def run(self, work: ShardWork[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        """As in Cluster. BadInput where the cluster cannot be joined, or its nodes are not fit for the work."""
        if not work.jobs:
            return []
        connection = connect(self._address)
        self._require_room()
        try:
            with _probe(work.store) as probe:
                return _Shift(self._crew(connection, work, probe), work, progress).results()
        except BaseException:
            dismiss()
            raise

    def examined(self) -> str:
        """As in Cluster: nodes, cores, GPUs and Ray, once a worker on each node has said what it has there."""
        connection = connect(self._address)
        self._require_room()
        found = [node for node in living_nodes(ray_module()) if node.cores]
        crew = Crew(connection, Shape(1), None)
        try:
            crew.assemble(len(found))
        finally:
            crew.dismiss()
        cores, gpus = sum(node.cores for node in found), sum(node.gpus for node in found)
        where = "of this machine alone" if connection.asked is None else f"at {connection.head}"
        return (
            f"Ray {ray_module().__version__} {where}: {len(found)} nodes, {cores} cores, {gpus:g} GPUs; equal versions"
        )

    def _require_room(self) -> None:
        """BadInput where no node has what a worker that encodes is to have."""
        found, asked = living_nodes(ray_module()), self._encoding
        if any(asked.on(node)[0] for node in found):
            return
        cores, gpus = sum(node.cores for node in found), sum(node.gpus for node in found)
        has = f"{len(found)} nodes with {cores} cores and {gpus:g} GPUs"
        if asked.gpus:
            raise BadInput(
                f"cluster.runtime.encoding_gpus is {asked.gpus:g}, and no node of the cluster has as many ({has} in "
                "all). Ray counts those that it finds, or `ray start --num-gpus=N`; 0 encodes on cores."
            )
        raise BadInput(
            f"cluster.runtime.encoding_cores is {asked.cores}, and no node of the cluster has as many ({has} in all)."
            if asked.cores
            else f"cluster=ray: no node of the cluster has a core for work ({has})."
        )

    def _crew(self, connection: Connection, work: ShardWork[Any, Any], probe: str | None) -> Crew:
        """The workers of this process, or new ones where those have another shape."""
        global _crew
        shape = self._encoding if work.needs == "model" else _even(living_nodes(ray_module()), len(work.jobs))
        kept = _crew is not None and (_crew.connection, _crew.store) == (connection, work.store)
        if _crew is None or not kept or not (_crew.shape == shape or _enough(_crew, work)):
            dismiss()
            _crew = Crew(connection, shape, work.store)
        _crew.probe = probe
        return _crew


def dismiss() -> None:
    """End the workers of this process."""
    global _crew
    if _crew is not None:
        _crew.dismiss()
        _crew = None


def _enough(crew: Crew, work: ShardWork[Any, Any]) -> bool:
    """Whether workers of another shape will do: each job has its own."""
    return work.needs == "cores" and not crew.shape.gpus and len(crew.members) >= len(work.jobs)


def _even(found: list[Node], jobs: int) -> Shape:
    """Workers with one core each, or more where there are fewer jobs than cores."""
    most = max((node.cores for node in found), default=1)
    return Shape(max(1, min(sum(node.cores for node in found) // jobs, most)))


@contextlib.contextmanager
def _probe(store: str | None) -> Iterator[str | None]:
    """A file in the store while the work goes on, which every node must see; None for an object store or none."""
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


@dataclass(eq=False)
class _Running:
    """A job on a worker. fraction: how much of it is done."""

    job: int
    member: Member
    fraction: float = 0.0


class _Shift:
    """The jobs of one piece of work, handed to workers as they become free, the longest first."""

    def __init__(self, crew: Crew, work: ShardWork[Any, Any], progress: Progress | None) -> None:
        self._crew, self._work, self._progress, self._ray = crew, work, progress, ray_module()
        self._waiting = sorted(range(len(work.jobs)), key=lambda job: work.sizes[job])  # the longest last
        self._running: dict[Any, _Running] = {}  # by the reference to its result
        self._results: dict[int, Any] = {}
        self._deaths: dict[int, list[str]] = defaultdict(list)  # job -> why its workers died
        self._full: set[int] = set()  # jobs that have met a full disk
        self._asked = 0.0

    def results(self) -> list[Any]:
        """The result of each job, in order."""
        while len(self._results) < len(self._work.jobs):
            self._crew.refresh(len(self._waiting) + len(self._running))
            self._hand_out()
            if awaited := [*self._running, *self._crew.starting]:
                for reference in self._ray.wait(awaited, timeout=ASK_SECONDS)[0]:
                    self._take(reference) if reference in self._running else self._crew.greet(reference)
            else:
                time.sleep(ASK_SECONDS)
            self._report()
        return [self._results[job] for job in range(len(self._work.jobs))]

    def _hand_out(self) -> None:
        busy = {id(one.member) for one in self._running.values()}
        for member in [one for one in self._crew.members if id(one) not in busy]:
            if self._waiting:
                job = self._waiting.pop()
                reference = member.actor.do.remote(self._work.do, self._work.jobs[job])
                self._running[reference] = _Running(job, member)

    def _take(self, reference: Any) -> None:
        """What a job came to."""
        running = self._running.pop(reference)
        try:
            kind, value = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # before or after the job, such as a module that is missing
            kind, value = "broken", str(error)
        except self._ray.exceptions.RayError as error:
            self._again(running, error)
            return
        job, node = running.job, running.member.node
        if kind == "done":
            self._results[job] = value
        elif kind == "full":
            message = f"{value} (on {node}). Free some space there; the same command continues."
            if job in self._full or not self._crew.leave(running.member):
                raise Failed(message)
            log.warning("cluster=ray: %s (on %s): another node takes its job over", value, node)
            self._full.add(job)
            self._waiting.append(job)
        elif kind == "broken":
            raise Failed(f"cluster=ray: a job failed on {node}:\n{value}")
        else:
            raise (BadInput if kind == "bad input" else Failed)(value)

    def _again(self, running: _Running, error: Exception) -> None:
        """Let another worker do the job of one that has died. Failed where it is the job that kills workers."""
        node = running.member.node
        self._crew.lost(running.member)
        self._deaths[running.job].append(f"{node}: {reason(error)}")
        if len(self._deaths[running.job]) == TRIES:
            told = "\n".join(self._deaths[running.job])
            raise Failed(
                f"cluster=ray: a job has lost its worker {TRIES} times; perhaps the memory of a node is too small "
                f"for a shard; cluster.shard sets its size:\n{told}"
            )
        log.warning("cluster=ray: a worker on %s has died; another one takes its job over", node)
        self._waiting.append(running.job)

    def _report(self) -> None:
        """Tell the progress of the whole, with what running jobs that encode have done."""
        if self._progress is None:
            return
        if self._work.needs == "model" and time.monotonic() - self._asked >= ASK_SECONDS:
            self._asked = time.monotonic()
            self._ask()
        sizes = self._work.sizes
        part = sum(one.fraction * sizes[one.job] for one in self._running.values())
        done = sum(sizes[job] for job in self._results) + int(part)
        self._progress(done, sum(sizes), self._work.unit)

    def _ask(self) -> None:
        """Ask the workers how far they are; who does not answer at once is asked again later."""
        asked = {
            one.member.actor.fraction.options(concurrency_group=STATE).remote(): one for one in self._running.values()
        }
        if not asked:
            return
        for reference in self._ray.wait([*asked], num_returns=len(asked), timeout=ASK_SECONDS / 2)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):  # its death is noticed with its job
                asked[reference].fraction = self._ray.get(reference)
