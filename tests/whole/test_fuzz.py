"""The fuzzer: what it has found stays mended, every reader is one of its formats, and it finds what is wrong."""

import ast
import json
import os
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest
from fuzz import ALL, CASES, READ, decoded, encoded, minimised, turn
from fuzzing import trial as trials
from fuzzing.commands import COMMANDS
from fuzzing.formats import Format, Wrong
from fuzzing.mutations import Odd
from fuzzing.trial import Finding, Trial

from retrievers.base import BadInput

ROOT = Path(__file__).resolve().parents[2]
READING = {"open", "read_text", "read_bytes", "loads", "reader", "safe_load", "compose", "open_memmap", "ParquetFile",
           "opened", "numbered_lines", "json_lines", "json_file", "json_objects", "strict_reader", "read_columns",
           "read_table", "read_config", "PdfDocument", "LexborHTMLParser", "ZipFile", "ParserCreate"}  # fmt: skip
SHIPPED, VERIFIED, SAME = "a file of this package", "its checksum is verified first", "written by the same sweep"
APART = "in a process of its own"
ELSEWHERE = {  # functions that open or parse something, and why no valid input reaches them
    "api.py:_called": "format `config`, through the command line",
    "board/page.py:is_board": "compares the first bytes of a regular file",
    "board/proposals/command_line.py:CommandLine.composed": "format `config`, as the command line",
    "board/proposals/logged.py:_of_files": "formats `scores.csv` and `run.trec`",
    "board/proposals/logged.py:_others": "format `scores.csv`",
    "board/settings.py:_values": SHIPPED,
    "cli.py:_drop_output": "opens /dev/null",
    "commands/compare/command.py:comparison": "format `compare files`",
    "commands/doctor/engine.py:_used": VERIFIED,
    "commands/doctor/store.py:_file_system": "about this machine",
    "commands/export/history.py:_refuse": "names the file that a refusal is about",
    "commands/export/ledger.py:_exported": "takes a damaged file for a foreign one",
    "commands/export/model.py:_pack": "a gate.json that has been read before",
    "commands/export/model.py:load": VERIFIED,
    "commands/power.py:power": "format `power of files`",
    "commands/prepare.py:_first_words": "written by the same process",
    "commands/sweep/auto/budget.py:StepLog.note": "writes",
    "commands/sweep/auto/course.py:AutoCourse._replay": VERIFIED,
    "commands/sweep/auto/procedure.py:Replayed.from_json": VERIFIED,
    "commands/sweep/definition.py:Sweep.open_study": "format `study`",
    "commands/sweep/ending.py:_values": "format `scores.csv`",
    "commands/sweep/trials.py:Jobs.__call__": SAME,
    "commands/sweep/trials.py:run_job": SAME,
    "commands/sweep/trials.py:write_journal": "writes",
    "commands/sweep/work.py:dataset_of": "parses an argument",
    "commands/ui.py:_announce": "opens a browser",
    "config/check.py:shipped_keys": SHIPPED,
    "cluster/ray_worker.py:versions": "hashes the files of this package",
    "config/components.py:_recorded_classes": SHIPPED,
    "config/components.py:plugin_targets": "the files of an installed package",
    "config/leash.py:_shipped": SHIPPED,
    "corpus/apart.py:_held": "about this machine",
    "corpus/apart.py:serve": APART,
    "corpus/readers/pdf.py:read": f"{APART}: format `pdf`",
    "data/dataset.py:_line_of": "finds the line that a refusal is about",
    "data/run_file.py:_line_with": "finds the line that a refusal is about",
    "pipeline/bucket.py:Bucket.upload": "sends",
    "pipeline/cache.py:Cache.contents": VERIFIED,
    "pipeline/cached_parts.py:CachedEncoder.encode_queries": VERIFIED,
    "pipeline/document_sort.py:DocumentSort._spilled": "writes",
    "pipeline/document_sort.py:_read": "written by the same process",
    "pipeline/gate_inputs.py:CachedInputs.remember": VERIFIED,
    "pipeline/object_cache.py:ObjectCache._build": VERIFIED,
    "pipeline/object_cache.py:ObjectCache._machine": "written by the harness, compared as it is",
    "pipeline/object_cache.py:ObjectCache.adding": "sends",
    "pipeline/searcher.py:Searcher._over_shards": VERIFIED,
    "pipeline/shard_jobs.py:_queries": VERIFIED,
    "pipeline/shard_jobs.py:_retriever": "the config that the client sends",
    "pipeline/shared_log.py:SharedLog.fetch": "format `reply log`, which reads what is fetched",
    "pipeline/shared_log.py:SharedLog.send": "sends",
    "pipeline/timing.py:_gpus": "about this machine",
    "pipeline/timing.py:_processor": "about this machine",
    "pipeline/timing.py:known": VERIFIED,
    "reports/page.py:_template": SHIPPED,
    "tasks/pair_models.py:_rembert_config": "a model of a person's choice, read by transformers too",
    "testset/review/server.py:_Handler._body": "of requests: tests/testset/test_review_server.py",
    "testset/review/server.py:_Handler._shown": SHIPPED,
    "tracking/file_hashes.py:_read": "a tag of a run: tests/whole/test_edited_files.py",
    "tracking/in_progress.py:claim": "writes",
    "tracking/provenance.py:_yaml": "parses what it has just written",
    "tracking/provenance.py:requirements": "the metadata of installed packages",
}


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
            made[name] = Trial(ALL[name], tmp_path_factory.mktemp("fuzz") / "input")
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


@pytest.mark.parametrize("name", READ)
def test_every_input_is_refused_or_read(name):
    done = turn(name, "suite", 0, seconds=0, known=frozenset(), limit=25)
    assert not done.findings
    assert done.outcomes.total() == 25


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_or_reads(name, undrawn):
    assert not turn(name, "suite", 0, seconds=0, known=frozenset(), limit=3).findings


def _functions(tree: ast.AST, names: tuple[str, ...] = ()):
    """(qualified name, function) of every function, those within others counted with them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield ".".join((*names, node.name)), node
        else:
            yield from _functions(node, (*names, node.name) if isinstance(node, ast.ClassDef) else names)


def readers():
    """`module.py:function` of every function of the harness that opens or parses something."""
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for name, function in _functions(ast.parse(path.read_text("utf-8"))):
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            called = {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}
            if called & READING or any(ast.unparse(call) in ("np.load", "parquet.read_table") for call in calls):
                yield f"{path.relative_to(ROOT / 'harness').as_posix()}:{name}"


def test_every_reader_is_fuzzed(trial_of):
    """A new function that opens or parses something needs a format in scripts/fuzzing/, or a reason here."""
    reached = set()

    def note(frame, event, _):
        if event == "call" and "/harness/" in frame.f_code.co_filename:
            place = frame.f_code.co_filename.rpartition("/harness/")[2]
            reached.add(f"{place}:{frame.f_code.co_qualname.partition('.<locals>')[0]}")

    for name in READ:
        trial = trial_of(name)
        os.chdir(trial.folder)
        sys.setprofile(note)
        try:
            trial.kind.read(trial.folder)
        finally:
            sys.setprofile(None)
        trial._fill()
    found = set(readers())
    assert sorted(found - reached - ELSEWHERE.keys()) == []
    assert sorted(ELSEWHERE.keys() - found) == [], "these read nothing any more"


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
    assert minimised(found, lambda content: isinstance(trial.run("file.csv", content), Finding)) == b"NaN"
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
