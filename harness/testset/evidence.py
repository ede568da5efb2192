"""Quotes of a language model as evidence: where they stand, and what stands around them."""

from __future__ import annotations

from collections.abc import Callable

from harness.data.documents_folder import Chunk
from harness.data.spans import Evidence, Span
from harness.errors import BadInput
from harness.testset.quotes import locate

CONTEXT = 32  # code points kept before and after evidence


def located(quote: str, chunk: Chunk, text_of: Callable[[str], str]) -> tuple[Evidence, ...]:
    """The evidence that a quote stands for, once for each place of the document; () if the document lacks it.

    `exact` is as the text has it, whatever white space and quotation marks the model wrote.

    text_of: text id -> text. BadInput where the text at a span is not the document's.
    """
    places = []
    for span in chunk.spans:
        text = text_of(span.text)
        if text[span.start : span.end] != chunk.document.text:
            raise BadInput(
                f"The document {chunk.document.doc_id} is not the text at its span [{span.start}, {span.end}) of "
                f"{span.text}. Prepare the files again."
            )
        found = locate(quote, text, (span.start, span.end))
        if found is None:
            return ()
        start, end = found
        before, after = text[max(0, start - CONTEXT) : start], text[end : end + CONTEXT]
        places.append(Evidence(Span(span.text, start, end), text[start:end], before, after))
    return tuple(places)
