"""Compile the kernels of this installation once, also in the background, so that later commands need not wait.

python -m harness.storage.kernels compiles them, unless another process does so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from harness import children
from harness.progress import watch
from harness.storage.locks import locked
from retrievers.compiling import all_compiled, code_folder, compile_kernels, is_lasting

NOT_LASTING = "no folder for compiled code can be written, so every command compiles its kernels again"
REMEDY = "Let NUMBA_CACHE_DIR name a folder that you can write."


def compile_now() -> bool:
    """Compile all kernels, and return whether any were missing. Only one process at a time compiles."""
    folder = code_folder()
    waiting = locked(_lock(folder), "compiles the kernels") if folder else contextlib.nullcontext()
    with waiting, watch("kernels") as progress:
        if all_compiled():
            return False
        compile_kernels(progress)
    return True


def compile_aside() -> None:
    """Start a process that compiles missing kernels with low priority, unless such a process runs.

    The process has no output, and may outlive this one. If it fails, commands compile the kernels when they need them.
    """
    folder = code_folder()
    if folder is None or not is_lasting(folder) or all_compiled() or not _is_free(folder):
        return
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with contextlib.suppress(OSError):
        # In a process group of its own, it does not get the terminal's Ctrl-C.
        child = children.start(["-m", "harness.storage.kernels"], cwd=folder, process_group=0, **quiet)
        threading.Thread(target=child.wait, name="kernels", daemon=True).start()


def _lock(folder: Path) -> Path:
    return folder / "lock"


def _is_free(folder: Path) -> bool:
    from filelock import FileLock, Timeout

    try:
        with FileLock(_lock(folder)).acquire(timeout=0):
            return True
    except (Timeout, OSError):
        return False


def _main() -> None:
    if hasattr(os, "nice"):
        os.nice(10)
    folder = code_folder()
    if folder and _is_free(folder):
        compile_now()


if __name__ == "__main__":
    _main()
