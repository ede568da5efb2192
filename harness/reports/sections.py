"""Sections of text, tables and pictures for people: the same on a terminal, in Markdown and in one HTML file."""

from __future__ import annotations

import base64
import html as escaping
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """A heading, sentences, a table and pictures by name, any of which may be empty."""

    title: str
    lines: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[str] = ()


def show(console: Console, title: str, sections: Sequence[Section]) -> None:
    from rich.table import Table

    console.print(f"{title}\n")
    for section in sections:
        console.print(section.title, style="bold")
        for line in section.lines:
            console.print(f"  {line}")
        if section.rows:
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
            for name in section.header:
                table.add_column(name, overflow="fold")
            for row in section.rows:
                table.add_row(*row)
            console.print(table)
        console.print()


def markdown(title: str, sections: Sequence[Section]) -> str:
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += [_marked(line) for line in section.lines]
        if section.rows:
            rows = [section.header, ["---"] * len(section.header)]
            cells = [[*rows[0]], rows[1], *[[_marked(cell) for cell in row] for row in section.rows]]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in cells))
    return "\n\n".join(parts) + "\n"


def html(title: str, sections: Sequence[Section], figures: Mapping[str, bytes]) -> str:
    """One file: style and pictures (name -> PNG) are in it, and every text is escaped."""
    say = escaping.escape
    parts = [f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{say(title)}</title>']
    parts += [f"<style>{STYLE}</style>", f"<h1>{say(title)}</h1>"]
    for section in sections:
        parts.append(f"<h2>{say(section.title)}</h2>")
        parts += [f"<p>{say(line)}</p>" for line in section.lines]
        if section.rows:
            rows = ["".join(f"<td>{say(cell)}</td>" for cell in row) for row in section.rows]
            head = "".join(f"<th>{say(name)}</th>" for name in section.header)
            parts.append(f"<table>\n<tr>{head}</tr>\n" + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>")
        for name in section.figures:
            if name in figures:
                encoded = base64.b64encode(figures[name]).decode()
                parts.append(f'<p><img alt="{say(name)}" src="data:image/png;base64,{encoded}"></p>')
    return "\n".join(parts) + "\n</html>\n"


def _marked(text: str) -> str:
    """A text that Markdown shows as it is, in a cell too."""
    plain = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escaping.escape(text, quote=False))
    return plain.replace("\n", "<br>")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4f}" if value else "0"


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
