"""A Python function as a retriever: its module is imported by name, and its results are checked."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import math
import numbers
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import BadInput, Failed, did_you_mean
from retrievers.base import DocIds, Document, Query, Ranking
from retrievers.redaction import shown_value

Found = list[tuple[str, float]]  # (doc_id, score) pairs of a query, in any order
# Called with query texts and the maximum number of documents for each. Returns one list per text, in the same order.
Search = Callable[[list[str], int], list[Found]]

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_imported: dict[str, str] = {}  # module -> sha256 of its source at the time of its import
_SIGNATURE = "def search(queries: list[str], k: int) -> list[list[tuple[str, float]]]"


class Function:
    """Ranks by a function that takes texts and k, and returns at most k (doc_id, score) pairs for each text.

    A search raises BadInput for any other result, and Failed if the function raises an exception.

    function: `module:name`; the module is installed or in the working folder.
    version: any text; change it when something outside the module changes the results, such as a service.
    cache: false for a function whose results may change by themselves.
    """

    recorded_as = "retriever/python"
    version = 1
    source = "function"
    imports = "function"

    def __init__(self, function: str, version: str | None = None, cache: bool = True) -> None:
        if not _PLACE.fullmatch(function):
            raise BadInput(f"function is {function!r:.100}: write module:name, such as my_module:search.")
        self._function = function
        self._known: Collection[str] = ()

    @classmethod
    def identify(cls, function: str, version: str | None, cache: bool) -> dict[str, Any]:
        """Return the arguments and the sha256 of the module's file. Modules that it imports are not included."""
        return {"function": function, "sha256": _sha256(function), "version": version, "cache": cache}

    def check_data(self, doc_ids: Collection[str], queries: Sequence[Query]) -> None:
        self._loaded()

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        DocIds.save(folder, documents)
        self.load(folder)

    def load(self, folder: Path) -> None:
        ids = DocIds(folder)
        self._known = set(ids[np.arange(len(ids))])

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        search, answers = self._loaded(), []
        if queries:
            try:
                answers = search([query.text for query in queries], k)
            except Exception as error:
                frames = traceback.extract_tb(error.__traceback__)
                at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames[1:] else ""
                raise Failed(f"{self._function} failed{at}: {type(error).__name__}: {error}") from error
        return ranking_of(queries, answers, k, self._known, self._function)

    def _loaded(self) -> Search:
        found: Search = imported_object(self._function)
        check_callable(found, self._function)
        return found


def check_callable(found: Any, where: str) -> None:
    """Raise BadInput unless `found` can be called as a `Search`. where: the function's name, for messages."""
    if not callable(found):
        raise BadInput(f"{where} is of type {type(found).__name__}, not a function. Write {_SIGNATURE}.")
    try:
        inspect.signature(found).bind([], 1)
    except TypeError as error:
        raise BadInput(f"{where} cannot be called with texts and k ({error}). Write {_SIGNATURE}.") from None
    except ValueError:  # a builtin without a signature
        pass


def ranking_of(queries: Sequence[Query], answers: Any, k: int, known: Collection[str], where: str) -> Ranking:
    """Rank each query's (doc_id, score) pairs by score; ties keep their order. where: the pairs' source, for messages.

    Raise BadInput for any list with over k documents, an unknown or repeated document, or a score that is not finite.
    """
    if not _is_list(answers):
        raise BadInput(f"{where} returned {shown_value(answers)}: return a list with one list of pairs for each query.")
    if len(answers) != len(queries):
        raise BadInput(
            f"{where} returned {len(answers)} lists for {len(queries)} queries: return one for each, in their order."
        )
    scores = {}
    for query, answer in zip(queries, answers, strict=True):
        scores[query.query_id] = _checked(answer, k, known, f"{where}, query {query.query_id:.60}")
    return Ranking.from_scores(scores, k)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _checked(answer: Any, k: int, known: Collection[str], where: str) -> dict[str, float]:
    if not _is_list(answer):
        raise BadInput(f"{where}: {shown_value(answer)} is not a list of (doc_id, score) pairs.")
    if len(answer) > k:
        raise BadInput(f"{where}: it returned {len(answer)} documents, but k is {k}. Return the best k.")
    row: dict[str, float] = {}
    for pair in answer:
        if not _is_list(pair) or len(pair) != 2:
            raise BadInput(f"{where}: {shown_value(pair)} is not a (doc_id, score) pair.")
        doc_id, score = pair
        if not isinstance(doc_id, str):
            raise BadInput(f"{where}: the doc_id {shown_value(doc_id)} is not text. Return ids as text: str(doc_id).")
        if doc_id not in known:
            raise BadInput(f"{where}: the dataset has no document {shown_value(doc_id)}. Index this dataset again.")
        if doc_id in row:
            raise BadInput(f"{where}: document {shown_value(doc_id)} occurs twice. Return each once.")
        value = _number(score)
        if not math.isfinite(value):
            raise BadInput(f"{where}: document {shown_value(doc_id)} scores {shown_value(score)}, not a finite number.")
        row[doc_id] = value
    ordered = sorted(row, key=row.__getitem__, reverse=True)  # a stable sort keeps the order of ties
    return descending(ordered, [row[doc_id] for doc_id in ordered])


def _number(score: Any) -> float:
    try:
        return float(score) if isinstance(score, numbers.Real) and not isinstance(score, bool) else math.nan
    except (OverflowError, ValueError, TypeError):
        return math.nan


def descending(doc_ids: Sequence[str], scores: Sequence[float] | None) -> dict[str, float]:
    """Return doc_id -> score, strictly descending. A tied score is lowered by the least possible amount.

    scores: finite and not rising; None: rank r gets the score 1 / r.
    """
    if scores is None:
        return {doc_id: 1 / rank for rank, doc_id in enumerate(doc_ids, start=1)}
    found: dict[str, float] = {}
    limit = math.inf
    for doc_id, score in zip(doc_ids, scores, strict=True):
        found[doc_id] = limit = score if score < limit else math.nextafter(limit, -math.inf)
    return found


class _WorkingFolder(MetaPathFinder):
    def __init__(self) -> None:
        self.opened: set[str] = set()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return _here(fullname) if path is None and fullname in self.opened else None


_working_folder = _WorkingFolder()


def open_here(modules: Iterable[str]) -> None:
    """Allow this process to import modules, and the packages that contain them, from the working folder."""
    _working_folder.opened |= {module.partition(".")[0] for module in modules}
    if _working_folder not in sys.meta_path:
        sys.meta_path.append(_working_folder)


def _here(name: str) -> ModuleSpec | None:
    return PathFinder.find_spec(name, [str(Path.cwd())])


def spec_of(module: str) -> ModuleSpec | None:
    """Return the spec of a module, installed or in the working folder; None if there is none. Nothing is imported."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ValueError, ImportError):
        return None
    spec = spec or _here(top)
    for name in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    return spec


def _sha256(place: str) -> str:
    module = place.partition(":")[0]
    spec = spec_of(module)
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        near = did_you_mean(module, [path.stem for path in Path().glob("*.py")])
        raise BadInput(
            f"{place}: there is no module {module!r}, neither installed nor in {Path.cwd()}.{near} "
            "Run the command in the folder of the module's file."
        )
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def imported_object(place: str) -> Any:
    """Return the object that `module:name` names. A module whose file has changed is imported again.

    Files in the working folder never replace an installed module. Raise BadInput if the module cannot be imported or
    has no such object.
    """
    module_name, _, name = place.partition(":")
    now = _sha256(place)
    open_here([module_name])
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(module_name)
        if _imported.get(module_name, now) != now:
            module = importlib.reload(module)
    except Exception as error:
        lacks = error.name if isinstance(error, ModuleNotFoundError) else None
        hint = f". Allow {lacks}, too: plugins.allow=[{module_name},{lacks}]" if lacks and _here(lacks) else ""
        raise BadInput(f"{place}: {module_name} cannot be imported: {type(error).__name__}: {error}{hint}") from error
    _imported[module_name] = now
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(found) if not one.startswith("_")] if hasattr(found, "__dict__") else []
            raise BadInput(f"{place}: {module_name} has no {name!r}.{did_you_mean(part, known)}")
        found = getattr(found, part)
    return found
