"""The jobs of a sweep: their journal, restarts, and numbers equal to those of single runs."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from harness.analysis.board.expected import Replay
from harness.data.files import sha256_of
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.experiment import steps
from harness.experiment.plan import Plan
from harness.measures.objective import Objective
from harness.measures.score_table import score_table_text
from harness.measures.scores import ShownLists, averaged_scores, score_lists
from harness.statistics.prediction_powered import Estimate
from harness.statistics.split import Split
from harness.storage.append_log import START
from harness.sweeps import trials
from harness.sweeps.ending import expected
from harness.sweeps.trials import Context, TrialResult, claim_sweep, read_journal, run_job, write_journal
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import Tracker, mlflow_name
from retrievers.base import Ranking

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
GRID = ("gate=score", "gate.threshold=0,1,2")


def context(folder, token="mine"):
    return Context("id", "e", Path(folder), token, {}, "")


# ---- the journal


def test_a_journal_holds_the_results_of_this_start_as_they_were_written(tmp_path):
    mine, ranked = context(tmp_path), Objective("map@3", 0.5, estimate=Estimate(0.5, 0.4, 0.6, 30, 70))
    told = [
        TrialResult(0, "a", None, "FINISHED", {"x": math.nan}, 0.5, objective=ranked),
        TrialResult(1, "b", "r", "FAILED", error="OSError: b\udcff.jsonl\n"),
    ]
    assert read_journal(mine) == ([], START)
    for result in told:
        write_journal(mine, result)
        write_journal(dataclasses.replace(mine, token="other"), result)
    found, position = read_journal(mine)
    assert repr(found) == repr(told)  # NaN is not itself
    assert read_journal(mine, position) == ([], position)


# ---- jobs


@pytest.fixture
def handed(harness, toy, monkeypatch):
    """handed(*words) -> the (job, context) pairs of a sweep of the toy data; none of them is run."""

    def call(*words):
        found = []
        with monkeypatch.context() as patch:
            patch.setattr(trials, "run_job", lambda *job: found.append(job) or [])
            assert harness("sweep", *TOY, *words).code == 1
        return found

    return call


@pytest.fixture
def runs(tmp_path):
    """The logged runs of trials, oldest first."""
    tracker = MlflowTracker()

    def call(status=None):
        tracker.connect(tmp_path / "outputs")
        return tracker.runs("e", {"harness.verb": "run"}, status)[::-1]

    call.tracker = tracker
    return call


@pytest.fixture
def concluded(monkeypatch):
    """The gate's threshold of every trial that is scored."""
    made, plain = [], steps.conclude

    def conclude(config, *arguments, **named):
        made.append(config.gate["threshold"])
        return plain(config, *arguments, **named)

    monkeypatch.setattr(steps, "conclude", conclude)
    return made


def test_a_job_started_again_does_nothing_twice(handed, runs, concluded):
    [(job, mine)] = handed(*GRID)
    [written] = mine.jobs.iterdir()
    trials_of = json.loads(written.read_text("utf-8"))["trials"]
    assert not any("tracking" in one["plan"] for one in trials_of), "an address may hold a password"
    first = run_job(job, mine)
    assert [result.status for result in first] == ["FINISHED"] * 3
    assert read_journal(mine)[0] == first
    assert run_job(job, mine) == first
    assert concluded == [0, 1, 2]
    assert [run.run_id for run in runs()] == [result.run_id for result in first]
    # It takes up what was left running.
    mine.journal.write_bytes(b"".join(mine.journal.read_bytes().splitlines(keepends=True)[:-1]))
    runs.tracker.client.update_run(first[2].run_id, status="RUNNING")  # as a worker leaves it that dies
    second = run_job(job, mine)
    assert second[:2] == first[:2]
    assert (second[2].run_id, second[2].status) == (first[2].run_id, "FINISHED")
    assert concluded == [0, 1, 2, 2]
    assert [run.status for run in runs()] == ["FINISHED"] * 3


def test_a_job_whose_worker_was_stopped_goes_on_with_the_trial_in_work(handed, runs, monkeypatch):
    """Ray stops a worker by SystemExit, and may start its job again elsewhere."""
    [(job, mine)] = handed(*GRID)
    plain = steps.conclude

    def stopped(config, *arguments, **named):
        if config.gate["threshold"] == 1:
            raise SystemExit
        return plain(config, *arguments, **named)

    monkeypatch.setattr(steps, "conclude", stopped)
    with pytest.raises(SystemExit):
        run_job(job, mine)
    monkeypatch.setattr(steps, "conclude", plain)
    assert [run.status for run in runs()] == ["FINISHED", "KILLED"]
    assert [result.status for result in run_job(job, mine)] == ["FINISHED"] * 3


def test_a_job_of_an_earlier_start_ends_before_its_next_trial(handed, runs, concluded, monkeypatch):
    """Another start writes its token."""
    [(job, mine)] = handed(*GRID)
    mine.owner.write_text("another")
    assert run_job(job, mine) == []
    assert concluded == []
    assert runs() == []
    mine.owner.write_text(mine.token)
    plain = steps.conclude

    def taken_over(*arguments, **named):
        mine.owner.write_text("another")
        return plain(*arguments, **named)

    monkeypatch.setattr(steps, "conclude", taken_over)
    assert [result.number for result in run_job(job, mine)] == [0]
    assert concluded == [0]


def test_a_tracker_that_cannot_be_reached_is_named(handed, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(trials, "PATIENCE", 0.0)
    [(job, mine)] = handed(*GRID, "tracking=none")
    tracking = {
        "_target_": "harness.tracking.mlflow_tracker.MlflowTracker",
        "uri": "http://me:secret@127.0.0.1:9",
        "detail": "light",
    }
    for trial in job.trials:
        trial.plan = Plan.of({**trial.plan.document, "tracking": tracking})
    with pytest.raises(BadInput, match=r"^tracking.uri=http://127.0.0.1:9 cannot be used: ") as raised:
        run_job(job, mine)
    assert "secret" not in str(raised.value)
    assert read_journal(mine)[0] == []


# ---- numbers


def test_the_numbers_are_those_of_single_runs_to_the_bit(harness):
    """On the shipped sample: one retrieval for both depths here, and one for each run there."""
    words = ("tokenizer=word", "retriever=hybrid_lexical", "gate=score", "gate.source=bm25", "tracking=none")
    axes = ("depth=5,50", "gate.threshold=0,4")
    found = harness("sweep", *words, *axes, "store.path=shared", "format=json").json
    [folder] = Path("outputs/sweeps").iterdir()
    journal = [
        json.loads(line)["result"] for line in (folder / "journal.jsonl").read_text("utf-8").splitlines() if line
    ]
    assert found["plan"]["retrievals"] == {"compute": 2, "cached": 0}
    assert len(journal) == 4
    values = set()
    for row in journal:
        config = yaml.safe_load((folder / "trials" / str(row["number"]) / "config.yaml").read_text("utf-8"))
        swept = [f"depth={config['depth']}", f"gate.threshold={config['gate']['threshold']}"]
        alone = harness("run", *words, *swept, "store.path=alone", "format=json").json
        expected = {mlflow_name(name): value for name, value in alone["metrics"].items() if value is not None}
        expected |= {f"loss/{name}": value for name, value in alone["losses"].items()}
        assert len(expected) > 10
        assert {name: row["metrics"].get(name) for name in expected} == expected
        values.add(expected["modified_map_at_3"])
        kept = [line["topk"] for line in _lines(folder / "trials" / str(row["number"]) / "predictions.jsonl")]
        assert kept == [line["topk"] for line in _lines(Path(alone["files"]["predictions"]))]
    assert len(values) > 2, "the trials differ"


def _lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


# ---- data


def test_jobs_of_a_process_read_their_data_once(handed, monkeypatch):
    read, plain = [], trials.read_dataset
    monkeypatch.setattr(trials, "read_dataset", lambda *asked: read.append(asked) or plain(*asked))
    jobs = handed("retriever.bm25.k1=1,2,3", "tracking=none")
    for job, mine in jobs:
        assert [result.status for result in run_job(job, mine)] == ["FINISHED"]
    assert len(jobs) == 3
    assert len(read) == 1


def test_data_that_changed_since_the_plan_are_refused(handed, runs, toy, tmp_path):
    rows = [{"eval_id": i, "standalone_query": text} for i, text in ((7, "달의 모양"), (3, "끓는 물"), (5, "안녕"))]
    said = tmp_path / "said.jsonl"
    said.write_text("\n".join(map(json.dumps, rows)))
    [(job, mine)] = handed(*GRID, "query.text=file", "query.file=said.jsonl")
    for number, file in enumerate((toy / "documents.jsonl", toy / "eval.jsonl", toy / "qrels.jsonl", said)):
        text = file.read_text("utf-8")
        changed = text.replace("위성", "친구").replace("안녕", "반가워").replace('"d1": 1', '"d1": 3')
        changed = changed.replace(json.dumps("끓는 물"), '"물"')
        assert changed != text
        file.write_text(changed, "utf-8")
        found = run_job(job, dataclasses.replace(mine, token=claim_sweep(mine.folder)))
        file.write_text(text, "utf-8")
        assert {result.error for result in found} == {
            "RuntimeError: The data or the queries have changed since the sweep was planned. Start it again."
        }, file
        ended = runs("FAILED")[3 * number :]
        assert [run.run_id for run in ended] == [result.run_id for result in found]


# ---- luck


QRELS = Qrels({f"q{i}": {"a": 1.0} if i % 3 else {} for i in range(20)})


def scored(folder, number, wrong, ids=tuple(QRELS.grades), oof_wrong=None):
    """Write the scores of a trial whose lists for the queries `wrong` are wrong; returns its result."""

    def of(wrong):
        right = {q: {"a": 1.0} if QRELS.grades[q] else {} for q in ids}
        lists = {q: ({} if row else {"x": 1.0}) if q in wrong else row for q, row in right.items()}
        return score_lists(ShownLists(Ranking.from_scores(lists)), QRELS, ["modified_map@3"])

    place = folder / "trials" / str(number)
    place.mkdir(parents=True)
    held_out = None if oof_wrong is None else averaged_scores([of(oof_wrong)], Split())
    (place / "scores.csv").write_text(score_table_text(of(wrong), held_out), "utf-8")
    objective = Objective("modified_map@3", 1 - len(wrong if oof_wrong is None else oof_wrong) / 20)
    hashes = json.dumps({"scores.csv": sha256_of(place / "scores.csv")})
    return TrialResult(number, f"key{number}", None, "FINISHED", objective=objective, hashes=hashes)


def config(**values):
    """What decides what is expected."""
    known = {"objective": "modified_map@3", "select_on": "all", "experiment_name": "e", "document": {}}
    return SimpleNamespace(**known | values)


def expecting(folder, results, **settings):
    numbered = {result.number: result for result in results}
    return expected(numbered, results[0].number, Tracker(), context(folder), config(**settings))


def test_what_to_expect_is_told_from_the_scores_that_trials_left(tmp_path):
    results = [scored(tmp_path, 1, {"q3"}), scored(tmp_path, 0, {"q1", "q2"}), scored(tmp_path, 2, {"q4", "q5"})]
    found = expecting(tmp_path, [*results, TrialResult(3, "key3", None, "FAILED"), TrialResult(4, "", None, "KILLED")])
    assert (found.runs, found.how, found.alone, found.run_id) == (3, "choice", True, None)
    assert found.best == pytest.approx(19 / 20)
    public = expecting(tmp_path, results, select_on="public")
    assert (public.how, public.private) == ("private", 12)
    replayed = expected(
        {one.number: one for one in results}, 1, Tracker(), context(tmp_path), config(), Replay("s", 1, 0.5)
    )
    assert (replayed.how, replayed.runs, replayed.of) == ("replay", 3, 3)
    # A fitted trial is judged by what it scores out of fold; trials of the same key are one.
    fitted = [scored(tmp_path, 11, {"q4"}), scored(tmp_path, 10, set(), oof_wrong={"q1", "q2", "q3"})]
    assert expecting(tmp_path, fitted).value <= 19 / 20
    assert expected({0: results[0], 1: results[0]}, 0, Tracker(), context(tmp_path), config()) is None


def test_of_what_cannot_be_compared_nothing_is_expected(tmp_path):
    results = [scored(tmp_path, 0, {"q1"}), scored(tmp_path, 1, {"q2"}, ids=tuple(QRELS.grades)[1:])]
    assert "scored on different queries" in expecting(tmp_path, results).reason
    assert expecting(tmp_path, results[:1]) is None
    (tmp_path / "trials" / "0" / "scores.csv").write_text("edited")
    assert "has changed since the run logged it" in expecting(tmp_path, results).reason


@pytest.mark.local
def test_a_run_without_scores_by_query_is_named(handed, runs, tmp_path):
    [(job, mine)] = handed(*GRID)
    found = {result.number: result for result in run_job(job, mine)}
    runs()
    best = max(found.values(), key=lambda one: one.objective.value).number
    names = config(experiment_name=runs.tracker.run(found[best].run_id).experiment)
    assert expected(found, best, runs.tracker, mine, names).runs == 2  # two of three return the same
    [lost] = [one.run_id for one in found.values() if one.objective.value < found[best].objective.value]
    [file] = (tmp_path / "outputs" / "artifacts").glob(f"*/{lost}/artifacts/scores.csv")
    file.unlink()
    left = expected(found, best, runs.tracker, mine, names)
    assert left.how == "unknown"
    assert f"What to expect on new queries is unknown: scores.csv of run {lost[:8]} " in left.sentence
