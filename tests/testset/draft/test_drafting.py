"""The sample of documents, the requests about it, their replies, and quotes as evidence; the model is a table."""

import json
from collections import Counter

import pytest
from documents_folders import documents_folder, pieces
from hypothesis import given
from hypothesis import strategies as st

from harness.data.documents_folder import Chunk, DocumentsFolder
from harness.data.spans import Span
from harness.data.testset import KINDS
from harness.errors import BadInput
from harness.llm.chat import Reply
from harness.llm.structured import WrongReply
from harness.testset.draft.drafting import (
    DraftPlan,
    ReplyItem,
    draft_queries,
    draw_ids,
    located,
    read_as,
    sample,
    tasks,
)
from harness.testset.draft.drafts import picked, read_prompts
from retrievers.base import Document, Query, Turn

#       0         1         2         3
TEXT = "다온의 첫 가마는 강진에 있다.\n다온은 시월에 그릇을 바꾼다.\n다온의 값은 매출 전체의 절반이다."


class Table:
    """Replies to any prompt with the same text; a text that is refused is a problem."""

    def __init__(self, *items):
        self.text = json.dumps({"items": items}, ensure_ascii=False)
        self.labels = []

    def ask(self, prompts, read, label):
        self.labels.append(label)
        try:
            return [Reply(read(self.text), self.text)] * len(prompts)
        except WrongReply as error:
            return [Reply(None, self.text, str(error))] * len(prompts)


def plan(*kinds, examples=()):
    return DraftPlan(kinds, 2, "ko", 0, read_prompts(kinds, "ko", dict.fromkeys(KINDS)), examples)


@pytest.fixture
def folder(tmp_path):
    """One file, one document of all of it."""
    return DocumentsFolder(documents_folder(tmp_path / "docs", {"다온": TEXT}, lambda text: [(0, len(text))]))


def drafted(folder, kind, *items):
    chosen = plan(kind)
    return draft_queries(Table(*items), tasks(chosen, sample(folder, 0, None)), chosen, folder)


def answered(*quotes):
    return {"question": "가마는 어디에 있나요?", "answer": "강진에 있습니다.", "evidence": list(quotes)}


def test_quotes_become_evidence_each_once_and_only_if_all_are_there(folder):
    [found] = drafted(folder, "fact", answered("가마는 강진에 있다", "시월에", "시월에")).drafts
    assert [one.exact for one in found.evidence] == ["가마는 강진에 있다", "시월에"]
    assert found.doc_id == next(iter(folder.chunks())).document.doc_id
    found = drafted(folder, "search", answered(), answered("강진에 있다", "부산에 있다"))
    assert [(one.reason, one.detail, one.draft.question) for one in found.rejections] == [
        ("evidence not verbatim", detail, "가마는 어디에 있나요?")
        for detail in ("no passage is quoted", "the document lacks '부산에 있다'")
    ]
    assert not found.drafts


@pytest.mark.parametrize(
    ("missing", "reason", "flagged"),
    [
        ("창업자의 고향", None, 0),
        ("매출 전체의 절반", "answered by the texts", 0),
        ("전체의  매출 절반", None, 1),  # all of its words stand in the last line, in another order
        ("매출", None, 1),  # a single word proves nothing
    ],
)
def test_questions_without_an_answer(folder, missing, reason, flagged):
    found = drafted(folder, "unanswerable", {"question": "다온의 매출은?", "missing": missing})
    assert [one.reason for one in found.rejections] == ([reason] if reason else [])
    for one in found.drafts:
        first, *others = one.flags
        assert first == f"check that no document has the answer: {missing}"
        assert others == ["may have the answer: 다온의 값은 매출 전체의 절반이다."] * flagged
        assert one.evidence == ()


def test_the_order_is_that_of_the_sample_whatever_the_order_of_asking(tmp_path):
    path = documents_folder(tmp_path / "docs", {"a": TEXT, "b": TEXT[::-1]}, lambda text: pieces(text, 11))
    folder, chosen = DocumentsFolder(path), plan("fact", "none")
    chunks = sample(folder, 0, 3)
    table = Table({"question": "안녕"})
    found = draft_queries(table, tasks(chosen, chunks), chosen, folder)
    assert table.labels == ["drafting fact", "drafting none"]
    assert [one.reason for one in found.rejections] == ["reply of the wrong shape"] * 3
    assert [one.draft.doc_id for one in found.rejections] == [chunk.document.doc_id for chunk in chunks]
    assert len(found.drafts) == 3  # of the kind none
    assert sample(folder, 0, 2) == chunks[:2]


def test_a_prompt_has_all_that_it_is_about_and_a_text_needs_its_file(folder):
    examples = (Query.of("1", "가마 온도"),)
    chosen = plan("fact", "none", examples=examples)
    fact, none = tasks(chosen, sample(folder, 0, None))
    assert all(text in fact.prompt.turns[0].content for text in ("다온\n", TEXT, "- 가마 온도", "최대 2개"))
    assert none.chunk is None
    assert "- 가마 온도" in none.prompt.turns[0].content
    assert fact.prompt.schema.name == "fact_queries"
    (folder.path / "files.jsonl").write_text('{"path": "x", "text": "0"}\n')
    with pytest.raises(BadInput, match="which no line of files"):
        sample(folder, 0, None)


FACT = {"question": " 달은 무엇인가? ", "answer": "달은 위성이다.", "evidence": ["위성"]}
USER, ASSISTANT = {"role": "user", "content": "달은?"}, {"role": "assistant", "content": "위성이다."}


def talk(*turns):
    return {"turns": list(turns), "answer": "그렇다.", "evidence": ["위성"]}


def reply(*items):
    return json.dumps({"items": items})


def test_replies_are_read():
    asked = ReplyItem((Turn("user", "달은 무엇인가?"),), "달은 위성이다.", ("위성",))
    assert read_as("search")(reply(FACT, FACT)) == [asked, asked]
    assert read_as("unanswerable")(reply({"question": "q", "missing": "m"})) == [
        ReplyItem((Turn("user", "q"),), missing="m")
    ]
    [found] = read_as("conversation")(reply(talk(USER, ASSISTANT, USER, ASSISTANT, USER)))
    assert [turn.role for turn in found.turns] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("fact", "no JSON"),
        ("fact", reply(FACT | {"answer": " "})),
        ("fact", reply(FACT | {"evidence": "위성"})),
        ("unanswerable", reply({"question": "q", "missing": ""})),
        ("conversation", reply(talk())),
        ("conversation", reply(talk(USER))),
        ("conversation", reply(talk(USER, USER, USER))),
        ("conversation", reply(talk(USER, ASSISTANT, USER, ASSISTANT))),
        ("conversation", reply(talk(*[USER, ASSISTANT] * 3, USER))),
        ("conversation", reply(talk(USER, ASSISTANT | {"content": " "}, USER))),
    ],
)
def test_wrong_shapes(kind, text):
    with pytest.raises(WrongReply):
        read_as(kind)(text)


#       0         1         2         3
#       0123456789012345678901234567890
TWICE = "달은 위성이다. 물은 끓는다.\n해는 별이다. 달은 위성이다."
CHUNK = Chunk(Document("d1", "달은 위성이다."), (Span("t", 0, 8), Span("t", 25, 33)))


def test_a_quote_is_evidence_at_each_place_of_its_document():
    first, second = located("위성이다", CHUNK, {"t": TWICE}.__getitem__)
    assert (first.span, first.exact, first.prefix, first.suffix) == (Span("t", 3, 7), "위성이다", "달은 ", TWICE[7:])
    assert (second.span, second.prefix, second.suffix) == (Span("t", 28, 32), TWICE[:28], ".")
    for lacking in ("", " ", "위성이었다", "물은 끓는다", "달은 위성이다. 물"):
        assert located(lacking, CHUNK, {"t": TWICE}.__getitem__) == ()
    with pytest.raises(BadInput, match="d1 is not the text at its span"):
        located("달은", CHUNK, {"t": "해는 위성이다." + TWICE}.__getitem__)


FILES = {f"{file}{number}": file for file, count in {"a": 60, "b": 30, "c": 10}.items() for number in range(count)}


def test_every_file_comes_first_and_then_has_its_share_and_values_are_picked_by_their_key():
    order = draw_ids(FILES, 0, None)
    assert sorted(order) == sorted(FILES)
    assert set(draw_ids(FILES, 1, 10)) != set(order[:10]), "another seed draws others"
    assert {FILES[one] for one in order[:3]} == {"a", "b", "c"}
    for limit in (10, 20, 50):  # the share of a file, rounded up, as each has given one before
        counts = Counter(FILES[one] for one in order[:limit])
        for file, total in {"a": 60, "b": 30, "c": 10}.items():
            assert abs(counts[file] - limit * total / 100) <= 1, (limit, counts)
    values = [str(number) for number in range(20)]
    assert picked(values, 5, 0, "fact") == picked(reversed(values), 5, 0, "fact")
    assert picked(values, 5, 0, "fact") != picked(values, 5, 0, "search")
    assert picked(values, 5, "x")[:3] == picked(values, 3, "x")


@given(
    st.dictionaries(st.text("ab01", min_size=1), st.sampled_from("xyz")),
    st.sets(st.text("cd", min_size=1)),
    st.integers(0, 12),
)
def test_an_added_file_changes_no_order_within_the_others(files, added, limit):
    before = draw_ids(files, 0, None)
    after = draw_ids(files | dict.fromkeys(added, "new"), 0, None)
    for name in "xyz":
        assert [one for one in after if files.get(one) == name] == [one for one in before if files[one] == name]
    assert len(draw_ids(files, 0, limit)) == min(limit, len(files))
