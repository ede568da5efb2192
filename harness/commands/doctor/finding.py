"""What a check of `harness doctor` has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of a check. about: what was checked. said: what was found."""

    about: str
    state: Literal["ok", "warning", "error"]
    said: str
    remedy: str = ""
