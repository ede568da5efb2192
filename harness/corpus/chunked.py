"""Text files as a dataset, prepared in the cache and labelled by a test set with evidence."""

from __future__ import annotations

import os.path
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from harness.config.commands import ChunkKeys
from harness.config.schema import ReadPath, WritePath
from harness.corpus.chunking import Chunking
from harness.corpus.extraction import READERS
from harness.corpus.files import SourceFile, find_files
from harness.corpus.preparation import Manifest, Unreadable, preparation_identity, prepare_documents
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import some
from harness.data.testset import SpanLabelled
from harness.errors import BadInput
from harness.storage.cache import open_cache

SAMPLE = Path(__file__).parents[1] / "sample"
FOLDER = "documents"  # name of the documents folder in its cache entry


class Chunked(SpanLabelled):
    """Text files, cut into documents as `harness prepare` does, with the labels of a test set.

    The cache keeps the documents for each combination of files, settings and versions of readers. The settings can be
    swept: queries and evidence stay the same, and span measures compare runs on different chunks.

    files: paths with wildcards; None for the company profiles that ship with the package.
    testset: folder of a test set with evidence from these files; None for the test set of the shipped profiles.
    chunk: settings of `Chunking`. unreadable: see `harness.corpus.preparation.prepare_documents`.
    store: folder of the cache.
    """

    recorded_as = "dataset/chunked"
    key = "dataset.testset"

    def __init__(
        self,
        *,
        store: WritePath,
        files: list[ReadPath] | ReadPath | None = None,
        testset: ReadPath | None = None,
        chunk: Annotated[Mapping[str, Any], ChunkKeys] | None = None,
        unreadable: Unreadable = "stop",
    ) -> None:
        if (files is None) != (testset is None):
            lacking, given = ("testset", "files") if testset is None else ("files", "testset")
            raise BadInput(
                f"dataset.{given} needs dataset.{lacking}, because a test set's evidence is quoted from certain files. "
                "If you give neither, the shipped profiles and their test set are used."
            )
        super().__init__(path=testset or str(SAMPLE / "testset"))
        self._files = files or str(SAMPLE / "profiles" / "*.txt")
        self._chunking = Chunking.of(chunk or {}, "dataset.chunk")
        self._store, self._unreadable = store, unreadable

    @property
    def notes(self) -> Iterator[str]:
        if skipped := Manifest.read(self.folder.path).skipped:
            are = "file cannot be read and is" if len(skipped) == 1 else "files cannot be read and are"
            yield f"{len(skipped):,} {are} left out: {some(skipped)}."

    @cached_property
    def folder(self) -> DocumentsFolder:
        files = _named(find_files(self._files))

        def fill(entry: Path) -> None:
            prepare_documents(files, self._chunking, entry / FOLDER, self._unreadable, "dataset.")

        suffixes = {one.path.suffix.lower() for one in files}
        readers = sorted(one.recorded for one in READERS if suffixes & set(one.suffixes))
        known = preparation_identity(files, self._chunking) | {"readers": readers}
        if self._unreadable == "skip":  # unreadable="stop" must not reuse an entry that leaves files out
            known["unreadable"] = "skip"
        entry = open_cache(self._store).folder("documents", known, fill, resume=True)
        return DocumentsFolder(entry / FOLDER, "dataset.files")


def _named(files: Sequence[SourceFile]) -> list[SourceFile]:
    paths = [Path(os.path.abspath(one.path)) for one in files]  # noqa: PTH100 (links are not resolved)
    root = Path(os.path.commonpath([path.parent for path in paths]))
    names = (unicodedata.normalize("NFC", (root.name / path.relative_to(root)).as_posix()) for path in paths)
    found = (SourceFile(name, one.path) for name, one in zip(names, files, strict=True))
    return sorted(found, key=lambda one: one.name)
