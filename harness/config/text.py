"""Words in messages."""

from __future__ import annotations

_PLURALS = {"query": "queries", "retry": "retries", "is": "are", "has": "have", "it": "they"}


def plural(noun: str) -> str:
    return _PLURALS.get(noun) or f"{noun}s"


def counted(count: int, noun: str) -> str:
    """`1 trial`, `2 trials`, `1,000 queries`."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"
