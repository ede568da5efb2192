"""Tables ready to paste: Markdown for a page, LaTeX (booktabs) for a paper, CSV for a spreadsheet or a program.

Numbers on a page have three decimals; in CSV they have all digits. A cell of text can hold anything: no table breaks.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.data.tables import csv_text
from harness.reports.markup import ABSENT, grid, p_value

Shows = Literal["text", "value", "difference", "p", "count"]
FORMATS = ("markdown", "latex", "csv")
MARK = "†"
MANY = 2  # more columns with intervals than these have them on a line of their own in LaTeX
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes a cell that begins so
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", '"': r"\char34{}", "·": r"$\cdot$", "–": "--",
    "—": "---", "−": "$-$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\rightarrow$",
    "…": r"\ldots{}", "[": "{[}", "*": "{*}", "†": r"\dag{}", "‘": "`", "’": "'", "“": "``", "”": "''",
}  # fmt: skip
_LIGATURE = re.compile(r"(?<=[-',])(?=[-',])")  # two of these in a row print as another sign


@dataclass(frozen=True)
class Number:
    """A number in a table.

    value: NaN where there is none. low, high: ends of its 95 % interval; NaN without one.
    significant: whether it gets the mark; a note of the table says what that means. best: whether it is in bold.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    significant: bool = False
    best: bool = False


Cell = str | Number


@dataclass(frozen=True)
class Column:
    """shows: "text", or a kind of Number: three decimals, the same with a sign, a p value, a whole number."""

    title: str
    shows: Shows = "text"


@dataclass(frozen=True)
class Table:
    """A table. Columns of text have texts in all rows, the others a Number each.

    name: of its label in LaTeX, `tab:NAME`. caption, notes: sentences, above and below it.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def best_marked(cells: Sequence[Number], shows: Shows = "value") -> list[Number]:
    """The numbers, the highest in bold, and what looks the same with the digits shown. A single one has no best."""
    known = [one.value for one in cells if not math.isnan(one.value)]
    if len(known) < 2:
        return [*cells]
    top = _digits(max(known), shows)
    return [replace(one, best=_digits(one.value, shows) == top) for one in cells]


def rendered(tables: Sequence[Table], style: str) -> str:
    """Tables as a text that ends with a line break. style: one of FORMATS; CSV takes one table."""
    if style == "csv":
        [only] = tables
        return csv(only)
    return "\n".join(map(markdown if style == "markdown" else latex, tables))


def markdown(table: Table) -> str:
    """The table with its caption above and its notes below."""
    header = [_literal(column.title) for column in table.columns]
    rows = [[_in_markdown(cell, column) for cell, column in _paired(row, table)] for row in table.rows]
    aligned = grid(header, rows).split("\n")
    aligned[1] = f"| {' | '.join('---' if column.shows == 'text' else '---:' for column in table.columns)} |"
    return "\n\n".join([f"**{_literal(table.caption)}**", "\n".join(aligned), *map(_literal, table.notes)]) + "\n"


def latex(table: Table) -> str:
    """A floating table, narrowed to the line where it is wider. The first lines name the packages that it needs."""
    stacked = sum(_has_interval(table, place) for place in range(len(table.columns))) > MANY
    padded = [any(_significant(row[place]) for row in table.rows) for place in range(len(table.columns))]
    lines = []
    for row in table.rows:
        cells = [
            _in_latex(*one, inline=not stacked, pad=pad) for one, pad in zip(_paired(row, table), padded, strict=True)
        ]
        lines.append(f"{' & '.join(cells)} \\\\")
        if stacked and any(map(_interval_of, row)):
            ends = [_small(cell, column) for cell, column in _paired(row, table)]
            lines.append(f"{' & '.join(ends)} \\\\")
    body = "\n".join(lines)
    header = " & ".join(escaped(column.title) for column in table.columns)
    aligned = "".join("l" if column.shows == "text" else "r" for column in table.columns)
    notes = r"\\ ".join(map(escaped, table.notes))
    below = f"\\par\\smallskip\n\\parbox{{\\linewidth}}{{\\footnotesize {notes}}}\n" if notes else ""
    found = (
        "\\begin{table}[tbp]\n\\centering\n"
        f"\\caption{{{escaped(table.caption)}}}\n\\label{{tab:{table.name}}}\n\\smallskip\n"
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        f"\\begin{{tabular}}{{{aligned}}}\n\\toprule\n{header} \\\\\n\\midrule\n{body}\n\\bottomrule\n"
        f"\\end{{tabular}}}}\n{below}\\end{{table}}\n"
    )
    hint = (
        "" if found.isascii() else "% Has letters beyond ASCII: compile with xelatex; for Hangul, \\usepackage{kotex}\n"
    )
    return f"% \\usepackage{{booktabs,graphicx}}\n{hint}{found}"


def csv(table: Table) -> str:
    """One header row; every number with all digits, its interval and its mark in columns of their own.

    A text that a spreadsheet would compute as a formula gets an apostrophe before it.
    """
    columns: dict[str, list[Any]] = {}
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        columns |= dict(_csv_columns(column, cells))
    return csv_text(columns)


def escaped(text: str) -> str:
    """A text that LaTeX prints literally, on one line."""
    parts = _LIGATURE.split(_line(text))
    return "{}".join("".join(_SPECIAL.get(letter, letter) for letter in part) for part in parts)


def defused(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _line(text: str) -> str:
    """A text on one line, without what cannot be seen."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _literal(text: str) -> str:
    """A text that Markdown shows literally on one line, written so that its source can be read, too."""
    quoted = re.sub(r"([\\`*_\[\]{}|#~!$])", r"\\\1", html.escape(_line(text), quote=False))
    return re.sub(r"(?<!\w)@|:(?=//)", lambda found: f"&#{ord(found[0])};", quoted)


def _paired(row: Sequence[Cell], table: Table) -> Iterator[tuple[Cell, Column]]:
    return zip(row, table.columns, strict=True)


def _digits(value: float, shows: Shows) -> str:
    """A number as it is shown."""
    if math.isnan(value):
        return ABSENT
    if shows == "p":
        return p_value(value)
    return f"{value:,.0f}" if shows == "count" else f"{value:+.3f}" if shows == "difference" else f"{value:.3f}"


def _interval(one: Number, shows: Shows) -> str:
    return f"[{_digits(one.low, shows)}, {_digits(one.high, shows)}]" if _interval_of(one) else ""


def _interval_of(cell: Cell) -> bool:
    return isinstance(cell, Number) and not math.isnan(cell.low) and not math.isnan(cell.high)


def _significant(cell: Cell) -> bool:
    return isinstance(cell, Number) and cell.significant


def _has_interval(table: Table, place: int) -> bool:
    return any(_interval_of(row[place]) for row in table.rows)


def _in_markdown(cell: Cell, column: Column) -> str:
    if isinstance(cell, str):
        return _literal(cell)
    value = html.escape(_digits(cell.value, column.shows))
    value = f"**{value}**" if cell.best else value
    return f"{value}{MARK if cell.significant else ''} {_interval(cell, column.shows)}".rstrip()


def _in_latex(cell: Cell, column: Column, *, inline: bool, pad: bool) -> str:
    """inline: whether an interval stands beside its number. pad: whether there is room for a mark in each cell."""
    if isinstance(cell, str):
        return escaped(cell)
    value = _signs(_digits(cell.value, column.shows))
    value = f"\\textbf{{{value}}}" if cell.best else value
    mark = r"\textsuperscript{\dag}" if cell.significant else r"\phantom{\textsuperscript{\dag}}" if pad else ""
    return value + mark + (f" {_signs(_interval(cell, column.shows))}" if inline and _interval_of(cell) else "")


def _small(cell: Cell, column: Column) -> str:
    ends = "" if isinstance(cell, str) else _signs(_interval(cell, column.shows))
    return f"{{\\scriptsize {ends}}}" if ends else ""


def _signs(digits: str) -> str:
    """Numbers with the signs of mathematics: a hyphen is shorter than a minus."""
    return re.sub(r"[-+<]", lambda found: f"${found[0]}$", digits).replace(ABSENT, "--")


def _csv_columns(column: Column, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Any]]]:
    """Name -> cells: the column itself and, where it has them, the ends of its intervals and its marks."""
    title = defused(column.title)
    if column.shows == "text":
        yield title, [defused(str(cell)) for cell in cells]
        return
    found = [cell for cell in cells if isinstance(cell, Number)]
    whole = column.shows == "count"
    yield title, [_plain(one.value, whole) for one in found]
    if any(map(_interval_of, found)):
        yield f"{title}_low", [_plain(one.low) for one in found]
        yield f"{title}_high", [_plain(one.high) for one in found]
    if any(one.significant for one in found):
        yield f"{title}_significant", [int(one.significant) for one in found]


def _plain(value: float, whole: bool = False) -> float | int | None:
    return None if math.isnan(value) else int(value) if whole else float(value)
