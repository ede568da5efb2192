"""Read the text of HTML, HWPX, PDF and plain-text files, in the order of the file.

HTML: the visible text, line by line; style sheets are ignored. The head (with its title), navigation, scripts, form
controls, pictures (with their descriptions) and elements with the attribute `hidden` are left out.

HWPX, the open format of the word processor Hangul (KS X 6101): paragraphs, tables, text boxes and notes of all
sections. A note follows the paragraph that refers to it. An equation is read as its source, in Hangul's own equation
language. Page headers, page footers, comments, and text that a tracked change deletes are left out. In HWPX and HTML,
tabs separate the cells of a table row.

PDF: the text of each page, in drawing order. Glyphs without a Unicode value, as in formulas, are left out if they are
few; otherwise, the page is refused. Words hyphenated at the end of a line are joined.

Plain text and Markdown are read as they are, markup included. The encoding is that of the byte order mark, if any; else
UTF-8 if the bytes are valid UTF-8; else CP949 if the result is plainly Korean. No other encoding is guessed.
"""

from __future__ import annotations

import codecs
import re
import zipfile
import zlib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

from harness.data.files import some
from harness.errors import BadInput

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
# Seven of ten syllables in Korean prose are in this set. If the bytes of Chinese, Japanese or Western text happen to
# be valid CP949, they mostly decode to syllables outside the set.
_COMMON = frozenset(
    "이다는을의에가고하지은로한를도서사기리아어대자시일나인그해라스정수부전원제들있면게보장주만과여동상성공구선적우된으"
    "비소였연국학했며관조위년신생무실물유계분화경용세발행법문산모안중방식결통차업현단회양당영간러습니합역진감내작표설명"
    "같질것등때할와되입요체미태"
)
_LOOKED_AT = 10_000  # number of letters beyond ASCII that are examined
_ENOUGH = 0.3  # minimum share of common Korean syllables; Korean texts have about 0.7
_ENCODINGS = {  # codec -> its names in web pages
    "cp949": ("euc-kr", "ks_c_5601-1987", "ksc5601", "ks_c_5601", "cp949", "uhc", "ms949", "windows-949"),
    "cp932": ("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"),
    "euc_jp": ("euc-jp", "x-euc-jp"),
    "gb18030": ("gb2312", "gbk", "gb18030", "x-gbk"),
    "cp950": ("big5", "x-x-big5"),
    "cp1252": ("windows-1252", "iso-8859-1", "latin1", "us-ascii"),
}
_CODECS = {name: codec for codec, names in _ENCODINGS.items() for name in names}
_PRINTED = bytes(set(range(256)) - {one for one in range(32) if one not in b"\t\n\v\f\r\x1a"} - {127})
_FEW_CONTROLS = 1000  # a text may have one control character per this many bytes


def decoded(data: bytes, path: Path, declared: str = "") -> str:
    """Return the text of a file, without its byte order mark.

    Raise BadInput for binary data, and for an uncertain encoding (the error names the first byte that is not UTF-8).
    declared: the encoding that the file declares, used if the bytes leave the encoding open.
    """
    if data.startswith(_UTF32):
        raise BadInput(f"{path}: the file is UTF-32. Save it as UTF-8.")
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                text = data[len(mark) :].decode(encoding)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise BadInput(
                    f"{path}: its byte order mark says {encoding.upper()}, but byte 0x{byte:02x} at offset "
                    f"{error.start:,} after the mark is invalid. Is the file complete? Save it as UTF-8."
                ) from None
            _check_printed(text.encode() if encoding != "utf-8" else data, path)
            return text
    _check_printed(data, path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if (korean := _korean(data)) is not None:
            return korean
        with suppress(KeyError, UnicodeDecodeError):
            return data.decode(_CODECS[declared.lower()])
        raise _uncertain(data, error.start, path, declared) from None


def _check_printed(data: bytes, path: Path) -> None:
    zero = data.find(b"\0")
    if zero >= 0:
        start = data[:1000]
        # In UTF-16, every other byte of a Western text is 0.
        every_other = max(start[::2].count(0), start[1::2].count(0)) > len(start) / 5
        hint = " Is it UTF-16 without a byte order mark? Save it as UTF-8." if every_other else ""
        line = data.count(b"\n", 0, zero) + 1
        raise BadInput(f"{path}:{line}: byte 0x00 at offset {zero:,}: the file is binary, not text.{hint}")
    odd = len(data.translate(None, _PRINTED))
    if odd > 1 + len(data) / _FEW_CONTROLS:
        raise BadInput(f"{path}: {odd:,} of {len(data):,} bytes are control characters: the file is binary, not text.")


def _korean(data: bytes) -> str | None:
    """Return bytes decoded as CP949; None if they are not CP949, or if too few letters are common in Korean."""
    try:
        text = data.decode("cp949")
    except UnicodeDecodeError:
        return None
    letters = list(islice((one for one in text if one > "\x7f" and one.isalpha()), _LOOKED_AT))
    common = sum(one in _COMMON for one in letters)
    return text if letters and common >= _ENOUGH * len(letters) else None


def _uncertain(data: bytes, at: int, path: Path, declared: str) -> BadInput:
    line = data.count(b"\n", 0, at) + 1
    claim = f" or {declared:.40}, which it declares" if declared and declared.lower() not in ("utf-8", "utf8") else ""
    return BadInput(
        f"{path}:{line}: byte 0x{data[at]:02x} at offset {at:,} is not UTF-8, and the file is not plainly Korean in "
        f"CP949{claim}. Save it as UTF-8."
    )


_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")
_BLANK_LINE = 2  # number of line breaks that make a blank line; longer runs are cut to this number


class Lines:
    """Join texts with the line breaks that their blocks require, like `innerText` of the HTML Standard."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._breaks = 0
        self._rows: list[int] = []  # for each open table row, the number of parts before it
        self._edge = -1  # number of parts up to the tab that begins the current cell; -1 without such a tab

    def words(self, text: str) -> None:
        """Add text, but leave out repeated spaces, spaces at the ends of lines, and soft hyphens."""
        text = _SPACES.sub(" ", text).replace("\xad", "")
        if self._breaks or not self._parts or self._parts[-1][-1] in " \n\t":
            text = text.lstrip(" ")
        self.exactly(text)

    def exactly(self, text: str) -> None:
        if not text:
            return
        if self._breaks and self._parts:
            self._trim()
            self._parts.append("\n" * self._breaks)
        self._breaks = 0
        self._parts.append(text)

    def block(self, breaks: int = 1) -> None:
        """Require at least `breaks` line breaks before the next text, except right after the tab that begins a cell."""
        if len(self._parts) != self._edge:
            self._breaks = max(self._breaks, breaks)

    def line_break(self) -> None:
        self._breaks = min(self._breaks + 1, _BLANK_LINE)

    def row(self) -> None:
        self.block()
        self._rows.append(len(self._parts))

    def end_row(self) -> None:
        """Require exactly one line break, whatever the blocks in the last cell require."""
        self._rows.pop()
        self._edge, self._breaks = -1, 1

    def next_cell(self) -> None:
        """Add a tab instead of the line breaks that the blocks in the previous cell require."""
        if self._rows and len(self._parts) > self._rows[-1]:
            self._breaks = 0
            self._trim()
        self.exactly("\t")
        self._edge = len(self._parts)

    def text(self) -> str:
        return "".join(self._parts).strip(" \n")

    def _trim(self) -> None:
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
_HEAD = 4096  # number of bytes at the start of a page that are searched for its encoding


def read_html(path: Path) -> list[str]:
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
    """Return the text below a node, without the nodes `left_out`. Use no recursion: pages may be nested deeply."""
    lines, node, kept = Lines(), root, 0  # kept: number of <pre> elements around the node
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
    else:
        _close(lines, tag)


def _close(lines: Lines, tag: str) -> None:
    if tag == "tr":
        lines.end_row()
    elif tag in _BLOCKS:
        lines.block(2 if tag == "p" else 1)


_MOST_BYTES = 256 << 20  # maximum size of all sections together, unpacked
_MOST_ENTRIES = 10_000
_DEEPEST = 1_000  # maximum depth of nested elements
_BLOCK = 1 << 16
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
_SECTION = re.compile(r"Contents/section(\d{1,6})\.xml")
_TEXTS = frozenset(("t", "script", "mainText", "subText"))
_SIGNS = {"tab": "\t", "lineBreak": "\n", "nbSpace": " ", "fwSpace": " ", "hyphen": "-"}
_NOTES = frozenset(("footNote", "endNote"))
_NOT_BODY = frozenset(("header", "footer", "hiddenComment", "fieldBegin"))  # fieldBegin holds comments and hints


def read_hwpx(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as packed:
            return ["\n".join(_sections(packed, path))]
    except _DAMAGED as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: the HWPX file is damaged ({error}). Is it complete?") from None


def _sections(packed: zipfile.ZipFile, path: Path) -> list[str]:
    if len(packed.filelist) > _MOST_ENTRIES:
        raise BadInput(f"{path}: the HWPX file packs {len(packed.filelist):,} files, more than {_MOST_ENTRIES:,}.")
    numbered = {int(found[1]): name for name in packed.namelist() if (found := _SECTION.fullmatch(name))}
    if not numbered:
        raise BadInput(f"{path}: Contents/section0.xml is missing: this is not an HWPX document. Save it as HWPX.")
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
    try:
        with _opened(packed, "META-INF/manifest.xml") as file:
            return b"encryption-data" in file.read(1 << 20)
    except KeyError:
        return False


def _opened(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a packed file. Refuse rare compression methods, for which the standard library raises various errors."""
    method = packed.getinfo(name).compress_type
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError(f"{name} is compressed by method {method}")
    return packed.open(name)


class _Section:
    def __init__(self, where: str) -> None:
        self.where = where
        self._lines = [Lines()]  # lines of the section, followed by those of each open note
        self._notes: list[str] = []
        self._open: list[str] = []  # names of the open elements
        self._paragraphs = 0  # number of open paragraphs
        self._cells: list[int] = []  # number of cells so far in each open row
        self._skipped = 0  # number of open elements that are left out
        self._deleted = False

    def parse(self, file: IO[bytes], left: int) -> int:
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
                    raise BadInput(f"{self.where}: the sections exceed {_MOST_BYTES >> 20} MB. Split the document.")
                parser.Parse(block)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise BadInput(f"{self.where}:{error.lineno}: broken XML ({error}). Save the document again.") from None
        return left

    def text(self) -> str:
        return self._lines[0].text()

    def _doctype(self, *_: object) -> None:
        raise BadInput(
            f"{self.where}: it declares a document type, which HWPX files do not have. Save the document again."
        )

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
                for note in self._notes:
                    self._lines[-1].exactly(note)
                    self._lines[-1].block()
                self._notes.clear()
        elif name == "tr":
            self._cells.pop()
            self._lines[-1].end_row()

    def _characters(self, text: str) -> None:
        if not self._skipped and not self._deleted and _TEXTS.intersection(self._open[-2:]):
            self._lines[-1].exactly(text)


_MOST_PAGES = 10_000
_FEW = 0.01  # maximum share of a page's glyphs that may lack a Unicode value
# Symbol fonts put bullets and arrows at U+F020 and above. One by itself is a bullet; several in a row are letters.
_BULLET = re.compile(r"(?<![\ue000-\uf8ff])[\uf020-\uf0ff](?![\ue000-\uf8ff])")
_HYPHEN = re.compile(r"(?<=\w)\x02(?=\w)")  # pdfium's sign for a hyphen at the end of a line
_UNREADABLE = re.compile(  # glyph names such as (cid:7); control, replacement and private-use characters
    r"\(cid:\d+\)|[\x00-\x08\x0e-\x1f\x7f\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]"
)


def read_pdf(path: Path) -> list[str]:
    from pypdfium2 import PdfDocument, PdfiumError, raw

    with suppress(PdfiumError):  # pdfium may report an earlier file's error again; this call replaces that error
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
            "the PDF again with its fonts. If you cannot, give the document's source, or its text from OCR."
        )
    if all(not page or page.isspace() for page in pages):
        raise BadInput(f"{path}: the PDF holds no text, only pictures. It needs OCR: give the text that OCR finds.")
    return pages


class _Unreadable(Exception):
    """A page has too many glyphs without a Unicode value."""


def _page(document: Any, index: int) -> str:
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
    return [decoded(path.read_bytes(), path)]
