"""`harness testset audit`: measure how far people agree with the judging model and with each other."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.check import Invocation
from harness.config.commands import AuditConfig
from harness.config.text import counted
from harness.data.files import sha256_of, some
from harness.errors import BadInput
from harness.progress import stage
from harness.reports.markup import interval
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Cell, Column, Number, Rows, Table
from harness.statistics.agreement import DesignEstimate
from harness.statistics.prediction_powered import FEW, LEAST
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from harness.testset.audit.auditing import AGREEMENT, Audit, Progress, Worth, audited, measure_of, read_audit, worth
from harness.testset.judge.judge_record import CONTROLS, JudgeRecord, read_records
from harness.testset.judge.judgements import HUMAN, JUDGEMENTS, read_judged_set
from harness.testset.pool.pool import read_pool

FEWEST = 2  # minimum number of checked queries for an estimate
LOW = 0.4  # A kappa of at most this value is at best 'fair' (Landis and Koch 1977).
NUMBERS = (Column("estimate", "value", 3), Column("queries", "count"), Column("pairs", "count"))
TITLES = {
    "agreed": "same grade",
    "kappa": "kappa, relevant or not",
    "quadratic_kappa": "kappa of grades, quadratic",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
}


def audit(config: AuditConfig, invocation: Invocation) -> CommandAnswer:
    """Compare the judges on the queries that people have checked; print the result and write it to `agreement.json`."""
    folder = config.testset
    with stage("reading judgements"):
        judged, pool, sample = read_judged_set(folder), read_pool(folder), read_audit(folder)
    if sample is None:
        raise _unready(folder, "no queries are drawn for people to check.")
    if not any(one.basis == HUMAN and one.sample == "audit" for one in judged.judgements):
        why = f"{folder / JUDGEMENTS} has no judgements by people for the audit"
        raise _unready(folder, f"{why}, or the judged queries have been edited since.")
    measure = measure_of(config.metric, pool)
    with stage("comparing judges"):
        found = audited(judged, sample, config.relevant_from)
        if len(found.progress.checked) < FEWEST:
            raise _unready(folder, _too_few(found.progress))
        more = worth(judged, pool, sample, measure, config.relevant_from)
    records = [one for by, one in read_records(folder).items() if by.partition(":")[2] in found.models]
    document: dict[str, Any] = {"testset": str(folder), **encoded(found), "worth": encoded(more)}
    document["judgements"] = sha256_of(folder / JUDGEMENTS)
    document["judges"] = {one.by: encoded(one) for one in records}
    write_text(folder / AGREEMENT, json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return CommandAnswer(document, audit_report(folder, found, records, more))


def _unready(folder: Path, why: str) -> BadInput:
    command = shlex.join(["harness", "testset", "review", f"testset={folder}"])
    return BadInput(f"testset={folder}: {why} To draw and judge queries: {command} reviewer=NAME sample=audit")


def _too_few(progress: Progress) -> str:
    seen = progress.not_blind
    blind = f" {counted(seen, 'judgement')} do not count, since they are not blind." if seen else ""
    checked = f"{len(progress.checked)} of {counted(progress.drawn, 'drawn query')}"
    return f"people have checked {checked} in full, but {FEWEST} are needed.{blind}"


def audit_report(folder: Path, found: Audit, records: Sequence[JudgeRecord], more: Worth | None) -> Report:
    """Return the report. records: records of the models that judged. more: what checking more queries would gain."""
    progress = found.progress
    title = (
        f"{folder}: {len(progress.checked)} of {counted(progress.drawn, 'drawn query')} checked in full by people; "
        f"they stand for {progress.stand_for:,} queries."
    )
    seen = progress.not_blind
    notes = [f"Left out: {counted(seen, 'judgement')} by people who saw other judgements."] if seen else []
    tables = [*_model(found), _people(found), *([_worth(more, len(progress.checked))] if more else [])]
    notes += [*map(_controls, records), _needs(found)]
    return Report(title, [*_advice(found)], tables, notes, steps=[*_steps(folder, found)])


def _model(found: Audit) -> Iterator[Table]:
    if found.model is None:
        both = "No pair was graded both by people and by the model."
        yield Table("The model", notes=[both if found.models else "No model has judged the checked queries."])
        return
    notes = [
        f"A document is relevant from grade {found.relevant_from} on.",
        "Sensitivity: of the pairs that people find relevant, the share that the model finds relevant.",
        "Specificity: of the pairs that people find not relevant, the share that the model finds not relevant.",
        *_reasons(found.model.statistics),
    ]
    rows: Rows = [[TITLES[name], *_cells(one)] for name, one in found.model.statistics.items()]
    title = f"The model, {' and '.join(found.models)}, against people"
    yield Table(title, [Column("measure"), *NUMBERS], rows, notes)
    grades = range(len(found.model.counts))
    columns = [Column("pairs"), *(Column(f"model: {grade}", "count") for grade in grades)]
    yield Table("Grades", columns, [[f"people: {grade}", *found.model.counts[grade]] for grade in grades])
    if len(found.kinds) > 1:
        shown = ("kappa", "sensitivity", "specificity")
        kinds = [
            [kind, *(one.statistics[name].value for name in shown), *_cells(one.statistics["kappa"])[1:]]
            for kind, one in found.kinds.items()
        ]
        values = [Column(name, "value", 3) for name in shown]
        yield Table("By kind of query", [Column("kind"), *values, *NUMBERS[1:]], kinds)


def _controls(record: JudgeRecord) -> str:
    if not record.controls:
        return f"{record.by}: no hidden controls."
    known = {what: record.controls.get(kind) for kind, what in CONTROLS.items()}
    said = (f"{one.count} of {one.of} {what}" for what, one in known.items() if one)
    return f"Hidden controls that the model found relevant: {', '.join(said)}."


def _people(found: Audit) -> Table:
    pairs = {f"{one.first} and {one.second}": one.statistics for one in found.people}
    pairs |= {"first and second judgements by one person": found.again.statistics} if found.again else {}
    if not pairs:
        none = "No pair was judged by two people, or twice by one person, so agreement is unknown."
        return Table("People", notes=[none])
    rows: Rows = [[name, *_cells(of["kappa"]), of["quadratic_kappa"].value] for name, of in pairs.items()]
    notes = [*_reasons({name: of["kappa"] for name, of in pairs.items()})]
    if found.alpha:
        ends = interval(found.alpha.low, found.alpha.high, absent="")
        value = "–" if math.isnan(found.alpha.value) else f"{found.alpha.value:.3f}"
        notes.append(
            f"Krippendorff's alpha of all people, ordinal: {value}{f' ({ends})' if ends else ''}, from "
            f"{found.alpha.pairs:,} grades of pairs that several people judged."
        )
    return Table("People", [Column("kappa of"), *NUMBERS, Column("quadratic", "value", 3)], rows, notes)


def _needs(found: Audit) -> str:
    said = found.needs.statistics["agreed"]
    alike = sum(found.needs.counts[one][one] for one in (0, 1))
    text = f"Need for retrieval: people agree with the draft on {alike:,} of {counted(said.pairs, 'query')}."
    return f"{text} They differ on {some(found.differing)}." if found.differing else text


def _worth(more: Worth, checked: int) -> Table:
    """Return the table of interval widths. checked: number of queries that people have checked in full."""
    rows: Rows = [["now", more.now.checked, more.now.together, more.now.people]]
    if one := more.more:
        rows.append([f"with {one.checked - more.now.checked} more, about", one.checked, one.together, one.people])
    notes = []
    if more.now.checked < checked:
        notes.append(
            f"Of the {checked:,} checked queries, {more.now.checked:,} count here: people agree about them, the model "
            "has judged them in full, and the measure scores them."
        )
    if math.isnan(more.now.together):
        notes.append(f"No intervals: they need at least {LEAST} checked queries, not nearly all with the same value.")
    halves = [Column(name, "value", 3) for name in ("± with the model's labels", "± with people's labels alone")]
    columns = [Column(""), Column("checked queries", "count"), *halves]
    caption = f"Uncertainty of {more.metric} of run {more.run}: half the width of its 95 % interval"
    return Table(caption, columns, rows, notes)


def _advice(found: Audit) -> Iterator[str]:
    low = [one for one in (*found.people, *filter(None, [found.again])) if one.statistics["kappa"].value <= LOW]
    if low:
        names = " and of ".join(f"{one.first} and {one.second}" for one in low)
        yield f"Kappa of {names} is low. Agree on the meaning of the grades before you blame the model."
    elif found.model and found.model.statistics["kappa"].value <= LOW:
        yield "The model agrees little with people. Judge again with another model or prompt."


def _steps(folder: Path, found: Audit) -> Iterator[str]:
    review = shlex.join(["harness", "testset", "review", f"testset={folder}"]) + " reviewer=NAME"
    progress = found.progress
    if len(progress.checked) < progress.drawn:
        yield f"{review} sample=audit  # the other drawn queries"
    elif len(progress.checked) < LEAST and found.models:
        yield f"{review} audit.queries={FEW}  # scores have intervals once {LEAST} queries are checked"
    if progress.open:
        pairs = counted(progress.open, "pair")
        yield f"{review} sample=open  # {pairs} on which people disagree or are unsure"
    yield shlex.join(["harness", "testset", "freeze", f"testset={folder}", "leave_out=true"])


def _cells(one: DesignEstimate) -> list[Cell]:
    return [Number(one.value, one.low, one.high), one.queries, one.pairs]


def _reasons(statistics: Mapping[str, DesignEstimate]) -> Iterator[str]:
    """Yield sentences that say why values or intervals are missing."""
    notes: dict[str, list[str]] = {}
    for name, one in statistics.items():
        if one.note:
            notes.setdefault(one.note, []).append(name.replace("_", " "))
    for note, names in notes.items():
        yield f"{', '.join(names)}: {note}."
