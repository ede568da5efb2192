"""Compile the kernels of this installation once, also in the background, so that later commands need not wait.

python -m harness.storage.kernels compiles them, unless another process does so. With names of modules, it compiles
only their kernels, beside the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from harness import children
from harness.progress import silent, watch
from harness.storage.locks import locked
from retrievers import compiling
from retrievers.base import cores
from retrievers.compiling import all_compiled, code_folder, compile_kernels, is_lasting

NOT_LASTING = "no folder for compiled code can be written, so every command compiles its kernels again"
REMEDY = "Let NUMBA_CACHE_DIR name a folder that you can write."


def compile_now() -> bool:
    """Compile all kernels, and return whether any were missing. Only one command at a time compiles, on two cores."""
    folder = code_folder()
    waiting = locked(_lock(folder), "compiles the kernels") if folder else contextlib.nullcontext()
    with waiting, watch("kernels") as progress:
        if all_compiled():
            return False
        half = [name for name in compiling.KERNELS if name in compiling.BM25]
        beside = _start(*half) if half and cores() > 1 and is_lasting(folder) else None
        compile_kernels(progress, [name for name in compiling.KERNELS if not beside or name not in half])
        if beside and beside.wait():
            compile_kernels(progress, half)
        compiling.mark_compiled()
    return True


def _start(*modules: str, **options: Any) -> subprocess.Popen[Any] | None:
    """Start a process without output that compiles. If it fails, commands compile the kernels when they need them."""
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        return children.start(["-m", "harness.storage.kernels", *modules], cwd=code_folder(), **quiet, **options)
    except OSError:
        return None


def compile_aside() -> None:
    """Start a process that compiles missing kernels with low priority, unless such a process runs.

    The process may outlive this one.
    """
    folder = code_folder()
    if folder is None or not is_lasting(folder) or all_compiled() or not _is_free(folder):
        return
    if child := _start(process_group=0):  # in a separate group, it does not get the terminal's Ctrl-C
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
    folder, modules = code_folder(), sys.argv[1:]
    if modules:
        compile_kernels(silent, modules)
    elif folder and _is_free(folder):
        compile_now()


if __name__ == "__main__":
    _main()
