"""Ctrl-C and SIGTERM end a process by an exception that cannot get lost."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from raw_server import RawServer

START = """\
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands, such as pytest, may ignore it
from harness import interruption
interruption.listen()
"""
END = "\nexcept KeyboardInterrupt as error:\n    print(type(error).__name__, interruption.exit_code())\n"


def said(body: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", START + body], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "expected"), [("SIGTERM", "Terminated 143"), ("SIGINT", "KeyboardInterrupt 130")]
)  # fmt: skip
def test_a_signal_raises(name, expected):
    done = said(f"try:\n    os.kill(os.getpid(), signal.{name}); time.sleep(9)" + END)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (expected, "", 0)


def test_an_interrupted_destructor_interrupts_again_and_prints_no_traceback():
    body = (
        "class Slow:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGINT); time.sleep(0.01)\n"
        "try:\n    Slow()\n    time.sleep(600)"  # longer than `said` waits
    )
    done = said(body + END)
    assert (done.stdout.strip(), done.stderr) == ("KeyboardInterrupt 130", "")


def test_a_second_sigterm_does_not_disturb_the_end():
    body = (
        "try:\n    try:\n        os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)\n"
        "    finally:\n        os.kill(os.getpid(), signal.SIGTERM); print('cleaned up')"
    )
    assert said(body + END).stdout.split() == ["cleaned", "up", "Terminated", "143"]


def test_a_second_ctrl_c_does_not_disturb_the_end_unless_it_takes_long():
    body = (
        "interruption.ENDING_SECONDS = 0.5\n"
        "try:\n    try:\n        os.kill(os.getpid(), signal.SIGINT); time.sleep(9)\n"
        "    finally:\n        os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGTERM); print('on')\n"
        "        time.sleep(0.6); os.kill(os.getpid(), signal.SIGINT); print('never')"
    )
    assert said(body + END).stdout.split() == ["on", "KeyboardInterrupt", "130"]


@pytest.mark.slow
def test_a_run_that_waits_for_a_service_ends_as_killed(tmp_path):
    """The service answers without end. The second signal comes while the run is ending."""
    asked = threading.Event()

    def endless(wire):
        asked.set()
        wire.trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.02)

    with RawServer(endless) as service:
        words = ["run", "retriever=fastapi", f"retriever.fastapi.url={service.url}", "tokenizer=word"]
        command = [sys.executable, "-c", "from harness.cli import main; main()", *words]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            assert asked.wait(120)
            process.terminate()
            began = time.monotonic()
            time.sleep(1.1)
            process.terminate()
            said = process.communicate(timeout=30)[1]
        finally:
            process.kill()
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert "Interrupted." in said
    assert time.monotonic() - began < 10  # 1.5 s on a quiet machine
    with sqlite3.connect(tmp_path / "outputs" / "mlflow.db") as store:
        assert store.execute("SELECT status FROM runs").fetchall() == [("KILLED",)]


def test_forked_workers_die_of_signals_without_unwinding_what_they_inherited():
    body = (
        "try:\n    child = os.fork()\n    if not child:\n        os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)\n"
        "    print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)"
        + END
        + "finally:\n    print('once')"
    )
    assert said(body).stdout.split() == [str(int(signal.SIGTERM)), "once"]


def test_signals_end_the_interpreters_shut_down_at_once():
    done = said("interruption.stop_listening()\nos.kill(os.getpid(), signal.SIGINT)")
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_shells_background_command_keeps_ignoring_ctrl_c():
    code = START.replace("from harness", "signal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom harness")
    code += "os.kill(os.getpid(), signal.SIGINT)\nprint('goes on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.strip() == "goes on"
