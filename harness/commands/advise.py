"""`harness advise`: propose what to try next after a run, with the possible gain, cost and command of each proposal."""

from __future__ import annotations

import shlex

from harness.analysis.board.expected import shown_of_run
from harness.analysis.proposals import advising
from harness.analysis.proposals.advising import PERFECT, Ceiling, advise, part_ceilings
from harness.analysis.proposals.catalogue import Proposal
from harness.analysis.proposals.command_lines import override_key
from harness.analysis.proposals.evidence import RANKS, RankCounts, rank_counts
from harness.analysis.ranking import needed_metric, settled
from harness.config import consent
from harness.config.check import Invocation
from harness.config.commands import AdviseConfig
from harness.progress import stage
from harness.recording.recording import open_store
from harness.recording.run_kind import require_retrieval
from harness.reports import next_steps
from harness.reports.markup import number, p_value
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.storage.typed import encoded

WITHHELD = "These overrides of the run say where queries and secrets are sent. Add them if you trust the run:"
FULL = 0.99995  # a bound that leads to a score of 1, as shown, says nothing: no measure exceeds 1
NOTHING = "Nothing that this machine can try is likely to gain enough to be worth a run."


def advise_run(config: AdviseConfig, invocation: Invocation) -> CommandAnswer:
    require_retrieval(config.task, "advise")
    tracker = open_store(config)
    with stage("reading the run"):
        config, notes = settled(tracker, config)
        read = advising.read_advised(tracker, config, invocation.config_dir)
    with stage("looking for what to try"):
        found = advise(read.situation, config.top) if read.situation else []
        expected = shown_of_run(tracker, read.run, config.metric, config.select_on)
    place = next_steps.Place.of(config, invocation)
    words = dict.fromkeys(word for one in found for word in one.words)
    withheld = [word for word in words if consent.needs_command_line(override_key(word))]
    commands = [place.command(one.verb, *(word for word in one.words if word not in withheld)) for one in found]
    notes = [*notes, *read.notes, *([f"{WITHHELD} {shlex.join(withheld)}"] if withheld else [])]
    evidence = read.evidence
    limits, stand = part_ceilings(evidence, read.others.best), rank_counts(evidence)
    if near := advising.untold(read.run, evidence, read.others):
        metric = needed_metric(evidence.measure.name, read.run, near.run)
        labels = place.command("power", f"runs=[{read.run.short_id},{near.run.short_id}]", metric=metric)
    document = {
        "run_id": read.run.run_id,
        "metric": evidence.measure.name,
        "value": evidence.value,
        "expected": expected,
        "queries": len(evidence.query_ids),
        "ceilings": limits,
        "places": stand,
        "advice": [encoded(one) | {"command": command} for one, command in zip(found, commands, strict=True)],
        "not_told_apart": {"run_id": near.run.run_id, "p": near.p, "command": labels} if near else None,
        "notes": notes,
    }
    if near:
        notes = [
            *notes,
            f"The queries do not tell this run apart from {near.run.named} (p {p_value(near.p)} for this pair alone). "
            "The next command computes how many more labels it would take to tell these two runs apart.",
        ]
    score = f"{evidence.measure.name} {number(evidence.value)}"
    title = f"Run {read.run.named}: {score} on {len(evidence.query_ids):,} queries"
    tables = [_to_try(found, commands, evidence.value), _ceilings(limits, evidence.value), _rank_counts(stand)]
    verdict, steps = [expected.sentence] if expected else [], [labels] if near else []
    return CommandAnswer(document, Report(title, verdict, tables, notes, steps=steps))


def _rank_counts(found: list[RankCounts]) -> Table:
    counts = [Column(name, "count") for name in (*(f"at {rank}" for rank in RANKS), "never", "here alone")]
    rows: Rows = [[one.name, *one.found.values(), one.never, one.alone] for one in found]
    return Table("Queries with a relevant document up to each rank", [Column("ranking"), *counts], rows)


def _ceilings(found: list[Ceiling], value: float) -> Table:
    by: dict[float, list[str]] = {}
    vacuous = [one for one in found if one.of == PERFECT and value + one.bound > FULL]
    for one in (one for one in found if one not in vacuous):
        by.setdefault(round(one.bound, 4), []).append(one.of)
    rows: Rows = [[bound, "; ".join(parts)] for bound, parts in by.items()]
    columns = [Column("bound", "difference"), Column("by")]
    notes = [f"Not listed: {one.of}. Its score is always 1." for one in vacuous]
    return Table("The most that each change could gain, with everything else unchanged", columns, rows, notes)


def _to_try(found: list[Proposal], commands: list[str], value: float) -> Table:
    """Return the proposals with their commands. Do not repeat a reason or an upper bound of an earlier proposal."""
    said: set[str] = set()
    lines = []
    for place, (one, command) in enumerate(zip(found, commands, strict=True), 1):
        limit = f"at most {number(one.bound)}"
        bound = "" if one.exact or limit in said or value + one.bound > FULL else f", {limit}"
        worth = (
            f"{number(one.bound)} more on these queries" if one.exact else f"usually about {number(one.expected)} more"
        )
        lines += [f"{place}. {one.title}: {worth}{bound}. {_cost(one)}"]
        lines += [f"   {line}" for line in ([] if one.why in said else [one.why])] + [f"   {command}"]
        said |= {limit, one.why}
    return Table("What to try, the greatest expected gain first", notes=lines or [NOTHING])


def _cost(one: Proposal) -> str:
    if one.cost is None or one.cost.seconds is None:
        return f"Cost unknown{f': {one.cost.reason}' if one.cost else ''}."
    return f"About {max(1, round(one.cost.seconds)):,} s: {one.cost.reason}."
