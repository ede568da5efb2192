"""Texts as they may stand in a cell of a workbook, and what a person writes into one."""

from __future__ import annotations

import re
import unicodedata
from datetime import date, time, timedelta
from typing import Any

MOST = 32_767  # UTF-16 code units: what Excel keeps of a cell
_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}  # XML has no control characters
_SHOWN = {**_CONTROLS, 0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
_ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")  # Excel reads _x0041_ as A
_YES, _NO = frozenset(("yes", "y", "true", "예", "네")), frozenset(("no", "n", "false", "아니요", "아니오"))


def cell_text(text: str, whole: str) -> str:
    """A text for a cell. A control character is shown as a picture of it, such as ␀; a text too long for a cell is cut,
    and ends by saying so. whole: where all of it is."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_SHOWN)
    text = _ESCAPED.sub("_x005F_", text)
    if _units(text) <= MOST:
        return text
    mark = f"\n[… cut: {len(text):,} characters. All of it: {whole}]"
    room = text.encode("utf-16-le")[: 2 * (MOST - _units(mark))]
    return room.decode("utf-16-le", "ignore") + mark


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def grade_of(value: Any, kind: str) -> int | str:
    """The grade in a cell that is not blank: 0 to 3; "?" if the person cannot tell. ValueError, with what is there
    instead, for anything else. kind: the cell's data type in openpyxl."""
    shown = _plain(value, kind)
    if isinstance(shown, str):
        if shown == "?":
            return shown
        if shown in ("0", "1", "2", "3"):
            return int(shown)
    elif not isinstance(shown, bool) and shown in (0, 1, 2, 3):
        return int(shown)
    raise ValueError(f"is {shown!r:.60}, but must be 0, 1, 2, 3, ? or empty")


def need_of(value: Any, kind: str) -> bool | str:
    """As `grade_of`, for whether a query needs retrieval: true, false or "?"."""
    shown = _plain(value, kind)
    if isinstance(shown, bool) or shown == "?":
        return shown
    word = str(shown).casefold()
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError(f"is {shown!r:.60}, but must be yes, no, ? or empty")


def blank(value: Any) -> bool:
    """Whether a cell has nothing but white space."""
    return value is None or (isinstance(value, str) and not value.strip())


def _plain(value: Any, kind: str) -> str | float | bool:
    """Text without white space around it and with full-width signs as plain ones, a number or a truth value."""
    if kind == "f":
        raise ValueError("is a formula. Write what it comes to")
    if kind == "e":
        raise ValueError(f"is the error {value!s:.20}")
    if isinstance(value, date | time | timedelta):
        raise ValueError(f"is the date or time {value!s:.30}. Format the cell as a number or text")
    return unicodedata.normalize("NFKC", value).strip() if isinstance(value, str) else value
