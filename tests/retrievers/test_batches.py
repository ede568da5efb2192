"""Inputs are grouped by length, and batches are computed by all cores while the caller takes the results."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retrievers.dense import batches
from retrievers.dense.batches import EACH, WINDOW, Batches, ahead, chunks


@given(st.lists(st.integers(0, 3000), max_size=80), st.integers(1, 5000))
def test_chunks_hold_inputs_of_similar_length(sizes, most):
    sizes = np.array(sizes, np.int64)
    parts = chunks(sizes, most)
    assert sorted(row for part in parts for row in part) == list(range(len(sizes)))
    padded = sizes + EACH
    for part in parts:
        assert padded[part].tolist() == sorted(padded[part], reverse=True)
        assert padded[part][0] < 2 * padded[part][-1]
        assert padded[part][1:].sum() <= most, "a chunk is full, or one input"
        assert padded[part.min() : part.max() + 1].sum() < WINDOW * most + padded.max(), "all from one window"


def test_later_inputs_are_not_reached_before_a_window_ends():
    sizes = np.tile([1900, 900], 100)
    rows = np.concatenate(chunks(sizes, 2000))
    assert rows[:10].tolist() == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    assert sorted(rows[10:21]) == list(range(10, 21))


class Counting:
    """A model whose output is the number of tokens of a text; it notes threads and sizes of batches."""

    device = torch.device("cpu")
    tokenizer = SimpleNamespace(padding_side="right")

    def __init__(self, rope_type="default", at_once=1):
        """at_once: the number of batches that must be computed at the same time; else, a barrier breaks."""
        self.seen, self.shapes, self.rope_type = set(), [], rope_type
        self.barrier = threading.Barrier(at_once, timeout=20)

    def modules(self):
        return [self]

    def preprocess(self, inputs, prompt):
        ids = torch.nn.utils.rnn.pad_sequence([torch.ones(len(text), dtype=torch.long) for text in inputs], True)
        return {"input_ids": ids, "attention_mask": ids, "modality": "text"}

    def compute(self, features):
        self.shapes.append(tuple(features["input_ids"].shape))
        self.seen.add((threading.get_ident(), torch.get_num_threads()))
        self.barrier.wait()
        return features["attention_mask"].sum(dim=1, keepdim=True)


def lengths_by(model, texts, limit=64, left=None):
    sizes = np.array([len(text) for text in texts], np.int64)
    found = np.full(len(texts), -1.0)
    left = np.ones(len(texts), bool) if left is None else left
    for rows, outputs in Batches(model, limit).run(
        lambda rows: [texts[row] for row in rows], sizes, left, None, model.compute
    ):
        assert outputs.dtype == np.float32
        found[rows] = outputs[:, 0]
    return found


@pytest.mark.parametrize(("machine", "texts", "used", "threads"), [(3, 60, 3, 1), (4, 2, 2, 2), (4, 1, 1, 4)])
def test_cores_share_batches_and_a_single_input_gets_all(monkeypatch, machine, texts, used, threads):
    monkeypatch.setattr(batches, "cores", lambda: machine)
    before, model = torch.get_num_threads(), Counting(at_once=used)
    given = ["x" * (40 + n % 20) for n in range(texts)]
    assert lengths_by(model, given).tolist() == [len(text) for text in given]
    assert {count for _, count in model.seen} == {threads}
    assert len(model.seen) == used
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", {"full_attention": "dynamic"}])
def test_a_model_that_changes_itself_computes_one_batch_at_a_time(monkeypatch, rope_type):
    monkeypatch.setattr(batches, "cores", lambda: 3)
    model = Counting(rope_type)
    assert lengths_by(model, ["x" * 40] * 20).tolist() == [40] * 20
    assert model.seen == {(threading.get_ident(), 3)}
    assert len(model.shapes) == 20


def test_the_rotary_embeddings_of_transformers_are_recognised():
    from transformers import LlamaConfig, LlamaModel

    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 8}
    for kind, adapts in (("default", False), ("dynamic", True)):
        rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
        assert batches._adapts(LlamaModel(LlamaConfig(**size, rope_parameters=rope))) == adapts


def test_batches_do_not_depend_on_what_is_left():
    texts = ["x" * (n % 37) for n in range(300)]
    whole, part = Counting(), Counting()
    left = np.arange(300) % 37 < 9
    assert (lengths_by(whole, texts) == [len(text) for text in texts]).all()
    found = lengths_by(part, texts, left=left)
    assert (found[left] >= 0).all()
    assert 0 < len(part.shapes) < len(whole.shapes)
    assert not set(part.shapes) - set(whole.shapes)
    assert lengths_by(Counting(), texts, left=np.zeros(300, bool)).max() == -1


def test_an_abandoned_computation_begins_no_more_calls():
    begun, go = [], threading.Event()

    def call(item):
        begun.append(item)
        if item:
            go.wait(5)
        return item

    results = ahead(call, range(9), threads=2)
    assert next(results) == 0
    threading.Timer(0.1, go.set).start()
    results.close()
    assert set(begun) <= {0, 1, 2}
