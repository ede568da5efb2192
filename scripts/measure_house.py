"""Measure the size of the code and its duplicates.

    python scripts/measure_house.py --check     # exit code 1 if a bound of BOUNDS is exceeded

Lines are counted as by `wc -l`. The product is harness/ and retrievers/. Counted in its syntax trees:

- dict configs: parameters named `config`, `node` or `cfg`, annotated `dict[str, Any]` or `Mapping[str, Any]`
- class names, function names in >= 2 modules: top-level names without a leading underscore, outside `__init__.py`
- modules with one importer: a single module imports them, from the same package
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = {
    "product, lines": 54_000,
    "product, modules": 280,
    "tests, lines": 42_000,
    "scripts, lines": 5_500,
    "dict configs": 15,
    "class names in >= 2 modules": 0,
}
CONFIGS, DICTS = ("config", "node", "cfg"), re.compile(r"(dict|Mapping)\[str, Any\]( \| None)?")
LONG, SMALL = 60, 130


class House:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {
            ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
            for package in ("harness", "retrievers")
            for path in sorted((root / package).rglob("*.py"))
        }
        self.lines = {name: _lines(path) for name, path in self.files.items()}
        self.trees = {name: ast.parse(path.read_text("utf-8")) for name, path in self.files.items()}

    def measured(self) -> dict[str, float]:
        product, nodes = sum(self.lines.values()), [node for tree in self.trees.values() for node in ast.walk(tree)]
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        return {
            "product, lines": product,
            "product, modules": len(self.lines),
            "product, mean lines of a module": round(product / len(self.lines), 1),
            "tests, lines": sum(map(_lines, (self.root / "tests").rglob("*.py"))),
            "scripts, lines": sum(map(_lines, (self.root / "scripts").rglob("*.py"))),
            "dict configs": sum(isinstance(one, ast.arg) and _is_config(one) for one in nodes),
            "class names in >= 2 modules": self._repeated(ast.ClassDef),
            "function names in >= 2 modules": self._repeated(ast.FunctionDef),
            f"functions of {LONG} lines and more": sum((f.end_lineno or 0) - f.lineno >= LONG - 1 for f in functions),
            f"modules under {SMALL} lines with one importer, a sibling": self._lone(),
            "to_json methods": sum(one.name == "to_json" for one in functions),
        }

    def _repeated(self, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> int:
        modules = [tree for name, tree in self.trees.items() if self.files[name].name != "__init__.py"]
        found = Counter(name for tree in modules for name in {n.name for n in tree.body if isinstance(n, kind)})
        return sum(count > 1 for name, count in found.items() if not name.startswith("_"))

    def _lone(self) -> int:
        importers: dict[str, set[str]] = defaultdict(set)
        for module, tree in self.trees.items():
            for node in (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)):
                for place in (str(node.module), *(f"{node.module}.{one.name}" for one in node.names)):
                    importers[place].add(module)
        small = [name for name, lines in self.lines.items() if lines < SMALL and self.files[name].name != "__init__.py"]
        packages = {name: [one.rpartition(".")[0] for one in importers[name]] for name in small}
        return sum(packages[name] == [name.rpartition(".")[0]] for name in small)


def _is_config(one: ast.arg) -> bool:
    return one.arg in CONFIGS and one.annotation is not None and bool(DICTS.fullmatch(ast.unparse(one.annotation)))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--check", action="store_true", help="exit with 1 if a bound is exceeded")
    given = reader.parse_args()
    found = House(ROOT).measured()
    print("| | here | bound |\n|---|---:|---:|")
    for name, value in found.items():
        print(f"| {name} | {value:,} | {f'{BOUNDS[name]:,}' if name in BOUNDS else ''} |")
    exceeded = [name for name, bound in BOUNDS.items() if given.check and found[name] > bound]
    print(f"Exceeded: {', '.join(exceeded)}." if exceeded else "", file=sys.stderr)
    return int(bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
