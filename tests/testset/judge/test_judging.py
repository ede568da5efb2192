"""Judging: the request for a pair, what becomes of a reply, and where quotations stand."""

import unicodedata

import pytest
from chat_server import Invocation
from hypothesis import assume, given
from hypothesis import strategies as st
from scripted_judge import Asked, asked_for

from harness.errors import BadInput
from harness.llm.chat import Reply, WrongReply
from harness.testset.judge.judging import (
    MARKS,
    SCHEMA,
    Judge,
    Verdict,
    check_conversations,
    locate_quote,
    read_judge_prompt,
    read_reply,
    reply_verdict,
)
from retrievers.base import Document, Query, Turn

TEXT = '가람1호의 첫 항해는\n1901년 봄에 있었다. 선원은 "열두 명"이었다.'
DOCUMENT = Document("d1", TEXT, "가람에 관한 글")
TALK = Query("q1", (Turn("user", "가람1호를 알아?"), Turn("assistant", "배입니다."), Turn("user", "언제 나갔지?")))


@pytest.mark.parametrize(
    ("grade", "quote", "wanted"),
    [
        (0, "", Verdict(0)),
        (0, "1901년 봄", Verdict(0)),  # nothing rests on it
        (1, "", Verdict(1)),
        (1, "1902년 여름", Verdict(1)),  # related without an answer: a wrong quotation takes nothing away
        (1, "가람1호", Verdict(1, "가람1호")),
        (2, "첫 항해는 1901년 봄에", Verdict(2, "첫 항해는\n1901년 봄에")),  # as the document has it
        (3, "선원은 「열두 명」이었다.", Verdict(3, '선원은 "열두 명"이었다.')),  # another quotation mark
        (3, "", Verdict(None, reason="no quotation")),
        (3, "첫 항해는 1901년 여름에", Verdict(None, reason="quotation not verbatim")),
        (3, "901년 봄에", Verdict(None, reason="quotation not verbatim")),  # cuts a number
        (3, "가람에 관한 글", Verdict(None, reason="quotation not verbatim")),  # of the note
    ],
)
def test_a_grade_that_says_answer_needs_its_passage(grade, quote, wanted):
    assert reply_verdict(Reply((grade, quote), ""), DOCUMENT) == wanted
    assert wanted.relevant == (wanted.grade in (2, 3))


def test_replies_are_read_by_their_schema():
    assert read_reply('{"quote": "달", "grade": 2}') == (2, "달")
    for wrong in ("grade: 3", '{"quote": "", "grade": 4}', '{"quote": "", "grade": "2"}', '{"grade": 2}'):
        with pytest.raises(WrongReply):
            read_reply(wrong)
    assert list(SCHEMA.document["properties"]) == ["quote", "grade"]  # written in this order


@pytest.mark.parametrize("language", ["ko", "en"])
def test_shipped_prompts_show_the_whole_conversation(language):
    judge = Judge("tiny", read_judge_prompt(language, None))
    assert set(judge.prompt.places) == {"query", "conversation", "document", "note"}
    assert judge.by == f"llm:tiny#{judge.prompt.sha256[:8]}"

    def seen(query, document):
        text = judge.asked(query, document).turns[0].content
        return asked_for(Invocation("", {}, {"messages": [{"content": text}]})), text

    found, text = seen(TALK, DOCUMENT)
    assert found == Asked("user: 가람1호를 알아?\nassistant: 배입니다.", "언제 나갔지?", DOCUMENT.title, TEXT)
    assert not any(one in text for one in ("q1", "d1", "{", "}"))
    bare, _ = seen(Query.of("q2", "{note} {document}"), Document("d2", TEXT))
    assert bare == Asked("", "{note} {document}", "", TEXT)


def test_conversations_need_their_place(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("{query} {document}")
    prompt = read_judge_prompt("ko", path)
    check_conversations(prompt, [Query.of("q2", "언제?")])
    with pytest.raises(BadInput, match=r"no \{conversation\}, but 1 query \(q1\)"):
        check_conversations(prompt, [TALK, Query.of("q2", "언제?")])
    check_conversations(read_judge_prompt("ko", None), [TALK])


SAID = (
    '가람모터스는 2011년에 "징검다리" 플랫폼을\n만들었다. 11년 뒤 “징검다리”를 고쳤다.\n'
    "The start of art: it cost 3.5 million. Art sells. It's 3 of 13,200.\n가람모터스는 2011년에 문을 열었다."
)


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
        ("3", "3"),  # not that of 3.5 or of 13,200
        ("art", "art"),  # the word, not the end of `start`
        ("가람모터스", "가람모터스"),  # particles follow in Korean
        (unicodedata.normalize("NFD", "플랫폼을"), "플랫폼을"),
        ("가람모터스는 2012년에", None),
        ("가람모터스는 ... 열었다", None),  # an ellipsis is not verbatim
        ("the start of art", None),  # nor is another case
        ("", None),
        (' "" ', None),
    ],
)
def test_quotations(quote, found):
    place = locate_quote(quote, SAID, (0, len(SAID)))
    assert (SAID[slice(*place)] if place else None) == found


def test_the_first_place_in_the_document_is_taken():
    quote, second = "가람모터스는 2011년에", SAID.rindex("가람모터스는")
    places = {(0, len(SAID)): (0, 13), (1, len(SAID)): (second, second + 13), (1, second + 12): None}
    assert {inside: locate_quote(quote, SAID, inside) for inside in places} == places


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
