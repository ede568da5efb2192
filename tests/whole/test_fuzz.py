"""The fuzzer: what it has found stays mended, every format is read, and it finds what is wrong."""

import json
import os
import re
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest
from fuzz import CASES, Progress, decoded, encoded, minimised, turn
from fuzzing import trial as trials
from fuzzing.mutations import Odd
from fuzzing.trial import FORMATS, Finding, Format, Trial, Wrong

from harness.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
PARSERS = r"\b(loads|safe_load|PdfDocument|LexborHTMLParser|ZipFile|ParserCreate|ParquetFile)\("
ELSEWHERE = {"testset/review/server.py"}  # requests


@pytest.fixture(autouse=True)
def here():
    """The working folder afterwards is that before."""
    before = Path.cwd()
    yield
    os.chdir(before)


@pytest.fixture(scope="module")
def trial_of(tmp_path_factory):
    """format -> its trial."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = Trial(FORMATS[name], tmp_path_factory.mktemp("fuzz") / "input")
        return made[name]

    return get


@pytest.mark.parametrize("case", [json.loads(line) for line in CASES.read_text("utf-8").splitlines()],
                         ids=lambda case: f"{case['format']}: {case['says']}")  # fmt: skip
def test_what_was_found_stays_mended(case, trial_of):
    trial = trial_of(case["format"])
    name = next(name for name in trial.names if fnmatch(name, case["file"]))
    outcome = trial.run(name, decoded(case))
    assert isinstance(outcome, str), outcome
    assert case["says"] in outcome


QUICK, WHOLE = ([name for name, one in FORMATS.items() if one.command is whole] for whole in (False, True))


@pytest.mark.parametrize(
    ("name", "inputs"),
    [*((name, 15) for name in QUICK), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in WHOLE)],
)
def test_every_input_is_refused_or_read(name, inputs, trial_of, undrawn):
    trial = trial_of(name)
    outcomes = [trial.run(*trial.draw(f"suite/{number}")) for number in range(inputs)]
    assert not [one for one in outcomes if isinstance(one, Finding)]


def test_a_turn_counts_outcomes():
    done = turn(Progress("rules"), "suite", time.monotonic() + 60, limit=20)
    assert not done.findings
    assert done.inputs == done.outcomes.total() == 20


def _reached():
    """Return the modules that the formats import, and those that these import."""
    found, waiting = set(), [*(ROOT / "scripts" / "fuzzing").glob("*.py")]
    while waiting:
        said = waiting.pop().read_text("utf-8")
        for module, names in re.findall(r"^ *from (harness[\w.]*) import (\([^)]*\)|.*)", said, re.MULTILINE):
            for name in (module, *(f"{module}.{one}" for one in re.findall(r"\w+", names))):
                path = ROOT / f"{name.replace('.', '/')}.py"
                if path.is_file() and path not in found:
                    found.add(path)
                    waiting.append(path)
    return found


def test_every_module_that_parses_files_is_within_reach_of_a_format():
    """A new module that parses files needs a format in scripts/fuzzing/ that reads one of them."""
    modules = [path for path in (ROOT / "harness").rglob("*.py") if re.search(PARSERS, path.read_text("utf-8"))]
    assert {str(path.relative_to(ROOT / "harness")) for path in {*modules} - _reached()} - ELSEWHERE == set()


def _planted(read, **options):
    return Format("planted", lambda: {"file.csv": b"a,b\n1,2\n"}, read, **options)


def _file(folder: Path) -> bytes:
    return (folder / "file.csv").read_bytes()


def test_an_error_is_found_and_its_input_made_small(tmp_path):
    def read(folder):
        if b"NaN" in _file(folder):
            raise KeyError("NaN")

    trial = Trial(_planted(read), tmp_path / "input")
    assert trial.run("file.csv", b"x") == "read"
    found = trial.run("file.csv", b"a,b\n1,2\n3,xNaNy\n5,6\n")
    assert isinstance(found, Finding)
    assert found.what.startswith("KeyError")
    smallest = minimised(found, lambda content: isinstance(trial.run("file.csv", content), Finding))
    assert smallest.content == b"NaN"
    assert (tmp_path / "input" / "file.csv").read_bytes() == b"a,b\n1,2\n"


@pytest.mark.parametrize(
    ("do", "what"),
    [
        (lambda folder: time.sleep(9), "Hang"),
        (lambda folder: (folder / "x.unfinished").mkdir(), "leaves other files behind"),
        (lambda folder: (_ for _ in ()).throw(BadInput("wrong")), "a refusal does not name the file"),
        (lambda folder: (_ for _ in ()).throw(BadInput("file.csv" * 9999)), "a refusal is empty or endless"),
        (lambda folder: (_ for _ in ()).throw(Wrong("another table", "")), "another table"),
        (lambda folder: bytearray(1 << 62), "MemoryError"),
    ],
)
def test_what_must_not_happen_is_found(tmp_path, monkeypatch, do, what):
    monkeypatch.setattr(trials, "WALL_SECONDS", 0.05)
    trial = Trial(_planted(lambda folder: do(folder) if b"!" in _file(folder) else None), tmp_path / "input")
    found = trial.run("file.csv", b"!")
    assert isinstance(found, Finding)
    assert found.what.startswith(what)
    assert trial.run("file.csv", b"fine") == "read"


def test_a_valid_input_that_is_refused_is_an_error_of_the_format(tmp_path):
    def read(folder):
        raise BadInput("no")

    with pytest.raises(BadInput):
        Trial(_planted(read), tmp_path / "input")


def test_the_same_seed_gives_the_same_inputs(trial_of):
    trial = trial_of("contest")
    drawn = [trial.draw(str(number)) for number in range(50)]
    assert drawn == [trial.draw(str(number)) for number in range(50)]
    assert len({content for _, content in drawn}) > 30


@pytest.mark.parametrize("content", [b"", "가".encode(), b"\xff\r\n", *Odd])
def test_a_case_holds_any_content(content):
    assert decoded(json.loads(json.dumps(encoded(content)))) == content
