"""Chunks: against LangChain's, by properties, and by hand where sentences are long or settings are bad; notes."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import manual
from harness.corpus.chunking import Chunking, Note, cuts
from harness.data.files import json_file
from harness.errors import BadInput

LANGCHAIN = json_file(Path(__file__).parent / "langchain_chunks.json")


def chunks(text, **options):
    return [text[start:end] for start, end in Chunking(**options).spans(text)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """LangChain's chunks were counted with it: its tokens are runs of letters and digits, and runs of other signs."""
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    file.write_text(json.dumps(LANGCHAIN["tokenizer"]))
    return str(file)


def options(case, tokenizer):
    named = {"tokenizer": tokenizer} if case["unit"] == "tokens" else {}
    return {key: case[key] for key in ("size", "overlap", "unit")} | {"separator": LANGCHAIN["separator"]} | named


def cases(*, long):
    found = [one for one in LANGCHAIN["cases"] if (one["text"] == "long") == long]
    return [pytest.param(one, id=f"{one['text']} {one['unit']} {one['size']} {one['overlap']}") for one in found]


@pytest.mark.parametrize("case", cases(long=False))
def test_the_same_chunks_as_langchain(case, tokenizer):
    assert chunks(LANGCHAIN["texts"][case["text"]], **options(case, tokenizer)) == case["chunks"]


@pytest.mark.parametrize("case", cases(long=True))
def test_a_sentence_that_langchain_keeps_whole_is_cut(case, tokenizer):
    text, theirs = LANGCHAIN["texts"]["long"], case["chunks"]
    ours = chunks(text, **options(case, tokenizer))
    [sentence] = [one for one in theirs if len(one) > 300]
    assert sentence not in ours
    assert ours[0] == theirs[0], "up to the sentence, the chunks are the same"
    assert {word for one in ours for word in one.split()} == {*text.split()}, "cuts are at white space"


def test_the_settings_of_the_config_are_those_of_the_class():
    shipped = {key: entry.value for key, entry in manual.manual("prepare").keys.items() if key.startswith("chunk.")}
    assert {key: str(getattr(Chunking(), key.removeprefix("chunk."))).replace("None", "null") for key in shipped} == {
        key: value.strip("'").replace("''", "'") for key, value in shipped.items()
    }


# By hand, with the default separator. Lengths with the white space after them: "가나다. " 5, '"라마?" ' 6, "바 사" 3.
def test_sentences_keep_what_ends_them_and_overlap_whole():
    text = '가나다. "라마?" 바 사'
    assert chunks(text, size=12, overlap=0) == ['가나다. "라마?"', "바 사"]
    assert chunks(text, size=12, overlap=6) == ['가나다. "라마?"', '"라마?" 바 사']
    assert chunks(text, size=12, overlap=5) == ['가나다. "라마?"', "바 사"], "no part of a sentence is repeated"
    assert chunks(text, size=14, overlap=13) == [text]


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not():
    text = "제목\n\n첫 줄\n둘째 줄"
    assert chunks(text, size=5, overlap=0) == ["제목", "첫 줄", "둘째 줄"]  # 4 + 9 > 5: cut at a line
    assert chunks(text, size=9, overlap=0) == ["제목", "첫 줄\n둘째 줄"]


@pytest.mark.parametrize(
    ("text", "size", "parts"),
    [
        ("aaaa bb", 5, ["aaaa ", "bb"]),
        ("aaaa bb", 4, ["aaaa", " bb"]),  # the white space begins the next part rather than exceed the size
        ("aaaaa b", 3, ["aaa", "aa ", "b"]),  # one long word
        ("a b\nc d e", 6, ["a b\n", "c d e"]),  # a line break before white space
        ("   ", 2, ["  ", " "]),
        ("", 2, []),
    ],
)
def test_long_sentences_are_cut_where_they_can_be(text, size, parts):
    ends = [*cuts(text, range(len(text)), size), len(text)]
    assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end] == parts


def test_units_that_begin_at_one_character_stay_together():
    # Bytes as tokens: each of the two characters has three.
    assert [*cuts("가나", [0, 0, 0, 1, 1, 1], 2)] == [1]
    assert [*cuts("가나", [0, 0, 0, 1, 1, 1], 4)] == [1]


TEXTS = st.text(st.sampled_from("가나 \n\t.?!\"'”다라a1。\u3000😀"), max_size=300)


def covering(text, chunking, share=lambda _: None):
    """The spans of a text, after a check that they cover everything but white space."""
    spans = chunking.spans(text, share)
    covered = {place for start, end in spans for place in range(start, end)}
    assert all(place in covered for place, one in enumerate(text) if not one.isspace())
    return spans


@given(TEXTS, st.integers(1, 40), st.data())
def test_chunks_cover_everything_and_stay_small(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    spans = covering(text, Chunking(size=size, overlap=overlap))
    for start, end in spans:
        assert 0 < end - start <= size
        assert text[start:end].strip() == text[start:end]
    for (start, end), (following, last) in pairwise(spans):
        assert start <= following
        assert end < last
        assert end - following <= overlap


@given(TEXTS, st.integers(1, 12), st.data())
def test_chunks_of_tokens_cover_everything_and_end(tokenizer, text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    spans = covering(text, Chunking(size=size, overlap=overlap, unit="tokens", tokenizer=tokenizer))
    assert spans == sorted(set(spans))


def test_kiwi_finds_korean_sentences_without_full_stops_and_counts_morphemes():
    text = "안녕하세요 😀 저는 목수예요 반갑습니다\n\n나이테는 책장이다. 물수제비는 탁자이다."
    assert chunks(text, splitter="kiwi", size=14, overlap=0)[-2:] == ["나이테는 책장이다.", "물수제비는 탁자이다."]
    assert len(chunks(text, splitter="kiwi", size=14, overlap=0)) > len(chunks(text, size=400)) + 2
    # 나이테/는/책장/이/다/. and 물수제비/는/탁자/이/다/.: six morphemes each
    second = text.partition("\n\n")[2]
    assert chunks(second, unit="morphemes", size=6, overlap=0) == ["나이테는 책장이다.", "물수제비는 탁자이다."]
    assert chunks(second, unit="morphemes", size=12, overlap=0) == [second]
    assert max(map(len, chunks(second, unit="morphemes", size=2, overlap=1))) <= 6


@pytest.mark.slow
def test_kiwi_survives_long_runs_without_white_space():
    text, shares = "가" * 9000 + " 끝이다. " + "base64" * 1500, []
    covering(text, Chunking(size=500, overlap=50, splitter="kiwi", unit="morphemes"), shares.append)
    assert all(0 <= share <= 1 for share in shares)


def test_separators_cannot_take_for_ever():
    assert Chunking(separator=r"(?:[.!?]|다)\s+|(?<=\.)\s+|\n{2,}|。").spans("가. 나. 다.\n\n라。x")
    text = "." * 100_000 + '"' * 100_000 + "\n" * 100_000 + " " * 100_000 + "x"
    assert Chunking().spans(text)[0] == (0, 400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splitter": "regexp"}, r"chunk\.splitter='regexp' is not one of regex, kiwi\. Did you mean 'regex'"),
        ({"size": 0}, "chunk.size=0 is too small: the minimum is 1"),
        ({"size": 1_000_001}, "chunk.size=1000001 is too large: the maximum is 1000000"),
        ({"overlap": -1}, "chunk.overlap=-1 is too small: the minimum is 0"),
        ({"size": 20, "overlap": 20}, "chunk.overlap=20 is not below chunk.size=20"),
        ({"separator": "[.!?"}, r"is not a regular expression: unterminated character set"),
        ({"separator": ""}, "chunk.separator is empty"),
        ({"separator": r"\s*"}, "can match the empty string"),
        ({"separator": r"([.!?]+\s*)+"}, "repeats a repetition"),
        ({"separator": r"(a|b*)+c"}, "repeats a repetition"),
        ({"separator": r"(?:x+?y?){2,}z"}, "repeats a repetition"),
        ({"separator": "(" * 5000 + "a" + ")" * 5000}, "is not a regular expression"),
        ({"unit": "tokens"}, "chunk.unit=tokens needs chunk.tokenizer"),
        ({"note": 3}, "chunk.note=3 is not"),
        ({"tokenizer": "BAAI/bge-m3"}, "chunk.tokenizer has no effect with chunk.unit=characters"),
    ],
)
def test_settings_that_cannot_work_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        Chunking(**options)


def test_unknown_settings_are_named_as_in_the_config():
    with pytest.raises(BadInput, match=r"dataset\.chunk\.siez is unknown\. Did you mean 'size'"):
        Chunking.of({"siez": 3}, "dataset.chunk")


def test_a_tokenizer_that_cannot_be_had(tmp_path, monkeypatch):
    def refused(tokenizer, message):
        with pytest.raises(BadInput, match=message):
            Chunking(unit="tokens", tokenizer=str(tokenizer)).spans("가")

    refused(tmp_path, "the folder holds no tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    refused(tmp_path, r"tokenizer\.json is not a tokenizer")
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    refused(tmp_path / "bytes.json", r"bytes\.json is not a tokenizer")
    unknown = json.loads(json.dumps(LANGCHAIN["tokenizer"]))
    unknown["model"]["vocab"] = {"x": 0}
    (tmp_path / "unknown.json").write_text(json.dumps(unknown))
    refused(tmp_path / "unknown.json", r"unknown\.json cannot count tokens: WordLevel error")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable is read once a process
    refused("nobody/nothing-of-the-kind", "is neither a file nor a folder, and cannot be fetched from the hub")


def test_the_identity_is_of_contents_and_not_of_paths(tmp_path, tokenizer):
    other = tmp_path / "other.json"
    other.write_text(Path(tokenizer).read_text())
    one, two = (Chunking(unit="tokens", tokenizer=str(file)).identity() for file in (tokenizer, other))
    assert one == two
    (tmp_path / "a.txt").write_text("About {name}.\n")
    (tmp_path / "b.txt").write_text("About {name}.")
    noted = [Chunking(note=str(tmp_path / file)).identity() for file in ("a.txt", "b.txt")]
    assert noted[0] == noted[1] != Chunking().identity()
    assert Chunking(splitter="kiwi", separator="x").identity() == Chunking(splitter="kiwi").identity()
    assert "kiwipiepy" in Chunking(splitter="kiwi").identity()["packages"]
    json.dumps([one, noted])


@pytest.mark.parametrize(
    ("template", "path", "note"),
    [
        ("이 문서는 '{name}'에 대한 정보이다.", "data/Tesla_KR.txt", "이 문서는 'Tesla'에 대한 정보이다."),
        ("{name}", "data/Tesla.txt", "Tesla"),
        ("{name}", "a/_hidden_.txt", "_hidden_"),  # nothing before the underscore
        ("{name}|{stem}|{path}", "a/b_c.tar.txt", "b|b_c.tar|a/b_c.tar.txt"),
        ("{{{stem}}} {{x}}", "b.txt", "{b} {x}"),
        ("{name}", "\u1100\u1161.txt", "가"),  # a decomposed name
        ("no place", "b.txt", "no place"),
    ],
)  # fmt: skip
def test_notes(tmp_path, template, path, note):
    file = tmp_path / "note.txt"
    file.write_text(f"\n {template}\n", "utf-8")
    assert Note.read(file).of(path) == note


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "the note is empty"),
        ("{nmae}", r"there is no placeholder \{nmae\}. Did you mean 'name'"),
        ("{name.__class__}", r"there is no placeholder \{name.__class__\}"),
        ("{name:>99999999}", "there is no placeholder"),
        ("{name", "expected '}' before end of string"),
        ("x" * 2001, "the note has 2,001 characters"),
        ("a\x07b", "the control character"),
    ],
)
def test_templates_that_cannot_be_used(tmp_path, template, message):
    file = tmp_path / "note.txt"
    file.write_text(template, "utf-8")
    with pytest.raises(BadInput, match=message) as refused:
        Note.read(file)
    assert str(refused.value).startswith(str(file))
