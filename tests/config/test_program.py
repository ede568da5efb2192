"""How commands are typed."""

import sysconfig

import pytest

from harness.config.program import runnable


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
    text = "Next:\n  harness runs\nMake one with `harness run`. The harness waits. Export one: harness export"
    path = "'my venv/bin/harness'"
    assert runnable(text) == (
        f"Next:\n  {path} runs\nMake one with `{path} run`. The harness waits. Export one: {path} export"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert runnable("harness ui") == f"'{installed}' ui"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "harness").touch(0o755)  # of another installation
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert runnable("harness ui") == f"'{installed}' ui"
    monkeypatch.setenv("PATH", str(installed.parent))
    assert runnable(text) == text


def test_what_commands_print_and_refuse_with_has_the_path(installed, harness):
    assert "\n  'my venv/bin/harness' run\n" in harness("runs", "experiment_name=null").out
    assert "`'my venv/bin/harness' init dataset=contest" in harness("init").err
