"""Figures of scored texts, read back from the figures' artists, and fonts with and without Hangul."""

import math

import pytest
from drawn_figures import overlaps
from matplotlib import font_manager
from matplotlib.colors import to_hex

from harness.measures.scores import Summary
from harness.reports import figure
from harness.reports.figure import LONGEST, save, shortened
from harness.reports.task_page import MARKS, MOST, draw_scored

pytestmark = pytest.mark.filterwarnings("error")

NONE = Summary(math.nan, 0)
COUNTS = {"tp": 79.0, "fp": 68.0, "fn": 98.0, "fr": 414.0}
CORRECTIONS = {"correction_recall": Summary(0.3224, 245, 0.27, 0.38), "correction_precision": Summary(0.1408, 245)}
KINDS = {"조사 오류": (30, 0.25), "띄어쓰기": (120, 0.5), r"<b>$\frac{맞춤법$": (7, math.nan)}
BY_KIND = "correction_recall by kind (items)"


def drawn(by_kind, counts, summary=CORRECTIONS):
    """Title of a panel -> axes."""
    return {axes.get_title(): axes for axes in draw_scored(summary, by_kind, "correction_recall", counts).axes}


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def test_measures_have_their_values_and_whiskers():
    [axes] = drawn({}, {}, CORRECTIONS | {"bleurt": NONE}).values()
    assert axes.get_title() == "Measures with their 95 % intervals"
    assert rows(axes) == [*CORRECTIONS, "bleurt"]
    assert texts_of(axes) == ["0.3224", "0.1408", "absent"]
    whisker, dot = axes.lines[:2]
    assert (list(whisker.get_xdata()), list(dot.get_xdata())) == ([0.27, 0.38], [0.3224])
    colours = [label.get_color() for label in axes.get_yticklabels()]
    assert colours[0] == colours[1] != colours[2]
    assert axes.get_xlim() == (0, 1)


def test_counts_have_bars_in_the_colours_of_their_marks():
    axes = drawn({}, COUNTS | {"items": 1500.0})["Counts"]
    assert [bar.get_width() for bar in axes.patches] == [79, 68, 98, 414, 1500]
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches][:4] == list(MARKS.values())
    assert texts_of(axes) == ["79", "68", "98", "414", "1,500"]


def test_kinds_have_a_bar_each_the_most_frequent_first():
    axes = drawn(KINDS, COUNTS)[BY_KIND]
    assert rows(axes)[:2] == [shortened(kind, LONGEST) for kind in ("띄어쓰기", "조사 오류")]
    assert texts_of(axes) == ["0.5000 (120)", "0.2500 (30)", "none (7)"]
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.25, 0]
    assert BY_KIND not in drawn({"answer": (5, 0.3)}, {})  # a single kind is the measure itself
    axes = drawn({f"유형 {n}": (n, n / 100) for n in range(MOST + 5)}, COUNTS)[BY_KIND]
    assert axes.get_xlabel() == f"the {MOST} largest of {MOST + 5} kinds"
    assert rows(axes) == [shortened(f"유형 {n}", LONGEST) for n in range(MOST + 4, 4, -1)]


MANY_KINDS = {f"아주 긴 이름의 유형 {'가' * 40} {n}": (n, 1.0) for n in range(30)}


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "counts"), [({}, {}), (KINDS, COUNTS), (MANY_KINDS, COUNTS)])
def test_words_of_a_run_do_not_overlap(kinds, counts):
    measured = CORRECTIONS | {"a_rather_long_name_of_one": NONE}
    assert not overlaps(draw_scored(measured, kinds, "correction_recall", counts))


@pytest.mark.drawn
def test_figures_are_written(tmp_path):
    save(draw_scored(CORRECTIONS, KINDS, "correction_recall", COUNTS), tmp_path / "measures.png")
    assert (tmp_path / "measures.png").read_bytes().startswith(b"\x89PNG")


# ---- Fonts

DEJAVU = font_manager.findfont("DejaVu Sans")


def font(name, file=DEJAVU):
    return font_manager.FontEntry(fname=file, name=name, style="normal", weight=400)


@pytest.fixture
def installed(monkeypatch):
    """installed(*names, hangul=False): the fonts that matplotlib has listed, and whether all of them have Hangul.

    No file on this machine is a font.
    """
    figure.fonts.cache_clear()
    monkeypatch.setattr(font_manager, "findSystemFonts", list)

    def listed(*names, hangul=False):
        monkeypatch.setattr(font_manager.fontManager, "ttflist", [font(name) for name in names])
        monkeypatch.setattr(figure, "_has_hangul", lambda file: hangul)

    yield listed
    figure.fonts.cache_clear()


@pytest.mark.parametrize(
    ("names", "hangul", "chosen"),
    [
        (["DejaVu Sans", "NanumGothic", "Noto Sans CJK KR"], False, "Noto Sans CJK KR"),  # known by its name
        (["UnDotum"], True, "UnDotum"),
        (["Last Resort High-Efficiency"], True, None),  # draws a box for every letter
        (["DejaVu Sans"], False, None),
    ],
)
def test_a_font_with_hangul_is_chosen(installed, names, hangul, chosen):
    installed(*names, hangul=hangul)
    assert figure.hangul_font() == chosen


def test_a_font_installed_after_matplotlib_listed_them_is_found(installed, monkeypatch):
    installed("DejaVu Sans")
    manager = font_manager.fontManager
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["new.ttf"])
    monkeypatch.setattr(manager, "addfont", lambda file: manager.ttflist.append(font("NanumGothic", file)))
    monkeypatch.setattr(figure, "_has_hangul", lambda file: file == "new.ttf")
    assert figure.hangul_font() == "NanumGothic"


def test_without_a_font_hangul_is_drawn_in_latin_letters(installed):
    installed("DejaVu Sans")
    assert figure.drawable("띄어쓰기") == "ttuieosseugi"
    assert figure.drawable("맞춤법 (11)") == "matchumbeop (11)"
    assert figure.drawable("漢字 k1") == "…k1"
    letters = {"가": "ga", "힣": "hit", "닭": "dak", "왜": "wae", "의": "ui", "값": "gap", "x": "x"}
    assert {letter: figure.romanised(letter) for letter in letters} == letters
