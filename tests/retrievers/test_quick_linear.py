"""oneDNN computes the linear layers of float32 models on processors for which it is faster."""

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES, tiny_cross_encoder, tiny_sentence_model

from retrievers.combine.rerank import CrossEncoder
from retrievers.dense import quick_linear
from retrievers.dense.encoders import SentenceEncoder
from retrievers.dense.quick_linear import quicken
from retrievers.testing import pair_scores

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


def quickened(layers):
    return ["forward" in vars(layer) for layer in layers]


def test_layers_give_the_same_outputs_up_to_rounding(monkeypatch):
    monkeypatch.setattr(quick_linear, "preferred", lambda: True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 3, bias=False))
    inputs = [torch.randn(shape) for shape in ((24,), (1, 24), (7, 24), (2, 5, 24), (0, 24))] + [torch.randn(24, 9).T]
    with torch.inference_mode():
        want = [model(one) for one in inputs]
        quicken(model)
        for one, outputs in zip(inputs, want, strict=True):
            torch.testing.assert_close(model(one), outputs, rtol=0, atol=1e-5)
    assert quickened(model) == [True, False, True]


def test_other_layers_stay(monkeypatch):
    class Own(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(Own(2, 2), torch.nn.Linear(2, 2, dtype=torch.bfloat16), torch.nn.Linear(2, 2))
    monkeypatch.setattr(quick_linear, "preferred", lambda: False)
    quicken(model)
    assert quickened(model) == [False, False, False]
    monkeypatch.setattr(quick_linear, "preferred", lambda: True)
    quicken(model)
    assert quickened(model) == [False, False, True]


def test_vectors_and_scores_are_the_same_up_to_rounding(tmp_path, monkeypatch):
    sentences, pairs = str(tiny_sentence_model(tmp_path / "s")), str(tiny_cross_encoder(tmp_path / "c"))
    found = []
    for wanted in (False, True):
        monkeypatch.setattr(quick_linear, "preferred", lambda wanted=wanted: wanted)
        encoder, reranker = (
            SentenceEncoder(path=sentences, device="cpu"),
            CrossEncoder(path=pairs, max_length=60, device="cpu"),
        )
        vectors = encoder.encode_queries(SENTENCES, tmp_path)
        scores = pair_scores(reranker, [(SENTENCES[0], text) for text in SENTENCES])
        found.append((vectors, scores))
        for model in (encoder._model, reranker._model):
            assert any(quickened(model.modules())) == wanted
    for plain, quick in zip(*found, strict=True):
        np.testing.assert_allclose(plain, quick, atol=1e-5)


@pytest.mark.parametrize(
    ("processor", "capability", "expected"),
    [
        ("vendor_id\t: AuthenticAMD\n", "AVX512", True),
        ("AMD64 Family 25 Model 97 Stepping 2, AuthenticAMD", "AVX512", True),
        ("vendor_id\t: AuthenticAMD\n", "AVX2", False),
        ("vendor_id\t: GenuineIntel\n", "AVX512", False),
        ("", "DEFAULT", False),
    ],
)
def test_the_processor_decides(monkeypatch, processor, capability, expected):
    monkeypatch.setattr(quick_linear, "_processor", lambda: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert quick_linear.preferred() == expected
