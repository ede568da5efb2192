"""The workers of this process on the nodes of a Ray cluster: how many, where, and whether their nodes will do."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from harness import children
from harness.cluster import ray_worker
from harness.cluster.ray_connection import Connection, ray_module
from harness.cluster.ray_worker import node_versions
from harness.errors import BadInput, Failed

log = logging.getLogger(__name__)

STATE = "state"  # Ray's name of the threads in which workers say how far they are
LOOK_SECONDS = 2.0  # between two looks at the nodes of the cluster
WAIT_SECONDS = 600.0  # for a core that others use
ANSWER_SECONDS = 60.0  # for the first answer of workers that are examined
STARTS = 3  # failed starts of workers on a node, after which it is left alone
THREADS = ("HARNESS_CORES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
           "RAYON_NUM_THREADS")  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A living node. cores, gpus: those that Ray may use."""

    number: str
    name: str
    cores: int
    gpus: float

    def __str__(self) -> str:
        return f"{self.name}, node {self.number[:8]}"


@dataclass(frozen=True)
class Shape:
    """What a worker gets. cores: None: all of its node, or of the node's share where it has GPUs."""

    cores: int | None
    gpus: float = 0.0

    def on(self, node: Node) -> tuple[int, int]:
        """How many workers fit on a node, and the cores of each."""
        if self.gpus:
            count = int(node.gpus / self.gpus)
            return count, max(1, node.cores // max(count, 1)) if self.cores is None else self.cores
        cores = self.cores or node.cores
        return (node.cores // cores if cores else 0), cores


@dataclass(eq=False)
class Member:
    """A worker. Its first answer, to `hello`, is awaited while it starts. probe: the file that it looks for."""

    actor: Any
    node: Node
    began: float
    probe: str | None


class Crew:
    """Workers of one shape. It grows and shrinks with the cluster.

    store: the folder that all nodes share, or None.
    probe: a file in it, which every node must see while it is there.
    """

    def __init__(self, connection: Connection, shape: Shape, store: str | None) -> None:
        self.shape, self.store, self.connection = shape, store, connection
        self.probe: str | None = None
        self._ray = ray_module()
        self._versions = node_versions()
        self.starting: dict[Any, Member] = {}  # by the reference to its first answer
        self.members: list[Member] = []
        self.nodes: list[Node] = []
        self._refused: set[str] = set()  # numbers of nodes that will not do
        self._failed_starts: Counter[str] = Counter()
        self._looked, self._unanswered, self._greeted = 0.0, 0, False

    def refresh(self, wanted: int) -> None:
        """Start workers up to a number, where there is room. Failed where no node is left, or none gets free."""
        if (now := time.monotonic()) - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._require_head()
        self.nodes = [
            one for one in living_nodes(self._ray) if one.number not in self._refused and self.shape.on(one)[0]
        ]
        if not self.nodes:
            raise Failed("cluster=ray: no node is left that can work. The same command continues on new ones.")
        for member in [one for one in self.starting.values() if now - one.began > WAIT_SECONDS]:
            if not self.members:
                raise Failed(
                    f"cluster=ray: no worker could start within {WAIT_SECONDS / 60:.0f} minutes on {member.node}: "
                    "others use its cores (`ray status`)."
                )
        self._start(wanted)

    def _require_head(self) -> None:
        """Failed before Ray, which has lost the head of its cluster, ends this process without a word."""
        self._unanswered = 0 if self.connection.alive() else self._unanswered + 1
        if self._unanswered > 1:
            raise Failed(
                f"cluster=ray: the head of the cluster at {self.connection.head} no longer answers. What is finished "
                "lies in the cache: the same command continues when the cluster is back."
            )

    def _start(self, wanted: int) -> None:
        """One worker a node in turn, so that few workers are spread."""
        count = Counter(one.node.number for one in (*self.members, *self.starting.values()))
        while count.total() < wanted:
            room = [node for node in self.nodes if count[node.number] < self.shape.on(node)[0]]
            if not room:
                return
            node = min(room, key=lambda one: count[one.number])
            self._start_on(node)
            count[node.number] += 1

    def _start_on(self, node: Node) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        cores = self.shape.on(node)[1]
        actor = _actor_class(self._ray).options(
            num_cpus=cores,
            num_gpus=self.shape.gpus,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.number, soft=False),
            runtime_env={"env_vars": {**dict.fromkeys(THREADS, str(cores)), **children.SAFE}},
        )
        self._ask(Member(actor.remote(), node, time.monotonic(), self.probe))

    def _ask(self, member: Member) -> None:
        member.probe = self.probe
        self.starting[member.actor.hello.remote(self.probe)] = member

    def assemble(self, count: int) -> None:
        """Wait until a number of workers have answered. Failed where one does not within a minute."""
        began = time.monotonic()
        while len(self.members) < count:
            self.refresh(count)
            if time.monotonic() - began > ANSWER_SECONDS:
                silent = ", ".join(str(one.node) for one in self.starting.values())
                raise Failed(f"cluster=ray: no worker has answered within {ANSWER_SECONDS:.0f} s on {silent}.")
            for reference in self._ray.wait([*self.starting], timeout=LOOK_SECONDS)[0] if self.starting else ():
                self.greet(reference)

    def greet(self, reference: Any) -> None:
        """Take up a worker that has answered. BadInput where the first nodes have not what they need; later ones are
        left alone."""
        member = self.starting.pop(reference)
        try:
            about = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._not_started(member, error)
            return
        if not about["sees"] and member.probe != self.probe:  # the work that it was started for is over, its file gone
            self._ask(member)
            return
        if problem := self._problem(about, member.node):
            if not self._greeted:
                raise BadInput(problem)
            log.warning("%s It is not used.", problem)
            self._refused.add(member.node.number)
            self.dismiss([member])
            return
        self.members.append(member)
        self._greeted = self._greeted or not self.starting

    def _not_started(self, member: Member, error: Exception) -> None:
        alive = {node.number for node in living_nodes(self._ray)}
        if member.node.number not in alive:
            return
        self._failed_starts[member.node.number] += 1
        if self._failed_starts[member.node.number] >= STARTS:
            raise Failed(f"cluster=ray: no worker starts on {member.node}: {reason(error)}")

    def _problem(self, about: Any, node: Node) -> str:
        """What keeps a node from working with the others; nothing if it will do."""
        for name, ours in self._versions.items():
            theirs = about["versions"].get(name, ray_worker.ABSENT)
            if ours not in (theirs, ray_worker.ABSENT):
                return (
                    f"cluster=ray: {name} differs: {theirs} on {node}, {ours} here. Results would differ with the "
                    "node: install the same versions on all (pip install -c constraints.txt)."
                )
        if not about["sees"]:
            return (
                f"cluster=ray: store.path={self.store} is not shared with {node}. Choose a folder that all nodes see "
                "under this path, or an object store."
            )
        return ""

    def lost(self, member: Member) -> None:
        """A worker has died, or does not answer: it will not be asked again."""
        if member in self.members:
            self.members.remove(member)
        self.dismiss([member])
        self._looked = 0.0

    def leave(self, member: Member) -> bool:
        """Use a worker no more, nor start others on its node; whether there are other nodes."""
        self._refused.add(member.node.number)
        self.nodes = [one for one in self.nodes if one.number != member.node.number]
        self.lost(member)
        return bool(self.nodes)

    def dismiss(self, members: list[Member] | None = None) -> None:
        """End workers, whatever they do; None: all."""
        ending = members if members is not None else [*self.members, *self.starting.values()]
        for member in ending:
            try:
                self._ray.kill(member.actor)
            except Exception as error:  # the cluster is gone, and the worker with it
                log.debug("a worker could not be ended: %s", error)
        if members is None:
            self.members, self.starting = [], {}


def living_nodes(ray: Any) -> list[Node]:
    """The living nodes of the cluster."""
    return [
        Node(
            number=one["NodeID"],
            name=f"{one['NodeManagerHostname']} ({one['NodeManagerAddress']})",
            cores=int(one["Resources"].get("CPU", 0)),
            gpus=one["Resources"].get("GPU", 0.0),
        )
        for one in ray.nodes()
        if one["Alive"]
    ]


def reason(error: BaseException) -> str:
    """Why Ray says that something failed, on one line."""
    return " ".join(str(error).split()).rpartition("The actor is dead because ")[2][:400]


def _actor_class(ray: Any) -> Any:
    """`ray_worker.Worker` for Ray, which sends its code instead of its name."""
    ray.cloudpickle.register_pickle_by_value(ray_worker)
    return ray.remote(concurrency_groups={STATE: 1})(ray_worker.Worker)
