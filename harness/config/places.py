"""The places of the cache (a folder, or a prefix in a bucket) and of the shipped configs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BadInput

KEY = "store.path"
SUPPORTED = f"{KEY} is a folder, or s3://BUCKET/PREFIX in a store that speaks S3 (AWS_ENDPOINT_URL names its server)"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_S3 = ("s3", "s3a", "s3n")  # other tools use these names for the same scheme


@dataclass(frozen=True)
class BucketPlace:
    """A place in an object store. prefix: the beginning of all object names; it may be ""."""

    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def bucket_place(path: str) -> BucketPlace | None:
    """Return the place in an object store that `store.path` names; None if it names a folder.

    Raise BadInput for an address that is not supported or contains secrets. The message does not repeat the secrets.
    """
    if not (scheme := _SCHEME.match(path)):
        return None
    name, rest = scheme.group(1), path[scheme.end() :]
    if "@" in path or "?" in path or "#" in path or re.match(r"/[^/]*:", rest):
        raise BadInput(
            f"{KEY}: this address has more than a bucket and a prefix. Remove the text before an @, and the text after "
            f"a ?, a # or a colon. Addresses are logged, so credentials come from the environment. {SUPPORTED}."
        )
    if name != "s3" or not rest.startswith("/"):
        if name.lower() in _S3:
            raise BadInput(f"{KEY}={path:.200}: write s3://{rest.lstrip('/'):.200} instead.")
        raise BadInput(f"{KEY}={path:.200}: {name}:// is not supported. {SUPPORTED}.")
    bucket, _, prefix = rest[1:].partition("/")
    return BucketPlace(bucket, prefix.rstrip("/"))


def is_address(path: object) -> bool:
    """Return whether a value looks like an address, even an invalid one."""
    return isinstance(path, str) and bool(_SCHEME.match(path))


def full_place(path: str) -> str:
    """Return a place as an address or an absolute path, which does not depend on the working folder."""
    return place.url if (place := bucket_place(path)) else str(Path(path).absolute())


def conf_folder() -> Path:
    """Return the folder of the shipped configs, in the installed package or, in a checkout, beside the package."""
    package = Path(__file__).parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"
