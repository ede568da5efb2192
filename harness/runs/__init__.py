"""What is said about logged runs: ranking, board, comparison, proposals."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """This room, and the command `harness runs`: both are `harness.runs`."""

    def __call__(self, *words: Any) -> Any:
        return importlib.import_module("harness.api").runs(*words)


sys.modules[__name__].__class__ = _CallableRoom
