"""Where a quotation stands in a text.

Language models quote passages with other line breaks and other quotation marks than the text has. Neither counts here:
white space may differ, or be missing, and every quotation mark stands for every other. All other characters must be the
same, so that nothing counts as a quotation that somebody has reworded.
"""

from __future__ import annotations

import re
import unicodedata

MARKS = "\"'`´‘’‚‛“”„‟′″«»‹›「」『』〝〞〟＂＇"
_GAP = "\\s\u00ad\u200b-\u200d\u2060\ufeff"  # white space and characters that nobody sees
_GAPS = re.compile(f"[{_GAP}]+")
_EDGE = re.compile(f"[{_GAP}{re.escape(MARKS)}]+")
_LETTERS = re.compile(f"[^{_GAP}]")
_ONE_MARK = str.maketrans(dict.fromkeys(MARKS, '"'))


def locate(quote: str, text: str, inside: tuple[int, int]) -> tuple[int, int] | None:
    """[start, end) in code points of `text` where `quote` first stands inside a document; None if it does not.

    A quotation never begins or ends within a number or a word in Latin letters: `11` is not in `2011`. Quotation marks
    around the whole quotation are left out if the text has none there.

    text: in Unicode NFC. inside: [start, end) of the document.
    """
    start, end = inside
    places = [letter.start() for letter in _LETTERS.finditer(text, start, end)]
    plain = _plain(text[start:end])
    quote = unicodedata.normalize("NFC", quote)
    head = _EDGE.match(quote)
    bare = quote[head.end() :] if head else quote
    while bare and _EDGE.fullmatch(bare[-1]):
        bare = bare[:-1]
    for form in map(_plain, (quote, bare)):
        if not any(letter.isalnum() for letter in form):
            continue
        at = plain.find(form)
        while at >= 0:
            first, past = places[at], places[at + len(form) - 1] + 1
            if _may_begin(text, first) and _may_end(text, past, end):
                return first, past
            at = plain.find(form, at + 1)
    return None


def _plain(text: str) -> str:
    """A text without white space, and with one kind of quotation mark."""
    return _GAPS.sub("", text).translate(_ONE_MARK)


def _may_begin(text: str, first: int) -> bool:
    """Whether a quotation that begins at `first` cuts no number and no word in Latin letters."""
    if text[first].isdigit():
        return not re.search(r"\d[.,]?\Z", text[max(0, first - 2) : first])
    return not (_is_latin(text[first]) and first and _is_latin(text[first - 1]))


def _may_end(text: str, past: int, end: int) -> bool:
    """The same of a quotation that ends before `past`. end: of the document."""
    if text[past - 1].isdigit():
        return not re.match(r"[.,]?\d", text[past : min(past + 2, end)])
    return not (_is_latin(text[past - 1]) and past < end and _is_latin(text[past]))


def _is_latin(letter: str) -> bool:
    return letter.isascii() and letter.isalpha()
