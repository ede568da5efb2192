"""The pool of a test set: which pairs of a query and a document are worth a judgement.

pool.jsonl has one `PooledPair` per line, in order of query and document; pool.json, written last, what was pooled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness.data import testset
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import json_file, json_lines, json_text, once
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from retrievers.base import Ranking

POOL, MANIFEST = "pool.jsonl", "pool.json"


@dataclass(frozen=True, slots=True)
class PooledPair:
    """A pair to judge.

    ranks: run id -> rank of the document in its list, from 1, where it is among the first `pool.depth`.
    seed: whether the document has evidence for the query. near_duplicate: whether it nearly repeats one that has.
    pi: the probability with which the pair entered the pool: 1 if a run, the seed or a near-duplicate brought it, below
        1 if it was drawn from the documents below the depth.
    """

    query_id: str
    doc_id: str
    ranks: Mapping[str, int] = field(default_factory=dict)
    seed: bool = False
    near_duplicate: bool = False
    pi: float = 1.0

    def __post_init__(self) -> None:
        if not all(rank > 0 for rank in self.ranks.values()):
            raise ValueError(f"ranks is {self.ranks!r:.60}, but must be an object of run ids and ranks from 1.")
        if not 0 < self.pi <= 1:
            raise ValueError(f"pi is {self.pi!r:.60}, but a probability above 0 and up to 1 is needed.")


@dataclass(frozen=True, slots=True)
class PooledRun:
    """A run that brought documents.

    depth: how many of each list were pooled. models: config key -> name of each model that the run asked, such as
        llm.model, rerank.model or encoder.model: a judge that is one of them judges itself.
    """

    name: str
    depth: int
    models: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DocumentsPlace:
    """Where documents are: their folder, relative to that of a test set, and the sha256 of its documents."""

    path: str
    sha256: str

    @classmethod
    def of(cls, documents: DocumentsFolder, folder: Path) -> DocumentsPlace:
        """Return the place of documents. folder: of the test set."""
        path = os.path.relpath(documents.path.absolute(), folder.absolute())
        return cls(Path(path).as_posix(), documents.fingerprint)


@dataclass(frozen=True)
class About:
    """What was pooled, as pool.json has it.

    runs: by id. sample: documents that were to be drawn for each query. seed: of the draw.
    queries: query_id -> `judgements.text_digest` of the query as it was pooled, also where nothing was found for it.
    """

    documents: DocumentsPlace
    runs: Mapping[str, PooledRun] = field(default_factory=dict)
    sample: int = 0
    seed: int = 0
    queries: Mapping[str, str] = field(default_factory=dict)
    version: Literal[1] = 1


@dataclass(frozen=True)
class Pool:
    """The pairs of a test set that are worth a judgement, in order of query and document."""

    pairs: tuple[PooledPair, ...]
    about: About

    @cached_property
    def by_query(self) -> dict[str, tuple[PooledPair, ...]]:
        """Return query_id -> its pairs; () where nothing was found for it."""
        found: dict[str, list[PooledPair]] = {query_id: [] for query_id in self.about.queries}
        for pair in self.pairs:
            found.setdefault(pair.query_id, []).append(pair)
        return {query_id: tuple(pairs) for query_id, pairs in found.items()}


def read_pool(folder: Path) -> Pool:
    """Return the pool of the test set in a folder. Raise BadInput if there is none, or for wrong rows."""
    path = folder / POOL
    testset.read_testset_manifest(folder, "testset")
    if (about := _about(folder)) is None:
        raise BadInput(
            f"testset={folder} has no {MANIFEST}: nothing is pooled. Run `harness testset pool testset={folder} "
            "experiment_name=NAME` with the experiment of some retrieval runs on this test set."
        )
    pairs: list[PooledPair] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in json_lines(path):
        pair = row_as(PooledPair, row, f"{path}:{number}")
        once(seen, (pair.query_id, pair.doc_id), "the pair", path, number)
        pairs.append(pair)
    return Pool(tuple(sorted(pairs, key=lambda pair: (pair.query_id, pair.doc_id))), about)


def write_pool(folder: Path, pool: Pool) -> None:
    """Write a pool into the folder of its test set.

    A process that is killed leaves the former pool, this one, or these pairs with the former manifest; the same command
    again then gives this one.
    """
    write_text(folder / POOL, json_text(map(encoded, pool.pairs)))
    write_text(folder / MANIFEST, json.dumps(encoded(pool.about), ensure_ascii=False, indent=1) + "\n")


def pooled_documents(folder: Path, given: Path | None) -> DocumentsFolder:
    """Return the documents of a test set: those in the folder `given`, the config key `documents`; without one, in the
    folder that `pool.json` names, else in the one that `testset.json` names. Raise BadInput without any."""
    if given:
        return DocumentsFolder(given)
    if about := _about(folder):
        return DocumentsFolder(folder / about.documents.path, f"{folder / MANIFEST}: documents.path")
    return testset.documents_of(folder, "testset", "documents")


def pooled_ranking(pairs: Iterable[PooledPair], run_id: str, queries: Iterable[str] = ()) -> Ranking:
    """Return the lists of a run, as far as they were pooled. queries: with a row even if nothing was pooled."""
    scores: dict[str, dict[str, float]] = {query_id: {} for query_id in queries}
    for pair in pairs:
        if rank := pair.ranks.get(run_id):
            scores.setdefault(pair.query_id, {})[pair.doc_id] = 1 / rank
    return Ranking.from_scores(scores)


def _about(folder: Path) -> About | None:
    path = folder / MANIFEST
    return row_as(About, json_file(path), str(path)) if path.is_file() else None
