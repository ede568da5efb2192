"""`harness compare`: what is compared, what is refused, and what is written."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from html_pages import Parts, data_of
from logged_runs import RUN, WITHHELD
from unpacking import unpacked, unpacked_places

from harness.analysis.comparison.comparison import Pair, PairedResult, pair_verdict
from harness.measures import measures
from harness.statistics.significance import Difference

COMPARE = ("compare", "experiment_name=e", "format=json")


@pytest.fixture
def runs(logged):
    """Two runs: the first withholds everything and scores 1/3, the second is right everywhere."""
    return [done.json["run_id"] for done in logged((*WITHHELD, "run_name=<b>worse|</b>"), RUN)]


def test_the_best_runs_are_compared_best_first(harness, runs):
    worse, better = runs
    found = harness(*COMPARE).json
    assert [(run["label"], run["run_id"]) for run in found["runs"]] == [("A", better), ("B", worse)]
    assert [run["metrics"]["modified_map@3"] for run in found["runs"]] == [1, pytest.approx(1 / 3)]
    # Query 5 needs nothing and neither run returns anything; 3 and 7 are right in A and withheld in B.
    one = next(one for one in found["differences"] if one["measure"] == "modified_map@3")
    assert (one["a"], one["b"], one["n"], one["wins"], one["ties"], one["losses"]) == ("A", "B", 3, 2, 1, 0)
    assert one["mean"] == pytest.approx(2 / 3)
    # Flips of (1, 1): 2, 0, 0, -2; two of four are as far from 0.
    test = next(one for one in found["tests"] if one["measure"] == "modified_map@3")
    assert (test["p"], test["p_holm"], test["exact"], test["pairs"]) == (0.5, 0.5, True, 1)
    assert found["verdicts"][0].startswith("No difference between A and B can be told on 3 queries")
    parts = {one["part"]: (one["n"], one["mean"]) for one in found["splits"] if one["measure"] == "modified_map@3"}
    assert (parts["needs retrieval"], parts["needs none"], parts["multi-turn"]) == ((2, 1), (1, 0), (0, None))
    # One query is public: A is first on both parts, however it is drawn; B is right on one of the three.
    assert found["shake_up"]["winner_loses"] == 0
    best, other = found["runs"]
    assert other["losses"]["wrongly_withheld"] == pytest.approx(2 / 3)
    assert (best["public"], best["private"], best["public_rank"], best["private_rank"]) == (1, 1, 1, 1)
    assert other["public"] + 2 * other["private"] == 1
    # Both changed queries differ by 1: in order of their ids, with their texts.
    first, second = found["changed"]
    assert (first["query_id"], first["query"], first["difference"]) == ("3", "물은 몇 도에서 끓어?", 1)
    assert (second["query_id"], second["query"], second["difference"]) == ("7", "달의 모양은 왜 변해?", 1)
    assert (first["values"], first["documents"]["B"]) == ({"A": 1, "B": 0}, [])
    shown = {"doc_id": "d2", "snippet": "물은 섭씨 100도에서 끓는다", "relevant": True}
    assert first["documents"]["A"][0] == shown


def test_tables_to_paste(harness, runs):
    """Exactly the tables on standard output; in CSV all numbers of the JSON document in one table."""
    found = harness(*COMPARE).json
    rows = list(csv.DictReader(io.StringIO(harness(*COMPARE[:2], "format=csv").out)))
    scores = {(row["run"], row["measure"]): row for row in rows if not row["minus"]}
    for run in found["runs"]:
        for name, mean in run["metrics"].items():
            assert float(scores[run["label"], name]["value"]) == mean
            ends = [scores[run["label"], name][f"value_{end}"] for end in ("low", "high")]
            assert run["intervals"].get(name, []) == [float(end) for end in ends if end]
    differences = {row["measure"]: row for row in rows if row["minus"] == "B"}
    tests = {one["measure"]: one for one in found["tests"]}
    for one in found["differences"]:
        row = differences[one["measure"]]
        assert (float(row["value"]), float(row["p_holm"])) == (one["mean"], tests[one["measure"]]["p_holm"])
        counts = [int(row[name]) for name in ("wins", "ties", "losses", "queries")]
        assert counts == [one["wins"], one["ties"], one["losses"], one["n"]]

    shown = harness(*COMPARE[:2], "format=markdown").out
    assert shown.startswith("**2 runs of e on 3 queries: means with 95 % intervals in brackets, in sample.**\n\n")
    # Two queries differ: p is 0.5, and there is no mark.
    assert "| modified\\_map@3 | **1.000** [1.000, 1.000] | 0.333 [0.000, 1.000] |" in shown
    assert "| modified\\_map@3 | +0.667 [+0.000, +1.000] | 0.500 | 2 | 1 | 0 | 3 |" in shown
    tex = harness(*COMPARE[:2], "format=latex").out
    assert (tex.count("\\begin{table}"), tex.count("\\bottomrule")) == (2, 2)
    assert "A: bm25 $\\cdot$ none" in tex
    assert "B: \\textless{}b\\textgreater{}worse" in tex  # a name that a person gave, escaped
    said = "format='latx' is not one of text, json, markdown, latex, csv. Did you mean 'latex'?"
    assert said in harness(*COMPARE[:2], "format=latx").refusal


def test_the_page_is_the_board_of_the_runs_with_the_comparison_as_its_report(harness, runs):
    found = harness("compare", f"runs=[{runs[0][:12]},{runs[1]}]", "format=json").json
    assert [run["run_id"] for run in found["runs"]] == runs
    assert next(iter(found["differences"]))["mean"] == pytest.approx(-2 / 3)
    page = data_of(Path(found["files"]["html"]).read_text())
    # The best first, and its label is that of the comparison, whose order was given.
    assert [run["short"] for run in page["runs"]] == ["B: bm25 · none", "A: <b>worse|</b>"]
    assert [run["value"] for run in page["runs"]] == [1, pytest.approx(1 / 3, abs=1e-6)]
    queries = page["queries"]
    kinds = unpacked_places(queries["matrix"]["cells"]).reshape(3, 2)
    lost = [[queries["kinds"][queries["matrix"]["table"][cell][1]] for cell in query] for query in kinds]
    withheld = ["", "wrongly_withheld"]
    assert dict(zip(queries["ids"], lost, strict=True)) == {"3": withheld, "5": ["", ""], "7": withheld}
    assert page["leaderboard"]["rows"][1]["p"] == 0.5  # as the comparison's own test
    # Its title and what it says first are the comparison's.
    assert page["head"]["title"] == "2 runs of e on 3 queries"
    assert page["head"]["verdicts"][0].startswith("No difference between A and B can be told on 3 queries")
    assert [section["title"] for section in page["sections"]][:3] == ["Verdict", "Runs", "What differs"]
    settings = page["sections"][2]
    assert settings["header"] == ["", "A", "B"]
    assert [row for row in settings["rows"] if row[0].startswith("gate")] == [
        ["gate", "score", "none"], ["gate.threshold", "99", "–"],
    ]  # fmt: skip
    assert not [row for row in settings["rows"] if row[1] == row[2]]


@pytest.mark.slow
def test_the_files_are_whole_and_escaped(harness, runs, tmp_path):
    done = harness(*COMPARE)
    files = {name: Path(file).read_text("utf-8") for name, file in done.json["files"].items()}
    assert json.loads(files["json"]) == done.json
    assert Path(done.json["files"]["html"]).parent.parent == tmp_path / "outputs" / "comparisons"
    assert not list((tmp_path / "outputs" / "comparisons").glob("*.unfinished"))
    page = Parts(files["html"])
    assert not {"b", "img", "link", "iframe"} & set(page.tags)  # all but the frame is made by its script, as text
    assert data_of(files["html"])["runs"][1]["name"] == "<b>worse|</b>"
    assert r"&lt;b&gt;worse\|&lt;/b&gt;" in files["md"]
    assert "<b>" not in files["html"] + files["md"]
    assert "default-src 'none'" in files["html"]
    # Each row of each Markdown table has as many cells as its header.
    for table in re.findall(r"(?:^\|.*\n)+", files["md"], re.M):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


@pytest.mark.slow
def test_a_comparison_is_logged_as_a_run_of_its_own(harness, runs, tracker):
    found = harness(*COMPARE).json
    (logged,) = tracker.runs("e", {"harness.verb": "compare"}, "FINISHED")
    assert (logged.run_id, logged.metrics["p_holm/A-B"]) == (found["run_id"], 0.5)
    assert logged.tags["mlflow.note.content"] == found["verdicts"][0]
    names = [file.path for file in tracker.client.list_artifacts(logged.run_id)]
    assert sorted(names) == ["comparison.html", "comparison.json", "comparison.md"]
    assert harness("export", "experiment_name=e", "format=json").json["run_id"] == runs[1]  # and never chosen
    refused = harness("compare", f"runs=[{runs[0]},{found['run_id']}]").refusal
    assert "is a record of `harness compare`" in refused


@pytest.mark.slow
def test_text_for_people_has_one_verdict_for_each_pair(harness, runs):
    third = harness(*RUN, "gate=score", "gate.threshold=99", "top_k=1").json["run_id"]  # as bad as the worse one
    named = f"runs=[{','.join((*runs, third))}]"  # runs that are named may return the same
    for words, pairs in (([], 2), (["pairs=all"], 3)):
        said = harness("compare", named, *words).text
        assert len(re.findall(r"on 3 queries:|have the same modified_map@3", said)) == pairs
        assert f"after Holm over {pairs} pairs" in said
        assert said.index("Verdict") < said.index("Runs") < said.index("물은 몇 도에서 끓어?") < said.index("Notes")


@pytest.mark.slow
def test_light_runs_take_texts_from_the_data_while_it_is_there(harness, toy):
    for words in ((), ("gate=score", "gate.threshold=99")):
        harness(*RUN, "tracking.detail=light", *words)
    documents, query = toy / "documents.jsonl", "물은 몇 도에서 끓어?"

    def compared():
        found = harness(*COMPARE).json
        assert found["changed"][0]["query"] == query
        return found["changed"][0]["documents"]["A"][0], " ".join(found["notes"])

    assert compared()[0]["snippet"] == "물은 섭씨 100도에서 끓는다"
    text = documents.read_text("utf-8")
    documents.unlink()
    shown, notes = compared()
    assert shown == {"doc_id": "d2", "snippet": None, "relevant": None}
    assert "some texts are missing" in notes
    documents.write_text(text.replace("물은", "술은"), "utf-8")
    shown, notes = compared()
    assert (shown["snippet"], "the documents have changed" in notes) == (None, True)


def test_out_of_fold_values_are_compared_where_there_are_any(harness, runs, monkeypatch):
    from harness.analysis.board import runs as board_runs
    from harness.measures import score_table

    plain = score_table.read_score_table

    def fitted(file, only=None):
        table = plain(file, only)
        values = table.values["modified_map@3"]
        if values.sum() > 2:  # the better run: one query less is right out of fold
            table.oof["modified_map@3"] = np.where(np.array(table.query_ids) == "7", 0.0, values)
        return table

    monkeypatch.setattr(board_runs, "read_score_table", fitted)
    found = harness(*COMPARE).json
    first = found["runs"][0]
    assert first["out_of_fold"]
    assert (first["metrics"]["modified_map@3"], first["as_written"]["modified_map@3"]) == (pytest.approx(2 / 3), 1)
    assert found["differences"][0]["mean"] == pytest.approx(1 / 3)
    assert "A learnt from these labels" in " ".join(found["notes"])
    shown = harness("compare", "experiment_name=e").out  # the other number invites picking it: it is in the JSON alone
    assert "as written" not in shown.partition("\n\n")[0] + shown.partition("Runs")[2].partition("\n\n")[0]


@pytest.mark.parametrize(("measure", "lost"), [("modified_map@3", True), ("mrr@3", False)])
def test_losses_and_parts_are_shown_where_they_say_something(harness, runs, measure, lost):
    """The losses add up to 1 - modified_map@3. No query has several turns, and one that needs nothing has no mrr."""
    said = harness("compare", "experiment_name=e", f"metric={measure}").out
    assert ("Where the score is lost" in said) == ("needs none" in said) == lost
    assert "multi-turn" not in said
    assert "not_found" not in said, "nobody loses that way"


@pytest.mark.slow
def test_where_the_public_queries_choose_the_private_ones_judge(harness, runs):
    whole, found = harness(*COMPARE).json, harness(*COMPARE, "select_on=public").json
    assert "by modified_map@3, public." in found["notes"][0]
    assert (whole["queries"], whole["judged_on"], found["queries"], found["judged_on"]) == (3, "all", 2, "private")
    assert (
        "the 1 public queries choose the best run and count for nothing else; the 2 private ones judge"
        in found["notes"][1]
    )
    [judged] = [one for one in found["differences"] if one["measure"] == "modified_map@3"]
    assert judged["n"] == 2
    for run, other in zip(found["runs"], whole["runs"], strict=True):
        assert (run["kind"], other["kind"]) == ("held out", "in sample")
        assert run["metrics"]["modified_map@3"] == run["private"] == other["private"]
    assert {one["part"] for one in found["splits"]} == {"single-turn", "multi-turn", "needs retrieval", "needs none"}
    assert "2 private queries" in harness("compare", "experiment_name=e", "select_on=public").out
    for words in ([], ["gate=score", "gate.threshold=99"]):
        harness("run", *RUN[1:4], "experiment_name=p", "public=1", "tracking.detail=light", *words)
    refused = harness("compare", "experiment_name=p", "select_on=public").refusal
    assert "all 3 queries of these runs are public" in refused


REFUSED = {
    "fail_if=worse": "name both, 'runs=.BASE,NEW.'",
    "fail_if=better": "fail_if='better' is not one of worse",
    "runs=[{0}]": "names 1 run[.]",
    "runs=[{0},{0}]": "twice",
    "runs=[{0},{0:.10}]": "twice",
    "runs=[{0},xyz]": "run=xyz: no such run.*Give at least 4 digits",
    "metric=abstention_f1": "has no value by query.*All runs have: .*modified_map@3",
    "metric=ndcg@7": "no finished run of experiment 'e' has it",
    "metric=mapp": "'mapp' is unknown",
    "experiment_name=f": "no such experiment.*Known: .*e",
    "tracking=none": "keeps no runs",
    "top=27": "top=27",
}


def test_what_cannot_be_compared_is_refused(harness, runs, tmp_path):
    for word, expected in REFUSED.items():
        assert re.search(expected, harness("compare", "experiment_name=e", word.format(*runs)).refusal, re.S), word
        assert not (tmp_path / "outputs" / "comparisons").exists(), word
    wrong = runs[0][:20] + ("0" if runs[0][20] != "0" else "1") + runs[0][21:-1]
    assert f"Did you mean '{runs[0]}'" in harness("compare", "experiment_name=e", f"runs=['{wrong}',{runs[1]}]").err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("eval.jsonl", "물은 몇", "물이 몇", "queries of run .*data.queries is"),
        ("qrels.jsonl", '["d2"]', '["d1"]', "labels of run .*data.qrels is"),
    ],
)
def test_other_data_is_refused(harness, runs, toy, name, before, after, expected):
    (toy / name).write_text((toy / name).read_text("utf-8").replace(before, after), "utf-8")
    other = harness(*RUN).json["run_id"]
    refused = harness("compare", f"runs=[{runs[1]},{other}]").refusal
    assert re.search(rf"Run {other[:8]} \(.* does not have the {expected}", refused), refused


@pytest.mark.slow
@pytest.mark.local
def test_runs_that_cannot_be_judged_are_refused(harness, runs, tracker, toy, tmp_path):
    def refused(expected, other=runs[1]):
        said = harness("compare", f"runs=[{runs[0]},{other}]").refusal
        assert other[:8] in said
        assert re.search(expected, said), said

    tracker.client.set_tag(runs[1], "version.measures", "0")
    refused("does not have the version of the measures of run")
    tracker.client.set_tag(runs[1], "version.measures", str(measures.VERSION))
    tracker.client.set_terminated(runs[1], "FAILED")
    refused("is FAILED: only finished runs")
    tracker.client.set_terminated(runs[1], "FINISHED")
    (place,) = (tmp_path / "outputs" / "artifacts").glob(f"*/{runs[1]}/artifacts/scores.csv")
    place.unlink()
    refused(r"scores\.csv of run .* is gone")
    (toy / "qrels.jsonl").unlink()
    refused("has no labels", harness(*RUN).json["run_id"])


def told(mean, low, high, p, n=110, wins=10, losses=5):
    counts = {"n": n, "wins": wins, "ties": n - wins - losses, "losses": losses}
    return Difference(**counts, mean=mean, low=low, high=high, p=p, p_holm=p, exact=False, note="")


@pytest.mark.parametrize(
    ("found", "pairs", "expected"),
    [
        (told(0.031, 0.004, 0.06, 0.02), 3,
         "A is better than B by 0.031 (95 % 0.004 to 0.060) in m, p = 0.02 after Holm over 3 pairs."),
        (told(-0.031, -0.06, -0.004, 0.0004), 1, "B is better than A by 0.031 (95 % 0.004 to 0.060) in m, p < 0.001."),
        (told(0.01, -0.02, 0.04, 0.051), 1,
         "No difference between A and B can be told on 110 queries: m of A − B is 0.010 (95 % -0.020 to 0.040), "
         "p = 0.051."),
        (told(0, 0, 0, 1, wins=0, losses=0), 1, "A and B have the same m on each of 110 queries."),
        (told(1, np.nan, np.nan, 1, n=1, wins=1, losses=0), 1,
         "A and B cannot be told apart: m applies to 1 of the queries."),
    ],
)  # fmt: skip
def test_the_verdict_in_one_sentence(found, pairs, expected):
    assert pair_verdict(PairedResult(Pair("A", "B"), "m", found), pairs, "queries") == expected


FOUR = ("dataset=sample", "retriever=bm25,hybrid_lexical", "tokenizer=whitespace,word", "gate=none")


@pytest.mark.slow
def test_a_pair_has_one_p_wherever_it_is_asked_for(harness):
    """On the board and in a comparison of the best with the others: the same draws, corrected over the same runs."""
    assert harness("sweep", *FOUR, "experiment_name=e").code == 0
    shown = harness("board", "experiment_name=e", "format=json").json
    board = {row["run_id"]: row for row in shown["rows"]}
    found = harness(*COMPARE, "top=3").json
    ids = {run["label"]: run["run_id"] for run in found["runs"]}
    tests = [one for one in found["tests"] if one["measure"] == found["metric"]]
    assert [(one["a"], one["b"], one["pairs"]) for one in tests] == [("A", "B", 3), ("A", "C", 3)]
    for one, said in zip(tests, found["verdicts"], strict=True):
        row = board[ids[one["b"]]]
        assert (one["p"], one["p_holm"]) == (row["p"], row["p_holm"])
        assert said.startswith("No difference" if row["group"] == "same" else "A is better than")
        pair = harness("power", f"runs=[{ids['A']},{ids[one['b']]}]", "format=json")
        assert pair.code == 2 or pair.json["p"] == one["p"]
    near = harness("advise", "experiment_name=e", "format=json").json["not_told_apart"]
    assert near is None or near["p"] == board[near["run_id"]]["p"]
    assert {one["pairs"] for one in found["tests"] if one["measure"] != found["metric"]} == {2}
    # What p is corrected for stands above it.
    for command in ("compare", "board"):
        assert "p (Holm, 3 pairs)" in harness(command, "experiment_name=e", "format=latex").out, command
    # Named runs are all there is; of two there is one pair.
    for labels, pairs in (("CAB", {("B", "A", 2), ("B", "C", 2)}), ("CA", {("A", "B", 1)})):
        named = f"runs=[{','.join(ids[one] for one in labels)}]"
        tests = harness("compare", named, "format=json").json["tests"]
        assert {(one["a"], one["b"], one["pairs"]) for one in tests} == pairs
    # The page of the board knows every pair as `compare` does.
    every = harness(*COMPARE, "top=4", "pairs=all").json
    page = data_of(Path(shown["files"]["html"]).read_text("utf-8"))
    places = {run["id"]: place for place, run in enumerate(page["runs"])}
    place = {run["label"]: places[run["run_id"]] for run in every["runs"]}
    known = {(one[0], one[1]): one[2:] for one in json.loads(unpacked(page["pairs"]))["all"]}
    assert len(known) == 6
    for one, test in zip(every["differences"], every["tests"], strict=True):
        assert test["pairs"] == 6
        if one["measure"] == every["metric"]:
            mean, low, high, p = known.pop((place[one["a"]], place[one["b"]]))
            assert ([mean, low, high], p) == ([round(one[name], 6) for name in ("mean", "low", "high")], test["p"])
    assert not known
