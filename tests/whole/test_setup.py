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


FAKE = """case "$1$2$3" in
-mvenv*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
-mpipinstall) printf 'Collecting a\\nInstalling collected packages: a, b, c\\n%s\\n' "$PIP"; exit "$CODE" ;;
esac"""


def test_each_step_of_the_set_up_is_said(setup, tmp_path):
    done = setup({"python": FAKE}, PYTHON="python", PIP="ERROR: no such c", CODE="1")
    assert done.returncode == 1
    assert not (tmp_path / ".venv" / ".base").exists()
    *_, counted, why, last = done.stderr.splitlines()
    assert (counted, why) == ("setup: all is downloaded; installing 3 packages", "ERROR: no such c")
    assert last.startswith("setup: pip failed; its full output is in .venv/setup.log")
    said = setup({}, PYTHON="python", PIP="Successfully installed a", CODE="0").stderr.splitlines()
    begins = [
        "downloading what retrieval-harness needs into .venv, only once (about 110",
        "all is",
        "compiling",
        "done",
    ]
    assert [line.startswith(f"setup: {one}") for line, one in zip(said, begins, strict=True)] == [True] * 4
    assert "Successfully installed a\npip is done" in (tmp_path / ".venv" / "setup.log").read_text()
    assert (tmp_path / ".venv" / ".base").exists()


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
