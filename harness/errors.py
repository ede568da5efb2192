"""The exceptions that reach a person, and near misses in their messages.

    ValueError
      BadInput        a file, a config key or an argument is wrong: exit code 2
    RuntimeError
      Failed          a run failed for a known reason: exit code 1
        Unreachable   a tracking server does not answer

Both packages import this module, and it imports the standard library alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """User input (a file, config key or argument) is wrong; commands end with exit code 2.

    The message says the fault, its place (file:line or config key) and the remedy.
    """


class Failed(RuntimeError):
    """A run failed for a reason that the message fully explains; commands end with exit code 1, no traceback."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` if `name` is close to one of `known`, else the empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
