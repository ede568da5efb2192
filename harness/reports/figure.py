"""Shared parts of matplotlib figures: canvas, colours, fonts with Hangul, labels and PNG files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "modified_map@3": "#2a7f62",
    "wrongly_returned": "#d1495b",
    "wrongly_withheld": "#edae49",
    "not_found": "#66717e",
    "misranked": "#8d6a9f",
    "not_found_or_misranked": "#5b6fb0",
}
QUICK = {"compress_level": 1}  # writes a PNG in a third of the time; the file is a fifth larger
LONGEST = 28  # a label has at most this many characters
WIDTH = 9  # inches
FONT = 8


def new_figure(width: float, height: float, *, constrained: bool = True) -> Figure:
    """Return an empty figure. width, height: inches. constrained: whether matplotlib chooses the margins."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained" if constrained else None)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, target: Path | BinaryIO, *, quick: bool = True) -> None:
    figure.savefig(target, dpi=120, format="png", pil_kwargs=QUICK if quick else {})


def label_rows(panel: Axes, labels: Iterable[str]) -> None:
    """Label the rows of a panel from top to bottom."""
    short = [shortened(label, LONGEST) for label in labels]
    panel.set_yticks(range(len(short)), short, parse_math=False)
    panel.set_ylim(len(short) - 0.5, -0.5)
    panel.tick_params(labelsize=FONT)


# Matplotlib's default font has no Hangul. The first of these fonts that is installed is used, otherwise any installed
# font with Hangul. Without one, Hangul is romanised. No font is shipped: it would more than double the package's size.
HANGUL = ("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "AppleGothic")
BOXES = "Last Resort"  # this font of matplotlib draws a box for every character


def with_fonts(figure: Figure) -> Figure:
    """Remove the upper and right frame lines, use a font with Hangul if there is one, and return the figure."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_fontfamily(list(fonts()[0]))
        text.set_parse_math(False)  # a `$` in a label begins no formula
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure


@cache
def fonts() -> tuple[tuple[str, ...], frozenset[int]]:
    """Return (the font families for all texts, the code points that these fonts can draw)."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    families = tuple(filter(None, ("DejaVu Sans", hangul_font())))
    files = [findfont(FontProperties(family=[name])) for name in families]  # a bare name would be parsed as a pattern
    return families, frozenset().union(*(get_font(file).get_charmap() for file in files))


def hangul_font() -> str | None:
    """Return the family of an installed font with Hangul, or None."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    installed = {font.name for font in fontManager.ttflist}
    if known := [name for name in HANGUL if name in installed]:
        return known[0]
    seen = {font.fname for font in fontManager.ttflist}
    for file in set(findSystemFonts()) - seen:  # fonts that were installed after matplotlib had made its list
        with suppress(OSError, RuntimeError):  # skip a font that matplotlib cannot read
            fontManager.addfont(file)
    plain = [font for font in fontManager.ttflist if font.style == "normal" and font.weight == 400]
    plain = [font for font in plain if not font.name.startswith(BOXES)]
    names = sorted({font.name for font in plain if _has_hangul(font.fname)})
    return next((name for name in HANGUL if name in names), names[0] if names else None)


def _has_hangul(file: str) -> bool:
    from matplotlib.font_manager import get_font

    try:
        return {ord("가"), ord("힣")} <= get_font(file).get_charmap().keys()
    except (OSError, RuntimeError):  # the file was deleted, or matplotlib cannot read the font
        return False


# Revised Romanisation of the first, middle and last letter of a syllable, in the order of Unicode. A silent or absent
# letter is "_".
INITIALS = "g kk n d tt r m b pp s ss _ j jj ch k t p h"
VOWELS = "a ae ya yae eo e yeo ye o wa wae oe yo u wo we wi yu eu ui i"
FINALS = "_ k k k n n n t l k m l l l p l m p p t t ng t t k t p t"


def romanised(letter: str) -> str:
    """Return a Hangul syllable in Latin letters (`닭` -> `dak`). Return other letters unchanged."""
    place = ord(letter) - ord("가")
    if not 0 <= place <= ord("힣") - ord("가"):
        return letter
    parts = INITIALS.split()[place // 588], VOWELS.split()[place % 588 // 28], FINALS.split()[place % 28]
    return "".join(parts).replace("_", "")


def drawable(text: str) -> str:
    """Replace characters that no font can draw: Hangul by Latin letters, other characters by an ellipsis."""
    known = fonts()[1]
    text = "".join(letter if ord(letter) in known else romanised(letter) for letter in text)
    return re.sub("\0[\0 ]*", "…", "".join(letter if ord(letter) in known else "\0" for letter in text))


def shortened(text: str, most: int) -> str:
    """Cut a text to its last `most` characters, since names and paths differ at their ends."""
    text = drawable(text)
    return text if len(text) <= most else "…" + text[1 - most :]
