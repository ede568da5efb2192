"""What figures draw, read back from their artists, and fonts with and without Hangul."""

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn_figures import overlaps
from fakes import FakeInputs
from matplotlib import font_manager
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch

from harness.data.qrels import Qrels
from harness.experiment.steps import Outcome
from harness.gates.learned import AutoGate, ClassifierGate, DepthGate
from harness.gates.payoff import payoffs
from harness.gates.rule import Rule
from harness.measures.scores import ShownLists, Summary, averaged_scores, score_lists
from harness.reports import figure
from harness.reports.figure import LONGEST, shortened
from harness.reports.gate_view import BINS, draw_gate, learnt_view
from harness.reports.run_figures import MARKS, MOST, draw_scored
from harness.statistics.split import Split
from retrievers.base import Query, Ranking

pytestmark = pytest.mark.filterwarnings("error")

GATES = [AutoGate, DepthGate, ClassifierGate]
OBJECTIVE = "modified_map@3"
SIGNALS = ["top_score", "margin"]


def outcome(gate, scores, needs, hits=None, public=False, objective=OBJECTIVE):
    """What `gate` learns from queries of these top scores; all find a, b and c, of which `hits` are relevant."""
    ids = [f"q{i:04}" for i in range(len(scores))]
    ranking = Ranking.from_scores(
        {query: {"a": one, "b": one - 1, "c": one - 2} for query, one in zip(ids, scores, strict=True)}
    )
    relevant = zip(ids, needs, ["a"] * len(ids) if hits is None else hits, strict=True)
    qrels = Qrels({query: dict.fromkeys(some, 1) if need else {} for query, need, some in relevant})
    payoff = payoffs(ranking, qrels, objective, 3, split=Split(select_on="public" if public else "all"))
    decision = gate.decide(FakeInputs({"bm25": ranking}), payoff)

    def scored(shown):
        final = ranking.cut(np.minimum(shown, 3))
        return score_lists(ShownLists(final, candidates=ranking, keep=shown > 0), qrels, [OBJECTIVE])

    held_out = None
    if decision.out_of_fold is not None:
        held_out = averaged_scores([scored(shown) for shown in decision.out_of_fold], Split())
    queries = tuple(Query.of(query, "two words") for query in ids)
    return Outcome(queries, {"bm25": ranking}, ranking, decision, ranking, scored(decision.shown), held_out, {})


def many(n, seed=0):
    generator = np.random.default_rng(seed)
    needs = generator.random(n) < 0.7
    return np.where(needs, 9.0, 5.0) + 1.5 * generator.normal(size=n), needs, generator.choice(list("abc"), n)


def bars(panel):
    """(edges of the bins, queries shown in each, queries withheld)."""
    (shown, edges, _), (total, *_) = (patch.get_data() for patch in panel.patches if isinstance(patch, StepPatch))
    return edges, shown, total - shown


def counted(figure):
    """Queries in all bars."""
    return sum(sum(map(sum, bars(panel)[1:])) for panel in figure.axes[2:])


def drawn(known, public=False):
    return draw_gate(learnt_view(known, public))


def said(figure):
    return [text.get_text() for panel in figure.axes for text in panel.texts]


def verticals(panel):
    return {line.get_xdata()[0] for line in panel.lines if list(line.get_ydata()) == [0, 1]}


def test_the_curve_is_drawn_as_it_is():
    known = outcome(AutoGate(SIGNALS, repeats=2), *many(80))
    panel = drawn(known).axes[0]
    [steps] = [patch for patch in panel.patches if isinstance(patch, StepPatch)]
    values, edges, _ = steps.get_data()
    # Drawn from the left: all are shown, then one signal after another is withheld, which the curve counts backwards.
    np.testing.assert_array_equal(values, known.decision.curve.values[::-1])
    np.testing.assert_array_equal(edges[1:-1], known.decision.curve.edges[::-1])
    low, high = panel.get_xlim()
    assert edges[0] <= low < high <= edges[-1]


def test_numbers_stand_beside_what_they_name():
    """Signals 8 and 7 need retrieval, 2 and 1 none: with the threshold between, all is right; without a gate half.

    One query on the wrong side costs 1, with a standard error of sqrt((1 - 1/4) * 4/3) = 1: it is on the plateau. Two
    cost 2, with an error of sqrt((2 - 4/4) * 4/3) = 1.15: they are not.
    """
    known = outcome(AutoGate(["top_score"], repeats=1, folds=4), [8.0, 7.0, 2.0, 1.0], [True, True, False, False])
    assert known.decision.fitted["rule"]["thresholds"] == [4.5]
    figure = drawn(known)
    words = said(figure)
    assert {"no gate 0.5000", "in sample 1.0000", "3 documents from 4.5", "plateau 1 to 8"} <= set(words)
    assert [one for one in words if one.startswith("out of fold 1.0000 [")]
    assert words[-6:] == ["need retrieval:", "2 shown", "0 withheld", "need none:", "0 shown", "2 withheld"]
    assert all(verticals(panel) == {4.5} for panel in figure.axes)
    assert figure.axes[-1].get_xlabel() == "bm25 top_score"
    title, explained = (text.get_text() for text in figure.texts)
    assert title == f"Gate on bm25 top_score, fitted to {OBJECTIVE} on 4 queries (2 need no retrieval)"
    assert explained == "curve: objective if queries that reach a threshold get 3 documents, others none"
    other = outcome(AutoGate(["top_score"], repeats=1), *many(30), objective="ndcg@3")  # no measure of the run
    assert not [words for words in said(drawn(other)) if "out of fold" in words]


@pytest.mark.parametrize("gate", GATES)
def test_every_query_is_counted_once_on_its_side_of_the_threshold(gate):
    known = outcome(gate(SIGNALS, folds=2, repeats=1), *many(400))
    figure = drawn(known)
    threshold = float(known.decision.fitted["rule"]["thresholds"][-1])
    keep, needs = known.decision.keep, known.scores.needs
    for panel, kind in zip(figure.axes[2:], (True, False), strict=True):
        edges, shown, withheld = bars(panel)
        assert shown.sum() == (keep & (needs == kind)).sum()
        assert withheld.sum() == (~keep & (needs == kind)).sum()
        assert edges[:-1][shown > 0].min(initial=math.inf) >= threshold - 1e-9
        assert edges[1:][withheld > 0].max(initial=-math.inf) <= threshold + 1e-9
        assert BINS <= len(shown) <= BINS + 2


@pytest.mark.parametrize(
    ("thresholds", "lines", "rows"),
    [
        ((8.0, 6.0, 4.0), {8, 6, 4}, ["1 document from 8", "2 documents from 6", "3 documents from 4"]),
        ((8.0, 8.0, 4.0), {8, 4}, ["1 document from 8", "2 documents never", "3 documents from 4"]),
        ((math.inf, 8.0, -math.inf), {8}, ["1 document never", "2 documents from 8", "3 documents from −∞"]),
        ((math.inf,) * 3, set(), ["1 document never", "2 documents never", "3 documents never"]),
    ],
)
def test_every_threshold_has_a_line_and_its_words(thresholds, lines, rows):
    known = outcome(AutoGate(["top_score"], repeats=1), *many(40))
    rule = Rule(((None, "query_words"),), 10, (1, 2, 3, 0), thresholds)
    fitted = {**known.decision.fitted, "rule": rule.to_json()}
    shown = rule.shown(known.decision.signal)
    figure = drawn(replace(known, decision=replace(known.decision, fitted=fitted, shown=shown)))
    assert all(verticals(panel) == lines for panel in figure.axes)
    assert [words for words in said(figure) if " document" in words] == rows
    assert figure.axes[-1].get_xlabel() == "query_words"
    assert not overlaps(figure)


LITTLE = [
    ([5.0] * 6, [True, False] * 3),
    ([5.0, 3.0], [True, False]),
    ([4.0, 5.0], [False, False]),
]
DEGENERATE = [
    ([5.0] * 30, [True] * 20 + [False] * 10),
    ([5.0] * 6, [True] * 6),
    ([3.0], [False]),
    ([4.0, 4.0, 5.0, 5.0, 6.0, 6.0] * 5, [False, False, True, False, True, True] * 5),
    ([*range(10, 39), 1e6, -1e6], [True, False, True] * 10 + [True]),
    ([5.0, 5.0 + 1e-15], [True, False]),
    ([1e300, -1e300, 1.0], [True, False, True]),
]


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_little_to_draw(gate):
    for scores, needs in LITTLE + (DEGENERATE if gate is AutoGate else []):
        known = outcome(gate(["top_score"], folds=3, repeats=1), list(map(float, scores)), needs)
        figure = drawn(known)
        assert not overlaps(figure), scores
        told = "".join(text.get_text() for text in figure.texts)
        assert all(note in told for note in known.decision.fitted["notes"]), scores


def test_what_lies_far_off_is_counted_at_the_end_and_said():
    scores = [*np.linspace(10, 20, 60), 1e6, -1e6, 2e6]
    needs = [False] * 30 + [True] * 33
    figure = drawn(outcome(AutoGate(["top_score"], repeats=1), scores, needs))
    low, high = figure.axes[0].get_xlim()
    assert -100 < low < high < 100
    assert "(3 queries beyond the ends of the axis are counted at the ends)" in figure.axes[-1].get_xlabel()
    assert counted(figure) == 63


def test_the_private_part_is_not_looked_at():
    """Learnt from the public part: no number and no query of the private one is drawn."""
    known = outcome(AutoGate(["top_score"], repeats=2), *many(100), public=True)
    figure = drawn(known, public=True)
    public = known.scores.in_public
    assert known.decision.fitted["learnt_from"]["queries"] == public.sum() == 40
    assert counted(figure) == 40
    mean = known.held_out.values[OBJECTIVE][public].mean()
    assert f"out of fold {mean:.4f}" in said(figure)
    assert "40 queries of the public part" in figure.texts[0].get_text()


# ---- Scored texts

NONE = Summary(math.nan, 0)
COUNTS = {"tp": 79.0, "fp": 68.0, "fn": 98.0, "fr": 414.0}
CORRECTIONS = {"correction_recall": Summary(0.3224, 245, 0.27, 0.38), "correction_precision": Summary(0.1408, 245)}
KINDS = {"조사 오류": (30, 0.25), "띄어쓰기": (120, 0.5), r"<b>$\frac{맞춤법$": (7, math.nan)}
BY_KIND = "correction_recall by kind (items)"


def scored_panels(by_kind, counts, summary=CORRECTIONS):
    """Title of a panel -> axes."""
    return {axes.get_title(): axes for axes in draw_scored(summary, by_kind, "correction_recall", counts).axes}


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def test_measures_have_their_values_and_whiskers():
    [axes] = scored_panels({}, {}, CORRECTIONS | {"bleurt": NONE}).values()
    assert axes.get_title() == "Measures with their 95 % intervals"
    assert rows(axes) == [*CORRECTIONS, "bleurt"]
    assert texts_of(axes) == ["0.3224", "0.1408", "absent"]
    whisker, dot = axes.lines[:2]
    assert (list(whisker.get_xdata()), list(dot.get_xdata())) == ([0.27, 0.38], [0.3224])
    colours = [label.get_color() for label in axes.get_yticklabels()]
    assert colours[0] == colours[1] != colours[2]
    assert axes.get_xlim() == (0, 1)
    # Counts have bars in the colours of their marks.
    axes = scored_panels({}, COUNTS | {"items": 1500.0})["Counts"]
    assert [bar.get_width() for bar in axes.patches] == [79, 68, 98, 414, 1500]
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches][:4] == list(MARKS.values())
    assert texts_of(axes) == ["79", "68", "98", "414", "1,500"]


def test_kinds_have_a_bar_each_the_most_frequent_first():
    axes = scored_panels(KINDS, COUNTS)[BY_KIND]
    assert rows(axes)[:2] == [shortened(kind, LONGEST) for kind in ("띄어쓰기", "조사 오류")]
    assert texts_of(axes) == ["0.5000 (120)", "0.2500 (30)", "none (7)"]
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.25, 0]
    assert BY_KIND not in scored_panels({"answer": (5, 0.3)}, {})  # a single kind is the measure itself
    axes = scored_panels({f"유형 {n}": (n, n / 100) for n in range(MOST + 5)}, COUNTS)[BY_KIND]
    assert axes.get_xlabel() == f"the {MOST} largest of {MOST + 5} kinds"
    assert rows(axes) == [shortened(f"유형 {n}", LONGEST) for n in range(MOST + 4, 4, -1)]


MANY_KINDS = {f"아주 긴 이름의 유형 {'가' * 40} {n}": (n, 1.0) for n in range(30)}


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "counts"), [({}, {}), (KINDS, COUNTS), (MANY_KINDS, COUNTS)])
def test_words_of_a_run_do_not_overlap(kinds, counts):
    measured = CORRECTIONS | {"a_rather_long_name_of_one": NONE}
    assert not overlaps(draw_scored(measured, kinds, "correction_recall", counts))


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
