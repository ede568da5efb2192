"""The verbs `doctor` and `doctor cache`: what a run needs, what is wrong with it, and what the cache holds."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.config.check import Invocation
from harness.config.components import build
from harness.pipeline.cache import Cache, Entry
from harness.reports import terminal
from harness.tracking.mlflow_client import redacted

if TYPE_CHECKING:
    from rich.console import Console


DAY = 86_400
FREE_BYTES = 2_000_000_000  # less than this on the disk of the outputs is worth a warning
COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@dataclass(frozen=True)
class Finding:
    about: str
    state: Literal["ok", "warning", "error"]
    said: str
    remedy: str = ""


def doctor(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Check versions, tracking store, cache, disk and model hub. Ends with exit code 1 if something is broken."""
    checks: tuple[Callable[[Mapping[str, Any]], Iterator[Finding]], ...] = (_versions, _tracking, _cache, _disk, _hub)
    findings = [finding for check in checks for finding in check(config)]
    document = {"findings": [asdict(finding) for finding in findings]}

    def show(console: Console) -> None:
        for finding in findings:
            console.print(f"{finding.state:<9}", style=COLOURS[finding.state], end="")
            console.print(f"{finding.about}: {finding.said}")
            if finding.remedy:
                console.print(f"         {finding.remedy}")

    terminal.emit(config["format"], document, show)
    if any(finding.state == "error" for finding in findings):
        sys.exit(1)
    return document


def cache(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """List what the cache keeps by size or age, and prune it: first what is long unused, then down to a size."""
    cache = Cache(Path(config["store"]["path"]).absolute())
    now = time.time()
    kept, pruned, busy = _pruned(cache, config["prune"]["unused_days"], config["prune"]["keep_gb"], now)
    kept.sort(key=lambda entry: -entry.bytes if config["sort"] == "size" else entry.used)
    kinds = {kind: [entry for entry in kept if entry.kind.split("/")[0] == kind] for kind in _kinds(kept)}
    document: dict[str, Any] = {
        "path": str(cache.root),
        "bytes": sum(entry.bytes for entry in kept),
        "pruned": {"entries": len(pruned), "bytes": sum(entry.bytes for entry in pruned)},
        "busy": len(busy),
        "kinds": {k: {"entries": len(some), "bytes": sum(e.bytes for e in some)} for k, some in kinds.items()},
        "entries": [
            {"kind": entry.kind, "key": entry.key, "bytes": entry.bytes, "about": _about(entry.identity)}
            | {"unused_days": round((now - entry.used) / DAY, 3), "finished": entry.finished}
            for entry in kept
        ],
    }

    def show(console: Console) -> None:
        table = terminal.bare_table(("MB", "days unused", "kind", "of", "key"), left=("kind", "of", "key"))
        for entry in document["entries"][: config["show"]]:
            kind = entry["kind"].split("/")[0] + ("" if entry["finished"] else " (unfinished)")
            size, days = f"{entry['bytes'] / 1e6:,.1f}", f"{entry['unused_days']:.1f}"
            table.add_row(size, days, kind, entry["about"], entry["key"][:12])
        console.print(table)
        for kind, sums in document["kinds"].items():
            console.print(f"{kind}: {sums['entries']} entries, {sums['bytes'] / 1e6:,.1f} MB")
        console.print(f"{document['path']}: {document['bytes'] / 1e6:,.1f} MB in all")
        if pruned:
            console.print(f"Pruned {len(pruned)} entries, {document['pruned']['bytes'] / 1e6:,.1f} MB.")
        if busy:
            console.print(f"Left {len(busy)} that a process is at work on.")

    terminal.emit(config["format"], document, show)
    return document


def _pruned(cache: Cache, unused_days: float | None, keep_gb: float | None, now: float) -> tuple[list[Entry], ...]:
    """(kept, pruned, those to prune that are in use)."""
    pruned: list[Entry] = []
    while True:  # again after each round: a file that two entries share is freed with the second
        kept, gone, busy = [], [], []
        entries = sorted(cache.entries(), key=lambda entry: entry.used)
        size = sum(entry.bytes for entry in entries)
        for entry in entries:
            old = unused_days is not None and now - entry.used > unused_days * DAY
            if not old and (keep_gb is None or size <= keep_gb * 1e9):
                kept.append(entry)
            elif cache.remove(entry):
                gone.append(entry)
                size -= entry.bytes
            else:
                busy.append(entry)
        pruned += gone
        if not gone:
            return kept + busy, pruned, busy


def _kinds(entries: Iterable[Entry]) -> list[str]:
    return sorted({entry.kind.split("/")[0] for entry in entries})


def _about(identity: Any) -> str:
    """The classes and models that an identity names, such as `BM25 Kiwi` or `SentenceEncoder BAAI/bge-m3`."""
    found = []
    if isinstance(identity, Mapping):
        if isinstance(identity.get("target"), str):
            found.append(identity["target"].rpartition(".")[2])
        if isinstance(identity.get("model"), str):
            found.append(identity["model"])
        found += [_about(value) for value in identity.values()]
    return " ".join(one for one in found if one)


def _versions(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Python and every declared dependency, those of dense retrieval too, against the version that is asked for."""
    from packaging.requirements import Requirement

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", python)
    for line in importlib.metadata.requires("retrieval-harness") or ():
        wanted = Requirement(line)
        extras = ("", "dense")
        extra = next((one for one in extras if not wanted.marker or wanted.marker.evaluate({"extra": one})), None)
        if extra is None:
            continue  # belongs to another extra
        try:
            found = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            if extra:
                said = "not installed: dense retrieval, but for encoder=lsa, needs it"
                yield Finding(wanted.name, "warning", said, "pip install 'retrieval-harness[dense]'")
            else:
                yield Finding(wanted.name, "error", "not installed", "pip install retrieval-harness")
            continue
        if wanted.specifier.contains(found, prereleases=True):
            yield Finding(wanted.name, "ok", found)
        else:
            said = f"{found}, but {wanted.specifier} is needed"
            yield Finding(wanted.name, "error", said, f"pip install '{wanted.name}{wanted.specifier}'")


def _tracking(config: Mapping[str, Any]) -> Iterator[Finding]:
    tracker = build(config["tracking"], where="tracking")
    try:
        tracker.connect(Path(config["outputs"]).absolute())
    except Exception as error:
        yield Finding("tracking", "error", str(error), "Check tracking.uri and MLFLOW_TRACKING_URI.")
        return
    uri = getattr(tracker, "uri", None)
    if uri is None:
        yield Finding("tracking", "ok", "none: runs are not logged")
    else:
        count = len(tracker.client.search_experiments())
        yield Finding("tracking", "ok", f"{redacted(uri)}, {count} experiments")


def _cache(config: Mapping[str, Any]) -> Iterator[Finding]:
    root = Path(config["store"]["path"]).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        yield Finding(
            "cache", "error", f"{root}: {error.strerror}", "Choose another: store.path=FOLDER, HARNESS_CACHE."
        )
        return
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    yield Finding("cache", "ok", f"{root}, {sum(sizes) / 1e6:,.1f} MB; `harness doctor cache` lists and prunes it")


def _disk(config: Mapping[str, Any]) -> Iterator[Finding]:
    place = Path(config["outputs"]).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    said = f"{free / 1e9:,.1f} GB free at {place}"
    if free < FREE_BYTES:
        yield Finding("disk", "warning", said, "Free some, or choose another place: outputs=FOLDER.")
    else:
        yield Finding("disk", "ok", said)


def _hub(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Only dense models come from the hub; lexical retrieval needs none."""
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310
            yield Finding("model hub", "ok", f"{redacted(address)} answers")
    except (OSError, ValueError) as error:
        yield Finding(
            "model hub",
            "warning",
            f"{redacted(address)} cannot be reached ({type(error).__name__}); BM25 needs no hub",
            "For dense models: set HF_ENDPOINT to a mirror, fill the hub's cache elsewhere, or use a local folder.",
        )
