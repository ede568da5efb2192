"""What is in sight of a figure, read back from its artists."""

import itertools

from matplotlib.text import Text


def texts_in_sight(figure):
    """Every visible text: matplotlib makes labels of ticks beyond the ends of an axis, and hides them."""
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
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts_in_sight(figure)]
    found = [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlaps(other)]
    (left, bottom), (right, top) = figure.bbox.min, figure.bbox.max
    return found + [text for text, box in boxes if box.x0 < left or box.y0 < bottom or box.x1 > right or box.y1 > top]
