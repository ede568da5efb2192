"""The commands that are printed to go on with."""

import shlex

import pytest

from harness.reports.next_steps import Place


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", "cache")


def place(task="retrieval", **changes):
    config = {"outputs": "outputs", "experiment_name": task, "tracking": {"uri": None}, "store": {"path": "cache"}}
    return Place(config | changes, {"task": task})


def test_what_a_command_finds_by_itself_is_not_repeated():
    assert place().command("ui") == "harness ui"
    assert place().command("export", "run=a1") == "harness export run=a1"
    assert place("corrections").command("compare") == "harness compare task=corrections"
    assert place().command("compare", metric="ndcg@10") == "harness compare metric=ndcg@10"
    assert place("corrections").command("ui") == "harness ui experiment_name=corrections"
    there = Place(place().config, {}, "my conf")
    assert there.command("export", "run=a1") == "harness export '--config-dir=my conf' run=a1"


def test_what_was_given_is_carried_and_quoted():
    given = place(
        outputs="my outputs",
        experiment_name="한국어 실험",
        tracking={"uri": "http://127.0.0.1:5001"},
        store={"path": "elsewhere"},
    )
    assert shlex.split(given.command("export", "run=a1")) == [
        "harness", "export", "outputs=my outputs", "tracking.uri=http://127.0.0.1:5001",
        "experiment_name=한국어 실험", "store.path=elsewhere", "run=a1",
    ]  # fmt: skip
    assert "store.path" not in given.command("ui")  # it has no such key
    assert shlex.split(given.command("export record", "public=SCORE"))[3:] == [
        "outputs=my outputs", "tracking.uri=http://127.0.0.1:5001", "public=SCORE",
    ]  # fmt: skip


def test_harness_yaml_need_not_be_repeated(tmp_path):
    (tmp_path / "harness.yaml").write_text("experiment_name: first\noutputs: mine\nobjective: ndcg@10\n")
    first = {"experiment_name": "first", "outputs": "mine"}
    assert place(**first).command("ui") == "harness ui"
    for name in ("other", "retrieval"):
        assert place(**first | {"experiment_name": name}).command("ui") == f"harness ui experiment_name={name}"
    assert place(**first).command("compare", metric="ndcg@10") == "harness compare metric=ndcg@10"
    (tmp_path / "harness.yaml").write_text("objective: ndcg@10\nmetric: mrr\n")
    assert place().command("compare", metric="ndcg@10") == "harness compare metric=ndcg@10"
    assert place().command("compare", metric="mrr") == "harness compare"


def test_the_environment_and_passwords_are_not_printed(monkeypatch):
    secret = {"tracking": {"uri": "http://me:secret@127.0.0.1:5001"}}
    assert place(**secret).command("ui") == "harness ui"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5001")
    assert place(tracking={"uri": "http://127.0.0.1:5001"}).command("ui") == "harness ui"
