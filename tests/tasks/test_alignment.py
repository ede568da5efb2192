"""The alignment and its edits: worked cases, a slow second implementation, and what must hold of any texts."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tasks import alignment
from harness.tasks.alignment import Change, Edit, judge_edits

quick = settings(max_examples=80, deadline=None, derandomize=True)
# Few different words, so that common subsequences of equal length abound.
texts = st.lists(st.sampled_from(["가", "나", "다", "라"]), max_size=8).map(" ".join)
schemes = st.sampled_from([("token", 0), ("span", 0), ("span", 1), ("span", 2), ("span", 5)])


def count(source, reference, prediction, scheme="token", merge_gap=2):
    return judge_edits([source], [reference], [prediction], scheme, merge_gap).counts[0].tolist()


def show(source, reference, prediction, scheme="token", merge_gap=2):
    return judge_edits([source], [reference], [prediction], scheme, merge_gap).show(0)


def edits_of(source, target, scheme="token", merge_gap=2):
    """{place: (source words, target words)}"""
    return {edit.place: tuple(edit.made) for edit in show(source, target, target, scheme, merge_gap).edits}


# A second implementation, by the words of the definition: recursion instead of a table, sets instead of pointers.


@functools.cache
def longest(source, target):
    """The length of a longest common subsequence, from the ends (the kernels go from the beginnings)."""
    if not source or not target:
        return 0
    if source[-1] == target[-1]:
        return longest(source[:-1], target[:-1]) + 1
    return max(longest(source[:-1], target), longest(source, target[:-1]))


def plain_matches(source, target):
    """[(source position, target position)] by the tie rule."""
    head = 0
    while source[head:] and target[head:] and source[head] == target[head]:
        head += 1
    tail = 0
    while source[head : len(source) - tail] and target[head : len(target) - tail] and source[~tail] == target[~tail]:
        tail += 1
    i, j, n, m = head, head, len(source) - tail, len(target) - tail
    between = []
    while source[i:n] and target[j:m]:
        if source[i] == target[j]:
            between.append((i, j))
            i, j = i + 1, j + 1
        elif longest(source[i + 1 : n], target[j:m]) == longest(source[i:n], target[j:m]):
            i += 1
        else:
            j += 1
    return [(k, k) for k in range(head)] + between + [(n + k, m + k) for k in range(tail)]


def plain_edits(source, target, scheme, merge_gap):
    """{place: words put there}"""
    gaps, i, j = [], 0, 0
    for k, other in [*plain_matches(source, target), (len(source), len(target))]:
        if i < k or j < other:
            gaps.append((i, list(source[i:k]), list(target[j:other])))
        i, j = k + 1, other + 1
    found = {}
    if scheme == "token":
        for start, before, after in gaps:
            if not before:
                found[start] = after
            for k in range(len(before)):
                found[start + k] = after[k:] if k == len(before) - 1 else after[k : k + 1]
        return found
    groups = []
    for start, _, after in gaps:
        if groups and start - groups[-1][-1][0] <= merge_gap:
            groups[-1].append((start, after))
        else:
            groups.append([(start, after)])
    return {group[0][0]: [word for _, after in group for word in after] for group in groups}


def plain_counts(source, reference, prediction, scheme, merge_gap):
    wanted, made = (plain_edits(source, target, scheme, merge_gap) for target in (reference, prediction))
    tp = {place for place in wanted if made.get(place) == wanted[place]}
    wrong = wanted.keys() & made.keys() - tp
    needless = made.keys() - wanted.keys()
    fp = wrong | needless if scheme == "token" else wrong
    return [len(tp), len(fp), len(wanted.keys() - made.keys()), len(needless)]


# Worked cases ---------------------------------------------------------------------------------------

SOURCE, RIGHT = "감자기 침대에서 일어났다", "갑자기 침대에서 일어났다"


@pytest.mark.parametrize(
    ("prediction", "scheme", "expected"),
    [
        (RIGHT, "token", [1, 0, 0, 0]),
        (RIGHT, "span", [1, 0, 0, 0]),
        (SOURCE, "token", [0, 0, 1, 0]),
        (SOURCE, "span", [0, 0, 1, 0]),
        # Two neighbouring words differ: two edits, the second needless; or one span, unlike the one wanted.
        ("갑자기 침대에 일어났다", "token", [1, 1, 0, 1]),
        ("갑자기 침대에 일어났다", "span", [0, 1, 0, 0]),
        # The only edit is needless. Under `span` that is no FP.
        ("감자기 침대에 일어났다", "token", [0, 1, 1, 1]),
        ("감자기 침대에 일어났다", "span", [0, 0, 1, 1]),
        # Another replacement at the right place: wrong, yet not missed.
        ("감자가 침대에서 일어났다", "token", [0, 1, 0, 0]),
        ("감자가 침대에서 일어났다", "span", [0, 1, 0, 0]),
        # Nothing left: three deletions, of which the first is where another edit is wanted; or one span.
        ("", "token", [0, 3, 0, 2]),
        ("", "span", [0, 1, 0, 0]),
    ],
)
def test_the_founding_documents_sentence(prediction, scheme, expected):
    assert count(SOURCE, RIGHT, prediction, scheme) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("가 나", "가\t나\n \u3000", {}),  # any white space separates words
        ("", "", {}),
        ("할수 있다", "할 수 있다", {0: (("할수",), ("할", "수"))}),  # the surplus joins the last pair
        ("가 나 다", "가 라 마 바 다", {1: (("나",), ("라", "마", "바"))}),
        ("가 나 다 라", "가 마 바 사 라", {1: (("나",), ("마",)), 2: (("다",), ("바", "사"))}),
        ("할 수 있다", "할수 있다", {0: (("할",), ("할수",)), 1: (("수",), ())}),  # a surplus source word is deleted
        ("가 나 다", "가 다", {1: (("나",), ())}),
        ("가 나", "라 가 나", {0: ((), ("라",))}),
        ("가 나", "가 라 나", {1: ((), ("라",))}),  # before 나
        ("가 나", "가 나 라 마", {2: ((), ("라", "마"))}),  # behind the last word: n
        ("", "가 나", {0: ((), ("가", "나"))}),
        ("가", "", {0: (("가",), ())}),
        ("나 가", "가 라 가", {0: (("나",), ("가", "라"))}),  # the tie rule: words that both end with are kept
        ("가 나", "나 가", {0: (("가",), ()), 2: ((), ("가",))}),  # the tie rule: the source's word is left out first
        ("가 가 나", "가 나", {1: (("가",), ())}),  # the tie rule: the words that both begin with are kept first
    ],
)
def test_edits_by_token(source, target, expected):
    assert edits_of(source, target) == expected


@pytest.mark.parametrize(
    ("merge_gap", "expected"),
    [
        # Starts 0, 1, 3 and 6: insertion, one word, one word, two words.
        (0, {0: ((), ("하",)), 1: (("나",), ("1",)), 3: (("라",), ("3",)), 6: (("사", "아"), ("6",))}),
        (1, {0: (("나",), ("하", "1")), 3: (("라",), ("3",)), 6: (("사", "아"), ("6",))}),
        (2, {0: (("나", "라"), ("하", "1", "3")), 6: (("사", "아"), ("6",))}),  # a chain: 3 is near 1
        (3, {0: (("나", "라", "사", "아"), ("하", "1", "3", "6"))}),
    ],
)
def test_spans_join_by_their_starts(merge_gap, expected):
    assert edits_of("가 나 다 라 마 바 사 아", "하 가 1 다 3 마 바 6", "span", merge_gap) == expected


def test_a_span_joins_the_one_before_it_even_if_that_is_long():
    # The span at 0 is three words long; the next starts at 4, more than 2 behind the start though next but one.
    assert [*edits_of("가 나 다 라 마", "1 2 3 라 4", "span", 2)] == [0, 4]


@pytest.mark.parametrize(
    ("source", "reference", "prediction", "token", "span"),
    [
        # An edit is (place, words): 라 at position 1 is what was wanted, though it should have left 나 where it was.
        ("가 나", "가 라 나", "가 라", [1, 0, 0, 0], [1, 0, 0, 0]),
        ("가 나", "가 라 나", "가 마", [0, 1, 0, 0], [0, 1, 0, 0]),
        # How far a span reaches is not compared.
        ("할 수 있다", "할수 있다", "할수 수 있다", [1, 0, 1, 0], [1, 0, 0, 0]),
    ],
)
def test_an_edit_is_its_place_and_its_words(source, reference, prediction, token, span):
    assert count(source, reference, prediction) == token
    assert count(source, reference, prediction, "span") == span


def test_what_is_shown():
    shown = show(f"{SOURCE} 이제 그", f"{RIGHT} 이제", f"{RIGHT.replace('에서', '에')} 이제 그 뒤")
    assert [str(edit) for edit in shown.edits] == ["감자기→갑자기 TP", "침대에서→침대에 FR", "그→∅ FN", "∅→뒤 FR"]
    assert [edit.place for edit in shown.edits] == [0, 1, 4, 5]
    assert shown.source == [
        ("감자기", "tp"), (" ", ""), ("침대에서", "fr"), (" 일어났다 이제 ", ""), ("그", "fn"),
    ]  # fmt: skip
    assert shown.reference == [("갑자기", "tp"), (" 침대에서 일어났다 이제", "")]
    assert shown.prediction == [
        ("갑자기", "tp"), (" ", ""), ("침대에", "fr"), (" 일어났다 이제 그 ", ""), ("뒤", "fr"),
    ]  # fmt: skip

    [edit] = show("가 나", "가 라 나", "가 라").edits
    assert edit == Edit(1, "tp", wanted=Change((), ("라",)), made=Change(("나",), ("라",)))


def test_a_span_is_shown_where_its_words_are():
    shown = show("가 나 다 라", "1 나 3 라", "1 나 4 라", "span")
    assert shown.edits == [Edit(0, "fp", Change(("가", "다"), ("1", "3")), Change(("가", "다"), ("1", "4")))]
    assert shown.source == [("가", "fp"), (" 나 ", ""), ("다", "fp"), (" 라", "")]
    # A source word that both edit bears the verdict on the reference's edit: spans from 1 and from 0.
    shown = show("가 나 다", "가 1 다", "2 3 다", "span")
    assert shown.source == [("가", "fr"), (" ", ""), ("나", "fn"), (" 다", "")]


def test_no_sentences_and_columns_of_unequal_length():
    assert judge_edits([], [], []).counts.shape == (0, 4)
    with pytest.raises(ValueError, match="one reference and one prediction"):
        judge_edits(["가", "나"], ["가"], ["가"])


# What must hold of any texts ------------------------------------------------------------------------


def matches(source, target):
    """The kernel's alignment of two lists of numbers."""
    both = [alignment._Texts(np.array(one, np.int32), np.array([0, len(one)])) for one in (source, target)]
    found = alignment._matched(*both).tolist()
    return [(i, j) for i, j in enumerate(found) if j >= 0]


numbers = st.lists(st.integers(0, 3), max_size=10).map(tuple)


@quick
@given(numbers, numbers)
def test_the_alignment_is_the_longest_and_the_one_of_the_tie_rule(source, target):
    """So keeping what both begin and end with never shortens it."""
    found = matches(source, target)
    assert len(found) == longest(source, target)
    assert found == plain_matches(source, target)
    assert all(source[i] == target[j] for i, j in found)


@quick
@given(st.lists(st.tuples(texts, texts, texts), max_size=5), schemes)
def test_the_counts_are_those_of_a_slow_second_implementation(sentences, scheme):
    compared = judge_edits(*([row[i] for row in sentences] for i in range(3)), *scheme)
    assert compared.counts.tolist() == [
        plain_counts(*(tuple(text.split()) for text in row), *scheme) for row in sentences
    ]
    assert compared.wanted.tolist() == [row[0] != row[1] for row in sentences]
    assert compared.made.tolist() == [row[0] != row[2] for row in sentences]


@quick
@given(texts, texts)
def test_edits_make_the_source_into_the_target(source, target):
    edits, before = edits_of(source, target), source.split()
    made = []
    for place in range(len(before) + 1):
        replaced, put = edits.get(place, ((), ()))
        assert replaced in ((), tuple(before[place : place + 1]))
        made += [*put, *(() if replaced else before[place : place + 1])]
    assert made == target.split()


@quick
@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=6), schemes, st.randoms(use_true_random=False))
def test_sentences_do_not_touch_each_other(sentences, scheme, rng):
    shuffled = rng.sample(sentences, len(sentences))
    together = judge_edits(*zip(*shuffled, strict=True), *scheme)
    for row, sentence in enumerate(shuffled):
        assert together.counts[row].tolist() == count(*sentence, *scheme)
        assert together.show(row) == show(*sentence, *scheme)


@quick
@given(texts, texts, texts, schemes)
def test_pieces_make_up_the_texts_and_bear_the_verdicts(source, reference, prediction, scheme):
    edits, *pieces = show(source, reference, prediction, *scheme)
    for text, found in zip((source, reference, prediction), pieces, strict=True):
        assert "".join(piece for piece, _ in found) == text
        assert all(piece in text.split() for piece, mark in found if mark)
        assert "" not in [piece for piece, _ in found]
    seen, verdicts = {mark for found in pieces for _, mark in found if mark}, {edit.verdict for edit in edits}
    # Of a span that deletes alone nothing is left to mark where the reference's span covers it.
    assert seen == verdicts if scheme[0] == "token" else seen <= verdicts


def test_long_sentences():
    """2,000 words that share few: the table of steps takes half a megabyte, not the 16 of one number a cell."""
    rng = np.random.default_rng(0)
    source, target = (rng.integers(0, 300, 2000).tolist() for _ in range(2))
    found = matches(source, target)
    lengths = np.zeros(len(target) + 1, np.int64)
    for word in source:  # a whole row at a time: the longest may end with a match here, or have ended before
        ends = np.where(np.array(target) == word, lengths[:-1] + 1, 0)
        lengths[1:] = np.maximum.accumulate(np.maximum(ends, lengths[1:]))
    assert len(found) == lengths[-1]
    assert all(source[i] == target[j] for i, j in found)
    assert (np.diff(found, axis=0) > 0).all()
