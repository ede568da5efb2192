"""The script that a text is written in, which stands for its language: Korean in Hangul, English in Latin letters.

English and French share a script, so that this does not tell them apart.
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter

_SAME = {"CJK": "HAN", "HIRAGANA": "HAN", "KATAKANA": "HAN"}  # Japanese uses three of them at once


@functools.lru_cache(maxsize=65536)
def _script(letter: str) -> str:
    """The first word of a letter's name in Unicode, such as HANGUL or LATIN; "" for what is no letter."""
    name = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "") if letter.isalpha() else ""
    first = name.partition(" ")[0]
    return _SAME.get(first, first)


def shares(text: str) -> dict[str, float]:
    """Script -> its share of the letters; empty for a text without letters."""
    counts = Counter(filter(None, map(_script, text)))
    return {script: count / counts.total() for script, count in counts.most_common()}


def main(text: str) -> str:
    """The script of most letters; "" for a text without letters."""
    return next(iter(shares(text)), "")
