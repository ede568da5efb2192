"""A Python function as a retriever: imported only if allowed by name, checked results, identified by its source."""

import importlib
import importlib.metadata
import math
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from harness.config import plugins
from harness.config.components import build, component_identity
from harness.errors import BadInput, Failed
from retrievers.base import Document, Query
from retrievers.external import function as module
from retrievers.external.function import Function, imported_object, ranking_of, spec_of

DOCUMENTS = [Document(doc_id, "x") for doc_id in ("a", "b", "c")]
QUERIES = [Query.of("q2", "둘"), Query.of("q1", "one")]
NODE = {"_target_": "retriever/python", "function": "mine:search"}
TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json")
SEARCH = """
def search(queries, k):
    pairs = [("d1", 3.0), ("d3", 2.5), ("d2", 0.5)]
    return [pairs[:k] if "달" in query else pairs[::-1][:k] for query in queries]
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """mine(text) writes the module `mine` into the working folder."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(text, name="mine"):
        file = tmp_path / f"{name}.py"
        file.write_text(text, "utf-8")
        return file

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    plugins.permit(())
    module._working_folder.opened.clear()


def searched(function="mine:search", k=3, queries=QUERIES):
    retriever = Function(function)
    folder = Path("index")
    folder.mkdir(exist_ok=True)
    retriever.index(DOCUMENTS, folder)
    reader = Function(function)
    reader.load(folder)
    return reader.search(queries, k).to_dict()


def test_pairs_are_sorted_and_other_types_and_callable_objects_accepted(mine):
    mine("def search(queries, k):\n    return [[('a', 1), ('c', 2.5), ('b', 1)] if q == '둘' else [] for q in queries]")
    assert searched() == {"q2": {"c": 2.5, "a": 1.0, "b": math.nextafter(1.0, 0)}, "q1": {}}, "ties keep their order"
    assert searched(queries=[]) == {}
    pairs = "(['a', np.float32(2)], ['b', np.int64(1)])"
    mine(f"import numpy as np\ndef search(queries, k):\n    return tuple({pairs} for _ in queries)")
    assert searched(k=2)["q1"] == {"a": 2.0, "b": 1.0}
    mine("class Search:\n    def __call__(self, queries, k):\n        return [[('a', 1.0)] for _ in queries]\n"
         "    find = __call__\nsearch = Search()")  # fmt: skip
    assert searched()["q1"] == searched("mine:search.find")["q1"] == {"a": 1.0}


WRONG = [
    (5, "returned 5: return a list"),
    ([[]], "returned 1 lists for 2 queries"),
    ([[], [], []], "returned 3 lists for 2 queries"),
    ([None, []], "query q2: None is not a list of"),
    ([[("a", 1)], [("a", 1), ("b", 1), ("c", 1)]], "query q1: it returned 3 documents, but k is 2"),
    ([[], [("a", 1), ("a", 2)]], "query q1: document 'a' occurs twice"),
    ([[("z", 1)], []], "query q2: the dataset has no document 'z'"),
    ([[(1, 1)], []], r"query q2: the doc_id 1 is not text\. Return ids as text"),
    ([[("a",)], []], r"query q2: \('a',\) is not a"),
    ([[("a", math.nan)], []], "document 'a' scores nan, not a finite number"),
    ([[("a", 10**400)], []], "document 'a' scores 1000"),
    ([[("a", 10**5000)], []], "document 'a' scores a value of type int, not a finite number"),
    ([[("a", True)], []], "document 'a' scores True"),
]


@pytest.mark.parametrize(("answers", "message"), WRONG)
def test_bad_results_are_refused(answers, message):
    with pytest.raises(BadInput, match=f"^mine:search.*{message}"):
        ranking_of(QUERIES, answers, 2, "abc", "mine:search")


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("", "mine", r"function is 'mine': write module:name"),
        ("", "os.system('x'):y", r"write module:name"),
        ("", "mime:search", r"there is no module 'mime', neither installed nor in .*Did you mean 'mine'"),
        ("", "mine.deep:search", r"there is no module 'mine\.deep'"),
        ("def searches(queries, k): ...", "mine:search", r"mine has no 'search'\. Did you mean 'searches'"),
        ("search = 5", "mine:search", r"is of type int, not a function\. Write def search\(queries"),
        ("def search(queries): ...", "mine:search", r"cannot be called with texts and k \(too many positional"),
        ("def search(queries, k, index): ...", "mine:search", r"cannot be called .*missing a required argument"),
        ("def search(", "mine:search", r"mine cannot be imported: SyntaxError"),
        ("raise ValueError('no index')", "mine:search", r"mine cannot be imported: ValueError: no index"),
    ],
)  # fmt: skip
def test_bad_functions_are_refused(mine, text, function, message):
    mine(text)
    with pytest.raises(BadInput, match=message):
        Function(function).check_data((), QUERIES)


def test_an_error_in_the_function_is_reported_with_its_line(mine):
    mine("def search(queries, k):\n    return inner()\n\ndef inner():\n    raise KeyError('lost')")
    with pytest.raises(Failed, match=r"mine:search failed at .*mine\.py:5: KeyError: 'lost'"):
        searched()


def test_the_source_is_the_identity_and_a_changed_module_is_imported_again(mine):
    mine("def search(queries, k):\n    return [[('a', 1)] for _ in queries]")
    first, found = component_identity(NODE), searched()
    assert first["arguments"]["function"] == "mine:search"
    assert component_identity(NODE | {"version": "2"}) != first
    mine("def search(queries, k):\n    return [[('bb'[:1], 1)] for _ in queries]")
    assert component_identity(NODE) != first
    assert found["q1"] == {"a": 1.0}
    assert searched()["q1"] == {"b": 1.0}


def test_identity_imports_nothing_and_an_installed_module_is_never_replaced(mine, tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "pack" / "inner.py").write_text("raise SystemExit")
    assert component_identity(NODE | {"function": "pack.inner:search"})["arguments"]["sha256"]
    assert "pack" not in sys.modules
    assert str(tmp_path) not in sys.path
    mine("raise SystemExit", "colorsys")
    assert str(tmp_path) not in str(spec_of("colorsys").origin)
    assert imported_object("colorsys:rgb_to_hsv")(0, 0, 0) == (0, 0, 0)


# plugins.allow


def test_nothing_else_in_the_working_folder_can_be_imported(mine, tmp_path):
    mine("def search(queries, k):\n    return []")
    mine("open('ran', 'w').close()", "other")
    about = tmp_path / "evil-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[mlflow.tracking_store]\nevil = other\n")
    plugins.permit(["mine"])
    assert imported_object("mine:search")([], 1) == []
    assert str(tmp_path) not in sys.path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("other")
    assert "evil" not in {one.name for one in importlib.metadata.entry_points(group="mlflow.tracking_store")}
    assert not (tmp_path / "ran").exists()


def test_a_module_imports_others_of_the_folder_only_if_they_are_allowed(mine, tmp_path):
    mine("from helper import found\ndef search(queries, k):\n    from late import found\n    return found")
    mine("found = []", "helper")
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text("from late.inner import found")
    (tmp_path / "late" / "inner.py").write_text("found = [1]")
    plugins.permit(["mine"])
    with pytest.raises(BadInput, match=r"No module named 'helper'\. Allow helper, too: plugins\.allow=\[mine,helper\]"):
        imported_object("mine:search")
    plugins.permit(["mine", "helper", "late.inner"])
    assert imported_object("mine:search")([], 1) == [1]


@pytest.mark.parametrize(
    ("allowed", "function", "fine"),
    [
        ((), "mine:search", False),
        (("mine",), "mine:search", True),
        (("mine",), "mines:search", False),
        (("mine",), "mine.deep:search", True),
        (("mine.deep",), "mine:search", False),
        (("mine.deep",), "mine.deeper:search", False),
    ],
)
def test_only_allowed_modules_are_imported(mine, allowed, function, fine):
    plugins.permit(allowed)
    refused = rf"^retriever\.python\.function={function}: .* add plugins\.allow=\["
    with nullcontext() if fine else pytest.raises(BadInput, match=refused):
        build(NODE | {"function": function}, where="retriever.python")


@pytest.mark.slow
def test_modules_are_allowed_on_the_command_line_alone(mine, harness, toy, tmp_path):
    mine("open('ran', 'w').close()\n" + SEARCH)
    words = ("run", *TOY, "tracking=none", "retriever=python", "retriever.python.function=mine:search")
    for group, text in (
        ("experiment", "plugins: {allow: [mine]}"),
        ("sweep", "hydra: {sweeper: {params: {plugins.allow: '[mine]', top_k: '1,2'}}}"),
    ):
        (recipes := tmp_path / "folder" / group).mkdir(parents=True)
        (recipes / "theirs.yaml").write_text(f"# @package _global_\n{text}\n")
    for more in ((), ("--config-dir=folder", "experiment=theirs"), ("plugins.allow=[other]",), ("plugins.allow=mine",)):
        assert "plugins.allow" in harness(*words, *more).refusal
    refused = "plugins.allow can only be given on the command line"
    assert refused in harness("sweep", *words[1:], "--config-dir=folder", "sweep=theirs").refusal
    (tmp_path / "harness.yaml").write_text("plugins.allow: [mine]\n")
    assert f"harness.yaml:1: {refused}" in harness(*words).refusal
    (tmp_path / "harness.yaml").unlink()
    assert not (tmp_path / "ran").exists()
    assert harness(*words, "plugins.allow=[mine]").code == 0
    assert (tmp_path / "ran").exists()
    assert harness(*words).code == 2, "the next command allows nothing"


@pytest.mark.slow
def test_a_function_runs_searches_and_reproduces(mine, harness, toy, tracker):
    file, allowed = mine(SEARCH), "plugins.allow=[mine]"
    words = ("retriever=[bm25,python]", "retriever.python.function=mine:search", allowed, "experiment_name=e")
    run = harness("run", *TOY, *words, "retriever.python.cache=false").json
    tags, again = tracker.run(run["run_id"]).tags, ("reproduce", f"run={run['run_id']}")
    assert "mine" not in tags["mlflow.runName"].partition("plugins")[2]
    assert "source.python" in tags
    assert harness("search", *TOY, "query=달", *words[:3], "fusion=rrf").json["documents"]
    assert allowed in harness(*again).refusal
    assert harness(*again, "format=json", allowed).json["reproduced"]
    file.write_text(file.read_text().replace("3.0", "4.0"))
    assert "mine:search has changed since the run" in harness(*again, allowed).refusal
