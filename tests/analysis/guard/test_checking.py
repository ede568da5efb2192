"""Two snapshots compared: outcomes, changed data, bounds, and what is shown."""

import xml.etree.ElementTree as Xml
from dataclasses import replace

import pytest

from harness.analysis.guard.checking import Known, SliceRule, bounds_of, check_snapshots
from harness.analysis.guard.snapshot import QueryResult, Snapshot
from harness.errors import BadInput

REPLACED = "\N{REPLACEMENT CHARACTER}"
DATA = {"documents": "d", "queries": "q", "qrels": "l"}


def snapshot(values, docs=("d1", "d2", "d3"), data=DATA, **fields):
    """values: the value of each query; its id is its place."""
    rows = {f"{place:03}": QueryResult("same", [one], docs) for place, one in enumerate(values)}
    known = {
        "name": "bm25",
        "run_id": None,
        "version": "1",
        "predictions": str(values),
        "out_of_fold": False,
        "settings": {"k1": "1.5"},
    }
    return Snapshot(**known | {"measures": ["map@3"], "data": data, "queries": rows} | fields)


def check(old, new, margin=0.02, **more):
    return check_snapshots(old, new, ["map@3"], margin, **more)


def test_the_same_lists_hold_however_few():
    found = check(snapshot([1.0, 0.5]), snapshot([1.0, 0.5]))
    assert (found.outcome, found.queries, found.lost) == ("holds", 2, [])
    assert found.report.verdict == ["The run returned the same documents as the baseline for all 2 queries."]
    found.require()


@pytest.mark.parametrize(
    ("top_k", "docs", "outcome"),
    [("3", ("d1", "d2", "d3"), "holds"), ("4", ("d1", "d2", "d3"), "cannot tell"), ("3", ("d1", "d2"), "cannot tell")],
)
def test_the_same_lists_for_the_queries_that_are_left_hold(top_k, docs, outcome):
    """A query is new, so the runs as wholes differ. A snapshot has the first three documents of each query."""
    old, new = (
        snapshot([1.0, 0.5], settings={"top_k": top_k}),
        snapshot([1.0, 0.5, 0.0], docs, settings={"top_k": top_k}),
    )
    found = check(old, replace(new, data=DATA | {"queries": "others"}))
    assert (found.outcome, found.queries) == (outcome, 2)


def test_what_lost_most_and_what_came_instead():
    old = snapshot([1.0] * 60, settings={"k1": "1.5"})
    new = snapshot([0.0, 0.5] + [0.25] * 10 + [1.0] * 48, docs=("d4", "d2", "d1"), settings={"k1": "5"})
    found = check(old, new, known=Known({"000": "why?"}, {"000": {"d1": 2.0}}, {}))
    assert found.outcome == "regressed"
    # (0 + 0.5 + 10 · 0.25 + 48) / 60 = 0.85
    assert "Regressed: map@3 went from 1.0000 to 0.8500: -0.150 (95 % " in str(found)
    assert len(found.lost) == 10
    first = found.lost[0]
    assert (first.query_id, first.text, first.before, first.after) == ("000", "why?", 1.0, 0.0)
    assert (first.docs_before, first.docs_after, first.relevant) == (("d1", "d2", "d3"), ("d4", "d2", "d1"), ["d1"])
    assert found.settings == {"k1": ["1.5", "5"]}
    with pytest.raises(AssertionError, match="Regressed: bm25 against the baseline bm25"):
        found.require()


def test_an_undecided_check_says_how_many_queries_are_needed():
    found = check(snapshot([1.0] * 4), snapshot([1.0, 1.0, 1.0, 0.5]))
    assert found.outcome == "cannot tell"
    [said] = found.report.verdict
    assert said.startswith("Cannot tell: map@3 went from 1.0000 to 0.8750: -0.125")
    assert "on 4 queries, of which only 1 differs. A drop" in said
    assert "A drop of 0.02 is not ruled out; for that, about " in said


def test_a_slice_that_regresses_is_found_under_a_mean_that_holds():
    # 60 of 300 queries are Korean: 12 of them lose 0.5, while 40 of the others gain 0.5. The mean gains 14 / 300.
    old = snapshot([0.5] * 300)
    new = snapshot([0.0] * 12 + [0.5] * 48 + [1.0] * 40 + [0.5] * 200)
    lang = {f"{place:03}": "ko" if place < 60 else "en" for place in range(300)}
    known = Known({}, {}, {"lang": lang})
    assert check(old, new).outcome == "holds"
    found = check(old, new, known=known, rule=SliceRule(["lang"]))
    assert found.outcome == "regressed"
    assert {one.measure: one.outcome for one in found.slices} == {
        "map@3 where lang=en": "holds",
        "map@3 where lang=ko": "regressed",
    }
    assert [line.split(":")[0] for line in found.report.verdict] == ["Holds", "Regressed"]
    english, korean = (one.difference for one in found.slices)
    assert (english.p_holm, korean.p_holm) == (2 * english.p, korean.p)  # Holm: the smaller p counts twice


def test_an_undecided_slice_counts_only_with_a_margin_for_slices():
    old, new = snapshot([1.0] * 400), snapshot([1.0] * 399 + [0.9])
    known = Known({}, {}, {"lang": {f"{place:03}": "ko" if place < 390 else "en" for place in range(400)}})
    for margin, outcome in ((None, "holds"), (0.02, "cannot tell")):
        found = check(old, new, known=known, rule=SliceRule(["lang"], margin))
        assert found.outcome == outcome
        assert [one.outcome for one in found.slices] == ["cannot tell", "holds"]
        assert len(Xml.fromstring(found.junit("fail")).findall(".//failure")) == (margin is not None)
    with pytest.raises(BadInput, match="no attribute 'lagn'"):
        check(old, new, known=known, rule=SliceRule(["lagn"]))


def test_only_queries_that_did_not_change_are_compared():
    old = snapshot([1.0] * 5)
    new = snapshot([1.0] * 4 + [0.0, 0.0], data=DATA | {"queries": "others", "documents": "more"})
    rows = dict(new.queries)
    rows["003"] = replace(rows["003"], data="changed", values=[0.0])
    del rows["000"]
    found = check(old, replace(new, queries=rows))
    assert (found.queries, found.changes[0].before, found.changes[0].after) == (3, 1.0, 2 / 3)
    assert found.notes == [
        "The documents have changed since the baseline, so the scores may have changed for this reason.",
        "1 query of the baseline is gone: 000. Not compared.",
        "1 query is new: 005. Not compared.",
        "1 query has another text or other labels: 003. Not compared.",
        "If these changes are meant, save a baseline of today's data: harness check save=FILE",
    ]


def test_unlike_things_are_not_compared():
    one = snapshot([1.0, 1.0])
    unknown = {name: replace(row, data="") for name, row in one.queries.items()}
    for old, message in [
        (replace(one, version="0"), "version 0 of the measures"),
        (replace(one, data=DATA | {"qrels": "x"}, queries=unknown), "The labels of the run differ from those of bm25"),
        (replace(one, queries={"z": one.queries["000"]}), "share no query. 1 query of the baseline is gone: z."),
    ]:
        with pytest.raises(BadInput) as raised:
            check(old, one)
        assert message in str(raised.value)


def test_bounds():
    numbers = {"ms_per_query": 12.0, "judged_at_3": 0.9}
    found = bounds_of(["ms_per_query<20", " judged@3 >= 0.9", "judged@3>0.9", "ms_per_query<=1e1"], numbers)
    assert [one.met for one in found] == [True, True, False, False]
    checked = check(snapshot([1.0]), snapshot([1.0]), bounds=found)
    assert checked.outcome == "regressed"
    assert checked.report.verdict[1:] == [
        "Regressed: judged@3 is 0.9, but must be > 0.9.",
        "Regressed: ms_per_query is 12, but must be <= 10.",
    ]
    for word, message in [
        ("ms_per_query", "is not a bound. Write NAME<NUMBER"),
        ("ms_per_query<fast", "is not a bound"),
        ("ms_per_query<1e", "is not a bound"),
        ("ms_per_qery<20", "the run has no number 'ms_per_qery'. Did you mean 'ms_per_query'"),
    ]:
        with pytest.raises(BadInput) as raised:
            bounds_of([word], numbers)
        assert message in str(raised.value)


def test_ids_that_were_cut_stand_for_whole_ids_and_others_do_not():
    old = snapshot([1.0] * 30, docs=("page_d1", "aaaaaaaa"), cut=8)
    new = snapshot([0.0] + [1.0] * 29, docs=("page_d12", "aaaaaaaa-bbbb"))
    known = Known({}, {"000": {"page_d12": 1.0, "aaaaaaaa-bbbb": 1.0}}, {})
    [lost] = check(old, new, known=known).lost
    assert lost.relevant == ["aaaaaaaa", "aaaaaaaa-bbbb", "page_d12"]  # page_d1 is another document than page_d12


def test_control_characters_reach_neither_xml_nor_terminal():
    old, new = snapshot([1.0] * 4), snapshot([1.0, 1.0, 1.0, 0.5], name="b\x1b[31m\x00m25")
    known = Known({}, {}, {"lang": {f"{place:03}": "k\x01\x1b" for place in range(4)}})
    found = check(old, new, known=known, rule=SliceRule(["lang"], 0.02))
    assert (
        Xml.fromstring(found.junit("fail"))[1].get("name")
        == "map@3 where lang=k\N{REPLACEMENT CHARACTER}" * 1 + "\N{REPLACEMENT CHARACTER}"
    )
    assert "\x1b" not in str(found)


def test_junit_has_a_test_for_each_measure_and_bound():
    bounds = bounds_of(["ms_per_query<20", "ms_per_query<2"], {"ms_per_query": 12.0})
    found = check(snapshot([1.0] * 4), snapshot([1.0, 1.0, 1.0, 0.5]), bounds=bounds)
    for undecided, tag, counts in [("fail", "failure", ("3", "2", "0")), ("pass", "skipped", ("3", "1", "1"))]:
        suite = Xml.fromstring(found.junit(undecided))
        assert tuple(suite.attrib[name] for name in ("tests", "failures", "skipped")) == counts
        assert [case.get("name") for case in suite] == ["map@3", "ms_per_query", "ms_per_query"]
        [said] = suite[0]
        assert (said.tag, said.get("type")) == (tag, "cannot tell")
        assert [one.tag for one in suite[2]] == ["failure"]
        assert not [*suite[1]]
