"""Prompt files: the text that a language model is asked with, and the places in it that the harness fills.

A file is UTF-8 text. `{name}` stands for what is filled in; other braces, such as those of JSON, are plain text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.data.files import text_file
from harness.errors import BadInput, did_you_mean

MOST = 200_000  # bytes of a prompt file
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class PromptText:
    """The text of a prompt file, checked by `read_prompt`. places: the names that occur in it."""

    text: str
    places: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def filled(self, **values: str) -> str:
        """The text with values for its places; values without a place are left out. Braces in values stay."""
        return _PLACE.sub(lambda found: values[found[1]], self.text)


def read_prompt(path: Path, needed: Sequence[str], optional: Sequence[str] = (), key: str = "") -> PromptText:
    """Read a prompt file.

    needed: names that must occur as `{name}`. optional: names that may. key: the config key that named the file.

    Raises BadInput, which names the key, for a file that cannot be read, is empty or too long, lacks a needed name, or
    has another name in braces.
    """
    where = f"{key}={path}" if key else str(path)
    try:
        text = text_file(path, MOST).strip()
    except BadInput as error:
        raise BadInput(f"{key}: {error}" if key else str(error)) from None
    if not text:
        raise BadInput(f"{where}: the prompt is empty. Write what the model is asked to do.")
    found = tuple(dict.fromkeys(_PLACE.findall(text)))
    known = [*needed, *optional]
    for name in found:
        if name not in known:
            names = ", ".join(f"{{{one}}}" for one in known)
            raise BadInput(f"{where}: nothing is filled in for {{{name}}}.{did_you_mean(name, known)} Known: {names}.")
    if lacking := [f"{{{name}}}" for name in needed if name not in found]:
        raise BadInput(f"{where}: the prompt lacks {', '.join(lacking)}, where the harness fills in its part. Add it.")
    return PromptText(text, found)
