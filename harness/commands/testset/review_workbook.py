"""`harness testset review via=xlsx`: what there is to judge as an Excel workbook, and back."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.commands import ReviewConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.progress import stage
from harness.reports import terminal
from harness.testset.audit_sample import AuditSample
from harness.testset.judged_set import JudgedSet
from harness.testset.judgements import JUDGEMENTS, JudgementLog
from harness.testset.review_items import AskedItems
from harness.testset.workbook import Questions, write_workbook
from harness.testset.workbook_reader import Filled, read_workbook

if TYPE_CHECKING:
    from rich.console import Console

WORKBOOK = "xlsx"  # the value of `via`


def check_keys(config: ReviewConfig) -> None:
    """BadInput for keys of the workbook that do not fit together, or without via=xlsx."""
    output, source = config.output, config.from_
    if config.via != WORKBOOK:
        if output or source:
            name = "output" if output else "from"
            raise BadInput(f"{name}={output or source}, but via={config.via}: only via={WORKBOOK} has a file.")
        return
    if bool(output) == bool(source):
        what = "both are given" if output else "neither is given"
        raise BadInput(f"via={WORKBOOK} needs output=FILE to write a workbook, or from=FILE to read one: {what}.")


def read(
    config: ReviewConfig, reviewer: str, known: Callable[[], tuple[JudgedSet, AuditSample | None]]
) -> dict[str, Any]:
    """Append what a workbook says to the judgements, all of it or, if anything in it is wrong, nothing.

    known: reads what has been judged. It is called while no other process can add to it.
    """
    path, folder = Path(config.from_ or ""), config.testset
    log = JudgementLog(folder)
    with stage(f"reading {path}"), log.appending() as add:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = read_workbook(path, reviewer, *known(), now)
        add(*found.new)
    document = {
        "testset": str(folder),
        "from": str(path),
        "reviewer": reviewer,
        "new": len(found.new),
        **{name: getattr(found, name) for name in ("changed", "same", "empty", "kept")},
    }
    terminal.emit(config.format, document, lambda console: _show_read(console, config, reviewer, found))
    return document


def _show_read(console: Console, config: ReviewConfig, reviewer: str, found: Filled) -> None:
    path = config.testset / JUDGEMENTS
    changed = f", {found.changed:,} of which replace an earlier one of {reviewer}" if found.changed else ""
    console.print(f"{config.from_}: {counted(len(found.new), 'judgement')} added to {path}{changed}.")
    if found.same:
        console.print(f"{found.same:,} were there already.")
    if found.empty:
        kept = f"; of these, {reviewer} has judged {found.kept:,} before, which stays" if found.kept else ""
        console.print(f"{counted(found.empty, 'row')} without an answer{kept}.")
    console.print("Next: what is left to judge, if anything is, or how far people and model agree:")
    words = ("via=xlsx", f"reviewer={reviewer}", "output=FILE.xlsx")
    console.print("  " + _command("review", config, *words))
    console.print("  " + _command("audit", config))


def write(config: ReviewConfig, asked: AskedItems, questions: Questions, pilot: str) -> dict[str, Any]:
    """Write the workbook. questions: what it asks; the same items as `asked`. pilot: a sentence on what is drawn later,
    or nothing."""
    path = Path(config.output or "")
    with stage(f"writing {path}"):
        write_workbook(path, questions)
    needs = sum(one.doc_id is None for one in asked.items)
    name = questions.by.partition(":")[2]
    document: dict[str, Any] = {
        "testset": str(config.testset),
        "output": str(path),
        "reviewer": name,
        "sample": config.sample,
        "queries": len({one.query_id for one in asked.items}),
        "needs": needs,
        "pairs": len(asked.items) - needs,
        "reasons": dict(asked.reasons),
    }

    def show(console: Console) -> None:
        reasons = "; ".join(f"{why}: {count:,}" for why, count in asked.reasons.items())
        console.print(
            f"{path}: {counted(document['queries'], 'query')}, with {counted(needs, 'question')} on the need for "
            f"retrieval and {counted(document['pairs'], 'document')} to grade ({reasons})."
        )
        if pilot:
            console.print(pilot)
        console.print("Nothing in it tells who retrieved a document or what others said of it.")
        console.print(f"Next, when {name} has filled it in:")
        words = ("via=xlsx", f"reviewer={name}", f"from={path}")
        console.print("  " + _command("review", config, *words))

    terminal.emit(config.format, document, show)
    return document


def _command(verb: str, config: ReviewConfig, *words: str) -> str:
    return shlex.join(["harness", "testset", verb, f"testset={config.testset}", *words])
