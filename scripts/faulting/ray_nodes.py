"""A Ray cluster whose nodes all run on this machine, for tests and scripts.

With HEALTH, Ray declares a silent node dead after about four seconds instead of half a minute.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

OBJECTS = 100 * 2**20  # bytes of shared memory of a node
HEALTH = {"health_check_period_ms": 1000, "health_check_timeout_ms": 1000, "health_check_failure_threshold": 3,
          "health_check_initial_delay_ms": 1000}  # fmt: skip


def family(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text("utf-8").split():
                found += family(int(child))
    return found


class Nodes:
    """A running cluster of `count` nodes, beside the head, which does no work.

    Each node has one core, and pretends to have a GPU.
    """

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        from harness.cluster.ray_connection import ray_module

        ray_module()
        self._options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECTS}
        self.count = count
        head = {"num_cpus": 0, "_system_config": HEALTH, **self._options}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes = [self._started() for _ in range(count)]
        self._cluster.wait_for_nodes()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def _started(self) -> Any:
        return self._cluster.add_node(wait=False, num_cpus=1, num_gpus=1, **self._options)

    def pids(self, number: int) -> list[int]:
        started = [one.process for kind in self._nodes[number].all_processes.values() for one in kind]
        return [pid for one in started if one.poll() is None for pid in family(one.pid)]

    def workers(self, number: int) -> list[int]:
        """Return the processes of a node that do jobs."""
        named = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.pids(number)}
        return [pid for pid, name in named.items() if name.startswith((b"ray::do_job", b"ray::IDLE"))]

    def repair(self) -> None:
        for number in range(self.count):
            if not self.pids(number):
                self._cluster.remove_node(self._nodes[number], allow_graceful=False)
                self._nodes[number] = self._started()
        self._cluster.wait_for_nodes()

    def kill(self, number: int) -> None:
        for pid in self.pids(number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        from harness.cluster.ray_connection import disconnect

        disconnect()
        self._cluster.shutdown()
