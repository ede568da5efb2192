"""The pool of a test set: which pairs of a query and a document are worth a judgement.

pool.jsonl: {query, doc, ranks: {run: rank}, seed, near_duplicate, pi}, one line per pair, in order of query and doc.
pool.json:  {version, documents: {path, sha256}, runs: {run: {name, depth, models}}, sample, seed,
            queries: {query: text}}: what was pooled; written last. `path` is relative to the test set, `text` the
            digest of the query as pooled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.data import testset
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import as_id, json_file, json_lines, json_text, once, required
from harness.data.files import field as value_of
from harness.errors import BadInput
from harness.storage.atomic import write_text

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


@dataclass(frozen=True)
class Pool:
    """The pairs of a test set that are worth a judgement, in order of query and doc."""

    pairs: tuple[PooledPair, ...]
    about: About

    @cached_property
    def by_query(self) -> dict[str, tuple[PooledPair, ...]]:
        """query_id -> its pairs; () where nothing was found for it."""
        found: dict[str, list[PooledPair]] = {query_id: [] for query_id in self.about.queries}
        for pair in self.pairs:
            found.setdefault(pair.query_id, []).append(pair)
        return {query_id: tuple(pairs) for query_id, pairs in found.items()}


def read_pool(folder: Path) -> Pool:
    """The pool of a test set. BadInput if there is none, or for wrong rows.

    folder: of the test set.
    """
    manifest = folder / MANIFEST
    testset.read_testset_manifest(folder, "testset")
    if not manifest.is_file():
        raise BadInput(
            f"testset={folder} has no {MANIFEST}: nothing is pooled. Run `harness testset pool testset={folder} "
            "experiment_name=NAME` with the experiment of some retrieval runs on this test set."
        )
    about = _about(json_file(manifest), str(manifest))
    return Pool(_pairs(folder / POOL), about)


def write_pool(folder: Path, pool: Pool) -> None:
    """Write a pool into the folder of its test set.

    A process that is killed leaves the former pool, this one, or these pairs with the former manifest; the same command
    again then gives this one.
    """
    about = pool.about
    write_text(folder / POOL, json_text(map(_row, pool.pairs)))
    content = {
        "version": VERSION,
        "documents": {"path": about.documents, "sha256": about.documents_sha256},
        "runs": {
            run_id: {"name": run.name, "depth": run.depth, "models": dict(run.models)}
            for run_id, run in about.runs.items()
        },
        "sample": about.sample,
        "seed": about.seed,
        "queries": dict(about.queries),
    }
    write_text(folder / MANIFEST, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def pooled_documents(folder: Path, given: Path | None) -> DocumentsFolder:
    """The documents of a test set: those in the folder `given`; without one, the folder that `pool.json` names, else
    the one that `testset.json` names. BadInput if none does, or if it is no finished folder.

    folder: of the test set. given: the config key `documents`.
    """
    if given:
        return DocumentsFolder(given)
    if (manifest := folder / MANIFEST).is_file():
        path = folder / _about(json_file(manifest), str(manifest)).documents
        return DocumentsFolder(path, f"{manifest}: documents.path")
    named = testset.read_testset_manifest(folder, "testset").get("documents")
    where = str(folder / testset.MANIFEST)
    if named is None:
        raise BadInput(f"{where} names no documents folder. Give it: documents=FOLDER.")
    if not isinstance(named, dict):
        raise BadInput(f"{where}: documents is {named!r:.60}, but must be an object.")
    return DocumentsFolder(folder / value_of(named, "path", str, where), f"{where}: documents.path")


def models_of(params: Mapping[str, str]) -> dict[str, str]:
    """Config key -> name of each model that a logged run asked. params: what the run has logged."""
    return {key: value for key, value in sorted(params.items()) if key.endswith(".model") and value != "null"}


def relative_place(documents: DocumentsFolder, folder: Path) -> str:
    """Where a documents folder is, relative to a test set's."""
    return Path(os.path.relpath(documents.path.absolute(), folder.absolute())).as_posix()


def _row(pair: PooledPair) -> dict[str, Any]:
    return {
        "query": pair.query_id,
        "doc": pair.doc_id,
        "ranks": dict(pair.ranks),
        "seed": pair.seed,
        "near_duplicate": pair.near_duplicate,
        "pi": pair.pi,
    }


def _pairs(path: Path) -> tuple[PooledPair, ...]:
    pairs: list[PooledPair] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in json_lines(path):
        pair = _pair(row, f"{path}:{number}")
        once(seen, (pair.query_id, pair.doc_id), "the pair", path, number)
        pairs.append(pair)
    return tuple(sorted(pairs, key=lambda pair: (pair.query_id, pair.doc_id)))


def _pair(row: Mapping[str, Any], where: str) -> PooledPair:
    query_id, doc_id = (as_id(required(row, key, where), key, where)[0] for key in ("query", "doc"))
    ranks, pi = row.get("ranks", {}), row.get("pi", 1.0)
    if not isinstance(ranks, dict) or not all(type(rank) is int and rank > 0 for rank in ranks.values()):
        raise BadInput(f"{where}: ranks is {ranks!r:.60}, but must be an object of run ids and ranks from 1.")
    if isinstance(pi, bool) or not isinstance(pi, int | float) or not 0 < pi <= 1:
        raise BadInput(f"{where}: pi is {pi!r:.60}, but a probability above 0 and up to 1 is needed.")
    seed, near = row.get("seed", False), row.get("near_duplicate", False)
    for key, value in (("seed", seed), ("near_duplicate", near)):
        if not isinstance(value, bool):
            raise BadInput(f"{where}: {key} is {value!r:.60}, but must be true or false.")
    return PooledPair(query_id, doc_id, ranks, seed, near, float(pi))


def _about(content: Mapping[str, Any], where: str) -> About:
    if (version := required(content, "version", where)) != VERSION:
        raise BadInput(f"{where}: version is {version!r:.60}, but this harness reads version {VERSION}.")
    documents = value_of(content, "documents", dict, where)
    queries = value_of(content, "queries", dict, where)
    for query_id, text in queries.items():
        if not isinstance(text, str):
            raise BadInput(f"{where}: queries.{query_id:.60} is {text!r:.60}, but must be a digest.")
    runs = {
        run_id: _run(run, f"{where}: runs.{run_id:.60}")
        for run_id, run in value_of(content, "runs", dict, where).items()
    }
    return About(
        documents=value_of(documents, "path", str, where),
        documents_sha256=value_of(documents, "sha256", str, where),
        runs=runs,
        sample=_count(content, "sample", where),
        seed=_count(content, "seed", where),
        queries=queries,
    )


def _run(value: Any, where: str) -> PooledRun:
    if not isinstance(value, dict):
        raise BadInput(f"{where} is {value!r:.60}, but must be an object.")
    models = value.get("models", {})
    if not isinstance(models, dict) or not all(isinstance(name, str) for name in models.values()):
        raise BadInput(f"{where}: models is {models!r:.60}, but must be an object of config keys and names of models.")
    return PooledRun(value_of(value, "name", str, where), _count(value, "depth", where), models)


def _count(row: Mapping[str, Any], key: str, where: str) -> int:
    value = required(row, key, where)
    if type(value) is not int or value < 0:
        raise BadInput(f"{where}: {key} is {value!r:.60}, but must be a whole number from 0.")
    return value
