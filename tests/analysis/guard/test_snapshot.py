"""Snapshots of runs, and baseline files: what is kept, what is read again, and what is refused."""

import json
import math

import numpy as np
import pytest

from harness.analysis.guard.snapshot import QueryResult, Snapshot, fingerprints_of, read_snapshot
from harness.data.qrels import Qrels
from harness.errors import BadInput
from retrievers.base import Query, Turn

LONG = [f"{place:08x}-716f-423a" for place in range(3)]


def snapshot(queries=("a", "b"), measures=("map@3", "ndcg@10"), **fields):
    """One query with the values 1 and 0.5, and one where the second measure does not apply."""
    rows = {one: QueryResult(f"data-{one}", [1.0, None if one == "b" else 0.5], LONG) for one in queries}
    known = {
        "name": "bm25",
        "run_id": None,
        "version": "1",
        "predictions": "p",
        "out_of_fold": False,
        "data": {"queries": "q", "qrels": "l"},
    }
    return Snapshot(**known | {"measures": measures, "settings": {"k1": "1.5"}, "queries": rows} | fields)


def test_a_saved_baseline_is_read_again(tmp_path):
    file = tmp_path / "new" / "baseline.json"
    snapshot().save(file, ["ndcg@10"])
    found = read_snapshot(file)
    assert found.measures == ("ndcg@10",)
    assert {one: row.values for one, row in found.queries.items()} == {"a": (0.5,), "b": (None,)}
    assert (found.name, found.settings, found.data) == ("bm25", {"k1": "1.5"}, {"queries": "q", "qrels": "l"})
    assert found.queries["a"].docs == ("00000000", "00000001", "00000002")  # cut where they already differ
    lines = file.read_text("utf-8").splitlines()
    assert sum('"values"' in line for line in lines) == 2  # a line per query, for readable diffs
    assert [entry.name for entry in file.parent.iterdir()] == ["baseline.json"]


def test_ids_are_cut_only_where_they_still_differ(tmp_path):
    row = QueryResult("", [1.0], ["a" * 20 + "1", "a" * 20 + "2", "short"])
    one = snapshot(queries=(), measures=("m",))
    Snapshot(**vars(one) | {"queries": {"q": row}}).save(tmp_path / "b.json", ["m"])
    assert read_snapshot(tmp_path / "b.json").queries["q"].docs == tuple(row.docs)


def test_values_have_a_row_for_each_measure():
    found = snapshot().values(["b", "a"], ["ndcg@10", "map@3"])
    np.testing.assert_equal(found, [[math.nan, 0.5], [1.0, 1.0]])
    with pytest.raises(BadInput, match=r"bm25 has no ndgc@10 by query\. Did you mean 'ndcg@10'"):
        snapshot().values(["a"], ["ndgc@10"])


def test_what_decides_a_querys_fingerprint():
    def fingerprint(turns=("hi",), role="user", **labels):
        query = Query("q", tuple(Turn(role, turn) for turn in turns))
        other = Query.of("other", "unlabelled")
        known = {"grades": {"q": {"d1": 1.0, "d2": 2.0}}} | labels
        return fingerprints_of([query, other], Qrels(**known))

    first = fingerprint()
    assert first.keys() == {"q"}  # unlabelled queries have no scores
    assert fingerprint(grades={"q": {"d2": 2.0, "d1": 1.0}}) == first  # the order of labels says nothing
    changed = [
        fingerprint(turns=("hi", "there")),
        fingerprint(role="assistant"),
        fingerprint(grades={"q": {"d1": 1.0}}),
        fingerprint(not_relevant={"q": frozenset(["d3"])}),
        fingerprint(unmet=frozenset(["q"])),
    ]
    assert len({one["q"] for one in [first, *changed]}) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file, content: file.unlink(),
            "no such file. To save a baseline of today's data: harness check",
        ),
        (lambda file, content: file.write_text("{"), "b.json"),
        (lambda file, content: file.write_text("[]"), "must be one JSON object"),
        (
            lambda file, content: _write(file, content | {"baseline": 2}),
            "baseline is 2, but this harness reads",
        ),
        (lambda file, content: _write(file, {"baselin": 1}), "baseline is missing"),
        (lambda file, content: _write(file, content | {"measure": []}), "Did you mean 'measures'"),
        (
            lambda file, content: _write(file, content | {"measures": ["map@3"]}),
            "query a has 2 values, but",
        ),
        (lambda file, content: content["queries"]["a"].update(values=[2.0, 0.5]) or _write(file, content), "value 2.0"),
        (
            lambda file, content: content["queries"]["a"].update(values=["1", 0]) or _write(file, content),
            "must be a number",
        ),
    ],
)
def test_a_damaged_baseline_is_refused(tmp_path, change, message):
    file = tmp_path / "b.json"
    snapshot().save(file, ["map@3", "ndcg@10"])
    change(file, json.loads(file.read_text("utf-8")))
    with pytest.raises(BadInput) as raised:
        read_snapshot(file)
    assert message in str(raised.value)


def _write(file, content):
    file.write_text(json.dumps(content), "utf-8")
