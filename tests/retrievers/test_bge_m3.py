"""The sparse and the multi-vector head, against the paper's formulas computed text by text."""

import shutil
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import SENTENCES, tiny_bge_m3, tiny_sentence_model
from transformers import AutoModel, AutoTokenizer

from harness.errors import BadInput
from retrievers.base import Document, Query
from retrievers.dense import bge_m3, embeddings
from retrievers.dense.bge_m3 import MultiVector, Postings, Sparse, Weights
from retrievers.testing import DOCUMENTS, QUERIES, check_reranker, check_retriever, pair_scores, same

LENGTH = 40  # tokens, less than the longest texts have
TEXTS = [*SENTENCES, "", " \n", "moon", "달", "☃", "☂", "the moon the moon the moon", "lone \ud800 surrogate"]
TEXTS += [" ".join(SENTENCES[i:] + SENTENCES[:i]) for i in range(3)]
CORPUS = [Document(f"{i:03}", text) for i, text in enumerate([*TEXTS, *TEXTS[:3]])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bge_m3(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def sparse(folder):
    return partial(Sparse, path=str(folder), max_length=LENGTH, device="cpu")


@pytest.fixture
def multi_vector(folder):
    return partial(MultiVector, path=str(folder), max_length=LENGTH, device="cpu")


@pytest.fixture(scope="module")
def by_hand(folder):
    """The formulas of the paper, sections 3.1 and 3.2: (query, document) -> the sparse and the multi-vector score."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    lexical, colbert = (torch.load(folder / f"{name}_linear.pt", weights_only=True) for name in ("sparse", "colbert"))

    @cache
    def encoded(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        given = tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")
        with torch.no_grad():
            states = model(**given).last_hidden_state[0].float()
        weights = {}
        for token, state in zip(given["input_ids"][0].tolist(), states, strict=True):
            weight = float(torch.relu(lexical["weight"][0] @ state + lexical["bias"][0]))
            if token > 3 and weight > 0:  # 0 to 3: <s>, <pad>, </s>, <unk>
                weights[token] = max(weights.get(token, 0.0), weight)
        vectors = states[1:] @ colbert["weight"].T + colbert["bias"]  # the first is cls
        return weights, vectors / vectors.norm(dim=1, keepdim=True)

    def scores(query, document):
        (left, query_vectors), (right, vectors) = encoded(query), encoded(document)
        sparse = sum(weight * right[token] for token, weight in left.items() if token in right)
        return sparse, float(np.mean([max(float(q @ d) for d in vectors) for q in query_vectors]))

    return scores


@pytest.fixture
def indexed(sparse, tmp_path):
    retriever = sparse()
    retriever.index(CORPUS, tmp_path)
    return retriever


@pytest.mark.slow
def test_sparse_keeps_the_contract(sparse, tmp_path):
    check_retriever(sparse, tmp_path)


def test_sparse_scores_are_the_formula(indexed, by_hand):
    queries = [Query.of(f"q{i}", text) for i, text in enumerate(TEXTS)]
    ranking = indexed.search(queries, len(CORPUS))
    for query, row in zip(queries, ranking.to_dict().values(), strict=True):
        expected = {document.doc_id: by_hand(query.text, document.text)[0] for document in CORPUS}
        assert row == pytest.approx({doc: score for doc, score in expected.items() if score > 0}, rel=1e-4)
    assert ranking.lengths.max() > 10
    assert 0 < ranking.lengths[TEXTS.index("moon")] < len(CORPUS), "only documents that share a token"
    assert not ranking.lengths[TEXTS.index("")], "nothing but special tokens"


class Stopped(Exception):
    pass


def interrupted(retriever, batches, folder):
    """Index the corpus and stop after some batches."""
    seen = iter(range(1, 99))

    def progress(*_):
        if next(seen) == batches:
            raise Stopped

    retriever.progress = progress
    folder.mkdir(exist_ok=True)
    with pytest.raises(Stopped):
        retriever.index(CORPUS, folder)
    assert list(folder.glob("block-*.npz"))
    assert not (folder / "sparse.json").exists()


@pytest.fixture
def batches_run(monkeypatch):
    """The rows of every batch that the transformer computes."""
    ran, original = [], bge_m3._Transformer.batches

    def batches(self, *arguments):
        for batch in original(self, *arguments):
            ran.append(batch.rows.tolist())
            yield batch

    monkeypatch.setattr(bge_m3._Transformer, "batches", batches)
    return ran


@pytest.mark.parametrize("write_seconds", [0.0, 1e9])
def test_an_interrupted_index_resumes(sparse, tmp_path, monkeypatch, batches_run, write_seconds):
    """Three interruptions; no batch is computed twice, and every file equals that of an uninterrupted index."""
    monkeypatch.setattr(embeddings, "WRITE_SECONDS", write_seconds)
    (whole := tmp_path / "whole").mkdir()
    sparse(batch_tokens=40).index(CORPUS, whole)
    uninterrupted = sorted(batches_run)
    batches_run.clear()
    for batches in (1, 3, 2):
        interrupted(sparse(batch_tokens=40), batches, tmp_path / "part")
    sparse(batch_tokens=40).index(CORPUS, tmp_path / "part")
    assert sorted(batches_run) == uninterrupted
    files, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / one).iterdir()} for one in ("part", "whole")
    )
    assert files == expected
    arrays = {"data.npy", "indices.npy", "indptr.npy", "doc_id_ends.npy"}
    assert set(files) == {*arrays, "sparse.json", "doc_ids.txt"}


def test_resuming_with_another_batch_size_counts_no_text_twice(sparse, tmp_path, indexed):
    interrupted(sparse(batch_tokens=40), 3, tmp_path / "part")
    other, calls = sparse(batch_tokens=150), []
    other.progress = lambda done, total, unit: calls.append(done)
    other.index(CORPUS, tmp_path / "part")
    assert calls[-1] == len(TEXTS)
    found, expected = (one.search(QUERIES, 99).to_dict() for one in (other, indexed))
    for query_id, row in expected.items():
        assert found[query_id] == pytest.approx(row, rel=1e-4)


def test_a_complete_index_is_neither_computed_again_nor_opened_with_other_settings(
    indexed, sparse, tmp_path, batches_run
):
    with pytest.raises(ValueError, match="was made with"):
        sparse(max_length=LENGTH - 1).load(tmp_path)
    (tmp_path / "block-left.npz").write_bytes(b"a crash prevented its deletion")
    again = sparse()
    again.index(CORPUS, tmp_path)
    assert not batches_run
    assert not list(tmp_path.glob("block-*"))
    assert same(again.search(QUERIES, 9), indexed.search(QUERIES, 9))


@st.composite
def token_tables(draw):
    """Weights of documents [N, V] in quarters, mostly 0, and of a query whose tokens may occur in no document."""
    rows, size = draw(st.integers(0, 8)), draw(st.integers(1, 6))
    weight = st.sampled_from([0, 0, 0, 0.25, 0.5, 1])
    table = draw(st.lists(st.lists(weight, min_size=size, max_size=size), min_size=rows, max_size=rows))
    query = draw(st.lists(weight, min_size=size, max_size=size))
    return np.array(table, np.float32).reshape(rows, size), np.array(query)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token_tables(), st.integers(1, 9))
def test_postings_rank_as_the_dense_product_does(case, k):
    table, query = case
    rows, tokens = np.nonzero(table)
    weights = Weights(np.arange(len(table)), (table > 0).sum(axis=1), tokens.astype(np.int32), table[rows, tokens])
    postings = Postings.of(weights, np.arange(len(table)))
    found, scores = postings.best(np.flatnonzero(query).astype(np.int32), query[query > 0].astype(np.float32), k)
    dense = table.astype(np.float64) @ query  # exact: sums of sixteenths
    expected = sorted((-score, doc) for doc, score in enumerate(dense) if score > 0)[:k]
    assert [(-score, doc) for doc, score in zip(found.tolist(), scores.tolist(), strict=True)] == expected


def test_multi_vector_keeps_the_contract(multi_vector):
    check_reranker(multi_vector)


def test_multi_vector_scores_are_the_formula(multi_vector, by_hand):
    pairs = [(query, document) for query in TEXTS[::2] for document in TEXTS]
    expected = [by_hand(query, document)[1] for query, document in pairs]
    for batch_tokens in (None, 1, 150):
        assert pair_scores(multi_vector(batch_tokens=batch_tokens), pairs) == pytest.approx(expected, abs=1e-5)
    assert np.std(expected) > 0.05


def test_each_text_is_encoded_once_unless_queries_are_in_groups(multi_vector, monkeypatch, batches_run):
    pairs = [(query, document) for query in TEXTS[:4] for document in TEXTS[4:9]] * 2
    whole = pair_scores(multi_vector(), pairs)
    assert sum(map(len, batches_run)) == 4 + 5
    monkeypatch.setattr(bge_m3, "QUERY_CHARACTERS", 100)
    batches_run.clear()
    assert pair_scores(multi_vector(), pairs) == pytest.approx(whole, abs=1e-6)
    assert sum(map(len, batches_run)) > 4 + 5


def with_head(folder, target, file, state):
    """A copy of the model with another content of a head's file."""
    shutil.copytree(folder, target)
    torch.save(state, target / file)
    return str(target)


NAN = float("nan")


def test_an_output_that_is_not_finite_names_the_texts(folder, sparse, indexed, multi_vector, tmp_path):
    head = {"weight": torch.full((1, 32), NAN), "bias": torch.zeros(1)}
    path = with_head(folder, tmp_path / "sparse", "sparse_linear.pt", head)
    (tmp_path / "index").mkdir()
    with pytest.raises(BadInput, match=r"document '00\d'.*dtype=float32"):
        sparse(path=path).index(CORPUS[:8], tmp_path / "index")
    indexed._transformer.head.weight.data[:] = NAN
    with pytest.raises(BadInput, match="the query 'moon'"):
        indexed.search([Query.of("q", "moon")], 3)
    head = {"weight": torch.full((32, 32), NAN), "bias": torch.zeros(32)}
    path = with_head(folder, tmp_path / "colbert", "colbert_linear.pt", head)
    with pytest.raises(BadInput, match="the query 'moon' with the document 'The moon orbits"):
        pair_scores(multi_vector(path=path), [("moon", TEXTS[0])])


def test_a_model_without_the_heads_and_a_length_beyond_its_limit_are_rejected(sparse, multi_vector, tmp_path):
    plain = str(tiny_sentence_model(tmp_path / "plain", "cls"))
    with pytest.raises(BadInput, match=r"sparse_linear\.pt is missing.*retriever=dense"):
        sparse(path=plain).index(DOCUMENTS, tmp_path)
    with pytest.raises(BadInput, match=r"colbert_linear\.pt is missing"):
        pair_scores(multi_vector(path=plain), [("a", "b")])
    with pytest.raises(BadInput, match="set max_length=512"):
        sparse(max_length=8192).index(DOCUMENTS, tmp_path)


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("touched-by-a-model"),))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"weight": torch.ones(8, 16), "bias": torch.ones(8)}, "takes 16 numbers, but the model gives 32"),
        (Evil(), "does not hold the weights"),
    ],
)
def test_a_head_of_another_size_and_a_hostile_one_are_rejected(
    folder, multi_vector, tmp_path, monkeypatch, state, message
):
    monkeypatch.chdir(tmp_path)
    path = with_head(folder, tmp_path / "swapped", "colbert_linear.pt", state)
    with pytest.raises(BadInput, match=message):
        pair_scores(multi_vector(path=path), [("a", "b")])
    assert not Path("touched-by-a-model").exists()
