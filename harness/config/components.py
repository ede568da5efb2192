"""Find, check, build and identify the components that a config names.

In a config, a component is a mapping. Its `_target_` names a class of `retrievers.`, `harness.` or a plug-in, and the
class declares `recorded_as`. The other keys are the constructor's arguments. Arguments under `runtime:` (workers,
device, batch size) change no result, and are not part of the component's identity.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from operator import or_
from typing import Any

from harness.config import plugins
from harness.config.commands import RunConfig
from harness.config.manual import choice_files, read_manual
from harness.config.places import conf_folder, is_address
from harness.config.schema import Key, Node, Role, absolute_path, check_value, keys
from harness.errors import BadInput, did_you_mean

LEASH = ("retrievers.", "harness.")
RECORDED = re.compile(r"[a-z]+/[a-z0-9_]+")

# wrap(key, config, make) is called for each component inside another one, and returns the object to use.
Wrap = Callable[[str, Node, Callable[[], Any]], Any]
Change = Callable[[Key, Any], Any]

SHARED = ("tokenizer", "encoder", "index", "llm")  # groups that other components refer to, as ${tokenizer}
# Protocol in the annotation of an argument -> the group of components that the argument takes.
KINDS = {
    "Tokenizer": "tokenizer", "Encoder": "encoder", "VectorIndex": "index", "ChatModel": "llm",
    "PairMeasure": "measure",
}  # fmt: skip
# Groups of which a config has at most one component. The group `retriever` is missing: a config may have several.
GROUPS = ("dataset", "cluster", "gate", "tracking", "fusion", "rerank", "answer", "search", "task", *SHARED)


def target_class(node: Node, where: str) -> type:
    """Return the class that `_target_` names by its path or its recorded name. where: the config key.

    Raise BadInput unless it is a public class of `retrievers.`, `harness.` or an installed plug-in.
    """
    target = node["_target_"]
    if isinstance(target, str) and RECORDED.fullmatch(target):
        return _recorded_class(target, where)
    if isinstance(target, str) and (found := _shipped.get(target)):
        return found
    plugin = plugins.owner(target) if isinstance(target, str) and not target.startswith(LEASH) else None
    if not isinstance(target, str) or not (target.startswith(LEASH) or plugin) or "._" in target:
        raise BadInput(
            f"{where}._target_: {target!r} is not allowed. A config may only name public classes of "
            "`retrievers.`, `harness.` and installed plug-ins; for your own function, choose retriever=python."
        )
    cls = _class_at(target, where, plugin)
    if plugin is None:
        _shipped[target] = cls
    return cls


_shipped: dict[str, type] = {}  # path of a class of the harness -> this class, since configs name classes very often


def _class_at(target: str, where: str, plugin: plugins.Plugin | None) -> type:
    if plugin and plugin.problem:
        raise plugin.broken(plugin.problem)
    module_name, _, name = target.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if plugin:
            raise plugin.broken(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is None or not module_name.startswith(absent):
            raise  # a dependency of the module is missing, and the error names it
        raise BadInput(f"{where}._target_: there is no module {module_name!r}.") from None
    found = getattr(module, name, None)
    if not inspect.isclass(found):
        near = did_you_mean(name, [one for one in vars(module) if not one.startswith("_")])
        of = f" of the plug-in {plugin}" if plugin else ""
        raise BadInput(f"{where}._target_: {module_name}{of} has no class {name!r}.{near}")
    declared = vars(found).get("recorded_as")
    if plugin is None:
        if not found.__module__.startswith(LEASH) or not declared:
            raise BadInput(f"{where}._target_: {target} is not a component: it does not declare `recorded_as`.")
        return found
    if not isinstance(declared, str) or not RECORDED.fullmatch(declared):
        raise plugin.broken(f"{target} does not declare `recorded_as = 'group/name'`")
    if declared in _recorded_classes():
        raise plugin.broken(f"{target} declares `recorded_as = {declared!r}`, but the harness has a class of this name")
    return found


def recorded_name(cls: type) -> str:
    """Return the name that stands for a class in identities, trial keys and logged configs.

    A class declares the name as `recorded_as`, such as `retriever/bm25`, and keeps it when its module moves. Subclasses
    do not inherit it. A class without `recorded_as` is recorded under its path, and no config can name it.
    """
    name: str | None = vars(cls).get("recorded_as")
    return name or f"{cls.__module__}.{cls.__qualname__}"


def recorded(value: Any) -> Any:
    """Return a config for the log, with the recorded name of the class in every `_target_`."""
    if isinstance(value, list):
        return [recorded(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    named = {"_target_": recorded_name(target_class(value, "config"))} if "_target_" in value else {}
    return {key: recorded(inner) for key, inner in value.items()} | named


def arguments(node: Node) -> dict[str, Any]:
    """Return the constructor's arguments, including those under `runtime:`."""
    runtime = node.get("runtime") or {}
    return {k: v for k, v in node.items() if k not in ("_target_", "runtime")} | dict(runtime)


def build(node: Node, wrap: Wrap | None = None, where: str = "config") -> Any:
    """Build a component from its config. Build the components inside it first."""
    made = {}
    for key, value in arguments(node).items():
        if isinstance(value, Mapping) and "_target_" in value:

            def make(value: Mapping[str, Any] = value, key: str = key) -> Any:
                return build(value, wrap, f"{where}.{key}")

            made[key] = wrap(key, value, make) if wrap else make()
        else:
            made[key] = value
    cls = target_class(node, where)
    named: str | None = getattr(cls, "imports", None)
    if named and isinstance(place := made.get(named), str):
        plugins.require_allowed(place, f"{where}.{named}")
    try:
        return cls(**made)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def component_identity(node: Node) -> dict[str, Any]:
    """Return everything that decides a component's results: class, version, packages, arguments outside `runtime:`.

    Defaults are filled in, so it does not matter whether a config repeats a default. A class may replace its arguments
    with `identify(**arguments)`: for example, a model's path becomes the checksum of its weights.
    """
    cls: Any = target_class(node, "config")
    runtime = dict(node.get("runtime") or {})
    bound = _signature(cls).bind(**arguments(node))
    bound.apply_defaults()
    if hasattr(cls, "identify"):
        decides = cls.identify(**bound.arguments)
    else:
        decides = {k: v for k, v in bound.arguments.items() if k not in runtime}
    found = {
        "target": recorded_name(cls),
        "version": getattr(cls, "version", 1),
        "packages": {name: _installed(name, node["_target_"]) for name in getattr(cls, "packages", ())},
        "arguments": {
            k: component_identity(v) if isinstance(v, Mapping) and "_target_" in v else v
            for k, v in decides.items()
            if k != "cache"
        },
    }
    plugin = plugin_of(cls)
    return found | ({} if reusable(node) else {"cache": False}) | (plugin.identity if plugin else {})


def changed_values(document: Node, known: Mapping[str, Key], change: Change, prefix: str = "") -> dict[str, Any]:
    """Return the config with `change` applied to the value of every known key, also inside components."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping) and "_target_" in value:
            found[name] = changed_values(value, argument_keys(target_class(value, "config")), change)
            continue
        place = f"{prefix}{name}"
        if isinstance(value, Mapping):
            value = changed_values(value, known, change, "" if name == "runtime" else f"{place}.")
        found[name] = change(known[place], value) if place in known else value
    return found


def with_absolute_paths(document: Node) -> dict[str, Any]:
    """Return the config of a run with absolute paths, which mean the same in any folder."""

    def full(key: Key, value: Any) -> Any:
        stays = isinstance(value, Mapping) or is_address(value)
        return absolute_path(value) if key.places and not stays else value

    return changed_values(document, {name: key for name, key in keys(RunConfig).items() if key.reads}, full)


def reusable(node: Node) -> bool:
    """Return whether other processes may reuse a retriever's results: they may not if its `cache` is false."""
    return arguments(node).get("cache") is not False


def _recorded_class(name: str, where: str) -> type:
    known = _recorded_classes()
    of_plugins = (cls for cls in _plugin_classes(name.partition("/")[0]) if recorded_name(cls) == name)
    if (found := known.get(name) or next(of_plugins, None)) is None:
        near = did_you_mean(name, known)
        raise BadInput(
            f"{where}._target_: no component is recorded as {name!r}.{near} Known: {', '.join(known)}. If it belongs "
            "to a plug-in, install the plug-in. `harness doctor` lists the installed plug-ins."
        )
    return found


def plugin_of(cls: type) -> plugins.Plugin | None:
    """Return the plug-in of a component's class; None for a class of the harness."""
    return None if cls.__module__.startswith(LEASH) else plugins.owner(cls.__module__)


def _plugin_classes(group: str) -> Iterator[type]:
    for plugin in plugins.installed_plugins():
        for target in plugin_targets(plugin, group):
            with contextlib.suppress(BadInput):  # skips broken plug-ins
                yield target_class({"_target_": target}, "conf")


def plugin_targets(plugin: plugins.Plugin, group: str = "") -> list[str]:
    """Return the dotted paths of the plug-in's own classes that its configs name. group: "" for all groups."""
    if plugin.problem:
        return []
    files = [path for path in plugin.files if not group or path.parent.name == group]
    named = {target for path in files for target in read_manual(path).targets}
    return sorted(one for one in named if plugins.owner(one) == plugin)


@functools.cache
def _recorded_classes() -> dict[str, type]:
    return {recorded_name(cls): cls for cls in _shipped_classes("**")}


def _shipped_classes(group: str) -> list[type]:
    named = {target for path in conf_folder().glob(f"{group}/*.yaml") for target in read_manual(path).targets}
    return [target_class({"_target_": target}, "conf") for target in sorted(named) if target.startswith(LEASH)]


@functools.cache
def _installed(package: str, target: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise BadInput(
            f"{target} needs the package {package}: pip install 'retrieval-harness[dense]'. These work without it: "
            "retriever=bm25, hybrid_lexical or hybrid_light, and encoder=use_multilingual or lsa."
        ) from None


def check_component(node: Any, where: str) -> None:
    """Raise BadInput for keys that the constructor lacks, and for values that it refuses. where: GROUP or GROUP.KEY."""
    _check_arguments(node, where, where.partition(".")[0])
    build(node, where=where)


@functools.cache
def _signature(cls: type) -> inspect.Signature:
    return inspect.signature(cls)


def classes_of(group: str) -> list[type]:
    """Return the classes of a group's components: shipped ones, and those of plug-ins without problems."""
    shipped = [cls for cls in _shipped_classes(group) if recorded_name(cls).startswith(f"{group}/")]
    return [*shipped, *_plugin_classes(group)]


@functools.cache
def argument_keys(cls: type) -> dict[str, Key]:
    """Return argument -> the key that describes it. For an argument with inner keys, add ARGUMENT.KEY for each."""
    hints, found = typing.get_type_hints(cls.__init__), {}  # type: ignore[misc]
    for name, annotated in typing.get_type_hints(cls.__init__, include_extras=True).items():  # type: ignore[misc]
        notes = list(_notes(annotated))
        from retrievers.base import AtMost

        bounds = next((one for one in notes if isinstance(one, AtMost)), None)
        roles = functools.reduce(or_, (one for one in notes if isinstance(one, Role)), Role.LINES)
        found[name] = Key(hints[name], roles=roles)
        if bounds:
            found[name] = dataclasses.replace(found[name], least=-bounds.most, most=bounds.most, why=bounds.why)
        for group in (one for one in notes if isinstance(one, type)):
            found |= {f"{name}.{key}": one for key, one in keys(group).items()}
    return found


def _notes(hint: Any) -> Iterator[Any]:
    for one in typing.get_args(hint):
        yield from _notes(one)
    if typing.get_origin(hint) is typing.Annotated:
        yield from hint.__metadata__


def _kind_in(hint: Any) -> str | None:
    names = [getattr(one, "__name__", "") for one in (hint, *typing.get_args(hint))]
    return next((KINDS[name] for name in names if name in KINDS), None)


def _choices(kind: str) -> str:
    if files := sorted(choice_files(kind)):
        return f"Choose one with {kind}=NAME: {', '.join(files)}."
    return f"Choose one of {', '.join(name for name in _recorded_classes() if name.startswith(f'{kind}/'))}."


def _check_arguments(node: Any, where: str, kind: str) -> None:
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise BadInput(f"{where} must name a component (`_target_`) of the group {kind}. {_choices(kind)}")
    cls = target_class(node, where)
    if recorded_name(cls).partition("/")[0] != kind:
        raise BadInput(f"{where}._target_: {cls.__name__} is not of the group {kind}. {_choices(kind)}")
    if not isinstance(node.get("runtime") or {}, Mapping):
        raise BadInput(f"{where}.runtime must be a group of keys, not {node['runtime']!r:.60}.")
    parameters, known = _signature(cls).parameters, argument_keys(cls)
    given = arguments(node)
    for key, value in given.items():
        if key not in parameters:
            raise BadInput(
                f"{where}.{key} is unknown: {cls.__name__} takes {', '.join(parameters) or 'no arguments'}."
                f"{did_you_mean(str(key), parameters)}"
            )
        if (type(value), value) == (type(parameters[key].default), parameters[key].default):
            continue
        place = f"{where}.{key}" if key in node else f"{where}.runtime.{key}"
        if inner := _kind_in(known[key].hint):
            _check_arguments(value, place, inner)
        else:
            check_value(value, known[key], place)
    lacking = [n for n, p in parameters.items() if p.default is p.empty and n not in given]
    if lacking:
        raise BadInput(f"{where} lacks {', '.join(lacking)}, which {cls.__name__} needs.")
