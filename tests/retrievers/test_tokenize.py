"""Tokens and tokenizers: tables worked by hand, Unicode pitfalls, errors that name the option."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import BadInput
from retrievers.lexical import tokenize
from retrievers.lexical.tokenize import CharNgram, Kiwi, Snowball, Tokens, Whitespace, Word


def terms(tokenizer, *texts):
    return tokenizer(texts).lists()


@pytest.fixture
def kiwi():
    return Kiwi()


def test_tokens_number_terms_by_first_use():
    tokens = Tokens.of([["b", "a", "b"], [], ["a", "c"]])
    assert tokens.vocabulary == ("b", "a", "c")
    assert tokens.ids.tolist() == [0, 1, 0, 1, 2]
    assert tokens.offsets.tolist() == [0, 3, 3, 5]
    assert (tokens.ids.dtype, tokens.offsets.dtype, len(tokens)) == (np.int32, np.int64, 3)


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=4), max_size=5), max_size=5))
def test_tokens_return_the_terms_they_were_made_from(lists):
    assert Tokens.of(lists).lists() == lists


@pytest.mark.parametrize("lists", [[], [[], []], [["물", "\ud800", "a\n"], [], ["물"]]])
def test_tokens_survive_the_disk(lists, tmp_path):
    Tokens.of(lists).save(tmp_path)
    loaded = Tokens.load(tmp_path)
    assert loaded.lists() == lists
    assert loaded.vocabulary == Tokens.of(lists).vocabulary
    assert not loaded.ids.flags.writeable  # a memory map for reading


def test_whitespace_keeps_case_and_punctuation():
    assert terms(Whitespace(), " DNA는\t무엇?\n", "") == [["DNA는", "무엇?"], []]


def test_word_lower_cases_runs_of_letters_and_digits():
    assert terms(Word(), "DNA는 무엇? H2O, state-of-the-art!") == [
        ["dna는", "무엇", "h2o", "state", "of", "the", "art"],
    ]


def test_ngrams_stay_inside_words_and_keep_short_words():
    # '물' is shorter than 2 and becomes one term; no n-gram spans the space.
    assert terms(CharNgram(), "물 Photon 빛을") == [["물", "ph", "ho", "ot", "to", "on", "빛을"]]
    assert terms(CharNgram(1, 2), "물리 a") == [["물", "리", "물리", "a"]]
    assert terms(CharNgram(3, 3), "물리 과학자") == [["물리", "과학자"]]


def test_snowball_stems_and_drops_function_words():
    assert terms(Snowball(), "The moons were orbiting; it's running") == [["moon", "orbit", "run"]]
    assert terms(Snowball(stop_words=False), "the moons") == [["the", "moon"]]
    assert terms(Snowball("german", stop_words=False), "Häuser") == [["haus"]]


def test_kiwi_keeps_content_morphemes(kiwi):
    # 는, 다 and the particles are dropped; the verb's stem, the foreign word (lower-cased) and the numeral remain.
    assert terms(kiwi, "DNA는 물을 3번 마셨다.") == [["dna", "물", "3", "번", "마시"]]


def test_kiwi_finds_regular_and_irregular_verbs_under_one_prefix(kiwi):
    # 묻다 'to bury' is VV-R, 아름답다 is VA-I: VV* and VA* match them.
    assert terms(kiwi, "땅에 묻고 아름답다") == [["땅", "묻", "아름답"]]


def test_kiwi_takes_other_tags():
    assert terms(Kiwi(tags=["JK*"]), "물이 산을 간다") == [["이", "을"]]


def test_kiwi_is_not_loaded_without_a_text(monkeypatch):
    monkeypatch.setattr("retrievers.lexical.tokenize.kiwi_model", None)  # calling it would raise
    assert terms(Kiwi()) == []


@pytest.mark.parametrize("make", [Whitespace, Word, CharNgram, lambda: Snowball(stop_words=False)])
class TestUnicode:
    def test_decomposed_korean_gives_the_same_terms(self, make):
        text = "지구는 태양 둘레를 돈다 café"
        assert terms(make(), unicodedata.normalize("NFD", text)) == terms(make(), text)

    def test_lone_surrogates_are_replaced(self, make):
        for found in terms(make(), "물\ud800 \udc00"):
            "".join(found).encode()  # would raise

    def test_no_texts(self, make):
        assert make()([]).lists() == []


def test_kiwi_reads_decomposed_korean_and_lone_surrogates(kiwi):
    text = "지구는 태양 둘레를 돈다"
    assert terms(kiwi, unicodedata.normalize("NFD", text)) == terms(kiwi, text)
    assert terms(kiwi, "물\ud800") == [["물"]]


@given(st.lists(st.text(), max_size=8).map(" ".join))
def test_kiwi_gets_ordinary_texts_as_they_are(text):
    """That is, without a run that is too long; here runs are short, and so is what counts as too long."""
    long = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize, "UNBROKEN", 5)
        patch.setattr(tokenize, "_RUN", re.compile(r"\S{6,}"))
        [got] = tokenize._broken([text], long)
    ordinary = max(map(len, text.split()), default=0) <= 5
    assert (got == text) == ordinary == (long == [])
    assert "".join(got.split()) == "".join(text.split())
    assert max(map(len, got.split()), default=0) <= 5


def test_kiwi_cuts_what_would_take_minutes_and_says_so(kiwi, caplog, monkeypatch):
    """The words around it are found as ever, and so is its neighbour of the greatest length."""
    monkeypatch.setattr(tokenize, "UNBROKEN", 512)
    monkeypatch.setattr(tokenize, "_RUN", re.compile(r"\S{513,}"))
    whole, run = "abcd" * 128, "abcdefgh" * 625
    found = terms(kiwi, "위성과 물리학", f"위성과 {run} 물리학", whole)
    assert found[0] == [found[1][0], found[1][-1]] == ["위성", "물리학"]
    assert "".join(found[1][1:-1]) == run
    assert found[2] == [one.form.lower() for one in tokenize.kiwi_model(None).tokenize(whole)]
    [warning] = caplog.messages
    assert "1 of 3 texts have more than 512 characters without white space" in warning
    assert "The first is text 2: 위성과 abcdefgh" in warning


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab 물리İ\u1112\u1161", max_size=8), max_size=4))
def test_texts_do_not_influence_each_other(texts):
    for tokenizer in (Whitespace(), Word(), CharNgram(1, 3)):
        assert tokenizer(texts).lists() == [tokenizer([text]).lists()[0] for text in texts]


def test_progress_is_reported_at_intervals_and_at_the_end():
    calls = []
    Word()(["a"] * 1001, lambda *call: calls.append(call))
    assert calls == [(500, 1001, "texts"), (1000, 1001, "texts"), (1001, 1001, "texts")]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Kiwi(tags=["NGG"]), "tokenizer.tags.*'NGG'.*Did you mean 'NNG'"),
        (lambda: Kiwi(tags=["QQ*"]), "tokenizer.tags.*'QQ\\*'"),
        (lambda: Kiwi(tags=[3]), "tokenizer.tags contains 3"),
        (lambda: Kiwi(tags=[]), "tokenizer.tags is"),
        (lambda: Kiwi(tags="NNG"), "tokenizer.tags is 'NNG'"),
        (lambda: Kiwi(workers=0), "tokenizer.workers is 0"),
        (lambda: CharNgram(0, 2), "tokenizer.low is 0"),
        (lambda: CharNgram(2, 2.5), "tokenizer.high is 2.5"),
        (lambda: CharNgram(3, 2), "tokenizer.high"),
        (lambda: Snowball("englich"), "tokenizer.language 'englich'.*Did you mean 'english'"),
        (lambda: Snowball("korean"), "tokenizer.language 'korean'"),
        (lambda: Snowball("french"), "tokenizer.stop_words.*'french'"),
        (lambda: Snowball(stop_words="english"), "tokenizer.stop_words is 'english'"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(BadInput, match=message):
        make()
