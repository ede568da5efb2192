"""A few cases of scripts/faults.py, which disturbs every command in every way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "faults.py"


@pytest.mark.slow
@pytest.mark.local
def test_disturbed_commands_end_with_a_message_and_succeed_the_next_time():
    cases = ("sigkill/0", "full/0", "sigterm/1")  # these numbers draw an empty folder: a used one takes long to prepare
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # as in a shell
    command = [sys.executable, SCRIPT, *(f"--only=search/{case}" for case in cases)]
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] in ("3 cases, 0 wrong", "2 cases, 0 wrong")  # one needs mounts
