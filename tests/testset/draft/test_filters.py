"""The reasons to reject a draft."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.commands import FilterKeys
from harness.data.spans import Evidence, Span
from harness.data.testset import KINDS
from harness.testset.draft import filters
from harness.testset.draft.drafts import Draft
from harness.testset.draft.filters import BEGINS_WITH_REFERENCE, NO_HELP, POINTS_AT_TEXT, asks_nothing
from retrievers.base import Document, Query, Turn

KOREAN = Document(
    "ko",
    "한빛전기는 2004년에 대전에서 세워진 전기차 제조사임. 본사는 대전 유성구에 있음.\n"
    "한빛전기의 대표적인 전기차 모델로는 하늘, 바다, 노을이 있으며 "
    "최근에는 자율 주행 기술 개발에 많은 투자를 하고 있음. "
    "모든 차량은 공용 플랫폼을 기반으로 하며, CEO는 정가람이 맡고 있음.",
)
ENGLISH = Document(
    "en",
    "Hanbit Electric was founded in 2004 in Daejeon. Its best known models are Haneul and Bada. The company invests "
    "heavily in the development of autonomous driving, and its chief executive is Garam Jeong.",
)
DOCUMENTS = {one.doc_id: one for one in (KOREAN, ENGLISH)}
EVIDENCE = (Evidence(Span("0" * 20, 0, 5), "한빛전기는"),)


DEFAULTS = FilterKeys(copied=0.7, duplicate=0.85)


def sift(drafts, documents, chosen=DEFAULTS, **more):
    return filters.sift(drafts, documents, chosen, **more)


def draft(question, answer="예전부터 알려진 사실은 따로 있습니다.", kind="fact", doc_id="ko", **given):
    turns = question if isinstance(question, tuple) else (question,)
    said = tuple(Turn("assistant" if number % 2 else "user", text) for number, text in enumerate(turns))
    evidence = EVIDENCE if kind in filters.ANSWERED else ()
    return Draft(kind, said, answer, given.pop("evidence", evidence), "" if kind == "none" else doc_id, **given)


def reasons(*drafts, **given):
    _, rejected = sift(drafts, DOCUMENTS, **given)
    return [one.reason for one in rejected]


# Natural questions whose answers repeat them in a whole sentence. The second repeats a run of nine morphemes of the
# document, the third one of ten.
GOOD = [
    draft("한빛전기는 언제 설립되었나요?", "한빛전기는 2004년에 설립되었습니다."),
    draft("한빛전기의 대표적인 전기차 모델은 무엇이 있나요?", "전기차 모델로는 하늘, 바다, 노을이 있습니다."),
    draft("한빛전기는 어떤 기술 개발에 많은 투자를 하고 있나요?", "한빛전기는 자율 주행에 많은 투자를 하고 있습니다."),
    draft("한빛전기의 CEO는 누구인가요?", "한빛전기의 CEO는 정가람입니다."),
    draft("한빛전기 CEO", kind="search"),
    draft("자율 주행 기술 개발 회사", kind="search"),  # a term of four morphemes is not copied
    draft("who runs hanbit electric?", "Garam Jeong leads it.", "fact", "en"),
    draft("Garam Jeong", "정가람은 최고 경영자다.", "search", "en"),
    draft("전기차 살 때 조심할 점 알려줘", "", "unanswerable"),
    draft("오늘 너무 힘들다.", "", "none"),  # what needs no retrieval may be a remark
    draft("고래가 사는 바다", "", "unanswerable"),  # a noun that ends like a verb
    draft("한빛전기가 어떤 회사인지 궁금합니다.", "한빛전기는 전기차 제조사입니다."),
    draft("많이 글을 쓰는 사람은 누구야?", "", "unanswerable"),
    draft("이 글로벌 기업의 순위", "", "unanswerable"),
    draft("2004년 대전에 세워진 이 회사의 이름은?", "한빛전기입니다."),  # the question says which
    draft(
        ("한빛전기 알아?", "네.", "이 회사는 언제 설립됐어?"), "2004년입니다.", "conversation"
    ),  # a later turn may refer
]


@pytest.mark.parametrize("one", GOOD, ids=lambda one: one.question)
def test_real_ways_to_ask_pass(one):
    assert sift([one], DOCUMENTS) == ([one], [])


REJECTED = [
    # The whole sentence, and the sentence with the answer replaced.
    ("copied", draft("최근에는 자율 주행 기술 개발에 많은 투자를 하고 있나요?", "네, 그 밖에도 전지에 투자합니다.")),
    (
        "copied",
        draft("한빛전기의 대표적인 전기차 모델로는 하늘, 바다, 노을이 있으며 어떤 기술 개발에 많은 투자를 하고 있음?"),
    ),
    ("copied", draft("The company invests heavily in the development of what?", "Self driving.", doc_id="en")),
    ("language", draft("When was the company Hanbit founded?", "It was founded in 2004.")),
    ("language", draft("이곳은 무엇으로 유명한 회사인가요?", "자율 주행", doc_id="en")),
    ("deictic", draft("위 글에서 한빛전기의 본사는 어디인가요?")),
    ("deictic", draft("제시된 구절에 따르면 회사는 언제 설립되었나요?")),
    ("deictic", draft("이 회사는 언제 설립되었나요?")),
    ("deictic", draft("그는 어느 회사의 대표인가요?")),
    ("deictic", draft("According to the passage, who leads Hanbit?", doc_id="en")),
    ("deictic", draft("위 내용을 요약해줘", "", "none")),
    ("deictic", draft(("한빛전기 알아?", "네, 압니다.", "본문에 나오는 대표는 누구야?"), kind="conversation")),
    ("evidence", draft("한빛전기의 직원은 몇 명인가요?", evidence=())),
    ("evidence", draft("한빛전기 직원 수", kind="search", evidence=())),
    ("answer", draft("한빛전기는 2004년에 설립되었나요?", "네, 2004년에 설립되었습니다.")),
    ("answer", draft("한빛전기의 대표 정가람은 누구인가요?", "한빛전기의 대표는 정가람입니다.")),
    ("answer", draft("Was Hanbit Electric founded in 2004?", "Yes, it was founded in 2004.", doc_id="en")),
    ("answer", draft(("한빛 알아?", "2004년에 설립됐어요.", "언제 설립됐어?"), "2004년에 설립됐어요.", "conversation")),
    ("answer", draft("한빛전기는 언제 설립되었나요?", " ")),
    ("answer", draft("한빛전기는 언제 설립되었나요?", "한빛전기는 언제 설립되었나요")),
    ("no question", draft("한빛전기는 2004년에 설립되었습니다.", "2004년입니다.")),
    ("no question", draft("질문 없음", "없음")),
    ("no question", draft("No question.", "None", doc_id="en")),
    ("length", draft("?!")),
    ("length", draft("왜?")),
    ("length", draft("한빛전기는 " * 200 + "언제 설립되었나요?")),
    ("form", draft("   ")),
    ("form", draft(("한빛전기는 언제 설립되었나요?",), kind="conversation")),
    ("form", draft(("한빛전기는?", "2004년입니다."), kind="conversation")),
    ("form", draft(("한빛전기는?", " ", "대표는?"), kind="conversation")),
]


@pytest.mark.parametrize(("reason", "one"), REJECTED, ids=lambda one: getattr(one, "question", one)[:40])
def test_rejections(reason, one):
    _, (rejection,) = sift([one], DOCUMENTS)
    assert (rejection.reason, rejection.draft) == (reason, one)
    assert rejection.detail


def test_thresholds_and_details():
    lifted, deictic = REJECTED[0][1], draft("위 글에서 본사는 어디인가요?")
    assert [one.detail for one in sift([lifted, deictic, draft("왜?")], DOCUMENTS)[1]] == [
        # 16 morphemes have 13 grams; only the one that ends in 나요 does not stand there.
        "92 % of its 4-grams of morphemes appear in the document",
        "'위 글' points at something that the user does not see",
        "shorter than 3 letters or digits",
    ]
    assert reasons(lifted, chosen=replace(DEFAULTS, copied=1.0)) == []


TITLED = replace(KOREAN, title="이 문서는 '새롬전기'에 대한 정보")


@pytest.mark.parametrize(
    ("turns", "shown", "flagged"),
    [
        (("한빛전기 알아?", "네.", "본사는 어디야?"), KOREAN, False),  # needs the name
        (("한빛전기 알아?", "네.", "그 회사 본사는 어디야?"), KOREAN, False),
        (("한빛전기 알아?", "네.", "한빛전기 본사는 어디야?"), KOREAN, True),  # names it again
        (("요즘 너무 덥다", "네.", "한빛전기 본사는 어디야?"), KOREAN, True),  # the first turn tells nothing
        (("전기차 좋아해?", "네.", "그럼 한빛전기 본사는 어디야?"), KOREAN, False),  # lenient: it leads back
        (("새롬전기 알아?", "네.", "본사는 어디야?"), KOREAN, True),
        (("새롬전기 알아?", "네.", "본사는 어디야?"), TITLED, False),
    ],
)
def test_a_conversation_whose_earlier_turns_do_not_help_is_flagged(turns, shown, flagged):
    (accepted,), rejected = sift([draft(turns, "대전 유성구입니다.", "conversation")], {"ko": shown})
    assert not rejected
    assert accepted.flags == ((NO_HELP,) if flagged else ())


SAME = [
    # the same, but for a particle, white space, an ending or the order of words
    ("한빛전기의 본사는 어디에 있나요?", "한빛전기 본사는 어디에 있습니까?", True),
    ("한빛전기는 언제 설립되었나요?", "언제 한빛전기는 설립되었나요", True),
    ("한빛전기 CEO", "한빛전기 ceo?", True),
    # another name, another number, another question word, another thing
    ("한빛전기의 본사는 어디에 있나요?", "새롬전기의 본사는 어디에 있나요?", False),
    ("하늘 1톤의 배터리 용량은 얼마인가요?", "하늘 2톤의 배터리 용량은 얼마인가요?", False),
    ("한빛전기는 언제 설립되었나요?", "한빛전기는 어디에 설립되었나요?", False),
    ("한빛전기의 매출은 얼마인가요?", "한빛전기의 영업이익은 얼마인가요?", False),
    ("When was Hanbit founded?", "Where was Hanbit founded?", False),
]


@pytest.mark.parametrize(("one", "other", "same"), SAME)
def test_of_drafts_that_ask_the_same_the_first_stays(one, other, same):
    drafts = [draft(text, "", "unanswerable") for text in (one, other)]
    accepted, rejected = sift(drafts, DOCUMENTS, examples=[Query.of("e", "who is it")])  # both languages
    assert accepted == drafts[: 2 - same]
    assert [(one.reason, drafts[0].query_id in one.detail) for one in rejected] == [("duplicate", True)] * same


def test_neither_rejected_nor_unanswerable_drafts_take_the_place_of_their_duplicate():
    question, answer = GOOD[0].question, GOOD[0].answer
    others = [draft(question, "", "unanswerable"), draft(question, answer, evidence=())]
    assert sift([*others, GOOD[0]], DOCUMENTS)[0] == [GOOD[0]]


def test_duplicates_are_those_that_comparing_all_pairs_finds():
    """The rarest words of each draft leave out no pair."""
    words = ["전기차", "배터리", "공장", "매출", "직원", "정비소", "충전소", "보증", "수출", "사장", "언제", "어디"]
    generator = random.Random(5)
    asked = [" ".join(generator.sample(words, generator.randrange(2, 9))) for _ in range(300)]
    drafts = [draft(text, "", "unanswerable") for text in asked]
    found = filters._Terms.of(drafts, [KOREAN] * len(drafts), None)

    def same(text, other):
        one, two = found.words[text], found.words[other]
        return found.names[text] == found.names[other] and len(one & two) >= least * len(one | two) - 1e-9

    for least in (0.6, 0.85, 1.0):
        kept = []
        for text in asked:
            kept += [] if any(same(text, other) for other in kept) else [text]
        accepted, _ = sift(drafts, DOCUMENTS, chosen=FilterKeys(copied=1.0, duplicate=least))
        assert [one.question for one in accepted] == kept


def test_examples_allow_their_languages():
    english, plain = draft("When was the Hanbit company founded?", "In 2004."), draft("Write me a poem", "", "none")
    korean, foreign = Query.of("k", "전기차가 뭐야"), [Query.of(number, "what is an electric car") for number in "12"]
    assert reasons(english) == ["language"]
    assert reasons(english, examples=[*foreign, *[korean] * 5]) == []
    assert reasons(english, examples=[*foreign[:1], *[korean] * 19]) == ["language"], "one of twenty is a slip"
    # Without a document, the languages of all documents and examples are allowed.
    assert reasons(plain) == []
    assert sift([plain, GOOD[0]], {"ko": KOREAN})[1][0].reason == "language"


@pytest.mark.parametrize(
    ("check", "text", "holds"),
    [
        (POINTS_AT_TEXT.search, "in the context of deep learning, what is attention?", False),
        (POINTS_AT_TEXT.search, "how to change colors in the text editor", False),
        (POINTS_AT_TEXT.search, "what is described in this article", True),
        (POINTS_AT_TEXT.search, "Based on the given context, who won?", True),
        (POINTS_AT_TEXT.search, "위 내용물이 역류하는 이유는?", False),  # of the stomach
        (POINTS_AT_TEXT.search, "다음 중 포유류가 아닌 것은?", False),
        (POINTS_AT_TEXT.search, "앞서 언급된 사업의 예산은?", True),
        (POINTS_AT_TEXT.search, "지문에 나오는 인물은?", True),
        (POINTS_AT_TEXT.search, "지문 인식 기술의 원리는?", False),  # fingerprints
        (BEGINS_WITH_REFERENCE.match, "ITS 시스템이란?", False),
        (BEGINS_WITH_REFERENCE.match, "is it possible to see the aurora in Korea?", False),
        (BEGINS_WITH_REFERENCE.match, "Is this company profitable?", True),
        (BEGINS_WITH_REFERENCE.match, "Who is their founder?", True),
        (BEGINS_WITH_REFERENCE.match, "이란의 수도는?", False),
        (BEGINS_WITH_REFERENCE.match, "그리스의 수도는?", False),
        (BEGINS_WITH_REFERENCE.match, "이 나라의 수도는?", True),
        (BEGINS_WITH_REFERENCE.match, "동 회사의 대표는?", True),
        (BEGINS_WITH_REFERENCE.match, "이 기술자의 이름은?", False),
        (asks_nothing, "판다", False),
        (asks_nothing, "어떻게 되는지 알고 싶습니다.", False),
        (asks_nothing, "회사는 서울에 있다.", True),
        (asks_nothing, "N/A", True),
        (asks_nothing, "해당 없음", True),
    ],
)
def test_words_that_show_what_a_question_lacks(check, text, holds):
    assert bool(check(text)) == holds


@pytest.mark.slow
def test_real_questions_pass(real_data):
    """People wrote KorQuAD's with the text before them: at most 5 of 100 are rejected, none for language or form."""
    articles = json.loads((real_data / "korquad" / "KorQuAD_v1.0_dev.json").read_text("utf-8"))["data"]
    paragraphs = [one for article in articles for one in article["paragraphs"]]
    documents = {str(n): Document(str(n), one["context"]) for n, one in enumerate(paragraphs)}
    asked = [(one, str(n)) for n, paragraph in enumerate(paragraphs) for one in paragraph["qas"]]
    drafts = [
        Draft("fact", (Turn("user", one["question"]),), one["answers"][0]["text"], EVIDENCE, doc_id)
        for one, doc_id in random.Random(0).sample(asked, 200)
    ]
    found = [one.reason for one in sift(drafts, documents)[1]]
    assert len(found) <= 0.05 * len(drafts)
    assert set(found) <= {"copied", "answer", "deictic", "duplicate"}


@given(st.lists(st.text(max_size=40), min_size=1, max_size=3), st.text(max_size=40), st.sampled_from(KINDS))
@settings(max_examples=40)
def test_any_text_passes_or_is_rejected(turns, answer, kind):
    one = draft(tuple(turns), answer, kind)
    accepted, rejected = sift([one], DOCUMENTS)
    assert len(accepted) + len(rejected) == 1
    assert all(rejection.detail for rejection in rejected)
