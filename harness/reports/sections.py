"""A report in sections of sentences, tables and figures: on a terminal, as Markdown, and as data of a page."""

from __future__ import annotations

import html as escaping
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.reports.markup import grid
from harness.reports.terminal import bare_table, long_columns

if TYPE_CHECKING:
    from rich.console import Console


BROKEN = 14  # characters of a heading on a terminal that is broken between words; numbers below it are narrower


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
        console.print(section.title, style="bold")
        for line in section.lines:
            console.print(f"  {line}")
        if section.rows:
            header = [name.replace("_", "_\n") if len(name) > BROKEN else name for name in section.header]
            folded = {*long_columns(header, section.rows), header[-1]}  # the last one is often a name
            table = bare_table(header, left=header, folded=folded, header_style="dim")
            for row in section.rows:
                table.add_row(*row)
            console.print(table)
        console.print()


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
