"""Files become text: each kind is read as documented, and what cannot be read is refused by name."""

import re
import unicodedata
import zipfile
from html import escape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_files import encrypted_pdf, hwpx, latin_pdf, paragraph, picture_pdf, section, unicode_pdf, zipped

from harness.corpus import extraction, readers
from harness.corpus.extraction import READERS, extract
from harness.corpus.readers import decoded
from harness.errors import BadInput

PROSE = "가람모터스는 경기도에 있는 회사이다. 전기 자동차의 부품을 만들고 있다.\n"


def text_of(tmp_path: Path, name: str, content: bytes | str) -> str:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return extract(path).text


SAME = [
    ("a.txt", "달은 위성이다.\n".encode(), "달은 위성이다.\n"),
    ("a.md", "---\ntitle: x\n---\n# 달 *은*\n".encode(), "---\ntitle: x\n---\n# 달 *은*\n"),  # front matter stays
    ("A.TXT", b"x", "x"),
    ("README", b"x", "x"),  # no suffix: text
    ("a.txt", b"a\r\nb\rc\n\rd", "a\nb\nc\n\nd"),
    ("a.txt", b"a\x0cb\tc\x1a", "a\x0cb\tc\x1a"),  # form feed, tab, and the end of file of old editors
    ("a.txt", b"\xef\xbb\xbfx", "x"),
    ("a.txt", b"\xef\xbb\xbf" * 2 + b"x", "x"),  # else its text would lose the second one when it is read again
    ("a.txt", "\ufeffx가".encode("utf-16-le"), "x가"),
    ("a.txt", "\ufeffx가".encode("utf-16-be"), "x가"),
    ("a.txt", "e\u0301".encode(), "\u00e9"),
    ("a.txt", PROSE.encode("cp949"), PROSE),
    ("a.txt", (PROSE + "똠방각하 펲시콜라").encode("cp949"), PROSE + "똠방각하 펲시콜라"),  # beyond EUC-KR
    ("a.txt", ("x" * 70 + "\x01").encode(), "x" * 70 + "\x01"),  # one control character slips into a text
]


@pytest.mark.parametrize(("name", "content", "expected"), SAME)
def test_text_is_read_as_it_is(tmp_path, name, content, expected):
    assert text_of(tmp_path, name, content) == expected


@given(st.text(min_size=1), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_any_text_comes_back_in_nfc_or_is_refused(tmp_path, text, encoding):
    try:
        once = text_of(tmp_path, "a.txt", f"x{text}".encode(encoding, "replace"))
    except BadInput:
        assert any(unicodedata.category(one) in ("Cs", "Cc") for one in text)
        return
    shown = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    assert once == unicodedata.normalize("NFC", f"x{shown}")
    assert text_of(tmp_path, "b.txt", once) == once


@given(st.lists(st.sampled_from(["가람모터스는 회사이다.", "매출은 12% 늘었다.", "쀍 똠", "韓國", "\r\n", "“x”·"])))
def test_korean_text_in_cp949_comes_back(tmp_path, parts):
    text = PROSE + " ".join(parts)
    assert text_of(tmp_path, "a.txt", text.encode("cp949")) == text.replace("\r\n", "\n")


JAPANESE, CHINESE = "これは日本語の文章です。東京は首都です。" * 3, "这是一个中文句子。北京是中国的首都。" * 3
WESTERN = "Ein Café, größer als früher; déjà vu à Noël."
OTHERS = [(text, encoding) for text in (JAPANESE, CHINESE) for encoding in ("cp932", "euc_jp", "gb18030", "cp950")]


@pytest.mark.parametrize(("text", "encoding"), [*OTHERS, (WESTERN, "cp1252"), (WESTERN, "iso-8859-15")])
def test_other_languages_are_not_taken_for_korean(text, encoding):
    with pytest.raises(BadInput, match=r"x:1: byte 0x.. at offset \d+ is not UTF-8"):
        decoded(text.encode(encoding, "replace"), Path("x"))


# HTML


def page(body: str, head: str = "") -> str:
    return f"<!DOCTYPE html><html><head><title>제목</title>{head}</head><body>{body}</body></html>"


HTML = [
    ("<p>하나\n  둘 <b>셋</b>넷</p>", "하나 둘 셋넷"),
    ("<h1>제목</h1>글<div>안</div>밖", "제목\n글\n안\n밖"),
    ("<p>하나</p><p>둘</p>", "하나\n\n둘"),
    ("하나<br>둘<br><br><br><br>셋", "하나\n둘\n\n셋"),  # one blank line at most
    ("a&nbsp;b&shy;c &lt;d&gt; &amp; &#xAC00;&hellip;", "a bc <d> & 가\u2026"),
    ("<ul><li>하나<li> 둘</ul>끝", "하나\n둘\n끝"),
    ("<pre>\n  a  b\n c</pre>x  y", "a  b\n c\nx y"),
    ("<nav>메뉴</nav><script>x()</script><style>p{}</style><noscript>켜라</noscript><template>t</template>글", "글"),
    ("<div hidden>숨은</div><button>누름</button><select><option>하나</select><textarea>x</textarea>글", "글"),
    ("<svg><text>그림</text></svg><img alt='사진'><!-- 말 -->글", "글"),
    ("<table><tr><th>A<th>B</table>", "A\tB"),
    (
        "<table><tr><td>1</td> <td><p>2</p><p>3</p> <tr><td></td><td>4</td></tr></table>끝",
        "1\t2\n\n3\n\t4\n끝",
    ),
    ("<table><tr><td>1<td></table>끝", "1\t\n끝"),
    ("<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "a\tb\tc"),  # a table in a cell
    ("<p>가<p>나<div><span>다</p>라", "가\n\n나\n\n다\n\n라"),  # an unclosed page is read as a browser does
    ("a<a href=x>b</a> <i> c </i> d", "ab c d"),
    ("글" + "<b>" * 3000 + "깊다", "글깊다"),
]


@pytest.mark.parametrize(("body", "expected"), HTML)
def test_html_is_read_as_a_page_shows_it(tmp_path, body, expected):
    assert text_of(tmp_path, "a.html", page(body)) == expected


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\xad"))))
def test_paragraphs_of_a_page_come_back(tmp_path, texts):
    """White space becomes one space, paragraphs are separated by a blank line, and any text can be escaped."""
    path = tmp_path / "a.html"
    path.write_text(page("<p>x</p>" + "".join(f"<p>{escape(one)}</p>" for one in texts)), "utf-8")
    shown = [re.sub("[ \xa0]+", " ", one).strip(" ") for one in texts]
    expected = "\n\n".join(["x", *(one for one in shown if one)])
    assert extraction.extract_here(str(path))["text"] == unicodedata.normalize("NFC", expected)


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("<meta charset='euc-kr'>", "cp949"),
        ("<meta http-equiv=Content-Type content='text/html; charset=ks_c_5601-1987'>", "cp949"),
        ("", "cp949"),
        ("<meta charset='utf-8'>", "utf-8"),
        ("<meta charset='euc-kr'>", "utf-8"),  # converted, and the declaration left: its bytes decide
        ("", "utf-16"),
        ("<meta charset=iso-8859-1>", "cp949"),  # what old editors declared whatever they wrote
    ],
)
def test_the_encoding_of_a_page(tmp_path, head, encoding):
    assert text_of(tmp_path, "a.htm", page(PROSE, head).encode(encoding)) == PROSE.strip()


def test_a_declared_encoding_decides_where_the_bytes_do_not(tmp_path):
    for name, text, codec in (("Shift_JIS", "これは日本語の文章です。", "cp932"), ("euc-kr", "쾰른", "cp949")):
        assert text_of(tmp_path, "a.html", f"<meta charset={name}>{text}".encode(codec)) == text


# PDF


def test_pages_of_a_pdf_start_where_they_say(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(latin_pdf(["Hello.", "Second line."], [], ["Third page."]))
    found = extract(path)
    assert found.text == "Hello.\nSecond line.\n\nThird page."
    assert found.pages == (0, 20, 21)  # "Hello.\nSecond line." has 19 characters, and page 2 none
    assert found.text[found.pages[2] :] == "Third page."


def test_a_hyphenated_word_is_put_together(tmp_path):
    assert text_of(tmp_path, "a.pdf", latin_pdf(["An exam-", "ple of 3-", "4 words"])) == "An example of 3-\n4 words"


@pytest.mark.parametrize(
    ("text", "mapped", "expected"),
    [
        ("가나 다𠀀각", {}, "가나 다𠀀각"),
        ("ab", {1: "\uf0b7"}, "\u2022b"),  # one character of a symbol font is a bullet
        ("ab", {1: "\uf0b7", 2: "\uf0a7"}, None),
        ("ab", {1: "\ue001"}, None),
        ("ab", {1: "\ufffd"}, None),
        ("ab", {2: "\ud800"}, None),  # half of a character
        ("ab", {1: "(cid:12)"}, None),
        ("ab", {1: ""}, None),
        ("a" + "b" * 99, {1: ""}, "b" * 99),  # 1 of 100 glyphs, as in formulas
        ("a" + "b" * 98, {1: ""}, None),
    ],
)
def test_glyphs_without_a_meaning(tmp_path, text, mapped, expected):
    if expected is None:
        with pytest.raises(BadInput, match=r"a\.pdf: the text of 1 of 1 pages cannot be read: page 1 \("):
            text_of(tmp_path, "a.pdf", unicode_pdf(text, mapped))
    else:
        assert text_of(tmp_path, "a.pdf", unicode_pdf(text, mapped)) == expected


# HWPX

_CELL = "<hp:tc><hp:subList>{}</hp:subList></hp:tc>"
HWPX = [
    (paragraph("하나") + paragraph("") + paragraph("둘"), "하나\n둘"),
    (paragraph("가<hp:tab/>나<hp:lineBreak/>다<hp:nbSpace/>라<hp:fwSpace/>마 &amp; &#xAC00;"), "가\t나\n다 라 마 & 가"),
    (paragraph("남<hp:deleteBegin/>지움<hp:deleteEnd/>는<hp:markpenBegin/>다<hp:markpenEnd/>"), "남는다"),
    (paragraph("앞<hp:deleteBegin/>") + paragraph("모두") + paragraph("<hp:deleteEnd/>뒤"), "앞\n뒤"),
    (
        paragraph("표") + "<hp:p><hp:run><hp:tbl>"
        + f"<hp:tr>{_CELL.format(paragraph('1'))}{_CELL.format(paragraph('2') + paragraph('3'))}</hp:tr>"
        + f"<hp:tr>{_CELL.format(paragraph(''))}{_CELL.format(paragraph('4'))}</hp:tr>"
        + "</hp:tbl></hp:run></hp:p>" + paragraph("끝"),
        "표\n1\t2\n3\n\t4\n끝",
    ),
    (
        "<hp:p><hp:run><hp:t>본문</hp:t><hp:ctrl><hp:footNote><hp:subList>" + paragraph(" 각주")
        + "</hp:subList></hp:footNote></hp:ctrl><hp:t> 계속</hp:t></hp:run></hp:p>" + paragraph("다음"),
        "본문 계속\n각주\n다음",
    ),
    (
        "<hp:p><hp:run><hp:ctrl><hp:header><hp:subList>" + paragraph("머리말") + "</hp:subList></hp:header></hp:ctrl>"
        "<hp:ctrl><hp:fieldBegin type='MEMO'>" + paragraph("메모") + "</hp:fieldBegin></hp:ctrl>"
        "<hp:t>본문</hp:t><hp:equation><hp:script>a over b</hp:script></hp:equation></hp:run></hp:p>",
        "본문a over b",
    ),
    ("<hp:p><hp:run><hp:rect><hp:drawText><hp:subList>" + paragraph("글상자") + "</hp:subList></hp:drawText></hp:rect>"
     "<hp:compose composeText='㉮'/></hp:run></hp:p>", "글상자\n㉮"),
]  # fmt: skip


@pytest.mark.parametrize(("inside", "expected"), HWPX)
def test_hwpx_is_read_in_order(tmp_path, inside, expected):
    assert text_of(tmp_path, "a.hwpx", hwpx(section(inside))) == expected


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff\ufeff"))))
def test_paragraphs_of_hwpx_come_back(tmp_path, texts):
    path = tmp_path / "a.hwpx"
    path.write_bytes(hwpx(section("".join(paragraph(escape(one)) for one in ["x", *texts, "y"]))))
    expected = "\n".join(one.rstrip(" ") for one in ["x", *texts, "y"] if one)
    assert extraction.extract_here(str(path))["text"] == unicodedata.normalize("NFC", expected)


def test_sections_are_read_by_number(tmp_path):
    sections = [section(paragraph(f"{number} 절")) for number in range(11)]
    assert text_of(tmp_path, "a.hwpx", hwpx(*sections)).splitlines() == [f"{number} 절" for number in range(11)]


GOOD = section(paragraph("x"))
BAD = {
    "empty": ("a.txt", b"", "the file is empty"),
    "blank": ("a.txt", b" \r\n\t\n", "holds no text, only white space"),
    "binary": ("a.txt", b"one\ntwo\x00\x01", r"a.txt:2: byte 0x00 at offset 7: the file is binary"),
    "UTF-16 without mark": ("a.txt", "plain text".encode("utf-16-le"), "Is it UTF-16 without a byte order mark"),
    "UTF-32": ("a.txt", "x".encode("utf-32"), "UTF-32"),
    "control characters": ("a.txt", b"\x01\x02\x03" * 9, "27 of 27 bytes are control characters"),
    "broken UTF-16": ("a.txt", b"\xff\xfea\x00\x00\xd8", "says UTF-16-LE, but byte 0x00 at offset 2 after the mark"),
    "broken UTF-8 with mark": ("a.txt", b"\xef\xbb\xbfab\xff", "says UTF-8, but byte 0xff at offset 2"),
    "unknown encoding": ("a.txt", b"one\ncaf\xe9 x", r"a.txt:2: byte 0xe9 at offset 7 is not UTF-8.* Save it as UTF-8"),
    "half UTF-8, half CP949": ("a.txt", PROSE.encode() + PROSE.encode("cp949"), "not UTF-8"),
    "PDF as text": ("a.txt", latin_pdf(["x"]), "says text, but the file is PDF. Rename it to end in .pdf"),
    "zip as HTML": ("a.html", zipped({"x": "y"}), "says html, but the file is a zip archive"),
    "old HWP": ("a.hwp", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an old binary HWP .* Save it as HWPX"),
    "Word": ("a.docx", zipped({"word/document.xml": "x"}), "a zip archive, which is not read. Save it as PDF"),
    "table": ("a.csv", b"a,b\n", r"no reader for \.csv\. Write its content as text"),
    "unknown suffix": ("a.htlm", b"x", r"no reader for \.htlm\. Did you mean '\.htm'\? Known suffixes are \.txt"),
    "an empty page": ("a.html", page("<script>x</script>").encode(), "holds no text"),
    "a page in an unknown encoding": (
        "a.html", b"<meta charset=koi8-r>caf\xe9 x", "or koi8-r, which it declares"),
    "a page in a codec of Python": ("a.html", b"<meta charset=rot13>caf\xe9 x", "or rot13"),
    "no PDF": ("a.pdf", b"hello", "says PDF, but the file does not begin with b'%PDF-'. Is it complete"),
    "a cut PDF": ("a.pdf", latin_pdf(["x"])[:150], "the PDF cannot be opened. Is it complete"),
    "an encrypted PDF": ("a.pdf", encrypted_pdf(), "the PDF is encrypted. Save it without a password"),
    "a scanned PDF": ("a.pdf", picture_pdf(), "only pictures. It needs OCR"),
    "a PDF without pages": ("a.pdf", latin_pdf(), "the PDF cannot be opened"),
    "a name without Korean in CP949": ("a.txt", "쾰른".encode("cp949"), "not plainly Korean"),
    "no HWPX": ("a.hwpx", zipped({"mimetype": "x"}), "Contents/section0.xml is missing"),
    "a cut HWPX": ("a.hwpx", hwpx(GOOD)[:60], "the HWPX file is damaged .* Is it complete"),
    "an HWPX packed by another method": (
        "a.hwpx", zipped({"Contents/section0.xml": GOOD}, zipfile.ZIP_LZMA), "damaged .* compressed by method 14"),
    "an encrypted HWPX": ("a.hwpx", hwpx("x", manifest="<odf:encryption-data/>"), "the document is encrypted"),
    "broken XML": ("a.hwpx", hwpx(GOOD, "<a>\n<b></a>"), r"Contents/section1.xml:2: broken XML \(mismatched tag"),
    "entities": ("a.hwpx", hwpx("<!DOCTYPE x [<!ENTITY e 'e'>]><x>&e;</x>"), "it declares a document type"),
    "deep XML": ("a.hwpx", hwpx("<a>" * 2000), "nested more than 1,000 deep"),
    "an HWPX of very many files": (
        "a.hwpx", zipped({f"{number}": "" for number in range(10_001)}), "packs 10,001 files, more than 10,000"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, name, content, message):
    with pytest.raises(BadInput, match=message) as refused:
        text_of(tmp_path, name, content)
    assert str(refused.value).startswith(str(tmp_path / name))


def test_a_path_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"no\.txt cannot be opened: .*No such file"):
        extract(tmp_path / "no.txt")
    with pytest.raises(BadInput, match="is not a file"):
        extract(tmp_path)


@pytest.mark.parametrize(("name", "read"), [(one.name, one) for one in READERS])
def test_a_file_beyond_the_limit_of_its_reader_is_refused(tmp_path, name, read):
    path = tmp_path / f"a{read.suffixes[0]}"
    with path.open("wb") as file:
        file.truncate(read.largest + 1)
    with pytest.raises(BadInput, match=rf"has .* MB, but {name} is limited to .* Split it"):
        extract(path)


def test_too_many_pages_and_a_zip_bomb_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_MOST_PAGES", 1)
    monkeypatch.setattr(readers, "_MOST_BYTES", 1 << 20)
    (tmp_path / "a.pdf").write_bytes(latin_pdf(["x"], ["y"]))
    (tmp_path / "a.hwpx").write_bytes(hwpx(section(paragraph("x" * (2 << 20)))))
    assert (tmp_path / "a.hwpx").stat().st_size < 10_000
    with pytest.raises(BadInput, match=r"the PDF has 2 pages, more than 1\. Split it"):
        extraction.extract_here(str(tmp_path / "a.pdf"))
    with pytest.raises(BadInput, match=r"the sections exceed 1 MB\. Split the document"):
        extraction.extract_here(str(tmp_path / "a.hwpx"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb",
    [
        "<div>" * 200_000 + "x",  # a parser's time grows with the square of the depth
        "".join(f"<b id={number}>" for number in range(20_000)) + "<p>x</p>" * 100_000,  # each <p> opens all <b> again
    ],
)
def test_a_page_that_takes_too_much_is_refused(tmp_path, monkeypatch, bomb):
    monkeypatch.setattr(extraction._apart, "seconds", 1)
    extraction._apart.close()
    with pytest.raises(BadInput, match=r"a\.html: reading it takes more than .* of (processor time|memory)"):
        text_of(tmp_path, "a.html", bomb)
    extraction._apart.close()
    monkeypatch.undo()
    assert text_of(tmp_path, "b.html", "<p>x</p>") == "x"


def test_the_reader_and_its_versions_are_recorded(tmp_path):
    (tmp_path / "a.html").write_text("x", "utf-8")
    assert extract(tmp_path / "a.html").reader.startswith("html 1, selectolax ")
