"""Retrievers of other libraries as functions `search(queries, k)`, for `retriever=python` and Python callers.

    # my_module.py
    from retrievers.external import adapters

    search = adapters.langchain(my_retriever, key="doc_id")

Each `search` returns at most k pairs (doc_id, score) per text, best first. If a library finds passages, a document
has the score and the rank of its best passage. If a library gives no scores, rank r gets the score 1 / r.
This module imports none of these libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.errors import BadInput
from retrievers.external.function import Found, Search, descending

Tokenize = Callable[[str], list[str]]


def langchain(retriever: Any, key: str | None = None) -> Search:
    """Adapt a LangChain `BaseRetriever`. key: the metadata key that holds the doc_id; None: the attribute `id`."""

    return _each(lambda text, k: _best(((_doc_id(one, "metadata", key), None) for one in retriever.invoke(text)), k))


def llama_index(retriever: Any, key: str | None = None) -> Search:
    """Adapt a LlamaIndex `BaseRetriever`.

    key: the metadata key that holds the doc_id; None: the id of the node's document or, without one, the node's id.
    """

    def doc_id(node: Any) -> str:
        return _doc_id(node, "metadata", key) if key else node.ref_doc_id or node.node_id

    return _each(lambda text, k: _best(((doc_id(one.node), one.score) for one in retriever.retrieve(text)), k))


def haystack(component: Any, key: str | None = None) -> Search:
    """Adapt a Haystack component with `run(query=..., top_k=...)`. key: meta key that holds the doc_id; None: `id`."""

    def find(text: str, k: int) -> Found:
        documents = component.run(query=text, top_k=k)["documents"]
        return _best(((_doc_id(one, "meta", key), one.score) for one in documents), k)

    return _each(find)


def rank_bm25(bm25: Any, doc_ids: Sequence[str], tokenize: Tokenize) -> Search:
    """Adapt an object of the package rank_bm25. Documents with the score 0 share no query term, and are left out.

    doc_ids: the ids of the indexed texts, in the order of the texts. tokenize: the function that tokenized the texts.
    """

    return _each(lambda text, k: _top(zip(doc_ids, bm25.get_scores(tokenize(text)), strict=True), k))


def bm25s(retriever: Any, doc_ids: Sequence[str], tokenize: Tokenize) -> Search:
    """Adapt an indexed `bm25s.BM25` that was made without the argument `corpus`. `rank_bm25` explains the arguments."""

    def find(text: str, k: int) -> Found:
        places, scores = retriever.retrieve([tokenize(text)], k=min(k, len(doc_ids)), show_progress=False)
        return _top(((doc_ids[place], score) for place, score in zip(places[0], scores[0], strict=True)), k)

    return _each(find)


def _each(find: Callable[[str, int], Found]) -> Search:
    return lambda queries, k: [find(text, k) for text in queries]


def _doc_id(item: Any, holder: str, key: str | None) -> str:
    value = getattr(item, holder).get(key) if key else item.id
    if value is None:
        where = f"{holder}[{key!r}]" if key else "id"
        raise BadInput(
            f"A {type(item).__name__} has no {where}. Name the key of its {holder} that holds the doc_id: pass key=..."
        )
    return str(value)


def _best(found: Iterable[tuple[str, float | None]], k: int) -> Found:
    first: dict[str, float | None] = {}
    for doc_id, score in found:
        first.setdefault(doc_id, score)
    if any(score is None for score in first.values()):
        return list(descending(list(first), None).items())[:k]
    return [(doc_id, float(score)) for doc_id, score in first.items() if score is not None][:k]


def _top(scored: Iterable[tuple[str, float]], k: int) -> Found:
    found = ((doc_id, float(score)) for doc_id, score in scored if score)
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]
