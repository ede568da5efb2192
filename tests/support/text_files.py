"""Small files of the kinds that a corpus consists of, made byte by byte."""

import io
import zipfile
from collections.abc import Mapping, Sequence

_LATIN = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
_OPENED = '<hs:sec xmlns:hs="http://www.hancom.co.kr/hwpml/2011/section" xmlns:hp="http://www.hancom.co.kr/hwpml/2011/paragraph">'


def _stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<</Length %d%s>>\nstream\n%s\nendstream" % (len(content), entries, content)


def pdf_of(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF of numbered objects, of which the first is the catalog."""
    out, places = b"%PDF-1.7\n", []
    for number, one in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return out + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n"
        % (size, table, size, trailer, len(out))
    )


def latin_pdf(*pages: Sequence[str], trailer: bytes = b"", more: Sequence[bytes] = ()) -> bytes:
    """A PDF whose pages show lines of Western text."""
    first = 4  # catalog, pages, font
    kids = b" ".join(b"%d 0 R" % (first + 2 * at) for at in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(pages)),
        _LATIN,
    ]
    for at, lines in enumerate(pages):
        shown = b" ".join(b"(%s) Tj 0 -14 Td" % line.encode("cp1252") for line in lines)
        box = b"/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>/Contents %d 0 R" % (first + 2 * at + 1)
        objects += [b"<</Type/Page/Parent 2 0 R%s>>" % box, _stream(b"BT /F 12 Tf 50 700 Td %s ET" % shown)]
    return pdf_of([*objects, *more], trailer)


def unicode_pdf(text: str, mapped: Mapping[int, str]) -> bytes:
    """A PDF of one page with one glyph for each character, numbered from 1 as they first occur.

    mapped: glyph -> what its font says that it means, in the place of the character; "" for nothing.
    """
    numbers = {one: number for number, one in enumerate(dict.fromkeys(text), start=1)}
    meanings = {number: mapped.get(number, one) for one, number in numbers.items()}
    rows = [b"<%04x> <%s>" % (number, one.encode("utf-16-be", "surrogatepass").hex().encode())
            for number, one in meanings.items() if one]  # fmt: skip
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def "
        b"1 begincodespacerange <0000> <ffff> endcodespacerange %d beginbfchar %s endbfchar endcmap end end"
        % (len(rows), b" ".join(rows))
    )
    glyphs = "".join(f"{numbers[one]:04x}" for one in text).encode()
    return pdf_of([
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 5 0 R>>>>/Contents 4 0 R>>",
        _stream(b"BT /F 12 Tf 50 700 Td <%s> Tj ET" % glyphs),
        b"<</Type/Font/Subtype/Type0/BaseFont/X/Encoding/Identity-H/DescendantFonts[6 0 R]/ToUnicode 8 0 R>>",
        b"<</Type/Font/Subtype/CIDFontType2/BaseFont/X/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0"
        b">>/FontDescriptor 7 0 R/DW 1000>>",
        b"<</Type/FontDescriptor/FontName/X/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0/Ascent 800/Descent -200"
        b"/CapHeight 700/StemV 80>>",
        _stream(cmap),
    ])  # fmt: skip


def encrypted_pdf() -> bytes:
    """A PDF that no empty password opens."""
    key = b"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    lock = b"<</Filter/Standard/V 1/R 2/O<%s>/U<%s>/P -4>>" % (key, key[::-1])
    return latin_pdf(["secret"], trailer=b"/Encrypt 6 0 R/ID[<00><00>]", more=[lock])


def picture_pdf() -> bytes:
    """A PDF that shows a grey square."""
    return pdf_of([
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R>>",
        _stream(b"0.5 g 10 10 100 100 re f"),
    ])  # fmt: skip


def section(inside: str) -> str:
    """The XML of a section with these paragraphs."""
    return f'<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>{_OPENED}{inside}</hs:sec>'


def paragraph(inside: str) -> str:
    """A paragraph with this text, which may contain elements."""
    return f'<hp:p id="0"><hp:run charPrIDRef="0"><hp:t>{inside}</hp:t></hp:run></hp:p>'


def hwpx(*sections: str, **others: str) -> bytes:
    """A HWPX file. others: content by the name of an entry, `manifest` for META-INF/manifest.xml."""
    entries = {"mimetype": "application/hwp+zip"}
    entries |= {f"Contents/section{at}.xml": one for at, one in enumerate(sections)}
    entries |= {"META-INF/manifest.xml" if name == "manifest" else name: one for name, one in others.items()}
    return zipped(entries)


def zipped(entries: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as packed:
        for name, content in entries.items():
            packed.writestr(name, content)
    return file.getvalue()
