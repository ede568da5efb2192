"""What BM25 makes of drafts, on a corpus whose rankings can be told by looking."""

from dataclasses import replace

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.config.canonical import digest
from harness.config.components import conf_folder
from harness.data.dataset import Dataset
from harness.experiment import steps
from harness.storage.cache import Cache
from harness.testset.draft import easiness
from harness.testset.draft.drafts import Draft
from harness.testset.draft.easiness import FIRST, LAST_TURN, MISSED, measure_easiness
from retrievers.base import Document, Query, Turn

# 사과 stands in a alone; 바다 in b and, twice as often, in c; a dozen documents have 고래 once, and are equally long.
DOCUMENTS = [
    Document("a", "사과 나무"),
    Document("b", "바다 산 강 들"),
    Document("c", "바다 바다 산 강"),
    *(Document(f"w{number:02}", "고래") for number in range(12)),
]


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def draft(doc_id, *turns, kind="fact"):
    said = tuple(Turn("assistant" if number % 2 else "user", text) for number, text in enumerate(turns))
    return Draft(kind, said, "답", (), doc_id, ("earlier flag",))


def test_drafts_are_flagged_by_the_rank_of_their_document(cache):
    drafts = [
        draft("a", "사과"),  # first
        draft("b", "바다", kind="search"),  # second: neither
        draft("w11", "고래"),  # the 12th of equal scores
        draft("a", "바다"),  # not found at all
        draft("", "사과", kind="none"),  # not searched
        draft("a", "고래", kind="unanswerable"),
    ]
    found = measure_easiness(drafts, DOCUMENTS, cache)
    flags = [(FIRST,), (), (MISSED,), (MISSED,), (), ()]
    assert found.drafts == [replace(one, flags=(*one.flags, *more)) for one, more in zip(drafts, flags, strict=True)]
    # Four are searched: one is first, one more among the first ten. The best documents have all of their words. The
    # gaps: 사과 has no second document, 고래 equal ones, and 바다 the same twice, g.
    of = found.of_drafts
    assert (of.queries, of.labelled, of.first, of.found, of.shared, of.words) == (4, 4, 0.25, 0.5, 1.0, 1.0)
    sea = measure_easiness([draft("b", "바다")], DOCUMENTS, cache).of_drafts
    assert 0 < sea.gap < 1
    assert of.gap == pytest.approx((1 + sea.gap + 0 + sea.gap) / 4)
    assert found.of_examples is None


@pytest.mark.parametrize(
    ("turns", "flags"),
    [
        (("사과 좋아해?", "네.", "나무 말이야"), (FIRST, LAST_TURN)),  # either turn finds it
        (("사과 좋아해?", "네.", "맛은?"), (FIRST,)),  # the first turn alone finds it
        (("바다 고래", "네.", "사과"), (LAST_TURN,)),  # the first turn even leads astray
        (("고래 고래 고래", "네.", "고래"), (MISSED,)),
    ],
)
def test_a_conversation_that_its_last_turn_alone_answers_is_flagged(cache, turns, flags):
    documents = [one for one in DOCUMENTS if one.doc_id != "b"]
    (found,) = measure_easiness([draft("a", *turns, kind="conversation")], documents, cache).drafts
    assert found.flags[1:] == flags


EXAMPLES = [Query.of("1", "사과 색깔"), Query.of("2", "바다"), Query.of("3", "안녕"), Query.of("4", "나무")]


def test_examples_are_compared_by_words_and_scores_and_if_they_have_labels_by_rank(cache):
    found = measure_easiness([], DOCUMENTS, cache, EXAMPLES)
    assert found.of_drafts is None
    of = found.of_examples
    assert (of.queries, of.labelled, of.first, of.found) == (4, 0, None, None)
    # 사과 of 사과 색깔; 바다; nothing has 안녕, which has no content word either; 나무.
    assert of.shared == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert of.text().startswith("BM25's first document has 62 % of a query's words")
    # 1: first. 2: c is first, b second. 3 needs no retrieval: it is left out. 4: its document is of another corpus.
    labels = {"1": {"a"}, "2": {"b", "old"}, "3": set(), "4": {"old"}}
    of = measure_easiness([draft("a", "사과")], DOCUMENTS, cache, EXAMPLES, labels).of_examples
    assert (of.queries, of.labelled, of.first, of.found) == (3, 2, 0.5, 1.0)
    assert of.text().startswith("BM25 ranks a right document first for 50 %; BM25's first document has 83 % of")


def test_the_index_is_that_of_a_run():
    """The identity of the index, so that a run on the same documents need not index them again."""
    with initialize_config_dir(str(conf_folder()), version_base=None):
        config = OmegaConf.to_container(compose("run", ["retriever=bm25", "tokenizer=kiwi"]), resolve=True)
    corpus = Dataset("documents", tuple(DOCUMENTS), (), None)
    ours = steps.index_identity(easiness.BM25, corpus)
    assert digest(ours) == digest(steps.index_identity(config["retriever"]["bm25"], corpus))


def test_only_the_index_is_cached(cache):
    plain = [draft("", "안녕", kind="none")]
    assert measure_easiness(plain, DOCUMENTS, cache).drafts == plain
    assert cache.entries() == [], "nothing is indexed for nothing"
    first = measure_easiness([draft("a", "사과")], DOCUMENTS, cache)
    assert {entry.kind for entry in cache.entries()} == {"indexes", "tokens"}
    kept = len(cache.entries())
    assert measure_easiness([draft("a", "사과")], iter(DOCUMENTS[::-1]), cache, EXAMPLES).of_drafts == first.of_drafts
    assert len(cache.entries()) == kept
