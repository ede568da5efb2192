"""A function of one's own as a retriever: only by name, checked in all that it returns, identified by its source."""

import importlib
import importlib.metadata
import math
import sys
from pathlib import Path

import pytest

from harness.config import plugins
from harness.config.components import build, component_identity
from harness.errors import BadInput, Failed
from retrievers.base import Document, Query
from retrievers.external import function as module
from retrievers.external.function import Function, imported_object, spec_of

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


def test_it_gets_texts_and_k_and_its_pairs_are_sorted(mine):
    mine("def search(queries, k):\n    return [[('a', 1), ('c', 2.5), ('b', 1)] if q == '둘' else [] for q in queries]")
    assert searched() == {"q2": {"c": 2.5, "a": 1.0, "b": math.nextafter(1.0, 0)}, "q1": {}}, "ties as they are given"
    assert searched(queries=[]) == {}


def test_other_types_and_callable_objects_are_accepted(mine):
    pairs = "(['a', np.float32(2)], ['b', np.int64(1)])"
    mine(f"import numpy as np\ndef search(queries, k):\n    return tuple({pairs} for _ in queries)")
    assert searched(k=2)["q1"] == {"a": 2.0, "b": 1.0}
    mine("class Search:\n    def __call__(self, queries, k):\n        return [[('a', 1.0)] for _ in queries]\n"
         "    find = __call__\nsearch = Search()")  # fmt: skip
    assert searched()["q1"] == searched("mine:search.find")["q1"] == {"a": 1.0}


WRONG = [
    ("return 5", "returned 5: return a list"),
    ("return [[]]", "returned 1 lists for 2 queries"),
    ("return [[], [], []]", "returned 3 lists for 2 queries"),
    ("return [None, []]", "query q2: None is not a list of"),
    ("return [[('a', 1)], [('a', 1), ('b', 1), ('c', 1)]]", "query q1: 3 documents, but k is 2"),
    ("return [[], [('a', 1), ('a', 2)]]", "query q1: document 'a' occurs twice"),
    ("return [[('z', 1)], []]", "query q2: the dataset has no document 'z'"),
    ("return [[(1, 1)], []]", r"query q2: the doc_id 1 is not text\. Return ids as text"),
    ("return [[('a',)], []]", r"query q2: \('a',\) is not a"),
    ("return [[('a', float('nan'))], []]", "document 'a' scores nan, not a finite number"),
    ("return [[('a', 10 ** 400)], []]", "document 'a' scores 1000"),
    ("return [[('a', 10 ** 5000)], []]", "document 'a' scores a value of type int, not a finite number"),
    ("return [[('a', True)], []]", "document 'a' scores True"),
]


@pytest.mark.parametrize(("body", "message"), WRONG)
def test_what_it_must_not_return(mine, body, message):
    mine(f"def search(queries, k):\n    {body}")
    with pytest.raises(BadInput, match=f"^mine:search.*{message}"):
        searched(k=2)


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
def test_what_is_no_function_of_a_module(mine, text, function, message):
    mine(text)
    with pytest.raises(BadInput, match=message):
        Function(function).check_data((), QUERIES)


def test_an_error_in_it_is_told_with_its_place(mine):
    mine("def search(queries, k):\n    return inner()\n\ndef inner():\n    raise KeyError('lost')")
    with pytest.raises(Failed, match=r"mine:search failed at .*mine\.py:5: KeyError: 'lost'"):
        searched()


def test_its_source_identifies_it_and_a_changed_one_is_imported_again(mine):
    mine("def search(queries, k):\n    return [[('a', 1)] for _ in queries]")
    first, found = component_identity(NODE), searched()
    assert first["arguments"]["function"] == "mine:search"
    assert component_identity(NODE | {"version": "2"}) != first
    mine("def search(queries, k):\n    return [[('bb'[:1], 1)] for _ in queries]")
    assert component_identity(NODE) != first
    assert found["q1"] == {"a": 1.0}
    assert searched()["q1"] == {"b": 1.0}


def test_identity_imports_nothing(mine, tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "pack" / "inner.py").write_text("raise SystemExit")
    assert component_identity(NODE | {"function": "pack.inner:search"})["arguments"]["sha256"]
    assert "pack" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_a_file_of_the_working_folder_stands_for_no_installed_module(mine, tmp_path):
    mine("raise SystemExit", "colorsys")
    assert str(tmp_path) not in str(spec_of("colorsys").origin)
    assert imported_object("colorsys:rgb_to_hsv")(0, 0, 0) == (0, 0, 0)


# ---- on the leash


def test_nothing_else_of_the_working_folder_can_be_imported(mine, tmp_path):
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


def test_a_module_of_the_folder_imports_those_that_are_allowed_with_it(mine, tmp_path):
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
def test_only_an_allowed_module_is_named(mine, allowed, function, fine):
    plugins.permit(allowed)
    if fine:
        build(NODE | {"function": function}, where="retriever.python")
        return
    with pytest.raises(BadInput, match=rf"^retriever\.python\.function={function}: .* add plugins\.allow=\["):
        build(NODE | {"function": function}, where="retriever.python")


def test_allowing_is_for_the_command_line_alone(mine, harness, toy, tmp_path):
    mine("open('ran', 'w').close()\n" + SEARCH)
    words = ("run", *TOY, "tracking=none", "retriever=python", "retriever.python.function=mine:search")
    recipe = tmp_path / "folder" / "experiment" / "theirs.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("# @package _global_\nplugins: {allow: [mine]}\n")
    sweep = tmp_path / "folder" / "sweep" / "theirs.yaml"
    sweep.parent.mkdir()
    sweep.write_text("# @package _global_\nhydra: {sweeper: {params: {plugins.allow: '[mine]', top_k: '1,2'}}}\n")
    for more in ((), ("--config-dir=folder", "experiment=theirs"), ("plugins.allow=[other]",), ("plugins.allow=mine",)):
        done = harness(*words, *more)
        assert done.code == 2, done.err
        assert "plugins.allow" in done.err
    done = harness("sweep", *words[1:], "--config-dir=folder", "sweep=theirs")
    assert done.code == 2
    assert "plugins.allow can only be given on the command line" in done.err
    (tmp_path / "harness.yaml").write_text("plugins.allow: [mine]\n")
    assert "harness.yaml:1: plugins.allow can only be given on the command line" in harness(*words).err
    (tmp_path / "harness.yaml").unlink()
    assert not (tmp_path / "ran").exists()
    assert harness(*words, "plugins.allow=[mine]").code == 0
    assert (tmp_path / "ran").exists()
    assert harness(*words).code == 2, "the next command allows nothing"


def test_it_runs_sweeps_searches_and_reproduces(mine, harness, toy, tracker):
    file = mine(SEARCH)
    mine_allowed = "plugins.allow=[mine]"
    words = ("retriever=[bm25,python]", "retriever.python.function=mine:search", mine_allowed, "experiment_name=e")
    run = harness("run", *TOY, *words).json
    assert "mine" not in tracker.run(run["run_id"]).tags["mlflow.runName"].partition("plugins")[2]
    assert "source.python" in tracker.run(run["run_id"]).tags
    assert harness("sweep", *TOY, *words, "top_k=1,2").json["trials"]["finished"] == 2
    found = harness("search", *TOY, "query=달", *words[:3], "fusion=rrf").json
    assert found["documents"]
    refused = harness("reproduce", f"run={run['run_id']}")
    assert refused.code == 2
    assert mine_allowed in refused.err
    assert harness("reproduce", f"run={run['run_id']}", "format=json", mine_allowed).json["reproduced"]
    file.write_text(file.read_text().replace("3.0", "4.0"))
    changed = harness("reproduce", f"run={run['run_id']}", mine_allowed)
    assert changed.code == 2
    assert "mine:search has changed since then" in changed.err


def test_a_service_that_changes_is_asked_again(mine, harness, toy):
    mine("n = []\ndef search(queries, k):\n    n.append(1)\n    return [[('d1', len(n))] for _ in queries]")
    words = ("retriever=python", "retriever.python.function=mine:search", "plugins.allow=[mine]", "tracking=none")
    assert harness("run", *TOY, *words, "retriever.python.cache=false").code == 0
