"""`harness testset draft`: a language model drafts queries, answers and evidence from documents."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.commands.testset.asking import Asking
from harness.config.check import Invocation
from harness.config.commands import DraftConfig
from harness.config.text import counted
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.testset import KINDS
from harness.errors import BadInput, Failed
from harness.llm.chat import ChatModel
from harness.progress import stage, watch
from harness.reports.markup import snippet
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Table
from harness.storage.cache import open_cache
from harness.storage.typed import encoded
from harness.testset.draft import drafting, drafts
from harness.testset.draft.drafting import DraftPlan, DraftRequest
from harness.testset.draft.drafts import Draft, Examples, Rejection, TestsetFolder, prompt_language
from harness.testset.draft.easiness import Measured, measure_easiness
from harness.testset.draft.filters import sift
from harness.testset.pool.pool import DocumentsPlace


@dataclass(frozen=True)
class DraftWork:
    folder: DocumentsFolder
    chunks: Sequence[Chunk]
    plan: DraftPlan
    examples: Examples
    tasks: Sequence[DraftRequest]
    place: TestsetFolder


def draft(config: DraftConfig, invocation: Invocation) -> CommandAnswer:
    """Draft a test set, or add drafts to it. With `dry_run`, only report the estimated cost. Raise Failed if the
    endpoint does not answer or all drafts are rejected."""
    asking = Asking(config, "draft")
    model = asking.model
    with stage("reading documents"):
        work = _work(config, model)
    prompts = [task.prompt for task in work.tasks]
    if config.dry_run:
        by_kind = {task.kind: task.prompt.turns[-1].content for task in reversed(work.tasks)}
        by_kind = {kind: by_kind[kind] for kind in work.plan.kinds if kind in by_kind}
        first = {f"The first prompt for {kind}": text for kind, text in by_kind.items()}
        return asking.dry_run(prompts, "Drafting", first, {"prompts": by_kind})
    cache = open_cache(config.store.path)
    chat = asking.chat(cache, prompts, "Drafting")
    drafted = drafting.draft_queries(chat, work.tasks, work.plan, work.folder)
    shown = {chunk.document.doc_id: chunk.document for chunk in work.chunks}
    with watch("filters") as progress:
        kept, rejected = sift(drafted.drafts, shown, config.filters, work.plan.examples, progress)
    rejections = [*drafted.rejections, *rejected]
    if not kept:
        raise Failed(_nothing_kept(rejections, len(work.tasks)))
    measured = Measured(kept, None, None)
    if config.easiness:
        chunks = list(work.folder.chunks())
        labels = work.examples.labels(chunks, work.folder)
        measured = measure_easiness(kept, [one.document for one in chunks], cache, work.examples.queries, labels)
    path, counts = work.place.path, _counts(work, drafted.empty, measured, rejections)
    manifest = {
        "documents": DocumentsPlace.of(work.folder, path),
        "shown": len(work.chunks),
        **counts,
        "kinds": {kind: of["kept"] for kind, of in counts["kinds"].items()},
        "usage": chat.taken(prompts),
    }
    work.place.write(measured.drafts, rejections, encoded(manifest))
    files = {"queries": str(path / drafts.QUERIES), "rejected": str(path / drafts.REJECTED)}
    document = {"testset": str(path), "files": files, **counts, "usage": chat.spent}
    return CommandAnswer(document, draft_report(document, measured, rejections))


def _work(config: DraftConfig, model: ChatModel) -> DraftWork:
    """Return what to draft. Raise BadInput if a file cannot be read or if writing the test set is not allowed."""
    if not config.kinds:
        raise BadInput(f"kinds is empty. Name at least one of {', '.join(KINDS)}.")
    kinds = tuple(kind for kind in KINDS if kind in config.kinds)
    examples = drafts.read_examples(Path(config.examples)) if config.examples else Examples()
    folder = DocumentsFolder(Path(config.documents))
    limit = config.limit
    chunks = drafting.sample(folder, config.seed, limit and max(limit, drafts.LOOKED_AT))
    # The limit must not change the language of the prompts.
    language = prompt_language(config.language, [chunk.document.text for chunk in chunks])
    chunks = chunks[:limit]
    prompts = drafts.read_prompts(kinds, language, config.document["prompts"])
    if examples.queries:
        drafts.check_examples(prompts)
    plan = DraftPlan(kinds, config.questions, language, config.seed, prompts, examples.queries)
    settings = {
        "documents": folder.fingerprint,
        "llm": model.identify(model.model, model.base_url, model.request, model.replies),
        **plan.settings,
        "filters": asdict(config.filters),
    }
    place = TestsetFolder(config.testset, settings)
    place.check(len(chunks))
    return DraftWork(folder, chunks, plan, examples, drafting.tasks(plan, chunks), place)


def _counts(
    work: DraftWork, empty: Mapping[str, int], measured: Measured, rejections: Sequence[Rejection]
) -> dict[str, Any]:
    asked, kept = Counter(task.kind for task in work.tasks), Counter(one.kind for one in measured.drafts)
    rejected = Counter(one.draft.kind for one in rejections)
    kinds = {
        kind: {
            "requests": asked[kind],
            "empty": empty.get(kind, 0),
            "drafted": kept[kind] + rejected[kind],
            "kept": kept[kind],
        }
        for kind in asked
    }
    easiness = {"drafts": measured.of_drafts, "examples": measured.of_examples}
    return {"queries": len(measured.drafts), "kinds": kinds, "rejected": _reasons(rejections), "easiness": easiness}


def draft_report(found: Mapping[str, Any], measured: Measured, rejections: Sequence[Rejection]) -> Report:
    """Return the report. found: the command's JSON document."""
    path, spent = found["testset"], found["usage"]
    names = {"requests": "requests", "empty": "nothing to ask", "drafted": "drafted", "kept": "kept"}
    columns = [Column("kind"), *(Column(name, "count") for name in names.values())]
    counts = Table("Drafts", columns, [[kind, *(of[key] for key in names)] for kind, of in found["kinds"].items()])
    examples = _examples(rejections)
    columns = [Column("rejected because"), Column("drafts", "count"), Column("for example")]
    rows = [[why, count, snippet(examples[why], 120)] for why, count in found["rejected"].items()]
    return Report(
        f"{path}: {counted(found['queries'], 'query')}. Read them before you trust a score.",
        tables=[counts, Table("Rejections", columns, rows), *_first_drafts(measured.drafts, found["kinds"])],
        notes=[
            *(f"Easiness of {name}: {one.text()}." for name, one in found["easiness"].items() if one),
            f"Sent now: {spent.text()}; from the cache: {spent.cached:,}.",
        ],
        files=[f"{found['files']['rejected']} has every rejected draft with its reason."] if rejections else [],
        steps=[shlex.join(["harness", "run", "dataset=testset", f"dataset.path={path}"])],
    )


def _first_drafts(kept: Sequence[Draft], kinds: Iterable[str]) -> Iterator[Table]:
    for kind in kinds:
        for draft in [one for one in kept if one.kind == kind][:1]:
            evidence = [f"evidence: {snippet(one.exact, 200)}" for one in draft.evidence[:1]]
            asked = " / ".join(turn.content for turn in draft.turns)
            yield Table(f"{kind}: {asked}", notes=[*filter(None, [draft.answer]), *evidence])


def _nothing_kept(rejections: Sequence[Rejection], requests: int) -> str:
    if not rejections:
        return (
            f"The model found nothing to ask in {counted(requests, 'request')}, so nothing was written. Show it more "
            "documents (limit) or longer documents (harness prepare chunk.size=...), or try another model."
        )
    examples = _examples(rejections)
    reasons = _reasons(rejections).items()
    lines = [f"  {count:>5,}  {reason}: {snippet(examples[reason], 200)}\n" for reason, count in reasons]
    return (
        f"All {counted(len(rejections), 'draft')} were rejected, so nothing was written:\n{''.join(lines)}"
        "Try another model, another kind of replies (llm.replies=json_object), or other prompts (prompts.fact=FILE). "
        "Replies are cached, so repeating this command sends nothing."
    )


def _reasons(rejections: Sequence[Rejection]) -> dict[str, int]:
    found = Counter(one.reason for one in rejections)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _examples(rejections: Sequence[Rejection]) -> dict[str, str]:
    """Return reason -> detail of the first draft that was rejected for this reason."""
    return {one.reason: one.detail for one in reversed(rejections)}
