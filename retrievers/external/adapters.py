"""Retrievers of other libraries as functions `search(queries, k)`, which `retriever=python` and Python callers take.

    # my_module.py
    from retrievers.external import adapters

    search = adapters.langchain(my_retriever, key="doc_id")

Each function returns, for each text, at most k pairs (doc_id, score), best first. Where a library finds passages, a
document counts once, at the place of its best passage. Where it gives no score, rank r scores 1 / r. None of the
libraries is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.errors import BadInput
from retrievers.external.function import Found, Search, descending

Tokenize = Callable[[str], list[str]]


def langchain(retriever: Any, key: str | None = None) -> Search:
    """A LangChain `BaseRetriever`, asked by `invoke`. It decides itself how many documents it finds: give it enough.

    key: of the metadata that holds the doc_id; None: the document's `id`.
    """

    def search(queries: list[str], k: int) -> list[Found]:
        return [_best(((_doc_id(one, "metadata", key), None) for one in retriever.invoke(text)), k) for text in queries]

    return search


def llama_index(retriever: Any, key: str | None = None) -> Search:
    """A LlamaIndex `BaseRetriever`, asked by `retrieve`. It decides itself how many nodes it finds: give it enough.

    key: of the node's metadata that holds the doc_id; None: the id of the document that the node is of, else its own.
    """

    def doc_id(node: Any) -> str:
        return _doc_id(node, "metadata", key) if key else node.ref_doc_id or node.node_id

    def search(queries: list[str], k: int) -> list[Found]:
        return [_best(((doc_id(one.node), one.score) for one in retriever.retrieve(text)), k) for text in queries]

    return search


def haystack(component: Any, key: str | None = None) -> Search:
    """A Haystack component with `run(query=..., top_k=...)` that returns documents, such as `InMemoryBM25Retriever`.

    key: of the document's meta that holds the doc_id; None: the document's `id`.
    """

    def search(queries: list[str], k: int) -> list[Found]:
        found = (component.run(query=text, top_k=k)["documents"] for text in queries)
        return [_best(((_doc_id(one, "meta", key), one.score) for one in documents), k) for documents in found]

    return search


def rank_bm25(bm25: Any, doc_ids: Sequence[str], tokenize: Tokenize) -> Search:
    """An object of the package rank_bm25. Documents that score 0 share no term with a query and are not found.

    doc_ids: of the texts that it was made of, in their order. tokenize: as those texts were.
    """

    def search(queries: list[str], k: int) -> list[Found]:
        return [_top(zip(doc_ids, bm25.get_scores(tokenize(text)), strict=True), k) for text in queries]

    return search


def bm25s(retriever: Any, doc_ids: Sequence[str], tokenize: Tokenize) -> Search:
    """An indexed `bm25s.BM25` without a corpus of its own. Arguments and zeros as in `rank_bm25`."""

    def search(queries: list[str], k: int) -> list[Found]:
        found: list[Found] = []
        for text in queries:
            places, scores = retriever.retrieve([tokenize(text)], k=min(k, len(doc_ids)), show_progress=False)
            found.append(_top(((doc_ids[place], score) for place, score in zip(places[0], scores[0], strict=True)), k))
        return found

    return search


def _doc_id(item: Any, holder: str, key: str | None) -> str:
    """The id of a library's document: its `id`, or metadata[key] where `holder` names the metadata."""
    value = getattr(item, holder).get(key) if key else item.id
    if value is None:
        where = f"{holder}[{key!r}]" if key else "id"
        raise BadInput(
            f"A {type(item).__name__} has no {where}. Name the key of its {holder} that has the doc_id: key=."
        )
    return str(value)


def _best(found: Iterable[tuple[str, float | None]], k: int) -> Found:
    """The first k different documents. Where any lacks a score, rank r scores 1 / r."""
    first: dict[str, float | None] = {}
    for doc_id, score in found:
        first.setdefault(doc_id, score)
    if any(score is None for score in first.values()):
        return list(descending(list(first), None).items())[:k]
    return [(doc_id, float(score)) for doc_id, score in first.items() if score is not None][:k]


def _top(scored: Iterable[tuple[str, float]], k: int) -> Found:
    """The k best documents that do not score 0, ties by ascending doc_id."""
    found = ((doc_id, float(score)) for doc_id, score in scored if score)
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]
