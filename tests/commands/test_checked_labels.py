"""Runs on a frozen test set whose labels are a model's but for the queries that people checked."""

import json
import math
import random
import re
from pathlib import Path

import pytest
from frozen_sets import frozen, judged

import harness as package
from harness.measures.checked_values import FILE, read_checked_table
from harness.statistics.prediction_powered import Estimate
from harness.testset.pool.pool import read_pool
from harness.tracking.tracker import METRICS

METRICS_SHOWN = "metrics=[modified_map@3,hit@1,mrr,map,abstention_accuracy]"


def lists(made, seed):
    """Rows of predictions: the pooled documents of each query, those that answer it higher the better the seed."""
    rows = []
    for query_id, pairs in read_pool(made.folder).by_query.items():
        generator = random.Random(f"{seed} {query_id}")
        scores = {one.doc_id: made.truth(query_id, one.doc_id) + seed * generator.random() for one in pairs}
        rows.append({"eval_id": query_id, "topk": sorted(scores, key=lambda doc_id: -scores[doc_id])})
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with ts/v1, and the lists of a good and of a bad system."""
    path = tmp_path_factory.mktemp("checked")
    made = judged(path, topics=64, checked=44)
    for name, seed in (("good", 4.0), ("bad", 12.0)):
        (path / f"{name}.jsonl").write_text(lists(made, seed))
    frozen(made.folder)
    return path


@pytest.fixture
def data(folder):
    """Words of a command for the frozen test set."""
    return ("dataset=frozen", f"dataset.path={folder / 'ts' / 'v1'}", METRICS_SHOWN)


@pytest.fixture
def scored(harness, folder, data):
    """Score the lists of a system: scored("good") -> Done."""
    return lambda name, *words: harness("score", f"predictions={folder / name}.jsonl", *data, *words)


@pytest.mark.slow
def test_score_runs_and_compare_go_by_estimates(harness, scored):
    good, bad = (scored(name, "format=json").json for name in ("good", "bad"))
    for one in (good, bad):
        found = one["estimates"]["modified_map@3"]
        assert found["checked"] + found["others"] == one["counts"]["scored"]
        assert found["low"] < found["value"] < found["high"]
        assert found["value"] < one["metrics"]["modified_map@3"], "the model is lenient"
        assert one["summary"]["modified_map@3"]["low"] is None, "the raw mean has no interval"
        assert one["objective"]["estimate"] == found
        assert "hit@1" in one["estimates"]

    listed = harness("runs", "experiment_name=retrieval", "format=json").json["groups"][0]["rows"]
    shown = {row["run_id"]: row["objective"]["estimate"] for row in listed}
    assert shown[good["run_id"]]["low"] == pytest.approx(good["estimates"]["modified_map@3"]["low"])
    assert re.search("estimate.* raw ", harness("runs", "experiment_name=retrieval").out)

    words = f"runs=[{good['run_id'][:8]},{bad['run_id'][:8]}]"
    compared = harness("compare", words, "metric=modified_map@3", "format=json").json
    [verdict] = compared["verdicts"]
    assert verdict.startswith("A is better than B by ")
    assert re.search("estimated from.*the raw difference, with a model's labels for", verdict)
    found = {one["measure"]: one for one in compared["differences"]}["modified_map@3"]
    assert 0 < found["estimate"]["low"] < found["estimate"]["value"]
    assert found["low"] is None
    assert compared["runs"][0]["estimates"]["modified_map@3"] == good["estimates"]["modified_map@3"]


@pytest.mark.slow
def test_slices_go_by_estimates(harness, data, scored, folder):
    """A frozen set keeps the kinds of its queries. An estimate in a slice is that of the slice's queries alone."""
    ids = [scored(name, "format=json").json["run_id"] for name in ("good", "bad")]
    words = f"runs=[{ids[0][:8]},{ids[1][:8]}]"
    found = harness("compare", words, "metric=modified_map@3", "slices=[kind]", "format=json").json["slices"]
    rows = [json.loads(line) for line in (folder / "ts" / "v1" / "queries.jsonl").read_text("utf-8").splitlines()]
    tables = [read_checked_table(path) for path in sorted(Path("outputs/runs").glob(f"*/{FILE}"))]
    for one in found:
        assert one["attribute"] == "kind"
        inside = [row["eval_id"] for row in rows if row["kind"] == one["value"]]
        good, bad = (table.within(inside) for table in tables)
        expected = good.difference(bad, "modified_map@3")
        assert one["estimate"]["checked"] == expected.checked
        assert one["estimate"]["value"] == (pytest.approx(expected.value) if expected.value == expected.value else None)
        assert one["low"] is None  # the raw interval ignores the model's errors
    assert len({one["value"] for one in found}) == len(found) > 1
    run = harness("run", *data, "tokenizer=char_ngram", "slices=[kind]", "format=json").json
    assert [one["value"] for one in run["slices"]] == [one["value"] for one in found]
    assert sum(one["n"] for one in run["slices"]) == run["counts"]["scored"]


@pytest.mark.slow
def test_what_people_see_of_lists_in_the_pool_and_of_a_run_from_outside(harness, data, scored):
    pooled, outside = scored("good"), harness("run", *data, "tokenizer=whitespace")
    for done, expected in (
        (pooled, "measure estimate 95 % interval raw mean queries"),
        (pooled, "Estimate of modified_map@3, in sample: 0."),
        (pooled, "with a model's labels for"),
        (outside, "No estimate of modified_map@3, in sample (people have checked"),
        (outside, "modified_map@3: no estimate: people have not judged"),
        (outside, "harness testset pool testset=FOLDER runs=[ID]"),
    ):
        text = " ".join(done.out.split())
        assert expected in text
        assert "Ranked by the raw 0." in text


def test_a_gate_that_learns_has_estimates_out_of_fold(data, harness):
    result = package.run(*data, "gate=auto", "tokenizer=char_ngram")
    assert result.held_out.checked.query_ids == result.scores.checked.query_ids
    found = result.estimates["abstention_accuracy"]
    assert isinstance(found, Estimate)
    assert found == result.held_out.estimates["abstention_accuracy"]
    numbers = json.loads((result.folder / METRICS).read_text())["metrics"]
    assert numbers["oof/estimate/abstention_accuracy"] == pytest.approx(found.value)
    assert (result.folder / "checked.csv").is_file()
    assert '"raw"' in (result.folder / "report.html").read_text()
    assert math.isnan(result.objective.low)
