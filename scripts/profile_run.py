"""Where the seconds of `harness run` go when an earlier run has cached everything.

    python scripts/profile_run.py                                                   # the sample, BM25
    python scripts/profile_run.py retriever=dense encoder=local encoder.path=FOLDER

Read the second call; the first fills the cache.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

began = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.cli import call  # noqa: E402
from harness.commands import run as command  # noqa: E402
from harness.tracking.mlflow_tracker import MlflowTracker  # noqa: E402

spent: dict[str, float] = {}


def timed(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[label] = spent.get(label, 0.0) + time.perf_counter() - start

    return wrapper


def connect(self: MlflowTracker, outputs: Path) -> None:
    timed("import mlflow", importlib.import_module)("mlflow")
    timed("import its SQL store", importlib.import_module)("mlflow.store.tracking.sqlalchemy_store")
    timed("open the store", plain_connect)(self, outputs)


def run(*arguments: Any) -> Any:
    spent["start, Hydra, checks"] = time.perf_counter() - began
    return plain_run(*arguments)


plain_connect, plain_run = MlflowTracker.connect, command.run
MlflowTracker.connect = connect  # type: ignore[method-assign]
MlflowTracker.begin = timed("log the run", MlflowTracker.begin)  # type: ignore[method-assign]
MlflowTracker.finish = timed("log the run", MlflowTracker.finish)  # type: ignore[method-assign]
command.steps.run = timed("ranking from the cache, scores, intervals", command.steps.run)
command.retrieval_run.write_page = timed("import matplotlib, write the page", command.retrieval_run.write_page)
command.run = run

if __name__ == "__main__":
    code = call("run", ["format=json", *sys.argv[1:]])
    spent["total"] = time.perf_counter() - began
    for label, seconds in spent.items():
        print(f"| {label} | {seconds:.2f} |", file=sys.stderr)
    heavy = [name for name in ("torch", "sentence_transformers", "faiss", "kiwipiepy", "numba") if name in sys.modules]
    print(f"imported: {', '.join(heavy) or 'no model and no index'}", file=sys.stderr)
    sys.exit(code)
