"""Figures of scored texts and of submissions compared: what is drawn, read back from the figures' artists."""

import itertools
import math

import numpy as np
import pytest
from matplotlib.text import Text

from harness.commands.compare.comparison import Board, RunShifts, ShakeUp
from harness.commands.compare.figures import draw_shake_up
from harness.evaluation.scores import Summary
from harness.reports.figure import LONGEST, png, shortened
from harness.reports.task_figures import MARKS, MOST, draw_scored, scored

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


def words(figure):
    """Every text that is in sight: matplotlib makes labels of ticks beyond the ends of an axis, and hides them."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        found += [axes.title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [axis.label, *(tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)]
    return [text for text in found if text.get_text() and text.get_visible()]


def overlaps(figure):
    """Pairs of texts whose boxes meet, and texts that leave the figure."""
    figure.canvas.draw()
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in words(figure)]
    found = [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlaps(other)]
    (left, bottom), (right, top) = figure.bbox.min, figure.bbox.max
    return found + [text for text, box in boxes if box.x0 < left or box.y0 < bottom or box.x1 > right or box.y1 > top]


def shaken(public, private, shifts, draws=10):
    """The figure of a comparison of submissions; ranks are 1 + how many are better."""
    ranks = [[1 + sum(other > one for other in part) for one in part] for part in (public, private)]
    boards = {
        f"제출 {i}": Board(ours, public_rank, theirs, private_rank)
        for i, (ours, public_rank, theirs, private_rank) in enumerate(
            zip(public, ranks[0], private, ranks[1], strict=True)
        )
    }
    runs = tuple(RunShifts(label, 0, of) for label, of in zip(boards, shifts, strict=True))
    return draw_shake_up("correction_recall", boards, ShakeUp(draws, 0, runs))


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


def test_one_kind_says_nothing_that_the_measure_does_not():
    assert len(draw_scored(CORRECTIONS, {"answer": (5, 0.3)}, "correction_recall", {}).axes) == 1


def test_the_figure_says_how_many_kinds_it_leaves_out():
    kinds = {f"유형 {n}": (n, n / 100) for n in range(MOST + 5)}
    axes = panels(draw_scored(CORRECTIONS, kinds, "correction_recall", {}))["correction_recall by kind (items)"]
    assert axes.get_xlabel() == f"the {MOST} largest of {MOST + 5} kinds"
    assert rows(axes) == [shortened(f"유형 {n}", LONGEST) for n in range(MOST + 4, 4, -1)]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [{}, COUNTS], ids=["", "counts"])
@pytest.mark.parametrize("kinds", [{}, KINDS, {f"아주 긴 이름의 유형 {'가' * 40} {n}": (n, 1.0) for n in range(30)}],
                         ids=["none", "few", "many"])  # fmt: skip
def test_words_of_a_run_do_not_overlap(kinds, counts):
    measured = CORRECTIONS | {"a_rather_long_name_of_one": NONE}
    assert not overlaps(draw_scored(measured, kinds, "correction_recall", counts))


def test_ranks_shift_as_often_as_the_comparison_says():
    """Two submissions change places between the parts: the first falls by 1 in 3 draws of 10, as it does here."""
    figure = shaken([0.5, 0.4], [0.3, 0.4], [{"0": 7, "1": 3}, {"-1": 3, "0": 7}])
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == [shortened(f"제출 {n}", LONGEST) for n in range(2)]
    points = {line.get_label(): list(line.get_xdata()) for line in left.lines}
    assert points == {"public": [0.5, 0.4], "private": [0.3, 0.4]}
    np.testing.assert_allclose(right.images[0].get_array(), [[0, 0.7, 0.3], [0.3, 0.7, 0]])
    assert {(text.get_text(), *text.get_position()) for text in right.texts} == {
        ("70%", 0, 0), ("30%", 1, 0), ("30%", -1, 1), ("70%", 0, 1)
    }  # fmt: skip
    assert [(box.get_x() + 0.5, box.get_y() + 0.5) for box in right.patches] == [(1, 0), (-1, 1)]
    assert right.get_title() == "How ranks move in 10 random splits"
    assert not overlaps(figure)


@pytest.mark.parametrize(("n", "numbers"), [(2, True), (8, True), (9, False), (40, False)])
def test_numbers_where_there_is_room(n, numbers):
    """n submissions may move by n - 1 either way: 15 columns for 8."""
    moves = {str(move): 1 for move in range(1 - n, n)}
    scores = list(np.linspace(0.2, 0.4, n))
    figure = shaken(scores, scores[::-1], [moves] * n, draws=len(moves))
    assert bool(figure.axes[1].texts) == numbers
    assert all(float(tick).is_integer() for tick in figure.axes[1].get_xticks())
    assert 0 in figure.axes[1].get_xticks()
    if n < 40:
        assert not overlaps(figure)


def test_ranks_that_never_move():
    figure = shaken([0.5, 0.5], [0.4, 0.4], [{"0": 10}] * 2)
    assert [text.get_text() for text in figure.axes[1].texts] == ["100%", "100%"]
    assert list(figure.axes[1].get_xticks()) == [0]


def test_a_move_that_no_draw_made_is_in_sight():
    figure = shaken([0.3, 0.2, 0.1], [0.1, 0.2, 0.3], [{"0": 10}] * 3)
    assert figure.axes[1].get_xlim() == (-2.5, 2.5)


@pytest.mark.drawn
def test_figures_are_written(tmp_path):
    scored(CORRECTIONS, KINDS, "correction_recall", tmp_path / "measures.png", COUNTS)
    assert (tmp_path / "measures.png").read_bytes().startswith(b"\x89PNG")
    assert png(shaken([0.5, 0.4], [0.3, 0.4], [{"0": 10}] * 2)).startswith(b"\x89PNG")
