"""`harness search`: show the top documents for a query, or for one query after another, and the gate's decision."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from harness.config.check import Invocation
from harness.config.commands import SearchConfig
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.files import decode
from harness.errors import BadInput, Failed
from harness.experiment.plan import Plan
from harness.experiment.searcher import Searcher
from harness.experiment.session import read_documents
from harness.gates.signals import random_queries
from harness.interruption import runs_one_command, until_interrupted
from harness.progress import stage
from harness.reports import markup
from harness.reports.report import Report, report_html
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.storage.typed import HIDDEN
from retrievers.base import IndexedTexts, Query
from retrievers.lexical.kiwi_dictionary import brief_texts
from retrievers.redaction import redacted

GIVE = "Give the text to search for: harness search query='...'"


@dataclass(frozen=True)
class Hit:
    doc_id: str
    score: float
    title: str
    text: str


@dataclass(frozen=True, repr=False)
class Hits:
    """The documents found for one query, the best first, even if the gate withholds them.

    signal: the value by which the gate decided; None if the gate reads no signal.
    retrieve: whether the gate shows the documents.
    """

    query: str
    documents: tuple[Hit, ...]
    signal: float | None
    retrieve: bool
    gate: str = field(metadata=HIDDEN)

    @property
    def decision(self) -> str:
        """Return the gate's decision in one sentence."""
        signal = "" if self.signal is None else f", signal {self.signal:.4f}"
        return f"Gate {self.gate}{signal}: {'retrieves' if self.retrieve else 'withholds the documents'}."

    @property
    def report(self) -> Report:
        columns = [Column("rank", "count"), Column("document"), Column("score", "value"), Column("text")]
        rows: Rows = [
            [rank, hit.doc_id, hit.score, markup.snippet(f"{hit.title} {hit.text}".strip())]
            for rank, hit in enumerate(self.documents, start=1)
        ]
        nothing = [] if rows else ["No document shares a term with the query."]
        return Report(self.query, [*nothing, self.decision], [Table("Documents", columns, rows)])

    def __repr__(self) -> str:
        named = [f"{rank}. {hit.doc_id}  {hit.score:.4f}" for rank, hit in enumerate(self.documents, start=1)]
        return "\n".join([self.query, *named, self.decision])

    def _repr_html_(self) -> str:
        return report_html(self.report)


@dataclass(frozen=True)
class Asked:
    """A loaded search, which answers one query after another. gate: the name of its gate."""

    searcher: Searcher
    top_k: int
    gate: str

    @classmethod
    def of(cls, config: SearchConfig, invocation: Invocation) -> Asked:
        plan = Plan.of(config.document)
        source = plan.source()
        documents = read_documents(source, plan.workers.shard, plan.store)
        searcher = Searcher(
            plan,
            Dataset(invocation.choices["dataset"], documents, (), None),
            plan.cache,
            lambda: random_queries(IndexedTexts(documents), source.queries()),
        )
        return cls(searcher, config.top_k, invocation.choices["gate"])

    def __call__(self, text: str) -> CommandAnswer:
        """Search for one text. Raise BadInput if it is empty."""
        _, candidates, decision, _ = self.searcher.search([Query.of("query", text)])
        documents = self.searcher.documents
        best = candidates.top(self.top_k).row(0)
        hits = tuple(Hit(doc_id, value, documents[doc_id].title, documents[doc_id].text) for doc_id, value in best)
        signal = None if decision.signal is None else float(decision.signal[0])
        found = Hits(text, hits, signal, bool(decision.keep[0]), self.gate)
        return CommandAnswer(found, found.report, value=found)


def search(config: SearchConfig, invocation: Invocation) -> CommandAnswer:
    if config.query is None:
        return CommandAnswer(None, None, serve=partial(_serve, config, invocation))
    if not (text := config.query.strip()):
        raise BadInput(f"query is empty. {GIVE}")
    # Loading less is faster now, but slower if this process searches again.
    with brief_texts() if runs_one_command() else nullcontext():
        answer = Asked.of(config, invocation)(text)
    return replace(answer, shown=answer.shown and replace(answer.shown, notes=_by_default(invocation)))


def _by_default(invocation: Invocation) -> list[str]:
    """Return [a note] if neither the command line nor harness.yaml chose a retriever or a gate; otherwise []."""
    words = (*invocation.overrides, *invocation.defaults)
    if any(word.startswith(("retriever", "gate")) for word in words):
        return []
    told = "To search as one of your runs did, use the `harness search` command that the run printed."
    return [
        f"retriever={invocation.choices['retriever']} and gate={invocation.choices['gate']} are the defaults. {told}"
    ]


def _serve(config: SearchConfig, invocation: Invocation, style: str) -> None:
    """Load the search once. Then answer the queries of standard input in order, each before the next one is read."""
    if sys.stdin is None:  # the process was started without it
        raise BadInput(f"query is missing, and there is no standard input to read queries from. {GIVE}")
    with stage("loading"):
        asked = Asked.of(config, invocation)
        asked.searcher.warm()
    if sys.stdin.isatty() and sys.stdout.isatty():
        with until_interrupted():
            _prompt(asked, style)
        print(file=sys.stderr)  # noqa: T201  (Ctrl-D and Ctrl-C leave the cursor behind the prompt)
        return
    for text in _lines(sys.stdin.buffer):
        _answer(asked, text, style)


def _lines(file: Iterable[bytes]) -> Iterator[str]:
    """Yield the queries of a file, one per line that is not blank. Raise BadInput for a line that is not UTF-8."""
    for number, raw in enumerate(file, start=1):
        if text := decode(raw, Path("standard input"), number).strip():
            yield text


def _prompt(asked: Asked, style: str) -> None:
    """Ask for queries on the terminal until Ctrl-D. A query that fails does not end the session."""
    with suppress(ImportError):  # some builds of Python lack it
        import readline  # noqa: F401  (lets `input` edit the line and recall earlier ones)
    print(f"{counted(len(asked.searcher.documents), 'document')}. Ctrl-D ends.", file=sys.stderr)  # noqa: T201
    with suppress(EOFError):
        while True:
            if text := input("query> ").strip():
                try:
                    _answer(asked, text, style)
                except (BadInput, Failed) as error:
                    print(redacted(str(error)), file=sys.stderr)  # noqa: T201


def _answer(asked: Asked, text: str, style: str) -> None:
    with stage("searching"):
        asked(text).emit(style)
