"""Every command in the README runs as written, in the order of the README."""

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import openpyxl
import pytest
import scripted_drafts
import scripted_judge
from chat_server import ChatServer, Invocation

import harness as harness_package
from harness import cli

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "harness" / "sample"
BLOCK = re.compile(r"```bash\n(.*?)```", re.S)
BLOCKING = {"ui"}  # started, probed and stopped in test_ui.py


def commands(name: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return [line for block in BLOCK.findall(text) for line in block.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def run_commands(harness, monkeypatch):
    """Run the commands of a document in their order: run_commands("README.md") -> the verbs. Those that ask a language
    model get one on this machine."""

    def run(name: str) -> list[str]:
        verbs = []
        for command in commands(name):
            program, verb, *words = shlex.split(command.replace("search.trials=60", "search.trials=12"), comments=True)
            assert program == "harness", command
            if words and f"{verb} {words[0]}" in cli.COMMANDS:
                verb, words = f"{verb} {words[0]}", words[1:]
            if verb in ("testset draft", "testset judge") or any(word.startswith("llm.model=") for word in words):
                words.append(f"llm.base_url={server.url}")
            verbs.append(verb)
            if verb not in BLOCKING:
                done = harness(verb, *words)
                assert done.code == 0, f"{command}\n{done.err}"
            if verb == "testset review" and (written := [word for word in words if word.startswith("output=")]):
                fill_in(written[0].removeprefix("output="))
        return verbs

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HARNESS_MILVUS_URI", "milvus.db")
    with ChatServer(model=language_model) as server:
        yield run


def language_model(asked: Invocation, _: int) -> str:
    """Drafts queries, grades documents, writes the same query or answer for all conversations, and says that all need
    documents."""
    if asked.schema is None:
        return "yes"
    properties = asked.schema["properties"]
    if "grade" in properties:
        return scripted_judge.judge(asked)
    return scripted_drafts.draft(asked) if "items" in properties else json.dumps(dict.fromkeys(properties, "달의 모양"))


def fill_in(workbook: str) -> None:
    """Answer what a workbook asks: every query needs retrieval, and every other document answers it."""
    book = openpyxl.load_workbook(workbook)
    for sheet in (book["queries"], book["pairs"]):
        for row in range(2, sheet.max_row + 1):
            sheet.cell(row, sheet.max_column).value = "yes" if sheet.title == "queries" else row % 2 * 3
    book.save(workbook)


@pytest.mark.slow
def test_the_commands_of_the_readme_work_in_order(run_commands, tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("documents.jsonl", "eval.jsonl", "qrels.jsonl"):
        shutil.copyfile(SAMPLE / name, tmp_path / "data" / name)
    for name in ("corrections/references.csv", "corrections/careful.csv", "corrections/eager.csv",
                 "answers/references.json", "answers/first.json"):  # fmt: skip
        shutil.copy(SAMPLE / name, tmp_path / "data")
    assert set(run_commands("README.md")) == set(cli.COMMANDS)


def test_the_commands_of_the_guide_to_test_sets_work_in_order(run_commands, tmp_path):
    shutil.copytree(SAMPLE / "profiles", tmp_path / "corpus")
    assert set(run_commands("docs/testsets.md")) == {"prepare", "testset draft", "run", "sweep"}


@pytest.mark.slow
def test_the_commands_of_the_guide_to_judgements_work_in_order(run_commands, tmp_path):
    shutil.copytree(SAMPLE / "testset", tmp_path / "ts")
    judging = {"testset pool", "testset judge", "testset review", "testset audit", "testset freeze"}
    assert set(run_commands("docs/judgements.md")) == {"prepare", "run", *judging}


@pytest.mark.slow
def test_the_commands_of_the_guide_to_language_models_work_in_order(run_commands):
    assert set(run_commands("docs/llm.md")) == {"run", "sweep"}


def test_both_readmes_show_the_same_commands():
    assert commands("README.md") == commands("README.ko.md")


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
    assert "make run\nmake test" in ci


def test_links_of_the_documents_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def layout() -> str:
    """The packages as an indented tree in the order of their imports, each with the first line of its docstring."""
    order = next(line for line in (harness_package.__doc__ or "").splitlines() if " < " in line).split(" < ")
    order += ["retrievers", "lexical", "dense", "combine"]
    lines = []
    for package in ("harness", "retrievers"):
        folders = [path.parent.relative_to(ROOT) for path in (ROOT / package).rglob("__init__.py")]
        for folder in sorted(
            folders, key=lambda folder: [(order.index(p) if p in order else -1, p) for p in folder.parts]
        ):
            docstring = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text("utf-8"))) or ""
            name = "  " * (len(folder.parts) - 1) + folder.name + "/"
            lines.append(f"{name:<16}{docstring.splitlines()[0]}")
    return "\n".join(lines)


def test_the_layout_in_the_readme_is_that_of_the_docstrings():
    assert layout() in (ROOT / "README.md").read_text("utf-8"), f"README.md must show:\n{layout()}"


def test_the_korean_readme_shows_the_same_folders():
    text = (ROOT / "README.ko.md").read_text("utf-8")
    assert all(f"\n{line.split('/')[0]}/ " in text for line in layout().splitlines())
