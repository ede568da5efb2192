"""A function in a process of its own: what it returns and refuses comes back, and no end of it harms the caller."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from interruptions import exit_codes

from harness.corpus.extraction import Apart, Ended
from harness.errors import BadInput, Failed


@pytest.fixture
def apart():
    made = Apart("planted_calls:called", seconds=1, memory=1 << 30)
    yield made
    made.close()


def test_one_process_serves_many_calls_whatever_they_print_refuse_or_raise(apart):
    pid = apart("pid")
    for value in ("", "가\n\"'\u2028", "/a b/[c]", "x" * 1_000_000, "print"):
        assert apart(value) == value
    with pytest.raises(BadInput, match="no 가"):
        apart("refuse")
    with pytest.raises(RuntimeError, match="KeyError: 'a bug'"):
        apart("fail")
    assert apart("pid") == pid != os.getpid()


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
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a command that has ended leaves another one
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            apart("wait")
    finally:
        signal.signal(signal.SIGINT, before)
    assert apart("x") == "x"
    assert apart("pid") != pid


def test_a_fork_has_a_process_of_its_own(apart):
    pid = apart("pid")
    assert exit_codes(lambda: sys.exit(apart("pid") == pid)) == [0]
    assert apart("pid") == pid


def test_threads_wait_for_each_other_and_closing_leaves_no_process(apart):
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(apart, "01234567")) == [*"01234567"]
    pid = apart("pid")
    apart.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
