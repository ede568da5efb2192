"""`harness testset pool`: collect from logged runs the pairs of query and document that are worth judging."""

from __future__ import annotations

import shlex
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.analysis import full_lists
from harness.analysis.full_lists import FullLists
from harness.analysis.ranking import Wanted, settled
from harness.config.check import Invocation
from harness.config.commands import PoolConfig
from harness.config.text import counted, short_id
from harness.data.dataset import Dataset
from harness.data.documents_folder import DocumentsFolder
from harness.data.files import some
from harness.data.testset import EvidencedQuery, read_queries, read_testset_manifest, span_qrels
from harness.errors import BadInput
from harness.progress import stage
from harness.recording.recording import open_store
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.testset.judge.judgements import Judgement, JudgementLog, current, held, text_digest
from harness.testset.pool import pool as pools
from harness.testset.pool import pooling
from harness.testset.pool.pool import About, Pool, PooledRun
from harness.testset.pool.pooling import Missed, Reusability, missed, reusability
from harness.testset.review.resolution import resolve

ORIGINS = ("runs", "seeds", "near-duplicates", "sample")  # A pair with several origins counts for the first of them.
REPEAT = "Once queries are judged in full, this command also says if the judgements are enough to score other runs."


@dataclass(frozen=True, eq=False)
class TestSet:
    """A test set whose pool the command makes or extends. before: the existing pool, or None."""

    __test__ = False  # Without this, pytest would collect the class, since its name begins with Test.

    path: Path
    queries: Sequence[EvidencedQuery]
    documents: DocumentsFolder
    before: Pool | None

    @classmethod
    def read(cls, path: Path, documents: Path | None) -> TestSet:
        """Read a test set. Raise BadInput if it is unfinished or its pool does not fit its queries and documents."""
        before = pools.read_pool(path) if (path / pools.MANIFEST).exists() else None
        testset = cls(path, read_queries(path, "testset"), pools.pooled_documents(path, documents), before)
        if before is not None:
            if before.about.queries and not before.about.queries.keys() & testset.texts.keys():
                raise BadInput(
                    f"{path / pools.MANIFEST}: the pool has none of the queries of {path} "
                    f"({some(before.about.queries)}). Does it belong to another test set? To begin a new pool, "
                    f"first move {pools.POOL} and {pools.MANIFEST} to another folder."
                )
            pools.require_documents(testset.documents, (one.doc_id for one in before.pairs), testset.dataset.by_id)
        return testset

    @cached_property
    def dataset(self) -> Dataset:
        """Return the dataset that `harness run dataset=testset` reads, with labels from evidence."""
        chunks = list(self.documents.chunks())
        found = sorted((chunk.document for chunk in chunks), key=lambda document: document.doc_id)
        queries = tuple(one.query for one in self.queries)
        return Dataset("testset", tuple(found), queries, span_qrels(self.queries, chunks, self.documents))

    @cached_property
    def texts(self) -> dict[str, str]:
        return {query.query_id: text_digest(query) for query in self.dataset.queries}


@dataclass(frozen=True)
class PoolRow:
    """A run of the pool. pairs: number of its pooled documents. alone: number of those that no other run added."""

    run_id: str
    name: str
    depth: int
    pairs: int
    alone: int

    @classmethod
    def of(cls, pool: Pool, run_id: str) -> PoolRow:
        run = pool.about.runs[run_id]
        pairs = [one for one in pool.pairs if run_id in one.ranks]
        return cls(run_id, run.name, run.depth, len(pairs), sum(len(one.ranks) == 1 for one in pairs))


@dataclass(frozen=True)
class PoolAnswer:
    """The pool that the command wrote. new: number of pairs that it added. origins: origin -> number of pairs."""

    testset: Path
    files: Mapping[str, Path]
    queries: int
    pairs: int
    new: int
    unjudged: Mapping[str, int]
    per_query: Mapping[str, int]
    origins: Mapping[str, int]
    runs: Sequence[PoolRow]
    reusability: Reusability | None
    missed: Missed | None
    notes: Sequence[str]


def pool(config: PoolConfig, invocation: Invocation) -> CommandAnswer:
    """Pool documents that runs retrieved, or add them to an existing pool. Report the number of pairs to judge."""
    path = config.testset
    read_testset_manifest(path, "testset")
    with held(path, pools.POOL, "pools for"):
        with stage("reading the test set"):
            testset = TestSet.read(path, config.documents)
        with tempfile.TemporaryDirectory() as folder, stage("reading the runs' lists"):
            runs, notes = _runs(config, testset, Path(folder))
        with stage("pooling"):
            made = _pooled(config, testset, runs)
            pools.write_pool(path, made)
    judgements = JudgementLog(path).read()
    notes += [*_short(runs, config.pool.depth), *_changes(testset, judgements)]
    resolved = resolve(judgements, testset.queries, made.pairs) if judgements else None
    found = PoolAnswer(
        testset=path,
        files={"pool": path / pools.POOL, "manifest": path / pools.MANIFEST},
        queries=len(made.about.queries),
        pairs=len(made.pairs),
        **_counts(testset, made, judgements),
        runs=[PoolRow.of(made, run_id) for run_id in made.about.runs],
        reusability=reusability(made, resolved, testset.queries) if resolved else None,
        missed=missed(made, resolved, testset.queries) if resolved else None,
        notes=notes,
    )
    return CommandAnswer(found, pool_report(found))


def _runs(config: PoolConfig, testset: TestSet, folder: Path) -> tuple[list[FullLists], list[str]]:
    """Return the runs to pool (those named, or the best of an experiment), and notes on runs that were left out."""
    tracker = open_store(config)
    if config.runs:
        return full_lists.named(tracker, config.runs, testset.dataset, folder), []
    try:
        config, notes = settled(tracker, config, verbs=("run",))
        wanted = Wanted(config.experiment_name, config.metric, config.select_on, verbs=("run",))
        found, left_out = full_lists.best_repeatable(tracker, wanted, config.top, testset.dataset, folder)
    except BadInput as error:
        run = f"harness run dataset=testset dataset.path={testset.path} experiment_name={config.experiment_name}"
        if config.documents or testset.before:
            run += f" dataset.documents={testset.documents.path}"
        raise BadInput(
            f"{error} A pool needs runs on this test set, if possible several runs that search differently: `{run} "
            "retriever=bm25`, and the same with retriever=hybrid_lexical or hybrid_light."
        ) from None
    return found, [*notes, *left_out]


def _pooled(config: PoolConfig, testset: TestSet, runs: Sequence[FullLists]) -> Pool:
    before, seeds = testset.before, testset.dataset.qrels
    assert seeds is not None
    draw = pooling.Draw(config.pool.depth, config.pool.sample, config.seed)
    lists = {one.run.run_id: one.lists for one in runs}
    sources = pooling.Sources(lists, seeds.grades, testset.documents.near_duplicates())
    known: Mapping[str, PooledRun] = before.about.runs if before else {}
    new = {}
    for run in (one.run for one in runs):
        depth = max(draw.depth, known[run.run_id].depth if run.run_id in known else 0)
        params = sorted(run.params.items())
        models = {key: value for key, value in params if key.endswith(".model") and value != "null"}
        new[run.run_id] = PooledRun(run.name, depth, models)
    about = About(
        documents=pools.DocumentsPlace.of(testset.documents, testset.path),
        runs={**known, **new},
        sample=draw.sample,
        seed=draw.seed,
        queries=testset.texts,
    )
    return Pool(pooling.pooled(testset.texts, before.pairs if before else (), sources, draw), about)


def _short(runs: Sequence[FullLists], depth: int) -> Iterator[str]:
    """Yield notes on runs whose lists are too short for the depth."""
    for one in runs:
        if (longest := max(map(len, one.lists.values()), default=0)) < depth:
            yield (
                f"The longest list of run {one.run.named} has {counted(longest, 'document')}, fewer than pool.depth="
                f"{depth}. Repeat the run with a larger depth."
            )
    if all(len(documents) <= depth for one in runs for documents in one.lists.values()):
        yield "No list has documents below rank pool.depth, so none could be drawn at random from there."


def _changes(testset: TestSet, judgements: Sequence[Judgement]) -> Iterator[str]:
    """Yield notes that say how edited queries and documents affect the pool and its judgements."""
    texts = testset.texts
    former = testset.before.about.queries if testset.before else ()
    if removed := [query_id for query_id in former if query_id not in texts]:
        yield f"No longer in the test set: {counted(len(removed), 'query')} of the former pool ({some(removed)})."
    void = [one for one in judgements if texts.get(one.query_id, one.text) != one.text]
    if void:
        edited = list(dict.fromkeys(one.query_id for one in void))
        yield (
            f"Edited after judging: {counted(len(edited), 'query')} ({some(edited)}), so {len(void):,} judgements no "
            "longer count."
        )
    if testset.before and testset.before.about.documents.sha256 != testset.documents.fingerprint:
        yield "The documents have changed since the former pool, but all pooled documents are still there."


def _counts(testset: TestSet, made: Pool, judgements: Sequence[Judgement]) -> dict[str, Any]:
    had = {(one.query_id, one.doc_id) for one in testset.before.pairs} if testset.before else set()
    judged = {one.pair for one in current(judgements, {one.query_id: one for one in testset.dataset.queries})}
    unneeded = {one.query.query_id for one in testset.queries if one.kind == "none"}
    left = [one for one in made.pairs if (one.query_id, one.doc_id) not in judged]
    none = sum(one.query_id in unneeded for one in left)
    sizes = [len(pairs) for pairs in made.by_query.values()]
    origins = ((bool(one.ranks), one.seed, one.near_duplicate, True).index(True) for one in made.pairs)
    brought = Counter(ORIGINS[one] for one in origins)
    return {
        "new": sum((one.query_id, one.doc_id) not in had for one in made.pairs),
        "unjudged": {"needs_retrieval": len(left) - none, "needs_none": none},
        "per_query": {"least": min(sizes), "median": round(statistics.median(sizes)), "most": max(sizes)},
        "origins": {name: brought[name] for name in ORIGINS},
    }


def pool_report(found: PoolAnswer) -> Report:
    testset, sizes, (left, unneeded) = found.testset, found.per_query, found.unjudged.values()
    reach = [one.text() for one in (found.reusability, found.missed) if one]
    people = f", and {unneeded:,} for queries that need no retrieval (only people judge these)" if unneeded else ""
    keys = {"judge": "model=NAME", "review": "reviewer=NAME", "freeze": "leave_out=true"}
    columns = [Column("run"), Column("name"), *(Column(name, "count") for name in ("depth", "pairs", "only this run"))]
    rows: Rows = [[short_id(one.run_id), one.name, one.depth, one.pairs, one.alone] for one in found.runs]
    return Report(
        f"{testset / pools.POOL}: {counted(found.pairs, 'pair')} of {counted(found.queries, 'query')}, "
        f"{sizes['least']} to {sizes['most']} each, median {sizes['median']}; {found.new:,} new.",
        [
            f"Not judged: {left:,}{people}.",
            f"Brought by {', '.join(f'{name} {count:,}' for name, count in found.origins.items())}.",
            *reach,
        ],
        [Table("Runs", columns, rows)],
        [*([] if found.reusability else [REPEAT]), *found.notes],
        steps=[
            shlex.join(["harness", "testset", command, f"testset={testset}", keys[command]])
            for command in (("judge", "review") if left else ("review", "freeze"))
        ],
    )
