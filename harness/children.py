"""Start processes that import no code from the working folder, since its files may come from a stranger.

Python puts the working folder first on the import path of `python -c`, `python -m` and workers that libraries start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import BadInput

SAFE = {"PYTHONSAFEPATH": "1"}  # like -P, for all Python processes that inherit it


def protect() -> None:
    """Keep the working folder off the import path of all Python processes that this one starts.

    Raise BadInput if the folder has settings for Numba: they can run code.
    """
    os.environ.update(SAFE)
    refuse_settings(Path(".numba_config.yaml"), "Numba", "which compiled code it loads", "NUMBA_NUM_THREADS=4")


def refuse_settings(file: Path, library: str, decides: str, instead: str) -> None:
    """Raise BadInput if a file with settings for a library exists.

    The message needs two examples. decides: what such a file can decide. instead: an environment variable to use.
    """
    if file.exists():
        raise BadInput(
            f"{file}: {library} takes settings from this file, such as {decides}. Remove it, and give the settings you "
            f"want in environment variables, such as {instead}."
        )


def start(words: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
    """Start Python. words: its arguments. variables: added to the environment. options: of `subprocess.Popen`."""
    environment = {**os.environ, **SAFE, **(variables or {})}
    return subprocess.Popen([sys.executable, "-P", *words], env=environment, **options)  # noqa: S603
