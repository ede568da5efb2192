"""Where compiled code is kept, and that warming up compiles what real work calls."""

import ast
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from korean_texts import KOREAN, KOREAN_QUERIES, documents, queries

import harness
import retrievers
from harness.corpus.near_duplicates import find_near_duplicates
from harness.tasks.alignment import judge_edits
from retrievers import compiling
from retrievers.dense.vectors import exact
from retrievers.lexical import _bm25_frequent, bm25_index, tokenize
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import CharNgram


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The two usual folders of compiled code, both writable, and the temporary folder."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path / "installed", tmp_path / "user"])
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield tmp_path
    compiling.code_folder.cache_clear()


def code_folder():
    compiling.code_folder.cache_clear()
    return compiling.code_folder()


def lock_up(monkeypatch, *folders):
    """Root may write everywhere, so the tests cannot take the right to write from themselves."""
    writable = compiling._is_writable
    monkeypatch.setattr(compiling, "_is_writable", lambda one: one.parent not in folders and writable(one))


def test_code_lies_beside_the_package_or_else_in_the_users_cache(places, monkeypatch):
    assert code_folder().parent == places / "installed"
    lock_up(monkeypatch, places / "installed")
    assert code_folder().parent == places / "user"
    assert compiling.is_lasting(compiling.code_folder())


def test_code_that_no_process_has_opened_for_a_month_is_removed(places):
    own, month = code_folder(), time.time() - compiling.UNUSED
    ages = {own.name: -9, f"kernels-{'0' * 16}": -9, f"kernels-{'1' * 16}": 9, "kernels-mine": -9, "other": -9}
    for name, age in ages.items():
        (own.parent / name / "retrievers").mkdir(parents=True)
        os.utime(own.parent / name, (month + age, month + age))
    code_folder()  # this process opens its own code again
    compiling.mark_compiled()
    assert {one.name for one in own.parent.iterdir()} == ages.keys() - {f"kernels-{'0' * 16}"}


def test_code_in_a_read_only_installation_is_copied_once(places, monkeypatch):
    full = code_folder()
    (full / "code").write_text("compiled")
    (full / compiling.READY).touch()
    lock_up(monkeypatch, places / "installed")
    copy = code_folder()
    assert copy == places / "user" / full.name
    assert compiling.all_compiled()
    assert (copy / "code").read_text() == "compiled"
    (copy / "code").write_text("used")
    assert (code_folder() / "code").read_text() == "used"
    assert {path.name for path in copy.parent.iterdir()} == {full.name}


def test_where_only_temporary_files_can_be_written_code_lasts_as_long_as_the_process(places, monkeypatch):
    lock_up(monkeypatch, places / "installed", places / "user")
    folder = code_folder()
    assert folder.is_relative_to(places / "tmp")
    assert not compiling.is_lasting(folder)


def test_where_nothing_can_be_written_kernels_are_compiled_without_storing_them(places, monkeypatch, caplog):
    lock_up(monkeypatch, places / "installed", places / "user")
    monkeypatch.setattr("tempfile.tempdir", str(places / "none"))
    assert code_folder() is None
    assert "Compiled code cannot be stored (No such file or directory)" in caplog.text
    assert not compiling.all_compiled()


def test_a_read_only_machine_without_a_home_searches(tmp_path):
    # The process may write nowhere, and Numba by itself would refuse to load its kernels.
    code = """
        import pathlib, sys, tempfile
        from retrievers import compiling
        from retrievers.lexical import _bm25_frequent, bm25_index
        compiling._is_writable = lambda folder: False
        tempfile.tempdir = "/nowhere"
        bm25_index.SMALL = -1
        from retrievers.lexical._bm25_kernels import count_postings
        print(count_postings.stats.cache_path, "numba" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == "None True\n"
    assert done.stderr.count("\n") == 1


def test_another_processor_gets_another_folder(places, monkeypatch):
    here = code_folder().name
    monkeypatch.setattr(compiling, "_processor", lambda: ["model name: another"])
    assert code_folder().name != here


def test_numba_keeps_the_users_own_settings(places):
    import numba

    before = numba.config.CACHE_DIR
    function = compiling.kernel(lambda number: number)
    assert Path(function._cache.cache_path).parent == compiling.code_folder()
    assert before == numba.config.CACHE_DIR


def test_every_module_with_kernels_is_listed():
    files = [file for one in (harness, retrievers) for file in Path(one.__file__).parent.rglob("*.py")]
    sources = {file: file.read_text("utf-8") for file in files}
    users = {file for file, text in sources.items() if "import helper, kernel" in text or "import njit" in text}
    assert {compiling.ROOT / f"{name.replace('.', '/')}.py" for name in compiling.KERNELS} == users


def kernels():
    for name in compiling.KERNELS:
        module = importlib.import_module(name)
        tree = ast.parse(Path(module.__file__).read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and ast.unparse(node).startswith("@kernel"):
                yield getattr(module, node.name)


def test_warming_up_compiles_everything_that_real_work_calls(tmp_path, monkeypatch):
    for name in compiling.KERNELS:
        importlib.import_module(name)._warm()
    warm = {kernel: {*kernel.signatures} for kernel in kernels()}
    assert all(warm.values())
    monkeypatch.setattr(bm25_index, "is_small", lambda count: False)
    monkeypatch.setattr(tokenize, "LARGE", 0)
    retriever, again = BM25(CharNgram()), BM25(CharNgram())
    retriever.index(documents(KOREAN), tmp_path)
    again.load(tmp_path)
    again.search(queries(KOREAN_QUERIES), 3)
    for name in ("LEAST_WORK", "FILLING"):  # so that rows are filled
        monkeypatch.setattr(_bm25_frequent, name, 0)
    again.load(tmp_path)
    again.search(queries(KOREAN_QUERIES), 3)
    exact(np.ones((2, 8), np.float32), np.ones((300, 8), np.float32), 3.0, 5)
    assert find_near_duplicates(["같은 글이다", "같은 글이다", "다른 말"], 3, tmp_path)
    judge_edits(["가 나"], ["가 다"], ["가 나 다"], "span")
    assert {kernel: {*kernel.signatures} for kernel in kernels()} == warm
