"""Figures of scored texts: what is drawn, read back from the figures' artists."""

import math

import pytest
from drawn_figures import overlaps

from harness.measures.scores import Summary
from harness.reports.figure import LONGEST, save, shortened
from harness.reports.task_page import MARKS, MOST, draw_scored

pytestmark = pytest.mark.filterwarnings("error")

NONE = Summary(math.nan, 0)
COUNTS = {"tp": 79.0, "fp": 68.0, "fn": 98.0, "fr": 414.0}
CORRECTIONS = {"correction_recall": Summary(0.3224, 245, 0.27, 0.38), "correction_precision": Summary(0.1408, 245)}
KINDS = {"조사 오류": (30, 0.25), "띄어쓰기": (120, 0.5), r"<b>$\frac{맞춤법$": (7, math.nan)}


def panels(figure):
    """Title -> axes."""
    return {axes.get_title(): axes for axes in figure.axes}


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def test_measures_have_their_values_and_whiskers():
    figure = draw_scored(CORRECTIONS | {"bleurt": NONE}, {}, "correction_recall", {})
    axes = panels(figure)["Measures with their 95 % intervals"]
    assert rows(axes) == [*CORRECTIONS, "bleurt"]
    assert texts_of(axes) == ["0.3224", "0.1408", "absent"]
    whisker, dot = axes.lines[:2]
    assert (list(whisker.get_xdata()), list(dot.get_xdata())) == ([0.27, 0.38], [0.3224])
    colours = [label.get_color() for label in axes.get_yticklabels()]
    assert colours[0] == colours[1] != colours[2]
    assert axes.get_xlim() == (0, 1)
    assert len(figure.axes) == 1


def test_counts_have_bars_in_the_colours_of_their_marks():
    from matplotlib.colors import to_hex

    axes = panels(draw_scored(CORRECTIONS, {}, "correction_recall", COUNTS | {"items": 1500.0}))["Counts"]
    assert [bar.get_width() for bar in axes.patches] == [79, 68, 98, 414, 1500]
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches][:4] == list(MARKS.values())
    assert texts_of(axes) == ["79", "68", "98", "414", "1,500"]


def test_kinds_have_a_bar_each_the_most_frequent_first():
    axes = panels(draw_scored(CORRECTIONS, KINDS, "correction_recall", COUNTS))["correction_recall by kind (items)"]
    assert rows(axes)[:2] == [shortened(kind, LONGEST) for kind in ("띄어쓰기", "조사 오류")]
    assert texts_of(axes) == ["0.5000 (120)", "0.2500 (30)", "none (7)"]
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.25, 0]
    one = draw_scored(CORRECTIONS, {"answer": (5, 0.3)}, "correction_recall", {})  # as the measure
    assert len(one.axes) == 1


def test_the_figure_says_how_many_kinds_it_leaves_out():
    kinds = {f"유형 {n}": (n, n / 100) for n in range(MOST + 5)}
    axes = panels(draw_scored(CORRECTIONS, kinds, "correction_recall", {}))["correction_recall by kind (items)"]
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
