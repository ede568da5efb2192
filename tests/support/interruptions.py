"""Ctrl-C in the middle of a sweep, full disks, and processes that end."""

import multiprocessing
import resource
from contextlib import contextmanager

from harness.experiment import steps


@contextmanager
def interrupted(monkeypatch, number, error=KeyboardInterrupt):
    """Ctrl-C, or another error, during the n-th trial, counted from 1."""
    plain, seen = steps.conclude, []

    def conclude(*arguments, **named):
        seen.append(1)
        if len(seen) == number:
            raise error
        return plain(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "conclude", conclude)
        yield


@contextmanager
def full_disk(size):
    """No file can grow beyond this many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def exit_codes(*works):
    """Call functions at once, each in a process forked from this one; return the exit codes."""
    processes = [multiprocessing.get_context("fork").Process(target=work) for work in works]
    for one in processes:
        one.start()
    for one in processes:
        one.join(20)
    return [one.exitcode for one in processes]
