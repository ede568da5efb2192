"""`harness doctor warm`: compile all kernels for this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from harness.config.check import Invocation
from harness.config.commands import WarmConfig
from harness.errors import Failed
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.storage.kernels import NOT_LASTING, REMEDY, compile_now
from retrievers.compiling import all_compiled, code_folder, is_lasting


@dataclass(frozen=True)
class Warmed:
    """folder: where the compiled code is. compiled: whether any kernel was missing. seconds: time of this command."""

    folder: str
    compiled: bool
    seconds: float


def warm(config: WarmConfig, invocation: Invocation) -> CommandAnswer:
    """Raise Failed if kernels are missing and no folder that lasts can be written."""
    folder = code_folder()
    if not all_compiled() and not is_lasting(folder):
        raise Failed(f"{NOT_LASTING}. {REMEDY}")
    began = time.perf_counter()
    found = Warmed(str(folder), compile_now(), round(time.perf_counter() - began, 3))
    said = f"Compiled all kernels in {found.seconds:.1f} s" if found.compiled else "All kernels were compiled already"
    return CommandAnswer(found, Report("", files=[f"{said}: {folder}"]))
