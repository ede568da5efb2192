"""Real queries of users, whose style drafted ones follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.data.contest import Contest
from harness.data.files import json_lines, no_rows, numbered_lines
from harness.testset.sampling import picked
from retrievers.base import BadInput, Query

SHOWN = 5  # examples in a prompt


def read_examples(path: Path) -> tuple[Query, ...]:
    """Queries of a file: JSON lines {eval_id, msg} as in the contest, or plain text with one query per line."""
    try:
        lines = list(numbered_lines(path))
        if not lines:
            raise no_rows(path)
        if lines[0][1].lstrip().startswith(("{", "[")):
            return tuple(Contest(queries=str(path)).queries())
        return tuple(Query.of(str(number), line.strip()) for number, line in lines)
    except BadInput as error:
        raise BadInput(f"examples: {error}") from None


def read_labels(path: Path) -> dict[str, frozenset[str]]:
    """query_id -> relevant documents of the examples in a file that `read_examples` reads; none if no line has any.

    `relevant` is that of the contest: ids or grades, empty for a query that needs no retrieval. If one line has it, all
    must have it.
    """
    try:
        if not next(numbered_lines(path), (0, ""))[1].lstrip().startswith("{"):
            return {}
        if not any("relevant" in row for _, row in json_lines(path)):
            return {}
        qrels = Contest(qrels=str(path)).qrels()
        return {query_id: frozenset(grades) for query_id, grades in qrels.grades.items()} if qrels else {}
    except BadInput as error:
        raise BadInput(f"examples: {error}") from None


def shown(examples: Sequence[Query], kind: str, *key: object) -> str:
    """A few examples for a prompt, one per line, always the same for the same key; "" without examples.

    A prompt for conversations shows conversations where there are any; every other shows the user's last messages.
    """
    talks = [query for query in examples if len(query.user_turns) > 1]
    if kind == "conversation" and talks:
        texts = {" / ".join(f"{turn.role}: {_line(turn.content)}" for turn in query.turns) for query in talks}
    else:
        texts = {_line(query.user_turns[-1]) for query in examples}
    return "\n".join(f"- {text}" for text in picked(texts, SHOWN, *key))


def _line(text: str) -> str:
    return " ".join(text.split())
