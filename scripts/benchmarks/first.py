"""The first `harness run` on a machine against later ones."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import tempfile
from pathlib import Path

from measuring import Table, harness


def first(*words: str, pairs: int = 5) -> None:
    """Time a run where no kernel was ever compiled against a run where all are compiled, in alternation.

    WORDS are keys of `run` (default: those of the sample). Every run begins with an empty cache of results. Times are
    of whole processes; processor time is without that of the process that compiles kernels in the background.
    """
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    spent: dict[str, list[tuple[float, float]]] = {"first": [], "later": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _compile(folder / "later")
        for number in range(pairs):
            for kind in sorted(spent, reverse=number % 2 == 1):  # they take turns going first
                spent[kind].append(_run(folder, kind, words))
                if kind == "first":
                    _compile(folder / kind)  # waits for the background process, which would slow down the next run
                    shutil.rmtree(folder / kind)
    table = Table("time of a run", "first, s", "later, s", "median ratio", "min - max")
    for place, what in enumerate(("from start to end", "of a processor")):
        ones, others = ([row[place] for row in spent[kind]] for kind in ("first", "later"))
        ratios = sorted(one / other for one, other in zip(ones, others, strict=True))
        middle = map(statistics.median, (ones, others, ratios))
        table.row(what, *middle, f"{ratios[0]:.2f} - {ratios[-1]:.2f}")


def _run(folder: Path, kind: str, words: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds from start to end and the processor seconds. kind: name of the folder of compiled kernels."""
    os.environ["NUMBA_CACHE_DIR"] = str(folder / kind)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent, _ = harness("run", f"outputs={folder / 'outputs'}", *words, folder=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder / "outputs")
    return spent, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _compile(folder: Path) -> None:
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    harness("doctor", "warm", folder=folder.parent)
