"""Kernels are compiled in the background: one process at a time, quietly, without keeping anybody waiting."""

import os
import time

import pytest
from filelock import FileLock

from harness import children
from harness.storage import kernels
from retrievers import compiling


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    compiling.code_folder.cache_clear()
    yield compiling.code_folder()
    compiling.code_folder.cache_clear()


@pytest.fixture
def started(monkeypatch):
    """The processes that were started; each writes what it finds instead of compiling."""
    processes, start = [], children.start
    code = "import os; open('found', 'w').write(f'{os.getcwd()} {os.getpgrp() == os.getpid()}')"

    def instead(words, **options):
        assert words == ["-m", "harness.storage.kernels"]
        processes.append(start(["-c", code], **options))
        return processes[-1]

    monkeypatch.setattr(children, "start", instead)
    return processes


def test_missing_kernels_are_compiled_in_a_process_group_of_its_own(folder, started):
    kernels.compile_aside()
    [process] = started
    assert process.wait() == 0
    assert (folder / "found").read_text() == f"{folder} True"


def test_nothing_is_started_while_another_process_compiles_or_when_all_is_compiled(folder, started):
    with FileLock(folder / "lock"):
        kernels.compile_aside()
    (folder / compiling.READY).touch()
    kernels.compile_aside()
    assert started == []


def test_nothing_is_started_where_the_code_would_be_lost(folder, started, monkeypatch):
    for lost in (None, folder / "elsewhere" / "kernels"):
        monkeypatch.setattr(kernels, "code_folder", lambda lost=lost: lost)
        kernels.compile_aside()
    assert started == []


def test_a_process_that_cannot_start_is_no_error(folder, monkeypatch):
    def start(words, **options):
        raise BlockingIOError

    monkeypatch.setattr(children, "start", start)
    kernels.compile_aside()


def test_kernels_are_compiled_once(folder, monkeypatch):
    monkeypatch.setattr(compiling, "KERNELS", ())
    assert kernels.compile_now()
    assert compiling.all_compiled()
    assert not kernels.compile_now()


@pytest.mark.parametrize("code", [0, 1])
def test_another_process_compiles_half_of_the_kernels(folder, monkeypatch, code):
    started, here, start = [], [], children.start

    def instead(words, **options):
        started.extend(words)
        return start(["-c", f"raise SystemExit({code})"], **options)

    monkeypatch.setattr(children, "start", instead)
    monkeypatch.setattr(kernels, "compile_kernels", lambda _, modules: here.extend(modules))
    monkeypatch.setattr(kernels, "cores", lambda: 2)
    assert kernels.compile_now()
    assert started == ["-m", "harness.storage.kernels", *compiling.BM25]
    assert sorted([*here, *({} if code else compiling.BM25)]) == sorted(compiling.KERNELS), "those of a failure too"
    assert compiling.all_compiled()


def test_the_background_process_compiles_with_low_priority(folder, monkeypatch):
    levels = []
    monkeypatch.setattr(os, "nice", levels.append)
    monkeypatch.setattr("sys.argv", ["kernels"])
    monkeypatch.setattr(compiling, "KERNELS", ())
    with FileLock(folder / "lock"):
        began = time.monotonic()
        kernels._main()
    assert time.monotonic() - began < 5
    assert not compiling.all_compiled()
    kernels._main()
    assert (compiling.all_compiled(), levels) == (True, [10, 10])
