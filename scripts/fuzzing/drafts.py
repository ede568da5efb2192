"""Formats of drafting: real queries as examples, a test set to go on with, and what a model replies."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from fuzzing.formats import Files, Format, Wrong, lines, reads, same
from harness.data.spans import Evidence, Span
from harness.data.testset import read_queries
from harness.llm.structured import WrongReply
from harness.testset.drafts import KINDS, Draft, Rejection
from harness.testset.examples import read_examples, shown
from harness.testset.folder import TestsetFolder
from harness.testset.replies import read_as
from retrievers.base import BadInput, Turn

DRAFTS: dict[str, Format] = {}
TALK = [
    {"role": "user", "content": "달은?"},
    {"role": "assistant", "content": "위성."},
    {"role": "user", "content": "왜?"},
]
REAL = lines({"eval_id": 7, "msg": TALK[:1], "relevant": ["d1"]}, {"eval_id": "b", "msg": TALK, "relevant": {"d2": 2}})


@reads("examples", {"real.jsonl": REAL, "real.txt": "달은 왜 둥글어\n끓는점 물\n".encode()}, DRAFTS)
def _examples(folder: Path) -> None:
    for name in ("real.jsonl", "real.txt"):
        found = read_examples(folder / name)
        if any(not text.startswith("- ") for kind in KINDS for text in shown(found.queries, kind, 0).split("\n")):
            raise Wrong("an example is more than a line", repr(found.queries)[:300])


SETTINGS = {"llm": {"model": "tiny"}, "seed": 0}
EVIDENCE = Evidence(Span("0123456789abcdef0123", 3, 5), "위성", "달은 ", "이다.")
FACT = Draft("fact", (Turn("user", "달은?"),), "위성이다.", (EVIDENCE,), "d1")


def _drafted() -> Files:
    with tempfile.TemporaryDirectory() as name:
        TestsetFolder(Path(name), SETTINGS).write([FACT], [Rejection(FACT, "copied", "x")], {"shown": 2})
        files = {path.name: path.read_bytes() for path in Path(name).iterdir()}
    return files | {"unfinished.json": json.dumps({"queries.jsonl": "ab", "rejected.jsonl": "cd"}).encode()}


@reads("drafted test set", _drafted, DRAFTS, changes=True, named=False)
def _testset(folder: Path) -> None:
    drafted = TestsetFolder(folder, SETTINGS)
    drafted.check(3)
    drafted.write([FACT], [], {"shown": 3})
    [query] = read_queries(folder)
    same(query.evidence, FACT.evidence, "the evidence")


ANSWERED = {"answer": "위성이다.", "evidence": ["위성"]}
REPLIES = {
    "fact": {"question": "달은 무엇인가?", **ANSWERED},
    "conversation": {"turns": TALK, **ANSWERED},
    "unanswerable": {"question": "달은 누가 그렸나?", "missing": "달의 화가"},
}


@reads(
    "drafted reply",
    {f"{kind}.json": json.dumps({"items": [item]}, ensure_ascii=False).encode() for kind, item in REPLIES.items()},
    DRAFTS,
    refusals=(WrongReply, BadInput),
    named=False,
)
def _reply(folder: Path) -> None:
    for kind in REPLIES:
        if not (folder / f"{kind}.json").is_file():
            raise WrongReply("there is no reply")
        for item in read_as(kind)((folder / f"{kind}.json").read_bytes().decode("utf-8", "replace")):
            if not item.turns or not all(turn.content.strip() for turn in item.turns):
                raise Wrong("a turn is blank", repr(item)[:300])
