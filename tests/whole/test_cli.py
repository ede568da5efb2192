"""The command line: quoting of values that Hydra's lexer refuses, readable errors, and exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.config import overrides
from harness.config.composing import Flags

KNOWN = [
    overrides.lookup(name, ["dataset=contest", "gate=score"])
    for name in ("run", "score", "search", "compare", "export")
]


def key_of(key):  # of several commands
    return next(filter(None, (find(key) for find in KNOWN)), None)


def parsed(word: str, multirun: bool = False):
    override = OverridesParser.create().parse_override(overrides.quoted_override(word, key_of, multirun))
    value = override.value()
    return getattr(value, "text", value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("experiment_name=2024", "2024"),
        ("experiment_name=007", "007"),
        ("experiment_name=1e5", "1e5"),
        ("experiment_name=true", "true"),
        ("experiment_name=한국어 실험", "한국어 실험"),
        ("predictions=데이터/x.jsonl", "데이터/x.jsonl"),
        ("dataset.path=/tmp/a (copy)/b=c", "/tmp/a (copy)/b=c"),
        ("query=물, 불 그리고 '바람'?", "물, 불 그리고 '바람'?"),
        ("query=a,b", "a,b"),
        ("query=it's \\'quoted\\'", "it's \\'quoted\\'"),
        ("dataset.path=C:\\data\\", "C:\\data\\"),
        ("run_name='already quoted'", "already quoted"),
        ("run_name=null", None),
        ("top_k=5", 5),
        ("gate.threshold=0.5", 0.5),
        ("retriever.bm25.variant=okapi", "okapi"),
        ("tokenizer.tags=[NN*, 'V V']", ["NN*", "V V"]),
        ("retriever.bm25.note=한국어", "한국어"),  # any other value that the lexer refuses
    ],
)
def test_values_arrive_as_they_were_typed(word, value):
    assert parsed(word) == value


def test_metrics_lists_need_no_quotes():
    assert parsed(word := "metrics=[modified_map@3,ndcg@10]") == ["modified_map@3", "ndcg@10"]
    assert overrides.unquoted(overrides.quoted_override(word, key_of)) == word
    assert overrides.unquoted("runs=['007','true','a b',map]") == "runs=['007','true','a b',map]"


def test_ids_of_runs_are_no_numbers():
    assert parsed("runs=[12345678, 12e45678,'01234567',3f2a91bc]") == ["12345678", "12e45678", "01234567", "3f2a91bc"]
    assert parsed("run=12e45678") == "12e45678"


def test_commas_separate_text_values_in_a_multirun():
    override = OverridesParser.create().parse_override(
        overrides.quoted_override("dataset.path=가,나 다", key_of, multirun=True)
    )
    assert override.is_sweep_override()
    assert [getattr(value, "text", value) for value in override.value().list] == ["가", "나 다"]


@pytest.mark.parametrize("word", ["--help", "-m", "--config-dir=/a b", "retriever", "~gate"])
def test_flags_and_bare_words_stay(word):
    assert overrides.quoted_override(word, key_of) == word


def test_flags_may_stand_between_overrides():
    flags = Flags.of(["top_k=1", "--cfg", "job", "depth=5", "--reso", "--config-d", "a=b"])
    assert flags == Flags("job", True, None, False, Path("a=b"), ("top_k=1", "depth=5"))


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1))
def test_any_text_survives_the_lexer(text):
    plain = text not in ("null", "???") and "${" not in text
    quoted_already = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if plain and not quoted_already:
        assert parsed(f"experiment_name={text}") == text


def harness(*words, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *words],
        capture_output=True, text=True, cwd=cwd, env=os.environ | env, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("words", [["--help"], []])
def test_the_first_words_import_nothing_heavy(words, tmp_path):
    code = (
        f"import sys; from harness.cli import main\ntry: main({words})\n"
        "finally: print([m for m in ('hydra', 'mlflow', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.endswith("lists all commands.\n[]\n" if not words else "[]\n")


def test_help_lists_the_verbs_in_the_order_of_their_need(inside):
    lines = inside("--help").splitlines()
    assert [line for line in lines if line in cli.GROUPS] == list(cli.GROUPS)
    assert [line.split("  ")[1] for line in lines if line[:2] == "  " and line[2] != " "] == list(cli.COMMANDS)


def test_without_a_command_it_says_what_to_do_next(inside, tmp_path):
    about = "      Run one experiment, from documents and queries to a tracked score that can be exported."
    assert inside().splitlines()[-4:] == ["  harness run", about, "", "`harness --help` lists all commands."]
    (tmp_path / "harness.yaml").write_text("top_k: [\n")
    with pytest.raises(SystemExit) as end:
        cli.main([])
    assert end.value.code == 2


@pytest.fixture
def inside(tmp_path, monkeypatch, capsys):
    """What the command prints, called in this process in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with pytest.raises(SystemExit):
            cli.main(words)
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("harness s", {"score", "search"}),
        ("harness run gate=", {"gate=none", "gate=score"}),
        ("harness run tokeni", {"tokenizer="}),
        ("harness export met", {"metric="}),
        ("harness export rec", {"record"}),
        ("harness testset ", {"draft"}),
        ("harness testset draft lim", {"limit="}),
        ("harness doctor cache sor", {"sort="}),
    ],
)
def test_tab_completion(line, expected, inside, monkeypatch):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    assert expected <= set(inside("-sc", "query=bash").split())


def test_completion_installs_and_answers(tmp_path):
    done = harness("-sc", "query=bash", cwd=tmp_path, COMP_LINE="harness s", COMP_POINT="9")
    assert {"score", "search"} <= set(done.stdout.split()), done.stdout + done.stderr
    done = harness("-sc", "install=bash")
    assert "complete" in done.stdout
    assert done.returncode == 0


def test_the_traceback_of_an_unknown_error_shows_no_secret(monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token-0123456789")
    monkeypatch.setattr(cli, "_run", lambda request: 1 / len(["token-0123456789"][1:]))
    assert cli.call("doctor", []) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ZeroDivisionError" in shown
    assert "0123456789" not in shown


def test_a_reader_that_has_gone_ends_the_help_quietly(monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as end:
            cli.main(["--help"])
    assert (end.value.code, capsys.readouterr().err) == (1, "")


def test_version():
    assert harness("--version").stdout.strip().count(".") == 2


STARTING = """
import os, sys
import hydra, omegaconf  # which every command imports; the rest is imported by each process
from harness import cli
for command in cli.COMMANDS:
    if not (child := os.fork()):
        cli.main([*command.split(), "--cfg", "job"])
    if os.waitpid(child, 0)[1]:
        print("failed:", command)
"""


@pytest.mark.slow
def test_each_command_starts_in_a_new_process(tmp_path):
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True, cwd=tmp_path)
    assert "failed:" not in done.stdout, done.stderr
    assert done.stdout.count("\nformat: text") == len(cli.COMMANDS)
    assert not list(tmp_path.iterdir())  # nothing was written


def test_help_shows_the_groups_of_a_command(tmp_path):
    assert "gate" in harness("run", "--help", cwd=tmp_path).stdout
