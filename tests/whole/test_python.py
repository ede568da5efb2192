"""The examples and the page about Python run as they are written."""

import ast
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import scripted_drafts
from chat_server import ChatServer

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "harness" / "sample"
EXAMPLES = ROOT / "examples"
NOTEBOOK = json.loads((EXAMPLES / "notebook.ipynb").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")


def cells():
    return ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def code(text):
    return re.findall(r"```python\n(.*?)```", text, re.S)


def shown(cells):
    """Run cells as a notebook does; what their last expressions show, HTML where there is some."""
    names = {}
    for cell in cells:
        *statements, last = ast.parse(cell).body
        value = None
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            exec(cell, names)
        yield value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


@pytest.fixture
def folder(undrawn, fresh_store, tmp_path, monkeypatch):
    """A working folder with a tracking store and the sample as the user's own data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("documents.jsonl", "eval.jsonl", "qrels.jsonl"):
        shutil.copyfile(SAMPLE / name, tmp_path / "data" / name)


@pytest.fixture
def example(folder, monkeypatch, capsys):
    """Run an example as from a shell: example("latex_table", "qrels.txt", ...) -> (exit code, what it prints)."""
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *words])
        code = None
        try:
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        except SystemExit as end:
            code = end.code
        return code, capsys.readouterr().out

    return run


@pytest.mark.slow
def test_a_service_and_a_langchain_retriever_are_compared_with_bm25(example):
    _, out = example("http_service")
    assert re.search(r"\nB: \w{8} \(service\)\nA is better than B by 0\.231 .*\nHalf of .* than \d+\.\d ms\.$", out)
    _, out = example("langchain_retriever")
    assert out.startswith("ndcg@10 0.2807 ")
    assert re.search(r"\(bm25\)\nB: \w{8} \(shortest\)\nA is better than B by 0\.489 .* in ndcg@10", out)


def test_a_table_is_made_of_trec_files(example):
    _, out = example("latex_table")
    assert r"\caption{2 runs of trec on 48 queries" in out
    assert r"A: bm25.run & 0.713 & 0.770 & \textbf{0.969} \\" in out
    assert example("latex_table", "qrels.txt", "bm25.run", "hybrid_lexical.run") == (None, out)


def test_a_night_fails_only_if_it_is_worse(example):
    assert not example("nightly_check")[0]
    assert not example("nightly_check", "retriever=hybrid_lexical")[0]
    code, out = example("nightly_check", "gate=score", "gate.threshold=20")
    assert (code, out.partition(":")[0]) == (1, "Regressed")


@pytest.mark.slow
def test_texts_become_a_test_set(example):
    with ChatServer(model=scripted_drafts.draft) as server:
        _, out = example("testset_from_folder", str(SAMPLE / "profiles"), "model=any", f"llm.base_url={server.url}")
    assert re.match(r"16 documents of 2 files\noutputs/testset: 25 queries\.(?s:.*) on 20 queries: .* is 0\.133 ", out)


@pytest.mark.slow
def test_the_notebook_runs_as_written(folder):
    outputs = [*shown(cells())]
    plt.close("all")
    assert "<b>sample</b>: 130 documents, 60 queries, 60 labelled" in outputs[0]
    assert "<td>modified_map@3</td><td>0.5750</td>" in outputs[1]  # as in docs/results.md
    assert "<b>2 runs of notebook on 60 queries</b>" in outputs[3]
    assert outputs[4].count("<tr>") == 1 + 10


def test_the_notebook_is_kept_without_outputs():
    kept = [(cell["outputs"], cell["execution_count"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert kept == [([], None)] * len(cells())


@pytest.mark.slow
def test_the_code_of_the_readme_and_the_page_runs_in_order(folder):
    of_readme, *of_page = code(README) + code(PAGE)
    [*_, last] = shown([of_readme, *of_page])
    assert "<td>mrr@1</td>" in last
    assert code(README) == code((ROOT / "README.ko.md").read_text("utf-8")) == [of_readme]
