import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.testset.judge.judging import MARKS, locate_quote

TEXT = (
    '가람모터스는 2011년에 "징검다리" 플랫폼을\n만들었다. 11년 뒤 “징검다리”를 고쳤다.\n'
    "The start of art: it cost 3.5 million. Art sells. It's 3 of 13,200.\n가람모터스는 2011년에 문을 열었다."
)


def quoted(quote, inside=None):
    place = locate_quote(quote, TEXT, inside or (0, len(TEXT)))
    return TEXT[slice(*place)] if place else None


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("플랫폼을 만들었다.", "플랫폼을\n만들었다."),  # another line break
        ("플랫폼을만들었다", "플랫폼을\n만들었다"),  # white space that is missing
        ("  플 랫 폼 을 ", "플랫폼을"),  # or superfluous
        ("‘징검다리’ 플랫폼을", '"징검다리" 플랫폼을'),  # other quotation marks
        ("「징검다리」를 고쳤다", "“징검다리”를 고쳤다"),
        ("It’s 3 of", "It's 3 of"),  # an apostrophe
        ('"가람모터스는 2011년에 문을 열었다."', "가람모터스는 2011년에 문을 열었다."),  # marks around the whole
        ("11년", "11년"),
        ("11", "11"),  # the one in `11년 뒤`: `2011` has none
        ("3.5 million", "3.5 million"),
        ("3", "3"),  # not that of 3.5 or of 13,200
        ("5 million", None),
        ("200", None),
        ("13", None),
        ("art", "art"),  # the word, not the end of `start`
        ("sell", None),
        ("가람모터스", "가람모터스"),  # particles follow in Korean
        (unicodedata.normalize("NFD", "플랫폼을"), "플랫폼을"),
        ("가람모터스는 2012년에", None),
        ("가람모터스는 ... 열었다", None),  # an ellipsis is not verbatim
        ("the start of art", None),  # nor is another case
        ("", None),
        (' "" ', None),
        ("\n", None),
    ],
)
def test_quotations(quote, found):
    assert quoted(quote) == found


def test_only_the_word_art_is_found():
    assert locate_quote("art", TEXT, (0, len(TEXT)))[0] == TEXT.index("art:")


def test_the_first_place_in_the_document_is_taken():
    quote, second = "가람모터스는 2011년에", TEXT.rindex("가람모터스는")
    assert locate_quote(quote, TEXT, (0, len(TEXT))) == (0, 13)
    assert locate_quote(quote, TEXT, (1, len(TEXT))) == (second, second + 13)
    assert locate_quote(quote, TEXT, (0, second + 12)) == (0, 13)
    assert locate_quote(quote, TEXT, (1, second + 12)) is None, "not a part of it"


WORDS = st.sampled_from(["가람", "모터스는", "2011년", '"', "“징검다리”", "x", "art", "art.", "3,5", "\u200b가"])


@given(st.lists(WORDS), st.lists(WORDS, min_size=1), st.lists(WORDS), st.sampled_from(["\n", " ", " \n\n"]))
def test_whatever_is_copied_is_found_again(before, copied, after, gap):
    assume(any(letter.isalnum() for letter in "".join(copied)))
    text = gap.join([*before, *copied, *after])
    start = len(gap.join([*before, ""]))
    end = start + len(gap.join(copied))
    found = locate_quote(" ".join(copied).replace("“", "'"), text, (start, end))
    assert found is not None

    def bare(part):
        return "".join('"' if letter in MARKS else letter for letter in part if not letter.isspace()).strip("\u200b")

    assert bare(text[slice(*found)]) == bare(text[start:end])
    assert start <= found[0] < found[1] <= end
