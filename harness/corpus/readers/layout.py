"""Text of formatted documents: words in lines, as a page shows them."""

from __future__ import annotations

import re

_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")
_BLANK_LINE = 2  # line breaks that make one; more are not kept


class Lines:
    """Puts text together, with the line breaks that blocks require.

    As in `innerText` of the HTML Standard, between two texts stands the greatest number of breaks that was required,
    none before the first and after the last.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._breaks = 0
        self._rows: list[int] = []  # parts before each row of a table that is in work
        self._edge = -1  # parts at the edge of its last cell

    def words(self, text: str) -> None:
        """Text in which any white space is one space, and none at the edges of lines; soft hyphens are left out."""
        text = _SPACES.sub(" ", text).replace("\xad", "")
        if self._breaks or not self._parts or self._parts[-1][-1] in " \n\t":
            text = text.lstrip(" ")
        self.exactly(text)

    def exactly(self, text: str) -> None:
        """Text as it is."""
        if not text:
            return
        if self._breaks and self._parts:
            self._trim()
            self._parts.append("\n" * self._breaks)
        self._breaks = 0
        self._parts.append(text)

    def block(self, breaks: int = 1) -> None:
        """An edge of a block: at least so many line breaks."""
        if len(self._parts) != self._edge:  # the first line of a cell stands beside the cell before
            self._breaks = max(self._breaks, breaks)

    def line_break(self) -> None:
        """One line break more."""
        self._breaks = min(self._breaks + 1, _BLANK_LINE)

    def row(self) -> None:
        """The start of a row of a table."""
        self.block()
        self._rows.append(len(self._parts))

    def end_row(self) -> None:
        """The end of the row: one line break, whatever the blocks in its last cell required."""
        self._rows.pop()
        self._edge, self._breaks = -1, 1

    def next_cell(self) -> None:
        """The edge between two cells of a row: a tab, whatever breaks the blocks in the first one required."""
        if self._rows and len(self._parts) > self._rows[-1]:
            self._breaks = 0
            self._trim()
        self.exactly("\t")
        self._edge = len(self._parts)

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts).strip(" \n")

    def _trim(self) -> None:
        """Remove the spaces at the end."""
        while self._parts and not self._parts[-1].rstrip(" "):
            self._parts.pop()
        if self._parts:
            self._parts[-1] = self._parts[-1].rstrip(" ")
