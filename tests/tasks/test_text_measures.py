"""Answers and reasons, exact match, accuracy and ROUGE-1: worked by hand, against another library, and their laws."""

import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tasks.answers import accuracy, alternatives, exact_match, rouge_1, split_reason
from retrievers.lexical.tokenize import Kiwi, Whitespace, kiwi_model

MORPHEMES = Kiwi(tags=["*"])
quick = settings(max_examples=60, deadline=None, derandomize=True)


def decomposed(text):
    return unicodedata.normalize("NFD", text)


# ---- answer and reason


@pytest.mark.parametrize(
    ("text", "answer", "reason"),
    [
        # the ending belongs to the answer; dots, commas and white space before the reason to neither
        ("\"적잖은\"이 옳다. '적지 않은'의 준말이다.", '"적잖은"이 옳다', "'적지 않은'의 준말이다."),
        ("'해 볼게'가 옳다.,  \n 보조 용언이다 ", "'해 볼게'가 옳다", "보조 용언이다"),
        ("갑이 옳다", "갑이 옳다", ""),
        ("갑이 옳다. ", "갑이 옳다", ""),
        # without an ending all is answer
        ("  3번이 맞다. 이유 ", "3번이 맞다. 이유", ""),
        ("", "", ""),
        # the first of two endings
        ("나가 옳다. 가가 옳다고 하면 안 된다", "나가 옳다", "가가 옳다고 하면 안 된다"),
        # 가 옳다 goes before 이 옳다, though it stands later: so the definition has it
        ("갑이 옳다. 을가 옳다는 말은 그르다", "갑이 옳다. 을가 옳다", "는 말은 그르다"),
        # alternatives before the reason, in either order; a bare one at either end
        ("가가 옳다#나가 옳다. 까닭", "가가 옳다#나가 옳다", "까닭"),
        ("갑이 옳다 # 나가 옳다. 까닭", "갑이 옳다 # 나가 옳다", "까닭"),
        ("나가 옳다 # 갑이 옳다. 까닭", "나가 옳다#갑이 옳다", "까닭"),
        ("을#갑이 옳다", "을#갑이 옳다", ""),
        ("갑이 옳다#을", "갑이 옳다#을", ""),
        # another # is part of the reason
        ("갑이 옳다. #1 까닭 #2 까닭", "갑이 옳다", "#1 까닭 #2 까닭"),
    ],
)
def test_the_answer_ends_where_the_contest_lets_it_end(text, answer, reason):
    assert split_reason(text) == (answer, reason)
    assert split_reason(decomposed(text)) == (answer, reason)


def test_many_alternatives_are_split_without_recursion():
    answer, reason = split_reason("갑이 옳다#" * 2000 + "을이 옳다. 까닭")
    assert (len(answer.split("#")), reason) == (2001, "까닭")


written_out = st.tuples(st.text("갑을병 ", max_size=3), st.sampled_from(["가 옳다", "이 옳다"])).map("".join)
reasons = st.text("왜냐면 ,.", max_size=8)


@quick
@given(st.lists(written_out, min_size=2, max_size=4), st.randoms(use_true_random=False), reasons)
def test_the_order_of_alternatives_changes_neither_them_nor_the_reason(options, shuffler, reason):
    shuffled = shuffler.sample(options, len(options))
    (first, its_reason), (second, same) = (split_reason(f"{'#'.join(some)}. {reason}") for some in (options, shuffled))
    assert alternatives(first) == alternatives(second) == {one.strip() for one in options}
    assert its_reason == same == reason.strip().lstrip("., ")
    for prediction in (*options, reason):  # nor whether an answer matches
        assert exact_match([prediction], ["#".join(options)]) == exact_match([prediction], ["#".join(shuffled)])


# ---- exact match and accuracy


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ("경복궁", "경복궁", 1),
        (" '경복궁' ", '"경복궁"', 1),  # ASCII quotes and outer white space
        ("‘경복궁’", "경복궁", 0),  # other quotes count
        ("경복 궁", "경복궁", 0),
        ("창덕궁", "경복궁# 창덕궁 #덕수궁", 1),
        ("경복궁#창덕궁", "경복궁#창덕궁", 0),  # naming all of them is no answer
        ("KBS", "kbs", 0),
        ("", "경복궁#", 0),  # an empty alternative is none
        ("", "경복궁", 0),
    ],
)
def test_exact_match(prediction, reference, expected):
    assert exact_match([prediction], [reference]).tolist() == [expected]
    assert exact_match([decomposed(prediction)], [reference]).tolist() == [expected]
    assert exact_match([prediction], [decomposed(reference)]).tolist() == [expected]


def test_accuracy_compares_whole_texts():
    # the number as a text, white space around it; a list of choices is not a choice; decomposed Korean
    predictions = ["3", " 3\n", "③", "1#3", "", decomposed("강강술래")]
    assert accuracy(predictions, ["3", "3", "3", "3", "3", "강강술래"]).tolist() == [1, 1, 0, 0, 0, 1]


# ---- ROUGE-1


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ("물은 끓는다", "물은 100도에서 끓는다", 2 * 2 / (2 + 3)),
        ("물 물 물", "물 물 불", 2 * 2 / (3 + 3)),  # common: the lesser of 3 and 2
        ("DNA는, 물!", "dna는 물", 1),  # case and punctuation do not count
        ("H2O", "h 2 o", 0),  # a run of letters and digits is one word
        ("水 é ㅋㅋ", "水 é ㅋㅋ", 0),  # nothing here is a letter from a to z, a digit or a syllable
        ("", "물", 0),
        ("물", "", 0),
        ("물" + " 불" * 999 + " 흙", "흙", 0),  # the 1,001st word is not read
        ("물" + " 불" * 998 + " 흙", "흙", 2 * 1 / (1000 + 1)),
        ("물,물,물" + " 불" * 999, "물", 2 * 1 / (1002 + 1)),  # words are counted before punctuation goes
    ],
)
def test_rouge_1_by_white_space(prediction, reference, expected):
    for text in (prediction, decomposed(prediction)):
        assert rouge_1([text], [reference], Whitespace()) == pytest.approx([expected], abs=1e-12)


def test_rouge_1_by_morphemes():
    # 학교 에 가 었 다 and 집 에 가 었 다: 4 common of 5 and 5
    for text in ("학교에 갔다.", decomposed("학교에 갔다.")):
        assert rouge_1([text], ["집에 갔다"], MORPHEMES) == pytest.approx([0.8], abs=1e-12)


SENTENCES = """한글 맞춤법은 표준어를 소리대로 적되, 어법에 맞도록 함을 원칙으로 한다.
문장의 각 단어는 띄어 씀을 (보조 용언도)
'않은'은 형용사 앞에서 '적잖은'으로 줄어든다 2음절 이상 체언과 조사를 붙여 쓴다! DNA RNA 제35항 준말 水 갔다 예쁜"""


class Cleaned:
    """A tokenizer as rouge_score wants it: cleans in its own way, one text at a time."""

    def __init__(self, tokenize):
        self._tokenize = tokenize

    def tokenize(self, text):
        kept = "".join(c if (c.isascii() and c.isalnum()) or "가" <= c <= "힣" else " " for c in text.lower())
        return self._tokenize(kept)


def by_kiwi(text):
    return [morpheme.form for morpheme in kiwi_model(None).tokenize(text)]


@pytest.mark.parametrize(("ours", "theirs"), [(MORPHEMES, by_kiwi), (Whitespace(), str.split)], ids=["kiwi", "space"])
def test_rouge_1_equals_rouge_score_on_200_random_pairs(rouge_scorer, ours, theirs):
    draw = random.Random(7)
    words = SENTENCES.split()
    pairs = [[" ".join(draw.choices(words, k=draw.randrange(12))) for _ in range(2)] for _ in range(200)]
    scorer = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=False, tokenizer=Cleaned(theirs))
    expected = [scorer.score(reference, prediction)["rouge1"].fmeasure for prediction, reference in pairs]
    found = rouge_1(*zip(*pairs, strict=True), ours)
    assert len(set(expected)) > 30
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
