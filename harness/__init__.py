"""The harness in layers. A layer imports only from itself and from layers before it:

errors < interruption < progress < children < cluster < config < storage < data < statistics < measures < llm < gates < fusion < experiment < corpus < tasks < reports < tracking < recording < testset < analysis < sweeps < commands < api < cli

`retrievers/` lies below all layers. `import harness` imports no layer: each name in `__all__` is looked up when it
is used. docs/python.md describes these names.
"""  # noqa: E501 (the order is one line, which a test reads)

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.analysis.guard.checking import CheckResult
    from harness.analysis.single_run import Result
    from harness.api import (
        advise,
        board,
        check,
        compare,
        doctor,
        doctor_cache,
        doctor_sync,
        doctor_warm,
        evaluate,
        export,
        export_history,
        export_record,
        init,
        load,
        load_dataset,
        power,
        prepare,
        reproduce,
        run,
        runs,
        score,
        search,
        sweep,
        testset_audit,
        testset_draft,
        testset_freeze,
        testset_judge,
        testset_pool,
        testset_review,
        ui,
        watch,
    )
    from harness.commands.compare import Compared
    from harness.commands.search import Hits
    from harness.data.dataset import Dataset
    from harness.errors import BadInput, Failed
    from harness.reports.evaluation import Evaluation
    from harness.reports.result import CommandResult

__all__ = [
    "BadInput", "CheckResult", "CommandResult", "Compared", "Dataset", "Evaluation", "Failed", "Hits", "Result",
    "advise", "board", "check", "compare", "doctor", "doctor_cache", "doctor_sync", "doctor_warm", "evaluate",
    "export", "export_history", "export_record", "init", "load", "load_dataset", "power", "prepare", "reproduce", "run",
    "runs", "score", "search", "sweep", "testset_audit", "testset_draft", "testset_freeze", "testset_judge",
    "testset_pool", "testset_review", "ui", "watch",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers do not see the function, so they report unknown names

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'harness' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module("harness.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
