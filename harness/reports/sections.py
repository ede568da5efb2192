"""A report in sections of sentences, tables and figures: on a terminal, as Markdown, and as data of a page."""

from __future__ import annotations

import html as escaping
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.reports.markup import grid
from harness.reports.terminal import WHOLE, bare_table, long_columns

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GAP = 2  # between columns
FOLDED = 10  # letters that a column of long texts keeps at least
BROKEN = 14  # characters of a heading on a terminal that is broken between words; numbers below it are narrower
KEY = re.compile(r"[a-z]\w*(\.\w+)*")


@dataclass(frozen=True)
class Section:
    """A heading, and what follows it; all but the heading may be empty.

    lines: sentences.
    header, rows: a table of plain texts.
    figures: names of figures, shown on a page only.
    """

    title: str
    lines: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[str] = ()


def show(console: Console, title: str, sections: Sequence[Section]) -> None:
    console.print(f"{title}\n")
    for section in sections:
        show_one(console, section)


def show_one(console: Console, section: Section) -> None:
    console.print(section.title, style="bold")
    for line in section.lines:
        console.print(f"  {line}")
    if section.rows:
        console.print(_table(section.header, section.rows, console.width))
    console.print()


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table for a terminal of so many columns: where it is too narrow, keys are broken at their dots only."""
    header = [re.sub(r"(_|, | \()", _at_end, name) if len(name) > BROKEN else name for name in header]
    folded = {*long_columns(header, rows), header[-1]}  # the last one is often a name
    names, *others = zip(header, *rows, strict=True)
    widths = [max(len(line) for cell in column for line in cell.split("\n")) + GAP for column in others]
    if max(map(len, names)) + sum(widths) > width and all(map(KEY.fullmatch, names[1:])):
        room = width - sum(min(one, FOLDED + GAP) if one > WHOLE + GAP else one for one in widths)
        rows = [[_at_dots(name, room), *cells] for name, *cells in rows]
        folded = {*header[1:]}
    table = bare_table(header, left=header, folded=folded, header_style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def _at_end(found: re.Match[str]) -> str:
    """A break after an underscore or a comma, or before a bracket."""
    return "\n(" if found[1] == " (" else f"{found[1].strip()}\n"


def _at_dots(key: str, most: int) -> str:
    """A dotted key in lines of at most so many letters where its dots allow that."""
    first, *parts = key.split(".")
    lines = [first]
    for part in parts:
        lines[-1] += "."
        if len(lines[-1]) + len(part) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def markdown(title: str, sections: Sequence[Section]) -> str:
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += map(_escaped, section.lines)
        if section.rows:
            parts.append(grid(section.header, [[*map(_escaped, row)] for row in section.rows]))
    return "\n\n".join(parts) + "\n"


def html(sections: Sequence[Section]) -> str:
    """The sections as a fragment for a notebook, which shows every text literally; without figures."""
    parts = []
    for section in sections:
        parts.append(f"<p><b>{_literal(section.title)}</b></p>")
        parts += [f"<p>{_literal(line)}</p>" for line in section.lines]
        if section.rows:
            cells = [("th", section.header), *(("td", row) for row in section.rows)]
            rows = [f"<tr>{''.join(f'<{tag}>{_literal(one)}</{tag}>' for one in row)}</tr>" for tag, row in cells]
            parts.append(f"<table>{''.join(rows)}</table>")
    return f"<div>{''.join(parts)}</div>"


def _literal(text: str) -> str:
    return escaping.escape(text).replace("\n", "<br>")


def _escaped(text: str) -> str:
    """A text that Markdown shows literally, in table cells too. Unlike `markup.marked`, it keeps line breaks."""
    literal = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escaping.escape(text, quote=False))
    return literal.replace("\n", "<br>")
