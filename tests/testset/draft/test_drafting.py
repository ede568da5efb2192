"""What is asked about a sample of documents, and what replies amount to; the model is a table."""

import json

import pytest
from documents_folders import documents_folder, pieces

from harness.data.documents_folder import DocumentsFolder
from harness.errors import BadInput
from harness.llm.chat import Reply
from harness.llm.structured import WrongReply
from harness.testset.draft.drafting import DraftPlan, draft_queries, sample, tasks
from harness.testset.draft.drafts import KINDS, read_prompts
from retrievers.base import Query

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


def plan(*kinds, questions=2, examples=()):
    return DraftPlan(kinds, questions, "ko", 0, read_prompts(kinds, "ko", dict.fromkeys(KINDS)), examples)


@pytest.fixture
def folder(tmp_path):
    """One file, one document of all of it."""
    return DocumentsFolder(documents_folder(tmp_path / "docs", {"다온": TEXT}, lambda text: [(0, len(text))]))


def drafted(folder, kind, *items, questions=2):
    chosen = plan(kind, questions=questions)
    return draft_queries(Table(*items), tasks(chosen, sample(folder, 0, None)), chosen, folder)


def answered(*quotes):
    return {"question": "가마는 어디에 있나요?", "answer": "강진에 있습니다.", "evidence": list(quotes)}


def test_quotes_become_evidence_each_once(folder):
    [found] = drafted(folder, "fact", answered("가마는 강진에 있다", "시월에", "시월에")).drafts
    assert [one.exact for one in found.evidence] == ["가마는 강진에 있다", "시월에"]
    assert found.doc_id == next(iter(folder.chunks())).document.doc_id


@pytest.mark.parametrize(
    ("quotes", "detail"),
    [
        ([], "no passage is quoted"),
        (["강진에 있다", "부산에 있다"], "the document lacks '부산에 있다'"),  # one wrong quote makes all doubtful
    ],
)
def test_evidence_that_is_not_there(folder, quotes, detail):
    found = drafted(folder, "search", answered(*quotes))
    assert [(one.reason, one.detail) for one in found.rejections] == [("evidence not verbatim", detail)]
    assert found.rejections[0].draft.question == "가마는 어디에 있나요?"
    assert not found.drafts


def test_what_is_more_than_asked_for_is_rejected_and_nothing_is_no_mistake(folder):
    found = drafted(folder, "fact", *[answered("강진에 있다")] * 3)
    assert len(found.drafts) == 2
    assert [one.reason for one in found.rejections] == ["more than asked for"]
    assert drafted(folder, "fact").empty == {"fact": 1}


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


def test_a_prompt_has_all_that_it_is_about(folder):
    examples = (Query.of("1", "가마 온도"),)
    chosen = plan("fact", "none", examples=examples)
    fact, none = tasks(chosen, sample(folder, 0, None))
    assert all(text in fact.prompt.turns[0].content for text in ("다온\n", TEXT, "- 가마 온도", "최대 2개"))
    assert none.chunk is None
    assert "- 가마 온도" in none.prompt.turns[0].content
    assert fact.prompt.schema.name == "fact_queries"


def test_a_text_without_a_file_is_a_damaged_folder(folder):
    (folder.path / "files.jsonl").write_text('{"path": "x", "text": "0"}\n')
    with pytest.raises(BadInput, match="which no line of files"):
        sample(folder, 0, None)
