"""Validation of a composed config with messages for people, and `build()`, which makes its parts.

A part is a mapping with a `_target_`: a class of `retrievers.` or `harness.`, nothing else. Its other
keys are the constructor's arguments; those under `runtime:` (workers, device, batch size) are arguments
too, but change no result and so are no part of its identity.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.keys import KEYS, Key, check_value
from retrievers.base import BadInput, did_you_mean

LEASH = ("retrievers.", "harness.")

# Called for each part inside a part as wrap(key, config, make); returns what to use in its place.
Wrap = Callable[[str, Mapping[str, Any], Callable[[], Any]], Any]


@dataclass(frozen=True)
class Asked:
    """What was asked on the command line, beside the config that came of it.

    choices: config group -> the choice, such as retriever -> bm25. overrides: the words key=value.
    """

    choices: Mapping[str, str]
    overrides: tuple[str, ...]


SHARED = ("tokenizer", "encoder", "index")  # parts that retrievers take up by interpolation
PARTS = ("dataset", "gate", "tracking", "fusion", "rerank", "search", "task", *SHARED)  # one each, beside `retriever`


def primary(verb: str) -> str:
    """The name of a verb's primary config; Hydra takes no bare words, so that two words are joined."""
    return verb.replace(" ", "_")


def folder() -> Path:
    """The shipped configs: inside the package where it was installed, beside it in a checkout."""
    package = Path(__file__).parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def check(config: Mapping[str, Any], verb: str) -> None:
    """Refuse what no run can mean: unknown or missing keys, wrong types and ranges, a `_target_` off the leash.

    config: the composed config as plain dicts and lists; verb: the name of its primary config.
    """
    for where, node in _nodes(config):
        if "_target_" in node:
            target_class(node, where)
    expected = shipped_keys(verb)
    if "task" in config:
        if verb in ("run", "search"):
            raise BadInput(
                f"`harness {verb}` is about retrieval. Predictions of another task are scored by "
                "`harness score task=NAME predictions=FILE references=FILE`."
            )
        expected = expected | dict.fromkeys(("task", "predictions", "references"))
    _check_names(config, expected)
    for name, value in _leaves(config):
        if key := KEYS.get(f"{verb}.{name}") or KEYS.get(name):
            check_value(value, key, name)
    if "task" not in config and "metrics" in config:
        check_value(config["metrics"], Key(list[str]), "metrics")  # only a text task has measures of its own
    for name in PARTS:
        if name in config:
            check_part(config[name], name)
    if not config.get("retriever", True):
        raise BadInput("retriever holds no retriever. Choose a file of conf/retriever/, such as retriever=bm25.")
    for name, node in config.get("retriever", {}).items():
        check_part(node, f"retriever.{name}")
    if "retriever" in config:
        build(config["gate"], where="gate").check(config["retriever"])
        if len(config["retriever"]) > 1:
            build(config["fusion"], where="fusion").check(config["retriever"])
    if "top_k" in config and config["depth"] < config["top_k"]:
        raise BadInput(
            f"depth={config['depth']} is less than top_k={config['top_k']}: a run cannot return more than it "
            "retrieves. Raise depth or lower top_k."
        )


def target_class(node: Mapping[str, Any], where: str) -> type:
    """The class that `_target_` names, which must be a public one of `retrievers.` or `harness.`."""
    target = node["_target_"]
    if not isinstance(target, str) or not target.startswith(LEASH) or "._" in target:
        raise BadInput(
            f"{where}._target_: {target!r} is not allowed. A config may only name public classes of "
            "`retrievers.` and `harness.`."
        )
    module_name, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # a dependency of that module is missing: say which
        raise BadInput(f"{where}._target_: there is no module {module_name!r}.") from None
    except AttributeError:
        known = [n for n in vars(importlib.import_module(module_name)) if not n.startswith("_")]
        raise BadInput(f"{where}._target_: {module_name} has no {name!r}.{did_you_mean(name, known)}") from None
    if not inspect.isclass(found) or not found.__module__.startswith(LEASH):
        raise BadInput(f"{where}._target_: {target} is not a class of this project.")
    return found


def arguments(node: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments that a part's config gives, those of `runtime:` included."""
    runtime = node.get("runtime") or {}
    return {k: v for k, v in node.items() if k not in ("_target_", "runtime")} | dict(runtime)


def build(node: Mapping[str, Any], wrap: Wrap | None = None, where: str = "config") -> Any:
    """Make the object that a part's config describes, parts inside it first."""
    made = {}
    for key, value in arguments(node).items():
        if isinstance(value, Mapping) and "_target_" in value:

            def make(value: Mapping[str, Any] = value, key: str = key) -> Any:
                return build(value, wrap, f"{where}.{key}")

            made[key] = wrap(key, value, make) if wrap else make()
        else:
            made[key] = value
    try:
        return target_class(node, where)(**made)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def identity(node: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a part's results: class, its version and packages, and all arguments but `runtime:`.

    Defaults that the config leaves out are filled in, so that saying a default changes nothing. A class that has
    `identify(**arguments)` says itself what stands for its arguments, such as a model's checksum for its path.
    """
    cls: Any = target_class(node, "config")
    runtime = dict(node.get("runtime") or {})
    bound = _signature(cls).bind(**arguments(node))
    bound.apply_defaults()
    if hasattr(cls, "identify"):
        decides = cls.identify(**bound.arguments)
    else:
        decides = {k: v for k, v in bound.arguments.items() if k not in runtime}
    return {
        "target": node["_target_"],
        "version": getattr(cls, "version", 1),
        "packages": {name: _installed(name, node["_target_"]) for name in getattr(cls, "packages", ())},
        "arguments": {k: identity(v) if isinstance(v, Mapping) and "_target_" in v else v for k, v in decides.items()},
    }


def used(config: Mapping[str, Any]) -> list[str]:
    """The groups beside `retriever` and `gate` that have a say in a run: parts in use by a retriever or the gate,
    fusion of several, reranking."""
    nodes = config["retriever"].values()
    gate = build(config["gate"], where="gate")
    found = [name for name in SHARED if name in gate.parts or any(node.get(name) == config[name] for node in nodes)]
    found += ["fusion"] if len(config["retriever"]) > 1 else []
    return found + (["rerank"] if build(config["rerank"], where="rerank").depth else [])


@functools.cache
def _installed(package: str, target: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise BadInput(
            f"{target} needs the package {package}: pip install 'retrieval-harness[dense]'. "
            "Without it: retriever=bm25, retriever=hybrid_lexical, or encoder=lsa."
        ) from None


def digest(value: Any) -> str:
    """sha256 of the canonical JSON of `value`."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_texts(texts: Iterable[str]) -> str:
    """sha256 of a sequence of texts, read one at a time."""
    found = hashlib.sha256()
    for text in texts:
        found.update(json.dumps(text).encode() + b"\n")
    return found.hexdigest()


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """{'a.b': value} for every leaf; lists are leaves."""
    return dict(_leaves(config))


def check_part(node: Any, where: str) -> None:
    """The keys and values of a part against its constructor's signature, then against the constructor itself.

    Constructors check their arguments and load nothing, so that this costs next to nothing.
    """
    _check_arguments(node, where)
    build(node, where=where)


@functools.cache
def _signature(cls: type) -> inspect.Signature:
    return inspect.signature(cls)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a constructor's arguments."""
    return typing.get_type_hints(cls.__init__)  # type: ignore[misc]


def _check_arguments(node: Any, where: str) -> None:
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise BadInput(f"{where} is no part: it needs a `_target_`. Choose a file of conf/{where.split('.')[0]}/.")
    cls = target_class(node, where)
    parameters, hints = _signature(cls).parameters, _hints(cls)
    given = arguments(node)
    for key, value in given.items():
        if key not in parameters:
            raise BadInput(
                f"{where}.{key} is unknown: {cls.__name__} takes {', '.join(parameters) or 'no arguments'}."
                f"{did_you_mean(key, parameters)}"
            )
        if isinstance(value, Mapping) and "_target_" in value:
            _check_arguments(value, f"{where}.{key}")
        elif (type(value), value) != (type(parameters[key].default), parameters[key].default):
            check_value(value, Key(hints.get(key, Any)), f"{where}.{key}")
    lacking = [n for n, p in parameters.items() if p.default is p.empty and n not in given]
    if lacking:
        raise BadInput(f"{where} lacks {', '.join(lacking)}: {cls.__name__} needs it.")


@functools.cache
def shipped_keys(name: str) -> dict[str, Any]:
    """The keys of a shipped config, with the inner keys of its plain groups and those of the configs it builds on."""
    import yaml

    keys: dict[str, Any] = {}
    config = yaml.safe_load((folder() / f"{name}.yaml").read_text("utf-8"))
    for entry in config.pop("defaults", ()):
        if isinstance(entry, dict):
            [(group, choice)] = entry.items()
            if choice is None or group.startswith("override "):
                continue
            text = (folder() / group / f"{choice}.yaml").read_text("utf-8")
            keys |= yaml.safe_load(text) if text.startswith("# @package _global_") else {group: None}
        elif entry != "_self_":
            keys |= shipped_keys(entry)
    config.pop("hydra", None)
    return keys | {key: value for key, value in config.items() if key not in keys or key not in PARTS}


def _check_names(config: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Keys against the shipped config; parts check their own keys."""
    for key in config:
        if key not in expected:
            raise BadInput(f"{key} is unknown here.{did_you_mean(str(key), expected)} Known: {', '.join(expected)}.")
    for key, value in expected.items():
        if key not in config:
            raise BadInput(f"{key} is missing from the config. Leave out the override that removes it.")
        if isinstance(value, Mapping) and key not in (*PARTS, "retriever"):
            inner = config[key]
            if not isinstance(inner, Mapping):
                raise BadInput(f"{key}={inner!r} stands where a group of keys is expected: {', '.join(value)}.")
            for name in inner:
                if name not in value:
                    raise BadInput(f"{key}.{name} is unknown.{did_you_mean(str(name), value)}")


def _nodes(value: Any, where: str = "config") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield where, value
        for key, inner in value.items():
            yield from _nodes(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _nodes(inner, f"{where}[{i}]")


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
