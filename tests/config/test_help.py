"""`harness COMMAND --help`, and the comments of the configs that it shows."""

import re
import subprocess
import sys

import pytest

from harness import cli
from harness.config import check, help, manual


@pytest.fixture
def shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda command, *words: help.help_page(command, words)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_key_and_every_choice_of_a_command_is_explained_in_80_columns(shown, command):
    page = shown(command)
    found = manual.manual(check.primary(command))
    assert cli.COMMANDS[command].about.endswith(".")
    assert all(f"{key}=" in page and entry.comment for key, entry in found.keys.items())
    for group in found.groups:
        if (command, group) not in help.REFUSED:
            assert all(re.search(rf"\b{choice}\b", page) for choice in manual.choice_files(group)), group
    assert max(map(len, page.splitlines())) <= 80


def test_choices_on_the_command_line_and_in_harness_yaml_show_their_keys(shown, tmp_path):
    page, chosen = shown("run"), shown("run", "gate=score", "gate.threshold=5", "encoder=bge_m3", "retriever=bm25")
    assert not [key for key in ("gate.threshold", "encoder.max_length", "sweep=") if key in page]
    for shows in ("gate.threshold=5", " * score", "encoder.max_length", "retriever.bm25.k1"):
        assert shows in chosen
    (tmp_path / "harness.yaml").write_text("top_k: 7\ngate: score\n")
    assert "top_k=7 " in shown("run")
    assert " * score" in shown("run")


def test_the_help_of_run_begins_with_what_people_choose_first(shown):
    lines = [line.strip() for line in shown("run").splitlines()]
    keys = ("dataset=", "retriever=", "gate=", "top_k=", "All other keys", "tokenizer=")
    starts = [next(n for n, line in enumerate(lines) if line.startswith(key)) for key in keys]
    assert starts == sorted(starts)
    assert (starts[0] < 10, len(lines) < 120) == (True, True)


def test_help_may_be_asked_for_in_two_ways(shown, capsys):
    for line in ("help doctor cache", "doctor cache -h"):
        with pytest.raises(SystemExit) as end:
            cli.main(line.split())
        assert (end.value.code, capsys.readouterr().out) == (0, shown("doctor cache") + "\n")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from harness.cli import main\n"
        "try: main(['run', '--help'])\n"
        "finally: print([m for m in ('hydra', 'omegaconf', 'mlflow', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("[]\n"), done.stderr


@pytest.mark.parametrize("group", sorted(manual.manual("sweep").groups))
def test_every_choice_says_what_it_is_and_every_key_what_it_does(group):
    assert all(manual.read_manual(path).about for path in manual.choice_files(group).values())
    if group not in manual.RECIPES:  # they set what others explain
        bare = [key for key, entry in manual.all_keys(group).items() if not entry.comment]
        assert not [key for key in bare if not {"bigram", "bleurt", "weights"} & {*key.split(".")}]


def test_entries_are_read_with_values_and_the_comments_beside_and_below():
    keys = manual.manual_keys("gate", "score")
    assert keys["gate.k"] == manual.Entry("10", "number of top documents that mean_top_k, zscore and others read")
    assert keys["gate.signal"].comment.endswith("(the last two are slow, but cached)")  # two lines
    assert manual.manual_keys("task", "retrieval")["metrics"].value.startswith("[modified_map@3, ")
    assert "hydra" not in str(manual.manual("sweep").keys)


def test_a_command_has_the_keys_of_its_groups_alone_and_a_hybrid_those_of_its_parts():
    for name, key, expected in (("run", "dataset.path", True), ("run", "experiment_name", True),
                                ("ui", "dataset.path", False), ("run", "search.trials", False),
                                ("sweep", "search.trials", True)):  # fmt: skip
        assert manual.manual(name).has(key) == expected
    parts = {"retriever.bm25.k1", "retriever.bigram.k1", "fusion.weights.bigram"}
    assert parts <= set(manual.manual_keys("retriever", "hybrid_lexical"))
