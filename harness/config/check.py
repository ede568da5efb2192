"""Validation of a composed config with messages for people, and `build()`, which makes its parts.

A part is a mapping with a `_target_`: a class of `retrievers.` or `harness.`, nothing else. Its other
keys are the constructor's arguments; those under `runtime:` (workers, device, batch size) are arguments
too, but change no result and so are no part of its identity.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.canonical import _leaves, _nodes
from harness.config.components import PARTS, build, check_component, conf_folder, target_class
from harness.config.keys import KEYS, Key, check_value
from retrievers.base import BadInput, did_you_mean


@dataclass(frozen=True)
class Invocation:
    """What was asked on the command line, beside the config that came of it.

    choices: config group -> the choice, such as retriever -> bm25. overrides: the words key=value.
    """

    choices: Mapping[str, str]
    overrides: tuple[str, ...]


def primary(verb: str) -> str:
    """The name of a verb's primary config; Hydra takes no bare words, so that two words are joined."""
    return verb.replace(" ", "_")


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
            check_component(config[name], name)
    if not config.get("retriever", True):
        raise BadInput("retriever holds no retriever. Choose a file of conf/retriever/, such as retriever=bm25.")
    for name, node in config.get("retriever", {}).items():
        check_component(node, f"retriever.{name}")
    if "retriever" in config:
        build(config["gate"], where="gate").check(config["retriever"])
        if len(config["retriever"]) > 1:
            build(config["fusion"], where="fusion").check(config["retriever"])
    if "top_k" in config and config["depth"] < config["top_k"]:
        raise BadInput(
            f"depth={config['depth']} is less than top_k={config['top_k']}: a run cannot return more than it "
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
