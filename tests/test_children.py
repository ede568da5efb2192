"""Processes that a command starts take no code from the working folder."""

import subprocess
import sys
from pathlib import Path

import pytest
from planted_modules import Planted

import harness
import retrievers
from harness import children


@pytest.fixture
def planted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Planted(tmp_path)


@pytest.mark.parametrize("words", [["-c", "import json, numpy, colorsys"], ["-m", "json.tool", "--help"]])
def test_a_process_that_we_start(planted, words):
    assert children.start(words, stdout=subprocess.DEVNULL).wait() == 0
    assert planted.executed == []


def test_a_process_that_a_library_starts(planted, monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    children.protect()
    assert subprocess.run([sys.executable, "-c", "import json"], check=False).returncode == 0
    assert planted.executed == []


def test_no_other_place_starts_python():
    sources = [path for package in (harness, retrievers) for path in Path(package.__file__).parent.rglob("*.py")]
    assert [path.name for path in sources if "sys.executable" in path.read_text("utf-8")] == ["children.py"]


def test_variables_are_added(capfd):
    code = "import os; print(os.environ['MINE'], os.environ['PYTHONSAFEPATH'], 'PATH' in os.environ)"
    children.start(["-c", code], {"MINE": "a"}).wait()
    assert capfd.readouterr().out == "a 1 True\n"


def test_settings_of_numba_in_the_folder_are_refused(harness, tmp_path):
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: theirs\n")
    done = harness("doctor")
    assert done.code == 2
    assert ".numba_config.yaml: Numba takes settings from this file" in done.err
