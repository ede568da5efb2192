"""Files that are no text and are not read: known by their first bytes or their suffix, with what to do about each."""

from __future__ import annotations

HEAD = 1024  # bytes that decide
_OFFICE = "Save it as PDF, HTML or text"
_HANGUL = "Save it as HWPX in Hangul (Save As), or as PDF"
_PICTURE = "It needs OCR: give the text that OCR finds"
_PACKED = "Unpack it"
_TABLE = "Write what it says as text; documents in JSON lines need no preparation"
_BEGINNINGS = (  # (first bytes, kind, what to do)
    (b"%PDF-", "PDF", "Rename it to end in .pdf"),
    (b"PK\x03\x04", "a zip archive", "Unpack it, or rename it to end in .hwpx if it is HWPX"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old binary HWP or Office file", f"{_HANGUL}, HTML or text"),
    (b"HWP Document File", "an old binary HWP file", _HANGUL),
    (b"{\\rtf", "RTF", _OFFICE),
    (b"\x89PNG", "a PNG picture", _PICTURE),
    (b"\xff\xd8\xff", "a JPEG picture", _PICTURE),
    (b"GIF8", "a GIF picture", _PICTURE),
    (b"II*\0", "a TIFF picture", _PICTURE),
    (b"MM\0*", "a TIFF picture", _PICTURE),
    (b"\x1f\x8b", "a gzip archive", _PACKED),
    (b"\xfd7zXZ\0", "an xz archive", _PACKED),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _PACKED),
    (b"Rar!", "a RAR archive", _PACKED),
    (b"PAR1", "a Parquet table", _TABLE),
    (b"SQLite format 3\0", "a database", _TABLE),
    (b"\x7fELF", "a program", "Leave it out of files"),
)
_SUFFIXES = {
    _HANGUL: (".hwp", ".hwt", ".hml"),
    _OFFICE: (".doc", ".docx", ".odt", ".rtf", ".ppt", ".pptx", ".odp", ".epub", ".mht", ".mhtml", ".eml"),
    _PICTURE: (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic"),
    _PACKED: (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z", ".rar", ".egg", ".alz"),
    _TABLE: (".csv", ".tsv", ".json", ".jsonl", ".xls", ".xlsx", ".ods", ".parquet", ".db", ".xml", ".yaml", ".yml"),
}
_ADVICE = {suffix: advice for advice, suffixes in _SUFFIXES.items() for suffix in suffixes}


def kind_of(head: bytes) -> tuple[str, str]:
    """(what a file is, what to do with it) from its first bytes; ("", "") for what may be text."""
    for beginning, kind, advice in _BEGINNINGS:
        if head.startswith(beginning):
            return kind, advice
    return "", ""


def advice_on(suffix: str) -> str:
    """What to do with a file that has this suffix, in lower case with its dot; empty if the suffix says nothing."""
    return _ADVICE.get(suffix, "")
