"""Checks of a composed config, with messages for people: what no command can mean is refused before anything starts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from harness.config import components, plugins
from harness.config.canonical import leaves, nodes
from harness.config.components import GROUPS, SHARED, build, check_component, target_class
from harness.config.folders import conf_folder
from harness.config.keys import KEYS, Key, check_value, one_spelling
from harness.config.places import bucket_place
from retrievers.base import BadInput, did_you_mean

OPTIONAL_GROUPS = {"doctor": "retriever", "compare": "dataset", "power": "dataset"}  # of which nothing is chosen
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


def checked(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The config in which each value has one spelling, such as 1.0 for 1 where a float is expected.

    Trial keys, params and results in the cache are of this form. Arguments and errors as for `check`.
    """
    check(config, name)
    return _spelled(config, name)


def _spelled(config: Mapping[str, Any], name: str, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        place = f"{prefix}{key}"
        known = KEYS.get(f"{name}.{place}") or KEYS.get(place)
        if isinstance(value, Mapping):
            found[key] = components.spelled(value) if "_target_" in value else _spelled(value, name, f"{place}.")
        else:
            found[key] = one_spelling(value, known.hint) if known else value
    return found


def check(config: Mapping[str, Any], name: str) -> None:
    """BadInput for unknown or missing keys, wrong types and ranges, forbidden classes, and what cannot work together.

    config: the composed config as plain dicts and lists. name: of its primary config.
    """
    plugins.check_allowed(config)
    for where, node in nodes(config):
        if "_target_" in node:
            target_class(node, where)
    expected = shipped_keys(name)
    if "task" in config:
        if name in ("run", "search"):
            raise BadInput(
                f"`harness {name}` is about retrieval. Score predictions of another task with "
                "`harness score task=NAME predictions=FILE references=FILE`."
            )
        expected = expected | dict.fromkeys(("task", "predictions", "references"))
    if (group := OPTIONAL_GROUPS.get(name, "")) in config:
        expected = expected | {group: None}
    _check_names(config, expected)
    for key_name, value in leaves(config):
        if key := KEYS.get(f"{name}.{key_name}") or KEYS.get(key_name):
            check_value(value, key, key_name)
    _check_places(config["outputs"], config.get("store", {}).get("path", ""))
    if "task" not in config and "metrics" in config:
        check_value(config["metrics"], Key(list[str]), "metrics")  # only a text task may leave them to its scheme
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
    return config | {"metrics": None if "task" in config else shipped_keys("run")["metrics"]}


def _check_places(outputs: str, store: str) -> None:
    if "://" in outputs:
        raise BadInput("outputs must be a folder of this machine, not an address: only store.path may lie in a bucket.")
    _check_place(outputs)
    if bucket_place(store) is None:
        _check_place(store)


def _check_place(place: str) -> None:
    if Path(place).absolute().parts[1:2] in (("proc",), ("sys",)):
        raise BadInput(f"{place} is no folder for files, but a view of the system. Choose another: {OTHERS}.")


def _check_tracking(config: Mapping[str, Any]) -> None:
    """BadInput where another key refers to the tracking address, whose secrets would so be logged."""
    uri = config.get("tracking", {}).get("uri")
    _check_place(unquote((uri or "").partition("sqlite:///")[2]))
    for name, value in leaves(config):
        if uri and "://" in uri and name != "tracking.uri" and uri in str(value):
            raise BadInput(f"{name} repeats tracking.uri, which may hold a secret, and would be logged. Change it.")


def _check_retrieval(config: Mapping[str, Any]) -> None:
    """The retrievers, and what must fit them: gate, fusion and depth."""
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


@functools.cache
def shipped_keys(name: str) -> dict[str, Any]:
    """The keys of a shipped config, with the inner keys of its plain groups and those of the configs it builds on."""
    import yaml

    keys: dict[str, Any] = {}
    config = yaml.safe_load((conf_folder() / f"{name}.yaml").read_text("utf-8"))
    for entry in config.pop("defaults", ()):
        if isinstance(entry, dict):
            [(group, choice)] = entry.items()
            if choice is None or group.startswith("override "):
                continue
            text = (conf_folder() / group / f"{choice}.yaml").read_text("utf-8")
            keys |= yaml.safe_load(text) if text.startswith("# @package _global_") else {group: None}
        elif entry != "_self_":
            keys |= shipped_keys(entry)
    config.pop("hydra", None)
    return keys | {key: value for key, value in config.items() if key not in keys or key not in GROUPS}


def _check_names(config: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare keys with the shipped config; components check their own keys."""
    for key in config:
        if key not in expected:
            raise BadInput(f"{key} is unknown here.{did_you_mean(str(key), expected)} Known: {', '.join(expected)}.")
    for key, value in expected.items():
        if key not in config:
            raise BadInput(f"{key} is missing from the config. Drop the override that removes it.")
        if not isinstance(value, Mapping) and key not in (*GROUPS, "retriever") and isinstance(config[key], Mapping):
            raise BadInput(f"{key} must be a plain value, not a group of keys: {config[key]!r:.60}.")
        if isinstance(value, Mapping) and key not in (*GROUPS, "retriever"):
            inner = config[key]
            if not isinstance(inner, Mapping):
                raise BadInput(f"{key} must be a group of keys ({', '.join(value)}), not {inner!r}.")
            for name in value:
                if name not in inner:
                    raise BadInput(f"{key}.{name} is missing from the config. Drop the override that removes it.")
            for name in inner:
                if name not in value:
                    raise BadInput(f"{key}.{name} is unknown.{did_you_mean(str(name), value)}")
