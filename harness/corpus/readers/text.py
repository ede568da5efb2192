"""Plain text and Markdown: as they are, with their markup."""

from __future__ import annotations

from pathlib import Path

from harness.corpus.encodings import decoded
from retrievers.base import BadInput

_MARKED = (b"\xff\xfe", b"\xfe\xff")  # UTF-16, where every other byte may be 0
_PRINTED = bytes(set(range(256)) - {one for one in range(32) if one not in b"\t\n\v\f\r\x1a"} - {127})
_FEW = 1000  # bytes for each control character that a text may have


def read(path: Path) -> list[str]:
    """The text of the file."""
    data = path.read_bytes()
    if not data.startswith(_MARKED):
        _check_printed(data, path)
    return [decoded(data, path)]


def _check_printed(data: bytes, path: Path) -> None:
    """Refuse what is no text: any byte 0, or more control characters than slip into texts."""
    zero = data.find(b"\0")
    if zero >= 0:
        hint = " Is it UTF-16 without a byte order mark? Save it as UTF-8." if _every_other(data) else ""
        line = data.count(b"\n", 0, zero) + 1
        raise BadInput(f"{path}:{line}: byte 0x00 at {zero:,}: the file is binary, not text.{hint}")
    odd = len(data.translate(None, _PRINTED))
    if odd > 1 + len(data) / _FEW:
        raise BadInput(f"{path}: {odd:,} of {len(data):,} bytes are control characters: the file is binary, not text.")


def _every_other(data: bytes) -> bool:
    """Whether zeros stand where UTF-16 has them in Western text, in the first bytes at even or at odd places."""
    start = data[:1000]
    return max(start[::2].count(0), start[1::2].count(0)) > len(start) / 5
