"""What people see of a sweep: the best trial, the Pareto front, the table, and lines while it runs."""

import contextlib
import csv
import dataclasses
import io
import json
import math

import pytest
from ended_trials import append, ended
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.analysis.board.expected import Expected
from harness.measures.objective import Objective
from harness.reports.next_steps import SAMPLE, Place
from harness.reports.report import show_report
from harness.reports.tables import Number
from harness.storage.typed import encoded
from harness.sweeps import report
from harness.sweeps.plan import SweepObjective, Trial
from harness.sweeps.report import watch_trials, write_sweep_files
from harness.sweeps.summary import SweepSummary, objective_values
from harness.sweeps.trial_log import TrialLog
from harness.sweeps.trials import Context, TrialResult, claim_sweep
from harness.tracking.tracker import Tracker, measured

ONE = [SweepObjective("mrr", "maximize")]
TWO = [*ONE, SweepObjective("ms_per_query", "minimize")]
MAP = [SweepObjective("map@3", "maximize")]
PLACE = Place({"tracking": {}, "outputs": "outputs", "experiment_name": "e"}, {})


def finished(number, metrics, name="mrr", select_on="all"):
    """A finished trial with these metrics, by MLflow's names, and what they say of its objective."""
    objective = measured(metrics, name, select_on)
    return TrialResult(number, f"key{number}", f"run{number}", "FINISHED", metrics, 0.5, objective=objective)


def summary(rows, objectives=ONE, words=None, skipped=(), select_on="all"):
    """rows: metrics of each trial by MLflow's names; "FAILED", "KILLED", or None for one without a result."""
    trials = {n: Trial(n, tuple(words[n]) if words else (f"x={n}",)) for n in range(len(rows))}
    results = {}
    for n, row in enumerate(rows):
        if isinstance(row, dict):
            results[n] = finished(n, row, objectives[0].name, select_on)
        elif row:
            results[n] = TrialResult(n, f"key{n}", f"run{n}", row, error="ValueError: no" if row == "FAILED" else "")
    return SweepSummary("abc", "parent", "e", trials, results, set(skipped), objectives, select_on)


def test_the_best_is_the_greatest():
    # 1 and 3 are equal, neither is in a middle, and 1 came first; 4 failed, 5 was killed, 6 has no number, 7 no result.
    found = summary([{"mrr": 0.5}, {"mrr": 0.75}, {"mrr": 0.25}, {"mrr": 0.75}, "FAILED", "KILLED", {}, None])
    assert found.best == 1
    assert found.finished == [1, 3, 0, 2]
    assert summary([{"mrr": 0.0}]).best == 0
    assert summary(["FAILED", {}, None]).best is summary([]).best is None
    # MLflow's spelling: map@3 is logged as map_at_3.
    assert summary([{"map_at_3": 0.1}, {"map_at_3": 0.2}], MAP).best == 1


def test_the_front_of_two_objectives():
    # mrr up, ms_per_query down. 0 (.9, 9) is the best in mrr, 3 (.2, 1) the quickest, 1 (.5, 3) lies between.
    # 2 (.5, 4) is as good as 1 and slower; 4 (.4, 3) as quick and worse; 5 is 1 again, and neither beats the other.
    rows = [(0.9, 9), (0.5, 3), (0.5, 4), (0.2, 1), (0.4, 3), (0.5, 3)]
    found = summary([{"mrr": a, "ms_per_query": b} for a, b in rows] + [{"mrr": 0.1}, "FAILED"], TWO)
    assert (found.front, found.best) == ([0, 1, 5, 3], 0)  # the best first, and none without the second number
    # With one objective it is the best and its equals.
    assert summary([{"mrr": 0.5}, {"mrr": 0.75}, {"mrr": 0.75}]).front == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_the_front_by_comparing_all_pairs(rows):
    found = summary([{"mrr": a, "ms_per_query": b} for a, b in rows], TWO)

    def beats(p, q):
        return p[0] >= q[0] and p[1] <= q[1] and p != q

    assert sorted(found.front) == [n for n, row in enumerate(rows) if not any(beats(other, row) for other in rows)]


def test_counts():
    # 0 and 1 finished, 0 at an earlier start; 2 failed; 3 was killed; 4 has no result yet.
    found = summary([{"mrr": 0.5}, {"mrr": 0.6}, "FAILED", "KILLED", None], skipped=["key0", "elsewhere"])
    assert found.counts() == {"asked": 5, "finished": 2, "failed": 1, "killed": 1, "skipped": 1, "reused": 0, "same": 0}
    # Two trials with the same key are one result; those that cannot run have no key, and are not the same.
    found.results[1] = found.results[0]
    found.results[2] = found.results[3] = TrialResult(2, "", None, "FAILED")
    assert (found.counts()["same"], found.counts()["failed"]) == (1, 2)


def test_axes_are_numbers_where_all_values_are():
    words = [("k=1", "name='가, 나'", "mixed=1", "e=1e-3"), ("k=2.5", "name=b", "mixed=null", "e=2"),
             ("k=-3", "name=\"c=d\"", "mixed=3", "e=.5")]  # fmt: skip
    assert summary([None] * 3, words=words).axes() == {
        "k": [1.0, 2.5, -3.0], "name": ["가, 나", "b", "c=d"], "mixed": ["1", "null", "3"], "e": [0.001, 2.0, 0.5],
    }  # fmt: skip


def test_the_table_has_a_row_for_each_trial():
    rows = [{"mrr": 0.5, "interval_low/mrr": 0.25, "interval_high/mrr": 0.75}, "FAILED", None]
    found = summary(rows, words=[("k=1",), ("k=2",), ("k=3",)])
    assert " ".join(found.table()) == "trial status mrr low high kind k seconds reused run_id error"
    assert [*zip(*found.table().values(), strict=True)] == [
        (0, "FINISHED", 0.5, 0.25, 0.75, "in sample", 1.0, 0.5, False, "run0", ""),
        (1, "FAILED", None, None, None, "", 2.0, 0.0, False, "run1", "ValueError: no"),
        (2, "", None, None, None, "", 3.0, None, False, None, ""),
    ]


def test_the_parent_carries_the_best():
    found = summary([{"mrr": 0.5, "ndcg_at_10": 0.1}, {"mrr": 0.75, "ndcg_at_10": 0.2}, "FAILED"])
    assert found.parent_metrics()["ndcg_at_10"] == 0.2
    tags = found.parent_tags({"": "#/runs?x=1"})
    assert (tags["best.trial"], tags["best.overrides"], tags["sweep.page"]) == ("1", "x=1", "#/runs?x=1")
    assert "(#/runs?x=1)" in tags["mlflow.note.content"]
    assert "nan" not in json.dumps(tags), "the best has no interval"
    assert summary(["FAILED"]).parent_tags({}) == {}


def said_of(found, place=PLACE):
    document = found.document() | {"files": {"folder": "f"}, "seconds": 1.25, "private_peeks": 7}
    json.dumps(encoded(document), allow_nan=False)
    return report.sweep_report(found, document, place, ["x=1,2"])


def test_what_is_shown():
    rows = [{"mrr": n / 100, "interval_low/mrr": n / 200, "interval_high/mrr": 1.0} for n in range(12)] + ["FAILED"]
    found = summary(rows, words=[(f"k={n}", "name='[b]한글'") for n in range(13)])
    found.results[2] = dataclasses.replace(found.results[2], reused=True)
    said, [best] = said_of(found), said_of(found).tables
    assert said.title == "Sweep abc: 13 trials (12 finished, 1 failed, 1 reused), 1.2 s."
    assert best.notes == ["Ranked by mrr, in sample.", "2 more in trials.csv", "* reused: an earlier run"]
    assert [one.name for one in best.columns] == ["", "value", "k", "name", "run"]
    assert best.rows[0] == [1, Number(0.11, 0.055, 1.0), "11", "[b]한글", "run11"]
    assert [row[0] for row in best.rows] == [*range(1, 11)]
    assert (best.rows[-1][-1], said.notes) == ("run2 *", ["failed: k=12 name='[b]한글': ValueError: no"])
    assert said.steps == ["harness ui experiment_name=e", "harness export experiment_name=e run=run11"]
    out = io.StringIO()
    show_report(Console(file=out, width=200, highlight=False, markup=False), said)
    assert "[b]한글" in out.getvalue(), "text in square brackets is no markup"


def test_the_sample_is_told_apart_from_a_dataset_that_is_here(toy, monkeypatch):
    monkeypatch.chdir(toy.parent)
    place = dataclasses.replace(PLACE, config={**PLACE.config, "dataset": {"_target_": SAMPLE}})
    first, *_ = said_of(summary([{"mrr": 0.5}, "FAILED"]), place).notes
    assert first.startswith("Data: The shipped sample. toy/documents.jsonl and toy/eval.jsonl are here, too: ")


def apart(values, words, data, rules=None):
    """A summary of trials that are scored on `data` by `rules`, one letter for each trial."""
    found = summary([{"mrr": value} for value in values], words=words)
    for n, trial in found.trials.items():
        trial.data, trial.rules = data[n], (rules or "r" * len(data))[n]
    return found.grouped()


BOTH = [("set=A", "k=1"), ("set=A", "k=2"), ("set=B", "k=1"), ("set=B", "k=2")]


def test_nothing_is_the_best_of_trials_that_do_not_compare():
    found = apart([0.9, 0.8, 0.1, 0.3], BOTH, "aabb")
    assert (found.best, found.finished, found.front) == (None, [], [])
    assert [(one.label, one.best, one.finished) for one in found.groups] == [("set=A", 0, [0, 1]), ("set=B", 3, [3, 2])]
    # k=1 has (.9 + .1) / 2, k=2 (.8 + .3) / 2.
    assert [(one.name, one.values) for one in found.systems] == [("k=2", (0.8, 0.3)), ("k=1", (0.9, 0.1))]
    assert [system.mean for system in found.systems] == pytest.approx([0.55, 0.5])
    assert found.groups[0].axes() == {"k": [1.0, 2.0]}
    document = encoded(found.document())
    assert (document["best"], document["top"], document["expected"]) == (None, [], None)
    assert "mrr" not in found.parent_metrics()
    tags = found.parent_tags({"set=A": "#/a", "set=B": "#/b"})
    assert "best.run_id" not in tags
    for said in ("Trials that differ in set are not comparable", "0.5500 with k=2", "](#/a)", "](#/b)"):
        assert said in tags["mlflow.note.content"]
    said = said_of(found)
    assert said.steps[-1] == "harness export experiment_name=e run=run3  # the best with set=B"
    assert said.tables[-1].rows[0] == [0.8, 0.3, pytest.approx(0.55), "k=2"]


def test_a_data_set_without_the_keys_of_another_is_a_group_of_its_own():
    words = [("set=A", "k=1"), ("set=A", "k=2"), ("set=B", "path=p", "k=1"), ("set=B", "path=p", "k=2"),
             ("set=B", "path=q", "k=1"), ("set=B", "path=q", "k=2")]  # fmt: skip
    found = apart([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], words, "aabbcc")
    assert [group.label for group in found.groups] == ["set=A", "set=B path=p", "set=B path=q"]
    assert "differ in set or path are not comparable: they form 3 groups" in " ".join(found.notes)
    assert [system.mean for system in found.systems] == pytest.approx([0.4, 0.3])
    assert found.axes() == {"set": ["A", "A", "B", "B", "B", "B"], "path": [None, None, "p", "p", "q", "q"],
                            "k": [1.0, 2.0] * 3}  # fmt: skip


def test_other_rules_have_no_mean_and_the_same_data_are_one_group():
    schemes = apart([0.9, 0.8, 0.1, 0.3], BOTH, "aaaa", "ttss")
    assert [system.name for system in schemes.systems] == ["k=1", "k=2"]  # as they were tried
    assert all(math.isnan(system.mean) for system in schemes.systems)
    assert [one.name for one in said_of(schemes).tables[-1].columns][2:] == ["system"]
    assert not [name for name in schemes.parent_metrics() if "mean" in name]
    assert apart([0.9, 0.8, 0.1, 0.3], BOTH, "aaaa").best == 0  # two names of one data set
    # Without one of its trials, a system has no mean.
    lacking = apart([0.9, 0.8, 0.1], BOTH[:3], "aab")
    assert [(system.name, system.mean > 0) for system in lacking.systems] == [("k=1", True), ("k=2", False)]


def test_ties_are_told():
    found = summary([{"mrr": value} for value in (0.2, 0.7, 0.7, 0.7, 0.1)])
    said = "3 trials tie at 0.7000: x 1 to 3. Recommended: x=2, in the middle."
    assert (found.best, encoded(found.document())["tied"], found.notes) == (2, [1, 2, 3], [said])
    assert said in said_of(found).tables[0].notes
    assert said in found.parent_tags({})["mlflow.note.content"]


def test_what_is_shown_of_two_objectives():
    rows = [(0.9, 9.0), (0.5, 3.0), (0.5, 4.0)]
    best, front = said_of(summary([{"mrr": a, "ms_per_query": b} for a, b in rows], TWO)).tables
    assert [one.name for one in best.columns][1:3] == ["mrr", "ms_per_query"]
    assert front.rows == [[0.9, 9.0, "x=0"], [0.5, 3.0, "x=1"]]
    # A column says the kind of value where trials differ in it.
    [best] = said_of(summary([RANKED, PLAIN], MAP)).tables
    assert best.notes[0] == "Ranked by map@3, in sample or out of fold."
    assert [one.name for one in best.columns] == ["", "value", "kind", "x", "run"]
    assert [row[2] for row in best.rows] == ["in sample", "out of fold"]


def test_what_is_shown_where_nothing_finished_or_nothing_is_logged():
    said = said_of(summary(["FAILED", "KILLED"]))
    assert "2 trials (1 failed, 1 killed)" in said.title
    assert said.steps == ["harness ui experiment_name=e"]
    unlogged = dataclasses.replace(summary([{"mrr": 0.5}]), run_id=None)
    unlogged.results[0] = dataclasses.replace(finished(0, {"mrr": 0.5}), run_id=None)
    said = said_of(unlogged)
    assert (said.tables[0].rows[0][-1], said.steps) == ("trial 0", [])


def test_files_hold_all_trials_in_utf8(tmp_path):
    found = summary([{"mrr": 0.5}, "FAILED"], words=[("name='가, 나'",), ("name=b",)])
    folder = write_sweep_files(found, tmp_path / "summary")
    with (folder / "trials.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["name"], row["mrr"], row["status"]) for row in csv.DictReader(file)]
    assert rows == [("가, 나", "0.5", "FINISHED"), ("b", "", "FAILED")]
    document = json.loads((folder / "summary.json").read_text("utf-8"))
    assert document["best"] == {
        "trial": 0, "run_id": "run0", "reused": False, "overrides": ["name='가, 나'"], "value": 0.5,
        "interval": [None, None], "kind": "in sample", "objectives": {"mrr": 0.5},
    }  # fmt: skip
    assert document["failed"] == [{"trial": 1, "overrides": ["name=b"], "error": "ValueError: no"}]
    for name, one, drawn in (
        ("summary", found, ["objective"]),
        ("two", summary([{"mrr": 0.5, "ms_per_query": 1.0}] * 2, TWO), ["front", "objective"]),
        ("nothing", summary(["FAILED"]), []),
        ("groups", apart([0.9, 0.8, 0.1, 0.3], BOTH, "aabb"), ["objective-0", "objective-1"]),
    ):
        written = {path.name for path in write_sweep_files(one, tmp_path / name).iterdir()}
        assert written == {"trials.csv", "summary.json", *(f"{figure}.png" for figure in drawn)}


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_line_for_each_trial_and_a_log_counts(terminal, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(report, "watch", lambda label: contextlib.nullcontext(lambda *state: seen.append(state)))
    monkeypatch.setattr(report.sys.stderr, "isatty", lambda: terminal)
    context = Context("abc", "e", tmp_path, claim_sweep(tmp_path), {})
    append(context, ended(5, "f"))  # of an earlier batch: not told again
    (log := TrialLog(Tracker(), context)).read()
    known = [finished(4, {"mrr": 0.375}), TrialResult(5, "b", None, "FAILED")]
    trials = {n: Trial(n, (f"k={n}", "name=달")) for n in range(6)}
    with watch_trials(log, known, 5, trials):
        append(context, ended(0, "a", objective=Objective("mrr", 0.25)))
        append(dataclasses.replace(context, token="another"), ended(2, "c", objective=Objective("mrr", 0.125)))
        append(context, ended(1, "b", "FAILED"))
        append(context, ended(2, "c", objective=Objective("mrr", 0.5)))
    if terminal:
        assert capsys.readouterr().err.splitlines() == [
            "[3/5] mrr 0.2500  best 0.3750  k=0 name=달",
            "[4/5] FAILED  k=1 name=달",
            "[5/5] mrr 0.5000  best 0.5000  k=2 name=달",
        ]
    else:
        assert seen[-1] == (5, 5, "trials")


# ---- what trials are ranked by

RANKED = {
    "map_at_3": 0.9, "interval_low/map_at_3": 0.8, "interval_high/map_at_3": 1.0, "public/map_at_3": 0.7,
    "oof/map_at_3": 0.5, "oof/interval_low/map_at_3": 0.4, "oof/interval_high/map_at_3": 0.6,
    "oof/public/map_at_3": 0.3, "ms_per_query": 2.0, "loss/misranked": 0.25, "oof/loss/misranked": 0.125,
}  # fmt: skip
PLAIN = {name: value for name, value in RANKED.items() if not name.startswith("oof/")}


def public(rows, **more):
    return summary(rows, MAP, select_on="public", **more)


def test_values_and_intervals_are_of_what_trials_are_ranked_by():
    found = summary([RANKED, PLAIN], MAP)
    assert (found.rows[0].values, found.rows[1].values) == ([0.5], [0.9])
    assert (found.rows[0].interval, found.rows[1].interval) == ((0.4, 0.6), (0.8, 1.0))
    assert (found.best, found.finished) == (1, [1, 0])
    chosen = public([RANKED, PLAIN])
    assert (chosen.rows[0].values, chosen.rows[1].values) == ([0.3], [0.7])
    assert all(math.isnan(end) for n in (0, 1) for end in chosen.rows[n].interval)  # a run of 0.2 has none there
    assert encoded(chosen.document())["best"]["interval"] == [None, None]
    assert [found.rows[n].kind for n in (0, 1)] == ["out of fold", "in sample"]
    assert [chosen.rows[n].kind for n in (0, 1)] == ["public, out of fold", "public"]
    assert chosen.table()["map@3"] == [0.3, 0.7]


def test_objectives_that_are_no_measures_have_no_public_part():
    objectives = [*MAP, SweepObjective("ms_per_query", "minimize"), SweepObjective("loss/misranked", "minimize")]
    for metrics, part, expected in (
        (RANKED, "public", [0.3, 2.0, 0.125]),
        (RANKED, "all", [0.5, 2.0, 0.125]),
        (PLAIN, "public", [0.7, 2.0, 0.25]),
    ):
        assert objective_values(finished(0, metrics, "map@3", part), objectives, part) == expected
    assert all(map(math.isnan, objective_values(finished(0, {}, "map@3"), objectives, "all")))


def test_looks_at_private_scores():
    # Three finished, one of them at an earlier start; one failed.
    rows = [PLAIN, RANKED, PLAIN, "FAILED"]
    found, chosen = summary(rows, MAP, skipped=["key0"]), public(rows, skipped=["key0"])
    assert (found.private_views, chosen.private_views) == (2, 1)
    assert public(["FAILED"]).private_views == summary(["FAILED"], MAP).private_views == 0
    told = [" ".join(said_of(one).notes) for one in (found, chosen, dataclasses.replace(chosen, run_id=None))]
    assert ["of experiment 'e' have been seen 7 times" in notes for notes in told] == [False, True, False]


def test_what_to_expect_is_reported_with_the_best_trial():
    plain = summary([RANKED, PLAIN], MAP)
    expected = Expected("map@3", plain.results[0].run_id, 0.9, 0.8, 0.7, 0.85, "replay", 2, 2)
    found = dataclasses.replace(plain, expected=expected)
    metrics = found.parent_metrics()
    assert [metrics[f"expected/{name}"] for name in ("value", "low", "high")] == [0.8, 0.7, 0.85]
    assert expected.sentence in found.parent_tags({})["mlflow.note.content"]
    assert encoded(found.document())["expected"] == encoded(expected)
    assert found.expectation == [expected.sentence]
    assert expected.sentence in said_of(found).tables[0].notes
    other = dataclasses.replace(found, expected=dataclasses.replace(expected, run_id="0123456789abcdef"))
    assert other.expectation[0] == "The experiment's best run, 01234567 (at 0.9000), is not in this sweep."
    assert (encoded(plain.document())["expected"], plain.expectation) == (None, [])
