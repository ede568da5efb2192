"""The entries of a cache in a bucket, as its listing and their manifests describe them."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.storage.bucket import Bucket, Content, Found
from harness.storage.entries import KEY, MANIFEST, Entry, parsed_manifest

AT_ONCE = 16  # manifests that are read
CHECKSUM = 16  # hexadecimal digits of a file's sha256 in the name of its object


def object_name(folder: str, file: str, checksum: str) -> str:
    """The name of the object that holds a file of an entry. folder: `<kind>/<key>`. checksum: sha256 of the file.

    Two contents of one file have two names, so no process writes over what another has finished.
    """
    return f"{folder}/{file}.{checksum[:CHECKSUM]}"


def entries(bucket: Bucket) -> list[Entry]:
    """All entries, in order of their names. Their last use is known to a day: `ObjectCache` notes it once a day."""
    folders: dict[str, list[Found]] = defaultdict(list)
    for one in bucket.listed(""):
        if folder := _folder(one.name):
            folders[folder].append(one)
    kept = [name for name, objects in folders.items() if any(one.name == f"{name}/{MANIFEST}" for one in objects)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        manifests = dict(zip(kept, pool.map(lambda name: bucket.read(f"{name}/{MANIFEST}"), kept), strict=True))
    return [_described(name, objects, manifests.get(name)) for name, objects in sorted(folders.items())]


def contents(bucket: Bucket, name: str) -> Iterator[bytes]:
    """What is in each file `name` of a finished entry, wherever in the entry; damaged files are left out."""
    finished = {f"{one.kind}/{one.key}" for one in entries(bucket) if one.state == "finished"}
    wanted = re.compile(rf"(?:.*/)?{re.escape(name)}\.([0-9a-f]{{{CHECKSUM}}})")
    for one in bucket.listed(""):
        if (found := wanted.fullmatch(one.name)) and _folder(one.name) in finished:
            content = bucket.read(one.name)  # None: another process has just removed it
            if content and hashlib.sha256(content.data).hexdigest().startswith(found[1]):
                yield content.data


def _folder(name: str) -> str:
    """The entry that an object belongs to, as `<kind>/<key>`; empty for locks and whatever lies beside entries."""
    parts = name.split("/")
    depth = 3 if parts[0] == "pairs" and KEY.fullmatch(parts[1] if parts[1:] else "") else 2
    return "/".join(parts[:depth]) if len(parts) > depth else ""


def _described(folder: str, objects: Sequence[Found], manifest: Content | None) -> Entry:
    kind, _, key = folder.rpartition("/")
    size, changed = sum(one.size for one in objects), max(one.modified for one in objects)
    if not KEY.fullmatch(key):
        return Entry(kind, key, size, changed, "foreign", {})
    if manifest is None:
        return Entry(kind, key, size, changed, "unfinished", {})
    sizes = {one.name: one.size for one in objects}
    try:
        parsed = parsed_manifest(manifest.data)
    except ValueError:
        return Entry(kind, key, size, changed, "damaged", {})
    wanted = {object_name(folder, file, checksum): size for file, (size, checksum) in parsed["files"].items()}
    if any(sizes.get(name) != expected for name, expected in wanted.items()):
        return Entry(kind, key, size, changed, "damaged", {})
    return Entry(kind, key, size, manifest.modified, "finished", parsed["identity"])
