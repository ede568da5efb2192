"""The pool of a test set: the pairs of a query and a document that are worth judging.

pool.jsonl has one `PooledPair` a line, sorted by query and document. pool.json, written last, is an encoded `About`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness.config.text import counted
from harness.data import testset
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import json_file, json_lines, json_text, once, some
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from retrievers.base import Ranking

POOL, MANIFEST = "pool.jsonl", "pool.json"


@dataclass(frozen=True, slots=True)
class PooledPair:
    """A pair to judge.

    ranks: run id -> rank in the run's list, from 1 to the run's `PooledRun.depth`.
    seed: whether the document has evidence for the query.
    near_duplicate: whether the document nearly repeats a document with evidence.
    pi: probability that the pair is in the pool: 1 for documents from the top of a list, seeds and near-duplicates;
        less for documents that were drawn at random from ranks below `PooledRun.depth`.
    """

    query_id: str
    doc_id: str
    ranks: Mapping[str, int] = field(default_factory=dict)
    seed: bool = False
    near_duplicate: bool = False
    pi: float = 1.0

    def __post_init__(self) -> None:
        if not all(rank > 0 for rank in self.ranks.values()):
            raise ValueError(f"ranks is {self.ranks!r:.60}, but must map run ids to ranks of at least 1.")
        if not 0 < self.pi <= 1:
            raise ValueError(f"pi is {self.pi!r:.60}, but a probability above 0 and up to 1 is needed.")


@dataclass(frozen=True, slots=True)
class PooledRun:
    """A run that was pooled. depth: number of documents pooled from each list. models: config key (such as
    llm.model or encoder.model) -> model that the run used. If one of these models judges, it judges its own work."""

    name: str
    depth: int
    models: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DocumentsPlace:
    """Where documents are. path: their folder, relative to the test set's folder. sha256: their fingerprint."""

    path: str
    sha256: str

    @classmethod
    def of(cls, documents: DocumentsFolder, folder: Path) -> DocumentsPlace:
        path = os.path.relpath(documents.path.absolute(), folder.absolute())
        return cls(Path(path).as_posix(), documents.fingerprint)


@dataclass(frozen=True)
class About:
    """The content of pool.json. runs: pooled runs by id. sample: number of documents to draw for each query. seed: seed
    of the draw. queries: query_id -> `judgements.text_digest`, for all queries, as they were when they were pooled."""

    documents: DocumentsPlace
    runs: Mapping[str, PooledRun] = field(default_factory=dict)
    sample: int = 0
    seed: int = 0
    queries: Mapping[str, str] = field(default_factory=dict)
    version: Literal[1] = 1


@dataclass(frozen=True)
class Pool:
    """The pairs of a test set that are worth judging, sorted by query and document."""

    pairs: tuple[PooledPair, ...]
    about: About

    @cached_property
    def by_query(self) -> dict[str, list[PooledPair]]:
        """Return query_id -> pairs, for all queries."""
        return pairs_by_query([*self.about.queries, *(pair.query_id for pair in self.pairs)], self.pairs)


def pairs_by_query(query_ids: Iterable[str], pairs: Iterable[PooledPair]) -> dict[str, list[PooledPair]]:
    found: dict[str, list[PooledPair]] = {query_id: [] for query_id in query_ids}
    for pair in pairs:
        if pair.query_id in found:
            found[pair.query_id].append(pair)
    return found


def require_documents(folder: DocumentsFolder, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise BadInput if the folder lacks some of the wanted documents. known: ids of the documents in the folder."""
    if missing := sorted({one for one in wanted if one not in known}):
        raise BadInput(
            f"{folder.path} lacks {counted(len(missing), 'pooled document')}: {some(missing)}. Were the files prepared "
            "again? Name the folder that was pooled (documents=FOLDER), or move pool.jsonl and pool.json away to begin "
            "a new pool."
        )


def read_pool(folder: Path) -> Pool:
    """Read the pool of a test set. Raise BadInput if it is missing or a row is wrong."""
    path = folder / POOL
    testset.read_testset_manifest(folder, "testset")
    if (about := _about(folder)) is None:
        raise BadInput(
            f"testset={folder} has no {MANIFEST}: nothing is pooled. Run `harness testset pool testset={folder} "
            "experiment_name=NAME` with the name of an experiment that has retrieval runs on this test set."
        )
    pairs: list[PooledPair] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in json_lines(path):
        pair = row_as(PooledPair, row, f"{path}:{number}")
        once(seen, (pair.query_id, pair.doc_id), "the pair", path, number)
        pairs.append(pair)
    return Pool(tuple(sorted(pairs, key=lambda pair: (pair.query_id, pair.doc_id))), about)


def write_pool(folder: Path, pool: Pool) -> None:
    """Write a pool into the folder of its test set. If the process is killed, the folder has the former pool, the new
    pool, or the new pairs with the former manifest. Repeating the command completes the pool."""
    write_text(folder / POOL, json_text(map(encoded, pool.pairs)))
    write_text(folder / MANIFEST, json.dumps(encoded(pool.about), ensure_ascii=False, indent=1) + "\n")


def pooled_documents(folder: Path, given: Path | None) -> DocumentsFolder:
    """Return the documents in the folder `given` (config key `documents`), or else in the folder that `pool.json` or
    `testset.json` names. Raise BadInput if neither file names a folder."""
    if given:
        return DocumentsFolder(given)
    if about := _about(folder):
        return DocumentsFolder(folder / about.documents.path, f"{folder / MANIFEST}: documents.path")
    manifest = testset.read_testset_manifest(folder, "testset")
    return testset.documents_named(folder / testset.MANIFEST, manifest, "documents")


def pooled_ranking(pairs: Iterable[PooledPair], run_id: str, queries: Iterable[str] = ()) -> Ranking:
    """Return the pooled part of a run's lists. queries: ids that get a row even if nothing was pooled for them."""
    scores: dict[str, dict[str, float]] = {query_id: {} for query_id in queries}
    for pair in pairs:
        if rank := pair.ranks.get(run_id):
            scores.setdefault(pair.query_id, {})[pair.doc_id] = 1 / rank
    return Ranking.from_scores(scores)


def _about(folder: Path) -> About | None:
    path = folder / MANIFEST
    return row_as(About, json_file(path), str(path)) if path.is_file() else None
