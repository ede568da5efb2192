"""Plain text and Markdown: as they are, with their markup."""

from __future__ import annotations

from pathlib import Path

from harness.corpus.encodings import decoded


def read(path: Path) -> list[str]:
    """The text of the file."""
    return [decoded(path.read_bytes(), path)]
