"""A Python function as a retriever."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import BadInput, DocIds, Document, Failed, Query, Ranking
from retrievers.external.modules import named, sha256_of
from retrievers.external.results import Found, ranking_of

# Called with the texts of queries and the most documents to return for each; one list for each, in their order.
Search = Callable[[list[str], int], list[Found]]

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SIGNATURE = "def search(queries: list[str], k: int) -> list[list[tuple[str, float]]]"


class Function:
    """Ranks by a function that takes texts and k and returns at most k (doc_id, score) pairs for each text.

    The function has its own index of the documents. BadInput where it returns anything else, Failed where it fails.

    function: `module:name`; the module is installed or in the working folder.
    version: what else decides the results beside the module's source, such as the version of a service; any text.
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
        """The function with the sha256 of its module's source and the version; modules that it imports do not count."""
        sha256 = sha256_of(function.partition(":")[0], function)
        return {"function": function, "sha256": sha256, "version": version, "cache": cache}

    def check_data(self, doc_ids: Collection[str], queries: Sequence[Query]) -> None:
        """BadInput unless there is a function that can be called; before a run begins."""
        self._loaded()

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Keep the ids: the function has an index of its own."""
        DocIds.save(folder, documents)
        self._known = {document.doc_id for document in documents}

    def load(self, folder: Path) -> None:
        ids = DocIds(folder)
        self._known = set(ids[np.arange(len(ids))])

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        search, answers = self._loaded(), []
        if queries:
            try:
                answers = search([query.text for query in queries], k)
            except Exception as error:
                raise Failed(f"{self._function} failed{_place_of(error)}: {type(error).__name__}: {error}") from error
        return ranking_of(queries, answers, k, self._known, self._function)

    def _loaded(self) -> Search:
        found: Search = named(self._function, self._function)
        check_callable(found, self._function)
        return found


def check_callable(found: Any, where: str) -> None:
    """BadInput unless it can be called as a `Search`. where: its name, for errors."""
    if not callable(found):
        raise BadInput(f"{where} is a {type(found).__name__}, not a function. Write {_SIGNATURE}.")
    try:
        inspect.signature(found).bind([], 1)
    except TypeError as error:
        raise BadInput(f"{where} cannot be called with texts and k ({error}). Write {_SIGNATURE}.") from None
    except ValueError:  # a builtin without a signature
        pass


def _place_of(error: Exception) -> str:
    """` at file:line` of where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames[1:] else ""
