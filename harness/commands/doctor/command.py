"""`harness doctor`: check the installation. `harness doctor cache`: list and prune the cache."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness import children
from harness.cluster.cluster import Cluster
from harness.config import plugins as installed
from harness.config.check import Invocation
from harness.config.commands import CacheConfig, DoctorConfig
from harness.config.components import build, plugin_targets, recorded_name, target_class
from harness.config.places import full_place
from harness.config.text import counted
from harness.data.dataset import checked_dataset, search_queries
from harness.errors import BadInput, Failed
from harness.experiment.cached_parts import Caching
from harness.experiment.steps import is_precomputed
from harness.progress import watch
from harness.recording.recording import open_tracker
from harness.reports import figure
from harness.reports.next_steps import next_here
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Cell, Column, Table
from harness.storage.bucket import bucket_address, server_name
from harness.storage.bucket_entries import BucketEntries
from harness.storage.cache import Cache, open_cache
from harness.storage.entries import CacheEntry
from harness.storage.kernels import NOT_LASTING, REMEDY
from harness.tracking.mlflow_client import shown_address
from retrievers.compiling import all_compiled, code_folder, is_lasting
from retrievers.testing import contract


@dataclass(frozen=True)
class Finding:
    about: str
    state: Literal["ok", "warning", "error"]
    said: str
    remedy: str = ""


QUERIES = 50  # maximum number of queries with which a retriever is examined
CONTRACT = "retrievers/testing.py says what a retriever must do; CONTRIBUTING.md says how to add one."


def plugin_findings(config: DoctorConfig) -> Iterator[Finding]:
    """Check that each installed plug-in and its classes can be used."""
    seen: dict[str, installed.Plugin] = {}
    for plugin in installed.installed_plugins():
        about, problem, names = f"plug-in {plugin}", plugin.problem, []
        targets = [] if problem else plugin_targets(plugin)
        try:
            names = [recorded_name(target_class({"_target_": one}, "config")) for one in targets]
        except BadInput as error:
            problem = str(error)
        if twice := [name for name in names if name in seen]:
            problem = f"gives a class the recorded name {twice[0]!r}; the plug-in {seen[twice[0]]} uses this name too"
        if problem:
            yield Finding(about, "error", problem, f"Fix it, or remove it: pip uninstall {plugin.distribution}")
        else:
            seen |= dict.fromkeys(names, plugin)
            yield Finding(about, "ok", ", ".join(f"{group}={choice}" for group, choice in plugin.choices))


def retrievers(config: DoctorConfig) -> Iterator[Finding]:
    """Check each retriever of the config against each rule of the contract, on the config's dataset."""
    if config.retriever is None:
        return
    dataset = checked_dataset(build(config.dataset, where="dataset"), "dataset")
    queries, cache = search_queries(dataset)[:QUERIES], open_cache(config.store.path)
    for name, node in config.retriever.items():
        with tempfile.TemporaryDirectory() as folder, watch(name) as progress:
            wrap = Caching(cache, str(dataset.fingerprints["documents"]), progress)
            make = functools.partial(build, node, wrap, f"retriever.{name}")
            rules = contract(make, dataset.documents, queries, Path(folder), known_only=is_precomputed(node))
            for rule, problem in rules:
                said, remedy = (f"{rule}: {problem}", CONTRACT) if problem else (rule, "")
                yield Finding(f"retriever.{name}", "error" if problem else "ok", said, remedy)


ELSEWHERE = "Choose another folder: store.path=FOLDER or HARNESS_CACHE."
_TRY_LOCK = "import sys, filelock; filelock.FileLock(sys.argv[1]).acquire(timeout=0)"  # fails if the lock is held


def cache_findings(config: DoctorConfig) -> Iterator[Finding]:
    path = full_place(config.store.path)
    try:
        cache = open_cache(path)
        backend = cache.backend
        yield _bucket(cache, backend) if isinstance(backend, BucketEntries) else _folder(cache, Path(path))
    except OSError as error:
        yield Finding("cache", "error", f"{path}: {error.strerror}", ELSEWHERE)
    except (BadInput, Failed) as error:
        yield Finding("cache", "error", str(error))


def _folder(cache: Cache, root: Path) -> Finding:
    with tempfile.TemporaryDirectory(dir=root, prefix=".doctor-") as place:
        excluded = _excludes(Path(place) / "lock")
    entries = cache.entries()
    said = f"{root}, {sum(entry.bytes for entry in entries) / 1e6:,.1f} MB; `harness doctor cache` lists and prunes it"
    if not excluded:
        said += f"; file locks do not work there ({_file_system(root)}), so processes compute some results twice"
        return Finding("cache", "warning", said, f"Mount the file system with file locks. {ELSEWHERE}")
    if damaged := sum(entry.state == "damaged" for entry in entries):
        said += f"; damaged: {counted(damaged, 'entry')}"
        return Finding("cache", "warning", said, "Damaged entries are built again when needed.")
    return Finding("cache", "ok", f"{said}; locks work ({_file_system(root)})")


def _excludes(file: Path) -> bool:
    """Return whether a held lock on `file` keeps out another process of this machine."""
    from filelock import FileLock

    with FileLock(file):
        _, said = children.start(["-c", _TRY_LOCK, str(file)], stderr=subprocess.PIPE).communicate()
    return b"Timeout" in said


def _file_system(folder: Path) -> str:
    try:
        mounts = [line.split(" ") for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:  # not Linux
        return "unknown"
    above = {Path(mount[1]): mount[2] for mount in mounts if folder.resolve().is_relative_to(Path(mount[1]))}
    return above[max(above, key=lambda place: len(place.parts))] if above else "unknown"


def _bucket(cache: Cache, bucket: BucketEntries) -> Finding:
    entries, copied = cache.entries(), Cache(cache.root).entries()
    said = (
        f"{bucket.location} at {server_name()}: {counted(len(entries), 'entry')}, "
        f"{sum(one.bytes for one in entries) / 1e6:,.1f} MB, of which {sum(one.bytes for one in copied) / 1e6:,.1f} MB "
        f"are copied to {cache.root}; `harness doctor cache` lists and prunes the bucket; with "
        f"store.path={cache.root}, it lists and prunes the copy"
    )
    if not bucket.writable:
        remedy = "To add entries, use credentials with s3:PutObject and s3:DeleteObject."
        return Finding("cache", "warning", f"{said}; these credentials may only read the bucket", remedy)
    if bucket_address().startswith("http:"):
        remedy = "Use an address with https in AWS_ENDPOINT_URL, or a network that you trust."
        return Finding("cache", "warning", f"{said}; its traffic is not encrypted", remedy)
    return Finding("cache", "ok", f"{said}; conditional writes work")


DAY = 86_400
FREE_BYTES = 2_000_000_000  # doctor warns if fewer bytes are free for the outputs


def doctor(config: DoctorConfig, invocation: Invocation) -> CommandAnswer:
    checks: tuple[Callable[[DoctorConfig], Iterator[Finding]], ...] = (
        _versions, _kernels, plugin_findings, _tracking, cache_findings, _disk, _cluster, _fonts, _hub,
        retrievers,
    )  # fmt: skip
    findings = [finding for check in checks for finding in check(config)]
    lines = []
    for one in findings:
        lines += [f"{one.state:<9}{one.about}: {one.said}", *([f"{'':<9}{one.remedy}"] if one.remedy else [])]
    if any(finding.state == "error" for finding in findings):
        return CommandAnswer({"findings": findings}, Report("", files=lines), failed="")
    said, steps = next_here(invocation.config_dir)
    return CommandAnswer({"findings": findings}, Report("", files=[*lines, said], steps=steps))


@dataclass(frozen=True)
class CacheSize:
    entries: int
    bytes: int

    def text(self) -> str:
        return f"{counted(self.entries, 'entry')}, {self.bytes / 1e6:,.1f} MB"


@dataclass(frozen=True)
class ListedEntry:
    kind: str
    key: str
    bytes: int
    about: str
    unused_days: float
    state: str


@dataclass(frozen=True)
class CacheListing:
    """The cache after pruning. bytes: size without foreign folders. busy: entries kept because they are in use."""

    path: str
    bytes: int
    pruned: CacheSize
    busy: int
    damaged: int
    foreign: int
    kinds: Mapping[str, CacheSize]
    entries: Sequence[ListedEntry]


def cache(config: CacheConfig, invocation: Invocation) -> CommandAnswer:
    """List the cache's entries by size or age. If the config sets limits, first remove entries as `_prune` does."""
    kept = open_cache(full_place(config.store.path))
    now = time.time()
    left, removed, busy = _prune(kept, config.prune.unused_days, config.prune.keep_gb, now)
    left.sort(key=lambda entry: -entry.bytes if config.sort == "size" else entry.used)
    kinds: dict[str, list[int]] = {}
    for entry in sorted(left, key=lambda entry: entry.kind):
        kinds.setdefault(entry.kind.split("/")[0], []).append(entry.bytes)
    found = CacheListing(
        path=kept.location,
        bytes=sum(entry.bytes for entry in left if entry.state != "foreign"),
        pruned=CacheSize(len(removed), sum(entry.bytes for entry in removed)),
        busy=len(busy),
        damaged=sum(entry.state == "damaged" for entry in left),
        foreign=sum(entry.state == "foreign" for entry in left),
        kinds={kind: CacheSize(len(sizes), sum(sizes)) for kind, sizes in kinds.items()},
        entries=[
            ListedEntry(
                entry.kind, entry.key, entry.bytes, _about(entry.identity), _days(now - entry.used), entry.state
            )
            for entry in left
        ],
    )
    return CommandAnswer(found, _cache_report(found, config.show))


def _cache_report(found: CacheListing, rows: int) -> Report:
    columns = [Column("MB", "value", 1), Column("days unused", "value", 1), *map(Column, ("kind", "of", "key"))]
    entries: list[list[Cell]] = []
    for entry in found.entries[:rows]:
        kind = entry.kind.split("/")[0] + ("" if entry.state == "finished" else f" ({entry.state})")
        entries.append([entry.bytes / 1e6, entry.unused_days, kind, entry.about, entry.key[:12]])
    lines = [f"{kind}: {size.text()}" for kind, size in found.kinds.items()]
    lines.append(f"{found.path}: {found.bytes / 1e6:,.1f} MB in all")
    if found.pruned.entries:
        lines.append(f"Pruned {found.pruned.text()}.")
    if found.damaged:
        lines.append(f"Damaged: {counted(found.damaged, 'entry')}. Pruning removes them. They are rebuilt when needed.")
    if found.foreign:
        lines.append(f"{found.foreign} folders do not belong to the cache, and are never pruned.")
    if found.busy:
        lines.append(f"Skipped {counted(found.busy, 'entry')} in use by another process.")
    return Report("", tables=[Table("", columns, entries)], files=lines)


def _prune(
    store: Cache, unused_days: float | None, keep_gb: float | None, now: float
) -> tuple[list[CacheEntry], list[CacheEntry], list[CacheEntry]]:
    """Remove entries unused for `unused_days`, then those unused longest until at most `keep_gb` (10^9 bytes) are left.

    With either limit, also remove damaged entries. Never remove or count foreign folders. now: seconds since 1970.
    Return the remaining entries, the removed entries, and the entries kept only because a process uses them.
    """
    removed: list[CacheEntry] = []
    wanted = unused_days is not None or keep_gb is not None
    while True:  # repeat: a file that two entries share is freed only when both are removed
        left, gone, busy = [], [], []
        entries = sorted(store.entries(), key=lambda entry: entry.used)
        size = sum(entry.bytes for entry in entries if entry.state != "foreign")
        for entry in entries:
            old = unused_days is not None and now - entry.used > unused_days * DAY
            useless = wanted and entry.state == "damaged"
            too_much = keep_gb is not None and size > keep_gb * 1e9
            if entry.state == "foreign" or not (old or useless or too_much):
                left.append(entry)
            elif store.remove(entry):
                gone.append(entry)
                size -= entry.bytes
            else:
                busy.append(entry)
        removed += gone
        if not gone:
            return left + busy, removed, busy


def _days(seconds: float) -> float:
    return round(seconds / DAY, 3)


def _about(identity: Any) -> str:
    """Describe an entry by what its identity names: classes, models, purposes, file counts. Example: `BM25 kiwi`."""
    names = []
    if isinstance(identity, Mapping):
        if isinstance(chunk := identity.get("chunk"), Mapping) and isinstance(files := identity.get("files"), Mapping):
            names.append(f"{counted(len(files), 'file')}, {chunk.get('size')} {chunk.get('unit')}")
        if isinstance(identity.get("target"), str):
            names.append(identity["target"].rpartition(".")[2])
        names += [identity[key] for key in ("model", "purpose") if isinstance(identity.get(key), str)]
        names += [_about(value) for value in identity.values()]
    return " ".join(name for name in names if name)


def _kernels(config: DoctorConfig) -> Iterator[Finding]:
    folder, numba = code_folder(), importlib.metadata.version("numba")
    if all_compiled():
        yield Finding("kernels", "ok", f"compiled for this processor and numba {numba}, in {folder}")
    elif not is_lasting(folder):
        yield Finding("kernels", "warning", NOT_LASTING, REMEDY)
    else:
        said = f"not compiled for this processor and numba {numba}: the first command that needs them compiles them"
        yield Finding("kernels", "ok", f"{said}, or `harness doctor warm`")


def _versions(config: DoctorConfig) -> Iterator[Finding]:
    from packaging.requirements import Requirement

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", python)
    for line in importlib.metadata.requires("retrieval-harness") or ():
        wanted = Requirement(line)
        extras = ("", "dense")
        extra = next((one for one in extras if not wanted.marker or wanted.marker.evaluate({"extra": one})), None)
        if extra is None:
            continue  # only extras other than `dense` require it
        try:
            installed = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            if extra:
                problem = "not installed: dense retrieval needs it, except with encoder=use_multilingual or lsa"
                yield Finding(wanted.name, "warning", problem, "pip install 'retrieval-harness[dense]'")
            else:
                yield Finding(wanted.name, "error", "not installed", "pip install retrieval-harness")
            continue
        if wanted.specifier.contains(installed, prereleases=True):
            yield Finding(wanted.name, "ok", installed)
        else:
            problem = f"{installed}, but {wanted.specifier} is needed"
            yield Finding(wanted.name, "error", problem, f"pip install '{wanted.name}{wanted.specifier}'")


def _tracking(config: DoctorConfig) -> Iterator[Finding]:
    try:
        tracker = open_tracker(config)
    except Exception as error:
        yield Finding("tracking", "error", str(error), "Check tracking.uri and MLFLOW_TRACKING_URI.")
        return
    known = f"{shown_address(tracker.uri)}, {counted(len(tracker.experiments()), 'experiment')}"
    yield Finding("tracking", "ok", known if tracker.keeps_runs else "none: runs are not logged")


def _disk(config: DoctorConfig) -> Iterator[Finding]:
    folder = config.outputs.absolute()
    folder = next(one for one in (folder, *folder.parents) if one.exists())
    free = shutil.disk_usage(folder).free
    text, remedy = (
        f"{free / 1e9:,.1f} GB free at {folder}",
        "Free some space, or choose another folder: outputs=FOLDER.",
    )
    yield Finding("disk", "warning", text, remedy) if free < FREE_BYTES else Finding("disk", "ok", text)


def _cluster(config: DoctorConfig) -> Iterator[Finding]:
    cluster: Cluster = build(config.cluster, where="cluster")
    try:
        if said := cluster.examined():
            yield Finding("cluster", "ok", said)
    except (BadInput, Failed) as error:
        yield Finding("cluster", "error", str(error))


def _fonts(config: DoctorConfig) -> Iterator[Finding]:
    if name := figure.hangul_font():
        yield Finding("fonts", "ok", f"figures show Hangul in {name}")
    else:
        problem = "no font has Hangul: figures show Korean text in Latin letters; pages are not affected"
        yield Finding("fonts", "warning", problem, "Install a Korean font, for example: apt-get install fonts-nanum")


def _hub(config: DoctorConfig) -> Iterator[Finding]:
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310
            yield Finding("model hub", "ok", f"{shown_address(address)} answers")
    except (OSError, ValueError) as error:
        yield Finding(
            "model hub",
            "warning",
            f"{shown_address(address)} cannot be reached ({type(error).__name__}); BM25 and encoder=use_multilingual "
            "need no hub",
            "For dense models: set HF_ENDPOINT to a mirror, copy another machine's hub cache, or use a local folder.",
        )
