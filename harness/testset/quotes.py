"""Where a quotation stands in a text.

Language models quote passages with other line breaks and other quotation marks than the text has. Neither counts here:
white space may differ, or be missing, and every quotation mark stands for every other. All other characters must be the
same, so that nothing counts as a quotation that somebody has reworded.
"""

from __future__ import annotations

import re
import unicodedata

MARKS = "\"'`´‘’‚‛“”„‟′″«»‹›「」『』〝〞〟＂＇"
_GAP = "[\\s\u00ad\u200b-\u200d\u2060\ufeff]"  # white space and characters that nobody sees
_MARK = f"[{re.escape(MARKS)}]"
_EDGE = re.compile(f"(?:{_GAP}|{_MARK})+")


def locate(quote: str, text: str, inside: tuple[int, int]) -> tuple[int, int] | None:
    """[start, end) in code points of `text` where `quote` first stands inside a document; None if it does not.

    A quotation never begins or ends within a number or a word in Latin letters: `11` is not in `2011`. Quotation marks
    around the whole quotation are left out if the text has none there.

    text: in Unicode NFC. inside: [start, end) of the document.
    """
    quote = unicodedata.normalize("NFC", quote)
    head = _EDGE.match(quote)
    bare = quote[head.end() :] if head else quote
    while bare and _EDGE.fullmatch(bare[-1]):
        bare = bare[:-1]
    for form in (quote, bare):
        pattern = _pattern(form)
        if pattern and (found := pattern.search(text, *inside)):
            return found.span()
    return None


def _pattern(quote: str) -> re.Pattern[str] | None:
    """What matches the quotation; None if it has no letter and no digit."""
    letters = [letter for letter in quote if not re.fullmatch(_GAP, letter)]
    if not any(letter.isalnum() for letter in letters):
        return None
    forms = [_MARK if letter in MARKS else re.escape(letter) for letter in letters]
    return re.compile(_before(letters[0]) + f"{_GAP}*".join(forms) + _after(letters[-1]))


def _before(letter: str) -> str:
    """What must not stand before a quotation that begins with `letter`."""
    if letter.isdigit():
        return r"(?<!\d)(?<!\d[.,])"
    return r"(?<![A-Za-z])" if letter.isascii() and letter.isalpha() else ""


def _after(letter: str) -> str:
    """What must not stand after a quotation that ends with `letter`."""
    if letter.isdigit():
        return r"(?!\d)(?![.,]\d)"
    return r"(?![A-Za-z])" if letter.isascii() and letter.isalpha() else ""
