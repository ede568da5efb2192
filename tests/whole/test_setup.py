"""The set-up script explains why it stops, and the Makefile lists its targets."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def setup(tmp_path):
    """Call the script in a separate folder, with substitute programs first on the path."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")

    def call(programs, **env):
        for name, text in programs.items():
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        command = ["sh", str(tmp_path / "scripts" / "setup.sh"), "base"]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path} | env)

    return call


@pytest.mark.parametrize(
    ("programs", "env", "expected"),
    [
        ({}, {"PYTHON": "no-such-python"}, "there is no 'no-such-python'. Install Python 3.11 or newer"),
        ({"old": '[ "$1" = --version ] && echo Python 3.9.2; exit 1'}, {"PYTHON": "old"}, "Python 3.9.2 is too old"),
        ({"df": "echo head; echo 'disk 100 90 10 90% /'"}, {}, "only 10 MB free here, about 2500 MB are needed"),
    ],
)
def test_what_stops_the_set_up_is_said(setup, tmp_path, programs, env, expected):
    done = setup(programs, **env)
    assert done.returncode == 1
    assert expected in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_lists_its_targets():
    done = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True)
    for target in ("run", "base", "test", "check", "docs", "bench", "ui"):
        assert f"make {target}\t" in done.stdout


def test_every_dependency_is_pinned():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    wanted = [*project["dependencies"], *[one for extra in project["optional-dependencies"].values() for one in extra]]
    others = [line for line in wanted if not line.startswith("retrieval-harness[")]
    names = {line.partition(">")[0].partition("[")[0].strip().lower().replace("_", "-") for line in others}
    assert names <= pinned
