"""Jobs for clusters in tests: functions of a module, as all work on shards is."""

import errno
import os
import signal
import time
from pathlib import Path

from harness.errors import BadInput, Failed
from retrievers.base import cores


def double(number):
    return 2 * number


def where(_):
    """What a job sees of its worker: pid, priority, its share of cores, and the threads of the libraries."""
    import numba
    from threadpoolctl import threadpool_info

    priority = os.getpriority(os.PRIO_PROCESS, 0)
    return os.getpid(), priority, cores(), numba.get_num_threads(), {one["num_threads"] for one in threadpool_info()}


def die_once(flag):
    """Kill the worker, unless a file says that this has been done."""
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "lived"


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(how):
    raise {
        "bad": BadInput("documents.jsonl:3: no text"),
        "failed": Failed("the model writes nothing"),
        "full": OSError(errno.ENOSPC, "No space left on device", "/shared/cache/indexes"),
        "broken": ZeroDivisionError("division by zero"),
    }[how]


def slow(seconds):
    time.sleep(seconds)
    return seconds
