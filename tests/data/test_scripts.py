"""The language of documents, and the tokenizer that suits it."""

import pytest

from harness.data import scripts
from harness.data.scripts import Writing
from retrievers.base import Document

ENGLISH = "The moon orbits the earth, and the tides are the work of both."
KOREAN = "달은 지구를 돌고, 밀물과 썰물은 둘이 함께 만든다."
FRENCH = "La lune tourne autour de la terre, et les marées viennent des deux."
JAPANESE = "月は地球の周りを回り、潮の満ち引きを起こします。"


@pytest.mark.parametrize(
    ("text", "language"),
    [(ENGLISH, "English"), (KOREAN, "Korean"), (KOREAN + ENGLISH, "Korean"), (FRENCH, ""), (JAPANESE, ""), ("1", "")],
)
def test_the_language_of_texts(text, language):
    assert scripts.language([text] * 3) == language


@pytest.mark.parametrize(
    ("own", "text", "better"),
    [
        ("kiwi", ENGLISH, "snowball"),
        ("kiwi", FRENCH, "word"),
        ("kiwi", JAPANESE, "char_ngram"),
        ("kiwi", KOREAN, None),
        ("kiwi", "1 + 2 = 3", None),
        ("snowball", KOREAN, "kiwi"),
        ("snowball", FRENCH, None),  # it stems French, too
        ("word", ENGLISH, None),
        (None, ENGLISH, None),
    ],
)
def test_a_tokenizer_that_suits_the_documents_better(own, text, better):
    found = Writing.of([Document("a", text)]).better_tokenizer(own)
    assert (found and found.name) == better
    if found:
        assert f"tokenizer={own}" in found.why
        assert f"tokenizer={better}" in found.why


@pytest.mark.parametrize(("text", "helps"), [(KOREAN, True), (JAPANESE, True), (ENGLISH, False), (FRENCH, False)])
def test_bigrams_help_where_words_change_inside_or_nothing_parts_them(text, helps):
    assert Writing.of([Document("a", text)]).reads_bigrams == helps
