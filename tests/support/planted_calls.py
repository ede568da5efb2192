"""Functions that a process of its own calls, and that end it."""

import ctypes
import os
import time

from harness.errors import BadInput

KEPT: list[bytes] = []


def called(what: str) -> object:
    """Do what the argument says."""
    match what:
        case "crash":
            return ctypes.string_at(0)
        case "spin":
            while True:
                pass
        case "grow":
            return len(bytearray(1 << 40))
        case "leave":
            os._exit(3)
        case "refuse":
            raise BadInput("no 가")
        case "fail":
            raise KeyError("a bug")
        case "print":
            os.write(1, b"printed\n")
        case "pid":
            return os.getpid()
        case "wait":
            time.sleep(60)
        case "fill":
            KEPT.append(b"x" * (400 << 20))
    return what
