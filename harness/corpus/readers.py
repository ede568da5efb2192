"""Readers of HTML, HWPX, PDF and plain text: pages and headings, in their order.

HTML: what a person reads on the page, line by line.

Left out: the head with its title, navigation, scripts, styles, controls of forms, pictures with their descriptions, and
elements with the attribute `hidden`. Style sheets are not applied. Cells of a table row are separated by tabs.

HWPX, the open format of Hangul (KS X 6101): paragraphs, tables, text boxes and notes of all sections, in order.

Left out: headers and footers of pages, comments, and text that a tracked change deletes. Cells of a table row are
separated by tabs; a note follows the paragraph that refers to it; of an equation there is its script.

Text of formatted documents: words in lines, as a page shows them.

PDF: the text of each page, in the order in which the file draws it.

A page whose glyphs have no Unicode value is refused: what a program reads there is not what a person sees. A few such
glyphs among many, as in formulas, are left out. A word that is hyphenated at the end of a line is put together.

Plain text and Markdown: as they are, with their markup.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from harness.corpus.encodings import decoded
from harness.data.files import some
from harness.errors import BadInput

_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")
_BLANK_LINE = 2  # line breaks that make one; more are not kept


class Lines:
    """Puts text together, with the line breaks that blocks require.

    As in `innerText` of the HTML Standard, between two texts stands the greatest number of breaks that was required,
    none before the first and after the last.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._breaks = 0
        self._rows: list[int] = []  # parts before each row of a table that is in work
        self._edge = -1  # parts at the edge of its last cell

    def words(self, text: str) -> None:
        """Text in which any white space is one space, and none at the edges of lines; soft hyphens are left out."""
        text = _SPACES.sub(" ", text).replace("\xad", "")
        if self._breaks or not self._parts or self._parts[-1][-1] in " \n\t":
            text = text.lstrip(" ")
        self.exactly(text)

    def exactly(self, text: str) -> None:
        """Text as it is."""
        if not text:
            return
        if self._breaks and self._parts:
            self._trim()
            self._parts.append("\n" * self._breaks)
        self._breaks = 0
        self._parts.append(text)

    def block(self, breaks: int = 1) -> None:
        """An edge of a block: at least so many line breaks."""
        if len(self._parts) != self._edge:  # the first line of a cell stands beside the cell before
            self._breaks = max(self._breaks, breaks)

    def line_break(self) -> None:
        """One line break more."""
        self._breaks = min(self._breaks + 1, _BLANK_LINE)

    def row(self) -> None:
        """The start of a row of a table."""
        self.block()
        self._rows.append(len(self._parts))

    def end_row(self) -> None:
        """The end of the row: one line break, whatever the blocks in its last cell required."""
        self._rows.pop()
        self._edge, self._breaks = -1, 1

    def next_cell(self) -> None:
        """The edge between two cells of a row: a tab, whatever breaks the blocks in the first one required."""
        if self._rows and len(self._parts) > self._rows[-1]:
            self._breaks = 0
            self._trim()
        self.exactly("\t")
        self._edge = len(self._parts)

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts).strip(" \n")

    def _trim(self) -> None:
        """Remove the spaces at the end."""
        while self._parts and not self._parts[-1].rstrip(" "):
            self._parts.pop()
        if self._parts:
            self._parts[-1] = self._parts[-1].rstrip(" ")


_LEFT_OUT = (
    "[hidden], head, nav, script, style, noscript, template, svg, canvas, object, iframe, audio, video, button, select,"
    "textarea, datalist, noframes"
)
_BLOCKS = frozenset(
    ("address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir", "div",
     "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
     "hgroup", "hr", "html", "legend", "li", "main", "menu", "ol", "p", "pre", "search", "section", "summary", "table",
     "ul")
)  # fmt: skip
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]{0,500}?\bcharset|\?xml\b[^>]{0,500}?\bencoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)
_HEAD = 4096  # bytes in which a page declares its encoding


def read_html(path: Path) -> list[str]:
    """The text of the page."""
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    data = path.read_bytes()
    declared = _DECLARED.search(data[:_HEAD])
    source = decoded(data, path, declared[1].decode("ascii") if declared else "")
    try:
        page = LexborHTMLParser(source)
    except SelectolaxError as error:
        raise BadInput(f"{path}: the HTML cannot be read ({error}).") from None
    if page.root is None:
        return [""]
    return [_text(page.root, {node.mem_id for node in page.css(_LEFT_OUT)})]


def _text(root: Any, left_out: set[int]) -> str:
    """The text below a node. left_out: nodes without theirs. Without recursion, since pages may be nested deeply."""
    lines, node, kept = Lines(), root, 0  # kept: how many <pre> the node is in
    while True:
        below = None
        if node.is_text_node:
            (lines.exactly if kept else lines.words)(node.text_content or "")
        elif node.is_element_node and node.mem_id not in left_out:
            _open(lines, node)
            below = node.first_child
            if below is None:
                _close(lines, node.tag)
            elif node.tag == "pre":
                kept += 1
        while below is None:
            if node.mem_id == root.mem_id:
                return lines.text()
            below = node.next
            if below is None:
                node = node.parent
                _close(lines, node.tag)
                kept -= node.tag == "pre"
        node = below


def _open(lines: Lines, node: Any) -> None:
    tag = node.tag
    if tag == "br":
        lines.line_break()
    elif tag in ("td", "th"):
        before = node.prev
        while before is not None and before.tag not in ("td", "th"):
            before = before.prev
        if before is not None:
            lines.next_cell()
    elif tag == "tr":
        lines.row()
    elif tag in _BLOCKS:
        lines.block(2 if tag == "p" else 1)


def _close(lines: Lines, tag: str) -> None:
    if tag == "tr":
        lines.end_row()
    elif tag in _BLOCKS:
        lines.block(2 if tag == "p" else 1)


_MOST_BYTES = 256 << 20  # of all sections, unpacked
_MOST_ENTRIES = 10_000
_DEEPEST = 1_000  # elements in each other
_BLOCK = 1 << 16
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
_SECTION = re.compile(r"Contents/section(\d{1,6})\.xml")
_TEXTS = frozenset(("t", "script", "mainText", "subText"))
_SIGNS = {"tab": "\t", "lineBreak": "\n", "nbSpace": " ", "fwSpace": " ", "hyphen": "-"}
_NOTES = frozenset(("footNote", "endNote"))
_NOT_BODY = frozenset(("header", "footer", "hiddenComment", "fieldBegin"))  # the last holds comments and hints


def read_hwpx(path: Path) -> list[str]:
    """The text of the document."""
    try:
        with zipfile.ZipFile(path) as packed:
            return ["\n".join(_sections(packed, path))]
    except _DAMAGED as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: the HWPX file is damaged ({error}). Is it complete?") from None


def _sections(packed: zipfile.ZipFile, path: Path) -> list[str]:
    """The text of each section, by number."""
    if len(packed.filelist) > _MOST_ENTRIES:
        raise BadInput(f"{path}: the HWPX file packs {len(packed.filelist):,} files, more than {_MOST_ENTRIES:,}.")
    numbered = {int(found[1]): name for name in packed.namelist() if (found := _SECTION.fullmatch(name))}
    if not numbered:
        raise BadInput(f"{path}: there is no Contents/section0.xml in it, so it is no HWPX document. What made it?")
    if _encrypted(packed):
        raise BadInput(f"{path}: the document is encrypted. Save it without a password.")
    left, texts = _MOST_BYTES, []
    for _, name in sorted(numbered.items()):
        with _opened(packed, name) as file:
            section = _Section(f"{path}: {name}")
            left = section.parse(file, left)
            texts.append(section.text())
    return [text for text in texts if text]


def _encrypted(packed: zipfile.ZipFile) -> bool:
    """Whether the manifest says so. It is small where it is honest."""
    try:
        with _opened(packed, "META-INF/manifest.xml") as file:
            return b"encryption-data" in file.read(1 << 20)
    except KeyError:
        return False


def _opened(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A packed file, as the format has them packed. The standard library unpacks others, and fails in other ways."""
    method = packed.getinfo(name).compress_type
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError(f"{name} is compressed by method {method}")
    return packed.open(name)


class _Section:
    """The text of one section's XML. where: names it in errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._lines = [Lines()]  # of the section, then of notes that are in work
        self._notes: list[str] = []
        self._open: list[str] = []  # names of the elements around
        self._paragraphs = 0  # of those
        self._cells: list[int] = []  # of each row around, so far
        self._skipped = 0  # how many of them are left out
        self._deleted = False

    def parse(self, file: IO[bytes], left: int) -> int:
        """Read a section of at most `left` bytes; returns how many are left then."""
        from xml.parsers import expat

        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            while block := file.read(_BLOCK):
                left -= len(block)
                if left < 0:
                    raise BadInput(f"{self.where}: the sections have more than {_MOST_BYTES >> 20} MB. Split it.")
                parser.Parse(block)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise BadInput(f"{self.where}:{error.lineno}: broken XML ({error}). Save the document again.") from None
        return left

    def text(self) -> str:
        return self._lines[0].text()

    def _doctype(self, *_: object) -> None:
        raise BadInput(f"{self.where}: it declares a document type, which HWPX does not. Entities are not expanded.")

    def _start(self, full_name: str, attributes: dict[str, str]) -> None:
        name = full_name.rpartition(" ")[2]
        self._open.append(name)
        if len(self._open) > _DEEPEST:
            raise BadInput(f"{self.where}: elements are nested more than {_DEEPEST:,} deep.")
        if self._skipped or name in _NOT_BODY:
            self._skipped += 1
        elif name in _NOTES:
            self._lines.append(Lines())
        elif name == "p":
            self._paragraphs += 1
            self._lines[-1].block()
        elif name == "tr":
            self._cells.append(0)
            self._lines[-1].row()
        elif name == "tc" and self._cells:
            if self._cells[-1]:
                self._lines[-1].next_cell()
            self._cells[-1] += 1
        elif name in _SIGNS:
            self._characters(_SIGNS[name])
        elif name == "compose":
            self._lines[-1].exactly(attributes.get("composeText", ""))
        elif name in ("deleteBegin", "deleteEnd"):
            self._deleted = name == "deleteBegin"

    def _end(self, full_name: str) -> None:
        name = self._open.pop()
        if self._skipped:
            self._skipped -= 1
        elif name in _NOTES:
            self._notes.append(self._lines.pop().text())
        elif name == "p":
            self._paragraphs -= 1
            self._lines[-1].block()
            if not self._paragraphs:
                self._put_notes()
        elif name == "tr":
            self._cells.pop()
            self._lines[-1].end_row()

    def _characters(self, text: str) -> None:
        if not self._skipped and not self._deleted and _TEXTS.intersection(self._open[-2:]):
            self._lines[-1].exactly(text)

    def _put_notes(self) -> None:
        for note in self._notes:
            self._lines[-1].exactly(note)
            self._lines[-1].block()
        self._notes.clear()


_MOST_PAGES = 10_000
_FEW = 0.01  # share of the glyphs of a page that may lack a Unicode value
# Symbol fonts number their bullets and arrows from U+F020 on. One that stands alone is a bullet; more are letters.
_BULLET = re.compile(r"(?<![\ue000-\uf8ff])[\uf020-\uf0ff](?![\ue000-\uf8ff])")
_HYPHEN = re.compile(r"(?<=\w)\x02(?=\w)")  # pdfium's sign for a hyphen at the end of a line
_UNREADABLE = re.compile(  # as some writers spell glyphs, control, replacement and private-use characters
    r"\(cid:\d+\)|[\x00-\x08\x0e-\x1f\x7f\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]"
)


def read_pdf(path: Path) -> list[str]:
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


def read_text(path: Path) -> list[str]:
    """The text of the file."""
    return [decoded(path.read_bytes(), path)]
