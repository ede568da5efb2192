"""Read, list and conditionally write the objects in a bucket, with s3fs. Each error names a remedy.

The environment gives the region (AWS_DEFAULT_REGION), the server (AWS_ENDPOINT_URL) and the credentials
(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; otherwise the machine's role). No message shows the credentials.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.config.places import BucketPlace
from harness.errors import BadInput, Failed
from retrievers.hosts import name_host

CONNECT_SECONDS, READ_SECONDS = 3, 30  # time limits of a request
ATTEMPTS = 3
PARTS = {"chunksize": 16 << 20, "max_concurrency": 4}  # how a large file is sent or fetched
WHOLE_BYTES = 8 << 20  # files up to this size take one request
REMOVED_AT_ONCE = 1000  # maximum number of objects that S3 deletes in one request
INSTALL = "pip install -c constraints.txt -e '.[s3]'"
LOUD = ("botocore", "aiobotocore", "s3fs", "fsspec")  # loggers that write headers, including session tokens
WRONG_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired")
TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")  # error codes: another process wrote first
ABSENT = ("NoSuchKey", "404")
OWN = "Or use your own cache: store.path=FOLDER."


class NotAllowed(BadInput):
    """The credentials do not allow a request."""


@dataclass(frozen=True)
class StoredObject:
    """An object in a listing. size: bytes. modified: when it was written, by the server's clock, in s since 1970."""

    name: str
    size: int
    modified: float


@dataclass(frozen=True)
class ObjectContent:
    """The content of an object. modified: as in `StoredObject`. etag: an identifier that changes with the content."""

    data: bytes
    modified: float
    etag: str


class Bucket:
    """The objects in a bucket below a prefix; names are relative to the prefix. Threads and forks may share a `Bucket`.

    Methods raise BadInput for errors that the user can fix, such as credentials; Failed if the server stops answering.
    """

    def __init__(self, place: BucketPlace) -> None:
        self.place = place
        self._answered = False

    def read(self, name: str) -> ObjectContent | None:
        """Return an object; None if it does not exist."""

        async def whole() -> ObjectContent:
            found = await self._files._call_s3("get_object", Bucket=self.place.bucket, Key=self._key(name))
            async with found["Body"] as stream:
                return ObjectContent(await stream.read(), found["LastModified"].timestamp(), found["ETag"])

        return self._run(whole, f"read {self._url(name)}", unless=ABSENT)

    def create(self, name: str, content: bytes) -> str | None:
        """Write an object that does not exist yet. Return its ETag; None if the name is taken."""
        found = self._ask("put_object", "write", name, TAKEN, Body=content, IfNoneMatch="*")
        return str(found["ETag"]) if found else None

    def replace(self, name: str, content: bytes, etag: str) -> str | None:
        """Overwrite an object if it still has this ETag. Return the new ETag; None if the object changed or is gone."""
        found = self._ask("put_object", "write", name, (*TAKEN, *ABSENT), Body=content, IfMatch=etag)
        return str(found["ETag"]) if found else None

    def write(self, name: str, content: bytes) -> None:
        self._ask("put_object", "write", name, Body=content)

    def touch(self, name: str) -> None:
        """Set the time at which an object was last modified to now; do nothing if the object is gone."""
        source = {"Bucket": self.place.bucket, "Key": self._key(name)}
        self._ask("copy_object", "write", name, ABSENT, CopySource=source, MetadataDirective="REPLACE")

    def upload(self, file: Path, name: str) -> None:
        if file.stat().st_size <= WHOLE_BYTES:
            self.write(name, file.read_bytes())
            return
        self._run(lambda: self._files._put_file(str(file), self._path(name), **PARTS), f"write {self._url(name)}")

    def download(self, name: str, file: Path) -> bool:
        """Fetch an object. Return False if it does not exist."""

        async def fetch() -> bool:
            await self._files._get_file(self._path(name), str(file), **PARTS)
            return True

        return bool(self._run(fetch, f"read {self._url(name)}", unless=ABSENT))

    def delete(self, names: Sequence[str]) -> None:
        for first in range(0, len(names), REMOVED_AT_ONCE):
            keys = [{"Key": self._key(name)} for name in names[first : first + REMOVED_AT_ONCE]]
            self._ask("delete_objects", "write", "", Delete={"Objects": keys, "Quiet": True})

    def listed(self, start: str) -> Iterator[StoredObject]:
        """Yield all objects whose names begin with `start`, in order."""
        following: dict[str, Any] = {}
        while True:
            page = self._ask("list_objects_v2", "read", "", Prefix=self._key(start), **following)
            for one in page.get("Contents", ()):
                name = one["Key"].removeprefix(self._key(""))
                yield StoredObject(name, one["Size"], one["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            following = {"ContinuationToken": page["NextContinuationToken"]}

    def _key(self, name: str) -> str:
        return f"{self.place.prefix}/{name}" if self.place.prefix else name

    def _path(self, name: str) -> str:
        return f"{self.place.bucket}/{self._key(name)}"

    def _url(self, name: str) -> str:
        return f"s3://{self._path(name)}"

    @property
    def _files(self) -> Any:
        server = bucket_address()
        name_host(server or "https://amazonaws.com", "AWS_ENDPOINT_URL" if server else "store.path")
        return _file_system(os.getpid(), server)  # one for each process, since no client survives a fork

    def _ask(self, method: str, verb: str, name: str, unless: Sequence[str] = (), **arguments: Any) -> Any:
        """Return the reply to a request; None for an error code in `unless`. name: "" for the whole bucket."""
        asked = {"Bucket": self.place.bucket, **({"Key": self._key(name)} if name else {}), **arguments}
        return self._run(lambda: self._files._call_s3(method, **asked), f"{verb} {self._url(name)}", unless)

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]], doing: str, unless: Sequence[str] = ()) -> Any:
        """Return the result of `work`; None for an error code in `unless`. doing: `work` in words, as in "read s3://..."."""
        loop = self._files.loop
        from fsspec.asyn import sync

        try:
            found = sync(loop, work)
        except Exception as error:
            if (code := _code(error)) in unless and code:
                return None
            refusal = self._refused(error, code, doing)
            if refusal is None:
                raise  # an error of this machine, such as a full disk
            raise refusal from None
        self._answered = True
        return found

    def _refused(self, error: Exception, code: str, doing: str) -> BadInput | Failed | None:
        """Return the error to raise for an error of the server or its client; None for an error of this machine."""
        from botocore import exceptions as known

        where, kind = self.place.url, type(error).__name__
        if code in ("AccessDenied", "AllAccessDisabled", "403"):
            return NotAllowed(f"These credentials may not {doing} ({code}). {_RIGHTS[doing.startswith('write')]} {OWN}")
        if code == "NoSuchBucket":
            problem = f"{server_name()} has no bucket {self.place.bucket!r}. Create it first."
        elif code in WRONG_KEYS:
            problem = (
                f"{server_name()} does not accept these credentials ({code}). Check AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN."
            )
        elif isinstance(
            error, known.NoCredentialsError | known.PartialCredentialsError | known.CredentialRetrievalError
        ):
            problem = (
                f"there are no credentials ({kind}). Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this "
                "machine a role."
            )
        elif isinstance(error, known.ConnectionError | known.HTTPClientError | TimeoutError) or code in _BUSY:
            problem = f"cannot {doing}: {server_name()} does not answer ({code or kind})."
            if self._answered:
                return Failed(f"{where}: {problem} It answered earlier. Run again later: finished work is cached.")
            problem += " Check AWS_ENDPOINT_URL and the network."
        elif code or isinstance(error, known.BotoCoreError | ValueError):
            problem = (
                f"cannot {doing}: {server_name()} or its client refuses ({code or kind}). Check the bucket, "
                "AWS_ENDPOINT_URL and AWS_DEFAULT_REGION."
            )
        else:
            return None
        return BadInput(f"{where}: {problem} {OWN}")


_BUSY = ("500", "502", "503", "504", "InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout")
_RIGHTS = {
    False: "They need s3:GetObject and s3:ListBucket.",
    True: "Cached results can be read. To write new results, use credentials with s3:PutObject and s3:DeleteObject.",
}


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def bucket_address() -> str:
    """Return the server's address from the environment; "" for AWS."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def server_name() -> str:
    """Return the host and port of the server, without secrets."""
    try:
        address = urlsplit(bucket_address())
        return f"{address.hostname}{f':{address.port}' if address.port else ''}" if address.hostname else "AWS"
    except ValueError:
        return "the server of AWS_ENDPOINT_URL"


@functools.cache
def _file_system(process: int, server: str) -> Any:
    try:
        from s3fs import S3FileSystem
    except ModuleNotFoundError as error:
        raise BadInput(f"store.path=s3://... needs the package {error.name}: {INSTALL}. {OWN}") from None
    if server and not server.startswith(("http://", "https://")):
        raise BadInput(f"AWS_ENDPOINT_URL is not an address that begins with https:// or http://. {OWN}")
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.INFO)
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    settings = {"retries": retries, "connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
    files = S3FileSystem(config_kwargs=settings, skip_instance_cache=True, use_listings_cache=False)
    files.retries = 1  # botocore repeats requests itself
    return files
