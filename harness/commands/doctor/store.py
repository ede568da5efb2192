"""The check of the cache: whether it can be read and written, and whether those who share it exclude each other."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import children
from harness.commands.doctor.finding import Finding
from harness.config.commands import DoctorConfig
from harness.config.places import full_place
from harness.config.text import counted
from harness.errors import BadInput, Failed
from harness.storage.bucket import server_name
from harness.storage.bucket_entries import BucketEntries
from harness.storage.cache import Cache, open_cache

ELSEWHERE = "Choose another folder: store.path=FOLDER or HARNESS_CACHE."
_TRY_LOCK = "import sys, filelock; filelock.FileLock(sys.argv[1]).acquire(timeout=0)"  # fails where it is held


def findings(config: DoctorConfig) -> Iterator[Finding]:
    """What there is to say about the cache that `store.path` names."""
    path = full_place(config.store.path)
    try:
        cache = open_cache(path)
        yield _bucket(cache, cache.bucket) if cache.bucket else _folder(cache, Path(path))
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
        said += f"; locks do not work on its file system ({_file_system(root)}), so processes compute the same twice"
        return Finding("cache", "warning", said, f"Mount it with locks. {ELSEWHERE}")
    if damaged := sum(entry.state == "damaged" for entry in entries):
        said += f"; damaged: {counted(damaged, 'entry')}"
        return Finding("cache", "warning", said, "What is damaged is built again when needed.")
    return Finding("cache", "ok", f"{said}; locks work ({_file_system(root)})")


def _excludes(file: Path) -> bool:
    """Whether a process that holds a lock keeps another one of this machine from taking it."""
    from filelock import FileLock

    with FileLock(file):
        _, said = children.start(["-c", _TRY_LOCK, str(file)], stderr=subprocess.PIPE).communicate()
    return b"Timeout" in said


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on, such as ext4 or nfs4."""
    try:
        mounts = [line.split(" ") for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:  # not Linux
        return "unknown"
    above = {Path(mount[1]): mount[2] for mount in mounts if folder.resolve().is_relative_to(Path(mount[1]))}
    return above[max(above, key=lambda place: len(place.parts))] if above else "unknown"


def _bucket(cache: Cache, bucket: BucketEntries) -> Finding:
    entries, copied = cache.entries(), Cache(cache.root).entries()
    said = (
        f"{cache.location} at {server_name()}: {counted(len(entries), 'entry')}, "
        f"{sum(one.bytes for one in entries) / 1e6:,.1f} MB, of which {sum(one.bytes for one in copied) / 1e6:,.1f} MB "
        f"are copied to {cache.root}; `harness doctor cache` lists and prunes it, and with store.path={cache.root} the "
        "copy"
    )
    if not bucket.writable:
        remedy = "To build what is not cached, use credentials with s3:PutObject and s3:DeleteObject."
        return Finding("cache", "warning", f"{said}; these credentials may only read it", remedy)
    if not bucket.encrypted:
        remedy = "Use an address with https in AWS_ENDPOINT_URL, or a network that you trust."
        return Finding("cache", "warning", f"{said}; what is sent is not encrypted", remedy)
    return Finding("cache", "ok", f"{said}; conditional writes work")
