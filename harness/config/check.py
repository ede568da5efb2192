"""Check a composed config before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from harness.config import components, plugins
from harness.config.canonical import flatten, mappings_in
from harness.config.command_list import config_class
from harness.config.components import GROUPS, SHARED, build, check_component, target_class
from harness.config.manual import shipped
from harness.config.places import bucket_place
from harness.config.schema import IF_GROUP, Config, Node, check_value, keys, one_spelling, schema_groups
from harness.errors import BadInput, did_you_mean

OTHERS = "outputs=FOLDER, store.path=FOLDER"


@dataclass(frozen=True)
class Invocation:
    """The command line behind a config. choices: group -> choice. defaults: overrides from harness.yaml and recipes."""

    choices: Mapping[str, str]
    overrides: tuple[str, ...]
    defaults: tuple[str, ...] = ()
    config_dir: str | None = None


def primary(command: str) -> str:
    """Return the name of a command's primary config: its words joined by underscores."""
    return command.replace(" ", "_")


def check_values(document: Node, name: str, accepted: dict[str, Any] | None = None) -> dict[str, Any]:
    """Check a config, and return it with one spelling for each value, such as 1.0 for 1 where a float is expected.

    Trial keys, params and cache keys are computed from the returned config.

    accepted: the parts of configs that this command has accepted, as text -> value in one spelling. They are checked
        again only together with other parts. The parts of this config are added, so equal parts are one object.
    """
    accepted = {} if accepted is None else accepted
    texts = {part: f"{part}={value!r}" for part, value in document.items()}
    new = {part: value for part, value in document.items() if texts[part] not in accepted}
    check_config(document, name, new)
    known = keys(config_class(name))
    spelled = components.changed_values(new, known, lambda key, value: one_spelling(value, key.hint))
    accepted |= {texts[part]: value for part, value in spelled.items()}
    return {part: accepted[text] for part, text in texts.items()}


def check_config(document: Node, name: str, new: Node | None = None) -> None:
    """Raise BadInput for unknown or missing keys, wrong values, forbidden classes, and keys that exclude each other.

    document: plain dicts and lists. name: the name of the primary config. new: the parts that were not accepted before;
        None: all parts.
    """
    new = document if new is None else new
    plugins.check_allowed((document.get("plugins") or {}).get("allow"))
    for where, node in mappings_in(new):
        if "_target_" in node:
            target_class(node, where)
    if "task" in document and name in ("run", "search", "check", "load"):
        raise BadInput(
            f"`harness {name}` is about retrieval. Score predictions of another task with "
            "`harness score task=NAME predictions=FILE references=FILE`."
        )
    cls = config_class(name)
    _check_keys(document, cls)
    known = keys(cls)
    for key, value in flatten(new).items():
        if key in known:
            check_value(value, known[key], key)
    _check_places(flatten(document))
    if "task" not in document and "metrics" in document and document["metrics"] is None:
        raise BadInput("metrics=null is for text tasks. List the measures to compute, or write metrics=all.")
    for group in dict.fromkeys((*SHARED, *GROUPS)):  # shared groups first: errors then name `llm`, not `gate.llm`
        if group in new:
            check_component(new[group], group)
    if "retriever" in document:
        _check_retrieval(document, new)


def with_metrics(document: dict[str, Any]) -> dict[str, Any]:
    """Replace `metrics=all` with the shipped measures. For a text task, use None, which means all its measures."""
    if document.get("metrics") != "all":
        return document
    return document | {"metrics": None if "task" in document else shipped("task", "retrieval")["metrics"]}


def _check_places(values: Mapping[str, Any]) -> None:
    """Raise BadInput if a place cannot hold files, or a key repeats the tracking address, which may be secret."""
    outputs, uri = values["outputs"], values.get("tracking.uri") or ""
    if "://" in outputs:
        raise BadInput("outputs must be a folder of this machine, not an address. Only store.path may be in a bucket.")
    places = [outputs, unquote(uri.partition("sqlite:///")[2])]
    if (store := values.get("store.path", "")) and bucket_place(store) is None:
        places.append(store)
    for place in places:
        if Path(place).absolute().parts[1:2] in (("proc",), ("sys",)):
            raise BadInput(
                f"{place} is in a virtual file system and cannot hold files. Choose another folder: {OTHERS}."
            )
    for name, value in values.items():
        if "://" in uri and name != "tracking.uri" and uri in str(value):
            raise BadInput(f"{name} repeats tracking.uri, which may hold a secret, and would be logged. Change it.")


def _check_retrieval(document: Node, new: Node) -> None:
    retrievers = document["retriever"]
    if not isinstance(retrievers, Mapping) or not retrievers:
        raise BadInput("retriever names no retriever. Choose a file of conf/retriever/, as in retriever=bm25.")
    for name, node in retrievers.items() if "retriever" in new else ():
        check_component(node, f"retriever.{name}")
    if "gate" not in document:
        return
    build(document["gate"], where="gate").check(retrievers)
    fusion = build(document["fusion"], where="fusion")
    if len(retrievers) > 1 or hasattr(fusion, "learns"):  # a fusion that learns refuses a single ranking
        fusion.check(retrievers)
    if "top_k" in document and document["depth"] < document["top_k"]:
        raise BadInput(
            f"depth={document['depth']} is less than top_k={document['top_k']}: a run cannot return more documents "
            "than it retrieves. Raise depth or lower top_k."
        )


def _check_keys(document: Node, cls: type[Config]) -> None:
    known, groups = keys(cls), {name: one for name, one in schema_groups(cls).items() if not one.recipe}
    inner = {name.partition(".")[0] for name in known if "." in name}
    given: dict[str, Any] = {}
    for name, value in document.items():
        if name not in inner:
            given[name] = value
        elif isinstance(value, Mapping):
            given |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            names = ", ".join(key.removeprefix(f"{name}.") for key in known if key.startswith(f"{name}."))
            raise BadInput(f"{name} must be a group of keys ({names}), not {value!r}.")
    for name, value in given.items():
        if name not in known and name not in groups:
            choices = [*groups, *known]
            raise BadInput(f"{name} is unknown here.{did_you_mean(str(name), choices)} Known: {', '.join(choices)}.")
        if name in known and isinstance(value, Mapping):
            raise BadInput(f"{name} must be a single value, not a group of keys: {value!r:.60}.")
    needed = [name for name, one in groups.items() if not one.optional]
    needed += [name for name, one in known.items() if one.default != IF_GROUP]
    if missing := next((name for name in needed if name not in given), None):
        raise BadInput(f"{missing} is missing from the config. Leave out the override that removes it.")
