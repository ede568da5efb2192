"""Work in progress: claims by which the next command finds what a process that died has not ended.

A claim is a file in `<outputs>/.claims` that its process keeps locked. The system releases the lock however the process
ends, even by SIGKILL: a claim that can be locked belongs to a process that has died. Claims of other hosts are theirs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

TAG = "harness.claim"  # of a run: the name of its claim


@dataclass(frozen=True)
class Work:
    """What a process is going to end.

    folder: where it writes; None if that is the tracking store's own folder.
    scratch: whether the folder is of no use to anybody once the process has died.
    experiment, store: of its run; None without one. The run has the claim's name as a tag.
    """

    folder: str | None = None
    scratch: bool = False
    experiment: str | None = None
    store: str | None = None


class Claim:
    """A claim that this process has locked. work: None if its process died before it could say."""

    def __init__(self, file: Path, descriptor: int, work: Work | None) -> None:
        self.file, self.work, self._descriptor = file, work, descriptor

    @property
    def name(self) -> str:
        return self.file.name

    def release(self) -> None:
        """Remove the claim: the work is ended."""
        self.file.unlink(missing_ok=True)
        self.unlock()

    def unlock(self) -> None:
        """Leave the claim to the next command."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def claim(outputs: Path, work: Work) -> Claim:
    """Claim work before it begins. Where files cannot be locked, the claim is no more than a name."""
    folder = outputs / ".claims"
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        file = folder / f"{_host()}~{secrets.token_hex(6)}"
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        locked = _lock(descriptor)
        if locked is None:
            file.unlink()
        elif not locked or not os.fstat(descriptor).st_nlink:  # taken for an abandoned one, just before it was locked
            os.close(descriptor)
            continue
        made = Claim(file, descriptor, work)
        try:
            os.write(descriptor, json.dumps(asdict(work)).encode())
        except OSError as error:  # such as of a full disk: the message is to say where
            made.release()
            error.filename = str(file)
            raise
        return made


def abandoned(outputs: Path) -> Iterator[Claim]:
    """The claims of this host whose processes have died, each locked until the next one is asked for."""
    for file in sorted((outputs / ".claims").glob(f"{_host()}~*")):
        if not file.is_file():  # reading a pipe would wait for ever
            continue
        try:
            descriptor = os.open(file, os.O_RDWR)
        except OSError:  # just released, or of another user
            continue
        found = Claim(file, descriptor, None)
        try:
            if _lock(descriptor):
                found.work = _work(os.read(descriptor, 1_000_000), outputs)
                yield found
        finally:
            found.unlock()


def _work(text: bytes, outputs: Path) -> Work | None:
    """The work in a claim; None if it is damaged. Its folder is inside `outputs`: others are not ours to remove."""
    with suppress(ValueError, TypeError, RecursionError):
        work = Work(**json.loads(text))
        texts = all(isinstance(one, str | None) for one in (work.folder, work.experiment, work.store))
        inside = work.folder is None or outputs.resolve() in Path(work.folder).resolve().parents
        return work if texts and inside and isinstance(work.scratch, bool) else None
    return None


def _lock(descriptor: int) -> bool | None:
    """Whether a file could be locked; None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _host() -> str:
    return re.sub(r"[^\w.-]", "_", socket.gethostname())
