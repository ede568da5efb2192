"""What is asked of SLURM's commands, and what their answers mean."""

import pytest
from fake_slurm import SILENT, FakeSlurm

from harness.errors import BadInput, Failed
from harness.sweeps import submitted
from harness.sweeps.submitted import State


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(submitted, "PAUSE_SECONDS", 0.0)
    return FakeSlurm(tmp_path / "slurm", monkeypatch)


def test_the_queue_tells_where_each_element_is(cluster):
    # As squeue 22.05 prints them; a reason may hold a bar.
    cluster.answers("squeue", "12_0|RUNNING|n1|None\n12_1|PENDING||Job's account (a|b) not permitted\n12|COMPLETED|n2|")
    assert submitted.states("12") == {
        "12_0": State("RUNNING", "n1", "None"),
        "12_1": State("PENDING", "", "Job's account (a|b) not permitted"),
        "12": State("COMPLETED", "n2", ""),
    }
    assert "--jobs=12" in cluster.calls("squeue")[0]


def test_a_job_that_the_queue_has_forgotten_has_no_state(cluster):
    assert submitted.states("12") == {}


@pytest.mark.parametrize("said", [SILENT, "squeue: error: slurm_receive_msg: Socket timed out on send/recv operation"])
def test_a_silent_controller_is_no_answer(cluster, said):
    cluster.answers("squeue", err=said, code=1)
    with pytest.raises(
        submitted.SlurmSilent, match=r"^(slurm_load_jobs error: Unable to contact|slurm_receive_msg: Socket)"
    ):
        submitted.states("12")


def test_accounts_tell_how_jobs_ended(cluster):
    cluster.answers("sacct", "12_0|OUT_OF_MEMORY|n1\n12_1|CANCELLED by 1000|n2\n12_2|COMPLETED|n1\n12_[3-9]|PENDING|")
    found = submitted.ended("12")
    assert {name: state.name for name, state in found.items() if state.is_over} == {
        "12_0": "OUT_OF_MEMORY", "12_1": "CANCELLED", "12_2": "COMPLETED",
    }  # fmt: skip


def test_without_accounts_nothing_is_known_of_how_jobs_ended(cluster):
    assert submitted.ended("12") == {}
    cluster.answers("sacct", err="Slurm accounting storage is disabled", code=0)  # as some versions do
    assert submitted.ended("12") == {}
    (cluster.folder / "sacct").unlink()
    cluster.answers("sacct", err="sacct: error: Problem talking to the database", code=1)
    assert submitted.ended("12") == {}


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


@pytest.mark.parametrize(("said", "message"), REFUSALS)
def test_what_slurm_would_refuse_is_refused_before_anything_runs(cluster, said, message):
    cluster.answers("sbatch", err=said, code=1)
    with pytest.raises(BadInput, match=message) as raised:
        submitted.try_submission("#!/bin/bash\ntrue\n")
    assert "failed: Invalid" not in str(raised.value)
    tries = submitted.TRIES if submitted.RETURNING in said else 1
    assert cluster.calls("sbatch") == ["--test-only"] * tries


def test_nodes_that_come_back_after_their_controller_are_waited_for(cluster):
    cluster.answers("sbatch", err="allocation failure: Requested node configuration is not available", code=1, call=1)
    submitted.try_submission("#!/bin/bash\ntrue\n")
    assert len(cluster.calls("sbatch")) == 2


def test_a_cluster_whose_nodes_are_all_down_takes_jobs_that_wait(cluster):
    cluster.answers("sbatch", err="allocation failure: Required node not available (down, drained or reserved)", code=1)
    submitted.try_submission("#!/bin/bash\ntrue\n")


def test_a_silent_controller_refuses_nothing_but_the_sweep_fails(cluster):
    cluster.answers("sbatch", err="allocation failure: Unable to contact slurm controller (connect failure)", code=1)
    with pytest.raises(Failed, match=r"does not answer: Unable to contact slurm controller.*scontrol ping"):
        submitted.try_submission("#!/bin/bash\ntrue\n")


def test_a_machine_without_slurm_is_told_of(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="PATH has no sbatch or srun or squeue or scancel"):
        submitted.check_slurm()


def test_cancelling_what_is_gone_succeeds(cluster):
    cluster.answers("scancel", err="scancel: error: Kill job error on job id 12: Invalid job id specified", code=1)
    assert submitted.cancel("12") == ""
    cluster.answers("scancel", err="scancel: error: Access/permission denied", code=1)
    assert submitted.cancel("12") == "Access/permission denied"
