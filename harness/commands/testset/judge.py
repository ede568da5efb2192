"""`harness testset judge`: a language model grades the pairs of a pool."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.config.check import Invocation
from harness.config.commands import JudgeConfig
from harness.config.components import build
from harness.config.text import counted
from harness.data.files import some
from harness.data.testset import read_testset_manifest
from harness.errors import BadInput
from harness.experiment.session import chat_for
from harness.llm.chat import Chat, ChatModel
from harness.llm.usage import Usage, UsageEstimate
from harness.progress import stage
from harness.reports import terminal
from harness.reports.report import Report
from harness.reports.tables import Column, Number, Rows, Table
from harness.storage.cache import existing_cache, open_cache
from harness.testset.judge import judge_record
from harness.testset.judge.judge_record import (
    CLAIMING,
    GRADE_NAMES,
    LEAST_FOUND,
    MOST_FOOLED,
    OPEN,
    RECORD,
    SEED,
    STUFFED,
    JudgeRecord,
    circular,
    read_records,
    write_record,
)
from harness.testset.judge.judgements import JUDGEMENTS, JudgementLog, held
from harness.testset.judge.judging import read_reply, reply_verdict
from harness.testset.judge.judging_work import JudgingRequest, JudgingWork, Tally, work
from harness.testset.review.resolution import RELEVANT_FROM

PURPOSE = "judge"  # of the replies in the cache
CONTROLS = {
    SEED: ("the document with the evidence", f"at least {100 * LEAST_FOUND:.0f} %"),
    STUFFED: ("another, with the query's words", f"at most {100 * MOST_FOOLED:.0f} %"),
    CLAIMING: ("the same, claiming to answer", f"at most {100 * MOST_FOOLED:.0f} %"),
}


@dataclass(frozen=True)
class JudgeOutcome:
    """What was judged. tally: all that this judge has said. reasons: why grades are open -> how many, of those added
    now."""

    work: JudgingWork
    record: JudgeRecord
    tally: Tally
    reasons: Mapping[str, int]


def judge(config: JudgeConfig, invocation: Invocation) -> dict[str, Any]:
    """Judge the pairs that no model has judged; with `dry_run`, say what that takes.

    Failed if the endpoint does not answer.
    """
    if config.llm["model"] is None:
        raise BadInput("model is missing. Name the language model that judges: model=NAME.")
    model: ChatModel = build(config.llm, where="llm")
    folder = config.testset
    read_testset_manifest(folder, "testset")
    if config.dry_run:
        todo = _work(config, folder)
        return _dry_run(config.format, _unasked(config, model).estimate(todo.prompts), todo)
    with held(folder, RECORD, "judges"):
        return _judged(config, _work(config, folder), model)


def _judged(config: JudgeConfig, todo: JudgingWork, model: ChatModel) -> dict[str, Any]:
    """Ask, append the judgements, record what is known of the judge, and show it.

    The replies are in the cache as they arrive, so that the judgements, in the order of the pool, can wait for all of
    them: a killed command finds its replies again.
    """
    if not (todo.pending or todo.before):
        return _nothing(config.format, todo)
    before = read_records(todo.folder).get(todo.judge.by)
    chat = chat_for(model, open_cache(config.store.path), PURPOSE)
    prompts = todo.prompts
    print(f"Judging {_extent(todo)}: {chat.estimate(prompts).text()}.", file=sys.stderr)  # noqa: T201
    replies = chat.ask(prompts, read_reply, "judging")
    shown = [todo.documents[pair.doc_id] for pair in todo.pending] + [one.document for one in todo.controls]
    verdicts = [reply_verdict(reply, document) for reply, document in zip(replies, shown, strict=True)]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    added = todo.judgements(verdicts, now)
    JudgementLog(todo.folder).append(added)
    rates = judge_record.rates(todo.controls, verdicts[len(added) :]) or (before.controls if before else {})
    found = todo.tally(added)
    usage = chat.taken([*prompts, *todo.asked(todo.before)]).to_json()
    if before and before.usage["requests"] > usage["requests"]:  # the cache has been pruned, or no controls are asked
        usage = {**before.usage}
    warnings = (
        *judge_record.warnings(rates),
        *circular(todo.judge.model, read_testset_manifest(todo.folder, "testset"), todo.pool),
    )
    record = JudgeRecord(
        by=todo.judge.by,
        model=todo.judge.model,
        base_url=model.base_url,
        prompt=todo.judge.prompt.sha256,
        language=todo.language,
        at=before.at if before and not added else now,
        grades=found.grades,
        seeds=found.seeds,
        controls=rates,
        warnings=warnings,
        usage=usage,
    )
    write_record(todo.folder, record)
    reasons = Counter(one.reason for one in verdicts[: len(added)] if one.reason)
    outcome = JudgeOutcome(todo, record, found, reasons)
    document = _document(outcome, chat.spent)
    terminal.emit(config.format, document, judge_report(outcome, chat.spent))
    return document


def _work(config: JudgeConfig, folder: Path) -> JudgingWork:
    with stage("reading the pool and its documents"):
        return work(
            folder,
            JudgingRequest(
                model=config.llm["model"],
                documents=config.documents,
                controls=config.judge.controls,
                limit=config.limit,
                language=config.language,
                prompt=config.prompt,
            ),
        )


def _unasked(config: JudgeConfig, model: ChatModel) -> Chat:
    """Knows the cached replies, and writes nothing."""
    cache = existing_cache(config.store.path)
    return Chat(model, cache.found_log("replies", model.log_identity(PURPOSE)) if cache else None)


def _extent(work: JudgingWork) -> str:
    """How many pairs, and how to have the others judged."""
    pairs = len(work.pending)
    return f"{pairs:,} of {pairs + work.left:,} pairs (limit=null: all)" if work.left else counted(pairs, "pair")


def _dry_run(style: str, estimate: UsageEstimate, todo: JudgingWork) -> dict[str, Any]:
    """Say what judging would take, with the first prompt."""
    prompts = todo.prompts
    first = prompts[0].turns[-1].content if prompts else None
    shown = [Table("The first prompt", notes=[first])] if first is not None else []
    said = [
        f"Judging {_extent(todo)} takes {estimate.text()}.",
        "Nothing was sent or written. Without dry_run=true, the judging begins.",
    ]
    document = {"estimate": asdict(estimate), "prompt": first}
    terminal.emit(style, document, Report("", tables=shown, files=said))
    return document


def _nothing(style: str, todo: JudgingWork) -> dict[str, Any]:
    """Say that other models have judged everything."""
    document = {"testset": str(todo.folder), "by": todo.judge.by, "added": 0, "by_others": todo.others}
    said = (
        f"{todo.folder}: other models have judged all {counted(todo.others, 'pooled pair')}. Nothing was asked."
        if todo.others
        else f"{todo.folder}: nothing is pooled for the queries that need retrieval. Nothing was asked."
    )
    terminal.emit(style, document, Report(said, steps=[_review(todo)]))
    return document


def _document(outcome: JudgeOutcome, spent: Usage) -> dict[str, Any]:
    todo, record = outcome.work, outcome.record
    return {
        "testset": str(todo.folder),
        "files": {"judgements": str(todo.folder / JUDGEMENTS), "record": str(todo.folder / RECORD)},
        "by": record.by,
        "added": len(todo.pending),
        "left": todo.left,
        "by_others": todo.others,
        "open": dict(outcome.reasons),
        "kinds": {kind: dict(counts) for kind, counts in outcome.tally.kinds.items()},
        "answered": list(outcome.tally.answered),
        "judge": judge_record.row(record),
        "usage": spent.to_json(),
    }


def judge_report(outcome: JudgeOutcome, spent: Usage) -> Report:
    """Return what was judged, how far the judge can be trusted, and what to do next. spent: by this process."""
    todo, answered = outcome.work, outcome.tally.answered
    said = []
    if answered:
        said.append(f"{counted(len(answered), 'query')} of kind unanswerable may have an answer: {some(answered)}.")
    if todo.left:
        said.append(f"{counted(todo.left, 'more pair')} to judge: repeat the command, or set limit=null for all.")
    return Report(
        f"{todo.folder / JUDGEMENTS}: {counted(len(todo.pending), 'judgement')} added by {outcome.record.by}.",
        [f"Warning: {warning}" for warning in outcome.record.warnings],
        [_grades(outcome), _controls(outcome.record)],
        [*said, f"Sent now: {spent.text()}; from the cache: {spent.cached:,}."],
        steps=[_review(todo)],
    )


def _grades(outcome: JudgeOutcome) -> Table:
    """Return counts of grades by kind, open ones by reason, and what becomes of the documents with evidence."""
    notes = [f"{count:,} open now: {reason}." for reason, count in outcome.reasons.items()]
    if seeds := outcome.record.seeds:
        notes.append(f"Of the documents with evidence, {seeds.text()} have {RELEVANT_FROM} or 3.")
    if outcome.work.others:
        notes.append(f"{counted(outcome.work.others, 'pair')} that other models have judged were left out.")
    columns = [Column("kind"), *(Column(name if name != OPEN else "open", "count") for name in GRADE_NAMES)]
    rows: Rows = [[kind, *(counts[name] for name in GRADE_NAMES)] for kind, counts in outcome.tally.kinds.items()]
    return Table("Grades", columns, rows, notes)


def _controls(record: JudgeRecord) -> Table:
    """Return how often the judge found pairs relevant whose grade is known."""
    graded = Column(f"graded {RELEVANT_FROM} or 3", "percent", 0)
    columns = [Column("hidden control"), Column("pairs", "count"), graded, Column("should be")]
    rows: Rows = [
        [CONTROLS[kind][0], one.of, Number(one.count / one.of, *one.interval), CONTROLS[kind][1]]
        for kind, one in record.controls.items()
    ]
    return Table("Hidden controls", columns, rows)


def _review(todo: JudgingWork) -> str:
    return shlex.join(["harness", "testset", "review", f"testset={todo.folder}", "reviewer=NAME"])
