"""Detect scripts and languages of texts: Korean by its script, English by its most frequent words."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from retrievers.base import Document, IndexedTexts

_SAME = {"CJK": "HAN", "HIRAGANA": "HAN", "KATAKANA": "HAN"}  # Japanese mixes all of these scripts
SAMPLE, LENGTH = 300, 1000  # minimum number of documents in a sample; number of characters read from each
KOREAN = 0.2  # texts are Korean if at least this share of their letters is Hangul
ENGLISH = 0.03  # texts are English if at least this share of their words is in FUNCTION_WORDS
FUNCTION_WORDS = frozenset({"the", "of", "and", "to", "in", "is", "for", "that"})
STEMMERS = {"Korean": "kiwi", "English": "snowball"}  # language -> tokenizer that knows its word forms
UNSPACED = ("HAN", "THAI", "LAO", "KHMER", "MYANMAR")  # scripts without spaces between words


@functools.lru_cache(maxsize=65536)
def _script(letter: str) -> str:  # return the first word of the letter's Unicode name, such as HANGUL
    name = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "") if letter.isalpha() else ""
    first = name.partition(" ")[0]
    return _SAME.get(first, first)


def shares(text: str) -> dict[str, float]:
    """Return script -> share of the letters, in descending order."""
    counts = Counter(filter(None, map(_script, text)))
    return {script: count / counts.total() for script, count in counts.most_common()}


def main_script(text: str) -> str:
    """Return the most frequent script; "" for a text without letters."""
    return next(iter(shares(text)), "")


def language(texts: Sequence[str]) -> str:
    """Return "Korean", "English", or "" for another language, from a sample of the texts."""
    sample = _sample(texts)
    letters = [letter for text in sample for letter in text if letter.isalpha()]
    if sum("가" <= letter <= "힣" for letter in letters) >= KOREAN * len(letters) > 0:
        return "Korean"
    words = [word for text in sample for word in re.findall(r"[a-z]+", text.lower())]
    return "English" if sum(word in FUNCTION_WORDS for word in words) >= ENGLISH * len(words) > 0 else ""


@dataclass(frozen=True)
class Better:
    """A tokenizer that suits the documents better. reason: why the other one does not."""

    name: str
    reason: str

    @property
    def why(self) -> str:
        return f"{self.reason}: tokenizer={self.name} suits them better."


@dataclass(frozen=True)
class Writing:
    """The language and the script of documents, as returned by `language` and `main_script`."""

    language: str
    script: str

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Writing:
        sample = _sample(IndexedTexts(documents))
        return cls(language(sample), main_script(" ".join(sample)))

    @property
    def reads_bigrams(self) -> bool:
        """Whether character bigrams usually help: they do in Korean, and in scripts without spaces between words."""
        return self.language == "Korean" or self.script in UNSPACED

    def better_tokenizer(self, own: str | None) -> Better | None:
        """Return a tokenizer that suits the documents better than the tokenizer `own`; None if `own` suits them."""
        knows = next((name for name, tokenizer in STEMMERS.items() if tokenizer == own), None)
        if knows in (None, self.language) or not self.script:
            return None
        if own == "snowball" and self.script == "LATIN":
            return None  # snowball also stems other European languages
        known = f"in {self.language}" if self.language else f"mostly in {self.script.capitalize()} letters"
        suits = STEMMERS.get(self.language) or ("char_ngram" if self.script in UNSPACED else "word")
        return Better(suits, f"The documents are {known}, but tokenizer={own} is for {knows}")


def _sample(texts: Sequence[str]) -> list[str]:
    return [text[:LENGTH] for text in texts[:: max(1, len(texts) // SAMPLE)]]
