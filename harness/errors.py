"""Exceptions with messages for users, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """A file, config key or argument is wrong (exit code 2). The message gives the fault, the place and the remedy."""


class Failed(RuntimeError):
    """A run failed for a reason that the message explains (exit code 1, no traceback)."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` if `name` is close to one of `known`, else ""."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
