"""Bytes to text: by a byte order mark, as UTF-8, or as CP949 where the result is plainly Korean. Never by a guess."""

from __future__ import annotations

import codecs
from itertools import islice
from pathlib import Path

from harness.errors import BadInput

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
_DECLARED = {  # as web pages spell them -> codec
    "cp949": ("euc-kr", "ks_c_5601-1987", "ksc5601", "ks_c_5601", "cp949", "uhc", "ms949", "windows-949"),
    "cp932": ("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"),
    "euc_jp": ("euc-jp", "x-euc-jp"),
    "gb18030": ("gb2312", "gbk", "gb18030", "x-gbk"),
    "cp950": ("big5", "x-x-big5"),
    "cp1252": ("windows-1252", "iso-8859-1", "latin1", "us-ascii"),
}
_CODECS = {name: codec for codec, names in _DECLARED.items() for name in names}
_PRINTED = bytes(set(range(256)) - {one for one in range(32) if one not in b"\t\n\v\f\r\x1a"} - {127})
_FEW = 1000  # bytes for each control character that a text may have


def decoded(data: bytes, path: Path, declared: str = "") -> str:
    """The text of a file, without its byte order mark.

    declared: the encoding that the file claims, which decides only where its bytes do not. BadInput for binary data,
    and if the encoding is not certain; it names the first byte that is not UTF-8.
    """
    if data.startswith(_UTF32):
        raise BadInput(f"{path}: the file is UTF-32. Save it as UTF-8.")
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = _marked(data[len(mark) :], encoding, path)
            _check_printed(text.encode() if encoding != "utf-8" else data, path)
            return text
    _check_printed(data, path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        likely = _korean(data) or _claimed(data, declared)
        if likely is None:
            raise _uncertain(data, error.start, path, declared) from None
        return likely


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
    """Whether zeros stand where UTF-16 has them in Western text: at even or at odd places of the first bytes."""
    start = data[:1000]
    return max(start[::2].count(0), start[1::2].count(0)) > len(start) / 5


def _marked(data: bytes, encoding: str, path: Path) -> str:
    """Text in the encoding that the byte order mark declares."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: its byte order mark says {encoding.upper()}, but byte 0x{data[error.start]:02x} at "
            f"{error.start:,} after the mark is not. Is the file complete? Save it as UTF-8."
        ) from None


def _korean(data: bytes) -> str | None:
    """The text of bytes in CP949; None if they are not valid CP949, or too few of its letters are common in Korean."""
    try:
        text = data.decode("cp949")
    except UnicodeDecodeError:
        return None
    letters = list(islice((one for one in text if one > "\x7f" and one.isalpha()), _LOOKED_AT))
    common = sum(one in _COMMON for one in letters)
    return text if letters and common >= _ENOUGH * len(letters) else None


def _claimed(data: bytes, declared: str) -> str | None:
    """The text of bytes in the encoding that a file claims; None if that is not known, or not theirs."""
    try:
        return data.decode(_CODECS[declared.lower()])
    except (KeyError, UnicodeDecodeError):
        return None


def _uncertain(data: bytes, at: int, path: Path, declared: str) -> BadInput:
    line = data.count(b"\n", 0, at) + 1
    claim = f" or {declared:.40}, which it declares" if declared and declared.lower() not in ("utf-8", "utf8") else ""
    return BadInput(
        f"{path}:{line}: byte 0x{data[at]:02x} at {at:,} is not UTF-8, and the file is not plainly Korean in CP949"
        f"{claim}. Save it as UTF-8."
    )
