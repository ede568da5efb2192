"""Words in messages."""

import pytest

from harness.config.text import counted


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
