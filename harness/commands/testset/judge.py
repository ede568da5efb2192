"""`harness testset judge`: a language model grades the pairs of a pool."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.commands.testset import judge_shown
from harness.commands.testset.judge_shown import Outcome
from harness.commands.testset.shown import usage_row
from harness.config.check import Invocation
from harness.config.components import build
from harness.data.testset import read_manifest
from harness.llm.chat import Chat, ChatModel
from harness.pipeline.session import chat_for
from harness.progress import stage
from harness.storage.cache import existing_cache, open_cache
from harness.testset import controls
from harness.testset.hold import held
from harness.testset.judge_record import RECORD, JudgeRecord, circular, read_records, write_record
from harness.testset.judgements import JudgementLog
from harness.testset.judging import read_reply, verdict
from harness.testset.judging_work import Asked, Work, work
from retrievers.base import BadInput

PURPOSE = "judge"  # of the replies in the cache


def judge(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Judge the pairs that no model has judged; with `dry_run`, say what that takes.

    Failed if the endpoint does not answer.
    """
    if config["llm"]["model"] is None:
        raise BadInput("model is missing. Name the language model that judges: model=NAME.")
    model: ChatModel = build(config["llm"], where="llm")
    folder = Path(config["testset"])
    read_manifest(folder, "testset")
    if config["dry_run"]:
        todo = _work(config, folder)
        return judge_shown.dry_run(config["format"], _unasked(config, model).estimate(todo.prompts), todo)
    with held(folder, RECORD, "judges"):
        return _judged(config, _work(config, folder), model)


def _judged(config: dict[str, Any], todo: Work, model: ChatModel) -> dict[str, Any]:
    """Ask, append the judgements, record what is known of the judge, and show it.

    The replies are in the cache as they arrive, so that the judgements, in the order of the pool, can wait for all of
    them: a killed command finds its replies again.
    """
    if not (todo.pending or todo.before):
        return judge_shown.nothing(config["format"], todo)
    before = read_records(todo.folder).get(todo.judge.by)
    chat = chat_for(model, open_cache(config["store"]["path"]), PURPOSE)
    prompts = todo.prompts
    judge_shown.announce(todo, chat.estimate(prompts))
    replies = chat.ask(prompts, read_reply, "judging")
    shown = [todo.documents[pair.doc_id] for pair in todo.pending] + [one.document for one in todo.controls]
    verdicts = [verdict(reply, document) for reply, document in zip(replies, shown, strict=True)]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    added = todo.judgements(verdicts, now)
    JudgementLog(todo.folder).append(added)
    rates = controls.rates(todo.controls, verdicts[len(added) :]) or (before.controls if before else {})
    found = todo.tally(added)
    usage = usage_row(chat.taken([*prompts, *todo.asked(todo.before)]))
    if before and before.usage["requests"] > usage["requests"]:  # the cache has been pruned, or no controls are asked
        usage = {**before.usage}
    warnings = (
        *controls.warnings(rates),
        *circular(todo.judge.model, read_manifest(todo.folder, "testset"), todo.pool),
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
    return judge_shown.finished(config["format"], Outcome(todo, record, found, reasons), chat.spent)


def _work(config: dict[str, Any], folder: Path) -> Work:
    with stage("reading the pool and its documents"):
        return work(
            folder,
            Asked(
                model=config["llm"]["model"],
                documents=config["documents"],
                controls=config["judge"]["controls"],
                limit=config["limit"],
                language=config["language"],
                prompt=config["prompt"],
            ),
        )


def _unasked(config: dict[str, Any], model: ChatModel) -> Chat:
    """Knows the cached replies, and writes nothing."""
    cache = existing_cache(config["store"]["path"])
    return Chat(model, cache.found_log("replies", model.log_identity(PURPOSE)) if cache else None)
