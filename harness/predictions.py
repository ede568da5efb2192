"""Lists in files: predictions made elsewhere are read, submissions are written and validated."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.lines import as_id, field, finite, json_lines, no_rows, numbered_lines, some, unique_rows
from retrievers.base import BadInput, Document, Predictions, Query, Ranking, remembered

_TREC_FIELDS = 6  # query_id Q0 doc_id rank score tag
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_LISTED = 10  # problems of a submission that a message lists


def read_predictions(path: Path) -> Predictions:
    """Lists from contest JSON lines {eval_id, topk: [docid, ...]} or a TREC run, told apart by content.

    Contest lists keep their order and duplicates. A TREC run, lines `query_id Q0 doc_id rank score tag`, is ordered
    as trec_eval orders it: by score descending in single precision, equal ones by doc_id descending (UTF-8 bytes);
    the rank is ignored. Raises BadInput for anything else, a query in two rows, a document twice in a TREC list.
    """
    number, line = next(numbered_lines(path), (0, ""))
    if not number:
        raise no_rows(path)
    if line.lstrip().startswith(("{", "[")):
        return _predictions({query_id: topk for _, query_id, topk in _contest_rows(path)})
    return _predictions(_trec_lists(path))


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


def json_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """One JSON object a line; the same rows give the same text."""
    return "".join(_encode(row) + "\n" for row in rows)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all: to a temporary name in the same folder, then renamed."""
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        with unfinished.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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


def _contest_rows(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """(file:line, query_id, doc_ids) of contest rows; other fields are ignored."""
    for where, query_id, _, row in unique_rows(path, _no_map(path), "eval_id"):
        topk = field(row, "topk", list, where)
        yield where, query_id, [as_id(value, "an id in topk", where)[0] for value in topk]


def _no_map(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in json_lines(path):
        if "eval_id" not in row and row and all(isinstance(value, dict) for value in row.values()):
            raise BadInput(
                f"{path}:{number}: an object of queries is not read. Give one object a line, {{eval_id, topk: [docid, "
                "...]}, or a TREC run: query_id Q0 doc_id rank score tag."
            )
        yield number, row


def _native_ids(path: Path) -> dict[str, tuple[str, int | str]]:
    """query_id -> (file:line, the id as it stands there)."""
    rows = unique_rows(path, json_lines(path), "eval_id")
    return {query_id: (where, query_id if native is None else native) for where, query_id, native, _ in rows}


def _trec_lists(path: Path) -> dict[str, list[str]]:
    """query_id -> doc_ids of a TREC run in trec_eval's order; queries in order of their first line."""
    found: dict[str, dict[str, float]] = {}
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != _TREC_FIELDS:
            raise BadInput(
                f"{path}:{number}: {len(fields)} fields. A TREC run has six, query_id Q0 doc_id rank score tag; "
                "contest predictions are JSON lines {eval_id, topk: [docid, ...]}."
            )
        query_id, _, doc_id, _, score, _ = fields
        scores = found.setdefault(query_id, {})
        if doc_id in scores:
            first = next(n for n, other in numbered_lines(path) if other.split()[:3:2] == [query_id, doc_id])
            raise BadInput(
                f"{path}:{number}: query {query_id!r} has document {doc_id!r} already at {path}:{first}. Remove one."
            )
        scores[doc_id] = finite(score, "score", f"{path}:{number}")
    return {query_id: _trec_order(scores) for query_id, scores in found.items()}


def _trec_order(scores: Mapping[str, float]) -> list[str]:
    """doc_ids by (score as float32, doc_id), both descending: code points and UTF-8 bytes order text alike."""
    with np.errstate(over="ignore"):  # beyond float32 is infinite there too
        single = np.fromiter(scores.values(), np.float64, len(scores)).astype(np.float32).tolist()
    return [doc_id for _, doc_id in sorted(zip(single, scores, strict=True), reverse=True)]


def _predictions(lists: Mapping[str, Sequence[str]]) -> Predictions:
    place: dict[str, int] = {}
    docs = np.full((len(lists), max(map(len, lists.values()))), -1, np.int32)
    for row, doc_ids in enumerate(lists.values()):
        docs[row, : len(doc_ids)] = [place.setdefault(doc_id, len(place)) for doc_id in doc_ids]
    return Predictions(tuple(lists), tuple(place), docs)


def _refuse(path: Path, problems: Sequence[str], remedy: str) -> None:
    if problems:
        listed = "\n  ".join(problems[:_LISTED])
        more = f"\n  and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise BadInput(f"{path} is no valid submission:\n  {listed}{more}\n{remedy}")
