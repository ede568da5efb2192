"""Rules for imports, checked in the sources: the packages of `harness` in one order, and `retrievers` below them."""

import ast
import functools
import importlib
import pkgutil
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import harness
import retrievers

ROOT = Path(__file__).resolve().parents[2]
LAYERS = next(line for line in (harness.__doc__ or "").splitlines() if " < " in line).split(" < ")
RETRIEVERS = ("redaction", "base", "compiling", "hosts", "sharding", "lexical", "dense", "combine", "external",
              "testing")  # fmt: skip
HEAVY = {"torch", "sentence_transformers", "mlflow", "faiss", "pandas", "matplotlib", "numba", "scipy", "kiwipiepy",
         "pyarrow", "rich", "hydra", "omegaconf", "sklearn", "transformers", "huggingface_hub",
         "optuna", "sqlalchemy", "yaml", "pypdfium2", "selectolax", "pymilvus", "milvus_lite", "grpc"}  # fmt: skip
COMPILED = {
    "_alignment_kernels",
    "_bm25_kernels",
    "_bm25_bounded",
    "_bm25_search",
    "_near_duplicate_kernels",
    "_vector_kernels",
    "_word_kernels",
    "leash",
}  # import numba or Hydra; imported only where used
SERVED = {"model_code"}  # loaded only by MLflow


def modules(package):
    """Dotted name -> file of every module except `__init__`; Hydra plugins have no package."""
    found = sorted((ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in found if path.stem != "__init__"}


HARNESS, BELOW = modules("harness"), modules("retrievers")
SOURCES = {module: path.read_text("utf-8") for module, path in (HARNESS | BELOW).items()}


@functools.cache
def imported(source):
    """Dotted names of the modules, and of names in modules, that a source imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports name their module in full"
            assert not node.level, "imports name their module in full"
            names |= {f"{node.module}.{name.name}" for name in node.names}
    return names


def upward(module, source):
    """Forbidden imports of a module of `harness`: of later packages and of other commands."""
    here = module.split(".")[1:]
    for name in imported(source):
        if name.startswith("harness."):
            there = name.split(".")[1:]
            if LAYERS.index(there[0]) > LAYERS.index(here[0]):
                yield f"{module} imports {name}, of a later room"
            if here[0] == there[0] == "commands" and here[1] != there[1]:
                yield f"{module} imports {name}, another command"


def graph(sources):
    """Module -> modules of this project that it imports, at the top or in functions."""
    found = {}
    for module, source in sources.items():
        parts = [name.split(".") for name in imported(source)]
        names = {".".join(one[:length]) for one in parts for length in range(1, len(one) + 1)}
        found[module] = names & sources.keys() - {module}
    return found


def test_imports_point_to_earlier_rooms():
    assert [complaint for module in HARNESS for complaint in upward(module, SOURCES[module])] == []


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("harness.data.files", "from harness.experiment import session", "later room"),
        ("harness.reports.markup", "def f():\n    from harness.tracking.tracker import Tracker", "later room"),
        ("harness.commands.search", "import harness.commands.run", "another command"),
        ("harness.sweeps.plan", "import harness.commands.compare", "later room"),
    ],
)
def test_an_import_that_points_up_is_found(module, line, complaint):
    [found] = upward(module, line)
    assert complaint in found


def test_there_are_no_circles():
    order = list(TopologicalSorter(graph(SOURCES)).static_order())
    assert len(order) == len(SOURCES)
    with pytest.raises(CycleError):
        TopologicalSorter(graph(SOURCES | {"harness.data.files": "import harness.data.trec"})).prepare()


def test_the_order_names_every_room():
    rooms = {
        path.stem for path in (ROOT / "harness").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__"} == set(LAYERS)


def test_retrievers_know_nothing_of_the_harness():
    for module in BELOW:
        here = module.split(".")[1]
        for name in imported(SOURCES[module]):
            assert not name.startswith("harness") or name.startswith("harness.errors"), module
            if name.startswith("retrievers."):
                assert RETRIEVERS.index(name.split(".")[1]) <= RETRIEVERS.index(here), (module, name)


def test_heavy_imports_happen_where_they_are_used():
    for module, source in SOURCES.items():
        tops = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.partition(".")[0] for name in imported("\n".join(map(ast.unparse, tops)))}
        assert not names & HEAVY or module.rpartition(".")[2] in COMPILED | SERVED, (module, names & HEAVY)


def test_modules_stay_readable_and_safe():
    harmless = ("allow_pickle=False", "cloudpickle.register_pickle_by_value")  # the latter sends our own code to Ray
    for module, source in SOURCES.items():
        assert source.count("\n") <= 700, module
        rest = functools.reduce(lambda rest, words: rest.replace(words, ""), harmless, source)
        assert "pickle" not in rest, module


def test_a_public_name_means_one_thing():
    """The functions of `harness.api` are the commands of the same names."""
    places = {}
    for module in SOURCES.keys() - {"harness.api"}:
        for node in ast.parse(SOURCES[module]).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def _statements(name):
    return ast.parse(Path(importlib.import_module(name).__file__).read_text("utf-8")).body


@pytest.mark.parametrize("package", [harness, retrievers])
def test_packages_hold_a_docstring_and_no_code(package):
    names = [one.name for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.") if one.ispkg]
    for name in [*names, "retrievers"]:
        [docstring] = _statements(name)
        assert isinstance(docstring.value, ast.Constant), name


def test_the_harness_itself_holds_names_that_are_looked_up_when_used():
    docstring, typing, when_checked, names, looked_up, listed = _statements("harness")
    assert isinstance(docstring.value, ast.Constant)
    assert (typing.module, when_checked.test.id, names.targets[0].id) == ("typing", "TYPE_CHECKING", "__all__")
    assert [one.name for one in (*looked_up.body, listed)] == ["__getattr__", "__dir__"]
    checked = {name.name for one in when_checked.body for name in one.names}
    assert checked == set(harness.__all__)
