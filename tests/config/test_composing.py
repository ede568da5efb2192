"""Configs are composed as Hydra composes them, in a shorter way."""

import copy
import functools
import itertools

import pytest
from hydra.core.object_type import ObjectType
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.config import composing


class Hydra:
    """Hydra's loader, as the oracle; and what a Composer gets of it."""

    def __init__(self):
        self.loader = composing._loader([])
        self._load = functools.cache(lambda words: self.loader.load_configuration("sweep", list(words), RunMode.RUN))
        self.composed = []  # the words of each composition that a Composer asked for

    def composer(self):
        return composing.Composer(
            self._compose, lambda key: bool(self.loader.get_group_options(key, ObjectType.CONFIG))
        )

    def _compose(self, words):
        self.composed.append(words)
        return copy.deepcopy(self._load(tuple(words)))

    def config(self, words):
        whole = self._load(tuple(words))
        return OmegaConf.to_container(
            OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"]), resolve=True
        )


@pytest.fixture(scope="module")
def hydra(cache):
    with composing.hydras_state():
        yield Hydra()


LOW = ("tokenizer=char_ngram", "tokenizer.low=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("depth=50", "top_k=7", "public=0", "seed=9", "objective=mrr"),  # nothing refers to them
        ("gate=score", "gate.threshold=1e3", "gate.signal=margin", "gate.source=null"),
        ("gate=score", "gate.threshold=-inf"),  # for the check to refuse
        (*LOW, "retriever=hybrid_lexical"),  # bm25.tokenizer is ${tokenizer}, bigram's is its own
        ("outputs=elsewhere", "store.path=null"),
        ("outputs=elsewhere",),  # tracking and store refer to it
        ("retriever=dense", "encoder=lsa", "encoder.low=3", "index=hnsw", "index.m=8", "retriever.dense.index=null"),
        ("search=tpe", "seed=4"),  # search.seed is ${seed}
        ("search=tpe", "seed=4", "search.seed=5", "search.trials=3"),
        ("retriever=hybrid_lexical", "fusion=rrf", "fusion.k=3", "fusion.weights.bm25=0.25"),
        ("+fusion.weights.other=2", "++fusion.floors={bm25:0}", "metrics=[mrr,ndcg@10]", "~top_k"),
        ("query.file='가, 나 \"다\" = {라}'", "experiment_name='2024'"),
        ("query.file=null", "query=null"),
        ("query.file='${outputs}/a'",),
        ("query.file='\\${outputs}'", "depth=${top_k}"),
        ("experiment=lexical_gated", "gate.threshold=3"),  # a recipe that sets the same key
        ("rerank=cross_encoder", "rerank.depth=5", "sweep=threshold"),
        ("depth=1", "gate=score", "depth=2", "gate=none"),  # the last one counts
    ],
    ids=" ".join,
)
def test_the_config_is_hydras(hydra, words):
    found, choices = hydra.composer()([], words)
    expected = hydra.config(words)
    assert found == expected
    assert repr(found) == repr(expected)  # 1 is not 1.0 or True, and the keys have their order
    assert hydra.composer()(words[:-1], words[-1:]) == (found, choices), "some words may be shared by all trials"
    said = dict(word.split("=", 1) for word in words if "=" in word)
    assert choices["tokenizer"] == said.get("tokenizer", "kiwi")
    assert not any("/" in group for group in choices)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_earlier_trials_make_no_difference(hydra, data):
    """A sweep's trials all set the same keys; tokenizer.low is followed by other values, top_k by none."""
    axes = {
        "retriever": ("bm25", "hybrid_lexical"),
        "tokenizer.low": ("1", "2"),
        "top_k": ("1", "3"),
        "query.file": ("null", "'한, 글'", "[a]"),  # the list is no plain value
    }
    keys = data.draw(st.sampled_from([("retriever", "tokenizer.low"), ("query.file", "tokenizer.low", "top_k")]))
    points = st.tuples(*(st.sampled_from(axes[key]) for key in keys))
    composer = hydra.composer()
    for point in data.draw(st.lists(points, min_size=2, max_size=6)):
        words = tuple(f"{key}={value}" for key, value in zip(keys, point, strict=True))
        found, _ = composer(["tokenizer=char_ngram"], words)
        assert found == hydra.config(("tokenizer=char_ngram", *words))
        found["top_k"] = found["tokenizer"]["low"] = 99  # what is done to a config does not reach the next one


def test_trials_with_other_keys_and_refused_ones_leave_nothing_behind(hydra):
    composer = hydra.composer()
    composer([], LOW)
    for word in ("gate.threshold=1", "retriever=nosuch"):
        with pytest.raises(ConfigCompositionException):
            composer([], ("depth=7", word))
    words = ("tokenizer=char_ngram", "tokenizer.high=3", "depth=5")
    assert composer([], words)[0] == hydra.config(words)


def test_hydra_composes_once_for_each_set_of_choices(hydra):
    composer = hydra.composer()
    hydra.composed.clear()
    for retriever, k, low in itertools.product(("bm25", "hybrid_lexical"), range(9), (1, 2)):
        composer(["tokenizer=char_ngram"], (f"retriever={retriever}", f"top_k={k}", f"tokenizer.low={low}"))
    assert hydra.composed == [["tokenizer=char_ngram", f"retriever={name}"] for name in ("bm25", "hybrid_lexical")]


@pytest.mark.slow
@pytest.mark.parametrize("word", ["nosuch=1", "gate.threshold=1", "gate.x.y=1", "query.text.x=1", "gate=nosuch",
                                  "retriever.bm25.k=1", "retriever.bm25.tokenizer.low=1", "~nosuch",
                                  "+depth=3"])  # fmt: skip
def test_what_hydra_refuses_is_refused_in_the_same_words(hydra, word):
    with pytest.raises(ConfigCompositionException) as expected:
        hydra.config((word,))
    with pytest.raises(type(expected.value)) as found:
        hydra.composer()([], (word,))
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("gate=none", "gate.threshold=1"), ("gate=none",)),
        (("gate.threshold=1", "gate=score"), ("gate.threshold=1", "gate=score")),
        (("gate=auto", "gate.signals=[margin]"), ("gate=auto", "gate.signals=[margin]")),
        (("gate=none", "gate.signals=[margin]"), ("gate=none",)),
        (("retriever=bm25", "fusion.weights.bm25=2"), ("retriever=bm25",)),  # the retriever decides
        (("retriever=hybrid", "fusion.weights.bm25=2"), ("retriever=hybrid", "fusion.weights.bm25=2")),
        (("experiment=lexical_gated", "gate.threshold=2"), ("experiment=lexical_gated", "gate.threshold=2")),
        (("dataset=sample", "dataset.path='a, b'", "top_k=2"), ("dataset=sample", "top_k=2")),
        (("top_kk=1", "+gate.threshold=1"), ("top_kk=1", "+gate.threshold=1")),  # for Hydra to refuse, or to add
    ],
)
def test_keys_inside_groups_apply_to_the_trials_whose_choices_have_them(hydra, words, left):
    composer = hydra.composer()
    assert composer.applicable(words) == list(left)
    assert composer.applicable(left) == list(left)


def test_which_choices_have_a_key_that_others_lack(hydra):
    swept = {
        "dataset": ["dataset=sample", "dataset=contest", "dataset=beir"],
        "gate": ["gate=none", "gate=score"],
        "gate.threshold": ["gate.threshold=1", "gate.threshold=2"],
        "top_k": ["top_k=1", "top_k=2"],
    }
    assert hydra.composer().partial(["dataset.path=a", "tokenizer=char_ngram", "tokenizer.low=1"], swept) == {
        "dataset.path": ["dataset=contest", "dataset=beir"],
        "gate.threshold": ["gate=score"],
    }
    assert hydra.composer().partial(["gate=score"], {"gate.threshold": ["gate.threshold=1"]}) == {}


@pytest.mark.parametrize("words", [["gate.thresholt=1"], ["gate.threshold=1"], ["dataset.path=a", "index.m=b"]])
def test_a_key_that_no_choice_has_is_refused(hydra, words):
    swept = {"gate": ["gate=none", "gate=auto"], "dataset": ["dataset=sample", "dataset=contest"]}
    with pytest.raises(ConfigCompositionException, match=f"Could not override '{words[-1].partition('=')[0]}'"):
        hydra.composer().partial(words, swept)
