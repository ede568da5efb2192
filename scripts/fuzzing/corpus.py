"""Formats of the files of a corpus: text, HTML, PDF and HWPX."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from fuzzing.formats import Format, Wrong, reads, same
from fuzzing.text_files import hwpx, latin_pdf, paragraph, section, unicode_pdf
from harness.corpus.extraction import Extracted, extract, extract_here
from harness.corpus.files import find_files

CORPUS: dict[str, Format] = {}
PROSE = "가람모터스는 경기도에 있는 회사이다. 전기 자동차의 부품을 만들고 있다.\r\n달은 위성이다.\n"
PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>달</title></head><body><nav><a href="/">처음</a></nav>
<h1>달</h1><p>달은 <b>위성</b>이다.<br>물은&nbsp;끓는다 &amp; &#xAC00;</p><ul><li>하나<li>둘</ul><pre> a
b</pre><table><tr><th>이름<th>값</tr><tr><td><p>달<td>1</tr></table><div hidden>숨은 글</div><script>x("<p>")</script>
</body></html>"""
CELL = "<hp:tc><hp:subList>{}</hp:subList></hp:tc>"
SECTION = section(
    paragraph("달은<hp:tab/>위성<hp:deleteBegin/>지움<hp:deleteEnd/>이다 &amp; &#xAC00;")
    + f"<hp:p><hp:run><hp:tbl><hp:tr>{CELL.format(paragraph('1'))}{CELL.format(paragraph('2'))}</hp:tr></hp:tbl>"
    + "<hp:ctrl><hp:footNote><hp:subList>" + paragraph("각주") + "</hp:subList></hp:footNote></hp:ctrl></hp:run></hp:p>"
)  # fmt: skip


def _only(folder: Path, name: str) -> Path:
    """The file of this name, found as files of a corpus are."""
    [one] = find_files(str(folder / name))
    return one.path


def _checked(found: Extracted) -> None:
    """Raise Wrong unless a text is in the form that is promised, and its pages are places in it."""
    text, pages = found.text, found.pages
    if "\r" in text or text.startswith("\ufeff") or not unicodedata.is_normalized("NFC", text) or not text.strip():
        raise Wrong("the text is not in its form", repr(text[:200]))
    text.encode()  # half characters are none
    if pages is not None and (pages[0] or list(pages) != sorted(pages) or pages[-1] > len(text)):
        raise Wrong("pages are not in order", repr(pages))


@reads("text file", {"a.txt": PROSE.encode(), "b.md": PROSE.encode("cp949")}, CORPUS)
def _text(folder: Path) -> None:
    for name in ("a.txt", "b.md"):
        path = _only(folder, name)
        found = extract(path)
        _checked(found)
        before = path.read_bytes()
        path.write_text(found.text, "utf-8", newline="")
        same(found, extract(path), "the text")
        path.write_bytes(before)


@reads("html", {"a.html": PAGE.encode()}, CORPUS)
def _html(folder: Path) -> None:
    path = _only(folder, "a.html")
    found = extract(path)
    _checked(found)
    same(extract_here(str(path))["text"], found.text, "the text")


@reads(
    "pdf",
    {"a.pdf": latin_pdf(["The moon is a satel-", "lite."], [], ["Water."]), "b.pdf": unicode_pdf("달은 위성이다", {})},
    CORPUS,
)
def _pdf(folder: Path) -> None:
    for name in ("a.pdf", "b.pdf"):
        _checked(extract(_only(folder, name)))


@reads("hwpx", {"a.hwpx": hwpx(SECTION, section(paragraph("끝")), manifest="<odf:manifest/>")}, CORPUS)
def _hwpx(folder: Path) -> None:
    path = _only(folder, "a.hwpx")
    found = extract(path)
    _checked(found)
    same(extract_here(str(path))["text"], found.text, "the text")
