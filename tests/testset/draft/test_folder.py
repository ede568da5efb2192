"""The folder of a test set: written whole, gone on with, and never over a person's work."""

import json
from dataclasses import replace

import pytest

from harness.data.spans import Evidence, Span
from harness.data.testset import read_queries
from harness.errors import BadInput
from harness.testset.draft.drafts import Draft, Rejection, TestsetFolder
from retrievers.base import Turn

TEXT = "0123456789abcdef0123"
EVIDENCE = Evidence(Span(TEXT, 3, 5), "위성", "달은 ", "이다.")
FACT = Draft("fact", (Turn("user", "달은?"),), "위성이다.", (EVIDENCE,), "d1", ("a flag",))
GREETING = Draft("none", (Turn("user", "안녕"),))
LOST = Rejection(replace(FACT, evidence=()), "evidence not verbatim", "the document lacks '위 성'")
NOTHING = Rejection(Draft("search", (), doc_id="d2"), "reply of the wrong shape", "no JSON")
SETTINGS = {"llm": {"model": "tiny"}, "seed": 0}


@pytest.fixture
def written(tmp_path):
    folder = TestsetFolder(tmp_path / "ts", SETTINGS)
    folder.check(2)
    folder.write([FACT, GREETING], [LOST, NOTHING], {"shown": 2, "documents": {"path": "../docs"}})
    return folder


def test_what_is_written_is_read_as_a_test_set(written):
    first, second = read_queries(written.path)
    assert (first.kind, first.query.turns, first.evidence) == ("fact", FACT.turns, FACT.evidence)
    assert first.query.query_id == FACT.query_id
    assert (second.kind, second.evidence) == ("none", ())
    rows = [json.loads(line) for line in (written.path / "queries.jsonl").read_text().splitlines()]
    assert [(row["needs"], row["answer"], row["docid"], row["flags"]) for row in rows] == [
        (True, "위성이다.", "d1", ["a flag"]), (False, "", "", [])
    ]  # fmt: skip
    rejected = [json.loads(line) for line in (written.path / "rejected.jsonl").read_text().splitlines()]
    assert [(row["reason"], row["kind"], row["docid"]) for row in rejected] == [
        ("evidence not verbatim", "fact", "d1"), ("reply of the wrong shape", "search", "d2")
    ]  # fmt: skip
    assert rejected[1]["msg"] == []
    assert sorted(path.name for path in written.path.iterdir()) == ["queries.jsonl", "rejected.jsonl", "testset.json"]


def test_the_same_settings_go_on(written):
    written.check(2)
    written.check(7)
    before = {path.name: path.read_bytes() for path in written.path.iterdir()}
    written.write([FACT, GREETING], [LOST, NOTHING], {"shown": 2, "documents": {"path": "../docs"}})
    assert {path.name: path.read_bytes() for path in written.path.iterdir()} == before


@pytest.mark.parametrize("name", ["queries.jsonl", "rejected.jsonl"])
def test_a_persons_work_is_not_overwritten(written, name):
    path = written.path / name
    path.write_text(path.read_text().replace("달", "해"))
    with pytest.raises(BadInput, match=f"{name} has been edited"):
        written.check(2)


def test_folders_that_hold_something_else(tmp_path):
    (tmp_path / "file").write_text("")
    for name, files in {"notes": {"notes.txt": "x"}, "own": {"testset.json": '{"version": 1}', "queries.jsonl": ""},
                        "broken": {"testset.json": "{"}}.items():  # fmt: skip
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    for name, message in {"file": "this is a file", "notes": "something else", "own": "not drafted",
                          "broken": "broken JSON"}.items():  # fmt: skip
        with pytest.raises(BadInput, match=message):
            TestsetFolder(tmp_path / name, SETTINGS).check(1)


def test_an_empty_folder_is_as_good_as_none(tmp_path):
    (tmp_path / ".ab.unfinished").write_text("")  # of a killed process
    TestsetFolder(tmp_path, SETTINGS).check(1)


@pytest.mark.parametrize("calls", range(1, 5))
@pytest.mark.parametrize("larger", [False, True])
def test_a_process_that_is_killed_while_writing_leaves_what_the_next_goes_on_with(tmp_path, monkeypatch, calls, larger):
    folder = TestsetFolder(tmp_path / "ts", SETTINGS)
    if larger:
        folder.write([FACT], [LOST], {"shown": 1})
    left = calls

    def write(path, text):
        nonlocal left
        left -= 1
        if not left:
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
