"""Make submissions in the contest's format from rankings, and validate them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.text import counted
from harness.data.files import field, json_line, json_lines, json_text, some, unique_rows
from harness.data.predictions import contest_rows
from harness.errors import BadInput
from retrievers.base import Document, Query, Ranking, in_rows, remembered

_LISTED = 10  # maximum number of problems in an error message


def submission_rows(
    queries: Sequence[Query],
    ranking: Ranking,
    texts: Mapping[str, Document],
    contents: bool = True,
    answers: Sequence[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield contest rows {eval_id, standalone_query, topk, answer, references: [{score, content}, ...]}, one per query.

    Ids have the same type as in their file. Scores have six decimals. queries: as searched, in the ranking's order.
    contents: whether references contain the documents' texts, which `with_contents` can add later.
    """
    _require_rows(queries, ranking)
    written = [""] * len(queries) if answers is None else answers
    lists = in_rows(ranking.docs), in_rows(ranking.scores), in_rows(ranking.lengths)
    for query, docs, scores, length, answer in zip(queries, *lists, written, strict=True):
        documents = [texts[ranking.doc_ids[doc]] for doc in docs[:length]]
        row = _submission_row(query, documents, scores[:length]) | {"answer": answer}
        if contents:
            for reference, document in zip(row["references"], documents, strict=True):
                reference["content"] = document.text
        yield row


def _submission_row(query: Query, documents: Sequence[Document], scores: Sequence[float]) -> dict[str, Any]:
    return {
        "eval_id": query.query_id if query.native_id is None else query.native_id,
        "standalone_query": query.text,
        "topk": [one.doc_id if one.native_id is None else one.native_id for one in documents],
        "answer": "",
        "references": [{"score": round(score, 6)} for score in scores],
    }


def _require_rows(queries: Sequence[Query], ranking: Ranking) -> None:
    if [query.query_id for query in queries] != list(ranking.query_ids):
        raise ValueError("a submission needs the ranking's queries, in the ranking's order")


def bare_text(queries: Sequence[Query], candidates: Ranking, lengths: np.ndarray, texts: Mapping[str, Document]) -> str:
    """Return a submission without the documents' texts. lengths: the size of each query's list, int [Q]."""
    _require_rows(queries, candidates)

    def line(row: int, length: int) -> str:
        docs, scores = (values[row, :length].tolist() for values in (candidates.docs, candidates.scores))
        return json_line(_submission_row(queries[row], [texts[candidates.doc_ids[doc]] for doc in docs], scores))

    known = _known_lines(candidates)  # kept for later trials: if only `lengths` differ, most lines are equal
    for one in enumerate(lengths.tolist()):
        if one not in known:
            known[one] = line(*one)
    return "".join([known[one] for one in enumerate(lengths.tolist())])


@remembered
def _known_lines(candidates: Ranking) -> dict[tuple[int, int], str]:
    return {}


def with_contents(path: Path, texts: Mapping[str, Document]) -> str:
    """Return the text of a validated contest file, with the documents' texts added to all references."""
    lines = []
    for number, row in json_lines(path):
        references = field(row, "references", list, f"{path}:{number}") if "references" in row else ()
        for reference, doc_id in zip(references, row["topk"], strict=False):
            if not isinstance(reference, dict):
                raise BadInput(f"{path}:{number}: references holds {reference!r:.60}, but each must be an object.")
            reference.setdefault("content", texts[str(doc_id)].text)
        lines.append(row)
    return json_text(lines)


def validate_submission(path: Path, query_ids: Sequence[str], doc_ids: Collection[str], top_k: int) -> None:
    """Raise BadInput with the problems unless a contest file has each query once, with at most top_k known ids."""
    known_queries, submitted = set(query_ids), set[str]()
    problems = []
    for where, query_id, topk, _ in contest_rows(path):
        submitted.add(query_id)
        if query_id not in known_queries:
            problems.append(f"{where}: the dataset has no query {query_id!r:.60}")
        if len(topk) > top_k:
            problems.append(f"{where}: topk has {counted(len(topk), 'id')}, but top_k is {top_k}")
        if len(set(topk)) < len(topk):
            problems.append(f"{where}: topk names {some(sorted({one for one in topk if topk.count(one) > 1}))} twice")
        unknown = [doc_id for doc_id in topk if doc_id not in doc_ids]
        if unknown:
            problems.append(f"{where}: the dataset has no document {some(unknown)}")
    missing = [query_id for query_id in query_ids if query_id not in submitted]
    if missing:
        problems.append(f"{path}: {len(missing)} of {len(query_ids)} queries are missing: {some(missing)}")
    _refuse(path, problems, "Create the file again from the same dataset.")


def validate_against(path: Path, sample_path: Path) -> None:
    """Raise BadInput unless a contest file has the sample submission's query ids, in its order and with its types."""
    ours, theirs = _native_ids(path), _native_ids(sample_path)
    problems = []
    if missing := [query_id for query_id in theirs if query_id not in ours]:
        problems.append(f"{path} lacks {counted(len(missing), 'query')} of {sample_path}: {some(missing)}")
    if extra := [query_id for query_id in ours if query_id not in theirs]:
        problems.append(f"{path} has {counted(len(extra), 'query')} that {sample_path} lacks: {some(extra)}")
    if not problems:
        for (where, our), (there, their) in zip(ours.values(), theirs.values(), strict=True):
            if our != their:
                what = "type" if str(our) == str(their) else "order"
                problems.append(
                    f"{where}: the {what} differs: eval_id is {our!r:.60} here and {their!r:.60} at {there}"
                )
                break
    _refuse(path, problems, "Create the file from the same queries as the sample submission.")


def _native_ids(path: Path) -> dict[str, tuple[str, int | str]]:
    rows = unique_rows(path, "eval_id")
    return {query_id: (where, query_id if native is None else native) for where, query_id, native, _ in rows}


def _refuse(path: Path, problems: Sequence[str], remedy: str) -> None:
    if problems:
        listed = "\n  ".join(problems[:_LISTED])
        more = f"\n  and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise BadInput(f"{path} is not a valid submission:\n  {listed}{more}\n{remedy}")
