"""A function in a process of its own: what it returns and refuses comes back, and no end of it harms the caller."""

import os
import signal
import threading
import time

import pytest

from harness.corpus.extraction import Apart, Ended
from harness.errors import BadInput, Failed


@pytest.fixture
def apart():
    made = Apart("planted_calls:called", seconds=1, memory=1 << 30)
    yield made
    made.close()


def test_one_process_serves_many_calls_and_prints_nothing_into_a_reply(apart):
    for value in ("", "가\n\"'\u2028", "/a b/[c]", "x" * 1_000_000, "print"):
        assert apart(value) == value
    assert apart("pid") == apart("pid") != os.getpid()


def test_refusals_and_faults_come_back(apart):
    pid = apart("pid")
    with pytest.raises(BadInput, match="no 가"):
        apart("refuse")
    with pytest.raises(RuntimeError, match="KeyError: 'a bug'"):
        apart("fail")
    assert apart("pid") == pid


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("leave", Failed, "ended with exit code 3"),
        ("crash", Ended, r"crashes its reader \(SIGSEGV\), as damaged files do, or takes more than 1,024 MB"),
        ("spin", Ended, "takes more than 1 s of processor time"),
        ("grow", Ended, "takes more than 1,024 MB of memory"),
    ],
)
def test_an_end_is_explained_and_the_next_call_served(apart, what, error, message):
    with pytest.raises(error, match=message):
        apart(what)
    assert apart("x") == "x"


def test_a_process_that_has_grown_is_replaced():
    """With time to spare, since filling memory may take long on a busy machine."""
    apart = Apart("planted_calls:called", seconds=30, memory=1 << 30)
    pid = apart("pid")
    assert apart("fill") == "fill"
    assert apart("pid") != pid
    apart.close()


def test_an_interrupted_call_leaves_no_reply_behind(apart):
    """A reply to it would otherwise be taken for that to the next call."""
    pid = apart("pid")
    timer = threading.Timer(0.2, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
    began = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a command that has ended leaves another one
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            apart("wait")
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 30  # it sleeps for 60 s
    assert apart("x") == "x"
    assert apart("pid") != pid


def test_a_fork_has_a_process_of_its_own(apart):
    pid = apart("pid")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(apart("pid")).encode())
        apart.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 20)) != pid
    assert apart("pid") == pid


def test_threads_wait_for_each_other(apart):
    seen = []
    threads = [threading.Thread(target=lambda n=n: seen.append((n, apart(str(n))))) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(seen) == [(n, str(n)) for n in range(8)]


def test_closing_leaves_no_process(apart):
    pid = apart("pid")
    apart.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
