"""Fonts of figures: one that has Hangul is found, and without one labels can still be told apart."""

import pytest
from matplotlib import font_manager

from harness.reports import figure

DEJAVU = font_manager.findfont("DejaVu Sans")


@pytest.fixture
def installed(monkeypatch):
    """installed(*names): the fonts that matplotlib has listed; no file on this machine is a font."""
    figure.fonts.cache_clear()
    monkeypatch.setattr(font_manager, "findSystemFonts", list)

    def listed(*names):
        entries = [font_manager.FontEntry(fname=DEJAVU, name=name, style="normal", weight=400) for name in names]
        monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)

    yield listed
    figure.fonts.cache_clear()


def test_a_known_font_is_preferred(installed):
    installed("DejaVu Sans", "NanumGothic", "Noto Sans CJK KR")
    assert figure.hangul_font() == "Noto Sans CJK KR"


def test_any_other_font_that_has_hangul_will_do(installed, monkeypatch):
    installed("DejaVu Sans", "UnDotum")
    monkeypatch.setattr(figure, "_has_hangul", lambda file: True)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", font_manager.fontManager.ttflist[1:])
    assert figure.hangul_font() == "UnDotum"


def test_a_font_installed_after_matplotlib_listed_them_is_found(installed, monkeypatch):
    installed("DejaVu Sans")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["new.ttf"])

    def add(file):
        font_manager.fontManager.ttflist.append(
            font_manager.FontEntry(fname=file, name="NanumGothic", style="normal", weight=400)
        )

    monkeypatch.setattr(font_manager.fontManager, "addfont", add)
    monkeypatch.setattr(figure, "_has_hangul", lambda file: file == "new.ttf")
    assert figure.hangul_font() == "NanumGothic"


def test_without_a_font_hangul_is_drawn_in_latin_letters(installed):
    installed("DejaVu Sans")
    assert figure.hangul_font() is None
    assert figure.drawable("띄어쓰기") == "ttuieosseugi"
    assert figure.drawable("맞춤법 (11)") == "matchumbeop (11)"
    assert figure.drawable("漢字 k1") == "…k1"


def test_the_font_that_draws_boxes_is_not_taken(installed, monkeypatch):
    installed("DejaVu Sans", "Last Resort High-Efficiency")
    monkeypatch.setattr(figure, "_has_hangul", lambda file: True)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", font_manager.fontManager.ttflist[1:])
    assert figure.hangul_font() is None


SYLLABLES = {"가": "ga", "힣": "hit", "닭": "dak", "조사": "josa", "왜": "wae", "의": "ui", "값": "gap", "x": "x"}


@pytest.mark.parametrize("word", SYLLABLES)
def test_each_syllable_has_its_letters(word):
    assert "".join(map(figure.romanised, word)) == SYLLABLES[word]
