"""What every retriever must do, whatever it ranks by: call `check_retriever(make, tmp_path)` in its tests.

`make` builds a new instance, always with the same arguments. The checks ask for no particular ranking of different
texts, only that a document is found by its own words.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from retrievers.base import Document, Query, Ranking, Retriever

TEXTS = {
    "a1": "The moon orbits the earth once a month",
    "a2": "달은 한 달에 한 번 지구 둘레를 돈다",
    "b1": "Water boils at one hundred degrees",
    "b2": "물은 백 도에서 끓는다",
    "c1": "",
    "c2": "  \n\t ",
    "c3": "…!?",
    "d1": "식물은 빛을 받아 양분을 만든다",
    "d2": "식물은 빛을 받아 양분을 만든다",
    "d3": "식물은 빛을 받아 양분을 만든다",
}
DOCUMENTS = [Document(doc_id, text) for doc_id, text in TEXTS.items()]
QUERIES = [
    Query.of("z", TEXTS["d1"]),  # ids in no order: rows stand as the queries were given
    Query.of("m", TEXTS["b1"]),
    Query.of("empty", ""),
    Query.of("a", TEXTS["a2"]),
]


def check_retriever(make: Callable[[], Retriever], tmp_path: Path) -> None:
    folders = (_folder(tmp_path, f"contract-{i}") for i in range(100))

    def indexed(documents: Sequence[Document]) -> tuple[Retriever, Path]:
        retriever, folder = make(), next(folders)
        retriever.index(documents, folder)
        return retriever, folder

    retriever, folder = indexed(DOCUMENTS)
    whole = retriever.search(QUERIES, len(DOCUMENTS))
    _check_rows(whole)
    _check_depth(retriever, whole)
    _check_found(whole)
    _check_repeats(retriever, folder, make, whole, indexed(DOCUMENTS)[0])
    _check_few_documents(indexed)


def _folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def _check_rows(ranking: Ranking) -> None:
    assert ranking.query_ids == tuple(query.query_id for query in QUERIES), "each query answered, in the order given"
    assert set(ranking.doc_ids) <= set(TEXTS)


def _check_depth(retriever: Retriever, whole: Ranking) -> None:
    """At most k, and a smaller k gives the first of a larger one's; k may exceed the corpus."""
    for k in (1, 2, 5):
        ranking = retriever.search(QUERIES, k)
        assert ranking.docs.shape[1] <= k
        assert same(ranking, whole.top(k)), f"the first {k}"
    assert same(retriever.search(QUERIES, 1000), whole), "k beyond the corpus"
    assert retriever.search([], 5).query_ids == ()


def _check_found(whole: Ranking) -> None:
    """A document is found by its own words, Korean ones too; equal texts tie and stand by doc_id."""
    found = {query_id: whole.row(i) for i, query_id in enumerate(whole.query_ids)}
    assert found["m"][0][0] == "b1"
    assert found["a"][0][0] == "a2"
    triplets = found["z"][:3]
    assert [doc_id for doc_id, _ in triplets] == ["d1", "d2", "d3"]
    assert len({score for _, score in triplets}) == 1


def _check_repeats(
    retriever: Retriever, folder: Path, make: Callable[[], Retriever], whole: Ranking, again: Retriever
) -> None:
    """Equal rankings from a second search, a second index and a second instance that reads the first one's folder."""
    reader = make()
    reader.load(folder)
    for other in (retriever, again, reader):
        assert same(other.search(QUERIES, len(DOCUMENTS)), whole)
    alone = [retriever.search([query], len(DOCUMENTS)).row(0) for query in QUERIES]
    assert [[doc_id for doc_id, _ in row] for row in alone] == [
        [doc_id for doc_id, _ in whole.row(i)] for i in range(len(QUERIES))
    ], "a query's answer does not depend on the others"


def _check_few_documents(indexed: Callable[[Sequence[Document]], tuple[Retriever, Path]]) -> None:
    """No document, one, and only documents without content."""
    none, _ = indexed([])
    assert not none.search(QUERIES, 3).lengths.any()
    one, _ = indexed([Document("only", TEXTS["b1"])])
    assert one.search(QUERIES, 3).lengths.max() == 1
    hollow, _ = indexed([document for document in DOCUMENTS if document.doc_id.startswith("c")])
    assert hollow.search(QUERIES, 3).lengths.max() <= 3


def same(a: Ranking, b: Ranking) -> bool:
    """The same documents in the same order with the same scores, however the tables are laid out."""
    if a.query_ids != b.query_ids or not np.array_equal(a.lengths, b.lengths):
        return False
    return all(a.row(i) == b.row(i) for i in range(len(a.query_ids)))
