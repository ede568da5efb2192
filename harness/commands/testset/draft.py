"""`harness testset draft`: a language model drafts queries, answers and evidence from documents."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.commands.testset import shown
from harness.commands.testset.shown import Outcome, require_drafts
from harness.config.check import Invocation
from harness.config.components import build
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.llm.chat import Chat, ChatModel, Prompt
from harness.llm.usage import Usage
from harness.pipeline.session import chat_for
from harness.progress import stage, watch
from harness.storage.cache import Cache, existing_cache, open_cache
from harness.testset import drafting
from harness.testset.drafting import Drafted, Plan, Task
from harness.testset.drafts import KINDS, Draft, Rejection
from harness.testset.easiness import Measured, measure
from harness.testset.examples import Examples, read_examples
from harness.testset.filters import Filters, sift
from harness.testset.folder import TestsetFolder
from harness.testset.prompts import check_examples, language_of, read_prompts
from retrievers.base import BadInput, did_you_mean

PURPOSE = "draft"  # of the replies in the cache
LOOKED_AT = 100  # documents that decide the language of the prompts


@dataclass(frozen=True)
class Work:
    """All that is to be asked, and where its drafts go."""

    folder: DocumentsFolder
    chunks: Sequence[Chunk]
    plan: Plan
    examples: Examples
    tasks: Sequence[Task]
    place: TestsetFolder

    @property
    def prompts(self) -> list[Prompt]:
        return [task.prompt for task in self.tasks]


def draft(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Draft a test set, or go on with one; with `dry_run`, say what that takes.

    Failed if the endpoint does not answer, or if no draft is left.
    """
    if config["llm"]["model"] is None:
        raise BadInput("model is missing. Name the language model that drafts: model=NAME.")
    model: ChatModel = build(config["llm"], where="llm")
    with stage("reading documents"):
        work = _work(config, model)
    if config["dry_run"]:
        return shown.dry_run(config["format"], _unasked(config, model).estimate(work.prompts), work.tasks)
    cache = open_cache(config["store"]["path"])
    chat = chat_for(model, cache, PURPOSE)
    print(f"Drafting: {chat.estimate(work.prompts).text()}.", file=sys.stderr)  # noqa: T201
    drafted = drafting.draft(chat, work.tasks, work.plan, work.folder)
    kept, rejections = _sifted(work, drafted, Filters(**config["filters"]))
    measured = _measured(work, kept, cache) if config["easiness"] else Measured(kept, None, None)
    outcome = Outcome(work.place.path, work.tasks, drafted.empty, measured, rejections)
    work.place.write(outcome.kept, outcome.rejections, _manifest(work, outcome, chat.taken(work.prompts)))
    return shown.finished(config["format"], outcome, chat.spent)


def _work(config: dict[str, Any], model: ChatModel) -> Work:
    """BadInput unless what the config names can be read and the test set may be written."""
    kinds = _kinds(config["kinds"])
    examples = read_examples(Path(config["examples"])) if config["examples"] else Examples()
    folder = DocumentsFolder(Path(config["documents"]))
    limit, language = config["limit"], config["language"]
    chunks = drafting.sample(folder, config["seed"], limit and max(limit, LOOKED_AT))
    if language == "auto":  # the same for any limit
        language = language_of("\n".join(chunk.document.text for chunk in chunks[:LOOKED_AT]))
    chunks = chunks[:limit]
    prompts = read_prompts(kinds, language, config["prompts"])
    if examples.queries:
        check_examples(prompts)
    plan = Plan(kinds, config["questions"], language, config["seed"], prompts, examples.queries)
    settings = {
        "documents": folder.fingerprint,
        "llm": model.identify(model.model, model.base_url, model.request, model.replies),
        **plan.settings,
        "filters": asdict(Filters(**config["filters"])),
    }
    place = TestsetFolder(Path(config["testset"]), settings)
    place.check(len(chunks))
    return Work(folder, chunks, plan, examples, drafting.tasks(plan, chunks), place)


def _sifted(work: Work, drafted: Drafted, filters: Filters) -> tuple[list[Draft], list[Rejection]]:
    """(the drafts that the filters leave, all rejections). Failed if no draft is left."""
    documents = {chunk.document.doc_id: chunk.document for chunk in work.chunks}
    with watch("filters") as progress:
        kept, rejected = sift(drafted.drafts, documents, work.plan.examples, filters, progress)
    rejections = [*drafted.rejections, *rejected]
    require_drafts(kept, rejections, len(work.tasks))
    return kept, rejections


def _measured(work: Work, drafts: Sequence[Draft], cache: Cache) -> Measured:
    """What BM25 makes of the drafts, which it flags, and of the examples."""
    chunks = list(work.folder.chunks())
    labels = work.examples.labels(chunks, work.folder)
    return measure(drafts, [chunk.document for chunk in chunks], cache, work.examples.queries, labels)


def _kinds(given: Sequence[str]) -> tuple[str, ...]:
    """The kinds in their usual order. BadInput unless they are kinds, each once."""
    for kind in given:
        if kind not in KINDS:
            raise BadInput(f"kinds: {kind!r:.60} is not one of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")
        if given.count(kind) > 1:
            raise BadInput(f"kinds: {kind} is named twice. Remove one of them.")
    if not given:
        raise BadInput(f"kinds is empty. Name at least one of {', '.join(KINDS)}.")
    return tuple(kind for kind in KINDS if kind in given)


def _unasked(config: dict[str, Any], model: ChatModel) -> Chat:
    """Knows the cached replies, and writes nothing."""
    cache = existing_cache(config["store"]["path"])
    return Chat(model, cache.found_log("replies", model.log_identity(PURPOSE)) if cache else None)


def _manifest(work: Work, outcome: Outcome, taken: Usage) -> dict[str, Any]:
    """What `testset.json` says of the drafts. taken: by all replies, in whatever process they came."""
    where = os.path.relpath(work.folder.path.absolute(), work.place.path.absolute())
    return {
        "documents": {"path": Path(where).as_posix(), "sha256": work.folder.fingerprint},
        "shown": len(work.chunks),
        "queries": len(outcome.kept),
        "kinds": {kind: counts["kept"] for kind, counts in outcome.kinds.items()},
        "rejected": outcome.reasons,
        "easiness": outcome.easiness,
        "usage": shown.usage_row(taken),
    }
