"""The notebook and the page about Python run as they are written."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest

import harness as package

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "harness" / "sample"
NOTEBOOK = json.loads((ROOT / "docs" / "python.ipynb").read_text("utf-8"))
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


@pytest.mark.slow
def test_the_notebook_runs_as_written(folder, capsys):
    outputs = [*shown(cells())]
    assert "<b>sample</b>: 130 documents, 60 queries, 60 labelled" in outputs[0]
    assert "<td>modified_map@3</td><td>0.5750</td>" in outputs[1]  # as in docs/results.md
    assert "<td>oof/modified_map@3</td>" in outputs[2]
    assert any("<b>2 runs of notebook on 60 queries</b>" in one for one in outputs)
    assert "<td>hit@3</td>" in outputs[-3]
    assert capsys.readouterr().out == "retreiver is unknown here. Did you mean 'retriever'?\n"


def test_the_notebook_is_kept_without_outputs():
    kinds = {cell["cell_type"] for cell in NOTEBOOK["cells"]}
    assert kinds == {"code", "markdown"}
    for cell in NOTEBOOK["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_the_code_of_the_readme_and_the_page_runs_in_order(folder):
    of_readme, *of_page = code(README) + code(PAGE)
    [*_, last] = shown([of_readme, *of_page])
    assert "<td>ndcg@10</td>" in last
    assert code(README) == code((ROOT / "README.ko.md").read_text("utf-8")) == [of_readme]


def test_the_page_names_every_function_and_every_part_of_a_result():
    for name in package.__all__:
        assert f"`harness.{name}" in PAGE or f"`{name}" in PAGE, name
    for name in ("Result", "Evaluation"):
        parts = [one for one in dir(getattr(package, name)) if not one.startswith("_") and one != "to_json"]
        assert all(f"`{one}`" in PAGE for one in parts if isinstance(getattr(package.Result, one), property))
