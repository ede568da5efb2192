"""Whole commands on mutated files, and mutated words and config files: exit codes, messages and what is left behind."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from pathlib import Path
from unittest import mock

from fuzzing.formats import CONTEST, CORRECTED, GATE, REFERENCES, ROWS, RULE, Files, Format, Wrong, reads, rows_as_csv
from harness import cli
from harness.commands.sweep.axes import Values
from harness.commands.sweep.search import Objective, Search
from retrievers.base import BadInput

COMMANDS: dict[str, Format] = {}
QUIET = ("tracking=none", "outputs=out", "store.path=store", "format=json")
TOY = ("dataset=contest", "dataset.path=.", "tokenizer=word")
PLAIN = GATE | {"rule": {name: value for name, value in RULE.items() if not name.startswith("embedding")}}
WORDS = """retriever=bm25
retriever.bm25.k1=1.2
tokenizer=word
top_k=3
depth=10
gate=score
gate.threshold=2.5
metrics=[modified_map@3,ndcg@10]
seed=1
public=0.3
query.file=null
dataset=contest
dataset.path=.
experiment_name=e
"""
CONFIG = """# @package _global_
defaults:
  - override /retriever: hybrid_lexical
  - override /gate: auto

top_k: 2
retriever:
  bm25:
    b: 0.5
gate:
  signals: [top_score]
"""


def called(command: str, *words: str) -> None:
    """Call a command. BadInput with its message for exit code 2; Wrong for a traceback or another exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.call(command, list(words))
    said = err.getvalue()
    if "Traceback (most recent call last)" in said:
        errors = re.findall(r"^(?:harness [a-z ]+ failed: )?([\w.]+): ", said, re.MULTILINE)
        raise Wrong(f"a traceback: {errors[-1] if errors else 'unknown'}", said)
    if code not in (0, 2) or (code == 2 and not said.strip()):
        raise Wrong(f"harness {command} ends with {code}", said)
    if code == 2:
        raise BadInput(said)


@reads("run", CONTEST, COMMANDS, changes=True)
def _run(_: Path) -> None:
    called("run", *TOY, *QUIET)


@reads("run with a gate", CONTEST | {"gate.json": json.dumps(PLAIN).encode()}, COMMANDS, changes=True, named=False)
def _fitted(_: Path) -> None:
    called("run", *TOY, *QUIET, "gate=fitted", "gate.file=gate.json")


@reads("prepare", {"in/one.txt": "가나다. 라마바! 사아자.\n\n차카타.".encode(), "in/two.md": b"# One\n\n- two\n- three",
                   "note.txt": b"{name}: {path}"}, COMMANDS, changes=True, ended=(".unfinished",))  # fmt: skip
def _prepare(_: Path) -> None:
    words = ("files=in/*", "output=docs", "chunk.size=9", "chunk.overlap=5", "chunk.note=note.txt", "format=json")
    called("prepare", *words, "outputs=out")


@reads("search", CONTEST, COMMANDS, changes=True)
def _search(_: Path) -> None:
    called("search", *TOY, *QUIET[2:], "query=달")


@reads("score lists", CONTEST | {"P.jsonl": ROWS}, COMMANDS, changes=True, named=False)
def _lists(_: Path) -> None:
    called("score", *TOY[:2], "predictions=P.jsonl", *QUIET)


LISTS = {"a.run": b"1 Q0 d1 1 2.5 x\n1 Q0 d3 2 1 x\n2 Q0 d2 1 0.5 x\n", "b.run": b"1 Q0 d3 1 9 x\n2 Q0 d9 1 1 x\n",
         "qrels.txt": b"1 0 d1 1\n1 0 d2 0\n2 0 d2 2\n"}  # fmt: skip
TREC = ("dataset=trec", "dataset.qrels=qrels.txt", "metric=map")


@reads("compare files", LISTS, COMMANDS, changes=True)
def _compare(_: Path) -> None:
    called("compare", "runs=[a.run,b.run]", *TREC, "outputs=out", "format=json")


@reads("power of files", LISTS, COMMANDS, changes=True)
def _power(_: Path) -> None:
    called("power", "runs=[a.run,b.run]", *TREC, "outputs=out", "format=json")


@reads("score corrections", {"R.csv": rows_as_csv(REFERENCES), "P.csv": rows_as_csv(CORRECTED)}, COMMANDS, changes=True)
def _corrections(_: Path) -> None:
    called("score", "task=corrections", "references=R.csv", "predictions=P.csv", *QUIET)


@reads("words", {"run.words": WORDS.encode()}, COMMANDS, changes=True, named=False)
def _words(folder: Path) -> None:
    if not (file := folder / "run.words").is_file():
        raise BadInput(f"{file} is no file")
    text = file.read_bytes().decode("utf-8", "surrogateescape")
    with mock.patch.object(cli, "_function", return_value=lambda config, invocation: None):
        called("run", *(word for word in text.replace("\0", "").split("\n") if word))


@reads("config", {"experiment/mine.yaml": CONFIG.encode()}, COMMANDS, changes=True, named=False)
def _config(_: Path) -> None:
    with mock.patch.object(cli, "_function", return_value=lambda config, invocation: None):
        called("run", "--config-dir=.", "experiment=mine")


def _studies() -> Files:
    with tempfile.TemporaryDirectory() as name:
        _open_study(Path(name))
        return {"study.db": (Path(name) / "study.db").read_bytes()}


@reads("study", _studies, COMMANDS, changes=True)
def _open_study(folder: Path) -> None:
    space = {"top_k": Values(("1", "2"), True)}
    Search("random").open(folder / "study.db", space, [Objective("map", "maximize")], "sweep")
