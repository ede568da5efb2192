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

ENDINGS = ("가 옳다", "이 옳다")  # "... is right": what an answer ends with, in the order in which they are looked for
ALTERNATIVES = "#"  # stands between several acceptable answers
WORD_LIMIT = 1000  # words of a text that ROUGE-1 reads

_QUOTES = str.maketrans("", "", "\"'")
_NOT_READ = re.compile("[^a-z0-9가-힣]")


def nfc(text: str) -> str:
    """The text in composed form: Korean written on macOS comes decomposed."""
    return unicodedata.normalize("NFC", text)


def split_reason(text: str) -> tuple[str, str]:
    """An answer and the reason given for it: `'않은'이 옳다. 형용사이다.` -> (`'않은'이 옳다`, `형용사이다.`).

    The answer ends with the first `가 옳다`, or, where there is none, with the first `이 옳다`; the reason is the rest
    without leading dots, commas and white space. With neither, all is answer and the reason is empty.
    A `#` right after the ending begins another acceptable answer, which is split in turn, so that the order of the
    alternatives changes neither them nor the reason; the contest's code has no such rule and would take them for the
    reason. Any other `#` of the reason is part of it.
    """
    answers, rest = [], nfc(text)
    while ending := next((one for one in ENDINGS if one in rest), None):
        answer, _, rest = rest.partition(ending)
        answers.append((answer + ending).strip())
        rest = rest.strip()
        if not rest.startswith(ALTERNATIVES):
            return ALTERNATIVES.join(answers), rest.lstrip(".," + string.whitespace)
        rest = rest.removeprefix(ALTERNATIVES)
    return ALTERNATIVES.join([*answers, rest.strip()]), ""


def alternatives(reference: str) -> set[str]:
    """The acceptable answers of a reference, without ASCII quotes and outer white space; empty ones are none."""
    return {one.strip() for one in nfc(reference).translate(_QUOTES).split(ALTERNATIVES)} - {""}


def accuracy(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """float64 [N]: 1 where prediction and reference are the same but for outer white space, else 0.

    For choices between given options. Its mean is over all N. An empty prediction: 0. Source: the contest's `accuracy`,
    which keeps white space. Example: `3` for `3` -> 1, `③` for `3` -> 0.
    """
    pairs = zip(predictions, references, strict=True)
    return np.array([nfc(prediction).strip() == nfc(reference).strip() for prediction, reference in pairs], np.float64)


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """float64 [N]: 1 where the prediction equals one of the alternatives of its reference, else 0.

    Alternatives stand between `#`; ASCII quotes and outer white space count on neither side, everything else does. A
    prediction is one answer: a `#` in it is part of it. Its mean is over all N. An empty prediction: 0. Source: the
    contest's `exact_match`, which removes quotes in its task on language norms only.
    Example: `창덕궁` for `경복궁#창덕궁` -> 1, `경복궁#창덕궁` for the same -> 0.
    """
    pairs = zip(predictions, references, strict=True)
    found = [nfc(prediction).translate(_QUOTES).strip() in alternatives(reference) for prediction, reference in pairs]
    return np.array(found, np.float64)


def rouge_1(predictions: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> np.ndarray:
    """float64 [N]: ROUGE-1 F1, 2 * common / (terms of the prediction + terms of the reference).

    common: the terms that both have, each as often as in the one that has it less often (precision = common / terms of
    the prediction, recall = common / terms of the reference, alpha 0.5). Terms are what `tokenize` makes of the first
    1,000 words (by white space) of the text, lower-cased, with everything but a to z, digits and Hangul syllables
    turned to spaces. 0 where either has no term, even if both texts are the same.
    Source: Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries; the contest's code takes MeCab's
    morphemes, so that its numbers differ from those with another tokenizer.
    Example, by white space: `물은 끓는다` for `물은 100도에서 끓는다` -> 2 * 2 / (2 + 3) = 0.8.
    """
    both = [tokenize([_read(text) for text in side]).lists() for side in (predictions, references)]
    pairs = [(Counter(ours), Counter(theirs)) for ours, theirs in zip(*both, strict=True)]
    common = np.array([(ours & theirs).total() for ours, theirs in pairs], np.float64)
    terms = np.array([ours.total() + theirs.total() for ours, theirs in pairs], np.float64)
    return np.divide(2 * common, terms, out=np.zeros(len(pairs)), where=terms > 0)


def _read(text: str) -> str:
    """What ROUGE-1 reads of a text."""
    return _NOT_READ.sub(" ", " ".join(nfc(text).split()[:WORD_LIMIT]).lower())
