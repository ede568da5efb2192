"""Formats of test sets with evidence, and of the documents that they label."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from fuzzing.formats import Files, Format, Wrong, lines, reads, same
from harness.corpus.chunked import Chunked
from harness.data.dataset import load
from harness.data.documents_folder import DocumentsFolder
from harness.data.span_labels import SpanQrels
from harness.data.testset import SpanLabelled
from harness.evaluation.measures import SPAN_MEASURES
from harness.evaluation.scores import ShownLists, score
from retrievers.base import Ranking

EVIDENCE: dict[str, Format] = {}
SEA = "해달은 조개를 돌로 깬다. 문어는 다리가 여덟이다.\r\u2028 고래는 젖을 먹인다."
EDITED = "제비는 처마에 집을 짓는다. 두루미는 겨울에 온다."


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _piece(text: str, exact: str, source: str = "", **more: object) -> dict[str, object]:
    start = text.index(exact)
    place = {"text": _id(source or text), "start": start, "end": start + len(exact)}
    return place | {"exact": exact, "prefix": text[:start], "suffix": text[start + len(exact) :]} | more


def _row(query_id: object, question: str, kind: str, *evidence: dict[str, object]) -> dict[str, object]:
    turns = [{"role": "user", "content": question}]
    row = {"eval_id": query_id, "msg": turns, "kind": kind, "needs": kind != "none", "answer": "", "docid": ""}
    return row | {"evidence": list(evidence), "flags": []}


QUERIES = lines(
    _row(7, "해달은?", "fact", _piece(SEA, "해달은 조개를 돌로 깬다.", grade=2)),
    _row("q2", "새", "search", _piece(EDITED, "두루미는 겨울에 온다.", source="its text before the edit")),
    _row("q3", "안녕", "none"),
    _row("q4", "상어는?", "unanswerable"),
)
MANIFEST = {"version": 1, "documents": {"path": "../docs"}}


def labelled_folder() -> Files:
    documents = [
        {"title": "바다", "content": text[place : place + 16], "src": "a",
         "spans": [{"text": _id(text), "start": place, "end": min(place + 16, len(text))}]}
        for text in (SEA, EDITED) for place in range(0, len(text), 16)
    ]  # fmt: skip
    for number, row in enumerate(documents):
        row["docid"] = f"d{number}"
    files = [{"path": f"{number}.txt", "text": _id(text)} for number, text in enumerate((SEA, EDITED))]
    return {
        "docs/documents.jsonl": lines(*documents),
        "docs/files.jsonl": lines(*files),
        "docs/manifest.json": b'{"version": 1}',
        **{f"docs/texts/{_id(text)}.txt": text.encode() for text in (SEA, EDITED)},
        "ts/queries.jsonl": QUERIES,
        "ts/testset.json": json.dumps(MANIFEST).encode(),
    }


@reads("test set", labelled_folder, EVIDENCE)
def _testset(folder: Path) -> None:
    read = load(SpanLabelled(path=str(folder / "ts")), "testset")
    DocumentsFolder(folder / "docs").paths()
    DocumentsFolder(folder / "docs").near_duplicates()
    assert isinstance(read.qrels, SpanQrels)
    for query_id, grades in read.qrels.grades.items():
        if bool(grades) != bool(read.qrels.evidence.get(query_id)):
            raise Wrong("a label without evidence", f"{query_id}: {grades}")
    if read.qrels.grades and read.fingerprints:
        found = Ranking.from_scores({one.query_id: {read.documents[0].doc_id: 1.0} for one in read.queries})
        score(ShownLists(found), read.qrels, SPAN_MEASURES)


@reads("chunked", {
    "corpus/sea.txt": SEA.encode(),
    "ts/queries.jsonl": lines(_row(7, "해달은?", "fact", _piece(SEA, "해달은 조개를 돌로 깬다."))),
    "ts/testset.json": b'{"version": 1}',
}, EVIDENCE, changes=True, named=False)  # fmt: skip
def _chunked(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as store:
        source = Chunked(store=store, files=str(folder / "corpus" / "*.txt"), testset=str(folder / "ts"))
        read = load(source, "chunked")
        same(load(source, "chunked").fingerprints, read.fingerprints, "the dataset")
