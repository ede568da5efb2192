"""Words in messages."""

from __future__ import annotations

_PLURALS = {"query": "queries", "entry": "entries"}


def plural(noun: str) -> str:
    *before, last = noun.split(" ")
    return " ".join([*before, _PLURALS.get(last) or f"{last}s"])


def counted(count: int, noun: str) -> str:
    """`1 trial`, `2 trials`, `1,000 labelled queries`."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def short_id(run_id: str) -> str:
    """An id as tables and sentences show it: its first 8 digits. Commands take it for the whole."""
    return run_id[:8]
