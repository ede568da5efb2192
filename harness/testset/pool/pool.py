"""The pool of a test set: which pairs of a query and a document are worth a judgement.

pool.jsonl: {query, doc, ranks: {run: rank}, seed, near_duplicate, pi}, one line per pair, in order of query and doc.
pool.json:  {version, documents: {path, sha256}, runs: {run: {name, depth, models}}, sample, seed,
            queries: {query: text}}: what was pooled; written last. `path` is relative to the test set, `text` the
            digest of the query as pooled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from harness.data import testset
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import field as value_of
from harness.data.files import identifier, json_file, json_lines, json_text, once, required
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from retrievers.base import Ranking

POOL, MANIFEST = "pool.jsonl", "pool.json"
VERSION = 1


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

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth is {self.depth}, but must be a whole number from 0.")


@dataclass(frozen=True)
class About:
    """What was pooled, and from what.

    documents: the folder of the documents, relative to the test set. documents_sha256: of its documents.
    runs: run id -> the run. sample: documents that were to be drawn for each query. seed: of the draw.
    queries: query_id -> `judgements.text_digest` of the query as it was pooled, also where nothing was found for it.
    """

    documents: str
    documents_sha256: str
    runs: Mapping[str, PooledRun] = field(default_factory=dict)
    sample: int = 0
    seed: int = 0
    queries: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.sample, self.seed) < 0:
            raise ValueError("sample and seed must be whole numbers from 0.")


@dataclass(frozen=True)
class Pool:
    """The pairs of a test set that are worth a judgement, in order of query and doc."""

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
    manifest, path = folder / MANIFEST, folder / POOL
    testset.read_testset_manifest(folder, "testset")
    if not manifest.is_file():
        raise BadInput(
            f"testset={folder} has no {MANIFEST}: nothing is pooled. Run `harness testset pool testset={folder} "
            "experiment_name=NAME` with the experiment of some retrieval runs on this test set."
        )
    about = _about(manifest)
    pairs: list[PooledPair] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in json_lines(path):
        where = f"{path}:{number}"
        query_id, doc_id = (identifier(row, key, where)[0] for key in ("query", "doc"))
        once(seen, (query_id, doc_id), "the pair", path, number)
        rest = {key: value for key, value in row.items() if key not in ("query", "doc")}
        pairs.append(row_as(PooledPair, {"query_id": query_id, "doc_id": doc_id, **rest}, where))
    return Pool(tuple(sorted(pairs, key=lambda pair: (pair.query_id, pair.doc_id))), about)


def write_pool(folder: Path, pool: Pool) -> None:
    """Write a pool into the folder of its test set.

    A process that is killed leaves the former pool, this one, or these pairs with the former manifest; the same command
    again then gives this one.
    """
    rows = map(encoded, pool.pairs)
    pairs = ({"query": row.pop("query_id"), "doc": row.pop("doc_id"), **row} for row in rows)
    write_text(folder / POOL, json_text(pairs))
    about = asdict(pool.about)
    documents = {"path": about.pop("documents"), "sha256": about.pop("documents_sha256")}
    content = {"version": VERSION, "documents": documents, **about}
    write_text(folder / MANIFEST, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def pooled_documents(folder: Path, given: Path | None) -> DocumentsFolder:
    """Return the documents of a test set: those in the folder `given`; without one, the folder that `pool.json` names,
    else the one that `testset.json` names. Raise BadInput if none does, or if it is no finished folder.

    folder: of the test set. given: the config key `documents`.
    """
    if given:
        return DocumentsFolder(given)
    if (manifest := folder / MANIFEST).is_file():
        return DocumentsFolder(folder / _about(manifest).documents, f"{manifest}: documents.path")
    named = testset.read_testset_manifest(folder, "testset").get("documents")
    where = str(folder / testset.MANIFEST)
    if named is None:
        raise BadInput(f"{where} names no documents folder. Give it: documents=FOLDER.")
    if not isinstance(named, dict):
        raise BadInput(f"{where}: documents is {named!r:.60}, but must be an object.")
    return DocumentsFolder(folder / value_of(named, "path", str, where), f"{where}: documents.path")


def pooled_ranking(pairs: Iterable[PooledPair], run_id: str, queries: Iterable[str] = ()) -> Ranking:
    """Return the lists of a run, as far as they were pooled.

    queries: those that have a row although nothing was pooled for them.
    """
    scores: dict[str, dict[str, float]] = {query_id: {} for query_id in queries}
    for pair in pairs:
        if rank := pair.ranks.get(run_id):
            scores.setdefault(pair.query_id, {})[pair.doc_id] = 1 / rank
    return Ranking.from_scores(scores)


def models_of(params: Mapping[str, str]) -> dict[str, str]:
    """Return config key -> name of each model that a logged run asked. params: what the run has logged."""
    return {key: value for key, value in sorted(params.items()) if key.endswith(".model") and value != "null"}


def relative_place(documents: DocumentsFolder, folder: Path) -> str:
    """Return where a documents folder is, relative to another folder, such as a test set's."""
    return Path(os.path.relpath(documents.path.absolute(), folder.absolute())).as_posix()


def _about(path: Path) -> About:
    content, where = json_file(path), str(path)
    if (version := required(content, "version", where)) != VERSION:
        raise BadInput(f"{where}: version is {version!r:.60}, but this harness reads version {VERSION}.")
    documents = value_of(content, "documents", dict, where)
    rest = {key: value for key, value in content.items() if key not in ("version", "documents")}
    place, sha256 = (required(documents, key, where) for key in ("path", "sha256"))
    return row_as(About, {"documents": place, "documents_sha256": sha256, **rest}, where)
