"""What all figures share: size, fonts that have Hangul, colours, labels that fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "modified_map@3": "#2a7f62",
    "wrongly_returned": "#d1495b",
    "wrongly_withheld": "#edae49",
    "not_found": "#66717e",
    "misranked": "#8d6a9f",
}
QUICK = {"compress_level": 1}  # for PNG: a third of the time for a file that is a fifth larger
LONGEST = 28  # characters of a label
FONT = 8


def _rows(panel: Axes, labels: Iterable[str]) -> None:
    short = [shortened(label, LONGEST) for label in labels]
    panel.set_yticks(range(len(short)), short, parse_math=False)
    panel.set_ylim(len(short) - 0.5, -0.5)
    panel.tick_params(labelsize=FONT)


def _figure(height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


# Matplotlib's own font has no Hangul; the first of these that is installed serves, else such letters are left out.
HANGUL = ("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "AppleGothic")


def with_fonts(figure: Figure) -> Figure:
    """The figure, its texts in fonts that have Hangul where there is one, and without the frame's upper right."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_fontfamily(list(_fonts()[0]))
        text.set_parse_math(False)  # a `$` in a label is no formula
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure


@cache
def _fonts() -> tuple[tuple[str, ...], frozenset[int]]:
    """Families for all texts, and the characters that they can draw."""
    from matplotlib.font_manager import findfont, fontManager, get_font

    installed = {font.name for font in fontManager.ttflist}
    families = ("DejaVu Sans", *[name for name in HANGUL if name in installed][:1])
    return families, frozenset().union(*(get_font(findfont(name)).get_charmap() for name in families))


def _drawable(text: str) -> str:
    """A text whose runs of letters that no font here has are an ellipsis each."""
    known = _fonts()[1]
    return re.sub("\0[\0 ]*", "…", "".join(letter if ord(letter) in known else "\0" for letter in text))


def shortened(text: str, most: int) -> str:
    """The end of a long text: names and paths differ there."""
    text = _drawable(text)
    return text if len(text) <= most else "…" + text[1 - most :]
