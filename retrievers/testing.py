"""Contract tests of retrievers, encoders, fusions and rerankers, for this repository and for yours.

`make` builds a new instance, always with the same arguments. `tmp_path` is an empty folder, such as pytest's fixture:

    from retrievers.testing import check_retriever

    from my_package import MyRetriever


    def test_contract(tmp_path):
        check_retriever(lambda: MyRetriever(k1=1.2), tmp_path)

A check fails with an AssertionError that names the broken rule. `contract` and `harness doctor retriever=NAME` report
for each rule whether it holds on your documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from harness.errors import BadInput, Failed
from retrievers.base import Document, Fusion, Query, Ranking, Reranker, Retriever
from retrievers.sharding import merge_rankings

if TYPE_CHECKING:
    from retrievers.dense.encoders import Encoder

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
QUERIES = [  # the query_ids are not in alphabetical order, to test that rows keep the order of the queries
    Query.of("z", TEXTS["d1"]),
    Query.of("m", TEXTS["b1"]),
    Query.of("empty", ""),
    Query.of("a", TEXTS["a2"]),
]

MakeRetriever = Callable[[], Retriever]


def check_retriever(make: MakeRetriever, tmp_path: Path) -> None:
    """Check the rules of `contract` and three more:

    - A search for a document's own text ranks the document first, in English and in Korean.
    - Documents with equal texts tie, and are ordered by doc_id.
    - A corpus may be empty, have a single document, or have only documents without content.
    """
    subject = Subject(make, _new_folder(tmp_path, "indexed"), DOCUMENTS, QUERIES, len(DOCUMENTS))
    for rule in (_indexed, *KNOWN_QUERIES.values(), _odd_queries, *(IN_SHARDS.values() if _is_cut(make()) else ())):
        rule(subject)
    _check_matches(subject.opened().search(QUERIES, len(DOCUMENTS)))
    _check_few_documents(make, tmp_path)


@dataclass(frozen=True)
class Subject:
    make: MakeRetriever
    folder: Path
    documents: Sequence[Document]
    queries: Sequence[Query]
    k: int = 10

    def opened(self) -> Retriever:
        retriever = self.make()
        retriever.load(self.folder)
        return retriever


Rule = Callable[[Subject], None]


def contract(
    make: MakeRetriever, documents: Sequence[Document], queries: Sequence[Query], folder: Path, known_only: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield (rule, violation) for each rule that applies to the retriever. violation: "" if the rule holds.

    documents: in ascending order of doc_id. folder: an empty folder. known_only: whether the retriever answers only
        `queries`, because its rankings were made elsewhere.
    """
    subject = Subject(make, _new_folder(folder, "indexed"), documents, queries)
    rules = [("the documents can be indexed", _indexed), *(KNOWN_QUERIES if known_only else ANY_QUERIES).items()]
    rules += IN_SHARDS.items() if _is_cut(make()) else ()
    for name, rule in rules:
        problem = ""
        try:
            rule(subject)
        except (AssertionError, BadInput, Failed) as error:
            problem = str(error)
        except Exception as error:  # third-party retrievers may raise any exception
            problem = f"{type(error).__name__}: {error}"
        yield name, problem
        if rule is _indexed and problem:
            return


def _indexed(subject: Subject) -> None:
    subject.make().index(subject.documents, subject.folder)


def _rows(subject: Subject) -> None:
    ranking = subject.opened().search(subject.queries, subject.k)
    expected = tuple(query.query_id for query in subject.queries)
    assert ranking.query_ids == expected, f"the rows are for queries {ranking.query_ids[:3]}…, not {expected[:3]}…"
    unknown = set(ranking.doc_ids) - {document.doc_id for document in subject.documents}
    assert not unknown, f"the dataset has no document {min(unknown)!r:.60}"


def _at_most_k(subject: Subject) -> None:
    retriever = subject.opened()
    longest = retriever.search(subject.queries, subject.k)
    for k in (1, 3):
        top = retriever.search(subject.queries, k)
        _same(top, longest.top(k), f"with k={k} and the first {k} hits with k={subject.k}")
    everything = retriever.search(subject.queries, len(subject.documents) + 10)
    _same(everything.top(subject.k), longest, f"with k={len(subject.documents) + 10} and k={subject.k}")


def _repeatable(subject: Subject) -> None:
    retriever = subject.opened()
    first = retriever.search(subject.queries, subject.k)
    _same(retriever.search(subject.queries, subject.k), first, "of two searches")
    _same(subject.opened().search(subject.queries, subject.k), first, "of two instances")


def _rebuilt(subject: Subject) -> None:
    rebuilt = subject.make()
    rebuilt.index(subject.documents, _new_folder(subject.folder.parent, "rebuilt"))
    first = subject.opened().search(subject.queries, subject.k)
    _same(rebuilt.search(subject.queries, subject.k), first, "of two indexes")


def _independent(subject: Subject) -> None:
    retriever = subject.opened()
    together = retriever.search(subject.queries, subject.k)
    for row, query in enumerate(subject.queries[:5]):
        one = [doc_id for doc_id, _ in retriever.search([query], subject.k).row(0)]
        assert one == [doc_id for doc_id, _ in together.row(row)], f"alone, {query.query_id:.60} finds other documents"


def _no_queries(subject: Subject) -> None:
    assert subject.opened().search([], subject.k).query_ids == (), "a search without queries returns rows"


def _odd_queries(subject: Subject) -> None:
    texts = ("", " \n\t ", "…!?", "달" * 1000)
    odd = [Query.of(f"odd-{number}", text) for number, text in enumerate(texts)]
    for query in odd:
        found = subject.opened().search([query], subject.k)
        assert len(found.query_ids) == 1, f"no row for the query {query.text:.10}"


def _found_by_text(subject: Subject) -> None:
    some = [document for document in subject.documents if document.indexed_text.strip()][:5]
    queries = [Query.of(f"text-{document.doc_id}", document.indexed_text) for document in some]
    ranking = subject.opened().search(queries, subject.k)
    for row, document in enumerate(some):
        found = [doc_id for doc_id, _ in ranking.row(row)]
        assert document.doc_id in found, f"a search for the text of {document.doc_id:.60} finds others: {found[:3]}"


def _same(one: Ranking, other: Ranking, what: str) -> None:
    for row, query_id in enumerate(one.query_ids):
        for place, (first, second) in enumerate(zip_longest(one.row(row), other.row(row)), start=1):
            assert first == second, (
                f"the lists {what} differ for query {query_id:.60}, first at place {place}: {_hit(first)} and "
                f"{_hit(second)}"
            )


def _hit(hit: tuple[str, float] | None) -> str:
    return f"{hit[0]!r:.60} with {hit[1]!r}" if hit else "nothing"


def _cut(subject: Subject) -> None:
    make, documents = subject.make, subject.documents
    whole = subject.opened().search(subject.queries, subject.k)
    folder = _new_folder(subject.folder.parent, "shards")
    middle = len(documents) * 2 // 5
    shards = [documents[:middle], documents[middle:], documents[:0]]
    summed, retrievers = getattr(make(), "sharding", None) == "summed", [cast(Any, make()) for _ in shards]
    indexes, surveys = ([_new_folder(folder, f"{kind}-{i}") for i in range(3)] for kind in ("index", "survey"))
    if summed:
        for retriever, shard, survey in zip(retrievers, shards, surveys, strict=True):
            retriever.survey(shard, survey)
        retrievers[0].summarise(surveys, summary := _new_folder(folder, "summary"))
    for i, retriever in enumerate(retrievers):
        if summed:
            retriever.index_shard(shards[i], surveys[i], summary, indexes[i])
            retriever.load_shard(indexes[i], summary)
        else:
            retriever.index(shards[i], indexes[i])
    found = merge_rankings((retriever.search(subject.queries, subject.k) for retriever in retrievers), subject.k)
    for row, query_id in enumerate(whole.query_ids):
        one, other = found.row(row), whole.row(row)
        mine, theirs = ([score for _, score in some] for some in (one, other))
        close = len(mine) == len(theirs) and np.allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        assert one == other if summed else close, f"results for query {query_id:.60} differ with shards: {one[:3]}"


KNOWN_QUERIES: dict[str, Rule] = {
    "each query has a row of documents of the dataset; the rows are in the order of the queries": _rows,
    "a row has at most k documents, and a smaller k gives the first of them": _at_most_k,
    "each search and each instance gives the same ranking": _repeatable,
    "a second index gives the same ranking": _rebuilt,
    "a query's documents do not depend on the other queries": _independent,
    "a search without queries returns no rows": _no_queries,
}
ANY_QUERIES: dict[str, Rule] = KNOWN_QUERIES | {
    "queries without a word and long queries are answered": _odd_queries,
    "a document is found by its own text": _found_by_text,
}
IN_SHARDS: dict[str, Rule] = {"shards give the same ranking as one index": _cut}


def check_encoder(make: Callable[[], Encoder], tmp_path: Path) -> None:
    """Check the rules for every encoder.

    - encode_documents writes embeddings.npy: float32 [N, D], finite, with equal vectors for equal texts. A second call
      on the same folder writes the same file.
    - encode_queries returns float32 [Q, D], finite, in the order of the queries. A second instance returns the same
      vectors, up to rounding.
    - Both methods accept an empty list of texts.
    """
    texts, folder = list(TEXTS.values()), _new_folder(tmp_path, "encoded")
    encoder = make()
    for _ in range(2):
        encoder.encode_documents(texts, folder)
        documents = np.load(folder / "embeddings.npy", allow_pickle=False)
        _check_vectors(documents, len(texts))
        assert (documents[-3:] == documents[-1]).all(), "equal texts have equal vectors"
    queries = encoder.encode_queries(texts, folder)
    _check_vectors(queries, len(texts))
    assert queries.shape == documents.shape, "queries and documents have vectors of one length"
    again = make().encode_queries(texts[::-1], folder)[::-1]
    assert np.allclose(again, queries, atol=1e-5), "every instance gives the queries' vectors in order"
    assert len(encoder.encode_queries([], folder)) == 0, "without queries there are no vectors"
    empty = _new_folder(tmp_path, "empty")
    make().encode_documents([], empty)
    assert len(np.load(empty / "embeddings.npy", allow_pickle=False)) == 0, "without documents there are no vectors"


def _check_vectors(vectors: np.ndarray, count: int) -> None:
    assert vectors.dtype == np.float32, "vectors are float32"
    assert vectors.ndim == 2, "vectors are the rows of a matrix"
    assert len(vectors) == count, "each text has a vector"
    assert np.isfinite(vectors).all(), "vectors are finite"


def check_fusion(make: Callable[[], Fusion]) -> None:
    """Check the rules for every fusion.

    - Every query has a row, in the order of the rankings' queries.
    - A row has at most k documents, each from at least one ranking. A smaller k gives the start of the row.
    - The order of the rankings does not matter. The fusion of a single ranking returns the ranking's documents.
    """
    first = Ranking.from_scores({"z": {"a": 3.0, "b": 1.0}, "m": {"c": 2.0}, "empty": {}})
    second = Ranking.from_scores({"z": {"b": 9.0, "d": 9.0, "e": 4.0}, "m": {}, "empty": {}})
    fusion = make()
    fusion.check(["first", "second"])
    fused = fusion.fuse({"first": first, "second": second}, 10)
    assert fused.query_ids == first.query_ids, "each query has a row, in the order given"
    assert [set(row) for row in fused.to_dict().values()] == [{"a", "b", "d", "e"}, {"c"}, set()]
    for k in (0, 1, 2):
        assert same(fusion.fuse({"first": first, "second": second}, k), fused.top(k)), "a smaller k gives a prefix"
    assert same(make().fuse({"second": second, "first": first}, 10), fused), "the order of the rankings does not matter"
    alone = fusion.fuse({"first": first}, 10)
    assert [set(row) for row in alone.to_dict().values()] == [{"a", "b"}, {"c"}, set()]


def check_reranker(make: Callable[[], Reranker]) -> None:
    """Check the rules for every reranker.

    - depth is at least 1.
    - Each pair gets one finite score, float64. Equal pairs get equal scores, up to rounding.
    - Scores depend neither on the order of the pairs nor on the instance, up to rounding.
    - Without pairs there are no scores.
    """
    reranker = make()
    assert reranker.depth >= 1
    pairs = [(query.text, text) for query in QUERIES for text in TEXTS.values()]
    scores = pair_scores(reranker, pairs)
    assert np.isfinite(scores).all()
    by_query = scores.reshape(len(QUERIES), len(TEXTS))
    assert np.allclose(by_query[:, -3:], by_query[:, -1:], atol=1e-5), "equal pairs score equally"
    again = pair_scores(make(), pairs[::-1])[::-1]
    assert np.allclose(again, scores, atol=1e-5), "scores do not depend on the order of the pairs"
    assert list(reranker.score([])) == []


def pair_scores(reranker: Reranker, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return the score of each pair, float64 [N]. Assert that each pair is scored once, in float64."""
    scores, times = np.zeros(len(pairs)), np.zeros(len(pairs), np.int64)
    for places, values in reranker.score(pairs):
        assert values.dtype == np.float64
        scores[places] = values
        np.add.at(times, places, 1)
    assert (times == 1).all(), "each pair is scored once"
    return scores


def same(a: Ranking, b: Ranking) -> bool:
    return a.query_ids == b.query_ids and all(a.row(i) == b.row(i) for i in range(len(a.query_ids)))


def _new_folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / f"contract-{name}"
    folder.mkdir()
    return folder


def _is_cut(retriever: Any) -> bool:
    if not getattr(retriever, "sharding", None):
        return False
    try:
        getattr(retriever, "check_sharding", lambda: None)()
    except BadInput:
        return False
    return True


def _check_matches(ranking: Ranking) -> None:
    rows = {query_id: ranking.row(i) for i, query_id in enumerate(ranking.query_ids)}
    assert rows["m"][0][0] == "b1", "an English document is found by its own text"
    assert rows["a"][0][0] == "a2", "a Korean document is found by its own text"
    equal = rows["z"][:3]
    assert [doc_id for doc_id, _ in equal] == ["d1", "d2", "d3"], "equal texts are ordered by doc_id"
    assert len({score for _, score in equal}) == 1, "equal texts tie"


def _check_few_documents(make: MakeRetriever, tmp_path: Path) -> None:
    without_content = [document for document in DOCUMENTS if document.doc_id.startswith("c")]
    for documents, least, most in (([], 0, 0), ([Document("only", TEXTS["b1"])], 1, 1), (without_content, 0, 3)):
        retriever = make()
        retriever.index(documents, _new_folder(tmp_path, f"{len(documents)}-documents"))
        found = int(retriever.search(QUERIES, 3).lengths.max())
        assert least <= found <= most, f"with {len(documents)} documents indexed, the longest list wrongly has {found}"
