"""Tables for terminals, pages and notebooks, and tables to paste.

Cells are values; columns say how the values are shown. A screen shows four decimals and puts intervals into a second
column. Markdown and LaTeX (booktabs) show three decimals, with intervals in brackets. CSV has all digits, with the ends
of intervals in separate columns.
"""

from __future__ import annotations

import html as escaping
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from harness.config.text import printable
from harness.data.tables import csv_text
from harness.reports.markup import ABSENT, grid, interval, literal, one_line, p_value, percent, rough

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Shows = Literal["text", "value", "difference", "p", "count", "percent", "rough"]
Medium = Literal["screen", "paste"]
FORMATS = ("markdown", "latex", "csv")
INTERVAL = "95 % interval"
MARK = "†"
MANY = 2  # if more columns than this have intervals, LaTeX puts the intervals on a second line
PASTED = 3  # a pasted number has at most this many decimals
GAP = 2  # number of spaces between two columns on a terminal
WHOLE = 18  # a terminal never breaks a word of at most this many characters
FOLDED = 10  # a column of long texts keeps at least this many characters
BROKEN = 14  # a longer heading is split between words on a terminal, since the numbers below are narrower
KEY, AT_DOTS = re.compile(r"[a-z]\w*(\.\w+)*"), re.compile(r"(?<=\.)")
IN_HEADINGS = re.compile(r"(?<=[_.,])(?=\w)| (?=\()|(?<=[\w,]) ")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet reads cells that begin with these as formulas
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", '"': r"\char34{}", "·": r"$\cdot$", "–": "--",
    "—": "---", "−": "$-$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\rightarrow$",
    "…": r"\ldots{}", "[": "{[}", "*": "{*}", "†": r"\dag{}", "‘": "`", "’": "'", "“": "``", "”": "''",
}  # fmt: skip
_LIGATURE = re.compile(r"(?<=[-',])(?=[-',])")  # LaTeX prints two of these signs in a row as another sign


@dataclass(frozen=True)
class Number:
    """A number with its interval and marks.

    value: NaN if it is unknown. low, high: the 95 % interval; NaN without an interval.
    significant: whether the number gets MARK, which a note of the table explains.
    best: whether the number is bold.
    beside: a rank or a count to show in brackets, except in CSV.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    significant: bool = False
    best: bool = False
    beside: int | None = None

    @property
    def has_interval(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))


Cell = str | float | Number | None
Rows = list[list[Cell]]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    shows: "text", or the kind of number: "value", "difference" (with a sign), "p", "count" (a whole number), "percent"
        (a share in percent), "rough" (two digits).
    digits: the number of decimals on a screen.
    on: the only medium that shows this column; None for all media.
    """

    name: str
    shows: Shows = "text"
    digits: int = 4
    on: Medium | None = None


@dataclass(frozen=True)
class Table:
    """A table with sentences. Without columns, the table consists of sentences alone.

    notes: sentences above the rows on a screen and below the rows of a pasted table.
    name: the name in the LaTeX label, `tab:NAME`.
    """

    caption: str
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Cell]] = ()
    notes: Sequence[str] = ()
    name: str = "table"

    def for_medium(self, medium: Medium) -> Table:
        return self._kept([one.on in (None, medium) for one in self.columns])

    def without_empty(self) -> Table:
        return self._kept(
            [
                any(bool(cell) if column.shows == "text" else not math.isnan(_number(cell).value) for cell in cells)
                for column, cells in self.by_column()
            ]
        )

    def by_column(self) -> Iterator[tuple[Column, list[Cell]]]:
        for place, column in enumerate(self.columns):
            yield column, [row[place] for row in self.rows]

    def _kept(self, wanted: Sequence[bool]) -> Table:
        places = [place for place, keep in enumerate(wanted) if keep]
        rows = [[row[place] for place in places] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in places], rows=rows)


def best_marked(cells: Sequence[Number]) -> list[Number]:
    """Mark as best the highest number and all numbers that look like it when pasted. Leave a single number unmarked."""
    known = [one.value for one in cells if not math.isnan(one.value)]
    if len(known) < 2:
        return [*cells]
    top = _digits(max(known), "value", PASTED)
    return [replace(one, best=_digits(one.value, "value", PASTED) == top) for one in cells]


def _number(cell: Cell) -> Number:
    if isinstance(cell, Number):
        return cell
    return Number(math.nan if cell is None else float(cell))


def _digits(value: float, shows: Shows, digits: int) -> str:
    if math.isnan(value):
        return ABSENT
    match shows:
        case "p":
            return p_value(value)
        case "count":
            return f"{value:,.0f}"
        case "percent":
            return percent(value, digits)
        case "rough":
            return rough(value)
        case "difference":
            return f"{value:+.{digits}f}"
    return f"{value:.{digits}f}"


def _shown(cell: Cell, column: Column, digits: int) -> str:
    one = _number(cell)
    beside = "" if one.beside is None else f" ({one.beside:,})"
    return f"{_digits(one.value, column.shows, digits)}{beside}"


# ---- On a screen


def on_screen(table: Table, drawn: bool = False) -> Table:
    """Return the table as texts, with intervals in a column after their numbers.

    drawn: whether to add a nameless column of Numbers after each column of differences. The caller draws them.
    """
    columns: list[Column] = []
    cells: list[Sequence[Cell]] = []
    for column, own in table.for_medium("screen").by_column():
        if column.shows == "text":
            columns.append(column)
            cells.append([str(cell or "") for cell in own])
            continue
        columns.append(column)
        cells.append([_signed(cell, column) for cell in own])
        if any(_number(cell).has_interval for cell in own):
            columns.append(replace(column, name=INTERVAL))
            cells.append([_ends(_number(cell), column) for cell in own])
            if drawn and column.shows == "difference":
                columns.append(replace(column, name=""))
                cells.append(own)
    return replace(table, columns=columns, rows=[*zip(*cells, strict=True)])


def _signed(cell: Cell, column: Column) -> str:
    shown = _shown(cell, column, column.digits)
    return re.sub(r"^\+0\.0+(?= |$)", "0", shown) if _number(cell).value == 0 else shown


def _ends(one: Number, column: Column) -> str:
    if not one.has_interval:
        return "" if math.isnan(one.value) else ABSENT
    if column.shows == "value":
        return interval(one.low, one.high)
    digits = min(column.digits, PASTED)
    return f"{_digits(one.low, column.shows, digits)} to {_digits(one.high, column.shows, digits)}"


def terminal_table(table: Table, width: int) -> RichTable:
    """Return the table for a terminal of `width` characters. Texts and headings may break, numbers and ids may not."""
    from rich.table import Table as RichTable

    shown = on_screen(table)
    rows = [[printable(str(cell)) for cell in row] for row in shown.rows]
    folds = [one.shows == "text" and _breaks(cells) for one, *cells in zip(shown.columns, *rows, strict=True)]
    folds[-1] = shown.columns[-1].shows == "text"
    header = [_broken(one.name, BROKEN) for one in shown.columns]
    least = [min(one, FOLDED) if fold else one for one, fold in zip(_widths(header, rows), folds, strict=True)]
    if sum(least) > width + GAP:
        cells = _widths([""] * len(header), rows)
        header = [_broken(one.name, max(FOLDED, own) - 1) for one, own in zip(shown.columns, cells, strict=True)]
    keys, widths = [row[0] for row in rows], _widths(header, rows)
    if sum(widths) > width + GAP and shown.columns[0].shows == "text" and all(map(KEY.fullmatch, keys)):
        room = width - sum(min(one, FOLDED + GAP) if one > WHOLE + GAP else one for one in widths[1:])
        rows = [[_broken(key, room, AT_DOTS), *row[1:]] for key, row in zip(keys, rows, strict=True)]
        folds[0] = False
    found = RichTable(box=None, pad_edge=False, header_style="dim", show_header=any(header))
    for name, column, fold in zip(header, shown.columns, folds, strict=True):
        justify: Literal["left", "right"] = "left" if column.shows == "text" else "right"
        found.add_column(name, justify=justify, overflow="fold" if fold else "ellipsis", no_wrap=not fold)
    for row in rows:
        found.add_row(*row)
    return found


def _breaks(cells: Iterable[str]) -> bool:
    """Return whether any of these texts is long or has several words, so that a terminal may break it over lines."""
    return any(len(line) > WHOLE or " " in line for one in cells for line in one.split("\n"))


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    columns = zip(header, *rows, strict=True)
    return [max(len(line) for cell in cells for line in cell.split("\n")) + GAP for cells in columns]


def _broken(text: str, most: int, at: re.Pattern[str] = IN_HEADINGS) -> str:
    """Break a text at matches of `at` into lines of about `most` letters. Matched spaces are dropped."""
    lines = [""]
    for part in at.split(text):
        joint = "" if lines[-1][-1:] in ("", "_", ".") else " "
        if lines[-1] and len(lines[-1]) + len(joint) + len(part) > most:
            lines.append("")
            joint = ""
        lines[-1] += joint + part
    return "\n".join(lines) if len(text) > most else text


# ---- Ready to paste


def rendered(tables: Sequence[Table], style: str) -> str:
    """Return the tables in a style of FORMATS, with a line break at the end. CSV takes a single table."""
    if style == "csv":
        [only] = tables
        return csv(only)
    return "\n".join(map(markdown if style == "markdown" else latex, tables))


def markdown(table: Table) -> str:
    """Return the table in Markdown, with the caption above and the notes below."""
    pasted = table.for_medium("paste")
    rows = [[_in_markdown(*one) for one in zip(row, pasted.columns, strict=True)] for row in pasted.rows]
    parts = [f"**{literal(table.caption)}**", *([_aligned(pasted.columns, rows)] if table.columns else [])]
    return "\n\n".join([*parts, *map(literal, table.notes)]) + "\n"


def markdown_screen(table: Table) -> str:
    """Return the rows as they look on a screen, but in Markdown. Leave out the caption and the notes."""
    shown = on_screen(table)
    return _aligned(shown.columns, [[_lines(str(cell)) for cell in row] for row in shown.rows])


def _aligned(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    found = grid([literal(column.name) for column in columns], rows).split("\n")
    found[1] = f"| {' | '.join('---' if column.shows == 'text' else '---:' for column in columns)} |"
    return "\n".join(found)


def _lines(text: str) -> str:
    return "<br>".join(map(literal, text.split("\n")))


def latex(table: Table) -> str:
    """Return a LaTeX table, scaled down to the line width if it is wider. The first lines name the packages to load."""
    pasted = table.for_medium("paste")
    numbers = [[] if column.shows == "text" else [*map(_number, cells)] for column, cells in pasted.by_column()]
    stacked = sum(any(one.has_interval for one in own) for own in numbers) > MANY
    marked = [any(one.significant for one in own) for own in numbers]
    lines = []
    for row in pasted.rows:
        paired = [*zip(row, pasted.columns, strict=True)]
        cells = [_in_latex(*one, inline=not stacked, pad=pad) for one, pad in zip(paired, marked, strict=True)]
        lines.append(f"{' & '.join(cells)} \\\\")
        if stacked and any(_bracketed(*one) for one in paired):
            ends = [f"{{\\scriptsize {_signs(found)}}}" if (found := _bracketed(*one)) else "" for one in paired]
            lines.append(f"{' & '.join(ends)} \\\\")
    body = "\n".join(lines)
    header = " & ".join(escaped(column.name) for column in pasted.columns)
    aligned = "".join("l" if column.shows == "text" else "r" for column in pasted.columns)
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
    """Return CSV with all digits. Intervals and marks get columns of their own. No text can act as a formula."""
    columns: dict[str, list[Any]] = {}
    for column, cells in table.for_medium("paste").by_column():
        columns |= dict(_csv_columns(column, cells))
    return csv_text(columns)


def escaped(text: str) -> str:
    """Escape a text for LaTeX, on one line."""
    parts = _LIGATURE.split(one_line(text))
    return "{}".join("".join(_SPECIAL.get(letter, letter) for letter in part) for part in parts)


def defused(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _bracketed(cell: Cell, column: Column) -> str:
    if column.shows == "text" or not (one := _number(cell)).has_interval:
        return ""
    digits = min(column.digits, PASTED)
    return f"[{_digits(one.low, column.shows, digits)}, {_digits(one.high, column.shows, digits)}]"


def _in_markdown(cell: Cell, column: Column) -> str:
    if column.shows == "text":
        return _lines(str(cell or ""))
    one, value = _number(cell), escaping.escape(_shown(cell, column, min(column.digits, PASTED)))
    value = f"**{value}**" if one.best else value
    return f"{value}{MARK if one.significant else ''} {_bracketed(cell, column)}".rstrip()


def _in_latex(cell: Cell, column: Column, *, inline: bool, pad: bool) -> str:
    """Return a cell. inline: include the interval. pad: leave room for the mark that other cells of the column have."""
    if column.shows == "text":
        return escaped(str(cell or ""))
    one, value = _number(cell), _signs(_shown(cell, column, min(column.digits, PASTED)))
    value = f"\\textbf{{{value}}}" if one.best else value
    mark = r"\textsuperscript{\dag}" if one.significant else r"\phantom{\textsuperscript{\dag}}" if pad else ""
    return value + mark + (f" {_signs(_bracketed(cell, column))}" if inline and one.has_interval else "")


def _signs(digits: str) -> str:
    """Put the signs of numbers into math mode, where a minus is longer than a hyphen."""
    signs: Callable[[re.Match[str]], str] = lambda found: r"\%" if found[0] == "%" else f"${found[0]}$"  # noqa: E731
    return re.sub(r"[-+<>%]", signs, digits).replace(ABSENT, "--")


def _csv_columns(column: Column, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Any]]]:
    """Yield (name, cells): the column itself, then columns for the ends of its intervals and for its marks, if any."""
    title = defused(column.name)
    if column.shows == "text":
        yield title, [defused(str(cell or "")) for cell in cells]
        return
    found = [_number(cell) for cell in cells]
    whole = column.shows == "count"
    yield title, [_plain(one.value, whole) for one in found]
    if any(one.has_interval for one in found):
        yield f"{title}_low", [_plain(one.low) for one in found]
        yield f"{title}_high", [_plain(one.high) for one in found]
    if any(one.significant for one in found):
        yield f"{title}_significant", [int(one.significant) for one in found]


def _plain(value: float, whole: bool = False) -> float | int | None:
    return None if math.isnan(value) else int(value) if whole else float(value)
