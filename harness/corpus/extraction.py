"""Extract the text of files by a reader for each format.

Foreign parsers run in a separate process, so no file can hang or crash the harness or fill its memory. To add a format,
write a function that takes a path and returns the texts of the pages, and add a row to READERS.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from harness import children
from harness.corpus import readers
from harness.errors import BadInput, Failed, did_you_mean

# The new process gets the module search path of this process, because both must import the same modules.
_START = (
    "import sys; sys.path[:] = {path!r}; from harness.corpus.extraction import serve; serve({function!r}, {limits!r})"
)


_GROWN = 300 << 20  # bytes; a process is ended if it holds more memory than this after a call


class Ended(Exception):
    """The process ended during a call. The message continues a sentence that begins with "it"."""


class Apart:
    """Call a function in a separate process, which ends if a call fails or this object is closed. Threads take turns.

    function: `module:name` of a function from text to a JSON value. seconds: processor time for each call.
    memory: bytes that the process may use in addition to those at its start (only on Linux).
    """

    def __init__(self, function: str, seconds: int, memory: int) -> None:
        self.function, self.seconds, self.memory = function, seconds, memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # id of the process that started `_process`; after a fork, the child must start its own
        atexit.register(self.close)

    def __call__(self, argument: str) -> Any:
        """Return the function's result, or raise its BadInput. Other errors become RuntimeError with the traceback.

        Raise Ended if the input ended the process, and Failed if something else ended it.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError):  # if the process has ended, its exit code says why
                    process.stdin.write(json.dumps(argument).encode() + b"\n")
                    process.stdin.flush()
                reply = process.stdout.readline()
            except BaseException:  # a late reply would be taken for the reply to the next call
                self._end()
                raise
            if not reply.endswith(b"\n"):
                self._process = None
                raise Ended(self._why(process.wait()))
            kind, value, grown = json.loads(reply)
            if grown:
                self._end()
        if kind == "refused":
            raise BadInput(value)
        if kind == "failed":
            raise RuntimeError(value)
        if kind == "memory":
            raise Ended(self._too_much())
        return value

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            limits = (self.seconds, self.memory)
            code = _START.format(path=sys.path, function=self.function, limits=limits)
            self._process = children.start(
                ["-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C interrupts only the caller, which then ends the new process
            )
            self._owner = os.getpid()
        return self._process

    def _why(self, code: int) -> str:
        if code == -signal.SIGPROF:
            return f"takes more than {self.seconds} s of processor time"
        if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGTRAP):
            return f"crashes its reader ({signal.Signals(-code).name}), as damaged files do, or {self._too_much()}"
        raise Failed(
            f"The process that calls {self.function} ended with exit code {code}; the input is not the cause. This "
            "machine may lack memory. Run the command again."
        )

    def _too_much(self) -> str:
        return f"takes more than {self.memory >> 20:,} MB of memory"


def serve(function: str, limits: tuple[int, int]) -> None:
    """Call a function for each line of standard input, and write one line in reply."""
    import importlib

    seconds, memory = limits
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    replies = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 (a library may print)
        os.dup2(nothing.fileno(), 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if held := _held():  # limited only on Linux: other systems ignore the limit or count reserved memory
        resource.setrlimit(resource.RLIMIT_AS, (held[0] + memory, held[0] + memory))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # when this time is up, a signal ends the process
        _reply(replies, call, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _reply(replies: IO[bytes], call: Callable[[str], Any], argument: str) -> None:
    try:
        line = _encoded("done", call(argument))
    except BadInput as error:
        line = _encoded("refused", str(error))
    except MemoryError:
        line = _encoded("memory", "")
    except Exception:
        line = _encoded("failed", traceback.format_exc())
    replies.write(line)
    replies.flush()


def _encoded(kind: str, value: Any) -> bytes:
    line = json.dumps([kind, value], ensure_ascii=False).encode()
    held = _held()
    return line[:-1] + (b", true]\n" if held and held[1] > _GROWN else b", false]\n")


def _held() -> tuple[int, int] | None:
    """Return (bytes of address space, bytes in memory) of this process; None except on Linux."""
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        size, resident = file.read().split()[:2]
    return int(size) * resource.getpagesize(), int(resident) * resource.getpagesize()


HEAD = 1024  # number of bytes at the start of a file that are examined
_OFFICE = "Save it as PDF, HTML or text"
_HANGUL = "Save it as HWPX in Hangul (Save As), or as PDF"
_PICTURE = "It needs OCR: give the text that OCR finds"
_PACKED = "Unpack it"
_TABLE = "Write its content as text; documents in JSON lines need no preparation"
_BEGINNINGS = (  # (first bytes, kind, what to do)
    (b"%PDF-", "PDF", "Rename it to end in .pdf"),
    (b"PK\x03\x04", "a zip archive", "Unpack it, or rename it to end in .hwpx if it is HWPX"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old binary HWP or Office file", f"{_HANGUL}, HTML or text"),
    (b"HWP Document File", "an old binary HWP file", _HANGUL),
    (b"{\\rtf", "RTF", _OFFICE),
    (b"\x89PNG", "a PNG picture", _PICTURE),
    (b"\xff\xd8\xff", "a JPEG picture", _PICTURE),
    (b"\x1f\x8b", "a gzip archive", _PACKED),
)
_SUFFIXES = {
    _HANGUL: (".hwp", ".hwt", ".hml"),
    _OFFICE: (".doc", ".docx", ".odt", ".rtf", ".ppt", ".pptx", ".odp", ".epub", ".mht", ".mhtml", ".eml"),
    _PICTURE: (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic"),
    _PACKED: (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z", ".rar", ".egg", ".alz"),
    _TABLE: (".csv", ".tsv", ".json", ".jsonl", ".xls", ".xlsx", ".ods", ".parquet", ".db", ".xml", ".yaml", ".yml"),
}
_ADVICE = {suffix: advice for advice, suffixes in _SUFFIXES.items() for suffix in suffixes}


_MB = 1 << 20
_SECONDS, _MEMORY = 60, 1536 * _MB  # limits for a file that a foreign library parses
_LINE_END = re.compile(r"\r\n?")


@dataclass(frozen=True)
class Extracted:
    """The text of a file, in Unicode NFC, with `\\n` as line end and without byte order mark.

    pages: start of each page in code points; None if the format has no pages. reader: name and versions of the reader.
    """

    text: str
    pages: tuple[int, ...] | None
    reader: str


@dataclass(frozen=True)
class Reader:
    """A reader of a file format. Increase `version` when a changed reader returns another text for the same file.

    read: returns the texts of a file's pages, or one text; raises BadInput that names the path.
    suffixes: endings of names, in lower case. largest: maximum bytes of a file. package: the library that parses.
    begins: bytes that the first `HEAD` bytes of a file must contain; b"" if the format has none.
    apart: whether to parse in a separate process. paged: whether the texts are pages.
    """

    name: str
    version: int
    read: Callable[[Path], Sequence[str]]
    suffixes: tuple[str, ...]
    largest: int
    begins: bytes = b""
    package: str = ""
    apart: bool = False
    paged: bool = False

    @property
    def recorded(self) -> str:
        """The name and versions, such as "pdf 1, pypdfium2 5.15.2"."""
        from importlib.metadata import version

        return f"{self.name} {self.version}" + (f", {self.package} {version(self.package)}" if self.package else "")


READERS = (
    Reader("text", 1, readers.read_text, (".txt", ".text", ".md", ".markdown", ""), 128 * _MB),
    Reader("html", 1, readers.read_html, (".html", ".htm", ".xhtml"), 64 * _MB, package="selectolax", apart=True),
    Reader("pdf", 1, readers.read_pdf, (".pdf",), 512 * _MB, b"%PDF-", "pypdfium2", apart=True, paged=True),
    Reader("hwpx", 1, readers.read_hwpx, (".hwpx",), 256 * _MB, b"PK\x03\x04", apart=True),
)
_apart = Apart(f"{__name__}:extract_here", _SECONDS, _MEMORY)


def extract(path: Path) -> Extracted:
    """Return a file's text. Raise BadInput, which names the file and perhaps a line or page, if it is unreadable."""
    reader = reader_of(path)
    if not reader.apart:
        return _formed(reader, path)
    try:
        found = _apart(str(path.absolute()))
    except Ended as ended:
        raise BadInput(f"{path}: reading it {ended}. Split the file, or leave it out of files.") from None
    except BadInput as error:
        raise BadInput(str(error).replace(str(path.absolute()), str(path))) from None
    return Extracted(found["text"], None if found["pages"] is None else tuple(found["pages"]), found["reader"])


def extract_here(path: str) -> dict[str, Any]:
    """Return the fields of `Extracted` for a file, read in this process without limits."""
    return asdict(_formed(reader_of(Path(path)), Path(path)))


def reader_of(path: Path) -> Reader:
    """Return the reader of a file. Raise BadInput if there is none, or if the file is empty, too large or misnamed."""
    suffix = path.suffix.lower()
    reader = next((one for one in READERS if suffix in one.suffixes), None)
    size, head = _looked_at(path)
    kind, advice = next((found for beginning, *found in _BEGINNINGS if head.startswith(beginning)), ("", ""))
    if reader is None:
        raise _unknown(path, suffix, kind, advice)
    if not size:
        raise BadInput(f"{path}: the file is empty. Add text to it, or leave it out of `files`.")
    if size > reader.largest:
        raise BadInput(
            f"{path}: the file has {size / _MB:,.0f} MB, but {reader.name} is limited to {reader.largest // _MB} MB. "
            "Split it."
        )
    if reader.begins not in head:
        what = f"is {kind}. {advice}" if kind else f"does not begin with {reader.begins!r:.10}. Is it complete"
        raise BadInput(f"{path}: the name says {reader.name.upper()}, but the file {what}{'.' if kind else '?'}")
    if kind and not reader.begins:
        raise BadInput(f"{path}: the name says {reader.name}, but the file is {kind}. {advice}.")
    return reader


def _looked_at(path: Path) -> tuple[int, bytes]:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"{path} is not a file. Name a file.")
        with path.open("rb") as file:
            return found.st_size, file.read(HEAD)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} cannot be opened: {error}.") from None


def _unknown(path: Path, suffix: str, kind: str, advice: str) -> BadInput:
    known = [one for reader in READERS for one in reader.suffixes if one]
    what = f"{path} is {kind}, which is not read" if kind else f"{path}: there is no reader for {suffix}"
    remedy = (
        _ADVICE.get(suffix)
        or advice
        or f"Known suffixes are {', '.join(known)}: rename the file if it is text, or leave it out"
    )
    return BadInput(f"{what}.{did_you_mean(suffix, known)} {remedy}.")


def _formed(reader: Reader, path: Path) -> Extracted:
    try:
        pages = reader.read(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    formed = [unicodedata.normalize("NFC", _LINE_END.sub("\n", page.lstrip("\ufeff"))) for page in pages]
    if all(not page or page.isspace() for page in formed):
        raise BadInput(f"{path}: the file holds no text, only white space. Add text to it, or leave it out of `files`.")
    starts, at = [], 0
    for page in formed:
        starts.append(at)
        at += len(page) + 1
    return Extracted("\n".join(formed), tuple(starts) if reader.paged else None, reader.recorded)
