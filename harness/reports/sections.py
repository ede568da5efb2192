"""A report in sections of sentences, tables and figures: on a terminal, as Markdown, and as one HTML file."""

from __future__ import annotations

import base64
import html as escaping
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.reports.markup import grid
from harness.reports.terminal import bare_table

if TYPE_CHECKING:
    from rich.console import Console


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
img { max-width: 100%; }
"""


@dataclass(frozen=True)
class Section:
    """A heading, and what follows it; all but the heading may be empty.

    lines: sentences.
    header, rows: a table of plain texts.
    figures: names of figures, shown in HTML only.
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
            table = bare_table(section.header, left=section.header, overflow="fold", header_style="dim")
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


def html(title: str, sections: Sequence[Section], figures: Mapping[str, bytes]) -> str:
    """One file that needs no other. figures: name -> PNG."""
    escape = escaping.escape
    parts = [f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>']
    parts += [f"<style>{STYLE}</style>", f"<h1>{escape(title)}</h1>"]
    for section in sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        parts += [f"<p>{escape(line)}</p>" for line in section.lines]
        if section.rows:
            rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in section.rows]
            head = "".join(f"<th>{escape(name)}</th>" for name in section.header)
            parts.append(f"<table>\n<tr>{head}</tr>\n" + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>")
        for name in section.figures:
            if name in figures:
                encoded = base64.b64encode(figures[name]).decode()
                parts.append(f'<p><img alt="{escape(name)}" src="data:image/png;base64,{encoded}"></p>')
    return "\n".join(parts) + "\n</html>\n"


def _escaped(text: str) -> str:
    """A text that Markdown shows literally, in table cells too. Unlike `markup.marked`, it keeps line breaks."""
    literal = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escaping.escape(text, quote=False))
    return literal.replace("\n", "<br>")
