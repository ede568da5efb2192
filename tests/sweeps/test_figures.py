"""Figures of a sweep: what is drawn, read back from the figure's artists."""

import numpy as np
import pytest

from harness.reports import figure as reports_figure
from harness.reports.figure import fonts, save
from harness.sweeps.report import draw_by_key, draw_pareto

pytestmark = pytest.mark.filterwarnings("error")

# Two thresholds x three tokenizers; the fifth trial failed.
GRID = {"gate.threshold": [1, 1, 1, 5, 5, 5], "tokenizer": ["kiwi", "word", "char"] * 2}
VALUES = np.array([0.5, 0.3, 0.4, 0.9, np.nan, 0.1])
KOREAN = ["한국어 형태소 분석기", "아주 긴 이름을 가진 형태소 분석기", "kiwi"]


def lines(panel):
    return {line.get_label(): line.get_xydata().tolist() for line in panel.lines}


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_each_key_has_a_panel_with_all_trials_the_best_and_the_median():
    figure = draw_by_key(GRID, "modified_map@3", VALUES, 3)
    assert figure.get_suptitle() == "6 trials: best modified_map@3 0.9000 (1 failed)"
    threshold, tokenizer = figure.axes
    assert (threshold.get_xlabel(), tokenizer.get_xlabel()) == ("gate.threshold", "tokenizer")
    assert threshold.get_ylabel() == "modified_map@3"
    points = [[1, 0.5], [1, 0.3], [1, 0.4], [5, 0.9], [5, 0.1]]
    assert threshold.collections[0].get_offsets().tolist() == points
    found = lines(threshold)
    assert found["best"] == [[1, 0.5], [5, 0.9]]
    # the median of .5 .3 .4, and of .9 and .1: the failed trial counts for nothing
    np.testing.assert_allclose(found["median"], [[1, 0.4], [5, 0.5]])
    assert found["best trial"] == [[5, 0.9]]
    # texts stand at 0, 1, 2 in the order in which they come
    assert ticks(tokenizer.xaxis) == ["kiwi", "word", "char"]
    found = lines(tokenizer)
    assert found["best"] == [[0, 0.9], [1, 0.3], [2, 0.4]]
    np.testing.assert_allclose(found["median"], [[0, 0.7], [1, 0.3], [2, 0.25]])


def test_values_drawn_at_random_have_no_best_at_each():
    k1, b, values = np.random.default_rng(0).random((3, 20))
    panel, _ = draw_by_key({"k1": k1.tolist(), "b": b.tolist()}, "map", values, 3).axes
    assert set(lines(panel)) == {"best trial"}


def test_numbers_spread_by_their_logarithm_get_a_logarithmic_axis():
    for values, scale in (
        ([0.001, 0.01, 0.1, 1.0], "log"),
        ([10, 30, 60, 100, 200], "linear"),  # less than two decades
        ([0, 0.01, 0.1, 1.0], "linear"),  # no logarithm of 0
        ([0.001, 0.2, 0.4, 0.6, 0.8, 1.0], "linear"),  # evenly spread as it is
    ):
        (panel,) = draw_by_key({"k": values}, "map", np.linspace(0, 1, len(values)), len(values) - 1).axes
        assert panel.get_xscale() == scale


def test_numbers_mixed_with_texts_are_texts_and_an_absent_key_stands_last():
    (panel,) = draw_by_key({"store": [1, "none", True]}, "map", np.array([0.1, 0.2, 0.3]), 2).axes
    assert ticks(panel.xaxis) == ["1", "none", "True"]

    (panel,) = draw_by_key({"k1": [None, 2.0, 0.5, None]}, "map", np.array([0.1, 0.2, 0.3, 0.4]), 3).axes
    assert ticks(panel.xaxis) == ["0.5", "2", "–"]


def test_of_many_keys_those_that_matter_most_are_shown():
    # key 7 decides the objective, key 3 is half as strong; thirteen others are noise of a hundredth
    rng = np.random.default_rng(1)
    swept = {f"key{n}": rng.integers(0, 3, 300).tolist() for n in range(15)}
    values = 0.2 * np.array(swept["key7"]) + 0.1 * np.array(swept["key3"]) + 0.01 * rng.random(300)
    figure = draw_by_key(swept, "map", values, int(values.argmax()))
    names = [panel.get_xlabel() for panel in figure.axes]
    assert len(names) == 12
    assert {"key3", "key7"} <= set(names)
    assert names == [name for name in swept if name in names]


THREE = GRID | {"k": [0.001, 0.1, 10.0] * 2}
DEGENERATE = {
    "one trial": ({"k": [5], "tokenizer": ["kiwi"]}, [0.5]),
    "all failed": (THREE, [np.nan] * 6),
    "constant": (THREE, [0.25] * 6),
    "long names": ({"encoder." + "x" * 80: ["y" * 80 + str(n) for n in range(6)], "k": list(range(6))}, VALUES),
    "no Hangul font": ({"모델": KOREAN * 2, "depth": [20, 20, 20, 50, 50, 50]}, VALUES),
    "many values": ({"k": list(range(150)), "name": [f"name {n}" for n in range(150)]}, [0.5] * 75 + [0.6] * 75),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_are_drawn(monkeypatch, tmp_path, name):
    if name == "no Hangul font":
        monkeypatch.setattr(reports_figure, "hangul_font", lambda: None)
    fonts.cache_clear()
    swept, values = DEGENERATE[name]
    best = None if np.isnan(values).all() else int(np.nanargmax(values))
    save(draw_by_key(swept, "modified_map@3", np.array(values), best), tmp_path / "figure.png")
    fonts.cache_clear()


def test_letters_without_a_font_are_left_out_and_labels_stay_apart(monkeypatch):
    monkeypatch.setattr(reports_figure, "fonts", lambda: (("DejaVu Sans",), frozenset(map(ord, "kiwi #123…"))))
    (panel,) = draw_by_key({"model": ["形態素", "解析", "kiwi"]}, "map", np.array([0.1, 0.2, 0.3]), 2).axes
    assert ticks(panel.xaxis) == ["… #1", "… #2", "kiwi #3"]


def test_pareto_marks_the_front(tmp_path):
    # (.9, .1) and (.5, .6) beat the others in one objective each; (.4, .6) is beaten by the second; the last failed
    values = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.6], [np.nan, np.nan]])
    front = np.array([True, False, True, False])
    (panel,) = (figure := draw_pareto(values, ("map", "abstention_f1"), front)).axes
    assert lines(panel)["Pareto front"] == [[0.9, 0.1], [0.5, 0.6]]
    assert panel.collections[0].get_offsets()[0].tolist() == [0.4, 0.6]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("map", "abstention_f1")
    assert figure.get_suptitle() == "2 of 4 trials on the Pareto front (1 failed)"
    save(draw_pareto(np.full((2, 2), np.nan), ("map", "mrr"), np.zeros(2, bool)), tmp_path / "nothing.png")
