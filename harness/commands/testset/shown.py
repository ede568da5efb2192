"""What `harness testset draft` says: before it asks, and of what it has drafted."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.text import counted
from harness.llm.usage import Estimate, Usage
from harness.reports import terminal
from harness.testset.drafting import Task
from harness.testset.drafts import Draft, Rejection
from harness.testset.easiness import Measured
from harness.testset.folder import QUERIES, REJECTED
from retrievers.base import Failed

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Outcome:
    """What was drafted.

    path: of the test set. tasks: the requests. empty: kind -> replies that say that there is nothing to ask.
    measured: the queries of the test set, and what BM25 makes of them. rejections: all other drafts.
    """

    path: Path
    tasks: Sequence[Task]
    empty: Mapping[str, int]
    measured: Measured
    rejections: Sequence[Rejection]

    @property
    def kept(self) -> Sequence[Draft]:
        """The queries of the test set."""
        return self.measured.drafts

    @property
    def easiness(self) -> dict[str, Any]:
        """What BM25 makes of drafts and examples, as plain JSON; null where there are none."""
        both = {"drafts": self.measured.of_drafts, "examples": self.measured.of_examples}
        return {name: one and asdict(one) for name, one in both.items()}

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """Kind -> the number of requests, of replies without queries, of drafts and of those that are kept."""
        asked = Counter(task.kind for task in self.tasks)
        kept = Counter(one.kind for one in self.kept)
        rejected = Counter(one.draft.kind for one in self.rejections)
        return {
            kind: {
                "requests": asked[kind],
                "empty": self.empty.get(kind, 0),
                "drafted": kept[kind] + rejected[kind],
                "kept": kept[kind],
            }
            for kind in asked
        }

    @property
    def reasons(self) -> dict[str, int]:
        """Why drafts were rejected -> how many, the most frequent first."""
        return _reasons(self.rejections)


def require_drafts(kept: Sequence[Draft], rejections: Sequence[Rejection], requests: int) -> None:
    """Failed, with what was rejected and why, if no draft is left."""
    if kept:
        return
    if not rejections:
        raise Failed(
            f"The model found nothing to ask in {counted(requests, 'request')}. Show it more documents (limit), or "
            "longer ones (harness prepare chunk.size=...), or try another model. Nothing was written."
        )
    examples = _examples(rejections)
    reasons = _reasons(rejections).items()
    lines = [f"  {count:>5,}  {reason}: {_cut(examples[reason], 200)}" for reason, count in reasons]
    raise Failed(
        f"All {counted(len(rejections), 'draft')} were rejected, and nothing was written:\n"
        + "\n".join(lines)
        + "\nTry another model, another way to demand replies (llm.replies=json_object), or prompts of your own "
        "(prompts.fact=FILE). Replies are cached: the same command sends nothing."
    )


def _reasons(rejections: Sequence[Rejection]) -> dict[str, int]:
    found = Counter(one.reason for one in rejections)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _examples(rejections: Sequence[Rejection]) -> dict[str, str]:
    """Reason -> what exactly was wrong with the first draft that was rejected for it."""
    return {one.reason: one.detail for one in reversed(rejections)}


def dry_run(style: str, estimate: Estimate, tasks: Sequence[Task]) -> dict[str, Any]:
    """Say what drafting would take, with the first prompt of each kind."""
    prompts: dict[str, str] = {}
    for task in tasks:
        prompts.setdefault(task.kind, task.prompt.turns[-1].content)
    document = {"estimate": asdict(estimate), "prompts": prompts}

    def show(console: Console) -> None:
        for kind, text in prompts.items():
            console.print(f"The first prompt for {kind}:", style="bold")
            console.print(text)
            console.print()
        console.print(f"Drafting takes {estimate.text()}.")
        console.print("Nothing was sent or written. Without dry_run=true, the drafting begins.")

    terminal.emit(style, document, show)
    return document


def finished(style: str, outcome: Outcome, spent: Usage) -> dict[str, Any]:
    """Say what was drafted, rejected and spent, and what to do next. spent: by this process."""
    files = {"queries": outcome.path / QUERIES, "rejected": outcome.path / REJECTED}
    document = {
        "testset": str(outcome.path),
        "files": {name: str(path) for name, path in files.items()},
        "queries": len(outcome.kept),
        "kinds": outcome.kinds,
        "rejected": outcome.reasons,
        "easiness": outcome.easiness,
        "usage": usage_row(spent),
    }

    def show(console: Console) -> None:
        _tables(console, outcome)
        for kind in outcome.kinds:
            for draft in [one for one in outcome.kept if one.kind == kind][:1]:
                _draft(console, draft)
        for name, one in {"drafts": outcome.measured.of_drafts, "examples": outcome.measured.of_examples}.items():
            if one:
                console.print(f"Easiness of {name}: {one.text()}.")
        console.print(f"Sent now: {spent.text()}; from the cache: {spent.cached:,}.")
        console.print(f"{outcome.path}: {counted(len(outcome.kept), 'query')}. Read them before you trust a score.")
        console.print("Next:")
        console.print("  " + shlex.join(["harness", "run", "dataset=testset", f"dataset.path={outcome.path}"]))
        if outcome.rejections:
            console.print(f"  {files['rejected']} has every rejected draft with its reason.")

    terminal.emit(style, document, show)
    return document


def usage_row(usage: Usage) -> dict[str, Any]:
    """Tokens and costs as plain JSON; the cost is null where it is not known."""
    names = ("requests", "cached", "input_tokens", "output_tokens")
    return {**{name: getattr(usage, name) for name in names}, "cost": usage.cost}


def _tables(console: Console, outcome: Outcome) -> None:
    """Counts by kind, and rejections by reason."""
    header = ("kind", "requests", "nothing to ask", "drafted", "kept")
    table = terminal.bare_table(header, left=header[:1])
    for kind, counts in outcome.kinds.items():
        table.add_row(kind, *(f"{counts[name]:,}" for name in ("requests", "empty", "drafted", "kept")))
    console.print(table)
    console.print()
    if not outcome.rejections:
        return
    why, example = "rejected because", "for example"
    table = terminal.bare_table((why, "drafts", example), left=(why, example), folded=(example,))
    examples = _examples(outcome.rejections)
    for reason, count in outcome.reasons.items():
        table.add_row(reason, f"{count:,}", _cut(examples[reason], 120))
    console.print(table)
    console.print()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _draft(console: Console, draft: Draft) -> None:
    console.print(f"{draft.kind}: {' / '.join(turn.content for turn in draft.turns)}", style="bold")
    if draft.answer:
        console.print(f"   {draft.answer}")
    for one in draft.evidence[:1]:
        console.print(f"   evidence: {_cut(one.exact, 200)}", style="dim")
    console.print()
