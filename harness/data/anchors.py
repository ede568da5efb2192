"""Evidence found again in texts that have been edited, by what it says and by what stands around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.data.spans import Evidence, Span
from harness.progress import watch


@dataclass
class _Best:
    """The place where evidence fits best so far. fit: characters around it that are as they were. alone: no tie."""

    span: Span
    fit: int
    alone: bool = True


def find_again(
    lost: Sequence[Evidence], text_ids: Sequence[str], text_of: Callable[[str], str]
) -> list[Evidence | None]:
    """Each piece of evidence at its new place; None if its passage is in no text, or equally well in several places.

    A passage that occurs once is taken where it is. One that occurs several times is taken where most characters of
    its prefix and suffix are the same, counted from the passage outwards.

    lost: evidence whose own text is gone. text_ids: of all texts. text_of: called once for each of them.
    """
    found: list[_Best | None] = [None] * len(lost)
    with watch("evidence: searching the texts") as progress:
        for done, text_id in enumerate(text_ids, start=1):
            text = text_of(text_id)
            for number, one in enumerate(lost):
                for span, fit in _fits(one, text_id, text):
                    best = found[number]
                    if best is None or fit > best.fit:
                        found[number] = _Best(span, fit)
                    elif fit == best.fit:
                        best.alone = False
            progress(done, len(text_ids), "texts")
    return [
        replace(one, span=best.span) if best is not None and best.alone else None
        for one, best in zip(lost, found, strict=True)
    ]


def _fits(one: Evidence, text_id: str, text: str) -> Iterator[tuple[Span, int]]:
    """(place, characters around it that are as they were) of every occurrence of the passage in a text."""
    for start in _occurrences(one.exact, text):
        end = start + len(one.exact)
        before = text[max(0, start - len(one.prefix)) : start]
        fit = _shared(before[::-1], one.prefix[::-1]) + _shared(text[end : end + len(one.suffix)], one.suffix)
        yield Span(text_id, start, end), fit


def _occurrences(passage: str, text: str) -> Iterator[int]:
    start = text.find(passage)
    while start >= 0:
        yield start
        start = text.find(passage, start + 1)


def _shared(one: str, other: str) -> int:
    """The number of characters with which both texts begin."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))
