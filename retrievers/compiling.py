"""Compile kernels with Numba, and keep the compiled code for later processes.

Whoever can write compiled code can have it run. Therefore, it never lies in `store.path`, which others may be able to
write: it lies beside this module, which is code too, or else in the user's cache folder.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import importlib
import importlib.metadata
import itertools
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
# The modules with kernels, in the order in which commands usually need them. The function `_warm` of each module
# compiles its kernels, by calling them on tiny arrays.
KERNELS = (
    "retrievers.lexical._word_kernels",
    "retrievers.lexical._bm25_kernels",
    "retrievers.lexical._bm25_search",
    "retrievers.lexical._bm25_bounded",
    "retrievers.dense._vector_kernels",
    "harness.corpus._near_duplicate_kernels",
    "harness.tasks._alignment_kernels",
)
# Kernels allocate no memory, so they need no runtime that counts references. They have no array expressions, which
# Numba would rewrite. Most choose with conditions, since min and max are functions. Thus they compile in less time.
FROM_PYTHON: dict[str, Any] = {"nogil": True, "no_rewrites": True, "no_cfunc_wrapper": True, "_nrt": False}
NOT_FROM_PYTHON = FROM_PYTHON | {"no_cpython_wrapper": True}
BM25 = KERNELS[1:4]  # compiling these takes about as long as compiling all others
READY = "ready"  # the file that exists once all kernels are compiled
UNUSED = 30 * 24 * 3600  # seconds after which code that no process has opened is removed


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, and store its code."""
    import numba

    config: Any = numba.config
    folder, before = code_folder(), config.CACHE_DIR
    config.CACHE_DIR = str(folder)  # read only while Numba wraps the function
    try:
        return numba.njit(cache=folder is not None, **FROM_PYTHON)(function)
    finally:
        config.CACHE_DIR = before


def helper(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function that only kernels call. Its code is part of theirs.

    options: of numba.njit. A large helper with one caller should have inline="always". Otherwise, it is optimised on
    its own, and once more with its caller, and the caller's caller.
    """
    import numba

    decorate = numba.njit(**(NOT_FROM_PYTHON | options))
    return decorate(function) if function else decorate


def all_compiled() -> bool:
    """Return whether all kernels are compiled for this processor, this Python and this Numba. Numba is not loaded."""
    folder = code_folder()
    return folder is not None and (folder / READY).is_file()


def compile_kernels(progress: Callable[[int, int, str], None], modules: Collection[str]) -> None:
    """Compile the kernels of these modules that are not compiled yet."""
    gc.disable()  # the objects of the compiler stay in use; looking for unused ones would take a tenth of the time
    try:
        for done, name in enumerate(modules):
            progress(done, len(modules), "modules")
            vars(importlib.import_module(name))["_warm"]()
    finally:
        gc.enable()


def mark_compiled() -> None:
    """Note that all kernels are compiled. Remove code of other versions that has long not been used."""
    if folder := code_folder():
        (folder / READY).touch()
        for other in folder.parent.glob(f"kernels-{'[0-9a-f]' * 16}"):
            with contextlib.suppress(OSError):  # another process may remove it, too
                if time.time() - other.stat().st_mtime > UNUSED:
                    shutil.rmtree(other)


@functools.cache
def code_folder() -> Path | None:
    """Return the folder of the compiled code, or None if no folder is writable; then a warning was logged.

    If the folder with the code is read-only, as in an image, its code is copied to a writable folder, since Numba reads
    only from folders that it can write. A folder that lasts only as long as this process is the last resort.
    """
    places = [place / f"kernels-{_key()}" for place in _places()]
    full = [place for place in places if (place / READY).is_file()]
    folder = next(filter(_is_writable, [*full, *places]), None)
    try:
        folder = folder or _temporary() / places[0].name
        if full and folder not in full:
            _copy(full[0], folder)
    except OSError as error:
        log.warning(
            "Compiled code cannot be stored (%s), so each process compiles it anew. Let NUMBA_CACHE_DIR name a folder "
            "that you can write.",
            error.strerror,
        )
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)  # it is in use
    return folder


def is_lasting(folder: Path | None) -> bool:
    """Return whether later processes find the code that is stored in this folder."""
    return folder is not None and folder.parent in _places()


def _places() -> Iterator[Path]:
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen).absolute()
        return
    yield Path(__file__).parent / "__pycache__"
    with contextlib.suppress(RuntimeError):  # the user has no home folder
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retrieval-harness"


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="retrieval-harness-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _copy(full: Path, folder: Path) -> None:
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copytree(full, unfinished, dirs_exist_ok=True)
    try:
        unfinished.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _key() -> str:
    """Return a hash of everything that the compiled code depends on. Numba checks most of it again."""
    sources = [(ROOT / f"{name.replace('.', '/')}.py").read_bytes() for name in KERNELS]
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite")]
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_CPU"))
    about = [str(ROOT), sys.version, platform.machine(), *_processor(), *versions, *settings]
    digest = hashlib.sha256("\n".join(about).encode())
    for source in sources:
        digest.update(hashlib.sha256(source).digest())
    return digest.hexdigest()[:16]


def _processor() -> list[str]:
    """Return what the operating system says about the first processor: its model and the instructions that it has."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))
    except OSError:  # not Linux
        return [platform.processor()]
    return [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
