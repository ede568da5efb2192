"""The commands that are printed to go on with."""

import shlex
from pathlib import Path

import pytest

from harness.corpus.extraction import READERS
from harness.data.contest import Sample
from harness.reports.next_steps import EMPTY, TEXTS, Place, next_here, sample_note

pytestmark = pytest.mark.usefixtures("own_cache")


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


def made(*names, text=""):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


RUN = "outputs/runs/2026-01-01_00-00-0"


@pytest.mark.parametrize(
    ("names", "commands"),
    [
        ([], ["run"]),
        (["notes.md", ".git/a.txt", ".git/b.txt"], ["run"]),
        (["my data/documents.jsonl", "my data/eval.jsonl"], ["init dataset=contest 'dataset.path=my data'", "run"]),
        (["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], ["init dataset=beir dataset.path=.", "run"]),
        (["d/corpus.parquet", "d/qa.parquet", "a.txt", "b.txt"], ["init dataset=autorag dataset.path=d", "run"]),
        (
            ["d/documents.jsonl", "d/eval.jsonl", "d/my_qrels.jsonl"],
            ["init dataset=contest dataset.path=d dataset.qrels=d/my_qrels.jsonl", "run"],
        ),
        (
            ["d/documents.jsonl", "d/eval.jsonl", "d/my_qrels.jsonl", "d/qrels.jsonl"],
            ["init dataset=contest dataset.path=d", "run"],
        ),
        (["corpus/a.PDF", "corpus/b.PDF", "corpus/c.md"], ["prepare 'files=corpus/**/*.PDF'"]),
        (["a.txt", "b.txt", "outputs/documents/manifest.json"], ["testset draft model=NAME dry_run=true"]),
        (["outputs/testset/testset.json"], ["run dataset=testset dataset.path=outputs/testset"]),
        ([f"{RUN}1.failed/config.yaml", f"{RUN}1.unfinished/config.yaml"], ["run"]),
        ([f"{RUN}1/config.yaml", f"{RUN}1/scores.csv"], ["runs", "advise"]),
        ([f"{RUN}1/config.yaml"], ["runs", "ui"]),
        (["outputs/sweeps/a1/best/config.yaml", "outputs/sweeps/a1/best/scores.csv"], ["runs", "board", "advise"]),
    ],
)
def test_the_names_in_a_folder_say_what_to_do_next(names, commands):
    made(*names, text="experiment_name: retrieval\nformat: text\n")
    said, steps = next_here()
    assert steps == [f"harness {one}" for one in commands]
    assert (said == EMPTY) == (steps == ["harness run"])


def test_the_sample_is_not_taken_for_a_dataset_that_is_here():
    config = {"outputs": "outputs", "dataset": {"_target_": f"{Sample.__module__}.{Sample.__name__}"}}
    assert sample_note(config, []) == []
    made("d/documents.jsonl", "d/eval.jsonl", "d/qrels.jsonl")
    assert sample_note(config, ["top_k=5"]) == [
        "The shipped sample. d/documents.jsonl and d/eval.jsonl are here, too: "
        "`harness init dataset=contest dataset.path=d` makes them the default."
    ]
    made("harness.yaml", text="top_k: 5")
    assert sample_note(config, [])[0].endswith("write dataset: contest, dataset.path: d in harness.yaml.")
    assert sample_note(config, ["dataset=sample"]) == sample_note({"outputs": "outputs"}, []) == []


def test_after_runs_the_next_commands_are_about_the_latest_experiment():
    for number, more in enumerate(["format: json", "format: text", "top_k: 5"], 1):
        made(f"{RUN}{number}/config.yaml", text=f"experiment_name: '007'\n{more}\n")
        made(f"{RUN}{number}/scores.csv")
        boards = ["harness board experiment_name=007"] * (number == 3)  # the others differ only in their output
        assert next_here()[1] == ["harness runs experiment_name=007", *boards, "harness advise experiment_name=007"]
    made("harness.yaml", text="experiment_name: '007'\n")
    assert next_here()[1] == ["harness runs", "harness board", "harness advise"]
    made("harness.yaml", text="outputs: elsewhere\n")
    assert next_here() == ("harness.yaml has the defaults. No run is here yet.", ["harness run"])


def test_texts_are_the_files_that_prepare_reads():
    assert {*TEXTS} == {suffix for reader in READERS for suffix in reader.suffixes} - {""}
