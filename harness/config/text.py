"""Format counts, ids, numbers and commands for messages."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # all but tab and line feed
WHOLE = 1e15  # floats hold all smaller whole numbers exactly
_NUMBER = re.compile(r"[+-]?(?!0[0-9_]+$)[0-9_.]+([eE][+-]?[0-9_]+)?")
# `harness VERB` at the beginning of a line, after a backtick, or after a colon.
_COMMAND = re.compile(r"(^[ \t]*|`|: )harness (?=[a-z])", re.M)
_PLURALS = {"query": "queries", "entry": "entries", "reply": "replies"}


def plural(noun: str) -> str:
    *before, last = noun.split(" ")
    return " ".join([*before, _PLURALS.get(last) or f"{last}s"])


def counted(count: int, noun: str) -> str:
    """Return a count and its noun: "1 trial", "2 trials", "1,000 labelled queries"."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def short_id(run_id: str) -> str:
    """Return the first 8 digits of an id. Tables and sentences show these digits, and commands accept them."""
    return run_id[:8]


def shortest(value: Any) -> Any:
    """Return a whole number as an int, also inside a list. Return other values unchanged."""
    if isinstance(value, list):
        return [shortest(one) for one in value]
    whole = isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < WHOLE
    return int(value) if whole else value


def short_number(text: str) -> str:
    """Shorten a text that Hydra reads as a number. Return other texts, such as `007`, unchanged."""
    if not _NUMBER.fullmatch(text):
        return text
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return text if number in (math.inf, -math.inf) else str(shortest(number))
    return text


def runnable(text: str) -> str:
    """Replace `harness` in the commands of a text with the words that start it in the user's shell."""
    program = _program()
    return _COMMAND.sub(lambda found: f"{found[1]}{program} ", text) if program != "harness" else text


def _program() -> str:
    """Return "harness" if the PATH leads to this installation, else the path of the program."""
    installed, found = Path(sysconfig.get_path("scripts")) / "harness", shutil.which("harness")
    if not installed.is_file() or (found and installed.samefile(found)):
        return "harness"
    below = installed.is_relative_to(Path.cwd())
    return shlex.quote(str(installed.relative_to(Path.cwd()) if below else installed))


def printable(text: str) -> str:
    """Replace control characters, which XML forbids and by which a text could steer a terminal. Keep line breaks."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
