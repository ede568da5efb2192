"""Decide which keys only the command line (or a call in Python) may set.

`harness.yaml` and the config of a logged run may come from a stranger. They may not set keys with the role `ACTS`, nor
keys whose names say where data or secrets go. Places that they name for output must be inside the working folder.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from operator import or_
from pathlib import Path

from harness.config import components
from harness.config.command_list import COMMANDS
from harness.config.places import is_address
from harness.config.schema import Role, keys

# If a part of a key (between dots) matches one of these, the key says where data or secrets go. Plug-ins' keys too.
SENDS = (
    "host", "*url", "*uri", "*address", "*endpoint", "*server", "*headers*", "*_env", "*_key", "*token", "*secret*",
    "*password*", "entity",
)  # fmt: skip
CHOICES = {"tracking": ("mlflow", "csv", "none")}  # group -> the choices that send data only where the user says
ENVIRONMENT = {"tracking.uri": "MLFLOW_TRACKING_URI", "store.path": "HARNESS_CACHE"}  # key -> environment variable


def sends(key: str) -> bool:
    """Return whether a key decides which server receives data or secrets."""
    return any(fnmatchcase(part, name) for part in key.split(".") for name in SENDS)


def needs_command_line(key: str) -> bool:
    """Return whether only the command line may set a key, whatever the value."""
    return sends(key) or key.partition("/")[0].partition(".")[0] == "hydra" or Role.ACTS in _roles(key)


def writes(key: str) -> bool:
    return Role.WRITES in _roles(key)


def _roles(key: str) -> Role:
    found = [known[key] for command in COMMANDS.values() if key in (known := keys(command.config))]
    if not found and "." in key:
        group, *_, argument = key.split(".")
        classes = components.classes_of(group) if group in components.GROUPS else []
        found = [known[argument] for known in map(components.argument_keys, classes) if argument in known]
    return functools.reduce(or_, (one.roles for one in found), Role(0))


def consent_refusal(key: str, value: object, folder: Path) -> str:
    """Return why a file in a folder may not set a key to a value, as the start of a sentence; "" if it may."""
    said = f"the command line{f' or in {ENVIRONMENT[key]}' if key in ENVIRONMENT else ''}"
    if needs_command_line(key):
        return f"{key} can only be given on {said}"
    inside = not is_address(value) and (folder / str(value)).resolve().is_relative_to(folder.resolve())
    if isinstance(value, str) and writes(key) and not inside:
        return f"{key}: {value!s:.200} is outside this folder; such a place can only be given on {said}"
    if value is not None and value not in CHOICES.get(key, (value,)):
        return f"{key}={value!s:.200} sends data elsewhere, and can only be chosen on {said}"
    return ""
