"""LSA against scikit-learn's truncated decomposition, tiny and large corpora, errors that name the argument."""

import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from harness.errors import BadInput
from retrievers.dense import lsa
from retrievers.dense.lsa import LSA
from retrievers.testing import check_encoder

KOREAN = [
    "달은 한 달에 한 번 지구 둘레를 돈다",
    "달의 모양은 왜 변하나요",
    "물은 백 도에서 끓는다",
    "높은 산에서 물은 더 낮은 온도에서 끓는다",
    "식물은 빛을 받아 양분을 만든다",
    "식물의 뿌리는 물을 빨아들인다",
]
WEIGHING = {"analyzer": "char_wb", "ngram_range": (2, 4), "sublinear_tf": True}


def corpus(count, seed=0):
    chance = np.random.default_rng(seed)
    words = [*" ".join(KOREAN).split(), "Moon", "water", "boils", "plants", "light", "TIDE", "e=mc2"]
    return [" ".join(chance.choice(words, chance.integers(1, 30))) for _ in range(count)]


def encoded(encoder, texts, folder):
    folder.mkdir(exist_ok=True)
    encoder.encode_documents(texts, folder)
    return np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)


@pytest.mark.parametrize("dimensions", [2, 7, 40])
def test_similarities_are_those_of_scikit_learn(tmp_path, dimensions):
    texts, queries = corpus(80), [*corpus(10, seed=1), KOREAN[2]]
    encoder = LSA(dimensions=dimensions)
    found = encoded(encoder, texts, tmp_path)
    assert (found.dtype, found.shape) == (np.float32, (80, dimensions))
    weights = (weigh := TfidfVectorizer(**WEIGHING)).fit_transform(texts)
    svd = TruncatedSVD(dimensions, algorithm="arpack", random_state=0).fit(weights)
    expected = normalize(svd.transform(weigh.transform(queries))) @ normalize(svd.transform(weights)).T
    np.testing.assert_allclose(encoder.encode_queries(queries, tmp_path) @ found.T, expected, atol=1e-4)


def test_all_directions_preserve_the_angles_between_documents(tmp_path):
    """A projection on the whole space that the documents span changes none of their inner products."""
    texts = corpus(60)
    found = encoded(LSA(), texts, tmp_path)
    weights = TfidfVectorizer(**WEIGHING).fit_transform(texts)
    directions = np.linalg.matrix_rank(weights.toarray(), rtol=lsa.NEGLIGIBLE**0.5)  # by standard deviation
    assert found.shape == (60, directions)  # not 512: there are no more
    np.testing.assert_allclose(found @ found.T, (weights @ weights.T).toarray(), atol=1e-4)


def test_it_keeps_the_contract_and_case_and_composition_do_not_matter(tmp_path):
    check_encoder(LSA, tmp_path)
    encoder = LSA()
    found = encoded(encoder, [*KOREAN, "The Moon"], tmp_path)
    queries = [unicodedata.normalize("NFD", KOREAN[1]), "tHE mOON"]
    np.testing.assert_allclose(encoder.encode_queries(queries, tmp_path), found[[1, 6]], atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "shape"),
    [
        ([], (0, 1)),
        ([""], (1, 1)),
        (["", " \n\t", "\u3000"], (3, 1)),
        (["a"], (1, 1)),
        (["물", ""], (2, 1)),  # one document with content: one direction
        (["물", "물", "물"], (3, 1)),
        (["물", "달", "빛 물"], (3, 3)),
    ],
)
def test_tiny_corpora(tmp_path, texts, shape):
    encoder = LSA()
    found = encoded(encoder, texts, tmp_path)
    assert found.shape == shape
    lengths = [1 if text.strip() else 0 for text in texts]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), lengths, atol=1e-6)
    queries = encoder.encode_queries(["물", "", "zzz"], tmp_path)
    assert queries.shape == (3, shape[1])
    assert not queries[1:].any()  # they contain no known n-gram
    assert encoder.encode_queries([], tmp_path).shape == (0, shape[1])


def test_a_large_corpus_is_learned_from_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(lsa, "LEARNED", 20)
    monkeypatch.setattr(lsa, "FOLDED", 7)
    texts, calls = corpus(60), []
    encoder = LSA(dimensions=30)
    encoder.encode_documents(texts, tmp_path, lambda *call: calls.append(call))
    found = np.load(tmp_path / "embeddings.npy", allow_pickle=False)
    assert found.shape == (60, 20)  # as many directions as documents in the sample
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)  # the others are projected
    np.testing.assert_allclose(encoder.encode_queries(texts, tmp_path), found, atol=1e-5)
    assert calls[:2] == [(0, 60, "documents"), (7, 60, "documents")]
    assert calls[-1] == (60, 60, "documents")
    again = encoded(LSA(dimensions=30), texts, tmp_path / "again")
    other = encoded(LSA(dimensions=30, seed=1), texts, tmp_path / "other")
    np.testing.assert_array_equal(again, found)
    assert np.abs(other @ other.T - found @ found.T).max() > 0.01


def test_the_vocabulary_is_bounded_and_files_of_an_interrupted_call_are_replaced(tmp_path, monkeypatch):
    texts = corpus(20)
    want = np.array(encoded(LSA(), texts, tmp_path / "clean"))
    with monkeypatch.context() as patch:
        patch.setattr(lsa, "FEATURES", 50)
        encoded(LSA(), corpus(60), tmp_path)
    assert len(json.loads((tmp_path / "vocabulary.json").read_text())) == 50
    assert np.load(tmp_path / "components.npy").shape[0] == 50
    (tmp_path / "embeddings.npy").write_bytes(b"\x93NUM")
    np.testing.assert_array_equal(encoded(LSA(), texts, tmp_path), want)


@settings(max_examples=40)
@given(texts=st.lists(st.text(max_size=12), max_size=12), query=st.text(max_size=12))
def test_any_text(tmp_path_factory, texts, query):
    folder = tmp_path_factory.mktemp("any")
    encoder = LSA()
    found = encoded(encoder, texts, folder)
    lengths = np.linalg.norm(np.vstack([found, encoder.encode_queries([query], folder)]), axis=1)
    assert np.isfinite(lengths).all()
    assert ((np.abs(lengths - 1) < 1e-5) | (lengths == 0)).all()
    assert [bool(length) for length in lengths[:-1]] == [bool(text.strip()) for text in texts]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": 0}, "low is 0"),
        ({"low": 3, "high": 2}, r"high \(2\) is below low \(3\)"),
        ({"dimensions": 0}, "dimensions is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(BadInput, match=message):
        LSA(**arguments)
