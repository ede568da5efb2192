"""How the commands in messages are typed where an environment need not be activated."""

from __future__ import annotations

import re
import shlex
import shutil
import sysconfig
from pathlib import Path

# `harness VERB` at the beginning of a line, in backticks, and after a colon.
_COMMAND = re.compile(r"(^[ \t]*|`|: )harness (?=[a-z])", re.M)


def runnable(text: str) -> str:
    """Return the text with the commands in it as they run in the user's shell."""
    program = _program()
    return _COMMAND.sub(lambda found: f"{found[1]}{program} ", text) if program != "harness" else text


def is_command(line: str) -> bool:
    """Return whether a line is a command alone."""
    return line.lstrip().startswith("harness ")


def _program() -> str:
    """Return what starts this installation in the working folder: its name if the PATH leads to it, else its path."""
    installed, found = Path(sysconfig.get_path("scripts")) / "harness", shutil.which("harness")
    if not installed.is_file() or (found and installed.samefile(found)):
        return "harness"
    below = installed.is_relative_to(Path.cwd())
    return shlex.quote(str(installed.relative_to(Path.cwd()) if below else installed))
