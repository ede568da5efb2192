"""Modules that are found by their names: their source without importing them, and their objects."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from retrievers.base import BadInput, did_you_mean

_imported: dict[str, str] = {}  # module -> sha256 of its source when it was imported here


class _WorkingFolder(MetaPathFinder):
    """Finds the modules of the working folder that are opened, and nothing else there: neither other modules nor the
    entry points of packages that lie in it, as the import path would. All that is installed comes first.
    """

    def __init__(self) -> None:
        self.opened: set[str] = set()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return _here(fullname) if path is None and fullname in self.opened else None


_working_folder = _WorkingFolder()


def open_here(modules: Iterable[str]) -> None:
    """Let modules, with the packages around them, be imported from the working folder in this process."""
    _working_folder.opened |= {module.partition(".")[0] for module in modules}
    if _working_folder not in sys.meta_path:
        sys.meta_path.append(_working_folder)


def _here(name: str) -> ModuleSpec | None:
    return PathFinder.find_spec(name, [str(Path.cwd())])


def spec_of(module: str) -> ModuleSpec | None:
    """Where a module is, installed or in the working folder; None if there is none. Nothing is imported, not even the
    packages around it."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ValueError, ImportError):
        return None
    spec = spec or _here(top)
    for name in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    return spec


def source_of(module: str, where: str) -> Path:
    """The file of a module. BadInput if there is none. where: what names the module, for errors."""
    spec = spec_of(module)
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        near = did_you_mean(module, [path.stem for path in Path().glob("*.py")])
        raise BadInput(
            f"{where}: there is no module {module!r}, neither installed nor in {Path.cwd()}.{near} "
            "Run the command in the folder that has it."
        )
    return Path(spec.origin)


def sha256_of(module: str, where: str) -> str:
    """sha256 of a module's file. Errors as from `source_of`."""
    return hashlib.sha256(source_of(module, where).read_bytes()).hexdigest()


def named(place: str, where: str) -> Any:
    """The object that `module:name` names, of the module as its file is now: one that has changed is imported again.

    No file of the working folder can stand in for an installed module. BadInput if the module cannot be imported or has
    no such object. where: what names it, for errors.
    """
    module_name, _, name = place.partition(":")
    now = sha256_of(module_name, where)
    open_here([module_name])
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(module_name)
        if _imported.get(module_name, now) != now:
            module = importlib.reload(module)
    except Exception as error:
        lacks = error.name if isinstance(error, ModuleNotFoundError) else None
        hint = f". Allow {lacks}, too: plugins.allow=[{module_name},{lacks}]" if lacks and _here(lacks) else ""
        raise BadInput(f"{where}: {module_name} cannot be imported: {type(error).__name__}: {error}{hint}") from error
    _imported[module_name] = now
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(found) if not one.startswith("_")] if hasattr(found, "__dict__") else []
            raise BadInput(f"{where}: {module_name} has no {name!r}.{did_you_mean(part, known)}")
        found = getattr(found, part)
    return found
