"""Words in messages."""

import sysconfig

import pytest

from harness.config.text import counted, runnable, short_number, shortest


def test_counts_and_their_nouns():
    counts = {"trial": 0, "entry": 2, "query": 1, "labelled query": 1000}
    said = [counted(count, noun) for noun, count in counts.items()]
    assert said == ["0 trials", "2 entries", "1 query", "1,000 labelled queries"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.0", "1"),
        ("0.50", "0.5"),
        ("1e0", "1"),
        ("-2.50e1", "-25"),
        ("1_0", "10"),
        ("1e-7", "1e-07"),
        *((same, same) for same in ("1e400", "007", "'1.0'", "nan", "1.2.3")),  # infinite; texts for Hydra
    ],
)
def test_a_number_in_an_override_is_as_short_as_it_can_be(text, expected):
    assert short_number(text) == expected


def test_whole_numbers_lose_their_decimal_point():
    assert repr(shortest([1.0, 0.5, "1.0", True, None, 1e300])) == "[1, 0.5, '1.0', True, None, 1e+300]"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation whose `harness` is not on the PATH, in a folder below the working folder."""
    program = tmp_path / "my venv" / "bin" / "harness"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setattr(sysconfig, "get_path", {"scripts": str(program.parent)}.get)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    return program


def test_a_command_has_the_path_of_its_program_unless_the_path_leads_there(installed, tmp_path, monkeypatch):
    text = "Next:\n  {0} runs\nMake one with `{0} run`. The harness waits. Export one: {0} export"
    assert runnable(text.format("harness")) == text.format("'my venv/bin/harness'")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert runnable("harness ui") == f"'{installed}' ui"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "harness").touch(0o755)  # of another installation
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert runnable("harness ui") == f"'{installed}' ui"
    monkeypatch.setenv("PATH", str(installed.parent))
    assert runnable("harness ui") == "harness ui"


def test_what_commands_print_and_refuse_with_has_the_path(installed, harness):
    assert "\n  'my venv/bin/harness' run\n" in harness("runs", "experiment_name=null").out
    assert "`'my venv/bin/harness' init dataset=contest" in harness("init").err
