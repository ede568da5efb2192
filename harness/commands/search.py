"""`harness search`: one query, its top documents, the gate's signal and decision."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.config.commands import SearchConfig
from harness.config.components import build
from harness.data.dataset import Dataset
from harness.data.shards import IndexedTexts
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.experiment.searcher import Searcher
from harness.experiment.session import documents_of
from harness.gates.signals import random_queries
from harness.reports import markup, report
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.storage.cache import open_cache
from retrievers.base import Query

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    doc_id: str
    score: float
    title: str
    text: str


@dataclass(frozen=True, repr=False)
class Hits:
    """What was found for one query.

    documents: the best first, before the gate. signal: what the gate decided by; None if it reads nothing.
    retrieve: whether the gate shows them. gate: its name.
    """

    query: str
    documents: tuple[Hit, ...]
    signal: float | None
    retrieve: bool
    gate: str

    def to_json(self) -> dict[str, Any]:
        """The JSON document of `harness search format=json`."""
        found = [asdict(hit) for hit in self.documents]
        return {"query": self.query, "signal": self.signal, "retrieve": self.retrieve, "documents": found}

    @property
    def decision(self) -> str:
        """What the gate decided, in one sentence."""
        signal = "" if self.signal is None else f", signal {self.signal:.4f}"
        return f"Gate {self.gate}{signal}: {'retrieves' if self.retrieve else 'withholds the documents'}."

    def __repr__(self) -> str:
        return "\n".join([self.query, *(f"{rank}. {_named(hit)}" for rank, hit in self._ranked), self.decision])

    def _repr_html_(self) -> str:
        columns = [Column("rank", "count"), Column("document"), Column("score", "value"), Column("text")]
        rows: Rows = [[rank, hit.doc_id, hit.score, _snippet(hit)] for rank, hit in self._ranked]
        return report.report_html(Report(self.query, [self.decision], [Table("Documents", columns, rows)]))

    @property
    def _ranked(self) -> list[tuple[int, Hit]]:
        return [*enumerate(self.documents, start=1)]


def _named(hit: Hit) -> str:
    return f"{hit.doc_id}  {hit.score:.4f}"


def _snippet(hit: Hit) -> str:
    return markup.snippet(f"{hit.title} {hit.text}" if hit.title else hit.text)


def search(config: SearchConfig, invocation: Invocation) -> CommandAnswer:
    """Search for one query: top documents with scores and snippets, the gate's signal and decision."""
    hits = search_once(config, invocation)

    def show(console: Console) -> None:
        for rank, hit in enumerate(hits.documents, start=1):
            console.print(f"{rank}. {_named(hit)}", style="bold")
            console.print(f"   {_snippet(hit)}")
        if not hits.documents:
            console.print("No document shares a term with the query.")
        console.print(hits.decision)

    return CommandAnswer(hits.to_json(), show, value=hits)


def search_once(config: SearchConfig, invocation: Invocation) -> Hits:
    """Search for one query."""
    text = config.query.strip()
    if not text:
        raise BadInput("query is empty. Give the text to search for: harness search query='...'")
    source = build(config.dataset, where="dataset")
    documents = documents_of(source, config.cluster, config.store.path)
    searcher = Searcher(
        Plan.of(config.document),
        Dataset(invocation.choices["dataset"], documents, (), None),
        open_cache(config.store.path),
        lambda: random_queries(IndexedTexts(documents), source.queries()),
    )
    _, candidates, decision, _ = searcher.search([Query.of("query", text)])
    texts = searcher.documents
    hits = [
        Hit(doc_id, value, texts[doc_id].title, texts[doc_id].text)
        for doc_id, value in candidates.top(config.top_k).row(0)
    ]
    signal = None if decision.signal is None else float(decision.signal[0])
    return Hits(text, tuple(hits), signal, bool(decision.keep[0]), invocation.choices["gate"])
