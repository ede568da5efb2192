"""What matters among runs: shares, means, maps, and what is said where runs cannot show it."""

from dataclasses import replace

import numpy as np
import pytest
from boards import made_run, made_runs

from harness.analysis.board.matters import REASONS, matters, plateau_of
from harness.analysis.board.settings import varied
from harness.analysis.ranking import RankedRun


def board(params, values, **parts):
    """Runs with these params and values by query, the best first."""
    values = np.array(values, float)
    base, order = made_runs(values.shape[1]), np.argsort(-np.nan_to_num(values).mean(axis=1), kind="stable")
    runs = []
    for number in order:
        one = made_run(int(number), "bm25", "none", 3, 0.0)
        runs.append(RankedRun(replace(one.run, params=params[number]), one.score, name=str(number)))
    return replace(base, runs=tuple(runs), values=values[order], losses=np.zeros(values.shape, np.int8), **parts)


def noisy(means, queries=40, seed=0):
    rng = np.random.default_rng(seed)
    return np.array(means)[:, None] + rng.normal(0, 0.05, (len(means), queries)) + rng.random(queries)


def keys(found):
    return {one.key.name: one for group in found.groups for one in group.keys}


def square(means, queries=40, **parts):
    """Every combination of two keys with two values each."""
    return board([{"a": a, "b": b} for a in "01" for b in "01"], noisy(means, queries), **parts)


def means_of(runs, **having):
    """The mean of each run with these settings."""
    pairs = zip(runs.values, runs.runs, strict=True)
    return [row.mean() for row, one in pairs if having.items() <= one.run.params.items()]


def test_a_full_grid_and_its_maps():
    """In a full grid a value's mean is that of its runs."""
    runs = made_runs(queries=100)
    found = matters(runs)
    [group] = found.groups
    assert group.whole
    assert group.beyond_chance
    assert [one.key.name for one in group.keys] == ["retriever", "gate", "top_k"]
    assert keys(found)["top_k"].alone.low == 0  # top_k has no effect
    assert [one.tells for one in group.keys] == [True, True, False]
    assert sum(one.alone.value for one in group.keys) == pytest.approx(1, abs=0.1)
    for one in group.keys:
        for level in one.levels:
            own = means_of(runs, **{one.key.name: level.value})
            assert (level.mean, level.best) == (pytest.approx(np.mean(own)), pytest.approx(max(own)))
            assert level.low <= level.mean <= level.high
            assert level.runs == len(own) == 24 / len(one.levels)
    values = {one.key.name: one.key.values for one in group.keys}
    assert len(found.maps) == 3
    for one in found.maps:
        for places in np.ndindex(one.means.shape):
            both = {one.first: values[one.first][places[0]], one.second: values[one.second][places[1]]}
            assert one.means[places] == pytest.approx(np.mean(means_of(runs, **both)))


def test_keys_of_some_runs_are_compared_among_them():
    rows = [{"retriever": "bm25", "retriever.bm25.k1": k1, "top_k": k} for k1 in "123" for k in "45"]
    rows += [{"retriever": "dense", "top_k": k} for k in "45"]
    means = [0.1 * int(one.get("retriever.bm25.k1", 0)) + 0.02 * int(one["top_k"]) for one in rows]
    found = matters(board(rows, noisy(means)))
    assert [(group.runs, [one.key.name for one in group.keys]) for group in found.groups] == [
        (8, ["retriever", "top_k"]),
        (6, ["retriever.bm25.k1"]),
    ]
    k1 = keys(found)["retriever.bm25.k1"]
    assert (k1.alone, k1.reason) == (None, "only")
    assert np.diff([level.mean for level in k1.levels]) == pytest.approx([0.1, 0.1], abs=0.02)
    assert "These keys are compared only among the 6 runs that have them: retriever.bm25.k1." in found.table.notes
    [both] = [one.means for one in found.maps if {one.first, one.second} == {"retriever", "retriever.bm25.k1"}]
    assert np.isnan(both).any()


def test_two_runs_have_no_importance_but_means():
    found = matters(board([{"gate": "none"}, {"gate": "auto"}], noisy([0.1, 0.2])))
    [one] = keys(found).values()
    assert (one.alone, one.total, one.reason) == (None, None, "only")
    assert one.levels[0].mean > one.levels[1].mean
    assert [row[0] for row in found.table.rows] == ["gate"]
    alike = matters(board([{"gate": "none"}, {"gate": "auto"}], noisy([0.1, 0.1]))).table
    assert (alike.rows, alike.notes) == ([], ["No clear effect: gate."])


def test_keys_that_are_not_told_apart():
    # The first two values of a meet the first two of b only, as do the last two: is a or b better in the latter?
    rows = [{"a": str(2 * part + a), "b": str(2 * part + b), "c": c}
            for part in (0, 1) for a in (0, 1) for b in (0, 1) for c in "01"]  # fmt: skip
    found = matters(board(rows, noisy([0.1 * int(one["a"]) + 0.02 * int(one["c"]) for one in rows])))
    assert {name: one.reason for name, one in keys(found).items()} == {"a": "mixed", "b": "mixed", "c": ""}
    assert keys(found)["a"].levels[3].mean - keys(found)["a"].levels[0].mean == pytest.approx(0.3, abs=0.05)
    assert f"Unknown, since {REASONS['mixed']}: a, b." in " ".join(found.table.notes)


def test_five_keys_are_shown_at_most_and_one_line_is_for_the_others():
    names = "abcdefgh"  # a matters most, g and h not at all
    rows = [dict(zip(names, format(number, "08b"), strict=True)) for number in range(256)]
    weights = dict(zip(names, (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0, 0), strict=True))
    shown = matters(board(rows, noisy([sum(weights[n] * int(one[n]) for n in names) for one in rows]))).table
    assert [row[0] for row in shown.rows] == [*"abcde"]
    assert shown.notes[-1].startswith("Smaller shares: f")
    assert "No clear effect: " in shown.notes[-1]


def test_what_grows_by_construction_is_no_reason_to_go_beyond():
    rows = [{"dataset.chunk.size": size} for size in ("200", "400", "800")]
    grown = replace(board(rows, noisy([0.1, 0.2, 0.5])), metric="span_recall@3")
    [line] = [line for line in matters(grown).table.notes if line.startswith("dataset.chunk.size")]
    assert line.endswith("By construction, the measure rises with the key: larger values would show nothing.")
    plain = matters(replace(grown, metric="span_precision@3")).table.notes
    assert any(line.endswith("800 is the greatest value tried: go beyond it.") for line in plain)


def test_importance_needs_runs_queries_and_differences():
    def reasons(runs):
        return {one.reason for one in keys(matters(runs)).values()}

    few = [{"a": a, "b": b, "c": c} for a, b, c in ("000", "101", "011")]
    assert reasons(board(few, noisy([0.1, 0.2, 0.3]))) == {"runs"}
    assert reasons(square([1, 2, 3, 4], queries=9)) == {"queries"}
    assert reasons(replace(square([1, 2, 3, 4]), values=np.tile(np.linspace(0, 1, 20), (4, 1)),
                           public=np.ones(20, bool))) == {"same"}  # fmt: skip
    assert matters(board([{"gate": "none"}] * 2, noisy([0.1, 0.2]))) is None  # no key varies
    apart = noisy([0.1, 0.2])
    apart[0, ::2] = apart[1, 1::2] = np.nan
    assert matters(board([{"gate": "none"}, {"gate": "auto"}], apart)) is None  # no query counts in both
    one = keys(matters(square([1, 2, 3, 4], queries=1)))["a"]
    assert one.reason == "queries"
    assert np.isnan(one.levels[0].low)


def test_files_have_no_say_and_settings_that_change_nothing_have():
    params = [{"retriever": "bm25", "retriever.bm25.k1": k1} for k1 in ("1", "2", "3")]
    runs = board(params, noisy([0.5, 0.6, 0.7]))
    best, *others = runs.runs
    same = replace(best.run, run_id="same", params=best.run.params | {"retriever.bm25.k1": "4"})
    scored = {"predictions": "first.csv", "retriever.bm25.k1": "9"}
    file = replace(best.run, run_id="file", params=scored, tags={"harness.verb": "score"})
    own = replace(runs, runs=(replace(best, also=(same, file)), *others))
    [key] = keys(matters(own)).values()
    assert [(level.value, level.runs) for level in key.levels] == [("1", 1), ("2", 1), ("3", 1), ("4", 1)]
    assert key.levels[2].mean == pytest.approx(key.levels[3].mean)
    alone = replace(runs, runs=tuple(replace(one, run=replace(file, run_id=one.run.run_id)) for one in runs.runs))
    assert matters(alone) is None


def test_queries_without_a_value_are_left_out_and_the_public_ones_choose():
    runs = square([0.1, 0.2, 0.3, 0.5])
    runs.values[1, :4] = np.nan
    found = matters(runs)
    assert (found.queries, found.left_out) == (36, 4)
    assert "Left out: 4 queries without a value in some run." in found.table.notes
    part = np.arange(40) < 24
    chosen = matters(replace(runs, public=part, select_on="public"))
    assert (chosen.queries, chosen.left_out) == (20, 4)
    kept = matters(replace(runs, values=runs.values[:, 4:24], public=np.ones(20, bool)))
    assert keys(chosen)["a"].alone == keys(kept)["a"].alone


def test_keys_that_matter_together_or_change_together_are_said_so():
    found = matters(square([0.1, 0.5, 0.5, 0.1]))
    [pair] = found.groups[0].pairs
    assert {pair.first, pair.second} == {"a", "b"}
    assert pair.share.value > 0.9
    assert any("together" in line for line in found.table.notes)
    rows = [{"k1": k1, "b": b, "a": a} for k1, b in (("1", "2"), ("2", "3")) for a in "01"]
    lines = matters(board(rows, noisy([0.1, 0.2, 0.5, 0.6]))).table.notes
    assert "k1 and b were always changed together: their effects cannot be separated." in lines


def test_a_search_says_what_stands_for_the_rest():
    rng = np.random.default_rng(1)
    names = ("gate.threshold", "fusion.k")
    rows = [{"retriever": "ab"[number % 2]} | {name: str(rng.random()) for name in names} for number in range(60)]
    means = [0.5 - abs(float(one["gate.threshold"]) - 0.5) + (one["retriever"] == "a") * 0.05 for one in rows]
    found = matters(board(rows, noisy(means)))
    [group] = found.groups
    assert not group.whole
    assert group.keys[0].key.name == "gate.threshold"
    assert group.keys[0].plateau.along == "average"
    assert 0 < group.keys[0].plateau.best < len(group.keys[0].plateau.values) - 1
    assert "A model of single keys fills in their scores" in " ".join(found.table.notes)


# ---- Plateau or spike around the best value of a number

NOISE = np.array([0.1, -0.1] * 10)  # by query: a difference of standard deviation .1 has the standard error .0229


def shape(scores, others=None, averages=None):
    """scores: value -> mean."""
    rows = sorted(scores, key=lambda value: -scores[value])
    made = varied([{"top_k": str(value), **(others or {}).get(value, {})} for value in rows])
    values = np.array([scores[value] + (NOISE if value % 2 else -NOISE) / 2 for value in rows])
    return plateau_of(made[0], made, values, averages)


def test_a_plateau_ends_where_a_value_is_more_than_a_standard_error_below():
    # 5 is the best; 4 and 6 are .01 below, 7 .02: within the error of .0229 of odd against even values, 0 of alike ones
    found = shape({3: 0.5, 4: 0.79, 5: 0.8, 6: 0.79, 8: 0.6})
    assert (found.values[found.low], found.values[found.high], found.values[found.best]) == ("4", "6", "5")
    assert found.shape == "plateau"
    assert found.error[1] == pytest.approx(0.1 / np.sqrt(19))
    assert found.sentence("top_k") == "top_k: plateau from 4 to 6, best at 5; 8 is 0.2000 below."


@pytest.mark.parametrize(
    ("scores", "kind", "end", "sentence"),
    [
        ({4: 0.7, 5: 0.8, 6: 0.6}, "spike", "", "spike at 5 alone; 4 is 0.1000 below."),
        ({4: 0.5, 5: 0.8, 6: 0.5, 7: 0.8}, "spike", "", "spike at 5 alone; 4 is 0.3000 below."),
        ({4: 0.79, 5: 0.8, 6: 0.79}, "flat", "",
         "from 4 to 6, scores differ no more than by chance, with all else as in the best run."),
        ({4: 0.8, 5: 0.7, 6: 0.6}, "spike", "least",
         "spike at 4 alone; 5 is 0.1000 below. 4 is the least value tried: go beyond it."),
        ({4: 0.6, 5: 0.7, 6: 0.8}, "spike", "greatest",
         "spike at 6 alone; 5 is 0.1000 below. 6 is the greatest value tried: go beyond it."),
    ],
)  # fmt: skip
def test_the_shape_in_words(scores, kind, end, sentence):
    found = shape(scores)
    assert (found.shape, found.at_end, found.sentence("top_k")) == (kind, end, f"top_k: {sentence}")


def test_a_best_value_within_chance_is_no_spike():
    found = shape({4: 0.76, 5: 0.8, 6: 0.76})  # .04 below, 1.7 standard errors
    assert (found.shape, found.clear, found.at_end) == ("spike", False, "")
    assert found.sentence("top_k") == (
        "top_k: from 4 to 6, scores differ no more than by chance, with all else as in the best run."
    )
    assert shape({4: 0.75, 5: 0.8, 6: 0.75}).clear


def test_runs_that_differ_in_nothing_else_are_compared_or_else_averages_over_other_keys():
    others = {value: {"gate": "none" if value < 7 else "auto"} for value in (4, 5, 6, 7)}
    assert shape({4: 0.5, 5: 0.8, 6: 0.7, 7: 0.2}, others).values == ("4", "5", "6")
    others = {value: {"gate": f"kind{value}"} for value in (4, 5, 6)}
    averages = np.array([[0.5], [0.8], [0.6]]) + np.zeros((1, 20))
    found = shape({4: 0.5, 5: 0.8, 6: 0.6}, others, averages)
    assert found.along == "average"
    assert found.sentence("top_k").endswith("spike at 5 alone; 6 is 0.2000 below, on average over the other keys.")
    assert shape({4: 0.5, 5: 0.8, 6: 0.6}, others) is None


def test_names_and_two_values_have_no_shape():
    assert shape({4: 0.5, 5: 0.8}) is None
    made = varied([{"gate": name} for name in "abc"])
    assert plateau_of(made[0], made, np.ones((3, 5)), None) is None
