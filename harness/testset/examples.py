"""Real queries of users, whose style drafted ones follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.data.contest import Contest
from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.files import json_lines, no_rows, numbered_lines
from harness.data.testset import EvidencedQuery, read_queries, span_qrels
from harness.errors import BadInput
from harness.testset.sampling import picked
from retrievers.base import Query

SHOWN = 5  # examples in a prompt


@dataclass(frozen=True)
class Examples:
    """Real queries.

    rows: the same with their evidence, if they are those of a test set. relevant: query_id -> relevant documents, if
    they are of a file that names them.
    """

    queries: tuple[Query, ...] = ()
    rows: tuple[EvidencedQuery, ...] = ()
    relevant: Mapping[str, Collection[str]] = field(default_factory=dict)

    def labels(self, chunks: Sequence[Chunk], folder: DocumentsFolder) -> Mapping[str, Collection[str]]:
        """query_id -> relevant documents, none of which if it needs no retrieval; of labelled queries alone."""
        return span_qrels(self.rows, chunks, folder).grades if self.rows else self.relevant


def read_examples(path: Path) -> Examples:
    """Queries of a test set's folder, or of a file: JSON lines {eval_id, msg} as in the contest, or plain text with one
    query per line. JSON lines may have the contest's `relevant`: ids or grades, empty for a query that needs no
    retrieval. If one line has it, all must have it."""
    if path.is_dir():
        rows = read_queries(path, "examples")
        return Examples(tuple(row.query for row in rows), tuple(rows))
    try:
        lines = list(numbered_lines(path))
        if not lines:
            raise no_rows(path)
        if not lines[0][1].lstrip().startswith(("{", "[")):
            return Examples(tuple(Query.of(str(number), line.strip()) for number, line in lines))
        qrels = Contest(qrels=str(path)).qrels() if any("relevant" in row for _, row in json_lines(path)) else None
        return Examples(tuple(Contest(queries=str(path)).queries()), relevant=qrels.grades if qrels else {})
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
