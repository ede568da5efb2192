"""What `harness testset judge` says: before it asks, and of what it has judged."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.commands.testset.shown import usage_row
from harness.config.text import counted
from harness.data.files import some
from harness.llm.usage import Estimate, Usage
from harness.reports import terminal
from harness.testset import judge_record
from harness.testset.controls import CLAIMING, LEAST_FOUND, MOST_FOOLED, SEED, STUFFED
from harness.testset.judge_record import GRADE_NAMES, OPEN, RECORD, JudgeRecord
from harness.testset.judgements import JUDGEMENTS
from harness.testset.judging_work import Tally, Work
from harness.testset.resolution import RELEVANT_FROM

if TYPE_CHECKING:
    from rich.console import Console

CONTROLS = {
    SEED: ("the document with the evidence", f"at least {100 * LEAST_FOUND:.0f} %"),
    STUFFED: ("another, with the query's words", f"at most {100 * MOST_FOOLED:.0f} %"),
    CLAIMING: ("the same, claiming to answer", f"at most {100 * MOST_FOOLED:.0f} %"),
}


@dataclass(frozen=True)
class Outcome:
    """What was judged. tally: all that this judge has said. reasons: why grades are open -> how many, of those added
    now."""

    work: Work
    record: JudgeRecord
    tally: Tally
    reasons: Mapping[str, int]


def announce(work: Work, estimate: Estimate) -> None:
    """Say on standard error what judging takes, before anything is asked."""
    print(f"Judging {_extent(work)}: {estimate.text()}.", file=sys.stderr)  # noqa: T201


def _extent(work: Work) -> str:
    """How many pairs, and how to have the others judged."""
    pairs = len(work.pending)
    return f"{pairs:,} of {pairs + work.left:,} pairs (limit=null: all)" if work.left else counted(pairs, "pair")


def dry_run(style: str, estimate: Estimate, work: Work) -> dict[str, Any]:
    """Say what judging would take, with the first prompt."""
    prompts = work.prompts
    first = prompts[0].turns[-1].content if prompts else None
    document = {"estimate": asdict(estimate), "prompt": first}

    def show(console: Console) -> None:
        if first is not None:
            console.print("The first prompt:", style="bold")
            console.print(first)
            console.print()
        console.print(f"Judging {_extent(work)} takes {estimate.text()}.")
        console.print("Nothing was sent or written. Without dry_run=true, the judging begins.")

    terminal.emit(style, document, show)
    return document


def nothing(style: str, work: Work) -> dict[str, Any]:
    """Say that other models have judged everything."""
    document = {"testset": str(work.folder), "by": work.judge.by, "added": 0, "by_others": work.others}

    def show(console: Console) -> None:
        console.print(
            f"{work.folder}: other models have judged all {counted(work.others, 'pooled pair')}. Nothing was asked."
            if work.others
            else f"{work.folder}: nothing is pooled for the queries that need retrieval. Nothing was asked."
        )
        _next(console, work)

    terminal.emit(style, document, show)
    return document


def finished(style: str, outcome: Outcome, spent: Usage) -> dict[str, Any]:
    """Say what was judged and spent, how far the judge can be trusted, and what to do next. spent: by this process."""
    work, record = outcome.work, outcome.record
    document = {
        "testset": str(work.folder),
        "files": {"judgements": str(work.folder / JUDGEMENTS), "record": str(work.folder / RECORD)},
        "by": record.by,
        "added": len(work.pending),
        "left": work.left,
        "by_others": work.others,
        "open": dict(outcome.reasons),
        "kinds": {kind: dict(counts) for kind, counts in outcome.tally.kinds.items()},
        "answered": list(outcome.tally.answered),
        "judge": judge_record.row(record),
        "usage": usage_row(spent),
    }

    def show(console: Console) -> None:
        _grades(console, outcome)
        _controls(console, record)
        if outcome.tally.answered:
            queries = counted(len(outcome.tally.answered), "query")
            console.print(f"{queries} of kind unanswerable may have an answer: {some(outcome.tally.answered)}.")
        for warning in record.warnings:
            console.print(f"Warning: {warning}", style="yellow")
        console.print(f"Sent now: {spent.text()}; from the cache: {spent.cached:,}.")
        console.print(f"{work.folder / JUDGEMENTS}: {counted(len(work.pending), 'judgement')} added by {record.by}.")
        if work.left:
            console.print(f"{counted(work.left, 'more pair')} to judge: repeat the command, or set limit=null for all.")
        _next(console, work)

    terminal.emit(style, document, show)
    return document


def _grades(console: Console, outcome: Outcome) -> None:
    """Counts of grades by kind, open ones by reason, and what becomes of the documents with evidence."""
    table = terminal.bare_table(
        ("kind", *(grade if grade != OPEN else "open" for grade in GRADE_NAMES)), left=("kind",)
    )
    for kind, counts in outcome.tally.kinds.items():
        table.add_row(kind, *(f"{counts[grade]:,}" for grade in GRADE_NAMES))
    console.print(table)
    console.print()
    for reason, count in outcome.reasons.items():
        console.print(f"{count:,} open now: {reason}.")
    if seeds := outcome.record.seeds:
        console.print(f"Of the documents with evidence, {seeds.text()} have {RELEVANT_FROM} or 3.")
    if outcome.work.others:
        console.print(f"{counted(outcome.work.others, 'pair')} that other models have judged were left out.")
    console.print()


def _controls(console: Console, record: JudgeRecord) -> None:
    if not record.controls:
        return
    header = ("hidden control", f"graded {RELEVANT_FROM} or 3", "95 % interval", "should be")
    table = terminal.bare_table(header, left=(header[0],), folded=(header[0],))
    for kind, one in record.controls.items():
        low, high = one.interval
        what, bound = CONTROLS[kind]
        table.add_row(what, f"{one.count} of {one.of}", f"{100 * low:.0f} to {100 * high:.0f} %", bound)
    console.print(table)
    console.print()


def _next(console: Console, work: Work) -> None:
    console.print("Next:")
    console.print("  " + shlex.join(["harness", "testset", "review", f"testset={work.folder}", "reviewer=NAME"]))
