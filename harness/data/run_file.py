"""A retriever that does not search, but reads the rankings in another system's file."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from harness.config.schema import ReadPath
from harness.data.files import no_rows, numbered_lines, sha256_of, some
from harness.data.predictions import contest_rows, is_contest, trec_order, trec_scores
from harness.errors import BadInput
from retrievers.base import Document, Query, Ranking
from retrievers.external.function import descending

log = logging.getLogger(__name__)
LISTS = "lists.json"
Scored = dict[str, float]  # doc_id -> score, best first


class RunFile:
    """The rankings in a file: a TREC run, or contest rows {eval_id, topk, references}.

    A TREC run is sorted as in trec_eval; contest rows keep their order. Tied scores are lowered slightly, so that they
    fall with the rank. Without scores, the document at rank r scores 1 / r. Queries outside the dataset are ignored.
    Raises BadInput, with file and line, for unknown documents, repeated documents and scores that are not finite.

    scores: `file` for the scores in the file, `rank` for 1 / r.
    missing: `error` raises BadInput for a query without a list; `empty` gives the query an empty list.
    """

    recorded_as = "retriever/file"
    version = 1
    source = "path"
    precomputed = True

    def __init__(
        self, path: ReadPath, scores: Literal["file", "rank"] = "file", missing: Literal["error", "empty"] = "error"
    ) -> None:
        self._path, self._by_rank, self._missing = Path(path), scores == "rank", missing
        self._lists: Mapping[str, Scored] = {}

    @classmethod
    def identify(cls, path: str, scores: str, missing: str) -> dict[str, Any]:
        return {"sha256": _known_sha256(Path(path)), "scores": scores, "missing": missing}

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        lists = read_lists(self._path, self._by_rank)
        self._check_documents(lists, {document.doc_id for document in documents})
        (folder / LISTS).write_text(json.dumps(lists), "utf-8")
        self._lists = lists

    def load(self, folder: Path) -> None:
        self._lists = json.loads((folder / LISTS).read_text("utf-8"))

    def check_data(self, doc_ids: Collection[str], queries: Sequence[Query]) -> None:
        lists = read_lists(self._path, self._by_rank)
        self._check_documents(lists, doc_ids if isinstance(doc_ids, Mapping) else set(doc_ids))
        self._check_queries(lists, queries)

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        if lacking := self._check_queries(self._lists, queries):
            log.warning("%s: %d of %d queries have no list and get an empty one.", self._path, lacking, len(queries))
        longest = max(map(len, self._lists.values()), default=0)
        if queries and longest < k:
            deeper = "Deeper ranks are empty"
            log.warning("%s: its longest list has %d documents, but depth=%d. %s.", self._path, longest, k, deeper)
        return Ranking.from_scores({query.query_id: self._lists.get(query.query_id, {}) for query in queries}, k)

    def _check_documents(self, lists: Mapping[str, Scored], known: Collection[str]) -> None:
        unknown = list(dict.fromkeys(doc_id for row in lists.values() for doc_id in row if doc_id not in known))
        if unknown:
            raise BadInput(
                f"{_line_with(self._path, unknown[0])}: the dataset does not have these documents of the file: "
                f"{some(unknown)}. Make the file from the same documents, or remove these documents from it."
            )

    def _check_queries(self, lists: Mapping[str, Scored], queries: Sequence[Query]) -> int:
        lacking = [query.query_id for query in queries if query.query_id not in lists]
        if lacking and (self._missing == "error" or len(lacking) == len(queries)):
            empty = "Add the lists, or treat them as empty: retriever.NAME.missing=empty."
            remedy = empty if len(lacking) < len(queries) else "Is the file for this dataset?"
            raise BadInput(
                f"{self._path} has no list for {len(lacking)} of {len(queries)} queries: {some(lacking)}. It has lists "
                f"for {some(lists, 3)}. {remedy}"
            )
        return len(lacking)


def _known_sha256(path: Path) -> str:
    """Return the sha256 of a file. Do not read the file again unless it has changed: a sweep asks for it often."""
    try:
        about = path.stat()
    except OSError:
        return sha256_of(path)  # raises BadInput with the problem
    return _sha256(path.absolute(), about.st_ino, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _sha256(path: Path, *version: int) -> str:
    return sha256_of(path)


def read_lists(path: Path, by_rank: bool = False) -> dict[str, Scored]:
    """Return query_id -> documents with strictly descending scores. by_rank: whether to score rank r with 1 / r."""
    number, line = next(numbered_lines(path), (0, ""))
    if not number:
        raise no_rows(path)
    if is_contest(line):
        return dict(_contest_lists(path, by_rank))
    run = trec_scores(path)
    return {
        query_id: descending(order := trec_order(scores), None if by_rank else [scores[one] for one in order])
        for query_id, scores in run.items()
    }


def _contest_lists(path: Path, by_rank: bool) -> Iterator[tuple[str, Scored]]:
    first: dict[bool, str] = {}  # whether a list has scores -> position of the first such list
    for where, query_id, topk, scores in contest_rows(path):
        if len(set(topk)) < len(topk):
            twice = sorted({one for one in topk if topk.count(one) > 1})
            raise BadInput(f"{where}: topk names {some(twice)} twice. Name each document once.")
        if topk and not by_rank:
            first.setdefault(scores is not None, where)
            if len(first) > 1:
                raise BadInput(
                    f"{first[False]}: not every document has a score, but every document at {first[True]} has one. Add "
                    "the scores, or use the ranks instead: retriever.NAME.scores=rank."
                )
            _check_order(where, topk, scores or [])
        yield query_id, descending(topk, None if by_rank else scores)


def _check_order(where: str, topk: Sequence[str], scores: Sequence[float]) -> None:
    for place in range(1, len(scores)):
        if scores[place] > scores[place - 1]:
            raise BadInput(
                f"{where}: {topk[place]!r:.60} scores {scores[place]}, more than {topk[place - 1]!r:.60} above it. "
                "Correct the order, or use the ranks instead of scores: retriever.NAME.scores=rank."
            )


def _line_with(path: Path, doc_id: str) -> str:
    _, first = next(numbered_lines(path))
    if is_contest(first):
        return next(where for where, _, topk, _ in contest_rows(path) if doc_id in topk)
    return next(f"{path}:{number}" for number, line in numbered_lines(path) if line.split()[2] == doc_id)
