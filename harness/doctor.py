"""The verb `doctor`: is everything here that a run needs, and what to do about what is not."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness import report
from harness.config import Asked, build
from harness.tracking import redacted

if TYPE_CHECKING:
    from rich.console import Console

FREE_BYTES = 2_000_000_000  # less than this on the disk of the outputs is worth a warning
COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@dataclass(frozen=True)
class Finding:
    about: str
    state: Literal["ok", "warning", "error"]
    said: str
    remedy: str = ""


def doctor(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
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

    report.emit(config["format"], document, show)
    if any(finding.state == "error" for finding in findings):
        sys.exit(1)
    return document


def _versions(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Python and every declared dependency against the version that the package asks for."""
    from packaging.requirements import Requirement

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", python)
    for line in importlib.metadata.requires("retrieval-harness") or ():
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue  # belongs to an extra
        try:
            found = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
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
    yield Finding("cache", "ok", f"{root}, {sum(sizes) / 1e6:,.1f} MB; it may be deleted at any time")


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
