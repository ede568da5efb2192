"""`harness testset audit`: how far the model that judged agrees with people, and people with each other."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.commands.testset.audit_shown import show
from harness.config.check import Invocation
from harness.config.text import counted
from harness.data.files import sha256_of
from harness.data.testset import read_queries
from harness.evaluation.scores import plain
from harness.progress import stage
from harness.reports import terminal
from harness.storage.atomic import write_text
from harness.testset import judge_record
from harness.testset.audit_sample import AuditSample, read_audit
from harness.testset.audit_worth import measure_of, worth
from harness.testset.auditing import AGREEMENT, Audit, audited
from harness.testset.judge_record import read_records
from harness.testset.judged_set import JudgedSet
from harness.testset.judgements import HUMAN, JUDGEMENTS, JudgementLog, current
from harness.testset.pool import Pool, read_pool
from retrievers.base import BadInput

FEWEST = 2  # checked queries from which anything can be estimated


def audit(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Compare the judges of the queries that people have checked, print it, and write it to `agreement.json`."""
    folder = Path(config["testset"])
    with stage("reading judgements"):
        judged, pool, sample = _read(folder)
    measure = measure_of(config["metric"], pool)
    with stage("comparing judges"):
        found = audited(judged, sample, config["relevant_from"])
        _require_checked(folder, found)
        more = worth(judged, pool, sample, measure, config["relevant_from"])
    records = [one for by, one in read_records(folder).items() if by.partition(":")[2] in found.models]
    document: dict[str, Any] = plain({"testset": str(folder), **asdict(found), "worth": more and asdict(more)})
    document["judgements"] = sha256_of(folder / JUDGEMENTS)
    document["judges"] = {one.by: judge_record.row(one) for one in records}
    write_text(folder / AGREEMENT, json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    terminal.emit(config["format"], document, lambda console: show(console, folder, found, records, more))
    return document


def _read(folder: Path) -> tuple[JudgedSet, Pool, AuditSample]:
    """BadInput where there is nothing to compare yet."""
    queries = {one.query.query_id: one for one in read_queries(folder, "testset")}
    pool = read_pool(folder)
    if (sample := read_audit(folder)) is None:
        raise BadInput(f"testset={folder}: no queries are drawn for people to check. {_review(folder)}")
    log = JudgementLog(folder)
    said = current(log.read(), {query_id: one.query for query_id, one in queries.items()})
    if not any(one.basis == HUMAN and one.sample == "audit" for one in said):
        why = f"{folder / JUDGEMENTS} has no judgements by people for the audit"
        raise BadInput(f"testset={folder}: {why}, or their queries have been edited since. {_review(folder)}")
    return JudgedSet(queries, pool.pairs, said), pool, sample


def _require_checked(folder: Path, found: Audit) -> None:
    progress = found.progress
    if len(progress.checked) >= FEWEST:
        return
    blind = f" {counted(progress.not_blind, 'judgement')} do not count, as they were not blind." * bool(
        progress.not_blind
    )
    raise BadInput(
        f"testset={folder}: people have checked {len(progress.checked)} of {counted(progress.drawn, 'drawn query')} "
        f"in full, and {FEWEST} are needed.{blind} {_review(folder)}"
    )


def _review(folder: Path) -> str:
    command = shlex.join(["harness", "testset", "review", f"testset={folder}"])
    return f"Judge them first: {command} reviewer=NAME sample=audit"
