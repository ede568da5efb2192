"""The Korean dataset that ships with the package has the promised properties.

Grades: 3 answers the question fully where other documents answer only a part, 2 answers it, 1 answers a part of it. An
empty object means that the query needs no retrieval.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import harness

SAMPLE = Path(harness.__file__).parent / "sample"
FILES = [path for path in sorted(SAMPLE.rglob("*")) if path.suffix in (".csv", ".json", ".jsonl", ".md", ".txt")]
HANGUL = re.compile("[가-힣]")


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return rows("documents.jsonl")


@pytest.fixture(scope="module")
def queries() -> list[dict[str, Any]]:
    return rows("eval.jsonl")


@pytest.fixture(scope="module")
def labels() -> dict[int, dict[str, int]]:
    read = rows("qrels.jsonl")
    by_query = {row["eval_id"]: row["relevant"] for row in read}
    assert len(by_query) == len(read)
    return by_query


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SAMPLE)))
def test_files_are_plain_utf_8(path: Path) -> None:
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    assert b"\r" not in raw
    assert b"\\u" not in raw  # Hangul is not escaped
    assert not raw.startswith(b"\xef\xbb\xbf")


def test_documents_are_many_unique_and_ascribed_to_fields(documents: list[dict[str, Any]]) -> None:
    assert all(list(row) == ["docid", "src", "content"] for row in documents)
    assert all(value == value.strip() != "" for row in documents for value in row.values())
    ids = [row["docid"] for row in documents]
    assert 110 <= len(ids) == len(set(ids)) <= 140
    assert all(re.fullmatch(r"[a-z]+-\d{3}", docid) for docid in ids)
    assert len({row["content"] for row in documents}) == len(documents)
    fields = Counter(row["src"] for row in documents)
    assert len(fields) >= 8
    assert min(fields.values()) >= 5
    assert all(src.startswith("sample/") for src in fields)
    assert len({(row["src"], row["docid"][:-4]) for row in documents}) == len(fields)  # one prefix per field
    for row in documents:
        assert 60 <= len(row["content"]) <= 300, row["docid"]
        assert 80 <= len(HANGUL.findall(row["content"])) <= 220, row["docid"]
        assert 2 <= row["content"].count("다.") <= 4, row["docid"]


def test_queries_are_sixty_and_their_ids_are_no_row_numbers(queries: list[dict[str, Any]]) -> None:
    ids = [row["eval_id"] for row in queries]
    assert len(ids) == len(set(ids)) == 60
    assert all(type(query_id) is int for query_id in ids)
    assert ids != sorted(ids)
    assert ids != list(range(60))
    texts = [json.dumps(row["msg"], ensure_ascii=False) for row in queries]
    assert len(set(texts)) == len(texts)


def test_ten_queries_are_conversations_of_three_turns(queries: list[dict[str, Any]]) -> None:
    roles = Counter(tuple(turn["role"] for turn in row["msg"]) for row in queries)
    assert roles == {("user",): 50, ("user", "assistant", "user"): 10}
    for row in queries:
        for turn in row["msg"]:
            assert list(turn) == ["role", "content"]
            assert HANGUL.search(turn["content"]), row["eval_id"]


def test_every_query_is_labelled_and_twelve_need_no_retrieval(
    queries: list[dict[str, Any]], labels: dict[int, dict[str, int]]
) -> None:
    assert set(labels) == {row["eval_id"] for row in queries}
    assert sum(not relevant for relevant in labels.values()) == 12
    conversations = [row["eval_id"] for row in queries if len(row["msg"]) == 3]
    assert sum(not labels[query_id] for query_id in conversations) <= 1


def test_labels_point_at_documents_with_positive_grades(
    documents: list[dict[str, Any]], labels: dict[int, dict[str, int]]
) -> None:
    known = {row["docid"] for row in documents}
    grades = Counter(grade for relevant in labels.values() for grade in relevant.values())
    assert set(grades) == {1, 2, 3}
    assert all(set(relevant) <= known and len(relevant) <= 3 for relevant in labels.values())
    assert sum(len(set(relevant.values())) > 1 for relevant in labels.values()) >= 5


def test_no_query_repeats_a_document(documents: list[dict[str, Any]], queries: list[dict[str, Any]]) -> None:
    contents = [row["content"] for row in documents]
    for row in queries:
        for turn in row["msg"]:
            assert not any(turn["content"].rstrip("?.! ") in content for content in contents), row["eval_id"]
