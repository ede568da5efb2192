"""Jobs that submitit starts: what SLURM's answers mean, and a wait that ends whatever happens to jobs and SLURM."""

import json
import os
import signal
import types
from unittest.mock import Mock

import pytest
from fake_slurm import SILENT, FakeSlurm

from harness import interruption
from harness.errors import BadInput, Failed
from harness.sweeps import submitted
from harness.sweeps.definition import JobsLost
from harness.sweeps.submitted import Element, State, Submitted, Waiting, try_submission

SCRIPT = "#!/bin/bash\ntrue\n"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return FakeSlurm(tmp_path / "slurm", monkeypatch)


@pytest.fixture
def said(monkeypatch):
    """The lines that people see."""
    lines = []
    monkeypatch.setattr(submitted, "tell", lines.extend)
    return lines


# ---- SLURM's answers


def test_the_queue_tells_where_each_element_is(cluster):
    assert submitted.states("12") == {}, "the queue has forgotten it"
    # As squeue 22.05 prints them; a reason may hold a bar.
    cluster.answers("squeue", "12_0|RUNNING|n1|None\n12_1|PENDING||Job's account (a|b) not permitted\n12|COMPLETED|n2|")
    assert submitted.states("12") == {
        "12_0": State("RUNNING", "n1", "None"),
        "12_1": State("PENDING", "", "Job's account (a|b) not permitted"),
        "12": State("COMPLETED", "n2", ""),
    }
    assert "--jobs=12" in cluster.calls("squeue")[0]
    for silent in (SILENT, "squeue: error: slurm_receive_msg: Socket timed out on send/recv operation"):
        cluster.answers("squeue", err=silent, code=1)
        with pytest.raises(submitted.SlurmSilent, match=r"^slurm_(load_jobs error: Unable|receive_msg: Socket)"):
            submitted.states("12")


REFUSALS = [
    ("sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition name specified",
     r"of this sweep: Invalid partition name specified\. `sinfo` lists"),
    ("allocation failure: Invalid account or account/partition combination specified", r"sacctmgr.*launcher\.account"),
    ("sbatch: error: Batch job submission failed: Invalid qos specification", r"hydra\.launcher\.qos"),
    ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", r"launcher\.timeout_min"),
    ("allocation failure: Requested node configuration is not available", r"cpus_per_task and mem_gb"),
    ("sbatch: error: Invalid generic resource (gres) specification", r"hydra\.launcher\.gres"),
    ("allocation failure: Invalid feature specification", r"hydra\.launcher\.constraint"),
    ("sbatch: fatal: Could not establish a configuration source", r"SLURM_CONF"),
    ("sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information",
     r"of this sweep: sbatch: unrecognized option '--nonsense'\.$"),
]  # fmt: skip


@pytest.mark.parametrize(("refusal", "message"), REFUSALS)
def test_what_slurm_would_refuse_is_refused_before_anything_runs(cluster, refusal, message):
    cluster.answers("sbatch", err=refusal, code=1)
    with pytest.raises(BadInput, match=message) as raised:
        try_submission(SCRIPT)
    assert "failed: Invalid" not in str(raised.value)
    assert cluster.calls("sbatch") == ["--test-only"]


def test_jobs_wait_for_nodes_that_are_down_and_the_controller_must_answer(cluster):
    try_submission(SCRIPT)
    cluster.answers("sbatch", err="allocation failure: Required node not available (down, drained or reserved)", code=1)
    try_submission(SCRIPT)
    cluster.answers("sbatch", err="allocation failure: Unable to contact slurm controller (connect failure)", code=1)
    with pytest.raises(Failed, match=r"does not answer: Unable to contact slurm controller.*scontrol ping"):
        try_submission(SCRIPT)


def test_cancelling_what_is_gone_succeeds(cluster, said):
    cluster.answers("scancel", err="scancel: error: Kill job error on job id 12: Invalid job id specified", code=1)
    submitted.cancel("12")
    assert said == []
    cluster.answers("scancel", err="scancel: error: Access/permission denied", code=1)
    submitted.cancel("12")
    assert said == ["SLURM did not cancel job 12: Access/permission denied. Do it by hand: scancel 12"]


# ---- The wait


@pytest.fixture
def launch(tmp_path, monkeypatch, said):
    """Launch jobs 7, 8, ... as elements 0, 1, ... of array 12. results: element -> what its worker has written."""
    for name, seconds in (("LOOK", 0.001), ("ASK", 0.0), ("GRACE", 0.02), ("CANCEL", 0.1)):
        monkeypatch.setattr(submitted, f"{name}_SECONDS", seconds)
    params = {"submitit_folder": str(tmp_path / "jobs/%j"), "max_num_timeout": 0, "timeout_min": 5, "partition": "p"}
    launcher = types.SimpleNamespace(_EXECUTOR="slurm", params=params)
    plain = Waiting.wait

    def call(count, results=(), kind="success"):
        def wait(waiting):
            for element in results:
                put(waiting, element, kind)
            return plain(waiting)

        monkeypatch.setattr(Waiting, "wait", wait)
        return Submitted(launcher).launch([["a=1"]] * count, 7)

    return call


def put(waiting, element, kind="success"):
    """Write what a worker writes at its end."""
    from submitit.core.utils import cloudpickle_dump

    content = f"result {element}" if kind == "success" else "Traceback\n  in f\nharness.errors.Failed: no space left\n"
    cloudpickle_dump((kind, content), waiting.jobs[7 + element].paths.result_pickle)


def test_a_result_that_lay_in_the_folder_before_is_not_read(cluster, launch, tmp_path):
    from submitit.core.utils import cloudpickle_dump

    for name in ("12_0", "12_1"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        cloudpickle_dump(("success", "theirs"), tmp_path / "jobs" / name / f"{name}_0_result.pkl")
    with pytest.raises(JobsLost, match=r"^2 of 2 jobs") as raised:
        launch(2)
    assert all("SLURM no longer knows it" in one for one in raised.value.of.values())


def test_results_are_taken_whatever_slurm_says_and_a_killed_worker_ends_the_wait(cluster, launch, said):
    assert launch(3, results=(0, 1, 2)) == ["result 0", "result 1", "result 2"]
    assert cluster.calls("sacct") == cluster.calls("scancel") == said == []
    cluster.answers("squeue", "12_0|COMPLETED|n1|None\n12_1|FAILED|n2|NonZeroExitCode")
    with pytest.raises(JobsLost, match=r"^1 of 2 jobs ended without a result\..* Repeat the same command") as raised:
        launch(2, results=[0])
    assert list(raised.value.of) == [8]
    assert "killed on n2 (FAILED); job 12_1, log " in raised.value.of[8]
    assert any(line.startswith("Job 12_1 ended without a result") for line in said)


@pytest.mark.parametrize(
    ("state", "message", "advice"),
    [
        ("OUT_OF_MEMORY", "more memory than it had on n1", "hydra.launcher.mem_gb"),
        ("TIMEOUT", "ran out of time on n1", "hydra.launcher.timeout_min"),
        ("NODE_FAIL", "its node failed on n1", "hydra.launcher.exclude"),
        ("PREEMPTED", "higher priority", "hydra.launcher.partition"),
        ("CANCELLED by 1000", "it was cancelled on n1 (CANCELLED)", "Repeat"),
        ("COMPLETED", "SLURM says that it completed", "All nodes must share"),
    ],
)
def test_accounts_say_how_a_forgotten_job_ended(cluster, launch, state, message, advice):
    cluster.answers("sacct", f"12|{state}|n1")
    with pytest.raises(JobsLost) as raised:
        launch(1)
    assert message in raised.value.of[7]
    assert advice in str(raised.value)


def test_a_job_that_is_queued_again_is_waited_for(cluster, launch, monkeypatch):
    """Its node failed; SLURM starts it again on another one."""
    monkeypatch.setattr(submitted, "GRACE_SECONDS", 0.2)
    cluster.answers("squeue", "12|NODE_FAIL|n1|None", call=1)
    for call in (2, 3):
        cluster.answers("squeue", "12|PENDING||BeginTime", call=call)
    plain, over = Waiting._ask, []

    def ask(waiting):
        plain(waiting)
        over.append(list(waiting.over))
        put(waiting, 0) if len(over) == 3 else None

    monkeypatch.setattr(Waiting, "_ask", ask)
    assert launch(1) == ["result 0"]
    assert over == [[7], [], []]


def test_a_silent_controller_is_waited_for(cluster, launch, said):
    for call in (1, 2):
        cluster.answers("squeue", err=SILENT, code=1, call=call)
    with pytest.raises(JobsLost):
        launch(1)
    silent, again = (next(n for n, line in enumerate(said) if text in line) for text in ("not answer", "answers again"))
    assert silent < again
    assert sum("does not answer" in line for line in said) == 1
    assert len(cluster.calls("squeue")) > 2


def test_what_waits_in_the_queue_is_said(cluster, launch, said):
    waiting = "12_0|PENDING||Priority\n12_1|PENDING||Resources\n12_2|RUNNING|n1|None\n12_3|PENDING||JobHeldUser"
    cluster.answers("squeue", waiting, call=1)
    with pytest.raises(JobsLost):
        launch(4)
    assert said[0] == "SLURM job 12: 3 pending (JobHeldUser, Priority, Resources), 1 running"
    assert said.count("SLURM job 12: 4 ending") == 1


def test_jobs_that_could_never_start_are_cancelled(cluster, launch):
    cluster.answers("squeue", "12_0|PENDING||PartitionTimeLimit\n12_1|PENDING||PartitionTimeLimit")
    with pytest.raises(JobsLost, match=r"hydra\.launcher\.timeout_min=MINUTES") as raised:
        launch(2)
    assert "would never start it (PartitionTimeLimit)" in raised.value.of[7]
    assert cluster.calls("scancel") == ["12"]


def test_an_interruption_cancels_the_array(cluster, launch, monkeypatch):
    cluster.answers("squeue", "12_0|RUNNING|n1|None\n12_1|PENDING||Resources")
    monkeypatch.setattr(submitted, "tell", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        launch(2)
    assert cluster.calls("scancel") == ["12"]


def test_the_error_of_a_job_is_its_last_line_and_that_of_a_submission_what_slurm_says(cluster, launch):
    with pytest.raises(JobsLost) as raised:
        launch(2, results=(0, 1), kind="error")
    assert raised.value.of[8].startswith("no space left; job 12_1, log ")
    refused = "sbatch: error: Batch job submission failed: Invalid job array specification"
    cluster.answers("sbatch", err=refused, code=1)
    with pytest.raises(Failed, match=r"Invalid job array specification\. .*trials_per_job") as raised:
        launch(2)
    assert not isinstance(raised.value, BadInput | JobsLost)


# ---- In a worker


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGUSR2, Failed), (signal.SIGTERM, interruption.Terminated)])
def test_a_warning_ends_the_job_and_not_only_its_trial(monkeypatch, number, kind):
    """A cancelled job leaves no result: submitit writes one for any Exception, and SLURM may start the job again."""
    from submitit.core.utils import UncompletedJobError

    def timed_out(*_):
        raise UncompletedJobError("Job not requeued because: timed-out too many times.")

    def cancelled(*_):
        raise interruption.Terminated

    def trial(*_):
        try:
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 5)  # the handler runs before it returns
        except Exception:
            return "the trial failed, and the next one begins"

    monkeypatch.setattr(interruption, "listen", lambda: signal.signal(signal.SIGTERM, cancelled))
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR2)}
    signal.signal(signal.SIGUSR2, timed_out)
    try:
        with pytest.raises(kind, match="its time was over .*timed-out too many times" if kind is Failed else None):
            Element(trial)(["a=1"], 3, None)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# ---- Whole sweeps

WORDS = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "gate=score", "gate.threshold=0,1")
SLURM = "hydra/launcher=submitit_slurm"


@pytest.mark.slow
def test_a_sweep_whose_jobs_are_lost_says_which_and_is_finished_by_any_launcher(harness, toy, cluster, launch):
    words = (*WORDS, "format=json")
    done = harness("sweep", *words, SLURM)
    assert done.code == 1
    lost = "its job ended without a result (SLURM no longer knows it; job 12, log "
    assert [lost in row["error"] for row in json.loads(done.out)["failed"]] == [True, True]
    again = harness("sweep", *words)
    assert (again.code, again.json["trials"]["finished"]) == (0, 2)


def test_a_sweep_that_slurm_would_refuse_begins_nothing(harness, toy, cluster, tmp_path, monkeypatch):
    cluster.answers("sbatch", err="allocation failure: Invalid partition name specified", code=1)
    done = harness("sweep", *WORDS, SLURM, "hydra.launcher.partition=nope")
    assert done.code == 2
    assert "Invalid partition name specified. `sinfo` lists" in done.err
    assert cluster.calls("sbatch") == ["--test-only"]
    assert not (tmp_path / "outputs" / "sweeps").exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "PATH has no sbatch or srun or squeue or scancel" in harness("sweep", *WORDS, SLURM).err
    assert harness("sweep", *WORDS, SLURM, "dry_run=true").code == 0, "a plan asks nothing of SLURM"
