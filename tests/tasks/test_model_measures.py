"""BERTScore and BLEURT on tiny models: against bert-score itself, and against forward passes written out here."""

import json
import os
import shutil
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import COMMIT, SENTENCES, hub_cache, tiny_sentence_model, use_hub_cache

from harness.config.components import check_component, component_identity
from harness.errors import BadInput
from harness.storage.cache import Cache
from harness.tasks import model_measures
from harness.tasks.model_measures import BertScore, Bleurt, ModelAbsent

WORDS = [word for sentence in SENTENCES for word in sentence.split()]
NAME = "somebody/tiny"
REMBERT = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "type_vocab_size": 2}
REMBERT |= {"intermediate_size": 24, "embedding_size": 8, "max_position_embeddings": 24, "hidden_act": "gelu"}
SYLLABLES = "가나다라마바사아자차카타파하고노도로모보소오조초코토포호"


def random_pairs(count, seed=0):
    """Predictions and references of 1 to 12 words, every fourth prediction a part of its reference."""
    chance = np.random.default_rng(seed)
    references = [" ".join(chance.choice(WORDS, chance.integers(1, 13))) for _ in range(count)]
    predictions = [" ".join(chance.choice(WORDS, chance.integers(1, 13))) for _ in range(count)]
    predictions[::4] = [reference[: len(reference) // 2 + 1].strip() for reference in references[::4]]
    return predictions, references


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """XLM-RoBERTa of two layers."""
    return tiny_sentence_model(tmp_path_factory.mktemp("models") / "encoder")


def tiny_bleurt(folder, seed=0, **changed):
    """RemBERT of two layers with one number for a pair, in the layout of BLEURT-20's conversion."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import RemBertConfig, RemBertForSequenceClassification

    folder.mkdir(parents=True)
    values = REMBERT | changed
    (folder / "config.json").write_text(json.dumps({"model_type": "bleurt", **values}))
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("▁", -1.0)]
    pieces += [(syllable, -2 - i / 100) for i, syllable in enumerate(SYLLABLES)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(seed)
    config = RemBertConfig(
        **{name: value for name, value in values.items() if name != "embedding_size"},
        input_embedding_size=values["embedding_size"], initializer_range=0.4, num_labels=1,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    state = RemBertForSequenceClassification(config).state_dict()
    save_bleurt(folder, {published(name): value + 0.1 * torch.randn_like(value) for name, value in state.items()})
    return folder


def published(name):
    """The name that a weight of RemBERT has in BLEURT-20's conversion."""
    return name.replace("rembert.", "bleurt.").replace("embedding_hidden_mapping_in", "embedding_projection")


def save_bleurt(folder, state):
    state["bleurt.embeddings.position_ids"] = torch.arange(24)[None]  # a buffer, which old versions saved
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")


def save_torch(folder, state):
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.fixture(scope="module")
def bleurt(tmp_path_factory):
    return tiny_bleurt(tmp_path_factory.mktemp("models") / "bleurt")


# BERTScore


@pytest.mark.slow
def test_bertscore_equals_the_package_on_korean_pairs(encoder, store):
    import bert_score

    predictions, references = random_pairs(200)
    want = bert_score.score(predictions, references, model_type=str(encoder), num_layers=1, device="cpu")[2]
    found = BertScore(path=str(encoder), layer=1, device="cpu").score(predictions, references, store)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, want.numpy(), atol=1e-6)
    assert 0 < found.min() < 0.9 < found.max() <= 1 + 1e-6


def by_hand(folder, layer, prediction, reference):
    """The greatest cosines between the tokens' vectors in a layer, in float64; the ends are matched but not counted."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in (prediction, reference):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        found = states[layer][0].double().numpy()
        vectors.append(found / np.linalg.norm(found, axis=1, keepdims=True))
    cosines = vectors[0] @ vectors[1].T
    precision, recall = cosines.max(axis=1)[1:-1].mean(), cosines.max(axis=0)[1:-1].mean()
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("layer", [1, 2])
def test_bertscore_by_hand(encoder, store, layer):
    predictions = ["물은 백 도에서 끓는다", "달은 한", "달", "물은 끓는다", "", "물은", " \n", ""]
    references = [
        "물은 더 낮은 온도에서 끓는다.",
        "식물은 빛을 받아 양분을",
        "물은",
        "물은 끓는다",
        "물은",
        "",
        "달",
        "",
    ]
    want = [by_hand(encoder, layer, *pair) for pair in zip(predictions[:3], references, strict=False)]
    measure = BertScore(path=str(encoder), layer=layer, device="cpu")
    np.testing.assert_allclose(measure.score(predictions, references, store), [*want, 1, 0, 0, 0, 0], atol=1e-6)
    assert measure.score([], [], store).shape == (0,)


@pytest.mark.parametrize("places", [514, 20])
def test_bertscore_cuts_long_texts_where_the_model_ends(tmp_path, store, places):
    """Of XLM-RoBERTa's places two are set aside: 512 or 18 tokens, whether the tokenizer names no number or that."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    found = []
    for named in (None, places - 2):
        folder = tiny_sentence_model(tmp_path / str(named))
        config = XLMRobertaConfig.from_pretrained(folder, max_position_embeddings=places)
        torch.manual_seed(0)
        XLMRobertaModel(config).save_pretrained(folder)
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        del tokenizer["model_max_length"]
        tokenizer |= {"model_max_length": named} if named else {}
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
        measure = BertScore(path=str(folder), layer=1, device="cpu")
        found.append(measure.score([" ".join(WORDS * 30)], ["물은 끓는다"], store))
    np.testing.assert_allclose(*found, atol=1e-6)


# BLEURT


def linear(state, name, x):
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def normed(state, name, x):
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-12).sqrt()
    return x * state[f"{name}.weight"] + state[f"{name}.bias"]


def forward(folder, prediction, reference):
    """A pair's value in float64, written out from Devlin et al. 2019, with RemBERT's narrow embeddings."""
    state = {name: value.double() for name, value in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text())
    number = {syllable: place + 5 for place, syllable in enumerate(SYLLABLES)} | {" ": 4}
    first, second = ([4] * bool(text) + [number[one] for one in text] for text in (reference, prediction))
    while len(first) + len(second) > config["max_position_embeddings"] - 3:
        (first if len(first) > len(second) else second).pop()
    ids = torch.tensor([2, *first, 3, *second, 3])
    kinds = torch.tensor([0] * (len(first) + 2) + [1] * (len(second) + 1))
    tables = [state[f"bleurt.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
    x = normed(state, "bleurt.embeddings.LayerNorm", tables[0][ids] + tables[1][: len(ids)] + tables[2][kinds])
    x = linear(state, "bleurt.encoder.embedding_projection", x)
    heads = config["num_attention_heads"]
    for i in range(config["num_hidden_layers"]):
        layer = f"bleurt.encoder.layer.{i}"
        query, key, value = (
            linear(state, f"{layer}.attention.self.{name}", x).unflatten(1, (heads, -1)).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        attention = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
        seen = (attention @ value).transpose(0, 1).flatten(1)
        x = normed(
            state, f"{layer}.attention.output.LayerNorm", linear(state, f"{layer}.attention.output.dense", seen) + x
        )
        inner = linear(state, f"{layer}.intermediate.dense", x)
        inner = inner * (1 + torch.erf(inner / 2**0.5)) / 2
        x = normed(state, f"{layer}.output.LayerNorm", linear(state, f"{layer}.output.dense", inner) + x)
    return float(linear(state, "classifier", linear(state, "bleurt.pooler.dense", x[0]).tanh()))


def syllables(count, longest, seed=0):
    chance = np.random.default_rng(seed)
    return ["".join(chance.choice([*SYLLABLES], chance.integers(0, longest + 1))) for _ in range(count)]


@pytest.mark.parametrize("batch_tokens", [None, 1, 60])
def test_bleurt_by_hand(bleurt, store, batch_tokens):
    """Texts of 0 to 30 syllables, of which the model takes 21 in all: many are cut."""
    predictions, references = syllables(30, 30), syllables(30, 30, seed=1)
    measure = Bleurt(path=str(bleurt), device="cpu", batch_tokens=batch_tokens)
    found = measure.score(predictions, references, store)
    want = [forward(bleurt, *pair) for pair in zip(predictions, references, strict=True)]
    np.testing.assert_allclose(found, want, atol=2e-5)
    assert np.std(want) > 0.1
    assert abs(forward(bleurt, "가나", "하고노") - forward(bleurt, "하고노", "가나")) > 0.01, "the order counts"


def test_bleurt_of_weights_set_by_hand(tmp_path, store):
    """The pooler's weights are 0 and its biases artanh(1/2), so that 16 pooled numbers are 1/2, whatever is read.

    The last layer's weights are 1/16 and its bias 0.1: 16 · 1/2 · 1/16 + 0.1 = 0.6.
    """
    folder = tiny_bleurt(tmp_path / "model")
    state = load_file(folder / "model.safetensors")
    state["bleurt.pooler.dense.weight"] = torch.zeros(16, 16)
    state["bleurt.pooler.dense.bias"] = torch.full((16,), 0.5).atanh()
    state["classifier.weight"], state["classifier.bias"] = torch.full((1, 16), 1 / 16), torch.tensor([0.1])
    for save in (save_bleurt, save_torch):
        save(folder, state)
        found = Bleurt(path=str(folder), device="cpu").score(["가", "", "나다"], ["나다라", "", "나다"], store)
        np.testing.assert_allclose(found, 0.6, atol=1e-6)


def test_bleurt_reads_a_sentencepiece_model(bleurt, tmp_path, store):
    """The original's tokenizer: pieces and [CLS] and [SEP] by the numbers that the model itself gives them."""
    import sentencepiece

    folder = tiny_bleurt(tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SYLLABLES, *syllables(200, 8)]), model_prefix=str(folder / "spm"), vocab_size=40,
        hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]"],
        minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    assert pieces.piece_to_id(["[CLS]", "[SEP]"]) == [2, 3]
    model = model_measures.Regression(folder, "cpu")
    ids, first = model._joined(("가나", "다 라"))
    assert ids == [2, *pieces.encode("다 라"), 3, *pieces.encode("가나"), 3]
    assert first == len(pieces.encode("다 라")) + 2
    assert np.isfinite(Bleurt(path=str(folder), device="cpu").score(["가나"], ["다 라"], store)).all()


# Both: forms of a text, the cache, the identity of a model


def measures(encoder, bleurt, **arguments):
    return [BertScore(path=str(encoder), layer=1, **arguments), Bleurt(path=str(bleurt), **arguments)]


def test_composed_and_decomposed_texts_are_one(encoder, bleurt, store):
    predictions, references = ["가나 물은", "다\ud800"], ["물은 고", "도"]
    decomposed = [[unicodedata.normalize("NFD", text) for text in texts] for texts in (predictions, references)]
    assert decomposed[0] != predictions
    for measure in measures(encoder, bleurt, device="cpu"):
        found = measure.score(predictions, references, store)
        np.testing.assert_array_equal(measure.score(*decomposed, Cache(store.root / measure._name)), found)


@pytest.mark.slow
def test_batches_change_no_more_than_rounding(encoder, store, monkeypatch):
    monkeypatch.setattr("retrievers.dense.models.CHUNK", 25)
    predictions, references = random_pairs(60)

    def scores(size, part=slice(None)):
        measure = BertScore(path=str(encoder), layer=2, device="cpu", batch_tokens=size)
        return measure.score(predictions[part], references[part], Cache(store.root / f"{size} {part}"))

    np.testing.assert_allclose(scores(1), scores(4000), atol=1e-6)
    np.testing.assert_allclose(scores(None, slice(7, 8)), scores(1)[7:8], atol=1e-6)


def test_cached_pairs_need_no_model(encoder, bleurt, store, monkeypatch):
    predictions, references = ["가", "가나", "가나다", "가"], ["가나"] * 4
    found = [one.score(predictions, references, store) for one in measures(encoder, bleurt)]
    monkeypatch.setattr(model_measures, "TruncatedEncoder", None)  # whoever loads a model fails
    monkeypatch.setattr(model_measures, "Regression", None)
    for measure, before in zip(measures(encoder, bleurt), found, strict=True):
        np.testing.assert_array_equal(measure.score(predictions[::-1], references, store), before[::-1])
        with pytest.raises(TypeError):
            measure.score(["하나 더"], ["가나"], store)


def test_cached_pairs_need_no_torch(encoder, store):
    BertScore(path=str(encoder), layer=1, device="cpu").score(["가"], ["나"], store)
    code = (
        "import sys; from pathlib import Path; from harness.storage.cache import Cache; "
        "from harness.tasks import model_measures as it; "
        f"measure = it.BertScore(path={str(encoder)!r}, layer=1, device='cpu'); "
        f"measure.score(['가'], ['나'], Cache(Path({str(store.root)!r}))); "
        "assert not {'torch', 'transformers', 'bert_score'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONUTF8": "1"})


def node(target, **arguments):
    return {"_target_": f"harness.tasks.model_measures.{target}", **arguments}


def test_other_weights_and_layers_are_other_measures(encoder, tmp_path, store):
    folder = tiny_bleurt(tmp_path / "model")
    measure, bleurt = (
        Bleurt(path=str(folder), device="cpu"),
        node("Bleurt", path=str(folder), runtime={"device": "cpu"}),
    )
    before, found = component_identity(bleurt), measure.score(["가"], ["나"], store)
    assert "sha256" in before["arguments"]
    assert set(before["arguments"]["packages"]) == {"torch", "transformers"}
    state = load_file(folder / "model.safetensors")
    state["classifier.bias"] += 1
    save_bleurt(folder, state)
    assert component_identity(bleurt) != before
    np.testing.assert_allclose(Bleurt(path=str(folder)).score(["가"], ["나"], store), found + 1, atol=1e-6)
    first, second = (node("BertScore", path=str(encoder), layer=layer) for layer in (1, 2))
    elsewhere = first | {"runtime": {"device": "cpu", "batch_tokens": 5}}
    assert component_identity(first) == component_identity(elsewhere) != component_identity(second)


# What is not to be had


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty hub cache, offline."""
    use_hub_cache(monkeypatch, tmp_path / "hub")
    return tmp_path / "hub"


@pytest.mark.parametrize(("measure", "revision"), [(BertScore, None), (Bleurt, None), (Bleurt, COMMIT)])
def test_a_missing_model_is_absent(cache, store, measure, revision):
    made = measure(revision=revision)
    with pytest.raises(ModelAbsent) as error:
        made.score(["가"], ["나"], store)
    model = "bert-base-multilingual-cased" if measure is BertScore else "lucadiliello/BLEURT-20"
    said = [model, "offline mode is on", f"task.{made._name}.path=FOLDER", f"hf download {model}"]
    assert all(words in str(error.value) for words in [*said, f"--revision {COMMIT}" if revision else ""])
    assert "encoder=" not in str(error.value)


@pytest.mark.parametrize(
    ("measure", "package", "module"),
    [(BertScore, "bert-score", "bert_score"), (BertScore, "torch", "torch"), (Bleurt, "transformers", "transformers")],
)
def test_a_missing_package_is_named(encoder, bleurt, store, monkeypatch, measure, package, module):
    monkeypatch.setattr(model_measures, "find_spec", lambda name: None if name == module else name)
    made = measures(encoder, bleurt)[measure is Bleurt]
    with pytest.raises(ModelAbsent, match=rf"needs the package {package}: pip install 'retrieval-harness\[text\]'"):
        made.score(["가"], ["나"], store)


def test_sentencepiece_is_needed_for_its_models_alone(bleurt, tmp_path, store, monkeypatch):
    monkeypatch.setattr(model_measures, "find_spec", lambda name: None if name == "sentencepiece" else name)
    Bleurt(path=str(bleurt), device="cpu").score(["가"], ["나"], store)
    folder = tiny_bleurt(tmp_path / "model")
    (folder / "spm.model").write_bytes(b"")
    with pytest.raises(ModelAbsent, match="needs the package sentencepiece"):
        Bleurt(path=str(folder), device="cpu").score(["가"], ["나"], store)


def test_a_model_of_the_hub(cache, encoder, store):
    bert_score = node("BertScore", model=NAME, layer=1)
    assert component_identity(bert_score)["arguments"] == {"model": NAME, "revision": None, "absent": True}
    hub_cache(cache, NAME, encoder)
    assert component_identity(bert_score)["arguments"]["commit"] == COMMIT
    found, want = (
        BertScore(**model, layer=2, device="cpu").score(["물은 백"], ["달은"], store)
        for model in ({"model": NAME}, {"path": str(encoder)})
    )
    np.testing.assert_allclose(found, want, atol=1e-6)
    with pytest.raises(BadInput, match=r"names no layer for the model somebody/tiny: give task\.bertscore\.layer=N"):
        BertScore(NAME).score(["가"], ["나"], store)
    hub_cache(cache, "bert-base-multilingual-cased", encoder)
    with pytest.raises(BadInput, match=r"layer is 9, but the model in .* has 2"):  # 9 of the table of known models
        BertScore().score(["가"], ["나"], store)


# What cannot be used


@pytest.mark.parametrize(
    ("target", "arguments", "words"),
    [
        ("BertScore", {"layer": 0}, "layer is 0: give a number from 1"),
        ("BertScore", {"layer": "nine"}, "layer='nine' is not"),
        ("BertScore", {"path": "models/mine"}, "for a copy of bert-base-multilingual-cased it is layer=9"),
        ("BertScore", {"idf": True}, "idf is unknown"),
        ("BertScore", {"model": "/models/mine"}, "For a folder, set path"),
        ("Bleurt", {"model": None}, "model and path are null"),
        ("Bleurt", {"runtime": {"device": "gpu"}}, "device is 'gpu'"),
        ("Bleurt", {"runtime": {"batch_tokens": 0}}, "batch_tokens is 0"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else None,
)
def test_arguments(target, arguments, words):
    with pytest.raises(BadInput) as error:
        check_component(node(target, **arguments), "measure")
    assert words in str(error.value)


def stored(name, value=None):
    """Change or remove one weight."""

    def change(folder):
        state = load_file(folder / "model.safetensors") | {name: value}
        save_file({name: one for name, one in state.items() if one is not None}, folder / "model.safetensors")

    return change


def config_with(**changed):
    def change(folder):
        config = json.loads((folder / "config.json").read_text()) | changed
        (folder / "config.json").write_text(json.dumps(config))

    return change


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-50])


def no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def with_a_decoder(folder):
    from transformers import T5Config

    T5Config(num_layers=2).save_pretrained(folder)


NAN = torch.full((1, 16), float("nan"))
BROKEN_BLEURT = {
    "no head": (stored("classifier.weight"), "They lack classifier.weight."),
    "no layer": (config_with(num_hidden_layers=3), "and 13 more"),
    "more layers": (config_with(num_hidden_layers=1), "contain unknown rembert.encoder.layer.1"),
    "two numbers": (stored("classifier.bias", torch.zeros(2)), "They have another shape for classifier.bias."),
    "old layout": (config_with(embedding_size=None), "lacks embedding_size"),
    "no config": (config_with(vocab_size=None, type_vocab_size="2"), "lacks vocab_size, type_vocab_size"),
    "config of another kind": (lambda folder: (folder / "config.json").write_text("[1]"), "holds no model"),
    "no tokenizer": (no_tokenizer, "contains no tokenizer"),
    "cut tokenizer": (cut("tokenizer.json"), "holds no model that transformers can load"),
    "cut weights": (cut("model.safetensors"), "holds no model that transformers can load"),
    "damaged weights": (stored("classifier.weight", NAN), "'가' with the reference '나' is not a finite number"),
    "no folder": (shutil.rmtree, "which is not a folder"),
    "few vectors": (config_with(vocab_size=9), "the weights do not fit"),
}


def test_the_tokenizer_of_another_bleurt_is_refused(tmp_path, store):
    folder = tiny_bleurt(tmp_path / "model", vocab_size=20)
    with pytest.raises(BadInput, match="the tokenizer has 33 pieces, but the model knows 20"):
        Bleurt(path=str(folder), device="cpu").score(["가"], ["나"], store)
    tokenizer = json.loads((folder / "tokenizer.json").read_text().replace("[CLS]", "<s>"))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(BadInput, match=r"lacks \[CLS\] or \[SEP\]"):
        Bleurt(path=str(folder), device="cpu").score(["가"], ["나"], store)


BROKEN_ENCODER = {
    "no layer": (stored("encoder.layer.0.output.dense.weight"), "They lack encoder.layer.0.output.dense.weight."),
    "another width": (config_with(intermediate_size=32), "have another shape for"),
    "layer beyond": (config_with(num_hidden_layers=1), "layer is 2, but the model in"),
    "decoder": (with_a_decoder, "contains no encoder like BERT"),
    "no folder": (shutil.rmtree, "which is not a folder"),
    "unknown kind": (config_with(model_type="bleurt"), "holds no model that transformers can load"),
    "no tokenizer": (no_tokenizer, "tokenizer"),
    "cut weights": (cut("model.safetensors"), "holds no model that transformers can load"),
    "damaged weights": (stored("embeddings.LayerNorm.bias", NAN[0].repeat(2)), "is not a finite number"),
}


CASES = [("bleurt", *case) for case in BROKEN_BLEURT.items()] + [("encoder", *case) for case in BROKEN_ENCODER.items()]


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, _, case in CASES], ids=[one for _, one, _ in CASES])
def test_an_incomplete_model_is_refused(tmp_path, store, kind, case):
    change, words = case
    folder = (tiny_bleurt if kind == "bleurt" else tiny_sentence_model)(tmp_path / "model")
    change(folder)
    measure = Bleurt(path=str(folder)) if kind == "bleurt" else BertScore(path=str(folder), layer=2)
    with pytest.raises(BadInput) as error:
        measure.score(["가"], ["나"], store)
    assert words in str(error.value)
