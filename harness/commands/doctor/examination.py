"""What others have made: plug-ins, and retrievers that are examined by the contract of retrievers/testing.py."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.commands.doctor.finding import Finding
from harness.config import plugins as installed
from harness.config.commands import DoctorConfig
from harness.config.components import build, plugin_targets, recorded_name, target_class
from harness.data.dataset import load, search_queries
from harness.errors import BadInput
from harness.pipeline.cached_parts import Caching
from harness.pipeline.steps import is_precomputed
from harness.progress import watch
from harness.storage.cache import open_cache
from retrievers.testing import contract

QUERIES = 50  # of the dataset, at most, that a retriever is examined with
CONTRACT = "retrievers/testing.py says what a retriever must do; the section of CONTRIBUTING.md says how to add one."


def plugins(config: DoctorConfig) -> Iterator[Finding]:
    """Whether each installed plug-in can be used, its classes included."""
    seen: dict[str, installed.Plugin] = {}
    for plugin in installed.plugins():
        about, remedy = f"plug-in {plugin}", f"Mend it, or remove it: pip uninstall {plugin.distribution}"
        if plugin.problem:
            yield Finding(about, "error", plugin.problem, remedy)
            continue
        try:
            names = [recorded_name(target_class({"_target_": one}, "config")) for one in plugin_targets(plugin)]
        except BadInput as error:
            yield Finding(about, "error", str(error), remedy)
            continue
        if twice := [name for name in names if name in seen]:
            yield Finding(about, "error", f"records {twice[0]!r}, as the plug-in {seen[twice[0]]} does", remedy)
            continue
        seen |= dict.fromkeys(names, plugin)
        yield Finding(about, "ok", ", ".join(f"{group}={choice}" for group, choice in plugin.choices))


def retrievers(config: DoctorConfig) -> Iterator[Finding]:
    """Each rule of the contract, for each retriever of the config on its dataset."""
    if config.retriever is None:
        return
    dataset = load(build(config.dataset, where="dataset"), "dataset")
    queries, cache = search_queries(dataset)[:QUERIES], open_cache(config.store.path)
    for name, node in config.retriever.items():
        with tempfile.TemporaryDirectory() as folder, watch(name) as progress:
            wrap = Caching(cache, str(dataset.fingerprints["documents"]), progress)
            make = functools.partial(build, node, wrap, f"retriever.{name}")
            rules = contract(make, dataset.documents, queries, Path(folder), known_only=is_precomputed(node))
            for rule, problem in rules:
                said, remedy = (f"{rule}: {problem}", CONTRACT) if problem else (rule, "")
                yield Finding(f"retriever.{name}", "error" if problem else "ok", said, remedy)
