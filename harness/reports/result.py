"""The answer of a command: printed text on the command line, a value in Python."""

from __future__ import annotations

import html
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from harness.config.text import printable, runnable
from harness.errors import Failed
from harness.reports.report import Report, report_html, show_report
from harness.reports.tables import FORMATS, Table, rendered
from harness.storage.typed import encoded

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, eq=False)
class CommandAnswer:
    """The answer of a command.

    found: the content of the answer; `encoded` converts it for `format=json`.
    shown: the report for people; None if the command has already printed it.
    pasted: style in FORMATS -> the tables to paste; None: the tables of `shown`.
    value: what Python code gets instead of the JSON document.
    failed: why a command with an answer still fails; "" if the answer says why; None if the command succeeds.
    code: the exit code of the command line if `failed` is "".
    style: the `format` if the command itself decides it; otherwise None.
    serve: answers the questions on standard input in a given `format`, instead of the rest; None for most commands.
    """

    found: Any
    shown: Report | None
    pasted: Callable[[str], Sequence[Table]] | None = None
    value: Any = None
    failed: str | None = None
    code: int = 1
    style: str | None = None
    serve: Callable[[str], None] | None = None

    @cached_property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = encoded(self.found)
        return document

    def emit(self, style: str) -> None:
        """Print the answer. style: "json", one of FORMATS for tables to paste, or any other word for the report."""
        if self.shown is None:
            return
        if style in FORMATS:
            tables = self.pasted(style) if self.pasted else self.shown.tables
            sys.stdout.write(rendered(tables, style))
        elif style == "json":
            json.dump(self.document, sys.stdout, ensure_ascii=False, allow_nan=False)
            sys.stdout.write("\n")
        else:
            show_report(_console(sys.stdout), self.shown)
        sys.stdout.flush()

    def present(self, style: str = "text") -> None:
        """Print the answer. Raise Failed or SystemExit if the command fails."""
        if self.serve:
            self.serve(self.style or style)
            return
        self.emit(self.style or style)
        if self.failed is not None:
            raise Failed(self.failed) if self.failed else SystemExit(self.code)


def _console(file: IO[str]) -> Console:
    """Return a console that prints each command on one line, with the path of `harness`, ready to be run."""
    from rich.console import Console

    class Printed(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            if any(isinstance(one, str) and one.lstrip().startswith("harness ") for one in objects):
                options["soft_wrap"] = True
            super().print(*(printable(runnable(one)) if isinstance(one, str) else one for one in objects), **options)

    return Printed(file=file, highlight=False, markup=False, soft_wrap=not file.isatty())


def report_text(report: Report) -> str:
    """Return a report as the command line prints it."""
    text = io.StringIO()
    show_report(_console(text), report)
    return text.getvalue().rstrip()


class CommandResult(Mapping[str, Any]):
    """The result of a command: the document of `format=json`. Its keys are also attributes.

    `print` shows the same text as the command line, and a notebook shows the tables. `failure` says why the command
    line would exit with code 1; it is None if the command succeeded.
    """

    def __init__(self, answer: CommandAnswer) -> None:
        self._answer = answer

    @property
    def failure(self) -> str | None:
        return self._answer.failed

    def __getitem__(self, key: str) -> Any:
        return self._answer.document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answer.document)

    def __len__(self) -> int:
        return len(self._answer.document)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self:
            raise AttributeError(f"the result of this command has no {name!r}")
        return self[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        return report_text(self._answer.shown) if self._answer.shown else repr(self._answer.document)

    def _repr_html_(self) -> str:
        return report_html(self._answer.shown) if self._answer.shown else f"<pre>{html.escape(repr(self))}</pre>"
