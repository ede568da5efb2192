"""The shipped test set quotes the shipped profiles."""

import hashlib
from pathlib import Path

from harness.data.testset import KINDS, read_queries
from harness.testset.draft.drafts import Draft

SAMPLE = Path(__file__).resolve().parents[2] / "harness" / "sample"
ROWS = read_queries(SAMPLE / "testset")
TEXTS = [path.read_text("utf-8") for path in sorted((SAMPLE / "profiles").glob("*.txt"))]
BY_ID = {hashlib.sha256(text.encode()).hexdigest()[:20]: text for text in TEXTS}


def test_each_query_of_the_shipped_test_set():
    for row in ROWS:
        assert row.query.query_id == Draft(row.kind, row.query.turns).query_id
        for one in row.evidence:
            text, start, end = BY_ID[one.span.text], one.span.start, one.span.end
            found = text[max(0, start - 32) : start], text[start:end], text[end : end + 32]
            assert found == (one.prefix, one.exact, one.suffix), row.query.query_id


def test_the_shipped_test_set_has_every_kind_and_both_profiles():
    assert {row.kind for row in ROWS} == set(KINDS)
    assert {one.span.text for row in ROWS for one in row.evidence} == set(BY_ID)
    assert all(2_500 <= len(text) <= 4_000 for text in TEXTS)
