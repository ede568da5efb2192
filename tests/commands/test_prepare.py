"""`harness prepare`: what it says, what it writes, and what it refuses."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def corpus(tmp_path):
    """Files in `in`: two texts with a sentence in common, and Markdown in a folder with a Korean name."""
    folder = tmp_path / "in"
    (folder / "문서").mkdir(parents=True)
    (folder / "one.txt").write_text("가나다라마. 바사아자차.\n", "utf-8")
    (folder / "two.txt").write_text("타파하가나. 바사아자차. 끝.", "utf-8")
    (folder / "문서" / "셋.md").write_text("# 제목\n\n- 첫째\n- 둘째\n", "utf-8")
    return folder


def rows(folder):
    return [json.loads(line) for line in (Path(folder) / "documents.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_the_sample_is_prepared_without_arguments_and_can_be_run(harness):
    done = harness("prepare")
    said, (run, search, draft) = done.text, done.commands
    assert "outputs/documents holds 16 documents of 2 files." in said
    assert "Characters per document: 305 to 398; half of the documents have at most 375" in said
    assert "  up to 350  ██████ 2\n  up to 400  ████████████████████████████████████████ 14\n" in said
    assert run == ["run", "dataset=chunked"]
    found = harness(*search, "tokenizer=word", "format=json").json
    assert found["documents"], "its first words find the document"
    assert harness("testset draft", *draft[2:]).code == 0
    again = harness("prepare")
    assert "outputs/documents is up to date. It holds 16 documents of 2 files." in again.out
    assert "dataset.chunk.size=100" in harness("prepare", "chunk.size=100", "chunk.overlap=20").out


def test_files_of_ones_own(harness, corpus):
    (corpus.parent / "note.txt").write_text("{name}에 대한 글", "utf-8")
    words = ("files=in/**/*", "output=docs", "chunk.size=7", "chunk.overlap=0")
    done = harness("prepare", *words)
    said, (search, _) = done.text, done.commands
    assert "docs holds 7 documents of 3 files." in said
    assert "1 further chunk repeats the text of a document. Such a document has a span for each place" in said
    assert [row["src"] for row in rows("docs")] == ["in/one.txt"] * 2 + ["in/two.txt"] * 2 + ["in/문서/셋.md"] * 3
    found = harness(*search[:-1], "tokenizer=whitespace", "query=끝.", "format=json").json
    assert [one["text"] for one in found["documents"]] == ["끝."]
    noted = harness("prepare", *words, "chunk.note=note.txt", "format=json").json
    assert (noted["written"], noted["spans"], noted["documents"]) == (True, 8, 8)
    assert {row["title"] for row in rows("docs")} == {"one에 대한 글", "two에 대한 글", "셋에 대한 글"}
    one = ("prepare", "files=in/one.txt", "output=one")
    assert "Characters of each document: 13\nNext:" in harness(*one).out, "one length needs no picture"


def test_the_json_document(harness, corpus):
    words = ("prepare", "files=[in/one.txt,in/문서/셋.md]", "output=docs", "format=json")
    bins = [[2, 0], [4, 0], [6, 0], [8, 0], [10, 0], [12, 0], [14, 1], [16, 1]]
    assert harness(*words).json == {
        "output": str(corpus.parent / "docs"), "written": True, "files": 2, "texts": 2, "documents": 2, "spans": 2,
        "characters": 30, "near_duplicates": 0, "skipped": {},
        "lengths": {"least": 13, "median": 14, "most": 15, "bins": bins},
    }  # fmt: skip
    assert harness(*words).json["written"] is False


def test_unreadable_files(harness, corpus):
    (corpus / "empty.txt").touch()
    (corpus / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    refused = harness("prepare", "files=in/*", "output=docs").refusal
    for expected in ("2 problems with the files", "in/empty.txt: the file is empty", "in/picture.txt",
                     "set unreadable=skip. The texts of the 2 other files are kept"):  # fmt: skip
        assert expected in refused
    assert not Path("docs").exists()
    said = harness("prepare", "files=in/*", "output=docs", "unreadable=skip").text
    assert "2 files could not be read and are left out:\n  in/empty.txt: the file is empty" in said
    assert not [one.name for one in Path().iterdir() if one.name.startswith("docs.")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["files=in/*.doc"], "in/*.doc"),
        (["files=on/*.txt"], "on: there is no such file or folder"),
        (["files=[]"], "files names no file"),
        (["in/*"], "files="),
        (["chunk.size=0"], "chunk.size=0 is too small: the minimum is 1"),
        (["chunk.size=80"], "chunk.overlap=80 is not below chunk.size=80"),
        (["chunk.unit=tokens"], "chunk.unit=tokens needs chunk.tokenizer"),
        (["chunk.splitter=kiwy"], "Did you mean 'kiwi'"),
        (["chunk.separator=[.!?"], "is not a regular expression"),
        (["chunk.separator=\\s*"], "can match the empty string"),
        (["chunk.separator=([.!?]+\\s*)+"], "repeats a repetition"),
        (["chunk.note=note.txt"], "note.txt: there is no such file"),
        (["output=in/문서"], "output=in/문서 holds files that `harness prepare` did not write (셋.md)"),
        (["output=in/문서/셋.md"], "is a file"),
        (["output="], "output is empty"),
        (["output=/"], "output=/ is the root of all folders"),
        (["output=/proc/docs"], "output=/proc/docs cannot be made"),
        (["output=in/one.txt/docs"], "output=in/one.txt/docs cannot be made"),
        (["chunk.note=in"], "in is a folder, but a file is expected"),
        (["files=in/one.txt", "output=in"], "one.txt lies in output=in"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(harness, corpus, words, message):
    given = [word for word in ("files=in/*", "output=docs") if word.partition("=")[0] not in "".join(words)]
    before = sorted(Path().rglob("*"))
    refused = harness("prepare", *given, *words).refusal
    assert message in refused
    assert "Traceback" not in refused
    assert sorted(Path().rglob("*")) == before
