"""The configs that the other tests compose, with shortcuts, are Hydra's."""

import pytest
from composing import plainly

WORDS = [
    ("run", "--cfg", "all"),
    ("run", "experiment=lexical_gated", "rerank=cross_encoder", "+gate.more=1", "top_k=7", "--cfg", "all"),
    ("run", "gate=score", "gate.treshold=3"),
    ("sweep", "sweep=threshold", "search=tpe", "hydra/launcher=joblib", "fusion.k=1,2", "--cfg", "all"),
    ("score", "task=corrections", "--cfg", "all"),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_shortcuts_change_nothing(harness, monkeypatch, words):
    shown = [harness(*words) for _ in range(3)]  # read, shared, kept
    with plainly(monkeypatch):
        assert shown == [harness(*words)] * 3
