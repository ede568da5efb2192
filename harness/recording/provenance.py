"""Record what made a run: data, code, versions, packages and the resolved config."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.config.components import component_identity, plugin_of, recorded, target_class
from harness.config.schema import Node
from harness.experiment.plan import Plan
from harness.measures import measures
from harness.tasks.scored_file import TextPlan


@functools.cache
def requirements() -> str:
    """Return a line `name==version` for every installed distribution. If one has two versions, take the first found."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        head = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]
        fields = dict(re.findall(r"^(Name|Version): *(\S+)", head, re.MULTILINE))
        if len(fields) == 2:
            versions.setdefault(fields["Name"], fields["Version"])
    return "".join(f"{name}=={versions[name]}\n" for name in sorted(versions, key=str.lower))


PACKAGES = ("retrieval-harness", "numpy", "scipy", "numba", "hydra-core", "mlflow")  # every run uses these
PLUGINS = "plugins"  # tag: the plug-ins of a run's components


def provenance(fingerprints: Mapping[str, str | None], plan: Plan | TextPlan | None = None) -> dict[str, str]:
    """Return tags with the data, code and versions that made a run. With a plan, add tags for its components."""
    import platform

    tags = {f"data.{name}": sha256 for name, sha256 in fingerprints.items() if sha256}
    tags |= {"mlflow.source.name": "harness", "mlflow.source.type": "LOCAL"}
    tags |= {"version.python": platform.python_version(), "version.measures": str(measures.VERSION)}
    tags |= version_tags(PACKAGES) | (of_components(plan) if plan else {})
    if commit := _git("rev-parse", "HEAD"):
        tags |= {"git.commit": commit, "mlflow.source.git.commit": commit}
        changed = _git("status", "--porcelain", "--ignore-submodules=dirty")
        tags |= {} if changed is None else {"git.dirty": str(bool(changed)).lower()}
    else:
        tags["git.commit"] = "none"  # not a checkout, or git is missing
    return tags


def _git(*words: str) -> str | None:
    """Return the output of git; None if it fails. The checkout is not trusted: commands in its config are not run."""
    import subprocess

    def said(*all_words: str) -> str:
        quiet = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": ""}  # nothing is changed or fetched
        done = subprocess.run(["git", *all_words], capture_output=True, text=True, timeout=5, check=True, env=quiet)  # noqa: S603, S607
        return done.stdout.strip()

    try:
        keys = said("config", "--list", "--name-only").splitlines()
        filters = {key.rpartition(".")[0] for key in keys if key.startswith("filter.")}
        off = [f"{name}.{how}" for name in sorted(filters) for how in ("clean=", "process=", "required=false")]
        if any("=" in name for name in filters):  # git's option -c cannot set a key with "=" in its name
            return None
        settings = ["core.fsmonitor=false", f"core.hooksPath={os.devnull}", *off]
        return said(*(word for setting in settings for word in ("-c", setting)), *words)
    except (OSError, subprocess.SubprocessError):
        return None


def of_components(plan: Plan | TextPlan) -> dict[str, str]:
    """Return tags with the packages, plug-ins, user files and user code that a run uses."""
    nodes = [*_components(plan), *filter(None, [plan.document.get("dataset")])]
    found = {str(plugin) for node in nodes if (plugin := plugin_of(target_class(node, "config")))}
    tags = version_tags(packages(plan)) | ({PLUGINS: ", ".join(sorted(found))} if found else {})
    return tags if isinstance(plan, TextPlan) else tags | sources(plan)


def sources(plan: Plan) -> dict[str, str]:
    """Return tags with the sha256 of prompts, and of the external files and modules of retrievers."""
    found = {
        f"source.{name}": component_identity(node)["arguments"]["sha256"]
        for name, node in plan.retriever.items()
        if hasattr(target_class(node, f"retriever.{name}"), "source")
    }
    if plan.writer:
        found["prompt.query"] = plan.writer.prompt.sha256
    if "llm" in plan.answer:
        found["prompt.answer"] = plan.made("answer").task.prompt.sha256
    return found


def packages(plan: Plan | TextPlan) -> set[str]:
    """Return the packages that compute the results of a run's components, as declared by their classes."""
    names: set[str] = set()
    for node in _components(plan):
        cls = target_class(node, "config")
        plugin = plugin_of(cls)
        names |= {*getattr(cls, "packages", ()), *([plugin.distribution] if plugin else [])}
    return names | ({"torch"} if "transformers" in names else set())


def _components(plan: Plan | TextPlan) -> Iterator[Node]:
    components = plan.components
    while components:
        yield (node := components.pop())
        components += [inner for inner in node.values() if isinstance(inner, Mapping) and "_target_" in inner]


def version_tags(names: Iterable[str]) -> dict[str, str]:
    return {f"version.{name}": _version(name) for name in names}


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def resolved(document: Mapping[str, Any]) -> str:
    """Return a config as YAML, without `tracking`, whose address may contain a password."""
    return "".join(_yaml(json.dumps({name: node})) for name, node in document.items() if name != "tracking")


@functools.lru_cache(maxsize=1000)  # trials share most of their config
def _yaml(node: str) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # writes the same text ten times faster
    return yaml.dump(recorded(json.loads(node)), Dumper=dumper, allow_unicode=True, sort_keys=False)
