"""Work on shards, in this process and on a Ray cluster whose nodes are simulated on this machine."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest
import ray_jobs
from faulting.ray_nodes import Nodes
from planted_modules import Planted
from threadpoolctl import threadpool_info, threadpool_limits

from harness.cluster import ray_cluster, ray_worker
from harness.cluster.cluster import Local, ShardWork
from harness.cluster.ray_cluster import RayCluster, even_share
from harness.cluster.ray_connection import RayNode
from harness.errors import BadInput, Failed
from retrievers.base import cores
from retrievers.lexical import tokenize

WORK = ShardWork(ray_jobs.double, [1], [1])


def test_jobs_in_this_process_are_done_in_order_and_the_progress_counts_their_sizes():
    seen = []
    work = ShardWork(str.upper, ["a", "b", "c"], [2, 3, 5])
    assert Local(10).run(work, lambda *state: seen.append(state)) == ["A", "B", "C"]
    assert seen == [(2, 10, "documents"), (5, 10, "documents"), (10, 10, "documents")]


@pytest.fixture(scope="module")
def nodes():
    """Two nodes with one core and one pretended GPU each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(ray_jobs.__file__).parent))  # nodes import the jobs by their module's name
        with Nodes(2) as running:
            yield running


@pytest.fixture
def run(nodes):
    def on_the_nodes(do, jobs, progress=None, sizes=None, gpus=0, **about):
        cluster = RayCluster(10, nodes.address, encoding_gpus=gpus)
        return cluster.run(ShardWork(do, jobs, sizes or [1] * len(jobs), **about), progress)

    return on_the_nodes


@pytest.mark.slow
def test_results_are_in_order_and_workers_are_kept_and_use_their_share_of_the_cores(run):
    seen, sizes = [], [1, 5, 2, 4]
    assert run(ray_jobs.double, [1, 2, 3, 4], lambda *state: seen.append(state), sizes=sizes) == [2, 4, 6, 8]
    assert seen[-1] == (12, 12, "documents")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    first, again = run(ray_jobs.where, [1, 2, 3]), run(ray_jobs.where, [1, 2, 3], needs="model")
    assert {pid for pid, *_ in first} & {pid for pid, *_ in again}
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    assert all(tuple(seen) == (priority, 1, 1, {1}) for _, *seen in (*first, *again))


@pytest.mark.slow
def test_a_worker_with_a_gpu_is_kept_so_that_its_model_is_loaded_once(run):
    seen = run(ray_jobs.where, [1, 2, 3, 4], needs="model", gpus=1)
    assert len({pid for pid, *_ in seen}) <= 2


def test_a_worker_follows_the_share_of_each_job(monkeypatch):
    torch, kiwi = [], []
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=torch.append))
    monkeypatch.setattr(tokenize, "_loaded_kiwi", kiwi.append)
    with threadpool_limits():  # puts the numbers of threads back afterwards
        for share in (1, 2, 1):
            ray_worker.use_cores(share)
            tokenize.kiwi_model(None)
            assert cores() == share
            assert {one["num_threads"] for one in threadpool_info()} == {share}
    assert torch == kiwi == [1, 2, 1]


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("bad", BadInput, "^documents.jsonl:3: no text$"),
        ("failed", Failed, "^the model writes nothing$"),
        ("broken", Failed, r"(?s)a job failed on .* node .*ZeroDivisionError: division by zero"),
        ("full", Failed, r"^/shared/cache/indexes: No space left on device \(on .* node .*\)\. Free some space there"),
    ],
)
def test_a_job_that_fails_says_why(run, how, kind, message):
    with pytest.raises(kind, match=message):
        run(ray_jobs.fail, [how])


@pytest.mark.slow
def test_the_job_of_a_worker_that_died_is_done_again_and_one_that_kills_its_workers_is_given_up(run, tmp_path):
    assert run(ray_jobs.die_once, [str(tmp_path / "a")]) == ["lived"]
    with pytest.raises(Failed, match=r"lost its worker 3 times\. If a node's memory"):
        run(ray_jobs.die, [1])


@pytest.mark.slow
def test_the_jobs_of_a_node_that_died_are_done_elsewhere(nodes, run):
    killing = threading.Timer(1.5, nodes.kill, [0])
    killing.start()
    try:
        assert run(ray_jobs.slow, [2.0, 2.1]) == [2.0, 2.1]
    finally:
        killing.join()
        nodes.repair()


@pytest.mark.slow
def test_a_node_that_does_not_see_the_store_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "touch", lambda self: None)  # the file is nowhere
    with pytest.raises(BadInput, match=rf"store\.path={tmp_path} is not shared with .* node "):
        run(ray_jobs.double, [1], store=str(tmp_path))

    monkeypatch.undo()
    assert run(ray_jobs.double, [1], store=str(tmp_path / "cache")) == [2]
    assert run(ray_jobs.double, [1], store="s3://bucket/cache") == [2]
    assert not [*(tmp_path / "cache").iterdir()], "the file that nodes must see is gone afterwards"


@pytest.mark.parametrize("what", ["the code of retrieval-harness", "numpy"])
def test_a_node_with_other_versions_is_named(run, monkeypatch, what):
    ours = ray_worker.node_versions()
    monkeypatch.setattr(ray_cluster, "node_versions", lambda: {**ours, what: "99"})
    with pytest.raises(BadInput, match=f"{what} differs: {ours[what]} on .* node .*, 99 here"):
        run(ray_jobs.double, [1])


def test_gpus_and_cores_that_no_node_has_are_refused(nodes):
    with pytest.raises(BadInput, match=r"encoding_gpus is 2, but no node .* has 3 nodes, 2 cores, 2 GPUs\."):
        RayCluster(10, nodes.address, encoding_gpus=2).run(WORK)
    with pytest.raises(BadInput, match=r"encoding_cores is 64, but no node of the cluster has so many"):
        RayCluster(10, nodes.address, encoding_cores=64).run(WORK)


@pytest.mark.slow
def test_doctor_examines_the_nodes(nodes, harness):
    for address, state, said in (
        (nodes.address, "ok", ": 2 nodes, 2 cores, 2 GPUs; all nodes have equal versions"),
        ("127.0.0.1:1", "error", "nothing answers there"),
    ):
        done = harness("doctor", "cluster=ray", f"cluster.runtime.address={address}", "format=json")
        [found] = [one for one in json.loads(done.out)["findings"] if one["about"] == "cluster"]
        assert found["state"] == state
        assert said in found["said"]


WORDS = ["dataset=contest", "dataset.path=toy", "tokenizer=word", "tracking=none"]


@pytest.mark.slow
def test_rankings_are_those_of_this_machine_alone(nodes, harness, toy):
    words = [*WORDS, "retriever=hybrid", "encoder=use_multilingual", "cluster.shard=2", "format=json"]
    remote = ["cluster=ray", f"cluster.runtime.address={nodes.address}", "store.path=remote"]
    here, there = harness("run", *words, "store.path=here"), harness("run", *words, *remote)
    assert there.json["metrics"] == here.json["metrics"]


@pytest.mark.slow
def test_a_cluster_of_our_own_has_few_services_and_imports_nothing_from_the_working_folder(toy, tmp_path):
    planted = Planted(tmp_path)
    words = [*WORDS, "cluster=ray", "cluster.shard=2", "store.path=own"]
    code = """
        from harness.cli import main
        try:
            main()
        finally:
            import ray._private.worker
            print("services:", *sorted({*ray._private.worker._global_node.all_processes} - {"reaper"}))
    """
    command = [sys.executable, "-P", "-c", dedent(code), "run", *words]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert planted.executed == []
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "services: gcs_server raylet"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "nothing answers there"),
        ("nowhere.invalid:6379", "nothing answers there"),
        ("ray://127.0.0.1:10001", "give HOST:PORT"),
        ("127.0.0.1", "give HOST:PORT"),
        ("127.0.0.1:99999", "give HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(address, message, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    for key, given in (("cluster.runtime.address", address), ("RAY_ADDRESS", None)):
        with pytest.raises(BadInput, match=f"{key}={address}: {message}"):
            RayCluster(10, given).run(WORK)


def test_a_server_that_is_not_ray_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(BadInput, match="something other than Ray answers there"):
            RayCluster(10, f"127.0.0.1:{server.getsockname()[1]}").run(WORK)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shard": None}, "shard is null"),
        *(({"shard": shard}, "at least 1") for shard in (0, -1, True, 1.5, "many")),
        ({"encoding_cores": 0}, "encoding_cores is 0"),
        ({"encoding_gpus": -1}, "encoding_gpus is -1"),
        ({"encoding_gpus": 1.5}, "whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message):
        RayCluster(**arguments)


def test_without_ray_the_command_that_installs_it_is_given_unless_there_is_nothing_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert RayCluster(10).run(ShardWork(ray_jobs.double, [], [])) == []
    with pytest.raises(BadInput, match=r"pip install -c constraints.txt -e '\.\[ray\]'"):
        RayCluster(10).run(WORK)


def test_the_cores_of_a_worker():
    node = RayNode("a", "host", cores=16, gpus=4)
    assert {gpus: node.share(gpus) for gpus in (0, 1, 0.5, 2, 8)} == {0: 16, 1: 4, 0.5: 2, 2: 8, 8: 0}
    nodes = [RayNode("head", "host", 0, 0), RayNode("a", "host", 4, 0), RayNode("b", "other", 8, 2)]
    assert [even_share(nodes, jobs) for jobs in (1, 2, 5, 12, 99)] == [8, 6, 2, 1, 1]
    # An encoder gets those of the smallest node that has room.
    assert RayCluster()._encoding_cores(nodes) == 4
    assert RayCluster(encoding_cores=8)._encoding_cores(nodes) == 8
    assert RayCluster(encoding_gpus=1)._encoding_cores(nodes) == 4


@pytest.mark.parametrize("share", ["0", "-1", "two", "4097", "²"])
def test_a_share_of_cores_is_a_number(share, monkeypatch):
    monkeypatch.setenv("HARNESS_CORES", share)
    with pytest.raises(BadInput, match="HARNESS_CORES="):
        cores()
