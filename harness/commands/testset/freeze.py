"""`harness testset freeze`: what all judgements come to, as labels that do not change any more."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.check import Invocation
from harness.config.commands import FreezeConfig
from harness.config.text import counted
from harness.data.frozen import FROZEN, read_frozen
from harness.progress import stage
from harness.reports.next_steps import flag
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Table
from harness.testset.freeze import freezing
from harness.testset.freeze.freezing import Material, read_agreement, snapshot, write_frozen
from harness.testset.judge.judgements import LLM
from harness.testset.review.resolution import DRAFTED, Question


@dataclass(frozen=True)
class FreezeOutcome:
    """What was frozen, or was there already.

    path: of the version. new: whether it was written now. manifest: the content of `frozen.json`.
    left_out: open questions about queries that are left out. unchecked: why there are no checks by people.
    """

    path: Path
    new: bool
    manifest: Mapping[str, Any]
    exported: Sequence[freezing.Exported]
    left_out: Sequence[Question] = ()
    unchecked: str = ""


def freeze(config: FreezeConfig, invocation: Invocation) -> CommandAnswer:
    """Freeze a test set, and write it for other tools. A version that is there already is exported as it is.

    BadInput for open questions, unless their queries may be left out, and if the version is there with other labels.
    """
    testset = config.testset
    output = Path(config.output or testset / f"v{config.version}")
    if config.formats and (output / FROZEN).exists():
        manifest = read_frozen(output, "output")
        outcome = FreezeOutcome(output, False, manifest, freezing.export_testset(output, config.formats))
    else:
        outcome = _frozen(config, testset, output)
    said = ("version", "sha256", "judged_until", "relevant_from", "counts", "models", "people", "agreement")
    document = {
        "frozen": str(outcome.path),
        "new": outcome.new,
        **{key: outcome.manifest[key] for key in said},
        "left_out": [{"query": one.query_id, "doc": one.doc_id, "why": one.what} for one in outcome.left_out],
        "unchecked": outcome.unchecked or None,
        "exported": {one.name: {"path": str(one.path), "left_out": one.left_out} for one in outcome.exported},
    }
    return CommandAnswer(document, freeze_report(outcome, invocation.config_dir))


def _frozen(config: FreezeConfig, testset: Path, output: Path) -> FreezeOutcome:
    with stage("reading judgements"):
        material = Material.read(testset, config.documents, config.relevant_from)
    left_out = material.resolved.open
    if not config.leave_out or not material.kept:
        freezing.refuse_open(left_out, len(material.judged.queries), testset)
    with stage("freezing"):
        texts, manifest = snapshot(material, config.version, read_agreement(testset), output)
        new = write_frozen(output, texts, manifest)
    exported = freezing.export_testset(output, config.formats)
    return FreezeOutcome(output, new, manifest, exported, left_out, material.checks.why)


def freeze_report(outcome: FreezeOutcome, config_dir: str | None) -> Report:
    """Return what was frozen, what to know of it, and how it is used."""
    manifest = outcome.manifest
    how = "is frozen" if outcome.new else "is there already"
    words = [*flag(config_dir), "dataset=frozen", f"dataset.path={outcome.path}"]
    return Report(
        f"{outcome.path} {how}: version {manifest['version']}, {manifest['sha256'][:12]}",
        tables=[_counts(manifest["counts"])],
        notes=[*_remarks(outcome)],
        steps=[shlex.join(["harness", "run", *words])],
    )


def _counts(counts: Mapping[str, Any]) -> Table:
    kinds = ", ".join(f"{count:,} {kind or 'of no kind'}" for kind, count in counts["kinds"].items())
    pairs = ", ".join(f"{count:,} {basis}" for basis, count in counts["pairs"].items() if count)
    rows = [["queries", counts["queries"], kinds], ["judged pairs", sum(counts["pairs"].values()), pairs]]
    for key in ("judged", "relevant"):
        spread = counts[f"{key}_per_query"]
        rows.append([f"{key} per query", spread["mean"], f"{spread['least']:,} to {spread['most']:,}"])
    if counts["without_relevant"]:
        rows.append(["without relevant", counts["without_relevant"], "these need retrieval, and score 0"])
    rows.append(["checked by people", counts["checked"], f"of {counts['drawn']:,} drawn"])
    return Table("Labels", [Column("what"), Column("number", "rough"), Column("of which")], rows)


def _remarks(outcome: FreezeOutcome) -> Iterator[str]:
    counts = outcome.manifest["counts"]
    if drafted := counts["needs"].get(DRAFTED, 0):
        yield f"Whether they need retrieval is as drafted for {counted(drafted, 'query')}: nobody has judged it."
    if outcome.left_out:
        yield f"Left out: {counts['left_out']:,} of {counts['queries'] + counts['left_out']:,} queries."
        yield from freezing.open_questions(outcome.left_out)
    agreement = outcome.manifest["agreement"]
    if counts["checked"] and counts["pairs"][LLM] and (agreement is None or agreement["stale"]):
        what = "is of earlier judgements" if agreement else "has not been measured"
        yield f"How far model and people agree {what}: run `harness testset audit` first."
    if outcome.unchecked and counts["pairs"][LLM]:
        yield f"Scores will have no honest interval: {outcome.unchecked}."
    for one in outcome.exported:
        why = ", ".join(f"{count:,} {reason}" for reason, count in one.left_out.items())
        yield f"{one.path}: for {one.name}" + (f"; no labels there: {why}" if why else "")
