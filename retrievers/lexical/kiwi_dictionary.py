"""A kiwi model for a few short texts, which reads only the words of its dictionaries that can matter for these texts.

Two thirds of the time to load kiwi's model go into 360,000 words, mostly names. Kiwi walks along a text in a trie of
all words without their spaces, so it visits only nodes whose path is a part of the text. A word whose first two
syllables are not both in the text adds no such node below the first level. Of words that differ only in spaces, kiwi
takes one, and which one depends on all other words. So texts with a word that has spaces need the whole model.

Kiwi promises none of this. So partial models are made only for the versions of kiwi with which they were compared with
the whole model, on 2,047 texts.
"""

from __future__ import annotations

import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

COMPARED = {"kiwipiepy": "0.24.1", "kiwipiepy_model": "0.24.0"}
DICTIONARIES = ("default.dict", "multi.dict")  # a line: form, TAB, tag or MORPHEME/TAG [+ MORPHEME/TAG ...], TAB, ...
MOST = 300  # characters of all texts together; with more, much of the dictionaries would be needed anyway
NEAR = 1 << 16  # characters between a line and a line that it refers to; it is a hundredth of that in most cases
FINALS = 28  # each syllable of Unicode has as many forms, without and with a final consonant
_PLUS = re.compile(r"(?<!\+)\+(?!\+)")  # joins morphemes; `++` is a plus sign in a form


@dataclass
class _Brief:
    """The partial model of a block of `brief_texts`. texts: the texts it was made for; None before it is made."""

    texts: frozenset[str] | None = None
    model: Any = None


_brief: ContextVar[_Brief | None] = ContextVar("brief", default=None)


@contextmanager
def brief_texts() -> Iterator[None]:
    """Expect few short texts in the `with` block, such as one query. Other texts take longer in it."""
    before = _brief.set(_Brief())
    try:
        yield
    finally:
        _brief.reset(before)


def brief_model(texts: Sequence[str]) -> Any:
    """Return a partial model for texts of a block of `brief_texts`; None if the whole model is needed."""
    brief = _brief.get()
    if brief is None or sum(map(len, texts)) > MOST or any(version(name) != one for name, one in COMPARED.items()):
        return None
    if brief.texts is None:
        brief.texts, brief.model = frozenset(texts), partial_model(texts)
    return brief.model if brief.texts.issuperset(texts) else None


def partial_model(texts: Sequence[str]) -> Any:
    """Return a model that analyses these texts as kiwi's whole model does; None if the whole model is needed."""
    import kiwipiepy
    import kiwipiepy_model

    whole = Path(kiwipiepy_model.get_model_path())
    try:
        with tempfile.TemporaryDirectory(prefix="harness-kiwi-") as place:
            if not _copy(whole, Path(place), " ".join(texts)):
                return None
            model = kiwipiepy.Kiwi(num_workers=1, model_path=place)
            model.tokenize("")  # reads the rest of the folder
            return model
    except (OSError, ValueError):  # no room for the folder, or a line in it refers to one that is farther than NEAR
        return None


def _copy(whole: Path, place: Path, text: str) -> bool:
    """Fill the folder of a partial model; return False if the whole model is needed."""
    run, found = _run(text), syllables(text)
    for name in DICTIONARIES:
        lines = reachable((whole / name).read_text("utf-8"), found)
        if any(_needs_whole(line.partition("\t")[0], run) for line in lines):
            return False
        (place / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for path in whole.iterdir():
        if path.name not in DICTIONARIES:
            (place / path.name).symlink_to(path)
    return True


def _needs_whole(form: str, run: str) -> bool:
    """Return whether a word is a rule, or has spaces and is found in a text. run: from `_run`."""
    return form.endswith("$") or (" " in form and _run(form) in run)


def _run(text: str) -> str:
    """Return the letters of a text in lower case, without white space, as kiwi's trie has them."""
    return unicodedata.normalize("NFD", "".join(text.split()).lower())


def syllables(text: str) -> frozenset[str]:
    """Return the syllables of a text, without their final consonants."""
    codes = {ord(one) for one in unicodedata.normalize("NFC", text) if "가" <= one <= "힣"}
    return frozenset(chr(code - (code - ord("가")) % FINALS) for code in codes)


def reachable(dictionary: str, found: frozenset[str]) -> list[str]:
    """Return the lines of the words that can be found in a text, and the lines they refer to, in their order.

    Words that do not begin with a syllable are kept, and one word with each first syllable, for the first level of the
    trie. found: the text's `syllables`.
    """
    dictionary = f"\n{dictionary}"
    ranges = [f"{one}-{chr(ord(one) + FINALS - 1)}" for one in sorted(found)]
    among = "".join(ranges)
    first = rf"[^#\n가-힣]|[{among}](?:[^\n가-힣]|[{among}])" if among else r"[^#\n가-힣]"
    kept = {one.start(): one[0] for one in re.finditer(rf"^(?:{first}).*", dictionary, re.M)}
    for one in ranges:
        if line := re.search(rf"^[{one}].*", dictionary, re.M):
            kept[line.start()] = line[0]
    waiting = [*kept.items()]
    while waiting:
        place, kept_line = waiting.pop()
        for morpheme in _PLUS.split(kept_line.partition("\t")[2].partition("\t")[0]):
            form = morpheme.strip().rpartition("/")[0].replace("++", "+")
            # 0 if the morpheme is kiwi's own. Others stand close before the line.
            start = form and dictionary.rfind(f"\n{form}\t", max(0, place - NEAR), place) + 1
            if start and start not in kept:
                kept[start] = dictionary[start : dictionary.index("\n", start)]
                waiting.append((start, kept[start]))
    return [kept[place] for place in sorted(kept)]
