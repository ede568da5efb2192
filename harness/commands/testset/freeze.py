"""`harness testset freeze`: turn all judgements into labels that never change."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
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


def freeze(config: FreezeConfig, invocation: Invocation) -> CommandAnswer:
    """Freeze and export a test set. If the version exists already, only export it. Raise BadInput if it has other
    labels. Also raise BadInput if questions are open, unless their queries may be left out."""
    output = Path(config.output or config.testset / f"v{config.version}")
    new, unchecked = False, ""
    left_out: Sequence[Question] = ()
    if not (config.formats and (output / FROZEN).exists()):
        with stage("reading judgements"):
            material = Material.read(config.testset, config.documents, config.relevant_from)
        left_out = material.resolved.open
        if not config.leave_out or not material.kept:
            freezing.refuse_open(left_out, len(material.judged.queries), config.testset)
        with stage("freezing"):
            agreement = read_agreement(config.testset)
            new = write_frozen(output, *snapshot(material, config.version, agreement, output))
        unchecked = material.checks.why
    manifest = read_frozen(output, "output")
    exported = freezing.export_testset(output, config.formats)
    said = ("version", "sha256", "judged_until", "relevant_from", "counts", "models", "people", "agreement")
    document = {
        "frozen": str(output),
        "new": new,
        **{key: manifest[key] for key in said},
        "left_out": [{"query": one.query_id, "doc": one.doc_id, "why": one.what} for one in left_out],
        "unchecked": unchecked or None,
        "exported": {one.name: {"path": str(one.path), "left_out": one.left_out} for one in exported},
    }
    words = [*flag(invocation.config_dir), "dataset=frozen", f"dataset.path={output}"]
    report = Report(
        f"{output} is {'frozen' if new else 'unchanged'}: version {manifest['version']}, {manifest['sha256'][:12]}",
        tables=[_counts(manifest["counts"])],
        notes=[*_remarks(document, left_out)],
        steps=[shlex.join(["harness", "run", *words])],
    )
    return CommandAnswer(document, report)


def _counts(counts: Mapping[str, Any]) -> Table:
    kinds = ", ".join(f"{count:,} {kind or 'of no kind'}" for kind, count in counts["kinds"].items())
    pairs = ", ".join(f"{count:,} {basis}" for basis, count in counts["pairs"].items() if count)
    rows = [["queries", counts["queries"], kinds], ["judged pairs", sum(counts["pairs"].values()), pairs]]
    for key in ("judged", "relevant"):
        spread = counts[f"{key}_per_query"]
        rows.append([f"{key} per query", spread["mean"], f"{spread['least']:,} to {spread['most']:,}"])
    if counts["without_relevant"]:
        rows.append(["without relevant", counts["without_relevant"], "queries that need retrieval; they score 0"])
    rows.append(["checked by people", counts["checked"], f"of {counts['drawn']:,} drawn"])
    return Table("Labels", [Column("what"), Column("number", "rough"), Column("of which")], rows)


def _remarks(document: Mapping[str, Any], left_out: Sequence[Question]) -> Iterator[str]:
    counts, agreement = document["counts"], document["agreement"]
    if drafted := counts["needs"].get(DRAFTED, 0):
        yield f"For {counted(drafted, 'query')}, the need for retrieval is as drafted: people have not judged it."
    if left_out:
        yield f"Left out: {counts['left_out']:,} of {counts['queries'] + counts['left_out']:,} queries."
        yield from freezing.open_questions(left_out)
    if counts["checked"] and counts["pairs"][LLM] and (agreement is None or agreement["stale"]):
        what = "was measured before the latest judgements" if agreement else "has not been measured"
        yield f"The agreement of model and people {what}. Run `harness testset audit` first."
    if document["unchecked"] and counts["pairs"][LLM]:
        yield f"Scores will have no honest intervals: {document['unchecked']}."
    for name, one in document["exported"].items():
        why = ", ".join(f"{count:,} {reason}" for reason, count in one["left_out"].items())
        yield f"{one['path']}: for {name}" + (f"; queries without labels: {why}" if why else "")
