"""Words in messages."""

import pytest

from harness.config.text import counted, in_short, shortest


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (0, "trial", "0 trials"),
        (1, "trial", "1 trial"),
        (1000, "labelled query", "1,000 labelled queries"),
        (1, "labelled query", "1 labelled query"),
        (2, "entry", "2 entries"),
    ],
)
def test_counts_and_their_nouns(count, noun, expected):
    assert counted(count, noun) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("b=1.0", "b=1"),
        ("b=0.50", "b=0.5"),
        ("b=1e0", "b=1"),
        ("b=-2.50e1", "b=-25"),
        ("b=1_0", "b=10"),
        ("b=1e-7", "b=1e-07"),
        ("b=1e400", "b=1e400"),  # infinite
        ("b=007", "b=007"),  # a text for Hydra
        ("b='1.0'", "b='1.0'"),
        ("b=nan", "b=nan"),
        ("b=1.2.3", "b=1.2.3"),
        ("flag", "flag"),
    ],
)
def test_a_number_in_an_override_is_as_short_as_it_can_be(word, expected):
    assert in_short(word) == expected


def test_whole_numbers_lose_their_decimal_point():
    assert repr(shortest([1.0, 0.5, "1.0", True, None, 1e300])) == "[1, 0.5, '1.0', True, None, 1e+300]"
