"""The jobs of a sweep: restarts, processes that help, and numbers equal to those of single runs."""

import dataclasses
import io
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from interruptions import interrupted

from harness.analysis.board.expected import Replay
from harness.data.files import sha256_of
from harness.experiment import steps
from harness.sweeps import jobs, trials
from harness.sweeps.ending import expected
from harness.sweeps.jobs import Helpers, TrialBlocks, run_job
from harness.sweeps.trials import TrialResult, claim_sweep, read_journal
from harness.tracking.tracker import Tracker, mlflow_name

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
GRID = ("gate=score", "gate.threshold=0,1,2")


@pytest.fixture
def handed(harness, toy, monkeypatch):
    """handed(*words) -> the (job, context) pairs of a sweep of the toy data; none of them is run."""

    def call(*words):
        found = []
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "run_job", lambda *job: found.append(job[:2]) or [])
            assert harness("sweep", *TOY, *words).code == 1
        return found

    return call


def results_of(job, context):
    """Run a job, and return the results in the journal."""
    run_job(job, context)
    return [one.result() for one in read_journal(context)[0]]


@pytest.fixture
def concluded(monkeypatch):
    """The gate's threshold of every trial that is scored."""
    made, plain = [], steps.conclude

    def conclude(config, *arguments, **named):
        made.append(config.gate["threshold"])
        return plain(config, *arguments, **named)

    monkeypatch.setattr(steps, "conclude", conclude)
    return made


def test_a_job_started_again_does_nothing_twice(handed, concluded):
    [(job, mine)] = handed(*GRID)
    [written] = mine.jobs.iterdir()
    trials_of = json.loads(written.read_text("utf-8"))["trials"]
    assert not any("tracking" in one["plan"] for one in trials_of), "an address may hold a password"
    first = results_of(job, mine)
    assert [result.status for result in first] == ["FINISHED"] * 3
    for result in first:
        files = mine.trial(result.number).iterdir()
        assert json.loads(result.hashes) == {file.name: sha256_of(file) for file in files}
    assert results_of(job, mine) == first
    assert concluded == [0, 1, 2]
    lines = (journal := mine.folder / trials.JOURNAL).read_bytes().splitlines(True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:50])  # as a worker leaves it that dies
    second = results_of(job, mine)
    assert second[:2] == first[:2]
    assert concluded == [0, 1, 2, 2]
    assert (mine.trial(2) / "scores.csv").is_file()


def test_a_job_whose_worker_was_stopped_goes_on_with_the_trial_in_work(handed, monkeypatch):
    """Ray stops a worker by SystemExit, and may start its job again elsewhere."""
    [(job, mine)] = handed(*GRID)
    with interrupted(monkeypatch, 2, SystemExit), pytest.raises(SystemExit):
        run_job(job, mine)
    assert [one.run.status for one in read_journal(mine)[0]] == ["FINISHED", "KILLED"]
    assert [result.status for result in results_of(job, mine)] == ["FINISHED", "KILLED", "FINISHED", "FINISHED"]


def test_a_job_of_an_earlier_start_ends_before_its_next_trial(handed, concluded, monkeypatch):
    """Another start writes its token. What the earlier one has in work is neither logged nor left lying about."""
    [(job, mine)] = handed(*GRID)
    mine.owner.write_text("another")
    assert results_of(job, mine) == concluded == []
    mine.owner.write_text(mine.token)
    monkeypatch.setattr(trials, "APPEND_SECONDS", 0.0)
    plain = trials.write_journal
    monkeypatch.setattr(trials, "write_journal", lambda *told: mine.owner.write_text("another") and plain(*told))
    assert results_of(job, mine) == []
    assert concluded == [0]
    assert not [*(mine.folder / "trials").iterdir()]


# ---- processes that help


@pytest.fixture
def shared(handed, monkeypatch):
    """A job of twelve trials, which are two blocks; its context; and the line that names the job to a helper."""
    [(job, mine)] = handed("gate=score", "gate.threshold=range(12)", "tracking=none")
    monkeypatch.setattr(jobs, "LONG", 1e-9)
    monkeypatch.setattr(jobs, "cores", lambda: 2)
    tracking = job.trials[0].plan.document["tracking"]
    context = vars(mine) | {"folder": str(mine.folder)}
    return job, mine, json.dumps({"context": context, "number": 0, "tracking": tracking, "allowed": []})


def numbers_of(context):
    return [one.number for one in read_journal(context)[0] if one.run.status == "FINISHED"]


def test_a_helper_runs_the_trials_that_no_process_has_taken(shared, monkeypatch):
    job, mine, request = shared
    runner = trials.Runner(job, mine)
    assert next(TrialBlocks.of(job, mine, 0).run(runner)) == 10 / 12  # this process takes the first block
    monkeypatch.setattr(jobs, "_listen", lambda requests: [requests.put(line) for line in (request, "")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.stdout", answers := io.StringIO())
    jobs._help()
    assert answers.getvalue() == "done\n"
    runner.append()
    assert sorted(numbers_of(mine)) == [*range(12)]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "here"), [(1, range(10)), (2, ())])
def test_processes_help(shared, monkeypatch, count, here):
    """This process waits in its sixth trial until the other block has run; with a helper on each core, it runs none."""
    job, mine, request = shared
    ran, plain = [], trials.Runner.run

    def run(runner, trial):
        ran.append(trial.number)
        deadline = time.monotonic() + 60
        while trial.number == 5 and 11 not in numbers_of(mine) and time.monotonic() < deadline:
            time.sleep(0.02)
        return plain(runner, trial)

    monkeypatch.setattr(trials.Runner, "run", run)
    with Helpers() as helpers:
        helpers.start(count)
        run_job(job, mine, 0, helpers, request)
        record = helpers.begin_in_full(0, 3, None, mine.folder / "best")()
    assert sorted(numbers_of(mine)) == [*range(12)]
    assert ran == [*here]
    [third] = (trial for trial in job.trials if trial.number == 3)
    own = trials.Runner(job, mine).full_record(third, None, mine.folder / "own")
    assert {one.name for one in (mine.folder / "best").iterdir()} == {
        one.name for one in (mine.folder / "own").iterdir()
    }
    assert record.metrics["modified_map@3"] == own.metrics["modified_map@3"]
    assert (record.tables, record.params, record.objective) == (own.tables, own.params, own.objective)


def test_the_trials_of_a_helper_that_dies_run_here(shared, monkeypatch, caplog):
    job, mine, request = shared
    plain = jobs.children.start
    monkeypatch.setattr(jobs.children, "start", lambda _, **rest: plain(["-c", "raise SystemExit(3)"], **rest))
    (TrialBlocks.of(job, mine, 0).folder / "10").touch()  # the helper has taken this block
    with Helpers() as helpers:
        run_job(job, mine, 0, helpers, request)
        assert helpers.begin_in_full(0, 3, None, mine.folder / "best")() is None
    assert sorted(numbers_of(mine)) == [*range(12)]
    assert "ended with exit code 3" in caplog.text


# ---- numbers


@pytest.mark.slow
def test_the_numbers_are_those_of_single_runs_to_the_bit(harness):
    """On the shipped sample: one retrieval for both depths here, and one for each run there."""
    words = ("tokenizer=word", "retriever=hybrid_lexical", "gate=score", "gate.source=bm25", "tracking=none",
             "format=json")  # fmt: skip
    found = harness("sweep", *words, "depth=5,50", "gate.threshold=0,4", "store.path=shared").json
    assert found["plan"]["retrievals"] == {"compute": 2, "cached": 0}
    journal = Path(found["files"]["folder"], "journal.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in journal]
    metrics = {row["number"]: {mlflow_name(k): v for k, v in row["run"]["record"]["metrics"].items()} for row in rows}
    for row in found["top"]:
        alone = harness("run", *words, *row["overrides"], "store.path=alone").json
        expected = {mlflow_name(name): value for name, value in alone["metrics"].items() if value is not None}
        expected |= {f"loss/{name}": value for name, value in alone["losses"].items()}
        assert len(expected) > 10
        assert expected.items() <= metrics[row["trial"]].items()
        kept = Path(found["files"]["folder"], "trials", str(row["trial"]), "predictions.jsonl")
        assert _lists(kept) == _lists(Path(alone["files"]["predictions"]))
    assert len({row["value"] for row in found["top"]}) > 2, "the trials differ"


def _lists(path):
    return [json.loads(line)["topk"] for line in path.read_text("utf-8").splitlines()]


# ---- data


def test_jobs_of_a_process_read_their_data_once(handed, monkeypatch):
    read, plain = [], trials.read_dataset
    monkeypatch.setattr(trials, "read_dataset", lambda *asked: read.append(asked) or plain(*asked))
    made = handed("retriever.bm25.k1=1,2,3", "tracking=none")
    found = [results_of(job, mine) for job, mine in made][-1]
    assert [result.status for result in found] == ["FINISHED"] * 3
    assert (len(made), len(read)) == (3, 1)


@pytest.mark.slow
def test_data_that_changed_since_the_plan_are_refused(handed, toy, tmp_path):
    rows = [{"eval_id": i, "standalone_query": text} for i, text in ((7, "moon"), (3, "water"), (5, "hello"))]
    (said := tmp_path / "said.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [(job, mine)] = handed(*GRID, "query.text=file", "query.file=said.jsonl")
    changes = {toy / "documents.jsonl": ("위성", "친구"), toy / "eval.jsonl": ("안녕", "반가워"),
               toy / "qrels.jsonl": ('"d1": 1', '"d1": 3'), said: ("water", "물")}  # fmt: skip
    for file, change in changes.items():
        (mine.folder / trials.JOURNAL).unlink(missing_ok=True)
        text = file.read_text("utf-8")
        file.write_text(text.replace(*change), "utf-8")
        found = results_of(job, dataclasses.replace(mine, token=claim_sweep(mine.folder)))
        file.write_text(text, "utf-8")
        assert {result.error for result in found} == {f"RuntimeError: {trials.CHANGED}"}, file


# ---- luck


def test_what_to_expect_is_told_from_the_scores_that_trials_left(handed):
    [(job, mine)] = handed(*GRID, "tracking=none")
    results = results_of(job, mine)

    def expecting(results, replay=None, select_on="all"):
        config = SimpleNamespace(objective="modified_map@3", select_on=select_on, experiment_name="e", document={})
        numbered = dict(enumerate([*results, TrialResult(3, "", None, "FAILED")]))
        return expected(numbered, 0, Tracker(), mine, config, replay)

    found = expecting(results)
    assert (found.runs, found.how, found.alone, found.run_id) == (3, "choice", True, None)
    assert found.best == results[0].objective.value
    public = expecting(results, select_on="public")
    assert (public.how, public.private) == ("private", 2)
    replayed = expecting(results, Replay("s", 1, 0.5))
    assert (replayed.how, replayed.runs, replayed.of) == ("replay", 3, 3)
    assert expecting(results[:1]) is expecting(results[:1] * 2) is None, "trials of the same key are one"
    # Of what cannot be compared nothing is expected.
    file = mine.folder / "trials" / "1" / "scores.csv"
    file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")
    assert "has changed since the run logged it" in expecting(results).reason
    results[1] = dataclasses.replace(results[1], hashes=json.dumps({file.name: sha256_of(file)}))
    assert "scored on different queries" in expecting(results).reason
