"""Quotes as evidence: at every place of the document, with what stands around."""

import pytest

from harness.data.documents_folder import Chunk
from harness.data.spans import Span
from harness.errors import BadInput
from harness.testset.draft.drafting import located
from retrievers.base import Document

#       0         1         2         3
#       0123456789012345678901234567890
TEXT = "달은 위성이다. 물은 끓는다.\n해는 별이다. 달은 위성이다."
CHUNK = Chunk(Document("d1", "달은 위성이다."), (Span("t", 0, 8), Span("t", 25, 33)))


def test_a_quote_is_evidence_at_each_place_of_its_document():
    first, second = located("위성이다", CHUNK, {"t": TEXT}.__getitem__)
    assert (first.span, first.exact, first.prefix, first.suffix) == (Span("t", 3, 7), "위성이다", "달은 ", TEXT[7:])
    assert (second.span, second.suffix) == (Span("t", 28, 32), ".")
    assert second.prefix == TEXT[:28]


@pytest.mark.parametrize("quote", ["", " ", "위성이었다", "물은 끓는다", "달은 위성이다. 물"])
def test_what_the_document_lacks_is_none(quote):
    assert located(quote, CHUNK, {"t": TEXT}.__getitem__) == ()


def test_a_document_that_is_not_its_text():
    with pytest.raises(BadInput, match="d1 is not the text at its span"):
        located("달은", CHUNK, {"t": "해는 위성이다." + TEXT}.__getitem__)
