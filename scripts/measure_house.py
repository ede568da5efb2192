"""Measure the size of the code, its duplicates, and the way of one run's `config` through it.

    python scripts/measure_house.py --against v0.8.0     # a column for a revision, one for the working tree
    python scripts/measure_house.py --check              # exit code 1 if a bound of BOUNDS is exceeded

Lines are counted as by `wc -l`. The product is harness/ and retrievers/. Counted in its syntax trees:

- dict configs: parameters named `config`, `node` or `cfg`, annotated `dict[str, Any]` or `Mapping[str, Any]`
- class names, function names in >= 2 modules: top-level names without a leading underscore, outside `__init__.py`
- way of config: from `full_experiment` in harness/analysis/single_run.py, in source order, into each function of the
  product that is called with `config`, `plan`, or an attribute or item of them. For a class this is `__init__`, or the
  class method. Inside, the parameter that received the value is followed. Each call is a visit; a function is entered
  on the first visit only. Rooms: the top-level packages and modules of harness/, and retrievers. Climbs: repeated
  visits of a room, right after a room that comes before it in the order of imports of harness/__init__.py.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from measuring import ROOT, called

BOUNDS = {
    "product, lines": 60_900,
    "product, modules": 312,
    "tests, lines": 46_040,
    "scripts, lines": 6_600,
    "dict configs": 15,
    "class names in >= 2 modules": 0,
    "way of config, rooms": 12,
    "way of config, climbs": 9,
}
CONFIGS, DICTS = ("config", "node", "cfg"), re.compile(r"(dict|Mapping)\[str, Any\]( \| None)?")
LONG, BEGIN = 60, ("harness.analysis.single_run", "full_experiment")


Received = tuple[str, str, frozenset[str]]


class House:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {
            ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
            for package in ("harness", "retrievers")
            for path in sorted((root / package).rglob("*.py"))
        }
        self.trees = {name: ast.parse(path.read_text("utf-8")) for name, path in self.files.items()}
        stated = re.search(r"^(\w+(?: < \w+){5,})$", (root / "harness" / "__init__.py").read_text("utf-8"), re.M)
        self.order = ["retrievers", *(stated[1].split(" < ") if stated else [])]

    def names(self, module: str) -> dict[str, str]:
        """Name in a module -> `module` or `module:name` that it is imported from."""
        imports = [node for node in ast.walk(self.trees[module]) if isinstance(node, ast.ImportFrom)]
        found = [(one.asname or one.name, str(node.module), one.name) for node in imports for one in node.names]
        return {name: f"{of}.{one}" if f"{of}.{one}" in self.trees else f"{of}:{one}" for name, of, one in found}

    def measured(self) -> dict[str, float]:
        nodes = [node for tree in self.trees.values() for node in ast.walk(tree)]
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        rooms, modules, climbs = self.way()
        return {
            "product, lines": sum(map(_lines, self.files.values())),
            "product, modules": len(self.files),
            "tests, lines": sum(map(_lines, (self.root / "tests").rglob("*.py"))),
            "scripts, lines": sum(map(_lines, (self.root / "scripts").rglob("*.py"))),
            "dict configs": sum(isinstance(one, ast.arg) and _is_config(one) for one in nodes),
            "class names in >= 2 modules": self._repeated(ast.ClassDef),
            "function names in >= 2 modules": self._repeated(ast.FunctionDef),
            f"functions of {LONG} lines and more": sum((f.end_lineno or 0) - f.lineno >= LONG - 1 for f in functions),
            "way of config, rooms": rooms,
            "way of config, modules": modules,
            "way of config, climbs": climbs,
        }

    def _repeated(self, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> int:
        modules = [tree for name, tree in self.trees.items() if self.files[name].name != "__init__.py"]
        found = Counter(name for tree in modules for name in {n.name for n in tree.body if isinstance(n, kind)})
        return sum(count > 1 for name, count in found.items() if not name.startswith("_"))

    def way(self) -> tuple[int, int, int]:
        visits, entered = list[str](), set[tuple[str, str]]()

        def enter(module: str, function: str, followed: frozenset[str]) -> None:
            visits.append(module)
            node = self._function(module, function)
            if node is None or (module, function) in entered:
                return
            entered.add((module, function))
            names = self.names(module)
            for call in _calls(node):
                if received := self._received(module, names, call, followed):
                    enter(*received)

        enter(*BEGIN, frozenset({"config", "plan"}))
        rooms = [_room(module) for module in visits]
        heights = [self.order.index(room) if room in self.order else -1 for room in rooms]
        climbs = [at for at in range(1, len(rooms)) if heights[at] > heights[at - 1] and rooms[at] in rooms[: at - 1]]
        return len(set(rooms)), len(set(visits)), len(climbs)

    def _function(self, module: str, name: str) -> ast.FunctionDef | None:
        found: ast.AST | None = self.trees.get(module)
        for part in name.split("."):
            found = next((one for one in getattr(found, "body", []) if getattr(one, "name", "") == part), None)
        if isinstance(found, ast.ClassDef):
            return self._function(module, f"{name}.__init__")
        return found if isinstance(found, ast.FunctionDef) else None

    def _received(
        self, module: str, names: dict[str, str], call: ast.Call, followed: frozenset[str]
    ) -> Received | None:
        """Return (module, function, parameters that receive the config) of a call, or None."""
        given = [*enumerate(call.args), *((one.arg, one.value) for one in call.keywords)]
        places = [place for place, value in given if _base(value) in followed]
        first, *rest = ast.unparse(call.func).split(".")
        target, _, name = (names.get(first) or f"{module}:{first}").partition(":")
        function = ".".join([name, *rest] if name else rest)
        node = self._function(target, function) if places else None
        if node is None:
            return None
        own = [one.arg for one in node.args.args if one.arg not in ("self", "cls")]
        into = {one if isinstance(one, str) else "".join(own[one : one + 1]) for one in places if one is not None}
        return target, function, frozenset(into)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
    if isinstance(node, ast.Call):
        yield node


def _base(value: ast.expr) -> str:
    return _base(value.value) if isinstance(value, ast.Attribute | ast.Subscript) else getattr(value, "id", "")


def _room(module: str) -> str:
    return module.removeprefix("harness.").split(".")[0]


def _is_config(one: ast.arg) -> bool:
    return one.arg in CONFIGS and one.annotation is not None and bool(DICTS.fullmatch(ast.unparse(one.annotation)))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def main(*, against: str | None = None, check: bool = False) -> int:
    """Print the table. --against: also measure this revision. --check: return 1 if a bound is exceeded."""
    columns = {"here": House(ROOT).measured()}
    if against:
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(["git", "archive", against], cwd=ROOT, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(folder, filter="data")
            columns = {against: House(Path(folder)).measured()} | columns
    print(f"| | {' | '.join(columns)} | bound |\n|---|{'---:|' * (len(columns) + 1)}")
    for name in columns["here"]:
        bound = f"{BOUNDS[name]:,}" if name in BOUNDS else ""
        print(f"| {name} | {' | '.join(f'{column[name]:,}' for column in columns.values())} | {bound} |")
    exceeded = [name for name, bound in BOUNDS.items() if check and columns["here"][name] > bound]
    print(f"Exceeded: {', '.join(exceeded)}." if exceeded else "", file=sys.stderr)
    return int(bool(exceeded))


if __name__ == "__main__":
    sys.exit(called(main, sys.argv[1:], "measure_house.py"))
