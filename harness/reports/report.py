"""The report of a command, for terminals, Markdown files, notebooks and pages."""

from __future__ import annotations

import html as escaping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.reports.markup import literal, rounded_or_none
from harness.reports.tables import Cell, Number, Table, markdown_screen, on_screen, terminal_table

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"Warning:": "yellow", "warning": "yellow", "error": "red"}  # first word of a line -> its colour


@dataclass(frozen=True)
class Report:
    """The report of a command. verdict: the answer in sentences. files: lines that name files. steps: next commands."""

    title: str
    verdict: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    files: Sequence[str] = ()
    steps: Sequence[str] = ()

    @property
    def sections(self) -> list[Table]:
        """The verdict, the tables and the notes. Empty sections are left out."""
        ends = [Table("Verdict", notes=self.verdict), Table("Notes", notes=self.notes)]
        return [one for one in (ends[0], *self.tables, ends[1]) if one.rows or one.notes]


def show_report(console: Console, report: Report) -> None:
    if report.title:
        console.print(f"{report.title}\n")
    for table in report.sections:
        if table.caption:
            console.print(table.caption, style="bold")
        for line in table.notes:
            console.print(f"  {line}" if table.caption else line, style=STYLES.get(line.partition(" ")[0]))
        if table.rows:
            console.print(terminal_table(table, console.width))
        console.print()
    for line in report.files:
        console.print(line, style=STYLES.get(line.partition(" ")[0]))
    if report.steps:
        console.print("Next:")
    for step in report.steps:
        console.print(f"  {step}")


def report_markdown(report: Report) -> str:
    parts = [f"# {literal(report.title)}"]
    for one in report.sections:
        parts += [f"## {literal(one.caption)}", *map(literal, one.notes), *([markdown_screen(one)] if one.rows else [])]
    return "\n\n".join(parts) + "\n"


def report_html(report: Report) -> str:
    """Return an HTML fragment for a notebook, with all texts escaped."""
    parts = [f"<p><b>{_literal(report.title)}</b></p>"] if report.title else []
    parts += [f"<p>{_literal(line)}</p>" for line in report.verdict]
    for one in (*report.tables, *([Table("Notes", notes=report.notes)] if report.notes else [])):
        parts += [f"<p><b>{_literal(one.caption)}</b></p>", *(f"<p>{_literal(line)}</p>" for line in one.notes)]
        if one.rows:
            shown = on_screen(one)
            rows = [_row("th", [column.name for column in shown.columns]), *(_row("td", row) for row in shown.rows)]
            parts.append(f"<table>{''.join(rows)}</table>")
    parts += [f"<p>{_literal(line)}</p>" for line in report.files]
    return f"<div>{''.join(parts)}</div>"


def _row(tag: str, cells: Sequence[Cell]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_literal(str(cell))}</{tag}>' for cell in cells)}</tr>"


def page_data(report: Report) -> list[dict[str, Any]]:
    """Return the sections of a report for `page.js`, each with its title, lines, header and rows.

    A cell is a text. In a column without a name, it is [value, low, high], which the page draws.
    """
    found = []
    for one in report.sections:
        shown = on_screen(one, drawn=True)
        rows = [[cell if isinstance(cell, str) else _ends(cell) for cell in row] for row in shown.rows]
        header = [column.name for column in shown.columns]
        found.append({"title": one.caption, "lines": [*one.notes], "header": header, "rows": rows})
    return found


def _ends(cell: Cell) -> list[float | None] | str:
    if isinstance(cell, Number) and cell.has_interval:
        return [rounded_or_none(cell.value), rounded_or_none(cell.low), rounded_or_none(cell.high)]
    return ""


def _literal(text: str) -> str:
    return escaping.escape(text).replace("\n", "<br>")
