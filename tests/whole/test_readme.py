"""The documents show every command, agree with each other and with the code; `make base` runs their commands."""

import re
from pathlib import Path

import check_base
import pytest
from base_check.shown import commands

from harness import cli

ROOT = Path(__file__).resolve().parents[2]
TRANSLATED = ["README.md", "docs/gates.md", "docs/index.md", "docs/install.md"] + [
    f"docs/{path.parent.name}/{path.name}"
    for path in sorted(ROOT.glob("docs/*/*.md"))
    if path.parent.name in ("explanation", "tutorials") and ".ko." not in path.name
]


def shown(name: str) -> list[str]:
    """The commands of a document without comments; `make base` runs them."""
    return [re.sub(r" +# .*", "", one.text) for one in commands(ROOT / name, name)]


def test_the_documents_show_every_command():
    words = [command.split() for page in check_base.PAGES if not page.commands for command in shown(page.name)]
    assert {" ".join(one[1:n]) for one in words for n in (2, 3) if one[0] == "harness"} >= set(cli.COMMANDS)


def test_the_readmes_are_short():
    for name in ("README.md", "README.ko.md"):
        content = (ROOT / name).read_bytes()
        assert len(content) <= 12_000, name
        assert len(content.splitlines()) <= 150, name


def test_every_document_with_commands_is_run_on_a_base_installation():
    assert check_base.unlisted() == []


def korean(path: Path) -> Path:
    return path.with_suffix(".ko.md")


def linked(path: Path, text: str) -> set[Path]:
    """The files that a text of a document links to."""
    return {(path.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)}


@pytest.mark.parametrize("name", TRANSLATED)
def test_the_korean_document_shows_what_the_english_one_shows(name):
    """Code but for comments; in each section the numbers, names and links; each table as many rows and columns."""
    english, translated = (path.read_text("utf-8") for path in (ROOT / name, korean(ROOT / name)))
    code, spans = (re.compile(pattern, re.S) for pattern in (r"```.*?\n(.*?)```", r"(?<!`)`[^`]+`"))
    plain = [[re.sub(r"(?m)(^| +)# .*", "", block) for block in code.findall(text)] for text in (english, translated)]
    assert plain[0] == plain[1]
    sections = [re.split(r"^## .*$", code.sub("", text), flags=re.M) for text in (english, translated)]
    assert len(sections[0]) == len(sections[1])
    for one, other in zip(*sections, strict=True):
        found = [{re.sub(r"\s+", " ", span) for span in spans.findall(text)} for text in (one, other)]
        assert found[0] == found[1]
        figures = [set(re.findall(r"\d+(?:[.,]\d+)+", text)) for text in (one, other)]
        assert figures[0] == figures[1]
        assert [line.count("|") for line in one.splitlines() if line.lstrip().startswith("|")] == [
            line.count("|") for line in other.splitlines() if line.lstrip().startswith("|")
        ]
        targets = {korean(path) if korean(path).exists() else path for path in linked(ROOT / name, one)}
        assert targets - {korean(ROOT / name)} == linked(korean(ROOT / name), other) - {ROOT / name}


def test_the_two_commands_are_what_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text()
    for name in ("README.md", "README.ko.md"):
        assert all(f"make {target}" in (ROOT / name).read_text("utf-8") for target in ("run", "test"))
    assert "make run\nmake base\nmake test" in ci


def test_links_of_the_documents_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]:
        for target in linked(path, path.read_text("utf-8")):
            # The reference is generated; the build of the site checks links to it.
            assert "reference" in target.parts or target.exists(), f"{path.name}: {target}"
