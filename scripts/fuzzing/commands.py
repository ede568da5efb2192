"""Whole commands on mutated files, and mutated words and config files: exit codes, messages and what is left behind."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from fuzzing.brought import CONTEST, CORRECTED, REFERENCES, ROWS, as_csv
from fuzzing.format import Files, Wrong, reads, written
from fuzzing.kept import GATE, RULE
from harness import cli
from harness.config.commands import Command
from harness.errors import BadInput
from harness.sweeps.axes import Values
from harness.sweeps.search import Search, SweepObjective

OUT = ("outputs=out", "format=json")
QUIET = ("tracking=none", "store.path=store", *OUT)
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
LISTS = {"a.run": b"1 Q0 d1 1 2.5 x\n1 Q0 d3 2 1 x\n2 Q0 d2 1 0.5 x\n", "b.run": b"1 Q0 d3 1 9 x\n2 Q0 d9 1 1 x\n",
         "qrels.txt": b"1 0 d1 1\n1 0 d2 0\n2 0 d2 2\n"}  # fmt: skip
TEXTS = {"in/one.txt": "가나다. 라마바! 사아자.\n\n차카타.".encode(), "in/two.md": b"# One\n\n- two\n- three",
         "note.txt": b"{name}: {path}"}  # fmt: skip
PAIR = {"R.csv": as_csv(REFERENCES), "P.csv": as_csv(CORRECTED)}
OF_FILES = ("runs=[a.run,b.run]", "dataset=trec", "dataset.qrels=qrels.txt", "metric=map", *OUT)
PREPARE = ("files=in/*", "output=docs", "chunk.size=9", "chunk.overlap=5", "chunk.note=note.txt", *OUT)
FITTED = CONTEST | {"gate.json": json.dumps(PLAIN).encode()}
CALLS: dict[str, tuple[Files, str, Sequence[str], bool]] = {  # files, command, words, whether a refusal names a file
    "run": (CONTEST, "run", (*TOY, *QUIET), True),
    "run with a gate": (FITTED, "run", (*TOY, *QUIET, "gate=fitted", "gate.file=gate.json"), False),
    "prepare": (TEXTS, "prepare", PREPARE, True),
    "search": (CONTEST, "search", (*TOY, "store.path=store", *OUT[1:], "query=달"), True),
    "score lists": (CONTEST | {"P.jsonl": ROWS}, "score", (*TOY[:2], "predictions=P.jsonl", *QUIET), False),
    "compare files": (LISTS, "compare", OF_FILES, True),
    "power of files": (LISTS, "power", OF_FILES, True),
    "score corrections": (PAIR, "score", ("task=corrections", "references=R.csv", "predictions=P.csv", *QUIET), True),
}


def called(command: str, *words: str) -> None:
    """Call a command. Raise BadInput with its message for exit code 2; Wrong for a traceback or another exit code."""
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


def _call(command: str, words: Sequence[str], _: Path) -> None:
    called(command, *words)


for _name, (_files, _command, _words, _named) in CALLS.items():
    _ended = (".unfinished",) if _name == "prepare" else ()
    _reader = functools.partial(_call, _command, _words)
    reads(_name, _files, changes=True, named=_named, ended=_ended, command=True)(_reader)


@reads("words", {"run.words": WORDS.encode()}, changes=True, named=False, command=True)
def _run_words(folder: Path) -> None:
    if not (file := folder / "run.words").is_file():
        raise BadInput(f"{file} is missing")
    said = file.read_bytes().decode("utf-8", "surrogateescape")
    with mock.patch.object(Command, "load"):
        called("run", *(word for word in said.replace("\0", "").split("\n") if word))


@reads("config", {"experiment/mine.yaml": CONFIG.encode()}, changes=True, named=False, command=True)
def _config(_: Path) -> None:
    with mock.patch.object(Command, "load"):
        called("run", "--config-dir=.", "experiment=mine")


def _open_study(folder: Path) -> None:
    space = {"top_k": Values(("1", "2"), True)}
    Search("random").open(folder / "study.db", space, [SweepObjective("map", "maximize")], "sweep")


reads("study", written(_open_study), changes=True, command=True)(_open_study)
