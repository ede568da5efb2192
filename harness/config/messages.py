"""Errors as messages for people: Hydra's and OmegaConf's in plain words, with a suggestion for a near miss."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from harness.config import canonical, check, components
from retrievers.base import BadInput, did_you_mean


def explain(error: BaseException, command: str, words: Sequence[str]) -> str | None:
    """The message for bad input or a bad config; None for a failure of the run."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, PermissionError | FileExistsError | NotADirectoryError | IsADirectoryError):
        return f"{error.filename}: {error.strerror}. Choose another folder: outputs=FOLDER, store.path=FOLDER."
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    return " ".join([_hydra_message(error, command, words), *getattr(error, "__notes__", ())])


def _hydra_message(error: BaseException, command: str, words: Sequence[str]) -> str:
    text = str(error).strip()
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += "\n" + str(error.__cause__)
    refused = re.search(r"BadInput raised while resolving interpolation: (.*)", text)
    if refused:
        return refused.group(1)
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        return f"{unknown.group(1)} is unknown here.{_near_key(unknown.group(1), command, words)}"
    choice = re.search(r"Could not find '([^']+)'\n\nAvailable options in '([^']+)':\n((?:\t.*\n?)+)", text)
    if choice:
        group, known = choice.group(2), choice.group(3).split()
        given = choice.group(1).rpartition("/")[2]
        return f"{group}={given}: there is no such choice.{did_you_mean(given, known)} Known: {', '.join(known)}."
    missing_group = re.search(r"Could not override '([^']+)'|Could not find '([^']+)'", text)
    hint = "" if missing_group else f"\nSee `harness {command} --help`."
    return re.sub(r"\n?(To append to your config use.*|Set the environment variable.*)", "", text) + hint


def _near_key(key: str, command: str, words: Sequence[str]) -> str:
    """A suggestion for an unknown key: the same last name elsewhere, else a near miss."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    # The first of several values of a multirun.
    choices = [word.partition(",")[0] for word in words if (components.conf_folder() / word.partition("=")[0]).is_dir()]
    try:
        with initialize_config_dir(str(components.conf_folder()), version_base="1.3"):
            composed: Any = OmegaConf.to_container(compose(check.primary(command), choices), resolve=False)
    except HydraException:  # a choice of another folder of configs
        return ""
    known = list(canonical.flatten(composed)) + list(composed)
    last = key.lstrip("+~").rpartition(".")[2]
    same = [name for name in known if name.rpartition(".")[2] == last]
    if same:
        return f" Did you mean '{same[0]}'?"
    return did_you_mean(key, known) or f" Known: {', '.join(composed)}."
