"""The shipped test set quotes the shipped profiles."""

import hashlib
import json
from pathlib import Path

import pytest

from harness.data.spans import Evidence, Span
from harness.testset.draft.drafts import KINDS, Draft
from retrievers.base import Turn

SAMPLE = Path(__file__).resolve().parents[2] / "harness" / "sample"
ROWS = [json.loads(line) for line in (SAMPLE / "testset" / "queries.jsonl").read_text("utf-8").splitlines()]
TEXTS = [path.read_text("utf-8") for path in sorted((SAMPLE / "profiles").glob("*.txt"))]
BY_ID = {hashlib.sha256(text.encode()).hexdigest()[:20]: text for text in TEXTS}


@pytest.mark.parametrize("row", ROWS, ids=[row["eval_id"] for row in ROWS])
def test_each_query_of_the_shipped_test_set(row):
    turns = tuple(Turn(**turn) for turn in row["msg"])
    evidence = []
    for place in row["evidence"]:
        text, start, end = BY_ID[place["text"]], place["start"], place["end"]
        assert text[start:end] == place["exact"]
        assert (text[max(0, start - 32) : start], text[end : end + 32]) == (place["prefix"], place["suffix"])
        evidence.append(Evidence(Span(place["text"], start, end), place["exact"]))
    assert row["eval_id"] == Draft(row["kind"], turns, row["answer"], tuple(evidence)).query_id
    assert bool(evidence) == (row["kind"] not in ("none", "unanswerable"))
    assert row["needs"] == (row["kind"] != "none")


def test_the_shipped_test_set_has_every_kind_and_both_profiles():
    assert {row["kind"] for row in ROWS} == set(KINDS)
    assert {place["text"] for row in ROWS for place in row["evidence"]} == set(BY_ID)
    assert all(2_500 <= len(text) <= 4_000 for text in TEXTS)
