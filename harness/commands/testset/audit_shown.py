"""What `harness testset audit` prints."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.text import counted
from harness.data.files import some
from harness.evaluation.agreement import Estimate
from harness.evaluation.prediction_powered import FEW, LEAST
from harness.reports import terminal
from harness.reports.markup import ABSENT, interval
from harness.testset.audit_worth import Worth
from harness.testset.auditing import Audit
from harness.testset.controls import CLAIMING, SEED, STUFFED
from harness.testset.judge_record import JudgeRecord

if TYPE_CHECKING:
    from rich.console import Console

LOW = 0.4  # kappas up to here are at best 'fair' (Landis and Koch 1977)
COLUMNS = ("estimate", "95 % interval", "queries", "pairs")
TITLES = {
    "agreed": "same grade",
    "kappa": "kappa, relevant or not",
    "quadratic_kappa": "kappa of grades, quadratic",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
}
CONTROLS = {
    SEED: "documents that answer",
    STUFFED: "others stuffed with the query's words",
    CLAIMING: "others that claim to answer",
}


def show(console: Console, folder: Path, found: Audit, records: Sequence[JudgeRecord], more: Worth | None) -> None:
    """folder: of the test set. records: of the models that judged it. more: what more checked queries are worth."""
    progress = found.progress
    console.print(
        f"{folder}: {len(progress.checked)} of {counted(progress.drawn, 'drawn query')} checked in full by people, "
        f"which stand for {progress.stand_for:,}."
    )
    if progress.not_blind:
        console.print(f"{counted(progress.not_blind, 'judgement')} left out: not blind.")
    _model(console, found)
    for record in records:
        _controls(console, record)
    _people(console, found)
    _needs(console, found)
    if more:
        _worth(console, more, len(progress.checked))
    for line in _advice(folder, found):
        console.print(line)


def _model(console: Console, found: Audit) -> None:
    console.print()
    if found.model is None:
        both = "No pair has a grade by people and by the model."
        console.print(both if found.models else "No model has judged the checked queries.")
        return
    relevant = f"A document is relevant from grade {found.relevant_from} on."
    console.print(f"The model, {' and '.join(found.models)}, against people. {relevant}", style="bold")
    rows = [(TITLES[name], *_cells(one)) for name, one in found.model.statistics.items()]
    _table(console, ("", *COLUMNS), rows)
    _notes(console, found.model.statistics)
    console.print("Sensitivity: the share of what people find relevant that the model does.", style="dim")
    console.print("Specificity: the share of what people find not relevant that the model does not.", style="dim")
    console.print()
    grades = range(len(found.model.counts))
    pairs = [(f"people: {grade}", *(f"{cell:,}" for cell in found.model.counts[grade])) for grade in grades]
    _table(console, ("pairs", *(f"model: {grade}" for grade in grades)), pairs)
    if len(found.kinds) > 1:
        console.print()
        shown = ("kappa", "sensitivity", "specificity")
        by_kind = [
            (kind, *(_value(one.statistics[name]) for name in shown), *_sizes(one.statistics["kappa"]))
            for kind, one in found.kinds.items()
        ]
        _table(console, ("kind of query", *shown, *COLUMNS[2:]), by_kind)


def _controls(console: Console, record: JudgeRecord) -> None:
    """What the judge made of pairs whose grade is known."""
    console.print()
    if not record.controls:
        console.print(f"{record.by}: no hidden controls.")
        return
    said = (f"{CONTROLS[kind]} {one.count} of {one.of}" for kind, one in record.controls.items())
    console.print(f"Hidden controls that the model found relevant: {', '.join(said)}.")


def _people(console: Console, found: Audit) -> None:
    rows = [
        (f"{one.first} and {one.second}", *_cells(one.statistics["kappa"]), _value(one.statistics["quadratic_kappa"]))
        for one in found.people
    ]
    if found.again:
        kappa, quadratic = (found.again.statistics[name] for name in ("kappa", "quadratic_kappa"))
        rows.append(("anyone, a second time", *_cells(kappa), _value(quadratic)))
    console.print()
    if not rows:
        console.print("No pair was judged by two people, or by one a second time: nothing tells how far they agree.")
        return
    console.print("People", style="bold")
    _table(console, ("kappa of", *COLUMNS, "quadratic"), rows)
    if found.alpha:
        ends = interval(found.alpha.low, found.alpha.high, absent="")
        console.print(
            f"Krippendorff's alpha of all people, ordinal: {_value(found.alpha)}{f' ({ends})' if ends else ''}, from "
            f"{found.alpha.pairs:,} grades of pairs that several have judged."
        )
    statistics = {f"{one.first} and {one.second}": one.statistics["kappa"] for one in found.people}
    again = {"a second time": found.again.statistics["kappa"]} if found.again else {}
    _notes(console, {**statistics, **again})


def _needs(console: Console, found: Audit) -> None:
    said = found.needs.statistics["agreed"]
    alike = sum(found.needs.counts[one][one] for one in (0, 1))
    console.print()
    text = f"Need for retrieval: people say the same as the draft of {alike:,} of {counted(said.pairs, 'query')}."
    if found.differing:
        text += f" They differ on {some(found.differing)}."
    console.print(text)


def _worth(console: Console, more: Worth, checked: int) -> None:
    """checked: the queries that people have checked in full."""
    console.print()
    console.print(f"How exact {more.metric} of run {more.run} is: half of its 95 % interval", style="bold")
    rows = [("now", more.now)]
    if more.more:
        rows.append((f"with {more.more.checked - more.now.checked} more, about", more.more))
    cells = [(name, f"{one.checked:,}", _half(one.together), _half(one.people)) for name, one in rows]
    _table(console, ("", "checked queries", "with the model's labels", "people's alone"), cells)
    if more.now.checked < checked:
        console.print(
            f"Of the {checked:,} checked queries, {more.now.checked:,} count here: those that people agree about, that "
            "the model has judged in full, and that the measure scores.",
            style="dim",
        )
    if math.isnan(more.now.together):
        why = f"No interval below {LEAST} checked queries, or where hardly any of them differ."
        console.print(why, style="dim")


def _half(width: float) -> str:
    return ABSENT if math.isnan(width) else f"± {width:.3f}"


def _advice(folder: Path, found: Audit) -> Iterator[str]:
    """What to do about it."""
    low = [one for one in (*found.people, *filter(None, [found.again])) if one.statistics["kappa"].value <= LOW]
    if low:
        yield (
            f"Kappa of {' and of '.join(f'{one.first} and {one.second}' for one in low)} is low: agree on what the "
            "grades mean before you blame the model."
        )
    elif found.model and found.model.statistics["kappa"].value <= LOW:
        yield "The model agrees little with people: judge again with another model or prompt."
    yield "Next:"
    review = shlex.join(["harness", "testset", "review", f"testset={folder}"]) + " reviewer=NAME"
    progress = found.progress
    if len(progress.checked) < progress.drawn:
        yield f"  {review} sample=audit  # the drawn queries that are left"
    elif len(progress.checked) < LEAST and found.models:
        yield f"  {review} audit.queries={FEW}  # from {LEAST} checked queries on, scores have intervals"
    if progress.open:
        pairs = counted(progress.open, "pair")
        yield f"  {review} sample=open  # {pairs} that people disagree about or cannot tell"
    yield f"  {shlex.join(['harness', 'testset', 'freeze', f'testset={folder}', 'leave_out=true'])}"


def _table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = terminal.bare_table(header, left=header[:1], folded=header[:1])
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _cells(one: Estimate) -> tuple[str, str, str, str]:
    return _value(one), interval(one.low, one.high), *_sizes(one)


def _value(one: Estimate) -> str:
    return ABSENT if math.isnan(one.value) else f"{one.value:.3f}"


def _sizes(one: Estimate) -> tuple[str, str]:
    return f"{one.queries:,}", f"{one.pairs:,}"


def _notes(console: Console, statistics: Mapping[str, Estimate]) -> None:
    """Why there is no value or interval."""
    notes: dict[str, list[str]] = {}
    for name, one in statistics.items():
        if one.note:
            notes.setdefault(one.note, []).append(name.replace("_", " "))
    for note, names in notes.items():
        console.print(f"{', '.join(names)}: {note}.", style="dim")
