"""`harness testset pool`: the pairs of a query and a document that are worth a judgement, from logged runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.commands.testset import pool_report
from harness.config.check import Invocation
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import some
from harness.data.testset import EvidencedQuery, read_manifest, read_queries, span_qrels
from harness.progress import stage
from harness.testset import pool as pools
from harness.testset import pooling
from harness.testset.hold import held
from harness.testset.judgements import Judgement, JudgementLog, text_digest
from harness.testset.pool import About, Pool, PooledRun
from harness.tracking import full_lists
from harness.tracking.full_lists import FullLists
from harness.tracking.ranking import Wanted, settled
from harness.tracking.recording import open_tracker
from harness.tracking.tracker import NO_RUNS, refusal
from retrievers.base import BadInput


@dataclass(frozen=True, eq=False)
class TestSet:
    """What is pooled for. before: the pool that the test set has; None: none yet."""

    __test__ = False  # pytest takes classes whose names begin so for its own

    path: Path
    queries: Sequence[EvidencedQuery]
    documents: DocumentsFolder
    before: Pool | None

    @cached_property
    def dataset(self) -> Dataset:
        """As `harness run dataset=testset` reads it, labels of evidence included."""
        chunks = list(self.documents.chunks())
        found = sorted((chunk.document for chunk in chunks), key=lambda document: document.doc_id)
        queries = tuple(one.query for one in self.queries)
        return Dataset("testset", tuple(found), queries, span_qrels(self.queries, chunks, self.documents))

    @cached_property
    def texts(self) -> dict[str, str]:
        """query_id -> digest of its text."""
        return {query.query_id: text_digest(query) for query in self.dataset.queries}


def pool(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Pool what runs retrieved, or add to a pool, and say what there is to judge."""
    path = Path(config["testset"])
    read_manifest(path, "testset")
    with held(path, pools.POOL, "pools for"):
        with stage("reading the test set"):
            testset = _testset(path, config["documents"])
        with tempfile.TemporaryDirectory() as folder, stage("reading the runs' lists"):
            runs, notes = _runs(config, testset, Path(folder))
        with stage("pooling"):
            made = _pooled(config, testset, runs)
            pools.write(path, made)
    judgements = JudgementLog(path).read()
    notes += [*_short(runs, config["pool"]["depth"]), *_changes(testset, judgements)]
    found = pool_report.Pooled(made, testset.before, testset.queries, judgements)
    return pool_report.show(config["format"], path, found, notes)


def _testset(path: Path, documents: str | None) -> TestSet:
    """BadInput unless the test set is finished, and its pool, if it has one, is of these queries and documents."""
    queries = read_queries(path, "testset")
    before = pools.read_pool(path) if (path / pools.MANIFEST).exists() else None
    testset = TestSet(path, queries, pools.documents_of(path, documents), before)
    if before is not None:
        if before.about.queries and not before.about.queries.keys() & testset.texts.keys():
            raise BadInput(
                f"{path / pools.MANIFEST}: the pool is of other queries than {path} has ({some(before.about.queries)})."
                f" Is it of another test set? Move {pools.POOL} and {pools.MANIFEST} away to begin a new pool."
            )
        pooling.require_documents(before.pairs, testset.dataset.by_id)
    return testset


def _runs(config: Mapping[str, Any], testset: TestSet, folder: Path) -> tuple[list[FullLists], list[str]]:
    """(the runs that the config names, why others of the experiment were left out)."""
    tracker = open_tracker(config)
    if not tracker.keeps_files:
        raise refusal(tracker, NO_RUNS)
    if config["runs"]:
        return full_lists.named(tracker, config["runs"], testset.dataset, folder), []
    try:
        config, notes = settled(tracker, config, verbs=("run",))
        wanted = Wanted(config["experiment_name"], config["metric"], config["select_on"], verbs=("run",))
        found, left_out = full_lists.best(tracker, wanted, config["top"], testset.dataset, folder)
    except BadInput as error:
        run = f"harness run dataset=testset dataset.path={testset.path} experiment_name={config['experiment_name']}"
        if config["documents"] or testset.before:
            run += f" dataset.documents={testset.documents.path}"
        raise BadInput(
            f"{error} A pool is made of runs on this test set, better of several that search differently: `{run} "
            "retriever=bm25`, and the same with retriever=hybrid_lexical or hybrid_light."
        ) from None
    return found, [*notes, *left_out]


def _pooled(config: Mapping[str, Any], testset: TestSet, runs: Sequence[FullLists]) -> Pool:
    """The pool with what these runs add."""
    before, seeds = testset.before, testset.dataset.qrels
    assert seeds is not None
    draw = pooling.Draw(config["pool"]["depth"], config["pool"]["sample"], config["seed"])
    lists = {one.run.run_id: one.lists for one in runs}
    sources = pooling.Sources(lists, seeds.grades, testset.documents.near_duplicates())
    known: Mapping[str, PooledRun] = before.about.runs if before else {}
    new = {
        one.run.run_id: PooledRun(
            one.run.name, max(draw.depth, _depth(known, one.run.run_id)), pools.models_of(one.run.params)
        )
        for one in runs
    }
    about = About(
        documents=pools.place_of(testset.documents, testset.path),
        documents_sha256=testset.documents.fingerprint,
        runs={**known, **new},
        sample=draw.sample,
        seed=draw.seed,
        queries=testset.texts,
    )
    return Pool(pooling.pooled(testset.texts, before.pairs if before else (), sources, draw), about)


def _depth(known: Mapping[str, PooledRun], run_id: str) -> int:
    """How deep a run was pooled before."""
    return known[run_id].depth if run_id in known else 0


def _short(runs: Sequence[FullLists], depth: int) -> Iterator[str]:
    """Notes on runs that retrieved less than is pooled, or no more."""
    for one in runs:
        if (longest := max(map(len, one.lists.values()), default=0)) < depth:
            yield (
                f"The longest list of run {one.run.named} has {counted(longest, 'document')}, fewer than pool.depth="
                f"{depth}. Repeat it with a larger depth."
            )
    if all(len(documents) <= depth for one in runs for documents in one.lists.values()):
        yield "No list goes below pool.depth, so that no document could be drawn from there."


def _changes(testset: TestSet, judgements: Sequence[Judgement]) -> Iterator[str]:
    """Notes on what editing the queries has done to pool and judgements."""
    texts = testset.texts
    removed = [
        query_id for query_id in (testset.before.about.queries if testset.before else ()) if query_id not in texts
    ]
    if removed:
        yield f"In the test set no more: {counted(len(removed), 'query')} of the former pool ({some(removed)})."
    void = [one for one in judgements if texts.get(one.query_id, one.text) != one.text]
    if void:
        edited = list(dict.fromkeys(one.query_id for one in void))
        yield (
            f"Edited after it was judged: {counted(len(edited), 'query')} ({some(edited)}). Of the judgements, "
            f"{len(void):,} no longer count."
        )
    if testset.before and testset.before.about.documents_sha256 != testset.documents.fingerprint:
        yield "Other documents have been prepared since the former pool; all that it names are still there."
