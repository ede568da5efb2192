"""The scores of a run as tables and sentences of its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config.text import counted, short_id
from harness.data.files import some
from harness.experiment.timing import HIGH, LATENCY, LOW, MS, machine
from harness.measures.measures import LOSING, MERGED, OOF
from harness.measures.objective import Objective
from harness.measures.scores import UNANSWERABLE, UNKNOWN, Scores
from harness.measures.slices import SliceScore
from harness.reports.markup import estimated, interval, levels_text, number, raw
from harness.reports.tables import INTERVAL, Column, Number, Rows, Table

LEAST_LOSS = 0.00005  # a smaller loss is printed as 0.0000
UNUSUAL = ("unlabelled", "missing", "duplicates")  # numbers of queries; each is reported unless it is 0
RANGES = {
    "plateau": "thresholds within one standard error of the best",
    "threshold_interval": f"{INTERVAL} of the threshold",
    "objective_interval": f"{INTERVAL} of the score on the queries that the gate was fitted on",
}


def slice_table(slices: Sequence[SliceScore], title: str) -> Table:
    """Return the table of a run's scores by slice. title: of the objective."""
    rows: Rows = [[one.name, Number(one.mean, one.low, one.high), one.n] for one in slices]
    columns = [Column("slice"), Column("mean", "value"), Column("queries", "count")]
    return Table(f"{title}, by slice", columns, rows, noted((one.note, one.name) for one in slices))


def noted(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a sentence for each note, with the names that it is about. pairs: (note or "", name)."""
    names: dict[str, list[str]] = {}
    for note, name in pairs:
        names.setdefault(note, []).append(name)
    return [f"{some(about)}: {note}." for note, about in names.items() if note]


def measured_lines(measured: Mapping[str, float]) -> Iterator[str]:
    """Yield lines about a run's measurements other than scores. Give times with their ranges, and name the machine."""
    for name, value in measured.items():
        kind, slash, part = name.partition("/")
        if kind == MS:
            ends = [measured[key] for end in (LOW, HIGH) if (key := f"{end}{slash}{part}") in measured]
            yield f"{name} {value:.4f}" + (f" ({ends[0]:.4f} to {ends[1]:.4f})" if ends else "")
        elif kind not in (LOW, HIGH):
            yield f"{name} {value:.4f}"
    if any(name.startswith(LOW) for name in measured):
        yield f"Times were measured with all queries in one batch, after a warm-up, on this machine: {machine()}."
    if any(name.startswith(LATENCY) for name in measured):
        yield "Latencies were measured for single requests, in the search that made the ranking."


def score_tables(scores: Scores, held_out: Scores | None = None, objective: Objective | None = None) -> list[Table]:
    """Return three tables: the measures, the losses, and the scores if one part of the run were perfect."""
    learnt = (
        f"The run learnt from labels of these queries. {OOF}NAME is the score with rules that were learnt without the "
        "query's own label."
    )
    measures = replace(score_table(scores, held_out), notes=[learnt] if held_out else [])
    ceilings = (held_out or scores).ceilings if scores.losses and loses(objective) else {}
    perfect = [f"{name:<26} {value:.4f}" for name, value in ceilings.items()]
    return [
        measures,
        loss_table(scores, held_out, objective),
        Table("With one part perfect, modified_map@3 would be", notes=perfect),
    ]


def loss_table(
    scores: Scores, held_out: Scores | None = None, objective: Objective | None = None, least: float = 0.0
) -> Table:
    """Return the table of losses, without those below `least`; empty if the losses do not add up to 1 - objective."""
    kind, score = (", out of fold", f"{OOF}modified_map@3") if held_out else ("", "modified_map@3")
    losses = (held_out or scores).losses if loses(objective) else {}
    lines = [
        f"{name:<26} {value:.4f}  {'█' * round(40 * value)}".rstrip()
        for name, value in losses.items()
        if value >= least
    ]
    if lines and MERGED in losses:
        lines.append("The lists end at the last rank that counts: a missing document may have been found further down.")
    return Table(f"Where the score is lost{kind} (the losses and {score} add up to 1)", notes=lines)


def score_notes(scores: Scores) -> list[str]:
    """Return notes on scored queries, unknown documents, and measures without a value or an interval."""
    unknown = scores.counts.get(UNKNOWN)
    warning = (
        f"Warning: the lists contain {counted(unknown or 0, 'document')} that the dataset lacks; none counts as "
        "relevant. Were the lists made for an earlier state of the corpus?"
    )
    return [counted_queries(scores), *([warning] if unknown else []), *notes_of(scores)]


def main_notes(scores: Scores) -> list[str]:
    """Return the `checked_notes`. If any queries are UNUSUAL or unanswerable, begin with a line that counts queries."""
    unusual = scores.unanswerable or any(scores.counts[name] for name in UNUSUAL)
    return [*([counted_queries(scores)] if unusual else []), *checked_notes(scores)]


def where_logged(folder: Path, run_id: str | None, experiment: str) -> list[str]:
    run = [f"Run {short_id(run_id)} of experiment {experiment!r}."] if run_id else []
    return [f"Files: {folder}", *run]


def score_table(scores: Scores, held_out: Scores | None = None) -> Table:
    """Return the table of the measures with a value. Each in-sample row is followed by its out-of-fold row."""
    rows: Rows = []
    for name, of in [(name, of) for name in scores.summary for of in (scores, held_out) if of and name in of.summary]:
        if not (one := of.summary[name]).n:
            continue
        measure, found = f"{OOF}{name}" if of is held_out else name, of.estimate(name)
        if scores.checked:
            mean = Number(found.value, found.low, found.high) if found else None
            rows.append([measure, mean, one.known, one.n])
        else:
            parts = [part[name].known if name in part else None for part in (of.public, of.private)]
            rows.append([measure, Number(one.known, one.low, one.high), one.n, *parts])
    if apart := scores.unanswerable:
        mean = Number(apart.mean, apart.low, apart.high)
        rows.append([UNANSWERABLE, mean, *([None, apart.n] if scores.checked else [apart.n, None, None])])
    count = Column("queries", "count")
    columns = [Column("mean", "value"), count, Column("public", "value"), Column("private", "value")]
    if scores.checked:
        columns = [Column("estimate", "value"), Column("raw mean", "value"), count]
    return Table("Measures", [Column("measure"), *columns], rows)


def notes_of(scores: Scores) -> list[str]:
    notes: dict[tuple[bool, str], list[str]] = {}
    for name, summary in scores.summary.items():
        if summary.note:
            notes.setdefault((summary.n > 0, summary.note), []).append(name)
    for name, found in scores.estimates.items():
        if found.note and scores.summary[name].n:
            notes.setdefault((True, found.note), []).append(name)
    said = [f"{'' if known else 'Absent: '}{', '.join(names)}: {note}." for (known, note), names in notes.items()]
    return [*said, *checked_notes(scores)]


def checked_notes(scores: Scores) -> list[str]:
    """Return notes on estimates and on judging more documents; [] unless labels come partly from a model."""
    if scores.checked is None:
        return []
    said = [
        "An estimate is the score that people's labels of all queries would give. It corrects the model's labels by "
        "the queries that people have checked (PPI++). Raw means are not corrected and have no interval."
    ]
    if undrawn := scores.checked.undrawn:
        said.append(f"Estimates leave out {counted(undrawn, 'scored query')} that could not be drawn for checking.")
    if scores.checked.outside:
        said.append(
            "To judge documents that people have not judged: harness testset pool testset=FOLDER runs=[ID], harness "
            "testset judge testset=FOLDER, harness testset review testset=FOLDER sample=audit, and harness "
            "testset freeze testset=FOLDER as a new version."
        )
    return said


def ranked_by(one: Objective, scores: Scores | None = None) -> str:
    """Return one line with the score that ranks a run. Begin with its estimate if a model made some labels."""
    if found := one.estimate:
        return f"{estimated(found, one.title)}. Ranked by the {raw(found, one.value)}."
    summary = (scores.public if one.select_on == "public" else scores.summary).get(one.name) if scores else None
    rests = f"on {counted(summary.n, 'query')}" if summary else ""
    ends = " ".join(filter(None, (interval(one.low, one.high, absent=""), rests)))
    return f"{one.name} {number(one.value)} ({', '.join(filter(None, (ends, one.kind)))})"


def standing(one: Objective, before: Objective, run: str) -> str:
    """Return a sentence that compares a score with the best score so far. run: the short id of the best run."""
    kind = "" if before.kind == one.kind else f", {before.kind}"
    so_far = f"the best so far (run {run}{kind}{', raw' if one.estimate else ''})."
    difference = one.value - before.value
    return f"{difference:+.4f} against {so_far}" if difference else f"As good as {so_far}"


def peeked(experiment: str, peeks: int) -> str:
    return (
        f"Private scores of experiment {experiment!r} have been seen {counted(peeks, 'time')}. Each look that "
        "guides the next run makes these scores less reliable."
    )


def gate_table(fitted: Mapping[str, Any], whole: bool = True) -> Table:
    """Return the rule that a gate learnt. fitted: the content of `gate.json`. whole: include intervals."""
    rule = fitted["rule"]
    signal = " ".join(filter(None, rule["features"][0])) if len(rule["features"]) == 1 else "logistic regression"
    lines = [f"{signal}: {levels_text(rule['levels'], [float(one) for one in rule['thresholds']])}."]
    for name, meaning in RANGES.items():
        if whole and name in fitted and (ends := _ends(*map(float, fitted[name]))):
            lines.append(f"{meaning}: {ends}")
    return Table(f"Gate, {_learnt_from(fitted)}", notes=[*lines, *(f"Note: {note}." for note in fitted["notes"])])


def fusion_table(fitted: Mapping[str, Any], whole: bool = True) -> Table:
    """Return the rule that a fusion learnt. fitted: the content of `fusion.json`. whole: include the weights."""
    lines = [f"{fitted['chosen']}."]
    if whole:
        by_ranking: dict[str, list[str]] = {}
        for one in fitted["rule"]["features"]:
            by_ranking.setdefault(one["ranking"], []).append(f"{one['weight']:.4g} {one['feature']}")
        lines += [f"{name}: {', '.join(terms)}" for name, terms in by_ranking.items()]
        lines.append(fitted["why"])
        if held_out := fitted["held_out"]:
            values = ", ".join(f"{name} {number(value)}" for name, value in held_out.items())
            lines.append(f"{fitted['objective']} on held-out queries: {values}")
    return Table(f"Fusion, {_learnt_from(fitted)}", notes=[*lines, *(f"Note: {note}." for note in fitted["notes"])])


def _learnt_from(fitted: Mapping[str, Any]) -> str:
    learnt = fitted["learnt_from"]
    return f"learnt from {counted(learnt['queries'], 'query')} ({learnt['needs_no_retrieval']} need no retrieval)"


def loses(objective: Objective | None) -> bool:
    """Return whether the losses add up to 1 - objective. Only then are they shown."""
    return objective is None or objective.name == LOSING


def _ends(low: float, high: float) -> str:
    if math.isinf(low) or math.isinf(high):
        words = [f"from {low:.4g}"] * math.isfinite(low) + [f"up to {high:.4g}"] * math.isfinite(high)
        return "".join(words)
    return f"{low:.4g} to {high:.4g}"


def counted_queries(scores: Scores) -> str:
    counts = scores.counts
    scored = counted(counts["scored"], "labelled query")
    text = f"{scored} scored, {counts['needs_no_retrieval']} of them need no retrieval"
    for name in ("unlabelled", "missing", "duplicates"):
        if counts[name]:
            text += f"; {counts[name]} {name}"
    apart = counts.get("unanswerable")
    return f"{text}{f'; {apart} unanswerable, scored separately' if apart else ''}."
