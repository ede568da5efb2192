"""Bytes to text: by a byte order mark, as UTF-8, or as CP949 where the result is plainly Korean. Never by a guess."""

from __future__ import annotations

import codecs
from itertools import islice
from pathlib import Path

from retrievers.base import BadInput

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
# Syllables that make up seven of ten in Korean prose. Chinese, Japanese or Western bytes that happen to be valid CP949
# give others.
_COMMON = frozenset(
    "이다는을의에가고하지은로한를도서사기리아어대자시일나인그해라스정수부전원제들있면게보장주만과여동상성공구선적우된으"
    "비소였연국학했며관조위년신생무실물유계분화경용세발행법문산모안중방식결통차업현단회양당영간러습니합역진감내작표설명"
    "같질것등때할와되입요체미태"
)
_LOOKED_AT = 10_000  # letters beyond ASCII
_ENOUGH = 0.3  # share of them that must be common Korean syllables; Korean texts have about 0.7


def decoded(data: bytes, path: Path) -> str:
    """The text of a file. BadInput, which names the first byte that is not UTF-8, if its encoding is not certain."""
    if data.startswith(_UTF32):
        raise BadInput(f"{path}: the file is UTF-32. Save it as UTF-8.")
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], encoding, path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = korean(data)
        if text is None:
            raise _uncertain(data, error.start, path) from None
        return text


def korean(data: bytes) -> str | None:
    """The text of bytes in CP949; None if they are not valid CP949, or too few of its letters are common in Korean."""
    try:
        text = data.decode("cp949")
    except UnicodeDecodeError:
        return None
    letters = list(islice((one for one in text if one > "\x7f" and one.isalpha()), _LOOKED_AT))
    common = sum(one in _COMMON for one in letters)
    return text if letters and common >= _ENOUGH * len(letters) else None


def _strictly(data: bytes, encoding: str, path: Path) -> str:
    """Text in the encoding that the byte order mark declares."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: its byte order mark says {encoding.upper()}, but byte 0x{data[error.start]:02x} at "
            f"{error.start:,} after the mark is not. Is the file complete? Save it as UTF-8."
        ) from None


def _uncertain(data: bytes, at: int, path: Path) -> BadInput:
    line = data.count(b"\n", 0, at) + 1
    return BadInput(
        f"{path}:{line}: byte 0x{data[at]:02x} at {at:,} is not UTF-8, and the file is not plainly Korean in CP949. "
        "Save it as UTF-8."
    )
