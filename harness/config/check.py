"""Checks of a composed config, with messages for people: what no command can mean is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from harness.config import components, plugins
from harness.config.canonical import leaves, mappings_in
from harness.config.commands import config_class
from harness.config.components import GROUPS, SHARED, build, check_component, target_class
from harness.config.manual import shipped
from harness.config.places import bucket_place
from harness.config.schema import IF_GROUP, Config, Node, check_value, keys, schema_groups
from harness.errors import BadInput, did_you_mean

OTHERS = "outputs=FOLDER, store.path=FOLDER"


@dataclass(frozen=True)
class Invocation:
    """The command line behind a config.

    choices: config group -> the choice, such as retriever -> bm25.
    overrides: the arguments key=value. defaults: what `harness.yaml` adds to them, in the same form.
    config_dir: the folder of `--config-dir`; None without one.
    """

    choices: Mapping[str, str]
    overrides: tuple[str, ...]
    defaults: tuple[str, ...] = ()
    config_dir: str | None = None


def primary(command: str) -> str:
    """The name of a command's primary config, its words joined by an underscore: Hydra takes no bare words."""
    return command.replace(" ", "_")


def check_values(document: Node, name: str) -> dict[str, Any]:
    """Return the config in which each value has one spelling, such as 1.0 for 1 where a float is expected.

    Trial keys, params and results in the cache are made of this form. Arguments and errors as for `check_config`.
    """
    check_config(document, name)
    return components.spelled(document, keys(config_class(name)))


def check_config(config: Mapping[str, Any], name: str) -> None:
    """Raise BadInput for unknown or missing keys, wrong values, forbidden classes, and what cannot work together.

    config: the composed config as plain dicts and lists. name: of its primary config.
    """
    plugins.check_allowed(config)
    for where, node in mappings_in(config):
        if "_target_" in node:
            target_class(node, where)
    if "task" in config and name in ("run", "search"):
        raise BadInput(
            f"`harness {name}` is about retrieval. Score predictions of another task with "
            "`harness score task=NAME predictions=FILE references=FILE`."
        )
    cls = config_class(name)
    _check_names(config, cls)
    known = keys(cls)
    for key_name, value in leaves(config):
        if key := known.get(key_name):
            check_value(value, key, key_name)
    _check_places(config["outputs"], config.get("store", {}).get("path", ""))
    if "task" not in config and "metrics" in config and config["metrics"] is None:
        raise BadInput("metrics=null is for text tasks. List the measures to compute, or write metrics=all.")
    for group in dict.fromkeys((*SHARED, *GROUPS)):  # the shared ones first, so that messages name their own keys
        if group in config:
            check_component(config[group], group)
    _check_tracking(config)
    if "retriever" in config:
        _check_retrieval(config)


def with_metrics(config: dict[str, Any]) -> dict[str, Any]:
    """The config with the shipped measures where it says `metrics=all`: of a text task, those of its scheme."""
    if config.get("metrics") != "all":
        return config
    return config | {"metrics": None if "task" in config else shipped("task", "retrieval")["metrics"]}


def _check_places(outputs: str, store: str) -> None:
    if "://" in outputs:
        raise BadInput("outputs must be a folder of this machine, not an address: only store.path may lie in a bucket.")
    _check_place(outputs)
    if bucket_place(store) is None:
        _check_place(store)


def _check_place(place: str) -> None:
    if Path(place).absolute().parts[1:2] in (("proc",), ("sys",)):
        raise BadInput(f"{place} is in a virtual file system and cannot hold files. Choose another folder: {OTHERS}.")


def _check_tracking(config: Mapping[str, Any]) -> None:
    """Raise BadInput where another key refers to the tracking address, whose secrets would then be logged."""
    uri = config.get("tracking", {}).get("uri")
    _check_place(unquote((uri or "").partition("sqlite:///")[2]))
    for name, value in leaves(config):
        if uri and "://" in uri and name != "tracking.uri" and uri in str(value):
            raise BadInput(f"{name} repeats tracking.uri, which may hold a secret, and would be logged. Change it.")


def _check_retrieval(config: Mapping[str, Any]) -> None:
    """Check the retrievers, and what must fit them: gate, fusion and depth."""
    retrievers = config["retriever"]
    if not isinstance(retrievers, Mapping) or not retrievers:
        raise BadInput("retriever names no retriever. Choose a file of conf/retriever/, such as retriever=bm25.")
    for name, node in retrievers.items():
        check_component(node, f"retriever.{name}")
    if "gate" not in config:
        return
    build(config["gate"], where="gate").check(retrievers)
    fusion = build(config["fusion"], where="fusion")
    if len(retrievers) > 1 or hasattr(fusion, "learns"):  # those that learn need several rankings
        fusion.check(retrievers)
    if "top_k" in config and config["depth"] < config["top_k"]:
        raise BadInput(
            f"depth={config['depth']} is less than top_k={config['top_k']}: a run cannot return more documents than it "
            "retrieves. Raise depth or lower top_k."
        )


def _check_names(config: Mapping[str, Any], cls: type[Config]) -> None:
    """Compare the names of groups and plain keys with those of the command; components check their own keys."""
    known, components_of = keys(cls), {name: one for name, one in schema_groups(cls).items() if not one.recipe}
    inner: dict[str, list[str]] = {}
    for name in known:
        top, _, rest = name.partition(".")
        inner.setdefault(top, []).extend([rest] if rest else [])
    everything = [*components_of, *inner]
    for key in config:
        if key not in everything:
            raise BadInput(
                f"{key} is unknown here.{did_you_mean(str(key), everything)} Known: {', '.join(everything)}."
            )
    needed = [name for name, one in components_of.items() if not one.optional]
    needed += [top for top in inner if known.get(top) is None or known[top].default != IF_GROUP]
    for key in needed:
        if key not in config:
            raise BadInput(f"{key} is missing from the config. Drop the override that removes it.")
    for key, names in inner.items():
        if key in config:
            _check_inner(config[key], key, names)


def _check_inner(value: Any, key: str, names: Sequence[str]) -> None:
    """Check the names in a group of plain keys. names: of its keys; () for a plain key."""
    if not names:
        if isinstance(value, Mapping):
            raise BadInput(f"{key} must be a plain value, not a group of keys: {value!r:.60}.")
        return
    if not isinstance(value, Mapping):
        raise BadInput(f"{key} must be a group of keys ({', '.join(names)}), not {value!r}.")
    for name in names:
        if name not in value:
            raise BadInput(f"{key}.{name} is missing from the config. Drop the override that removes it.")
    for name in value:
        if name not in names:
            raise BadInput(f"{key}.{name} is unknown.{did_you_mean(str(name), names)}")
