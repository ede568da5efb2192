"""Measures of answers in words: pure functions from N pairs of texts to N numbers, all in [0, 1], higher is better.

Texts are compared in Unicode's composed form (NFC). The definitions are those of the Korean language contest of 2025
(AI 말평, tasks on language norms and on culture); where this module differs from the contest's code, it says so.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from retrievers.lexical.tokenize import Tokens

Tokenize = Callable[[Sequence[str]], Tokens]

ENDINGS = ("가 옳다", "이 옳다")  # "... is right": the ending of an answer, in order of precedence
ALTERNATIVES = "#"  # separates several acceptable answers
WORD_LIMIT = 1000  # words of a text that ROUGE-1 reads

_QUOTES = str.maketrans("", "", "\"'")
_NOT_READ = re.compile("[^a-z0-9가-힣]")


def nfc(text: str) -> str:
    """The text in composed form: Korean written on macOS comes decomposed."""
    return unicodedata.normalize("NFC", text)


def split_reason(text: str) -> tuple[str, str]:
    """An answer and the reason given for it: `'않은'이 옳다. 형용사이다.` -> (`'않은'이 옳다`, `형용사이다.`).

    The answer ends with the first `가 옳다` or, if there is none, with the first `이 옳다`; the reason is the rest
    without leading dots, commas and white space. With neither, the whole text is the answer and the reason is empty.
    A `#` right after the ending begins another acceptable answer, which is split in turn, so that the order of the
    alternatives changes neither them nor the reason; the contest's code has no such rule and would treat them as part
    of the reason. Any other `#` in the reason belongs to it.
    """
    answers, rest = [], nfc(text)
    while ending := next((ending for ending in ENDINGS if ending in rest), None):
        answer, _, rest = rest.partition(ending)
        answers.append((answer + ending).strip())
        rest = rest.strip()
        if not rest.startswith(ALTERNATIVES):
            return ALTERNATIVES.join(answers), rest.lstrip(".," + string.whitespace)
        rest = rest.removeprefix(ALTERNATIVES)
    return ALTERNATIVES.join([*answers, rest.strip()]), ""


def alternatives(reference: str) -> set[str]:
    """The acceptable answers of a reference, without ASCII quotes and outer white space; empty ones are left out."""
    return {one.strip() for one in nfc(reference).translate(_QUOTES).split(ALTERNATIVES)} - {""}


def accuracy(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """float64 [N]: 1 where prediction and reference are equal except for outer white space, else 0.

    For choices between given options. The mean is over all N. An empty prediction: 0. Source: the contest's `accuracy`,
    which compares white space too. Example: `3` for `3` -> 1, `③` for `3` -> 0.
    """
    pairs = zip(predictions, references, strict=True)
    return np.array([nfc(prediction).strip() == nfc(reference).strip() for prediction, reference in pairs], np.float64)


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """float64 [N]: 1 where the prediction equals one of the alternatives of its reference, else 0.

    Alternatives are separated by `#`; ASCII quotes and outer white space are ignored on both sides, nothing else is. A
    prediction is one answer: a `#` belongs to it. The mean is over all N. An empty prediction: 0. Source: the contest's
    `exact_match`, which removes quotes only in its task on language norms.
    Example: `창덕궁` for `경복궁#창덕궁` -> 1, `경복궁#창덕궁` for the same -> 0.
    """
    pairs = zip(predictions, references, strict=True)
    right = [nfc(prediction).translate(_QUOTES).strip() in alternatives(reference) for prediction, reference in pairs]
    return np.array(right, np.float64)


def rouge_1(predictions: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> np.ndarray:
    """float64 [N]: ROUGE-1 F1, 2 * common / (terms of the prediction + terms of the reference).

    common: the terms that both have, each counted as often as in the text that has it less often (precision = common /
    terms of the prediction, recall = common / terms of the reference, alpha 0.5). Terms are the tokens that `tokenize`
    makes of the first 1,000 words (by white space) of the text, lower-cased, with every character except a to z, digits
    and Hangul syllables replaced by a space. 0 where either has no term, even if both texts are equal.
    Source: Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries; the contest's code uses MeCab's morphemes,
    so that its numbers differ from those with another tokenizer.
    Example, by white space: `물은 끓는다` for `물은 100도에서 끓는다` -> 2 * 2 / (2 + 3) = 0.8.
    """
    both = [tokenize([_read(text) for text in side]).lists() for side in (predictions, references)]
    pairs = [(Counter(ours), Counter(theirs)) for ours, theirs in zip(*both, strict=True)]
    common = np.array([(ours & theirs).total() for ours, theirs in pairs], np.float64)
    terms = np.array([ours.total() + theirs.total() for ours, theirs in pairs], np.float64)
    return np.divide(2 * common, terms, out=np.zeros(len(pairs)), where=terms > 0)


def _read(text: str) -> str:
    """The characters of a text that ROUGE-1 reads."""
    return _NOT_READ.sub(" ", " ".join(nfc(text).split()[:WORD_LIMIT]).lower())
