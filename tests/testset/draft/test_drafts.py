"""The folder of a test set, examples of style, and prompts."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from documents_folders import documents_folder, folder_of_testset, pieces, query, quoted

from harness.data.documents_folder import DocumentsFolder
from harness.data.spans import Evidence, Span
from harness.data.testset import KINDS, read_queries
from harness.errors import BadInput
from harness.llm.structured import PromptText
from harness.testset.draft import drafts
from harness.testset.draft.drafts import Draft, Rejection, TestsetFolder, example_lines, read_examples
from retrievers.base import Query, Turn

TEXT = "0123456789abcdef0123"
EVIDENCE = Evidence(Span(TEXT, 3, 5), "위성", "달은 ", "이다.")
FACT = Draft("fact", (Turn("user", "달은?"),), "위성이다.", (EVIDENCE,), "d1", ("a flag",))
GREETING = Draft("none", (Turn("user", "안녕"),))
LOST = Rejection(replace(FACT, evidence=()), "evidence not verbatim", "the document lacks '위 성'")
NOTHING = Rejection(Draft("search", (), doc_id="d2"), "reply of the wrong shape", "no JSON")
SETTINGS = {"llm": {"model": "tiny"}, "seed": 0}


MADE = {"shown": 2, "documents": {"path": "../docs"}}


@pytest.fixture
def written(tmp_path):
    folder = TestsetFolder(tmp_path / "ts", SETTINGS)
    folder.check(2)
    folder.write([FACT, GREETING], [LOST, NOTHING], MADE)
    return folder


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written_is_read_as_a_test_set_and_written_again_alike(written):
    first, second = read_queries(written.path)
    assert (first.query.query_id, first.query.turns, first.evidence) == (FACT.query_id, FACT.turns, FACT.evidence)
    assert (first.kind, second.kind, second.evidence) == ("fact", "none", ())
    kept, rejected = (rows(written.path / name) for name in ("queries.jsonl", "rejected.jsonl"))
    assert [(row["needs"], row["answer"], row["docid"], row["flags"]) for row in kept] == [
        (True, "위성이다.", "d1", ["a flag"]), (False, "", "", [])
    ]  # fmt: skip
    assert [(row["reason"], row["kind"], row["docid"], len(row["msg"])) for row in rejected] == [
        ("evidence not verbatim", "fact", "d1", 1), ("reply of the wrong shape", "search", "d2", 0)
    ]  # fmt: skip
    before = {path.name: path.read_bytes() for path in written.path.iterdir()}
    assert sorted(before) == ["queries.jsonl", "rejected.jsonl", "testset.json"]
    written.check(2)
    written.check(7)
    written.write([FACT, GREETING], [LOST, NOTHING], MADE)
    assert {path.name: path.read_bytes() for path in written.path.iterdir()} == before


@pytest.mark.parametrize(
    ("settings", "shown", "message"),
    [
        ({"seed": 1}, 2, "was drafted with seed=0, not 1"),
        ({"llm": {"model": "large"}}, 2, "was drafted with llm.model=tiny, not large"),
        ({"documents": "ab"}, 2, "was drafted from other documents"),
        ({}, 1, "was drafted from 2 documents, but this command uses only 1"),
    ],
)
def test_other_settings_are_refused(written, settings, shown, message):
    with pytest.raises(BadInput, match=message):
        TestsetFolder(written.path, SETTINGS | settings).check(shown)


@pytest.mark.parametrize("name", ["queries.jsonl", "rejected.jsonl"])
def test_a_persons_work_is_not_overwritten(written, name):
    path = written.path / name
    path.write_text(path.read_text().replace("달", "해"))
    with pytest.raises(BadInput, match=f"{name} has been edited"):
        written.check(2)


FOLDERS = {  # the files in a folder, and what is said of it
    "notes": ({"notes.txt": "x"}, "the folder holds other files"),
    "own": ({"testset.json": '{"version": 1}', "queries.jsonl": ""}, "were not drafted by a language model"),
    "broken": ({"testset.json": "{"}, "broken JSON"),
    "killed": ({".ab.unfinished": ""}, None),  # as good as none
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_hold_something_else(tmp_path, name):
    files, message = FOLDERS[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    folder = TestsetFolder(tmp_path, SETTINGS)
    if message is None:
        folder.check(1)
        return
    with pytest.raises(BadInput, match=message):
        folder.check(1)


@pytest.mark.parametrize(("calls", "larger"), [(1, False), (2, True), (3, True), (4, False)])
def test_a_process_that_is_killed_while_writing_leaves_what_the_next_goes_on_with(tmp_path, monkeypatch, calls, larger):
    folder = TestsetFolder(tmp_path / "ts", SETTINGS)
    if larger:
        folder.write([FACT], [LOST], {"shown": 1})
    written = []

    def write(path, text):
        written.append(path)
        if len(written) == calls:
            raise KeyboardInterrupt
        path.write_text(text)

    with monkeypatch.context() as patch:
        patch.setattr("harness.testset.draft.drafts.write_text", write)
        with pytest.raises(KeyboardInterrupt):
            folder.write([FACT, GREETING], [LOST, NOTHING], {"shown": 2})
    folder.check(2)
    folder.write([FACT, GREETING], [LOST, NOTHING], {"shown": 2})
    folder.check(2)
    assert len(read_queries(folder.path)) == 2
    assert len(list(folder.path.iterdir())) == 3


def row(query_id, *texts, **given):
    turns = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]
    return {"eval_id": query_id, "msg": turns, **given}


def examples(tmp_path, *rows):
    (tmp_path / "real").write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in rows))
    return read_examples(tmp_path / "real")


def test_examples_are_lines_or_rows_of_the_contest(tmp_path):
    found = examples(tmp_path, "달은 왜 둥글어", "", "  끓는점 물 ", "")
    assert [query.text for query in found.queries] == ["달은 왜 둥글어", "끓는점 물"]
    assert found.labels([], None) == {}
    found = examples(tmp_path, row(1, "달은?", "위성.", "크기는?"), row(2, "물은\n몇 도에?"))
    assert example_lines(found.queries, "conversation") == "- user: 달은? / assistant: 위성. / user: 크기는?"
    assert sorted(example_lines(found.queries, "fact").split("\n")) == ["- 물은 몇 도에?", "- 크기는?"]
    labels = {"1": ["a", "b"], "x": {"c": 2}, "3": []}
    found = examples(tmp_path, *(row(query_id, "달은?", relevant=ids) for query_id, ids in labels.items()))
    assert {query_id: [*ids] for query_id, ids in found.labels([], None).items()} == {
        "1": ["a", "b"],
        "x": ["c"],
        "3": [],
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no rows"),
        ([{"eval_id": 1}], "msg is missing"),
        ([row(1, "달은?"), row(2, "달은?", relevant=[])], "real:1: relevant is missing"),
    ],
)
def test_examples_that_are_refused(tmp_path, given, message):
    with pytest.raises(BadInput, match=f"examples.*{message}"):
        examples(tmp_path, *given)


def test_a_few_examples_are_drawn_for_each_prompt():
    found = [Query.of(str(number), f"query {number}") for number in range(40)]
    assert example_lines([], "fact", 0) == ""
    some = example_lines(found, "fact", 0, "a")
    assert len(some.split("\n")) == 5
    assert some == example_lines(found[::-1], "fact", 0, "a") != example_lines(found, "fact", 0, "b")
    assert some == example_lines(found, "conversation", 0, "a"), "there are no conversations"


def test_a_test_set_brings_its_labels(tmp_path):
    text = "해달은 조개를 먹는다. 문어는 다리가 여덟이다."
    docs = documents_folder(tmp_path / "docs", {"sea.txt": text}, lambda text: pieces(text, 13))
    rows = [query("q1", "해달의 먹이는?", [quoted(text, "조개를 먹는다")]), query("q2", "안녕")]
    found = read_examples(folder_of_testset(tmp_path / "real", rows))
    folder = DocumentsFolder(docs)
    chunks = list(folder.chunks())
    labels = found.labels(chunks, folder)
    assert {query_id: list(ids) for query_id, ids in labels.items()} == {"q1": [chunks[0].document.doc_id], "q2": []}


NONE_GIVEN = dict.fromkeys(KINDS)
VALUES = {"questions": "2", "text": "달은 지구를 돈다.", "note": "이 문서는 '달'에 대한 정보이다.", "examples": "- 달?",
          "situation": "인사"}  # fmt: skip


@pytest.mark.parametrize("language", ["ko", "en"])
@pytest.mark.parametrize("kind", KINDS)
def test_shipped_prompts_have_places_for_all_that_is_filled_in(language, kind):
    prompt = drafts.read_prompts([kind], language, NONE_GIVEN)[kind]
    needed, optional = drafts.ABOUT_NONE if kind == "none" else drafts.ABOUT_A_DOCUMENT
    assert set(prompt.places) == {*needed, *optional}
    text = drafts.fill_prompt(prompt, VALUES)
    assert all(VALUES[name] in text for name in prompt.places)
    assert "{" not in text
    bare = drafts.fill_prompt(prompt, VALUES | {"note": "", "examples": ""})
    assert VALUES["note"] not in bare
    assert "\n\n\n" not in bare
    assert bare.count("\n\n") == text.count("\n\n") - (1 if kind == "none" else 2)


def test_a_paragraph_is_left_out_only_if_all_of_its_places_are_empty():
    prompt = PromptText('{note} {text}\n\nLike: {examples}\n\nJSON: {"a": {1}}', ("note", "text", "examples"))
    found = drafts.fill_prompt(prompt, {"note": "", "text": "a {text}\n\nb", "examples": ""})
    assert found == ' a {text}\n\nb\n\nJSON: {"a": {1}}'


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("달은 지구를 돈다", "ko"),
        ("The moon orbits the earth", "en"),
        ("나루 1톤 EV (Naru One Ton Electric Truck)", "ko"),  # 3 of 29 letters are Hangul
        ("The word 달 is Korean for the moon, and nothing else", "en"),  # 1 of 40
        ("123", "en"),
    ],
)
def test_the_language_of_a_text(text, language):
    assert drafts.prompt_language("auto", [text]) == language
    assert drafts.prompt_language("ko", [text]) == "ko"


@pytest.mark.parametrize("language", ["ko", "en"])
def test_situations_are_different_and_their_kinds_come_in_turn(language):
    found = drafts.situations(language, 0)
    assert len(found) == len(set(found)) == 6 * 12 * 12
    kinds = [one.rpartition(" (")[0] for one in found]
    assert len(set(kinds[:6])) == 6
    assert kinds == kinds[:6] * 144
    assert drafts.situations(language, 0) == found != drafts.situations(language, 1)


SAMPLE = Path(__file__).resolve().parents[3] / "harness" / "sample"
ROWS = read_queries(SAMPLE / "testset")
TEXTS = [path.read_text("utf-8") for path in sorted((SAMPLE / "profiles").glob("*.txt"))]
BY_ID = {hashlib.sha256(text.encode()).hexdigest()[:20]: text for text in TEXTS}


def test_the_shipped_test_set_quotes_both_profiles_and_has_every_kind():
    for row in ROWS:
        assert row.query.query_id == Draft(row.kind, row.query.turns).query_id
        for one in row.evidence:
            text, start, end = BY_ID[one.span.text], one.span.start, one.span.end
            found = text[max(0, start - 32) : start], text[start:end], text[end : end + 32]
            assert found == (one.prefix, one.exact, one.suffix), row.query.query_id
    assert {row.kind for row in ROWS} == set(KINDS)
    assert {one.span.text for row in ROWS for one in row.evidence} == set(BY_ID)
    assert all(2_500 <= len(text) <= 4_000 for text in TEXTS)
