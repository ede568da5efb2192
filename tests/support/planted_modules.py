"""Modules of a stranger: a folder has one for every name that can be imported, and each says that it was executed."""

import importlib.metadata
import sys
from pathlib import Path

EVIL = "import os\nwith open({log!r}, 'a') as log:\n    print(__name__, file=log)\nraise SystemExit(66)\n"
IN_THE_WAY = {"sitecustomize", "usercustomize"}  # of a site, not of a folder


class Planted:
    """The modules in a folder. names: only these; None: all that are installed and all of Python's own."""

    def __init__(self, folder: Path, names=None) -> None:
        self._log = folder / "executed.log"
        known = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "harness", "retrievers"}
        for name in names or sorted(one for one in known - IN_THE_WAY if one.isidentifier()):
            (folder / f"{name}.py").write_text(EVIL.format(log=str(self._log)))

    @property
    def executed(self) -> list[str]:
        return self._log.read_text().split() if self._log.exists() else []
