"""Files to a documents folder: what is in it, that it is always the same, and what interruptions leave."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.corpus import preparation
from harness.corpus.chunking import Chunking
from harness.corpus.files import find_files
from harness.corpus.preparation import Manifest, prepare_documents, prepare_output
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import json_lines, json_text
from harness.errors import BadInput

SMALL = Chunking(size=12, overlap=6)
ONE = "가나다라마. 바사아자차.\n"  # size 12: both sentences are a document
TWO = "타파하가나. 바사아자차. 끝."


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A folder with two files, which is the working folder's `in`."""
    monkeypatch.chdir(tmp_path)
    write({"one.txt": ONE, "two.txt": TWO})
    return tmp_path


def write(texts):
    Path("in").mkdir(exist_ok=True)
    for name, text in texts.items():
        Path("in", name).write_text(text, "utf-8")


def rows(folder, name="documents.jsonl"):
    return [row for _, row in json_lines(Path(folder) / name)]


def files():
    return find_files("in/*")


def contents(folder):
    """Name -> bytes of every file in a folder."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(Path(folder).rglob("*")) if one.is_file()}


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def document_id(note, content):
    return sha(f"{note}\0{content}")


def test_a_folder_by_hand(corpus):
    write({"three.txt": ONE})
    prepared = prepare_documents(files(), Chunking(size=7, overlap=0), Path("docs"))
    one, two = sha(ONE), sha(TWO)
    assert rows("docs") == [
        {"docid": sha("\0가나다라마."), "title": "", "content": "가나다라마.", "src": "in/one.txt",
         "spans": [{"text": one, "start": 0, "end": 6}]},
        {"docid": sha("\0바사아자차."), "title": "", "content": "바사아자차.", "src": "in/one.txt",
         "spans": [{"text": one, "start": 7, "end": 13}, {"text": two, "start": 7, "end": 13}]},
        {"docid": sha("\0타파하가나."), "title": "", "content": "타파하가나.", "src": "in/two.txt",
         "spans": [{"text": two, "start": 0, "end": 6}]},
        {"docid": sha("\0끝."), "title": "", "content": "끝.", "src": "in/two.txt",
         "spans": [{"text": two, "start": 14, "end": 16}]},
    ]  # fmt: skip
    first, *others = rows("docs", "files.jsonl")
    assert first == {
        "path": "in/one.txt", "sha256": hashlib.sha256(ONE.encode()).hexdigest(), "bytes": len(ONE.encode()),
        "text": one, "characters": 14, "title": "", "pages": None, "reader": "text 1",
    }  # fmt: skip
    assert [row["text"] for row in others] == [one, two], "the same text in two files is kept once"
    assert (prepared.files, prepared.texts, prepared.documents, prepared.spans) == (3, 2, 4, 5)
    assert prepared.lengths == preparation.Lengths(2, 6, 6, ((1, 0), (2, 1), (3, 0), (4, 0), (5, 0), (6, 3)))
    assert Manifest.read(Path("docs")) == prepared
    assert {*contents("docs")} == {
        "documents.jsonl", "files.jsonl", "manifest.json", "near_duplicates.jsonl", f"texts/{one}.txt",
        f"texts/{two}.txt",
    }  # fmt: skip
    folder = DocumentsFolder(Path("docs"))
    for chunk in folder.chunks():
        for span in chunk.spans:
            assert folder.text(span.text)[span.start : span.end] == chunk.document.text


def test_documents_with_notes_are_written_as_other_json_lines_are(corpus):
    write({'"쉿"_\\.txt': 'He said "no\\yes". \u2028\x0b 탭\t끝. 😀'})
    Path("note.txt").write_text("{stem} \\ {path}", "utf-8")
    prepare_documents(files(), Chunking(size=7, overlap=3, note="note.txt"), Path("docs"))
    assert Path("docs/documents.jsonl").read_text("utf-8") == json_text(rows("docs"))
    assert all(row["docid"] == document_id(row["title"], row["content"]) for row in rows("docs"))
    assert len([row for row in rows("docs") if row["content"] == "바사아자차."]) == 2, "one for each note"


SENTENCES = st.lists(st.sampled_from(["가나다.", "라마바?", "사아.", "자차카타파하.", "끝!"]), min_size=1, max_size=8)


@given(st.lists(SENTENCES, min_size=1, max_size=4))
def test_equal_chunks_are_one_document_with_all_its_places(texts):
    texts = [" ".join(one) for one in texts]
    found, known = preparation.Occurrences(), {preparation.bytes_id(text.encode()): text for text in texts}
    for number, text in enumerate(texts):
        found.add(str(number), "", preparation.bytes_id(text.encode()), text, SMALL.spans(text))
    documents = list(found.rows(known.__getitem__))
    assert [one.document.doc_id for one in documents] == [document_id("", one.document.text) for one in documents]
    # an independent grouping: a plain dictionary in the order of first occurrence
    plain = {}
    for text in texts:
        for start, end in SMALL.spans(text):
            plain.setdefault(text[start:end], {})[preparation.bytes_id(text.encode()), start, end] = None
    assert [(one, [*places]) for one, places in plain.items()] == [
        (one.document.text, [(span.text, span.start, span.end) for span in one.spans]) for one in documents
    ]


def test_near_duplicates_are_listed(corpus):
    text = "나이테는 나무가 해마다 늘리는 테이다, 그 수를 세면 나무의 나이를 알 수 있다고 한다"
    write({"three.txt": f"{text}.", "four.txt": f"{text}!"})
    assert prepare_documents(files(), Chunking(), Path("docs")).near_duplicates == 1
    ids = {row["src"]: row["docid"] for row in rows("docs")}
    [pair] = rows("docs", "near_duplicates.jsonl")
    assert {pair["a"], pair["b"]} == {ids["in/three.txt"], ids["in/four.txt"]}
    assert 0.8 <= pair["similarity"] < 1


# Interruptions


class Stopped(Exception):
    pass


def test_a_stopped_preparation_goes_on_with_the_next_file(corpus, monkeypatch):
    write({f"{number}.txt": f"{number}번 글이다. {ONE}" for number in range(6)})
    prepare_documents(files(), SMALL, Path("whole"))
    extract, extracted = preparation.extract, []

    def until_four(path):
        if len(extracted) == 4:
            raise Stopped
        extracted.append(path)
        return extract(path)

    monkeypatch.setattr(preparation, "extract", until_four)
    with pytest.raises(Stopped):
        prepare_documents(files(), SMALL, Path("docs"))
    monkeypatch.setattr(preparation, "extract", lambda path: extracted.append(path) or extract(path))
    prepare_documents(files(), SMALL, Path("docs"))
    assert len(extracted) == len(files()) == len(set(extracted))
    assert contents("docs") == contents("whole")


def test_slow_chunks_are_kept_and_only_for_their_settings(corpus, monkeypatch):
    monkeypatch.setattr(Chunking, "is_slow", True)
    plain, counted = Chunking.spans, []

    def spans(self, text, share):
        if len(counted) == 1 and not Path("go_on").exists():
            raise Stopped
        counted.append(text)
        return plain(self, text, share)

    monkeypatch.setattr(Chunking, "spans", spans)
    with pytest.raises(Stopped):
        prepare_documents(files(), SMALL, Path("docs"))
    shutil.copytree("docs", "other")
    Path("go_on").touch()
    prepare_documents(files(), SMALL, Path("docs"))
    assert counted == [ONE, TWO]
    prepare_documents(files(), Chunking(size=13, overlap=6), Path("other"))
    assert counted == [ONE, TWO, ONE, TWO]


@pytest.mark.parametrize(
    "damage",
    [
        lambda log, texts: log.write_bytes(log.read_bytes()[:-5]),  # a line that was cut off
        lambda log, texts: log.write_bytes(log.read_bytes().replace(b"text 1", b"text 2")),
        lambda log, texts: texts[0].write_text("다른 글"),
        lambda log, texts: texts[0].unlink() or texts[0].mkdir(),
        lambda log, texts: log.unlink() or log.symlink_to(log.name),
    ],
)
def test_damaged_work_is_done_again(corpus, monkeypatch, damage):
    prepare_documents(files(), SMALL, Path("whole"))

    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(preparation._Reading, "chunks", stop)
        with pytest.raises(Stopped):
            prepare_documents(files(), SMALL, Path("docs"))
    damage(Path("docs/work/files.log"), sorted(Path("docs/texts").iterdir()))
    prepare_documents(files(), SMALL, Path("docs"))
    assert contents("docs") == contents("whole")


# Files that cannot be read


def test_all_unreadable_files_are_listed_and_the_others_kept(corpus, monkeypatch):
    write({"empty.txt": "", "table.xlsx": "x"})
    with pytest.raises(BadInput, match=r"2 problems(.|\n)*empty.txt(.|\n)*table.xlsx(.|\n)* of the 2 other files are"):
        prepare_output(files(), SMALL, Path("docs"))
    assert not Path("docs").exists()
    monkeypatch.setattr(preparation, "extract", None)
    for name in ("empty.txt", "table.xlsx", "two.txt"):
        Path("in", name).unlink()
    prepare_output(files(), SMALL, Path("docs"))
    assert [one.stem for one in Path("docs/texts").iterdir()] == [sha(ONE)], "texts that nothing needs are removed"


def test_unreadable_files_can_be_skipped(corpus):
    write({"empty.txt": ""})
    prepared, _ = prepare_output(files(), SMALL, Path("docs"), "skip")
    assert [*prepared.skipped] == ["in/empty.txt"]
    assert Manifest.read(Path("docs")) == prepared
    assert str(corpus) not in Path("docs/manifest.json").read_text("utf-8")
    assert prepare_output(files(), SMALL, Path("docs"), "skip") == (prepared, False)
    with pytest.raises(BadInput, match=r"empty\.txt"):
        prepare_output(files(), SMALL, Path("docs"), "stop")
    assert Path("docs").is_dir()


def test_nothing_is_left_where_no_file_can_be_read(corpus):
    write({"one.txt": " \n", "two.txt": ""})
    for unreadable in ("stop", "skip"):
        with pytest.raises(BadInput, match=r"one\.txt"):
            prepare_output(files(), SMALL, Path("docs"), unreadable)
    assert [one.name for one in Path().iterdir()] == ["in"]


def test_a_file_that_changes_while_it_is_read_is_refused(corpus, monkeypatch):
    extract = preparation.extract

    def changing(path):
        found = extract(path)
        path.write_text("다른 글", "utf-8")
        return found

    monkeypatch.setattr(preparation, "extract", changing)
    with pytest.raises(BadInput, match="changed while it was read"):
        prepare_documents(files(), SMALL, Path("docs"))


# The output


def test_a_finished_folder_is_left_as_it_is_and_another_replaced(corpus):
    first, written = prepare_output(files(), SMALL, Path("docs"))
    before = Path("docs").stat().st_ino
    assert written
    os.utime("in/one.txt")  # the same bytes
    assert prepare_output(files(), SMALL, Path("docs")) == (first, False)
    assert Path("docs").stat().st_ino == before
    assert prepare_output(files(), Chunking(), Path("docs"))[1]
    write({"one.txt": "새 글이다."})
    assert prepare_output(files(), Chunking(), Path("docs"))[1]
    assert sorted(one.name for one in Path().iterdir()) == ["docs", "in"]


def test_what_a_kill_left_while_folders_were_exchanged_is_cleared(corpus):
    prepare_output(files(), SMALL, Path("docs.replaced"))
    prepare_output(files(), Chunking(), Path("docs"))
    assert sorted(one.name for one in Path().iterdir()) == ["docs", "in"]


def test_a_link_stays_a_link(corpus):
    Path("elsewhere").mkdir()
    Path("docs").symlink_to("elsewhere")
    prepare_output(files(), SMALL, Path("docs"))
    prepare_output(files(), Chunking(), Path("docs"))
    assert Path("docs").is_symlink()
    assert len(rows("elsewhere")) == len(rows("docs")) > 0


def prepared(change=lambda folder: None):
    """Something done to a prepared folder."""

    def make(folder):
        prepare_output(files(), SMALL, folder)
        change(folder)

    return make


def foreign(name):
    def make(folder):
        path = Path(f"{folder}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")

    return make


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (foreign(""), "output=docs is a file"),
        (foreign("/thesis.doc"), r"holds files that `harness prepare` did not write \(thesis\.doc\)"),
        (prepared(foreign("/notes.txt")), r"did not write \(notes\.txt\)"),
        (prepared(foreign("/documents.jsonl")), r"docs/documents\.jsonl has changed since"),
        (prepared(lambda docs: (docs / "manifest.json").write_text('{"version": 2}')), "this harness reads version 1"),
        (prepared(lambda docs: (docs / "manifest.json").unlink()), r"manifest\.json is missing"),
        (foreign(".unfinished/thesis.doc"), r"docs\.unfinished is in the way"),
        (lambda docs: Path("docs.unfinished/work/lock").mkdir(parents=True), r"docs\.unfinished is in the way"),
    ],
)
def test_nothing_of_a_user_is_overwritten(corpus, made, message):
    made(Path("docs"))
    before = contents(".")
    with pytest.raises(BadInput, match=message):
        prepare_output(files(), Chunking(), Path("docs"))
    assert contents(".") == before


def test_two_processes_do_not_write_one_output(corpus):
    from filelock import FileLock

    Path("docs.unfinished/work").mkdir(parents=True)
    with FileLock("docs.unfinished/work/lock"), pytest.raises(BadInput, match="being written by another process"):
        prepare_output(files(), SMALL, Path("docs"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inputs": None}, "inputs is None"),
        ({"lengths": {}}, "least is missing"),
        ({"lengths": {"least": 1, "median": 1, "most": 1, "bins": [[1]]}}, "bins must be"),
        ({"sha256": {"../x": "0"}}, "sha256 must have"),
    ],
)
def test_a_manifest_that_is_none_is_refused(corpus, changed, message):
    prepare_documents(files(), SMALL, Path("docs"))
    file = Path("docs/manifest.json")
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changed))
    with pytest.raises(BadInput, match=rf"manifest\.json: .*{message}"):
        Manifest.read(Path("docs"))
