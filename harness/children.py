"""Find free ports. Start processes that import no code from the working folder, where a stranger may have put it.

Python puts the working folder first on the import path of `python -c`, `python -m` and workers that libraries start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import BadInput

T = TypeVar("T")
SAFE = {"PYTHONSAFEPATH": "1"}  # works like `python -P` in all Python processes that inherit this variable


def protect() -> None:
    """Keep the working folder off the import path of all Python processes that this one starts.

    Raise BadInput if the folder has settings for Numba: such settings can run code.
    """
    os.environ.update(SAFE)
    refuse_settings(Path(".numba_config.yaml"), "Numba", "which compiled code it loads", "NUMBA_NUM_THREADS=4")


def refuse_settings(file: Path, library: str, decides: str, instead: str) -> None:
    """Raise BadInput if a file with settings for a library exists.

    decides: an example of what the file can decide. instead: an example of an environment variable to set instead.
    """
    if file.exists():
        raise BadInput(
            f"{file}: {library} takes settings from this file, such as {decides}. Remove the file, and give the "
            f"settings that you want in environment variables, such as {instead}."
        )


def start(words: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
    """Start Python with arguments. variables: added to its environment. options: passed to `subprocess.Popen`."""
    environment = {**os.environ, **SAFE, **(variables or {})}
    return subprocess.Popen([sys.executable, "-P", *words], env=environment, **options)  # noqa: S603


def on_port(serve: Callable[[int], T], host: str, port: int) -> T:
    """Return serve(port). If this port is taken, return serve(0), which takes a free port.

    Raise BadInput if `host` is not an address of this machine.
    """
    try:
        return serve(port)
    except OSError:
        try:
            return serve(0)
        except OSError as error:
            raise BadInput(f"host={host}: {error.strerror}. Use an address of this machine.") from None
