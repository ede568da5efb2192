"""Tokenizers turn texts into terms. `Tokens` keeps the terms in compact arrays.

Every tokenizer first converts text to Unicode's composed form (NFC), because text from macOS may be decomposed.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np

from harness.errors import BadInput, did_you_mean
from retrievers.base import AtMost, Progress, Threads, check_whole, cores, encodable, load_array
from retrievers.lexical.kiwi_dictionary import brief_model
from retrievers.lexical.splitting import WordRule, split_many

Characters = Annotated[int, AtMost(100, "each further length adds terms")]
PROGRESS_EVERY = 500  # number of texts between two calls of `progress`
LARGE = 20_000_000  # number of characters from which compiled kernels save more time than their loading takes
UNBROKEN = 4096  # number of characters; a longer stretch without white space is cut before kiwi analyses it

log = logging.getLogger(__name__)

_RUN = re.compile(rf"\S{{{UNBROKEN + 1},}}")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class Tokens:
    """The terms of N texts: text i has the terms `ids[offsets[i]:offsets[i + 1]]`.

    vocabulary: V unique terms.
    ids: int32 [T], indices into `vocabulary`, in the order of the text.
    offsets: int64 [N + 1], ascending from 0 to T.
    """

    vocabulary: tuple[str, ...]
    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lists(self) -> list[list[str]]:
        terms = [self.vocabulary[i] for i in self.ids.tolist()]
        ends = self.offsets.tolist()
        return [terms[start:end] for start, end in pairwise(ends)]

    def texts(self) -> np.ndarray:
        """Return the number of the text that each term is in, int64 [T]."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def save(self, folder: Path) -> None:
        np.save(folder / "ids.npy", self.ids)
        np.save(folder / "offsets.npy", self.offsets)
        self.save_vocabulary(folder)

    def save_vocabulary(self, folder: Path) -> None:
        """Write the JSON list of all terms. One text of all terms is escaped in half of the time of a list."""
        joined = " ".join(self.vocabulary)
        if joined.count(" ") == len(self.vocabulary) - 1:  # no term has a space
            text = "[" + json.dumps(joined).replace(" ", '", "') + "]"
        else:
            text = json.dumps(self.vocabulary)
        (folder / "vocabulary.json").write_text(text, encoding="ascii")

    @classmethod
    def load(cls, folder: Path) -> Tokens:
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        return cls(tuple(vocabulary), load_array(folder, "ids"), load_array(folder, "offsets"))


class Tokenizer(Protocol):
    """Turns texts into terms. Constructor arguments are plain JSON values and part of the terms' identity.

    version, packages: as in Retriever.
    loads_model: whether a process loads a model when it gets its first text. By default, it does not.
    """

    version: int
    packages: tuple[str, ...]

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens: ...


class Whitespace:
    """Splits at white space. Keeps case and punctuation."""

    recorded_as = "tokenizer/whitespace"
    version = 1
    packages: tuple[str, ...] = ()

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        return _split(texts, _BY_SPACE, progress)


class Word:
    """Splits a text into lower-cased runs of letters, digits and underscores of any script (`\\w+`)."""

    recorded_as = "tokenizer/word"
    version = 1
    packages: tuple[str, ...] = ()

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        return _split(texts, _WORDS, progress)


class CharNgram:
    """Splits the words of `Word` into character n-grams.

    A word shorter than `low` becomes one term. N-grams are ordered by length, then from left to right: with low=1 and
    high=2, `물리` becomes 물, 리, 물리.

    low, high: the lengths of the shortest and the longest n-gram, at least 1.
    """

    recorded_as = "tokenizer/char_ngram"
    version = 1
    packages: tuple[str, ...] = ()

    def __init__(self, low: Characters = 2, high: Characters = 2) -> None:
        for name, value in (("low", low), ("high", high)):
            check_whole(f"tokenizer.{name}", value, "a whole number of characters, at least 1", 1)
        if high < low:
            raise BadInput(f"tokenizer.high ({high}) is below tokenizer.low ({low}): swap them.")
        self._low, self._high = low, high

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        return _split(texts, _WORDS, progress, self._ngrams)

    def _ngrams(self, word: str) -> list[str]:
        if len(word) < self._low:
            return [word]
        sizes = range(self._low, self._high + 1)
        return [word[i : i + size] for size in sizes for i in range(len(word) - size + 1)]


# Articles, pronouns, prepositions, conjunctions, auxiliary verbs and similar words. `\w+` cuts words such as
# "it's" and "don't", so the list also has the parts `s`, `t` and similar.
_ENGLISH = """
a an the this that these those i me my mine we us our ours you your yours he him his she her hers it its they them their
theirs myself ourselves yourself yourselves himself herself itself themselves who whom whose which what when where why
how am is are was were be been being have has had having do does did doing will would shall should can could may might
must and or but nor so if then else than as because while until though although of at by for with about against between
into through during before after above below to from up down in out on off over under again further once here there all
any both each few more most other some such no not only own same too very just also s t d ll m re ve
"""
STOP_WORDS = {"english": frozenset(_ENGLISH.split())}


class Snowball:
    """Reduces the words of `Word` to Snowball stems (Porter 2001, http://snowballstem.org).

    language: one of PyStemmer's algorithms.
    stop_words: whether to drop function words before stemming; there is a list for English only.
    """

    recorded_as = "tokenizer/snowball"
    version = 1
    packages = ("PyStemmer",)

    def __init__(self, language: str = "english", stop_words: bool = True) -> None:
        import Stemmer

        known = Stemmer.algorithms()
        if language not in known:
            hint = did_you_mean(str(language), known) or f" Known: {', '.join(known)}."
            raise BadInput(f"tokenizer.language {language!r} has no Snowball stemmer.{hint}")
        if not isinstance(stop_words, bool):
            raise BadInput(f"tokenizer.stop_words is {stop_words!r}: give true or false.")
        if stop_words and language not in STOP_WORDS:
            raise BadInput(f"tokenizer.stop_words: there is no list for {language!r}; set tokenizer.stop_words=false.")
        self._language = language
        self._stop_words = STOP_WORDS[language] if stop_words else frozenset()

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        import Stemmer

        # Threads must not share a stemmer, so each call has its own. It caches nothing, since a word is stemmed once.
        stem = Stemmer.Stemmer(self._language, 0).stemWord
        return _split(texts, _WORDS, progress, lambda word: [] if word in self._stop_words else [stem(word)])


# Tags of words with content: nouns, numerals, pronouns, verbs, adjectives, roots, adverbs, and words in foreign
# letters, digits or Chinese characters. Particles, endings, affixes and symbols are left out.
CONTENT_TAGS = ("NN*", "NR", "NP", "VV*", "VA*", "XR", "SL", "SN", "SH", "MA*")

# kiwi's tags, an extension of the Sejong tag set. A predicate's tag may end in -R or -I (regular or irregular).
_TAGS = """
NNG NNP NNB NR NP VV VV-R VV-I VA VA-R VA-I VX VX-R VX-I VCP VCN MM MAG MAJ IC
JKS JKC JKG JKO JKB JKV JKQ JX JC EP EF EC ETN ETM XPN XSN XSV XSA XSA-R XSA-I XSM XR
SF SP SS SSO SSC SE SO SW SL SH SN SB UN W_URL W_EMAIL W_HASHTAG W_MENTION W_SERIAL W_EMOJI
Z_CODA Z_SIOT USER0 USER1 USER2 USER3 USER4
"""
KIWI_TAGS = frozenset(_TAGS.split())


class Kiwi:
    """Splits Korean texts into morphemes, in lower case, and keeps the morphemes with certain tags.

    The analyser is kiwi (https://github.com/bab2min/kiwipiepy). A process loads the model when it gets its first text:
    this takes about two seconds and 500 MB, and half of that in a block of `brief_texts`. The time to analyse a stretch
    without white space, such as base64, grows with the square of its length. Stretches of more than `UNBROKEN`
    characters are cut, with a warning.

    tags: kiwi's tags to keep, such as NNG; a trailing * matches all tags with that prefix (`VV*`: VV, VV-R and VV-I).
    workers: number of threads, at least 1; None: one per core.
    """

    recorded_as = "tokenizer/kiwi"
    version = 1
    loads_model = True
    packages = ("kiwipiepy", "kiwipiepy_model")

    def __init__(self, tags: Sequence[str] = CONTENT_TAGS, workers: Threads | None = None) -> None:
        if isinstance(tags, str) or not tags:
            raise BadInput(f"tokenizer.tags is {tags!r}: give a list of kiwi tags, such as [NNG, 'VV*'].")
        if workers is not None:
            check_whole("tokenizer.workers", workers, "a number of threads, at least 1, or null for all", 1)
        self._tags = frozenset(chain.from_iterable(map(_matching_tags, tags)))
        self._workers = workers

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        if not texts:
            return as_tokens([])
        tags = self._tags
        long: list[int] = []
        brief = None if _loaded_kiwi.cache_info().currsize else brief_model(texts)
        model = brief or kiwi_model(self._workers)
        analysed = model.tokenize(_broken(map(_normalised, texts), long))
        forms = ([morpheme.form.lower() for morpheme in text if morpheme.tag in tags] for text in analysed)
        tokens = as_tokens(forms, len(texts), progress)
        if long:
            log.warning(
                "tokenizer=kiwi: %d of %d texts have more than %d characters in a row without white space. Such "
                "stretches were cut into pieces. The first of these texts is text %d: %.40s…",
                *(len(long), len(texts), UNBROKEN, long[0] + 1, " ".join(texts[long[0]].split())),
            )
        return tokens


def kiwi_model(workers: int | None) -> Any:
    return _loaded_kiwi(cores() if workers is None else workers)


@lru_cache(maxsize=1)
def _loaded_kiwi(workers: int) -> Any:
    import kiwipiepy

    return kiwipiepy.Kiwi(num_workers=workers)


def _matching_tags(pattern: str) -> list[str]:
    if not isinstance(pattern, str):
        raise BadInput(f"tokenizer.tags contains {pattern!r}: give kiwi tags as text.")
    exact, prefix = pattern, pattern[:-1]
    matching = [tag for tag in KIWI_TAGS if tag == exact or (pattern.endswith("*") and tag.startswith(prefix))]
    if not matching:
        hint = did_you_mean(pattern, KIWI_TAGS) or f" Known: {', '.join(sorted(KIWI_TAGS))}."
        raise BadInput(f"tokenizer.tags: kiwi has no tag {pattern!r}.{hint}")
    return matching


def _normalised(text: str) -> str:
    return text if text.isascii() else encodable(unicodedata.normalize("NFC", text))


def _broken(texts: Iterable[str], long: list[int]) -> Iterator[str]:
    def pieces(run: re.Match[str]) -> str:
        return " ".join(run[0][start : start + UNBROKEN] for start in range(0, len(run[0]), UNBROKEN))

    for place, text in enumerate(texts):
        if len(text) > UNBROKEN and _RUN.search(text):
            long.append(place)
            text = _RUN.sub(pieces, text)
        yield text


def lower_cased(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Lower-casing can decompose a character (İ becomes i and a dot). Normalising again gives equal words one spelling.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())


_BY_SPACE = WordRule(_normalised, str.split, r"\S+")
_WORDS = WordRule(lambda text: lower_cased(encodable(text)), _WORD.findall, _WORD.pattern)


def _split(
    texts: Sequence[str],
    rule: WordRule,
    progress: Progress | None,
    expand: Callable[[str], list[str]] | None = None,
) -> Tokens:
    if any(size >= LARGE for size in accumulate(map(len, texts))):  # documents may be on disk: few are read twice
        return Tokens(*split_many(texts, rule, progress, expand))
    return as_tokens(map(rule.words, texts), len(texts), progress, expand)


def as_tokens(
    words: Iterable[Iterable[str]],
    total: int = 0,
    progress: Progress | None = None,
    expand: Callable[[str], list[str]] | None = None,
) -> Tokens:
    """Return the terms of texts, given as lists of words. expand: word -> its terms; None: each word is a term."""
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))  # term -> id, in the order of first use
    expanded: dict[str, list[int]] = {}  # each word is expanded once
    ids, offsets = array("i"), array("q", [0])  # compact: 4 bytes per term
    for done, text in enumerate(words, start=1):
        if expand is None:
            ids.extend(map(numbers.__getitem__, text))
        else:
            for word in text:
                known = expanded.get(word)
                if known is None:
                    known = expanded[word] = [numbers[term] for term in expand(word)]
                ids.extend(known)
        offsets.append(len(ids))
        if progress and (done % PROGRESS_EVERY == 0 or done == total):
            progress(done, total, "texts")
    flat = np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)
    return Tokens(tuple(numbers), flat, np.frombuffer(offsets, np.int64))
