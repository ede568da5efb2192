"""The note of a document: one sentence about the file that it comes from, made from a template.

A file often names its subject once, and most of its chunks do not. A note such as "이 문서는 'Tesla'에 대한 정보를 담고
있습니다." gives it back to every one of them. It is the title of the document: indexed, and never part of its span.
"""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePath

from harness.data.files import numbered_lines
from harness.errors import BadInput, did_you_mean

PLACEHOLDERS = ("name", "stem", "path")
LONGEST = 2_000  # characters of a template: a note is indexed with every chunk


@dataclass(frozen=True)
class Note:
    """A template with placeholders.

    {name}: the file's name up to its first underscore, or up to its ending: `Tesla` of `Tesla_KR.txt`.
    {stem}: the file's name without its ending. {path}: the path as `files.jsonl` has it. `{{` and `}}` are braces.
    """

    template: str

    @classmethod
    def read(cls, file: Path) -> Note:
        """The template in a UTF-8 file. BadInput, with the file, for one that cannot be used."""
        text = "\n".join(line for _, line in numbered_lines(file)).strip()
        if not text:
            raise BadInput(f"{file}: the note is empty. Write a sentence with {_shown()}, or set chunk.note=null.")
        if len(text) > LONGEST:
            raise BadInput(f"{file}: the note has {len(text):,} characters: the most is {LONGEST:,}.")
        if bad := next((one for one in text if unicodedata.category(one) == "Cc" and one not in "\n\t"), None):
            raise BadInput(f"{file}: the note contains the control character {bad!r}. Remove it.")
        try:
            fields = [field for _, field, *_ in _parsed(text) if field is not None]
        except ValueError as error:
            raise BadInput(f"{file}: {error}. Write {{{{ and }}}} for braces.") from None
        for field in fields:
            if field not in PLACEHOLDERS:
                hint = did_you_mean(field, PLACEHOLDERS) or f" Known: {_shown()}."
                raise BadInput(f"{file}: there is no placeholder {{{field:.60}}}.{hint}")
        return cls(unicodedata.normalize("NFC", text))

    def of(self, path: str) -> str:
        """The note of the file at `path`. Names are composed (NFC): macOS gives them decomposed."""
        composed = unicodedata.normalize("NFC", path)
        stem = PurePath(composed).stem
        values = {"name": stem.partition("_")[0] or stem, "stem": stem, "path": composed}
        return "".join(
            literal + (values[field] if field is not None else "") for literal, field, *_ in _parsed(self.template)
        ).strip()


def _parsed(template: str) -> list[tuple[str, str | None]]:
    """(literal text, name of the placeholder after it or None). ValueError for unmatched braces."""
    parts = []
    for literal, field, form, conversion in string.Formatter().parse(template):
        suffix = f"!{conversion}" * bool(conversion) + f":{form}" * bool(form)
        parts.append((literal, None if field is None else f"{field}{suffix}"))
    return parts


def _shown() -> str:
    return ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
