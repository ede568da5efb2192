"""Errors as messages for people: Hydra's and OmegaConf's in plain words, with a suggestion for a near miss."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from harness.config import plugins
from harness.config.check import OTHERS
from harness.config.hints import unknown_key
from harness.errors import BadInput, Failed, did_you_mean

UNUSABLE = (errno.ENAMETOOLONG, errno.ELOOP)  # as a path
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LAUNCHERS = {"ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}  # of extras
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def explain(error: BaseException, command: str, words: Sequence[str]) -> str | None:
    """The message for bad input or a bad config; None for a failure of the run."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
        return f"{error.filename}: {error.strerror}. Choose another folder: {OTHERS}."
    if isinstance(error, OSError) and error.errno in UNUSABLE:
        return f"{error.filename!s:.200}: {error.strerror}. Choose another path."
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    return " ".join([_hydra_message(error, command, words), *getattr(error, "__notes__", ())])


def failure(error: BaseException) -> str | None:
    """The message for a failed run whose reason is known, such as a full disk; None for others."""
    if isinstance(error, Failed):
        return str(error)
    if not isinstance(error, OSError) or error.errno not in (*FULL, *REFUSED):
        return None
    path = error.filename2 or error.filename or "Standard output or a temporary file"
    full = "Free some space (`harness doctor cache` lists and removes entries)"
    remedy = full if error.errno in FULL else "Allow this user to write there"
    return f"{path}: {error.strerror}. {remedy}, or choose another folder: {OTHERS}."


def _hydra_message(error: BaseException, command: str, words: Sequence[str]) -> str:
    text = str(error).strip()
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += "\n" + str(error.__cause__)
    refused = re.search(r"BadInput raised while resolving interpolation: (.*)", text)
    if refused:
        return refused.group(1)
    if unknown := re.search(r"Could not override '([^']+)'", text):
        inner = re.search(rf"full_key: ({re.escape(unknown.group(1))}\.\S+)", text)  # of a value that is a group
        return unknown_key((inner or unknown).group(1), command, words)
    choice = re.search(r"Could not find '([^']+)'\n\nAvailable options in '([^']+)':\n((?:\t.*\n?)+)", text)
    if choice:
        group, known = choice.group(2), choice.group(3).split()
        given = choice.group(1).rpartition("/")[2]
        if plugin := plugins.broken_with(group, given):
            return str(plugin.broken(plugin.problem))
        if extra := LAUNCHERS.get(given) if group == "hydra/launcher" else None:
            return f"{group}={given} is not installed. Install it: pip install -c constraints.txt -e '.[{extra}]'"
        return f"{group}={given}: there is no such choice.{did_you_mean(given, known)} Known: {', '.join(known)}."
    missing_group = re.search(r"Could not override '([^']+)'|Could not find '([^']+)'", text)
    hint = "" if missing_group else f"\nSee `harness {command} --help`."
    return re.sub(r"\n?(To append to your config use.*|Set the environment variable.*)", "", text) + hint
