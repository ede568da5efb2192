"""The format of documents in shards."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzzing.formats import Files, Format, reads, same
from harness.data.shards import CorpusWriter, ShardedDocuments, ShardWriter, fingerprint_row
from retrievers.base import BadInput, Document

SHARDS: dict[str, Format] = {}
SHARD = "shard"
MADE = (
    Document("12", "달은 지구의 위성이다", native_id=12),
    Document("d1", "", "", "toy"),
    Document("문서", "물은 100도에서 끓는다\r\u2028", "제목", "toy"),
)


def _write(folder: Path, documents: Sequence[Document]) -> None:
    """A corpus of one shard."""
    (folder / SHARD).mkdir()
    shard, table = ShardWriter(folder / SHARD), CorpusWriter(folder, len(documents))
    for one in documents:
        row = fingerprint_row(one)
        shard.add(one, row)
        table.add(one, row)
    table.cut(shard.close())
    table.close()


def _files() -> Files:
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), MADE)
        return {
            file.relative_to(name).as_posix(): file.read_bytes() for file in Path(name).rglob("*") if file.is_file()
        }


@reads("shards", _files, SHARDS, named=False)
def _shards(folder: Path) -> None:
    read = ShardedDocuments(folder, lambda _: folder / SHARD)
    for place, one in enumerate(documents := tuple(read)):
        same(read[place], one, "a document by its place")
    for doc_id in read.by_id:
        if doc_id in read.by_id and read.by_id[doc_id] not in documents:
            raise BadInput(f"{folder}: the ids are in no order")
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), documents)
        same(tuple(ShardedDocuments(Path(name), lambda _: Path(name) / SHARD)), documents, "the documents")
