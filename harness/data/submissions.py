"""Submissions in the contest's layout: making them from rankings, and validating them before they are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.files import _encode, json_lines, json_text, some, unique_rows
from harness.data.predictions import _contest_rows
from retrievers.base import BadInput, Document, Query, Ranking, remembered

_LISTED = 10  # problems of a submission that a message lists


def submission_rows(
    queries: Sequence[Query], ranking: Ranking, texts: Mapping[str, Document], contents: bool = True
) -> Iterator[dict[str, Any]]:
    """Contest rows {eval_id, standalone_query, topk, answer, references: [{score, content}, ...]}, one a query.

    queries: as searched, in the order of the ranking's rows. texts: doc_id -> document. contents: whether references
    carry the documents' texts (`with_contents` adds them later). Ids are written as they were read; scores have six
    decimals; nobody answers here, so `answer` is empty.
    """
    if [query.query_id for query in queries] != list(ranking.query_ids):
        raise ValueError("a submission needs the queries of the ranking, in its order")
    rows = zip(queries, ranking.docs.tolist(), ranking.scores.tolist(), ranking.lengths.tolist(), strict=True)
    for query, docs, scores, length in rows:
        found = [texts[ranking.doc_ids[doc]] for doc in docs[:length]]
        references: list[dict[str, Any]] = [{"score": round(score, 6)} for score in scores[:length]]
        if contents:
            for reference, document in zip(references, found, strict=True):
                reference["content"] = document.text
        yield {
            "eval_id": query.query_id if query.native_id is None else query.native_id,
            "standalone_query": query.text,
            "topk": [one.doc_id if one.native_id is None else one.native_id for one in found],
            "answer": "",
            "references": references,
        }


def bare_text(queries: Sequence[Query], candidates: Ranking, lengths: np.ndarray, texts: Mapping[str, Document]) -> str:
    """`json_text` of the rows without contents, of the first documents of each query.

    lengths: int [Q], how many. Trials that differ in this alone have most rows in common: none is encoded twice.
    """
    known = _known_of(candidates)
    wanted, most = list(enumerate(lengths.tolist())), int(lengths.max(initial=0))
    if most > known.most:
        known.rows = list(submission_rows(queries, candidates.top(most), texts, contents=False))
        known.most = most
    for row, n in wanted:
        if (row, n) not in known.lines:
            shown = {name: known.rows[row][name][:n] for name in ("topk", "references")}
            known.lines[row, n] = _encode(known.rows[row] | shown) + "\n"
    return "".join([known.lines[place] for place in wanted])


@dataclasses.dataclass
class _Known:
    """What was made of a ranking's rows: the first `most` documents of each, and lines by (row, documents)."""

    most: int = -1
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    lines: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)


@remembered
def _known_of(candidates: Ranking) -> _Known:
    """Of the queries that the ranking answers and the documents that it is of."""
    return _Known()


def with_contents(path: Path, texts: Mapping[str, Document]) -> str:
    """A validated contest file's text, the documents' texts put into references that lack them."""
    lines = []
    for _, row in json_lines(path):
        for reference, doc_id in zip(row.get("references", ()), row["topk"], strict=False):
            reference.setdefault("content", texts[str(doc_id)].text)
        lines.append(row)
    return json_text(lines)


def validate_submission(path: Path, query_ids: Sequence[str], doc_ids: Iterable[str], top_k: int) -> None:
    """Raise BadInput, which lists file:line, unless a contest file has each query once and sound lists.

    A list is sound if it has at most top_k ids, each of `doc_ids` and each once.
    """
    known_queries, known_documents, found = set(query_ids), set(doc_ids), set[str]()
    problems = []
    for where, query_id, topk in _contest_rows(path):
        found.add(query_id)
        if query_id not in known_queries:
            problems.append(f"{where}: the data set has no query {query_id!r}")
        if len(topk) > top_k:
            problems.append(f"{where}: topk has {len(topk)} ids, but top_k is {top_k}")
        if len(set(topk)) < len(topk):
            problems.append(f"{where}: topk names {some(sorted({one for one in topk if topk.count(one) > 1}))} twice")
        unknown = [doc_id for doc_id in topk if doc_id not in known_documents]
        if unknown:
            problems.append(f"{where}: the data set has no document {some(unknown)}")
    missing = [query_id for query_id in query_ids if query_id not in found]
    if missing:
        problems.append(f"{path}: {len(missing)} of {len(query_ids)} queries are missing: {some(missing)}")
    _refuse(path, problems, "Make the file again from the same data set.")


def validate_against(path: Path, sample_path: Path) -> None:
    """Raise BadInput unless a contest file has the ids of the sample submission, in its order and of its types."""
    ours, theirs = _native_ids(path), _native_ids(sample_path)
    problems = []
    if missing := [query_id for query_id in theirs if query_id not in ours]:
        problems.append(f"{path} lacks {len(missing)} queries of {sample_path}: {some(missing)}")
    if extra := [query_id for query_id in ours if query_id not in theirs]:
        problems.append(f"{path} has {len(extra)} queries that {sample_path} lacks: {some(extra)}")
    if not problems:
        for (where, our), (there, their) in zip(ours.values(), theirs.values(), strict=True):
            if our != their:
                what = "type" if str(our) == str(their) else "order"
                problems.append(f"{where}: the {what} differs: eval_id is {our!r} here and {their!r} at {there}")
                break
    _refuse(path, problems, "Make the file from the same queries as the sample submission.")


def _native_ids(path: Path) -> dict[str, tuple[str, int | str]]:
    """query_id -> (file:line, the id as it stands there)."""
    rows = unique_rows(path, json_lines(path), "eval_id")
    return {query_id: (where, query_id if native is None else native) for where, query_id, native, _ in rows}


def _refuse(path: Path, problems: Sequence[str], remedy: str) -> None:
    if problems:
        listed = "\n  ".join(problems[:_LISTED])
        more = f"\n  and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise BadInput(f"{path} is no valid submission:\n  {listed}{more}\n{remedy}")
