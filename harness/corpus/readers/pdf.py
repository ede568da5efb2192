"""PDF: the text of each page, in the order in which the file draws it.

A page whose glyphs have no Unicode value is refused: what a program reads there is not what a person sees. A few such
glyphs among many, as in formulas, are left out. A word that is hyphenated at the end of a line is put together.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.data.files import some
from harness.errors import BadInput

_MOST_PAGES = 10_000
_FEW = 0.01  # share of the glyphs of a page that may lack a Unicode value
# Symbol fonts number their bullets and arrows from U+F020 on. One that stands alone is a bullet; more are letters.
_BULLET = re.compile(r"(?<![\ue000-\uf8ff])[\uf020-\uf0ff](?![\ue000-\uf8ff])")
_HYPHEN = re.compile(r"(?<=\w)\x02(?=\w)")  # pdfium's sign for a hyphen at the end of a line
_UNREADABLE = re.compile(  # as some writers spell glyphs, control, replacement and private-use characters
    r"\(cid:\d+\)|[\x00-\x08\x0e-\x1f\x7f\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]"
)


def read(path: Path) -> list[str]:
    """The texts of the pages."""
    from pypdfium2 import PdfDocument, PdfiumError, raw

    with suppress(PdfiumError):  # where pdfium sets no error, it gives that of the file before: have it be another one
        PdfDocument(b"no PDF")
    try:
        document = PdfDocument(path)
    except PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise BadInput(f"{path}: the PDF is encrypted. Save it without a password.") from None
        raise BadInput(f"{path}: the PDF cannot be opened. Is it complete?") from None
    with document:
        if len(document) > _MOST_PAGES:
            raise BadInput(f"{path}: the PDF has {len(document):,} pages, more than {_MOST_PAGES:,}. Split it.")
        pages, bad = [], []
        for number in range(1, len(document) + 1):
            try:
                pages.append(_page(document, number - 1))
            except (PdfiumError, _Unreadable) as error:
                bad.append(f"{number} ({error})")
    if bad:
        raise BadInput(
            f"{path}: the text of {len(bad)} of {len(pages) + len(bad)} pages cannot be read: page {some(bad)}. Export "
            "the PDF again with its fonts, or give the text from OCR or the source of the document."
        )
    if all(not page or page.isspace() for page in pages):
        raise BadInput(f"{path}: the PDF holds no text, only pictures. It needs OCR: give the text that OCR finds.")
    return pages


class _Unreadable(Exception):
    """A page holds glyphs without a meaning; says which."""


def _page(document: Any, index: int) -> str:
    """The text of a page."""
    from pypdfium2 import raw

    page = document[index]
    characters = page.get_textpage()
    try:
        handle, count = characters.raw, characters.count_chars()
        mapped = [at for at in range(count) if raw.FPDFText_HasUnicodeMapError(handle, at) != 1]
        units = [raw.FPDFText_GetUnicode(handle, at) for at in mapped]
    finally:
        characters.close()
        page.close()
    if count - len(mapped) > _FEW * count:
        raise _Unreadable(f"{count - len(mapped):,} of {count:,} glyphs have no Unicode value")
    text = "".join(map(chr, units)).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _HYPHEN.sub("", _BULLET.sub("\u2022", text)).replace("\x02", "-")
    if found := _UNREADABLE.search(text):
        raise _Unreadable(f"it contains {found[0] if len(found[0]) > 1 else f'U+{ord(found[0]):04X}'}")
    return text.rstrip()
