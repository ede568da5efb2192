"""A recipe works in every command: each takes the keys that it has."""

import pytest
import yaml

from harness import cli
from harness.cli import COMMANDS
from harness.config import recipes
from harness.config.recipes import unfolded
from harness.errors import BadInput

MINE = """# @package _global_
# What everybody here uses.
defaults:
  - base
  - override /gate: score
  - override /retriever: hybrid_lexical
  - override /dataset: contest
gate: {source: bigram, threshold: 6}
fusion: {weights: {bm25: 0.5}}
dataset: {path: "a folder, with = signs"}
experiment_name: "2024"
top_k: 5
top: 7
metric: ndcg@10
seed: 3
"""
BASE = "# @package _global_\n# The base.\noutputs: elsewhere\ntop_k: 4\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my" / "experiment").mkdir(parents=True)
    for name, text in {"mine": MINE, "base": BASE}.items():
        (tmp_path / "my" / "experiment" / f"{name}.yaml").write_text(text, "utf-8")
    return tmp_path / "my"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("init",)])
def test_every_command_takes_what_it_has(command, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    code = cli.call(command, [f"--config-dir={folder}", "experiment=mine", "--cfg=job"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    config = yaml.safe_load(captured.out)
    assert config["outputs"] == "elsewhere"
    assert config.get("top_k", 5) == 5
    if "gate" in config:
        assert config["gate"]["threshold"] == 6
        assert config["fusion"]["weights"] == {"bm25": 0.5, "bigram": 1.0}
        assert config["dataset"]["path"] == "a folder, with = signs"
    if command == "compare":
        assert (config["top"], config["metric"], config["experiment_name"]) == (7, "ndcg@10", "2024")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("mien", MINE, r"experiment=mine: there is no such choice\. Did you mean 'mien'"),
        ("mine", MINE.replace("top_k", "top_kk"), r"mine\.yaml: no command has the key top_kk\. Did you mean 'top_k'"),
        ("mine", "# @package _global_\n\tx: 1", r"mine\.yaml:2: this is not a config"),
        ("base", "# @package _global_\ndefaults: [mine]\n", "this recipe builds on itself, by mine -> base -> mine"),
    ],
)
def test_what_is_no_recipe_is_refused(folder, file, text, message):
    if file == "mien":
        (folder / "experiment" / "mine.yaml").unlink()
    (folder / "experiment" / f"{file}.yaml").write_text(text, "utf-8")
    with pytest.raises(BadInput, match=message):
        unfolded("compare", ["experiment=mine"], [folder])


def test_of_hydras_section_nothing_is_taken(folder):
    (folder / "experiment" / "mine.yaml").write_text("# @package _global_\nhydra: {verbose: true}\ntop: 3\n", "utf-8")
    settings, _ = unfolded("compare", ["experiment=mine"], [folder])
    assert [one.key for one in settings] == ["top"]


def test_a_run_ignores_what_only_other_commands_have_and_refuses_what_no_command_has(folder, toy, harness):
    words = (f"--config-dir={folder}", "experiment=mine", "tracking=none", "format=json")
    (folder / "experiment" / "mine.yaml").write_text(MINE.replace('"a folder, with = signs"', "toy"), "utf-8")
    assert harness("run", *words).json["counts"]["scored"] == 3
    (folder / "experiment" / "mine.yaml").write_text(MINE + "tops: 3\n", "utf-8")
    assert "tops is unknown here" in harness("run", *words).err


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_file_that_decides_where_data_go_is_named(command, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    recipes._say.cache_clear()
    file = folder / "experiment" / "away.yaml"
    text = "# @package _global_\ntracking: {uri: 'http://127.0.0.1:1'}\nllm: {base_url: null}\n"
    file.write_text(text + "outputs: outputs\nstore: {path: 's3://theirs/x'}\n", "utf-8")
    cli.call(command, [f"--config-dir={folder}", "experiment=away", "--cfg=job"])
    places = "tracking.uri (127.0.0.1:1) and store.path (theirs)"
    assert f"Note: {file} sets {places}, so it decides where your data go.\n" in capsys.readouterr().err
    assert cli.call(command, [f"--config-dir={folder}", "experiment=mine", "--cfg=job"]) == 0
    assert "Note:" not in capsys.readouterr().err


def test_a_search_service_of_a_folder_is_named_with_its_host_and_without_a_login(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    recipes._say.cache_clear()
    (folder / "retriever").mkdir()
    (file := folder / "retriever" / "far.yaml").write_text(
        "far:\n  _target_: retriever/http\n  url: https://u:secret@search.invalid:8/s\n  ids: '[*]'\n"
        "  body: {q: '{query}'}\n  runtime: {headers_env: {X-Key: AWS_SECRET}}\n"
    )
    cli.call("run", [f"--config-dir={folder}", "retriever=far", "--cfg=job"])
    err = capsys.readouterr().err
    sent = "retriever.far.url (search.invalid:8) and retriever.far.runtime.headers_env.X-Key"
    assert err.startswith(f"Note: {file} sets {sent}, so it decides where your data go.\n")
    assert "secret@" not in err
