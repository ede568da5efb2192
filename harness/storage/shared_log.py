"""A log that machines share through a bucket: each writes a file of its own, and sends what it has added.

The log of a machine is `replies.log`, a file of lines to which lines are only ever added. What is new in it becomes an
object `<writer>-<first byte>.log`. Other machines fetch it to a file of that name, which never changes. So all that was
paid for lies on the disk of the machine that paid from the first moment, and half a minute later in the bucket.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import BadInput, Failed
from harness.storage.atomic import create_text, write_text
from harness.storage.bucket import Bucket

log = logging.getLogger(__name__)
SEND_SECONDS = 30.0  # between two segments: the most that a machine loses that never comes back
FILE = "replies.log"
OTHERS = "*-*.log"  # files of other machines that share a log
WRITER = "writer"  # the file that names who writes `replies.log`


class SharedLog:
    """The log in a folder. start: what the names of its objects begin with."""

    def __init__(self, bucket: Bucket, start: str, folder: Path) -> None:
        self._bucket, self._start, self._folder = bucket, start, folder
        self._sent = 0  # bytes of our file that are in the bucket
        self._sending = threading.Lock()
        create_text(folder / WRITER, uuid.uuid4().hex)

    def fetch(self) -> None:
        """Fetch what other machines have added."""
        writer, self._sent = (self._folder / WRITER).read_text("utf-8"), 0
        for one in self._bucket.listed(self._start):
            name = one.name.removeprefix(self._start)
            owner, _, first = name.removesuffix(".log").rpartition("-")
            if not (name.endswith(".log") and owner.isalnum() and first.isdecimal()):
                continue
            if owner == writer:
                self._sent = max(self._sent, int(first) + one.size)
            elif not (self._folder / name).exists() and (content := self._bucket.read(one.name)):
                arriving = self._folder / f".{uuid.uuid4().hex}"
                arriving.write_bytes(content.data)
                arriving.rename(self._folder / name)

    def send(self) -> None:
        """Send the lines of our file that are not in the bucket. The caller holds the lock of the log."""
        with self._sending:
            if not (file := self._folder / FILE).exists():
                return
            with file.open("rb") as lines:
                lines.seek(self._sent)
                new = lines.read()
            new = new[: new.rfind(b"\n") + 1]
            if new:
                writer = (self._folder / WRITER).read_text("utf-8")
                self._bucket.write(f"{self._start}{writer}-{self._sent:015d}.log", new)
                self._sent += len(new)

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Fetch what others have added, and send what is added meanwhile. The caller holds the log's locks."""
        self.fetch()
        file = self._folder / FILE
        if self._sent > (file.stat().st_size if file.exists() else 0):  # our file was lost: the bucket has what it had
            write_text(self._folder / WRITER, uuid.uuid4().hex)
            self.fetch()
        over = threading.Event()
        sender = threading.Thread(target=self._keep_sending, args=(over,), name="replies", daemon=True)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()
            try:
                self.send()
            except (BadInput, Failed) as error:
                log.warning("%s: replies are not in the bucket yet, and will be sent the next time. %s", file, error)

    def _keep_sending(self, over: threading.Event) -> None:
        while not over.wait(SEND_SECONDS):
            try:
                self.send()
            except (BadInput, Failed):
                continue  # the server may answer the next time
