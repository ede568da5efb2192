"""Retrievers of other libraries, called through their own interfaces; skipped if they are not installed.

`pytest --noconftest` runs this file with numpy and one of the libraries only.
"""

import numpy as np
import pytest

from harness.errors import BadInput
from retrievers.base import Query
from retrievers.external import adapters
from retrievers.external.function import ranking_of

TEXTS = {"a": "달은 지구 를 돈다", "b": "물은 끓는다", "c": "달은 모양 이 변한다 달은", "d": "물은 지구 에 있다"}
QUERIES = ["달은 모양", "끓는다", "없는말"]


def rows(search, k=4, queries=QUERIES):
    """The doc_ids for each query, after the checks of a run."""
    asked = [Query.of(f"q{number}", text) for number, text in enumerate(queries)]
    ranking = ranking_of(asked, search(queries, k), k, TEXTS, "adapter")
    for row in ranking.to_dict().values():
        assert all(isinstance(score, float) for score in row.values())
    return [list(row) for row in ranking.to_dict().values()]


def check_lists(search):
    """Document c has both words of the first query and a has one; no document has the word of the last query."""
    assert rows(search) == [["c", "a"], ["b"], []]
    assert rows(search, k=1) == [["c"], ["b"], []]
    assert rows(search, k=99) == rows(search)
    assert search([], 3) == []


def test_rank_bm25_and_bm25s():
    import bm25s
    import rank_bm25

    made = rank_bm25.BM25Plus([text.split() for text in TEXTS.values()], delta=0)
    check_lists(adapters.rank_bm25(made, list(TEXTS), str.split))
    made = bm25s.BM25()
    made.index([text.split() for text in TEXTS.values()], show_progress=False)
    search = adapters.bm25s(made, list(TEXTS), str.split)
    assert rows(search, queries=QUERIES[:2]) == [["c", "a"], ["b"]]
    scores = made.get_scores(QUERIES[0].split())
    assert dict(search(QUERIES[:1], 1)[0])["c"] == pytest.approx(float(np.max(scores)))


def words_found(text):
    """doc_id -> shared words, the most first."""
    shared = {doc_id: sum(other.split().count(word) for word in text.split()) for doc_id, other in TEXTS.items()}
    return {doc_id: count for doc_id, count in sorted(shared.items(), key=lambda item: -item[1]) if count}


def test_langchain():
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    class Words(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            found = [Document(id=one, page_content=TEXTS[one], metadata={"key": one}) for one in words_found(query)]
            return [one for one in found for _ in "12"]

    check_lists(adapters.langchain(Words()))
    check_lists(adapters.langchain(Words(), key="key"))
    assert adapters.langchain(Words())(QUERIES[:1], 4) == [[("c", 1.0), ("a", 0.5)]]
    with pytest.raises(BadInput, match=r"A Document has no metadata\['doc'\]\. Name the key of its metadata"):
        adapters.langchain(Words(), key="doc")(QUERIES[:1], 4)


def test_llama_index():
    pytest.importorskip("llama_index.core")
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

    class Words(BaseRetriever):
        scored = True

        def _retrieve(self, query_bundle):
            found = words_found(query_bundle.query_str)
            return [
                NodeWithScore(node=node(doc_id, part), score=score if self.scored else None)
                for doc_id, score in found.items()
                for part in (1, 2)
            ]

    def node(doc_id, part):
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc_id)}
        return TextNode(id_=f"{doc_id}-{part}", text=TEXTS[doc_id], relationships=source, metadata={"key": doc_id})

    words = Words()
    check_lists(adapters.llama_index(words))
    check_lists(adapters.llama_index(words, key="key"))
    assert adapters.llama_index(words)(QUERIES[:1], 4) == [[("c", 3.0), ("a", 1.0)]]
    words.scored = False
    assert adapters.llama_index(words)(QUERIES[:1], 4) == [[("c", 1.0), ("a", 0.5)]]


def test_haystack():
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore(bm25_tokenization_regex=r"(?u)\S+")
    store.write_documents([Document(id=one, content=text, meta={"key": one}) for one, text in TEXTS.items()])
    found = InMemoryBM25Retriever(store)
    for search in (adapters.haystack(found), adapters.haystack(found, key="key")):
        assert rows(search, queries=QUERIES[:2]) == [["c", "a"], ["b"]]
        assert rows(search, k=1, queries=QUERIES[:1]) == [["c"]]
