"""`harness watch` on toy data: what has changed since the champion and since the last watch, and the exit codes."""

import json

import pytest
from logged_runs import RUN, WITHHELD

import harness as package

WATCH = ("watch", "experiment_name=e")


@pytest.fixture
def champion(logged):
    """A logged run that is right for each of the three queries: the best of its experiment."""
    return logged(WITHHELD, RUN)[1].json["run_id"]


@pytest.fixture
def watch(harness, champion):
    """Watch the champion: watch(*words) -> (exit code, document)."""

    def call(*words):
        done = harness(*WATCH, *words, "format=json")
        assert done.err == "", done.err
        return done.code, json.loads(done.out)

    return call


@pytest.fixture
def edit(toy):
    """Change a row of a file, or with None remove it: edit("documents", 0, content="...")."""

    def change(name, place, **fields):
        file = toy / f"{name}.jsonl"
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        if fields:
            rows[place : place + 1] = [(rows[place] if place < len(rows) else {}) | fields]  # beyond the end: a new row
        else:
            del rows[place]
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")

    return change


def history(tracker, metric):
    [series] = tracker.runs("e", {"harness.verb": "watch"})
    return [(one.step, one.value) for one in tracker.client.get_metric_history(series.run_id, metric)]


@pytest.mark.stored
def test_two_watches_of_unchanged_data_are_two_points(harness, watch, champion, tracker):
    code, first = watch()
    assert (code, first["outcome"], first["changed"], first["step"]) == (0, "holds", False, 1)
    assert first["documents"] == {"count": 3, "lists": {}, "relevant": 0}
    assert tracker.run(first["run_id"]).tags["watch.of"] == champion
    done = harness(*WATCH)
    assert done.text.splitlines()[3] == (
        "  Nothing changed: the documents, queries, labels and results are those of the baseline."
    )
    assert "Documents since the last watch: no change; 3 in all." in done.out
    assert history(tracker, "objective") == [(1, 1.0), (2, 1.0)]
    assert history(tracker, "objective_change") == [(1, 0.0), (2, 0.0)]
    assert history(tracker, "documents/new") == [(2, 0.0)]
    assert "watch" not in harness("runs", "experiment_name=e").text, "the series is not a run with a score"


def test_a_watch_of_another_run_is_told_and_forgets_no_queries(harness, watch, champion, edit, tracker):
    [other] = [one for one in tracker.runs("e", {"harness.verb": "run"}) if one.run_id != champion]
    assert watch()[1]["queries"] == 3
    edit("qrels", 0)
    edit("eval", 0)
    assert watch()[1]["queries"] == watch(f"run={other.run_id}")[1]["queries"] == 2
    done = harness(*WATCH, "undecided=pass")
    assert "on 2 queries" in done.text or "all 2 queries" in done.text
    assert f"The last watch repeated another run ({other.short_id})" in done.text


@pytest.mark.stored
def test_documents_that_come_go_and_change_are_named(watch, edit, tracker):
    watch()
    edit("documents", 3, docid="d4", content="바다는 넓다")
    code, found = watch()
    assert (code, found["outcome"], found["changed"]) == (0, "holds", True)
    assert found["documents"]["lists"]["new"] == {"count": 1, "first": ["d4"]}
    edit("documents", 1, content="물은 섭씨 100도에서 끓는다.")
    edit("documents", 3)
    _, found = watch()
    assert found["documents"]["lists"] == {
        "new": {"count": 0, "first": []},
        "gone": {"count": 1, "first": ["d4"]},
        "changed": {"count": 1, "first": ["d2"]},
    }
    assert (found["documents"]["count"], found["documents"]["relevant"]) == (3, 1)
    assert history(tracker, "documents") == [(1, 3.0), (2, 4.0), (3, 3.0)]
    assert history(tracker, "documents/gone") == [(2, 0.0), (3, 1.0)]


def test_a_better_run_of_a_watch_does_not_become_the_baseline(harness, edit):
    edit("documents", 1, content="구름")
    base = harness(*RUN).json["run_id"]
    edit("documents", 1, content="물은 섭씨 100도에서 끓는다")
    found = [json.loads(harness(*WATCH, "undecided=pass", "format=json").text) for _ in range(2)]
    assert [one["objective"] for one in found] == [1.0, 1.0]
    assert [one["baseline"][:8] for one in found] == [base[:8]] * 2
    assert found[1]["changes"][0]["before"] == pytest.approx(2 / 3)


def test_queries_and_labels_that_changed_are_not_compared(harness, watch, edit, toy):
    watch()
    edit("qrels", 2)
    edit("eval", 2)  # query 5 is gone
    edit("qrels", 1, relevant=["d1"])  # query 3 has other labels
    code, found = watch()
    assert (code, found["outcome"], found["queries"]) == (0, "holds", 1), "the other query has the same documents"
    assert found["notes"][:2] == [
        "1 query of the baseline is gone: 5. Not compared.",
        "1 query has another text or other labels: 3. Not compared.",
    ]
    assert (
        f"make today's run the baseline: harness watch experiment_name=e run={found['run_id'][:8]}" in found["notes"][2]
    )
    code, found = watch(f"run={found['run_id'][:8]}")
    assert (code, found["changed"], found["queries"]) == (0, False, 2)


def test_the_first_watch_finds_the_old_queries_where_the_run_read_them(harness, watch, champion, tmp_path, toy):
    (tmp_path / "today").mkdir()
    for name in ("documents", "eval", "qrels"):
        text = (toy / f"{name}.jsonl").read_text("utf-8")
        (tmp_path / "today" / f"{name}.jsonl").write_text(
            text.replace("물은 몇 도에서 끓어?", "물이 끓는 온도"), "utf-8"
        )
    code, found = watch("data.path=today")
    assert (code, found["queries"]) == (0, 2)
    (toy / "eval.jsonl").unlink()
    assert watch("data.path=today")[1]["queries"] == 2, "the state remembers them"


def test_old_queries_that_nobody_knows_are_refused(harness, champion, edit):
    edit("eval", 0, msg=[{"role": "user", "content": "달은 왜 커지고 작아져?"}])
    done = harness(*WATCH)
    assert "The queries have changed since run" in done.refusal
    assert "Put the old data back and watch once" in done.refusal


def test_a_drop_is_not_hidden(watch, edit):
    """The two answers are lost: 1 of 3 queries stays right."""
    edit("documents", 1, content="구름")
    edit("documents", 2, content="구름")
    edit("documents", 0, content="구름")
    code, found = watch()
    assert (code, found["outcome"], found["objective"]) == (4, "cannot tell", pytest.approx(1 / 3))
    assert {one["query_id"] for one in found["lost"]} == {"3", "7"}
    code, found = watch('bounds=["hit@1>0.5"]')
    assert (code, found["outcome"]) == (3, "regressed")


def test_todays_queries(watch, tmp_path, tracker):
    (tmp_path / "today.txt").write_text("달의 모양은 왜 변해?\n쿠버네티스\n", "utf-8")
    code, found = watch("queries=today.txt")
    today = found["today"]
    assert (code, today["queries"], today["labelled"], today["ranking"]) == (0, 2, 3, "bm25")
    assert [one["signal"] for one in today["signals"]] == ["top_score", "margin", "query_words"]
    assert today["unseen"] == 1 + 1, "'해?' of the first query, which has a label, is in no document either"
    assert [(one["query_id"], one["text"]) for one in today["to_label"]] == [("2", "쿠버네티스")]
    assert today["to_label"][0]["reason"].startswith("new words: 쿠버, 버네, 네티")
    again = package.watch("experiment_name=e", "queries=today.txt")
    assert (again.outcome, again.failure) == ("holds", None)
    assert "To label next" in str(again)
    [series] = tracker.runs("e", {"harness.verb": "watch"})
    assert "쿠버네티스" not in str(series), "MLflow does not get the texts"
    assert history(tracker, "unseen_words") == [(1, 1.0), (2, 1.0)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tracking=none"], "tracking=none keeps no runs to repeat. Leave tracking out, or use tracking=mlflow."),
        (["experiment_name=f"], "'f'"),
        (["run=ffff"], "run=ffff: no such run"),
        (["metric=abstention_f1"], "metric: abstention_f1 has no value by query"),
        (["metric=ndcg@7"], "no finished run of experiment 'e' has it"),
        (["queries=nope.txt"], "queries: nope.txt: there is no such file"),
        (["queries=empty.txt"], "queries: empty.txt: the file holds no rows"),
        (["data.pth=x"], "Did you mean 'data.path'"),
        (["data.corpus=x"], "dataset/contest has no such path"),
        (["margin=0"], "margin=0 is too small"),
    ],
)
def test_what_is_refused(harness, champion, tmp_path, words, message):
    (tmp_path / "empty.txt").write_text("", "utf-8")
    assert message in harness(*WATCH, *words).refusal


def test_a_measure_that_the_named_run_lacks_is_refused_before_anything_runs(harness, champion, tracker):
    refused = harness(*WATCH, f"run={champion}", "metric=ndcg@7").refusal
    assert "has no value of it by query. Did you mean 'ndcg@3'" in refused
    assert len(tracker.runs("e", {})) == 2


def test_without_a_champion(harness, toy):
    assert "'e'" in harness(*WATCH).refusal
