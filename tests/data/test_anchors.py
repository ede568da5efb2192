"""Evidence found again after an edit of its text."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.spans import Evidence, Span
from harness.data.testset import find_again


def evidence(exact, prefix="", suffix=""):
    return Evidence(Span("0" * 20, 0, len(exact)), exact, prefix, suffix, grade=2.0)


CASES = [
    # (evidence, texts, where it is now), with the reason
    (("곰",), {"a": "큰 곰이 온다"}, ("a", 2)),  # it occurs once
    (("곰", "작은 ", "이"), {"a": "큰 곰이 온다"}, ("a", 2)),  # once, though what stands around it has changed
    (("늑대",), {"a": "큰 곰이 온다"}, None),  # it is gone
    (("곰",), {"a": "곰과 곰"}, None),  # twice, and nothing tells which
    (("곰", "큰 "), {"a": "작은 곰과 큰 곰"}, ("a", 8)),  # " 곰" is before both, "큰 곰" before one
    (("곰", "", "은"), {"a": "곰이 온다", "b": "곰은 잔다"}, ("b", 0)),
    (("곰", "한 ", "이 온다"), {"a": "한 곰이 간다", "b": "두 곰이 온다"}, ("b", 2)),  # 2 + 2 characters, and 1 + 4
    (("곰", "큰 ", "이"), {"a": "큰 곰이", "b": "큰 곰이"}, None),  # both texts have all of it
    (("aa",), {"a": "aaa"}, None),  # occurrences that overlap are two
    (("aa", "a"), {"a": "aaa"}, ("a", 1)),
]


@pytest.mark.parametrize(("one", "texts", "now"), CASES)
def test_worked_by_hand(one, texts, now):
    lost = evidence(*one)
    expected = None if now is None else replace(lost, span=Span(now[0], now[1], now[1] + len(lost.exact)))
    assert find_again([lost], list(texts), texts.__getitem__) == [expected]


@given(
    st.text("ab", min_size=1, max_size=3),
    st.text("ab", max_size=3),
    st.text("ab", max_size=3),
    st.lists(st.text("ab", max_size=12), max_size=3, unique=True),
)
def test_the_best_place_of_all(exact, prefix, suffix, texts):
    """Every place is looked at, and each kind of context is counted one character at a time."""
    fits = {}
    for number, text in enumerate(texts):
        for start in range(len(text)):
            end = start + len(exact)
            if text[start:end] == exact:
                before = after = 0
                while before < min(len(prefix), start) and text[start - before - 1] == prefix[-before - 1]:
                    before += 1
                while after < min(len(suffix), len(text) - end) and text[end + after] == suffix[after]:
                    after += 1
                fits[Span(str(number), start, end)] = before + after
    best = [span for span, fit in fits.items() if fit == max(fits.values())]
    named = {str(number): text for number, text in enumerate(texts)}
    [found] = find_again([evidence(exact, prefix, suffix)], list(named), named.__getitem__)
    assert (found and found.span) == (best[0] if len(best) == 1 else None)
