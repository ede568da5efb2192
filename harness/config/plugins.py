"""Find plug-ins of other distributions, and the user's modules that may be imported.

A plug-in is an entry point of the group `retrieval_harness.components` that names a package with a folder `conf/`. The
yaml files in this folder are choices of config groups, and classes of the package are components. Finding a plug-in
does not import it. `harness doctor` says what is wrong with a broken plug-in, and so does any command that uses it.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.config import yaml_files
from harness.config.places import conf_folder
from harness.errors import BadInput, did_you_mean

GROUP = "retrieval_harness.components"
# The groups to which plug-ins may add choices.
GROUPS = ("dataset", "retriever", "tokenizer", "encoder", "index", "fusion", "rerank", "gate")
PROVIDER = "plug-in"  # Hydra's name for the config folders of plug-ins
ALLOW = "plugins.allow"  # the key that lists the modules whose functions a config may name
OURS = ("harness", "retrievers")

_allowed: ContextVar[tuple[str, ...]] = ContextVar("allowed", default=())


@dataclass(frozen=True)
class Plugin:
    """An installed plug-in. name: its entry point. folder: its configs. problem: why it cannot be used, or ""."""

    name: str
    package: str
    distribution: str
    version: str
    folder: Path = Path()
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.distribution} {self.version})"

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.yaml")) if self.folder != Path() else []

    @property
    def choices(self) -> list[tuple[str, str]]:
        """Return (group, choice) for each file of the folder."""
        return [(path.relative_to(self.folder).parent.as_posix(), path.stem) for path in self.files]

    @property
    def identity(self) -> dict[str, Any]:
        return {"distribution": {"name": self.distribution, "version": self.version}}

    def broken(self, problem: str) -> BadInput:
        remedy = f"Fix it, or remove it: pip uninstall {self.distribution}"
        return BadInput(f"The plug-in {self} is broken: {problem}. {remedy}")


@functools.cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Return all installed plug-ins, including broken ones."""
    entries = importlib.metadata.entry_points(group=GROUP)
    found = [_described(entry) for entry in sorted(entries, key=lambda entry: (entry.name, entry.value))]
    return tuple(_without_clash(plugin, [one for one in found if one is not plugin]) for plugin in found)


def folders() -> list[Path]:
    return [plugin.folder for plugin in installed_plugins() if not plugin.problem]


def owner(target: str) -> Plugin | None:
    """Return the plug-in whose package contains a class or module. target: the dotted path of either."""
    return next((plugin for plugin in installed_plugins() if f"{target}.".startswith(f"{plugin.package}.")), None)


def _described(entry: importlib.metadata.EntryPoint) -> Plugin:
    about = entry.dist
    plugin = Plugin(entry.name, entry.module, about.name if about else "?", about.version if about else "?")
    if entry.attr:
        return replace(plugin, problem=f"its entry point names {entry.value!r}, but must name a package")
    if entry.module.partition(".")[0] in OURS:
        return replace(plugin, problem=f"the package {entry.module} is the harness's own")
    from retrievers.external.function import spec_of  # imports numpy, which help does not need

    spec = spec_of(entry.module)
    if spec is None or not spec.submodule_search_locations:
        return replace(plugin, problem=f"there is no package {entry.module!r}")
    folder = Path(next(iter(spec.submodule_search_locations))) / "conf"
    if not folder.is_dir():
        return replace(plugin, problem=f"{folder}: there is no such folder of configs")
    plugin = replace(plugin, folder=folder)
    return replace(plugin, problem=next(filter(None, map(_problem, plugin.files, plugin.choices)), ""))


def _problem(path: Path, choice: tuple[str, str]) -> str:
    if choice[0] not in GROUPS:
        return f"{path}: a plug-in may bring only choices of {', '.join(GROUPS)}{did_you_mean(choice[0], GROUPS)}"
    try:
        content = yaml_files.load_yaml(path)
    except BadInput as error:
        return str(error).removesuffix(".")
    return "" if isinstance(content, dict) else f"{path} is not a config: it holds no keys"


def _without_clash(plugin: Plugin, others: Sequence[Plugin]) -> Plugin:
    if plugin.problem:
        return plugin
    if any(one.name == plugin.name for one in others):
        return replace(plugin, problem=f"another plug-in is also called {plugin.name}")
    for group, choice in plugin.choices:
        if (conf_folder() / group / f"{choice}.yaml").exists():
            return replace(plugin, problem=f"{group}={choice} is shipped with the harness. Give it another name")
        if other := next((one for one in others if (group, choice) in one.choices), None):
            return replace(plugin, problem=f"the plug-in {other} also brings {group}={choice}")
    return plugin


def permit(modules: Iterable[str]) -> None:
    """Let configs in this thread name functions of these modules, and of no others."""
    from retrievers.external.function import open_here

    _allowed.set(named := tuple(modules))
    open_here(named)


def permitted() -> tuple[str, ...]:
    return _allowed.get()


def allowed_by(overrides: Sequence[str]) -> Iterator[str]:
    """Yield the modules that a command line allows. Skip malformed values, which the checks refuse later."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for word in overrides:
        if word.lstrip("+").partition("=")[0] != ALLOW:
            continue
        try:
            value = OverridesParser.create().parse_override(word).value()
        except HydraException:
            continue
        yield from (str(one) for one in value) if isinstance(value, list) else ()


def check_allowed(modules: Any) -> None:
    """Raise BadInput if a recipe or a file sets `plugins.allow`."""
    if isinstance(modules, list) and not {*map(str, modules)} <= {*permitted()}:
        raise BadInput(f"{ALLOW} can only be given on the command line, not in a recipe or harness.yaml.")


def require_allowed(place: str, where: str) -> None:
    """Raise BadInput unless the module of `module:name`, or a package around it, is allowed."""
    module = place.partition(":")[0]
    if not any(f"{module}.".startswith(f"{one}.") for one in permitted()):
        raise BadInput(
            f"{where}={place}: the module {module} is not allowed. Configs may run only modules that the command line "
            f"names: add {ALLOW}=[{module}] if you trust this module."
        )
