"""The documents show every command, agree with each other and with the code; `make base` runs their commands."""

import re
from pathlib import Path

import check_base
from base_check.shown import commands

from harness import cli

ROOT = Path(__file__).resolve().parents[2]


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


def test_both_readmes_show_the_same_commands():
    assert shown("README.md") == shown("README.ko.md")


def test_both_guides_to_gates_show_the_same_code_and_figures():
    """Code but for comments; in each section the numbers and names; each table as many rows and columns."""
    english, korean = ((ROOT / "docs" / name).read_text("utf-8") for name in ("gates.md", "gates.ko.md"))
    code, spans = (re.compile(pattern, re.S) for pattern in (r"```.*?\n(.*?)```", r"(?<!`)`[^`]+`"))
    plain = [[re.sub(r" +# .*", "", block) for block in code.findall(text)] for text in (english, korean)]
    assert plain[0] == plain[1]
    sections = [re.split(r"^## .*$", code.sub("", text), flags=re.M) for text in (english, korean)]
    assert len(sections[0]) == len(sections[1])
    for one, other in zip(*sections, strict=True):
        found = [{re.sub(r"\s+", " ", span) for span in spans.findall(text)} for text in (one, other)]
        assert found[0] == found[1]
        figures = [set(re.findall(r"\d+(?:[.,]\d+)+", text)) for text in (one, other)]
        assert figures[0] == figures[1]
        assert [line.count("|") for line in one.splitlines() if line.lstrip().startswith("|")] == [
            line.count("|") for line in other.splitlines() if line.lstrip().startswith("|")
        ]


def test_the_two_commands_are_what_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text()
    for name in ("README.md", "README.ko.md"):
        assert all(f"make {target}" in (ROOT / name).read_text("utf-8") for target in ("run", "test"))
    assert "make run\nmake base\nmake test" in ci


def test_links_of_the_documents_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", path.read_text("utf-8")):
            if "reference/" not in target:  # generated; the build of the site checks these links
                assert (path.parent / target).exists(), f"{path.name}: {target}"
