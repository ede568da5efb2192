"""`harness search`: one query, its top documents, the gate's signal and decision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.config.components import build
from harness.data.dataset import Dataset
from harness.gates.signals import random_queries
from harness.pipeline.cache import Cache
from harness.pipeline.run_config import RunConfig
from harness.pipeline.searcher import Searcher
from harness.reports import markup, terminal
from retrievers.base import BadInput, Query

if TYPE_CHECKING:
    from rich.console import Console


def search(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Search for one query: top documents with scores and snippets, the gate's signal and decision."""
    text = config["query"].strip()
    if not text:
        raise BadInput("query is empty. Give the text to search for: harness search query='...'")
    source = build(config["dataset"], where="dataset")
    documents = tuple(sorted(source.documents(), key=lambda document: document.doc_id))
    searcher = Searcher(
        RunConfig.of(config),
        Dataset(invocation.choices["dataset"], documents, (), None),
        Cache(Path(config["store"]["path"])),
        lambda: random_queries([document.indexed_text for document in documents], source.queries()),
    )
    _, candidates, decision, _ = searcher.search([Query.of("query", text)])
    found = candidates.top(config["top_k"]).row(0)
    texts = searcher.documents
    kept = bool(decision.keep[0])
    document = {
        "query": text,
        "signal": None if decision.signal is None else float(decision.signal[0]),
        "retrieve": kept,
        "documents": [
            {"doc_id": doc_id, "score": value, "title": texts[doc_id].title, "text": texts[doc_id].text}
            for doc_id, value in found
        ],
    }

    def show(console: Console) -> None:
        for rank, (doc_id, value) in enumerate(found, start=1):
            console.print(f"{rank}. {doc_id}  {value:.4f}", style="bold")
            console.print(f"   {markup.snippet(texts[doc_id].indexed_text)}")
        if not found:
            console.print("No document shares a term with the query.")
        signal = "" if document["signal"] is None else f", signal {document['signal']:.4f}"
        console.print(
            f"Gate {invocation.choices['gate']}{signal}: {'retrieves' if kept else 'withholds the documents'}."
        )

    terminal.emit(config["format"], document, show)
    return document
