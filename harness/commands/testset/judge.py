"""`harness testset judge`: a language model grades the pairs of a pool."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.commands.testset.asking import Asking
from harness.config.check import Invocation
from harness.config.commands import JudgeConfig
from harness.config.text import counted
from harness.data.files import some
from harness.data.testset import read_testset_manifest
from harness.llm.chat import Chat
from harness.llm.usage import Usage
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Number, Rows, Table
from harness.storage.cache import open_cache
from harness.storage.typed import encoded
from harness.testset.judge import judge_record
from harness.testset.judge.judge_record import GRADE_NAMES, OPEN, RECORD, JudgeRecord, JudgingWork, read_records
from harness.testset.judge.judgements import JUDGEMENTS, JudgementLog, held, judged_now
from harness.testset.judge.judging import read_reply, reply_verdict
from harness.testset.review.resolution import RELEVANT_FROM


@dataclass(frozen=True)
class JudgeAnswer:
    """What one command judged.

    added: number of new judgements. left: number of pairs still to judge. by_others: number of pairs left out, since
    other models have judged them. open: reason -> number of new pairs without a grade. kinds, answered: see `Tally`.
    """

    testset: Path
    files: Mapping[str, Path]
    by: str
    added: int
    left: int
    by_others: int
    open: Mapping[str, int]
    kinds: Mapping[str, Mapping[str, int]]
    answered: Sequence[str]
    judge: JudgeRecord
    usage: Usage


def judge(config: JudgeConfig, invocation: Invocation) -> CommandAnswer:
    """Judge the pairs that no model has judged. With `dry_run`, only report the estimated cost. Raise Failed if the
    endpoint does not answer."""
    asking = Asking(config, "judge")
    model, folder = asking.model, config.testset
    read_testset_manifest(folder, "testset")
    if config.dry_run:
        todo = judge_record.work(config)
        first = next((prompt.turns[-1].content for prompt in todo.prompts), None)
        shown = {} if first is None else {"The first prompt": first}
        return asking.dry_run(todo.prompts, f"Judging {_extent(todo)}", shown, {"prompt": first})
    with held(folder, RECORD, "judges"):
        todo = judge_record.work(config)
        if not (todo.pending or todo.before):
            return _nothing(todo)
        chat = asking.chat(open_cache(config.store.path), todo.prompts, f"Judging {_extent(todo)}")
        return _judged(todo, chat, model.base_url)


def _judged(todo: JudgingWork, chat: Chat, base_url: str) -> CommandAnswer:
    """Ask the model, append the judgements, and record how the model judges. Replies are cached as they arrive, so a
    repeated command does not ask for them again. Judgements are written after the last reply."""
    before, prompts = read_records(todo.folder).get(todo.judge.by), todo.prompts
    replies = chat.ask(prompts, read_reply, "judging")
    shown = [todo.documents[pair.doc_id] for pair in todo.pending] + [one.document for one in todo.controls]
    verdicts = [reply_verdict(reply, document) for reply, document in zip(replies, shown, strict=True)]
    at = judged_now()
    added = todo.judgements(verdicts, at)
    JudgementLog(todo.folder).append(added)
    rates = judge_record.rates(todo.controls, verdicts[len(added) :]) or (before.controls if before else {})
    counts = judge_record.tally(replace(todo.judged, judgements=[*todo.judged.judgements, *added]), todo.judge.by)
    usage = encoded(chat.taken([*prompts, *todo.asked(todo.before)]))
    if before and (before.usage.get("requests") or 0) > usage["requests"]:
        usage = before.usage  # The cache was pruned since the earlier record, or there are now fewer controls.
    manifest = read_testset_manifest(todo.folder, "testset")
    record = JudgeRecord(
        by=todo.judge.by,
        model=todo.judge.model,
        base_url=base_url,
        prompt=todo.judge.prompt.sha256,
        language=todo.language,
        at=before.at if before and not added else at,
        grades={grade: sum(of[grade] for of in counts.kinds.values()) for grade in GRADE_NAMES},
        seeds=counts.seeds,
        controls=rates,
        warnings=(*judge_record.warnings(rates), *judge_record.circular(todo.judge.model, manifest, todo.pool)),
        usage=usage,
    )
    judge_record.write_record(todo.folder, record)
    found = JudgeAnswer(
        testset=todo.folder,
        files={"judgements": todo.folder / JUDGEMENTS, "record": todo.folder / RECORD},
        by=record.by,
        added=len(todo.pending),
        left=todo.left,
        by_others=todo.others,
        open=Counter(one.reason for one in verdicts[: len(added)] if one.reason),
        kinds=counts.kinds,
        answered=counts.answered,
        judge=record,
        usage=chat.spent,
    )
    return CommandAnswer(found, judge_report(todo, found))


def _extent(work: JudgingWork) -> str:
    pairs = len(work.pending)
    return f"{pairs:,} of {pairs + work.left:,} pairs (limit=null: all)" if work.left else counted(pairs, "pair")


def _nothing(todo: JudgingWork) -> CommandAnswer:
    document = {"testset": str(todo.folder), "by": todo.judge.by, "added": 0, "by_others": todo.others}
    why = "nothing is pooled for the queries that need retrieval"
    if todo.others:
        why = f"other models have judged all {counted(todo.others, 'pooled pair')}"
    return CommandAnswer(document, Report(f"{todo.folder}: {why}. Nothing was asked.", steps=[_review(todo)]))


def judge_report(todo: JudgingWork, found: JudgeAnswer) -> Report:
    said, record = [], found.judge
    if answered := found.answered:
        said.append(f"{counted(len(answered), 'query')} of kind `unanswerable` may have an answer: {some(answered)}.")
    if todo.left:
        said.append(f"{counted(todo.left, 'more pair')} to judge. Repeat the command, or set limit=null for all pairs.")
    return Report(
        f"{todo.folder / JUDGEMENTS}: {counted(len(todo.pending), 'judgement')} added by {record.by}.",
        [f"Warning: {warning}" for warning in record.warnings],
        [_grades(found), _controls(record)],
        [*said, f"Sent now: {found.usage.text()}; from the cache: {found.usage.cached:,}."],
        steps=[_review(todo)],
    )


def _grades(found: JudgeAnswer) -> Table:
    notes = [f"{count:,} of the new pairs got no grade: {reason}." for reason, count in found.open.items()]
    if seeds := found.judge.seeds:
        notes.append(f"Of the documents with evidence, {seeds.text()} are graded {RELEVANT_FROM} or 3.")
    if found.by_others:
        notes.append(f"{counted(found.by_others, 'pair')} left out, since other models have judged them.")
    columns = [
        Column("kind"),
        *(Column(name if name != OPEN else "open", "count") for name in GRADE_NAMES),
    ]
    rows: Rows = [[kind, *(counts[name] for name in GRADE_NAMES)] for kind, counts in found.kinds.items()]
    return Table("Grades", columns, rows, notes)


def _controls(record: JudgeRecord) -> Table:
    graded = Column(f"graded {RELEVANT_FROM} or 3", "percent", 0)
    columns = [Column("hidden control"), Column("pairs", "count"), graded, Column("should be")]
    least, most = f"at least {100 * judge_record.LEAST_FOUND:.0f} %", f"at most {100 * judge_record.MOST_FOOLED:.0f} %"
    rows: Rows = [
        [what, one.of, Number(one.share, *one.interval), least if kind == judge_record.SEED else most]
        for kind, what in judge_record.CONTROLS.items()
        if (one := record.controls.get(kind))
    ]
    return Table("Hidden controls", columns, rows)


def _review(todo: JudgingWork) -> str:
    return shlex.join(["harness", "testset", "review", f"testset={todo.folder}", "reviewer=NAME"])
