"""What a run was made with: data, code, versions, packages and the resolved config."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.config.components import active_groups, recorded, target_class
from harness.evaluation import measures


@functools.cache
def requirements() -> str:
    """`name==version` of every installed distribution, a line each; the first on the path where there are several."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        head = (one.read_text("METADATA") or one.read_text("PKG-INFO") or "").partition("\n\n")[0]
        fields = dict(re.findall(r"^(Name|Version): *(\S+)", head, re.MULTILINE))
        if len(fields) == 2:
            found.setdefault(fields["Name"], fields["Version"])
    return "".join(f"{name}=={found[name]}\n" for name in sorted(found, key=str.lower))


PACKAGES = ("retrieval-harness", "numpy", "scipy", "numba", "hydra-core", "mlflow")  # that every run makes use of


def provenance(fingerprints: Mapping[str, str | None], config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Tags that say with what a run was made: data, code and versions, those of its parts' packages with `config`."""
    import platform
    import subprocess

    tags = {f"data.{name}": sha256 for name, sha256 in fingerprints.items() if sha256}
    tags |= {"mlflow.source.name": "harness", "mlflow.source.type": "LOCAL"}
    tags |= {"version.python": platform.python_version(), "version.measures": str(measures.VERSION)}
    tags |= versions(PACKAGES) | (versions(packages(config)) if config and {"retriever", "task"} & set(config) else {})
    try:
        commit, changed = (
            subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=True).stdout.strip()  # noqa: S603, S607
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
        tags |= {"git.commit": commit, "mlflow.source.git.commit": commit, "git.dirty": str(bool(changed)).lower()}
    except (OSError, subprocess.SubprocessError):
        tags["git.commit"] = "none"  # not a checkout, or no git here
    return tags


def packages(config: Mapping[str, Any]) -> set[str]:
    """The packages that compute the results of a run's parts, as their classes name them."""
    if "task" in config:
        parts = [config["task"]]
    else:
        parts = [*config["retriever"].values(), config["gate"], *(config[group] for group in active_groups(config))]
    found: set[str] = set()
    while parts:
        part = parts.pop()
        found |= set(getattr(target_class(part, "config"), "packages", ()))
        parts += [inner for inner in part.values() if isinstance(inner, Mapping) and "_target_" in inner]
    return found | ({"torch"} if "transformers" in found else set())


def versions(names: Iterable[str]) -> dict[str, str]:
    """Tags with the installed versions of packages."""
    return {f"version.{name}": _version(name) for name in names}


@functools.cache
def _version(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def resolved(config: Mapping[str, Any]) -> str:
    """The resolved config as YAML, without the tracking address, which may carry a password."""
    return "".join(_yaml(json.dumps({name: recorded(node)})) for name, node in config.items() if name != "tracking")


@functools.lru_cache(maxsize=1000)  # trials have most of their config in common
def _yaml(node: str) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the same text, ten times as fast
    return yaml.dump(json.loads(node), Dumper=dumper, allow_unicode=True, sort_keys=False)
