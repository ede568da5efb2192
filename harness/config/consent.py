"""Which keys only the command line may set, since `harness.yaml` and the config of a logged run may be a stranger's.

The command line is what the user types, or the call in Python. A key needs it if it decides where data or secrets go,
what is overwritten or deleted, who reaches this machine, or which code runs. Keys that name where files are written
may be set elsewhere as long as they stay inside the working folder.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from harness.config.places import is_address

# Names that say where something is sent, or which secret: of any part of any key, those of plug-ins included.
SENDS = (
    "host", "*url", "*uri", "*address", "*endpoint", "*server", "*headers*", "*_env", "*_key", "*token", "*secret*",
    "*password*", "entity",
)  # fmt: skip
# Keys, with all that lies below them, that run code, open this machine to others, overwrite or delete.
ACTS = ("hydra", "plugins", "allow", "open", "output", "prune")
# Folders and files that are written.
PLACES = ("outputs", "store.path", "dataset.runtime.store", "tracking.path", "testset", "submission")
CHOICES = {"tracking": ("mlflow", "csv", "none")}  # of a group, those that send nothing to where the user has not said
ENVIRONMENT = {"tracking.uri": "MLFLOW_TRACKING_URI", "store.path": "HARNESS_CACHE"}  # which say the same


def sends(key: str) -> bool:
    """Whether a key decides which server gets data or a secret."""
    return any(fnmatchcase(part, name) for part in key.split(".") for name in SENDS)


def needs_command_line(key: str) -> bool:
    """Whether only the command line may set a key, whatever its value."""
    return sends(key) or any(key == one or key.startswith((f"{one}.", f"{one}/")) for one in ACTS)


def leads_out(key: str, value: object, folder: Path) -> bool:
    """Whether a key names a place to write to that is not inside a folder: elsewhere, or in a bucket."""
    if key not in PLACES or value is None:
        return False
    return is_address(value) or not (folder / str(value)).resolve().is_relative_to(folder.resolve())


def refusal(key: str, value: object, folder: Path) -> str:
    """Why a file in a folder may not set a key to a value, as a sentence without its end; empty if it may."""
    said = f"the command line{f' or in {ENVIRONMENT[key]}' if key in ENVIRONMENT else ''}"
    if needs_command_line(key):
        return f"{key} can only be given on {said}"
    if leads_out(key, value, folder):
        return f"{key}: {value} is outside this folder, and such a place can only be given on {said}"
    if value is not None and value not in CHOICES.get(key, (value,)):
        return f"{key}={value} sends data elsewhere, and can only be chosen on {said}"
    return ""
