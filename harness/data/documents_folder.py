"""The folder that `harness prepare` writes: documents, and the texts and files from which they were cut.

documents.jsonl: {docid, title, content, src, spans: [{text, start, end}, ...]}, one line per document.
texts/TEXT.txt:  the extracted text with the id TEXT.
files.jsonl:     {path, text, ...}, one line per file; `text` is the id of the file's text.
near_duplicates.jsonl: {a, b, similarity}, one line per pair of near-duplicates; `a` and `b` are document ids.
manifest.json:   {version, ...}, written last: a folder without it is unfinished.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.files import (
    DAMAGED,
    field,
    finished_folder,
    json_lines,
    open_unpacked,
    optional_text,
    required,
    sha256_of,
    unique_rows,
)
from harness.data.spans import Span
from harness.errors import BadInput
from retrievers.base import Document

DOCUMENTS, FILES, MANIFEST, TEXTS = "documents.jsonl", "files.jsonl", "manifest.json", "texts"
NEAR_DUPLICATES = "near_duplicates.jsonl"
VERSION = 1
TEXT_ID = 20  # number of hexadecimal digits of a text's id


@dataclass(frozen=True, slots=True)
class Chunk:
    """A document and its places in texts. It has several places if its text occurs more than once."""

    document: Document
    spans: tuple[Span, ...]


class DocumentsFolder:
    """A folder that `harness prepare` finished; raises BadInput for any other. key: the config key of the folder."""

    def __init__(self, path: Path, key: str = "documents") -> None:
        self.path = path
        make = f"`harness prepare files='FOLDER/**/*' output={path}`"
        give, finish = f"Make it with {make}.", f"Run {make} (again), or name the folder that it wrote."
        finished_folder(path, MANIFEST, VERSION, key=key, give=give, finish=finish)

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 of the documents with their spans."""
        return sha256_of(self.path / DOCUMENTS)

    def chunks(self) -> Iterator[Chunk]:
        path = self.path / DOCUMENTS
        for where, doc_id, native, row in unique_rows(path, "docid"):
            title, source = optional_text(row, "title", where), optional_text(row, "src", where)
            document = Document(doc_id, field(row, "content", str, where), title, source, native)
            spans = tuple(read_span(one, where) for one in field(row, "spans", list, where))
            if not spans:
                raise BadInput(f"{where}: spans is empty, but a document needs at least one place in a text.")
            yield Chunk(document, spans)

    def text(self, text_id: str) -> str:
        """Return the extracted text with this id. Raise BadInput if it is missing or has been changed."""
        path = self.path / TEXTS / f"{text_id}.txt"
        try:
            with open_unpacked(path) as file:
                content = file.read()
        except DAMAGED as error:
            raise BadInput(f"{path}: cannot be read ({error}). Prepare the files again.") from None
        if hashlib.sha256(content).hexdigest()[:TEXT_ID] != text_id:
            raise BadInput(f"{path}: the text has changed, and its spans no longer hold. Prepare the files again.")
        return content.decode("utf-8")

    def paths(self) -> dict[str, str]:
        """Return text id -> path of the first file that has this text."""
        path = self.path / FILES
        found: dict[str, str] = {}
        for number, row in json_lines(path):
            where = f"{path}:{number}"
            found.setdefault(field(row, "text", str, where), field(row, "path", str, where))
        return found

    def near_duplicates(self) -> dict[str, tuple[str, ...]]:
        """Return doc_id -> all ids in its group of near-duplicates, ascending; {} if there is no file of pairs."""
        path = self.path / NEAR_DUPLICATES
        groups: dict[str, list[str]] = {}
        for number, row in json_lines(path) if path.exists() else ():
            one, other = (field(row, key, str, f"{path}:{number}") for key in ("a", "b"))
            smaller, larger = sorted((groups.get(one, [one]), groups.get(other, [other])), key=len)
            if smaller is not larger and one != other:
                larger += smaller
                groups.update(dict.fromkeys((*smaller, *larger[:1]), larger))
        whole = {id(group): tuple(sorted(group)) for group in groups.values()}
        return {doc_id: whole[id(group)] for doc_id, group in groups.items()}


def read_span(value: Any, where: str) -> Span:
    """Return the span in an object {text, start, end}. Raise BadInput for other values and for an empty span."""
    if not isinstance(value, Mapping):
        raise BadInput(f"{where}: {value!r:.60} is not a span. Write an object {{text, start, end}}.")
    text, start, end = field(value, "text", str, where), required(value, "start", where), required(value, "end", where)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in (start, end)) or not 0 <= start < end:
        raise BadInput(f"{where}: start {start!r:.60} and end {end!r:.60} must be whole numbers, 0 <= start < end.")
    if len(text) != TEXT_ID or not set(text) <= set("0123456789abcdef"):
        raise BadInput(f"{where}: text is {text!r:.60}, but the id of a text is {TEXT_ID} hexadecimal digits.")
    return Span(text, start, end)
