"""What matters among runs: shares, means, maps, and what is said where runs cannot show it."""

from dataclasses import replace

import numpy as np
import pytest
from boards import made_run, made_runs

from harness.analysis.board.matters import REASONS, matters
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
    assert "Among the 6 runs that have it: retriever.bm25.k1." in found.table.notes
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


def test_keys_that_change_together_are_said_so():
    rows = [{"k1": k1, "b": b, "a": a} for k1, b in (("1", "2"), ("2", "3")) for a in "01"]
    lines = matters(board(rows, noisy([0.1, 0.2, 0.5, 0.6]))).table.notes
    assert "k1 and b were always changed together: their effects cannot be separated." in lines


def test_what_grows_by_construction_is_no_reason_to_go_beyond():
    rows = [{"dataset.chunk.size": size} for size in ("200", "400", "800")]
    grown = replace(board(rows, noisy([0.1, 0.2, 0.5])), metric="span_recall@3")
    [line] = [line for line in matters(grown).table.notes if line.startswith("dataset.chunk.size")]
    assert line.endswith("The measure grows with it by construction: no reason to go beyond.")
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


def test_nothing_to_compare():
    assert matters(board([{"gate": "none"}] * 2, noisy([0.1, 0.2]))) is None
    values = noisy([0.1, 0.2])
    values[0, ::2] = values[1, 1::2] = np.nan
    assert matters(board([{"gate": "none"}, {"gate": "auto"}], values)) is None


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


def test_an_interaction_is_said():
    found = matters(square([0.1, 0.5, 0.5, 0.1]))
    [pair] = found.groups[0].pairs
    assert {pair.first, pair.second} == {"a", "b"}
    assert pair.share.value > 0.9
    assert any("together" in line for line in found.table.notes)


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
    assert "a model of single keys fills in the others" in " ".join(found.table.notes)
