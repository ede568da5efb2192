"""`harness search`: show the top documents for one query, and the gate's signal and decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.config.check import Invocation
from harness.config.commands import SearchConfig
from harness.data.dataset import Dataset
from harness.data.shards import IndexedTexts
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.experiment.searcher import Searcher
from harness.experiment.session import read_documents
from harness.gates.signals import random_queries
from harness.reports import markup
from harness.reports.report import Report, report_html
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.storage.typed import HIDDEN
from retrievers.base import Query


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


def search(config: SearchConfig, invocation: Invocation) -> CommandAnswer:
    text = config.query.strip()
    if not text:
        raise BadInput("query is empty. Give the text to search for: harness search query='...'")
    plan = Plan.of(config.document)
    source = plan.source()
    documents = read_documents(source, plan.workers.shard, plan.store)
    searcher = Searcher(
        plan,
        Dataset(invocation.choices["dataset"], documents, (), None),
        plan.cache,
        lambda: random_queries(IndexedTexts(documents), source.queries()),
    )
    _, candidates, decision, _ = searcher.search([Query.of("query", text)])
    texts = searcher.documents
    best = candidates.top(config.top_k).row(0)
    hits = tuple(Hit(doc_id, value, texts[doc_id].title, texts[doc_id].text) for doc_id, value in best)
    signal = None if decision.signal is None else float(decision.signal[0])
    found = Hits(text, hits, signal, bool(decision.keep[0]), invocation.choices["gate"])
    return CommandAnswer(found, found.report, value=found)
