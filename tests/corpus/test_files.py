"""Patterns find the same files everywhere, and nothing outside the folders that they name."""

import os

import pytest

from harness.corpus.files import corpus_error, find_files
from harness.errors import BadInput

TREE = ("corpus/b.txt", "corpus/a.txt", "corpus/a/c.md", "corpus/a/b/d.txt", "corpus/a-b/e.txt", "corpus/.hidden.txt",
        "corpus/.git/f.txt", "corpus/b.txt~", "corpus/~$b.docx", "corpus/.b.txt.swp", "corpus/[x].txt",
        "corpus/__MACOSX/g.txt", "other/b.txt")  # fmt: skip


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A working folder with files."""
    for name in TREE:
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, "utf-8")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def names(*patterns):
    found = find_files(list(patterns))
    assert [one.path.read_text("utf-8") for one in found if not one.path.is_symlink()]
    return [one.name.removeprefix("corpus/") for one in found]


VISIBLE = ["[x].txt", "a-b/e.txt", "a.txt", "a/b/d.txt", "a/c.md", "b.txt"]
FOUND = [
    (["corpus/**/*"], VISIBLE),
    (["corpus/*.txt"], ["[x].txt", "a.txt", "b.txt"]),
    (["corpus/*/*"], ["a-b/e.txt", "a/c.md"]),
    (["corpus/a/**/*.txt"], ["a/b/d.txt"]),
    (["corpus/[!a]*.txt"], ["[x].txt", "b.txt"]),
    (["corpus/[x].txt"], ["[x].txt"]),  # the name of a file is that file
    (["corpus/?.txt", "corpus/a.txt", "corpus/b.txt"], ["a.txt", "b.txt"]),  # once each
    (["corpus/b.txt", "corpus/a.txt"], ["a.txt", "b.txt"]),  # in the order of names
    (["corpus/.*.txt"], [".hidden.txt"]),
    (["corpus/b.txt~"], ["b.txt~"]),
    (["corpus/a/../b.txt"], ["b.txt"]),
]


@pytest.mark.parametrize(("patterns", "expected"), FOUND)
def test_what_patterns_find(tree, patterns, expected):
    assert names(*patterns) == expected


def test_names_are_the_same_from_anywhere(tree, monkeypatch):
    """Relative to the working folder; outside it, from the name of the pattern's folder on."""
    relative = [one.name for one in find_files("corpus/**/*")]
    assert [one.name for one in find_files(f"{tree}/corpus/**/*")] == relative
    monkeypatch.chdir(tree / "other")
    for pattern in ("../corpus/**/*", f"{tree}/corpus/**/*"):
        assert [one.name for one in find_files(pattern)] == relative


def test_names_are_in_nfc(tree):
    (tree / "other" / "\u1100\u1161.txt").write_text("other", "utf-8")  # as macOS writes 가.txt
    assert [one.name for one in find_files("other/가*")] == ["other/가.txt"]


def test_a_link_within_the_folder_is_a_name_of_its_file(tree):
    (tree / "corpus" / "link.txt").symlink_to("a/c.md")
    (tree / "corpus" / "folder").symlink_to("a")
    assert names("corpus/l*", "corpus/folder/c.md") == ["folder/c.md", "link.txt"]
    assert "folder/b/d.txt" in names("corpus/folder/**/*")


def test_a_folder_that_several_links_lead_to_is_searched_once(tree):
    """Folders whose links fan out would be searched two to the power of their depth times."""
    for level in range(40):
        (tree / "deep" / f"{level:02}").mkdir(parents=True)
        for name in "xy":
            (tree / "deep" / f"{level:02}" / name).symlink_to(f"../{level + 1:02}")
    (tree / "deep" / "40").mkdir()
    (tree / "deep" / "40" / "z.txt").write_text("z", "utf-8")
    assert len(find_files("deep/**/*")) == 1


BAD = [
    ([], "files names no file"),
    ([""], "'' is not a path"),
    (["a\0b"], "is not a path"),
    (["x" * 300 + "/*"], r"files: x{200}: File name too long"),
    (["corpse/*.txt"], r"corpse: there is no such file or folder. Did you mean 'corpus'\?"),
    (["corpus/b.text"], r"corpus/b.text: there is no such file or folder. Did you mean 'b.txt'\?"),
    (["corpus/nowhere/x/y.txt"], r"corpus/nowhere: there is no such file or folder. corpus contains: "),
    (["corpus"], r"corpus is a folder. Name the files in it, such as files='corpus/\*\*/\*'"),
    (["corpus/*.pdf"], r"no file matches corpus/\*\.pdf\. corpus contains: \[x\]\.txt, "),
    (["*"], r"no file matches \*\. \. contains only folders: files='\./\*\*/\*' finds the files in them"),
    (["corpus/{a,b}*.txt"], r"Braces are not wildcards here"),
    (["corpus/*/../../*"], r"`\.\.` after a wildcard would lead out of corpus"),
    (["corpus/*.txt", "corpse/*", "corpus/*.pdf"], "2 problems with the files:\n- corpse: .*\n- files: no file"),
]


@pytest.mark.parametrize(("patterns", "message"), BAD)
def test_what_finds_nothing_is_refused(tree, patterns, message):
    with pytest.raises(BadInput, match=message):
        find_files(patterns)


def link(target):
    return lambda path: path.symlink_to(target)


UNUSABLE = [  # (what is made at corpus/x, message)
    (link("../other/b.txt"), "corpus/x is a link that leads out of corpus, to .*/other/b.txt"),
    (link("/dev/null"), "corpus/x is a link that leads out of corpus, to /dev/null"),
    (link("nowhere"), "corpus/x is a link that leads to nothing"),
    (link("x"), "corpus/x is a link that leads back to itself"),
    (os.mkfifo, "corpus/x is a device or a pipe"),
]


@pytest.mark.parametrize("pattern", ["corpus/**/*", "corpus/x", "corpus/x*"])
@pytest.mark.parametrize(("make", "message"), UNUSABLE)
def test_what_is_no_file_of_the_folder_is_refused(tree, pattern, make, message):
    make(tree / "corpus" / "x")
    with pytest.raises(BadInput, match=message):
        find_files(pattern)


@pytest.mark.parametrize("target", [".", "..", "../a", "../../other"])
def test_a_link_to_a_folder_around_it_or_outside_is_refused(tree, target):
    (tree / "corpus" / "a" / "x").symlink_to(target)
    with pytest.raises(BadInput, match=r"corpus/a/x is a link (to a folder that contains it|that leads out of corpus)"):
        find_files("corpus/**/*")


def test_a_name_that_is_not_utf_8_is_refused(tree):
    (tree / "other" / os.fsdecode(b"\xb0\xa1.txt")).write_text("x", "utf-8")
    with pytest.raises(BadInput, match=r"the name is not UTF-8\. Rename the file"):
        find_files("other/*")


def test_two_files_of_one_name_are_refused(tree, monkeypatch):
    monkeypatch.chdir(tree / "corpus" / "a")
    (tree / "other" / "corpus").mkdir()
    (tree / "other" / "corpus" / "b.txt").write_text("x", "utf-8")
    with pytest.raises(BadInput, match=r"would both be recorded as corpus/b\.txt"):
        find_files(["../../corpus/*.txt", "../../other/corpus/*.txt"])


def test_problems_are_listed_together_up_to_a_hundred():
    assert str(corpus_error(["a is bad."])) == "a is bad."
    lines = str(corpus_error([f"{number} is bad." for number in range(102)])).splitlines()
    assert (lines[0], lines[1], lines[100], lines[101:]) == (
        "102 problems with the files:", "- 0 is bad.", "- 99 is bad.", ["... and 2 more"])  # fmt: skip
