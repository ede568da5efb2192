"""Where the shipped configs are."""

from __future__ import annotations

from pathlib import Path


def conf_folder() -> Path:
    """The shipped configs: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"
