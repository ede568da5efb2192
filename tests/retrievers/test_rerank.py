"""Cross-encoders, against the library's own predictions."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as LibraryCrossEncoder
from tiny_models import SENTENCES, tiny_cross_encoder

from harness.config.components import component_identity
from harness.errors import BadInput
from retrievers.combine.rerank import CrossEncoder
from retrievers.dense import models
from retrievers.testing import check_reranker, pair_scores

LENGTH = 60  # tokens, less than the longest pairs have
DOCUMENTS = [*SENTENCES, "", "moon", " ".join(SENTENCES), " ".join(reversed(SENTENCES))]
PAIRS = [(query, document) for query in ("달의 모양은 왜 변해?", "What boils?", "") for document in DOCUMENTS]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_cross_encoder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def make(tiny):
    return partial(CrossEncoder, path=str(tiny), max_length=LENGTH, device="cpu")


def test_it_keeps_the_contract(make):
    check_reranker(make)
    got = pair_scores(make(), [("lone \ud800", "moon"), ("lone \ufffd", "moon")])
    assert got[0] == pytest.approx(got[1], abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({}, 1e-5),
        ({"batch_tokens": 1}, 1e-5),
        ({"batch_tokens": 100}, 1e-5),
        ({"max_length": None}, 1e-5),  # the model's own limit
        ({"dtype": "bfloat16", "batch_tokens": 1}, 0.01),
    ],
)
def test_scores_are_the_librarys(tiny, make, settings, tolerance):
    length, dtype = settings.get("max_length", LENGTH), getattr(torch, settings.get("dtype", "float32"))
    library = LibraryCrossEncoder(str(tiny), device="cpu", max_length=length, model_kwargs={"dtype": dtype})
    expected = library.predict(PAIRS, batch_size=1)
    assert pair_scores(make(**settings), PAIRS) == pytest.approx(expected, abs=tolerance)
    assert np.std(expected) > 0.05
    assert 0 < expected.min() < expected.max() < 1  # the sigmoid's


def test_the_activation_is_the_models_own(tiny, make, tmp_path):
    identity_model = tmp_path / "identity"
    library = LibraryCrossEncoder(str(tiny), device="cpu", activation_fn=torch.nn.Identity())
    library.save_pretrained(str(identity_model))
    raw = pair_scores(make(path=str(identity_model)), PAIRS)
    assert 1 / (1 + np.exp(-raw)) == pytest.approx(pair_scores(make(), PAIRS), abs=1e-5)
    assert raw.min() < 0


def test_the_models_prompt_is_used_and_each_pair_is_tokenized_once(make, tiny, tmp_path, monkeypatch):
    library = LibraryCrossEncoder(str(tiny), device="cpu", max_length=LENGTH)
    library.prompts, library.default_prompt_name = {"task": "Rank: "}, "task"
    library.save_pretrained(str(tmp_path / "prompted"))
    calls, preprocess = [], LibraryCrossEncoder.preprocess
    monkeypatch.setattr(
        LibraryCrossEncoder, "preprocess", lambda self, given, **o: calls.extend(given) or preprocess(self, given, **o)
    )
    found = pair_scores(make(path=str(tmp_path / "prompted")), PAIRS)
    assert sorted(calls) == sorted(PAIRS)
    assert found == pytest.approx(library.predict(PAIRS), abs=1e-5)
    assert np.abs(found - pair_scores(make(), PAIRS)).max() > 0.01


def test_broken_weights_several_labels_and_a_length_beyond_the_limit_are_rejected(tiny, make, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny, tmp_path / "broken")
    weights = load_file(tmp_path / "broken" / "model.safetensors")
    weights["classifier.out_proj.bias"][0] = float("nan")
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match="the query 'What boils' with the document 'moon' is not a finite number"):
        pair_scores(make(path=str(tmp_path / "broken")), [("What boils", "moon")])
    tiny_cross_encoder(tmp_path / "three", labels=3)
    with pytest.raises(BadInput, match="gives 3 numbers for a pair"):
        pair_scores(make(path=str(tmp_path / "three")), PAIRS)
    with pytest.raises(BadInput, match="set max_length=512"):
        pair_scores(make(max_length=1024), PAIRS)


def test_identity_leaves_out_arguments_that_change_no_score(tiny):
    node = {"_target_": "retrievers.combine.rerank.CrossEncoder", "model": None, "path": str(tiny)}
    found = component_identity(node | {"depth": 3, "runtime": {"device": "cpu", "batch_tokens": 5}})
    assert found == component_identity(node | {"depth": 30, "runtime": {"device": "cpu"}})
    files = models.fingerprint(models.ModelSource(path=str(tiny)))
    assert found["arguments"] == files | {"dtype": "float32", "max_length": 1024}
    assert set(found["packages"]) == {"sentence-transformers", "transformers"}
    assert found != component_identity(node | {"max_length": 512})
