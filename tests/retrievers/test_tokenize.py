"""Tokens and tokenizers: tables worked by hand, Unicode pitfalls, errors that name the option."""

import json
import re
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from retrievers.lexical import splitting, tokenize
from retrievers.lexical.tokenize import CharNgram, Kiwi, Snowball, Tokens, Whitespace, Word, as_tokens


def terms(tokenizer, *texts):
    return tokenizer(texts).lists()


def test_tokens_number_terms_by_first_use_and_survive_the_disk(tmp_path):
    tokens = as_tokens([["b", "a", "b"], [], ["a", "c"]])
    assert tokens.vocabulary == ("b", "a", "c")
    assert tokens.ids.tolist() == [0, 1, 0, 1, 2]
    assert tokens.offsets.tolist() == [0, 3, 3, 5]
    assert (tokens.ids.dtype, tokens.offsets.dtype, len(tokens)) == (np.int32, np.int64, 3)
    for lists in ([], [[], []], [["물", "\ud800", "a\n"], [], ["물"]]):
        as_tokens(lists).save(tmp_path)
        loaded = Tokens.load(tmp_path)
        assert (loaded.lists(), loaded.vocabulary) == (lists, as_tokens(lists).vocabulary)
        assert not loaded.ids.flags.writeable  # a memory map for reading


@given(st.lists(st.text(st.sampled_from('a "\\n\n,물\ud800😀'), max_size=3), max_size=4, unique=True))
def test_the_file_of_the_vocabulary_is_the_plain_json(tmp_path_factory, vocabulary):
    folder = tmp_path_factory.mktemp("tokens")
    Tokens(tuple(vocabulary), np.empty(0, np.int32), np.zeros(1, np.int64)).save_vocabulary(folder)
    assert (folder / "vocabulary.json").read_text("ascii") == json.dumps(vocabulary)


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        (Whitespace(), " DNA는\t무엇?\n", "DNA는 무엇?"),
        (Word(), "DNA는 무엇? H2O, state-of-the-art!", "dna는 무엇 h2o state of the art"),
        # '물' is shorter than 2 and becomes one term; no n-gram spans the space.
        (CharNgram(), "물 Photon 빛을", "물 ph ho ot to on 빛을"),
        (CharNgram(1, 2), "물리 a", "물 리 물리 a"),
        (CharNgram(3, 3), "물리 과학자", "물리 과학자"),
        (Snowball(), "The moons were orbiting; it's running", "moon orbit run"),
        (Snowball(stop_words=False), "the moons", "the moon"),
        (Snowball("german", stop_words=False), "Häuser", "haus"),
        # 는, 다 and the particles are dropped; the verb's stem, the foreign word (lower-cased) and the numeral remain.
        (Kiwi(), "DNA는 물을 3번 마셨다.", "dna 물 3 번 마시"),
        # 묻다 'to bury' is VV-R, 아름답다 is VA-I: VV* and VA* match them.
        (Kiwi(), "땅에 묻고 아름답다", "땅 묻 아름답"),
        (Kiwi(tags=["JK*"]), "물이 산을 간다", "이 을"),
    ],
)
def test_terms_by_hand(tokenizer, text, expected):
    assert terms(tokenizer, text, "") == [expected.split(), []]


@pytest.mark.parametrize("tokenizer", [Whitespace(), Word(), CharNgram(), Snowball(stop_words=False), Kiwi()], ids=type)
def test_unicode_pitfalls(tokenizer):
    text = "지구는 태양 둘레를 돈다 café"
    assert terms(tokenizer, unicodedata.normalize("NFD", text)) == terms(tokenizer, text)
    [found] = terms(tokenizer, "물\ud800 \udc00")
    assert found[0].startswith("물")
    "".join(found).encode()  # fails if a lone surrogate is left
    assert terms(tokenizer) == []


def test_kiwi_is_not_loaded_without_a_text(monkeypatch):
    monkeypatch.setattr("retrievers.lexical.tokenize.kiwi_model", None)  # calling it would raise
    assert terms(Kiwi()) == []


@given(st.lists(st.text(), max_size=8).map(" ".join))
def test_kiwi_gets_texts_without_long_runs_unchanged(text):
    long = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize, "UNBROKEN", 5)
        patch.setattr(tokenize, "_RUN", re.compile(r"\S{6,}"))
        [got] = tokenize._broken([text], long)
    ordinary = max(map(len, text.split()), default=0) <= 5
    assert (got == text) == ordinary == (long == [])
    assert "".join(got.split()) == "".join(text.split())
    assert max(map(len, got.split()), default=0) <= 5


def test_a_long_run_is_cut_for_kiwi_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(tokenize, "UNBROKEN", 512)
    monkeypatch.setattr(tokenize, "_RUN", re.compile(r"\S{513,}"))
    longest, run = "abcd" * 128, "abcdefgh" * 625
    found = terms(Kiwi(), "위성과 물리학", f"위성과 {run} 물리학", longest)
    assert found[0] == [found[1][0], found[1][-1]] == ["위성", "물리학"]
    assert "".join(found[1][1:-1]) == run
    assert found[2] == [one.form.lower() for one in tokenize.kiwi_model(None).tokenize(longest)]
    [warning] = caplog.messages
    assert "1 of 3 texts have more than 512 characters in a row without white space" in warning
    assert "The first of these texts is text 2: 위성과 abcdefgh" in warning


@pytest.mark.slow
def test_kiwi_gives_the_same_terms_with_one_thread_as_with_several():
    texts = [f"{i}번째 문장은 물리학과 화학을 함께 다룬다" for i in range(50)]
    assert terms(Kiwi(workers=1), *texts) == terms(Kiwi(workers=3), *texts)


@given(st.lists(st.text(alphabet="ab 물리İ\u1112\u1161", max_size=8), max_size=4))
def test_texts_do_not_influence_each_other(texts):
    for tokenizer in (Whitespace(), Word(), CharNgram(1, 3)):
        assert tokenizer(texts).lists() == [tokenizer([text]).lists()[0] for text in texts]


# Many texts: compiled kernels on several threads


def in_blocks(tokenizer, texts, characters=40, threads=3, progress=None):
    """The terms that the kernels find in small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize, "LARGE", 0)
        patch.setattr(splitting, "BLOCK", characters)
        patch.setattr(splitting, "FEW", 2)  # the tables grow often
        patch.setattr(splitting, "cores", lambda: threads)
        return tokenizer(texts, progress)


def assert_equal_tokens(found, expected):
    assert found.vocabulary == expected.vocabulary
    for name in ("ids", "offsets"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


SPLITTING = [Whitespace(), Word(), CharNgram(), CharNgram(1, 3), Snowball(), Snowball(stop_words=False)]
HARD = "ab Z물리\u1112\u1161İ_9\u00a0\u2028\u0085\0\n\ud800é\U0001f315\U0002070e"


@given(
    st.lists(
        st.text(HARD, max_size=30) | st.text(max_size=12) | st.sampled_from(["", "the moons", "a" * 90]), max_size=12
    ),
    st.sampled_from([1, 7, 40, 1000]),
    st.sampled_from([1, 3]),
)
@pytest.mark.parametrize("tokenizer", SPLITTING, ids=lambda one: type(one).__name__)
def test_kernels_find_the_terms_of_python(tokenizer, texts, characters, threads):
    assert_equal_tokens(in_blocks(tokenizer, texts, characters, threads), tokenizer(texts))


def test_kernels_end_words_at_the_same_characters_as_python():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert splitting._inside(r"\S+").tolist() == [not point.isspace() for point in every]
    texts = [f"a{point}b c{point}" for point in every[:0x3100] + every[0xFE00:0x10200] + every[-3:]]
    for tokenizer in (Whitespace(), Word()):
        assert_equal_tokens(in_blocks(tokenizer, texts, 20_000), tokenizer(texts))


def test_kernels_tell_words_of_equal_hashes_apart():
    from retrievers.lexical import _word_kernels

    letters = np.frombuffer(b"abcdefgh abcdefgi abcdefgh", np.uint8)
    words, slots, known = np.zeros((4, 3), np.int64), np.zeros((8, 2), np.int64), np.zeros(64, np.uint8)
    added = np.array([[0, 8, -5], [9, 17, -5], [18, 26, -5]])
    numbers = np.zeros(3, np.int32)
    assert _word_kernels.add_words(letters, added, known, words, slots, 0, numbers) == 2
    assert numbers.tolist() == [0, 1, 0]


def test_kernels_report_progress_after_each_block_and_pass_errors_on():
    calls = []
    in_blocks(Word(), ["a"] * 50, progress=lambda *call: calls.append(call))
    assert calls == [(20, 50, "texts"), (40, 50, "texts"), (50, 50, "texts")]
    for threads in (1, 3):
        with pytest.raises(TypeError):
            in_blocks(Word(), ["a"] * 50 + [""] * 50 + [b"bytes"], threads=threads)
        with pytest.raises(KeyboardInterrupt):
            in_blocks(Word(), ["a"] * 50, threads=threads, progress=interrupt)


def test_kernels_read_texts_on_disk_once(monkeypatch):
    monkeypatch.setattr(tokenize, "LARGE", 10)
    read = []

    class OnDisk(Sequence):
        def __len__(self):
            return 50

        def __getitem__(self, place):
            read.append(place)
            return ["the moons"][place // 50]

    assert Word()(OnDisk()).vocabulary == ("the", "moons")
    assert read == [0, 1, *range(51)]  # the first two show that there are many characters


def interrupt(*_):
    raise KeyboardInterrupt


def test_progress_is_reported_at_intervals_and_at_the_end():
    calls = []
    Word()(["a"] * 1001, lambda *call: calls.append(call))
    assert calls == [(500, 1001, "texts"), (1000, 1001, "texts"), (1001, 1001, "texts")]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Kiwi, {"tags": ["NGG"]}, "tokenizer.tags.*'NGG'.*Did you mean 'NNG'"),
        (Kiwi, {"tags": ["QQ*"]}, "tokenizer.tags.*'QQ\\*'"),
        (Kiwi, {"tags": [3]}, "tokenizer.tags contains 3"),
        (Kiwi, {"tags": []}, "tokenizer.tags is"),
        (Kiwi, {"tags": "NNG"}, "tokenizer.tags is 'NNG'"),
        (Kiwi, {"workers": 0}, "tokenizer.workers is 0"),
        (CharNgram, {"low": 0}, "tokenizer.low is 0"),
        (CharNgram, {"high": 2.5}, "tokenizer.high is 2.5"),
        (CharNgram, {"low": 3}, "tokenizer.high"),
        (Snowball, {"language": "englich"}, "tokenizer.language 'englich'.*Did you mean 'english'"),
        (Snowball, {"language": "korean"}, "tokenizer.language 'korean'"),
        (Snowball, {"language": "french"}, "tokenizer.stop_words.*'french'"),
        (Snowball, {"stop_words": "english"}, "tokenizer.stop_words is 'english'"),
    ],
)
def test_bad_options_are_named(make, options, message):
    with pytest.raises(BadInput, match=message):
        make(**options)
