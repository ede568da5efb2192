"""Scores and differences by slice, from files to what `run`, `score` and `compare` say of them."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from html_pages import data_of
from logged_runs import DATA, RUN, TOY, WITHHELD
from text_tasks import CORRECTIONS

import harness as package
from harness.analysis.comparison.comparison import Pair, PairedResult
from harness.analysis.comparison.slices import reversals, slice_differences
from harness.data.attributes import Slice
from harness.statistics.prediction_powered import Estimate, EstimatedDifference
from harness.statistics.significance import Difference

AB = Pair("A", "B")
FILES = ("compare", "runs=[a.run,b.run]", "dataset=beir", "dataset.path=set", "metric=mrr@10", "format=json")


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture
def rankings(tmp_path, monkeypatch):
    """Two files of rankings of 70 queries: A is first on the 40 in English, B on the 30 others; 3 have no language."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    lines(tmp_path / "set" / "corpus.jsonl", [{"_id": one, "text": one} for one in ("good", "bad")])
    languages = ["en"] * 40 + ["ko"] * 27 + [None] * 3
    rows = [{"_id": f"q{n:02}", "text": "who?", "metadata": {"lang": lang}} for n, lang in enumerate(languages)]
    lines(tmp_path / "set" / "queries.jsonl", rows)
    labels = "".join(f"q{n:02}\tgood\t1\n" for n in range(70))
    (tmp_path / "set" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}")
    for name in "ab":
        ranked = [("good", "bad") if (lang == "en") == (name == "a") else ("bad", "good") for lang in languages]
        found = [f"q{n:02} Q0 {doc} {rank} {-rank} x" for n, docs in enumerate(ranked) for rank, doc in enumerate(docs)]
        (tmp_path / f"{name}.run").write_text("\n".join(found) + "\n")
    return tmp_path


def test_a_loss_behind_a_gain_is_told(harness, rankings):
    """mrr of a query is 1 or 1/2. A gains .5 on 40 of 70 queries and loses .5 on 30: .0714 on average.

    All 27 differences in Korean agree, so p is 1 / (resamples + 1), times 3 tests. The 3 queries without a language
    can have no p below 2^-2.
    """
    found = harness(*FILES, "slices=[lang]").json
    slices = {one["value"]: one for one in found["slices"]}
    assert [(one["attribute"], name, one["n"], one["mean"]) for name, one in slices.items()] == [
        ("lang", "en", 40, 0.5),
        ("lang", "ko", 27, -0.5),
        ("lang", "(none)", 3, -0.5),
    ]
    assert slices["ko"]["p_holm"] == pytest.approx(3 / 10_001)
    assert slices["(none)"]["p"] == 0.25
    assert slices["(none)"]["note"] == "so few queries differ that no difference can be significant"
    assert found["reversals"] == [
        "Warning: A scores higher than B in mrr@10 on all queries together, but significantly lower where lang=ko: by "
        "0.500 (95 % 0.500 to 0.500), p < 0.001 after Holm over 3 tests."
    ]
    shown = harness(*FILES[:-1], "slices=[lang,turns]").text
    assert found["reversals"][0][:60] in shown
    assert "Differences in mrr@10 by slice" in shown
    plain = harness(*FILES).json
    assert "slices" not in plain
    assert plain["verdicts"] == found["verdicts"]


def test_slices_are_in_pasted_tables_and_in_python(harness, rankings):
    rows = list(csv.DictReader(io.StringIO(harness(*FILES[:-1], "format=csv", "slices=[lang]").text)))
    assert [(row["slice"], row["minus"], row["value"]) for row in rows if row["slice"]] == [
        ("lang=en", "B", "0.5"),
        ("lang=ko", "B", "-0.5"),
        ("lang=(none)", "B", "-0.5"),
    ]
    pasted = harness(*FILES[:-1], "format=markdown", "slices=[lang,turns]").text
    assert "p (Holm, 4 tests)" in pasted
    assert "| lang=ko | -0.500" in pasted.replace("−", "-")
    table = package.compare(*FILES[1:-1], "slices=[lang]").slices
    assert table[["value", "n", "wins"]].values.tolist() == [["en", 40, 40], ["ko", 27, 0], ["(none)", 3, 0]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slices=[lagn]"], "Did you mean 'lang'? They have: lang, length, script, turns, asks, relevant."),
        (["slices=[lang]", "dataset=trec", "dataset.qrels=trec.txt", "~dataset.path"], "dataset=trec has only labels"),
    ],
)
def test_what_slices_cannot_be_compared(harness, rankings, words, message):
    (rankings / "trec.txt").write_text("".join(f"q{n:02} 0 good 1\n" for n in range(70)))
    given = [one for one in FILES if not (len(words) > 1 and one.startswith("dataset"))]
    assert message in harness(*given, *[one for one in words if not one.startswith("~")]).refusal


# ---- One run


@pytest.fixture
def sliced_toy(toy):
    kinds = {7: "why", 3: "temperature", 5: None}
    odd = {7: "a+b", 3: "a/b", 5: ".."}
    rows = [one | {"kind": kinds[one["eval_id"]], "종류": odd[one["eval_id"]]} for one in DATA["eval.jsonl"]]
    rows[0]["tags"] = ["a"]
    lines(Path("toy/eval.jsonl"), rows)


def test_a_run_scores_slices(harness, sliced_toy):
    """The toy's query 5 needs no retrieval and gets none; all three queries score 1."""
    done = harness(*RUN, "slices=[kind,relevant]").json
    found = [(one["attribute"], one["value"], one["n"], one["mean"]) for one in done["slices"]]
    assert found == [
        *(("kind", "temperature", 1, 1), ("kind", "why", 1, 1), ("kind", "(none)", 1, 1)),
        *(("relevant", "0", 1, 1), ("relevant", "1", 1, 1), ("relevant", "2-5", 1, 1)),
    ]
    assert done["slices"][0]["note"] == "one query: no interval"
    folder = Path(done["files"]["folder"])
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))["metrics"]
    names = ("kind/temperature", "kind/why", "kind/_none_", "relevant/0", "relevant/1", "relevant/2-5")
    assert {name for name in metrics if name.startswith("slice/")} == {f"slice/{one}/modified_map@3" for one in names}
    page = data_of((folder / "report.html").read_text("utf-8"))
    assert [(one["name"], one["n"], one["cells"]) for one in page["slices"]][:2] == [
        ("kind=temperature", 1, [1.0]),
        ("kind=why", 1, [1.0]),
    ]
    said = harness(*RUN[:-1], "slices=[kind]").text
    assert (
        "modified_map@3, in sample, by slice\n  kind=temperature, kind=why, kind=(none): one query: no interval."
        in said
    )
    assert package.run(*TOY, "slices=[relevant]").slices[2].name == "relevant=2-5"
    plain = harness(*RUN).json
    assert "slices" not in plain
    assert plain["best_before"]["run_id"]


def test_old_runs_are_sliced_by_a_field_that_was_added_later(harness, logged):
    """Attributes are no part of the fingerprint; other queries and, for `relevant`, other labels are refused."""
    ids = [done.json["run_id"] for done in logged(WITHHELD, RUN)]
    words = ("compare", f"runs=[{ids[0]},{ids[1]}]", "format=json")
    lines(Path("toy/eval.jsonl"), [one | {"new": one["eval_id"] == 5} for one in DATA["eval.jsonl"]])
    found = harness(*words, "slices=[new,relevant]").json["slices"]
    assert [(one["value"], one["n"], one["mean"]) for one in found] == [
        *(("false", 2, -1), ("true", 1, 0)),
        *(("0", 1, 0), ("1", 1, -1), ("2-5", 1, -1)),
    ]
    lines(Path("toy/qrels.jsonl"), [one | {"relevant": ["d1"]} for one in DATA["qrels.jsonl"]])
    assert len(harness(*words, "slices=[new]").json["slices"]) == 2
    assert "the labels have changed" in harness(*words, "slices=[relevant]").refusal
    other = [one | {"msg": [{"role": "user", "content": "달?"}]} for one in DATA["eval.jsonl"]]
    lines(Path("toy/eval.jsonl"), other)
    assert "the queries have changed" in harness(*words, "slices=[length]").refusal


def test_the_public_part_alone_counts_where_it_selects(harness):
    """Slices of a run are of the public queries, slices of a comparison of the private ones; 60 queries in all."""
    words = ("select_on=public", "tokenizer=char_ngram", "experiment_name=e", "format=json")
    counts = {}
    for tops in (1, 3):
        done = harness("run", *words, f"top_k={tops}", "slices=[turns]").json
        counts[tops] = sum(one["n"] for one in done["slices"])
        whole = sum(one["n"] * one["mean"] for one in done["slices"]) / counts[tops]
        assert whole == pytest.approx(done["objective"]["value"])
    assert counts[1] == counts[3] == 24  # .4 of 60
    found = harness("compare", "experiment_name=e", "select_on=public", "slices=[turns]", "format=json").json
    assert sum(one["n"] for one in found["slices"]) == found["queries"] == 36


def test_the_best_trial_of_a_sweep_has_slices(harness, sliced_toy, tracker):
    swept = harness("sweep", *TOY, "top_k=1,2", "slices=[relevant]", "format=json").json
    found = tracker.run(swept["best"]["run_id"]).metrics
    assert {name for name in found if name.startswith("slice/relevant/")} == {
        f"slice/relevant/{value}/modified_map_at_3" for value in ("0", "1", "2-5")
    }


def test_items_of_a_text_task_have_no_slices(harness, files):
    for name in ("worse", "better"):
        assert harness("score", *CORRECTIONS, f"predictions={name}.csv").text
    refused = harness("compare", "task=corrections", "experiment_name=e", "slices=[kind]").refusal
    assert "items of task=corrections have no attributes" in refused


def test_slices_do_not_change_what_a_run_is(harness, sliced_toy):
    ours, theirs = (package.run(*TOY, *words) for words in ([], ["slices=[kind]"]))
    assert ours.trial_key == theirs.trial_key
    assert ours.name == theirs.name


@pytest.mark.stored
def test_any_value_can_be_logged(harness, sliced_toy, tracker):
    """A name in MLflow has letters, digits and `_ -.`, and no part of it is `..`; the two values a_b stay apart."""
    found = tracker.run(harness(*RUN, "slices=[종류]").json["run_id"]).metrics
    logged = {
        name.removesuffix("modified_map_at_3"): value for name, value in found.items() if name.startswith("slice/")
    }
    assert logged == dict.fromkeys(("slice/종류/_/", "slice/종류/a_b/", "slice/종류/a_b_/"), 1.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slices=[knd]"], "Did you mean 'kind'?"),
        (["slices=[tags]"], "Lists, objects and texts of more than 100 characters are not attributes."),
        (["slices=[kind]", "objective=abstention_auroc"], "abstention_auroc has no value by query"),
        (["slices=[kind]", "metrics=[mrr@3]"], "objective=modified_map@3 is not among the metrics. Add it"),
    ],
)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_run_with_bad_slices_never_begins(harness, sliced_toy, command, words, message):
    assert message in harness(command, *TOY, *(["top_k=1,2"] if command == "sweep" else []), *words).refusal


# ---- By hand


def difference(mean, p_holm, differ=40):
    return Difference(n=differ, mean=mean, low=mean - 0.1, high=mean + 0.1, wins=differ, ties=0, losses=0, p=0.01,
                      p_holm=p_holm, exact=False, note="")  # fmt: skip


def in_slice(mean, p_holm, value="ko", pair=AB):
    return PairedResult(pair, "mrr", difference(mean, p_holm), slice=Slice("lang", value, np.ones(1, bool)))


def test_only_a_significant_loss_of_the_better_run_is_a_reversal():
    whole = [PairedResult(AB, "mrr", difference(-0.2, 0.3))]  # B is better on average, whether significantly or not
    parts = [in_slice(0.3, 0.01), in_slice(0.3, 0.06), in_slice(-0.3, 0.01), in_slice(0.3, 0.01, pair=Pair("A", "C"))]
    assert [*reversals(whole, parts)] == [
        "Warning: B scores higher than A in mrr on all queries together, but significantly lower where lang=ko: by "
        "0.300 (95 % 0.200 to 0.400), p = 0.01 after Holm over 4 tests."
    ]
    assert not [*reversals([PairedResult(AB, "mrr", difference(0.0, 1.0))], parts)]


def test_estimates_are_corrected_over_all_pairs_and_slices():
    """p of .01, .04 and unknown: Holm over three tests counts the unknown one as 1, so 3 × .01 and 2 × .04."""
    slices = [Slice("lang", value, np.ones(1, bool)) for value in ("en", "ko", "ja")]
    guesses = [EstimatedDifference(Estimate(0.1, 0.0, 0.2, p=p), math.nan) for p in (0.01, 0.04, math.nan)]
    found = slice_differences(slices, "mrr", {AB: [difference(0.2, 0.5)] * 3}, {AB: guesses})
    assert [one.p_holm for one in found[:2]] == pytest.approx([0.03, 0.08])
    assert math.isnan(found[2].p_holm)
    assert math.isnan(found[0].found.low)  # the raw interval ignores the model's errors
    assert [one.better for one in found[:2]] == ["A", None]
