"""The format of frozen test sets."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from fuzzing.evidence import labelled_folder
from fuzzing.formats import Files, Format, Wrong, reads, same
from harness.data.checked_labels import FrozenQrels
from harness.data.dataset import load
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import json_file
from harness.data.frozen import FROZEN, Frozen, manifest_digest
from harness.data.testset import read_queries
from harness.testset import exports, freezing
from harness.testset.audit_sample import AuditSample
from harness.testset.freezing import Material
from harness.testset.judgements import Judgement, text_digest
from harness.testset.pool import PooledPair

FROZEN_SETS: dict[str, Format] = {}
VERSION = "ts/v1"
AUDITED = ("ts/agreement.json", "ts/judgements.jsonl")
AGREED = {"progress": {"checked": ["7"]}, "relevant_from": 2, "models": ["tiny#0123"], "judgements": "0" * 64,
          "model": {"statistics": {"kappa": {"value": 0.5, "low": None}}}, "again": None, "alpha": None}  # fmt: skip


def _frozen() -> Files:
    """Four queries of all kinds on five documents, judged by a model, two of them also by a person."""
    made = dict(labelled_folder())
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path, content in made.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        folder, queries = DocumentsFolder(root / "docs"), read_queries(root / "ts")
        chunks = list(folder.chunks())
        judgements: list[Judgement] = []
        for number, one in enumerate(queries):
            about: dict[str, Any] = {"query_id": one.query.query_id, "text": text_digest(one.query), "at": "2026-11-22"}
            for place, chunk in enumerate(chunks[:3]):
                grade = 0 if one.kind == "unanswerable" else (number + place) % 4
                judgements.append(Judgement(doc_id=chunk.document.doc_id, grade=grade, by="llm:tiny#0123", **about))
                if number < 2:
                    by = {"by": "human:kim", "sample": "audit"}
                    judgements.append(Judgement(doc_id=chunk.document.doc_id, grade=3 - place, **by, **about))
            judgements.append(Judgement(doc_id=None, grade=None, needs=True, by="human:kim", sample="audit", **about))
        strata = {one.query.query_id: one.kind for one in queries}
        pairs = [PooledPair(one.query_id, one.doc_id) for one in judgements if one.doc_id]
        sample = AuditSample(strata, tuple(strata)[:2], frozenset())
        output = root / VERSION
        material = Material(queries, folder, chunks, pairs, judgements, sample, 2)
        freezing.write(output, freezing.snapshot(material, 1, None, output))
        for path in sorted(output.iterdir()):
            made[f"{VERSION}/{path.name}"] = path.read_bytes()
    made["ts/agreement.json"] = json.dumps(AGREED).encode()
    made["ts/judgements.jsonl"] = b""
    return {path: content for path, content in made.items() if path.startswith(("docs/", VERSION, *AUDITED))}


@reads("frozen test set", _frozen, FROZEN_SETS, changes=True)
def _read_frozen(folder: Path) -> None:
    """As it is, and with the checksums of what it has become: they would hide what the reader makes of its content."""
    with contextlib.suppress(Exception):
        _seal(folder / VERSION)
    read = load(Frozen(path=str(folder / VERSION)), "frozen")
    assert isinstance(read.qrels, FrozenQrels)
    for query_id, grades in read.qrels.grades.items():
        if {*grades} & (read.qrels.not_relevant or {}).get(query_id, frozenset()):
            raise Wrong("a document that is relevant and is not", query_id)
    same(load(Frozen(path=str(folder / VERSION)), "frozen").fingerprints, read.fingerprints, "the dataset")
    if read.qrels.checked:
        assert {*read.qrels.checked.people.grades} <= {*read.qrels.checked.strata}
    exports.export(folder / VERSION, ["contest", "trec"])
    freezing.read_agreement(folder / "ts")


def _seal(version: Path) -> None:
    manifest = json_file(version / FROZEN)
    names = [name for name in manifest["files"] if (version / name).is_file()]
    manifest["files"] |= {name: hashlib.sha256((version / name).read_bytes()).hexdigest() for name in names}
    (version / FROZEN).write_text(json.dumps(manifest | {"sha256": manifest_digest(manifest)}))
