"""The keys of all commands. Add a new key here.

The config of the command `a b` is composed from `conf/a_b.yaml`, which lists its groups, and from the defaults here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from harness.config.schema import (
    FROM_GROUP,
    IF_GROUP,
    REQUIRED,
    Config,
    Keys,
    Node,
    Role,
    component,
    inner,
    key,
)

ASIDE, FIXED, ONCE, ACTS, WRITES, LOCATES = Role.ASIDE, Role.FIXED, Role.ONCE, Role.ACTS, Role.WRITES, Role.LOCATES
CACHE = "${oc.env:HARNESS_CACHE,${outputs}/cache}"
named = partial(key, most=250, why="the limit of MLflow")
seeded = partial(key, 0, least=0, most=2**32 - 1, why="random generators take 32 bits")
share = partial(key, 0.4, least=0, most=1)
TESTSET = "${outputs}/testset"
OF_DRAW = "the seed of the random draw"
SPLIT_SEED = "the seed of the split and of the bootstrap"
RUN_ID = "the id of a run, or its first digits; null: the best finished run by `metric`"
BEST = "the measure that ranks the runs; null: the objective of most of these runs"
PARTS = "the labelled queries over which `metric` is averaged: all | public; null: as when the runs were made"
SLICES = "attributes of queries, such as [asks,length]: also show scores by their values; see docs/slices.md"
PASTED = "text | json; markdown | latex | csv: only the table, to paste elsewhere"
POOLED = "the folder that `harness prepare` wrote; null: the documents folder of the pool"
RELEVANT = "the lowest grade that counts as relevant, from 1 to 3"
ADDRESS = "the address to listen on; 0.0.0.0 opens the page to the whole network, without encryption"
Selection = Literal["all", "public"]
Format = Literal["text", "json"]
TableFormat = Literal["text", "json", "markdown", "latex", "csv"]


# Groups of plain keys


class StoreKeys(Keys):
    path: str = key(CACHE, "the cache of all slow results: a folder, or s3://BUCKET/PREFIX", roles=WRITES)


class PluginKeys(Keys):
    allow: tuple[str, ...] = key((), "modules that retriever=python may import")


class QueryKeys(Keys):
    text: Literal["user_turns", "last", "file", "rewrite", "expand"] = key(
        "user_turns",
        "user_turns: all user turns, joined | last: the last user turn | file: rewritten queries from query.file | "
        "rewrite: a query written by a language model | expand: all user turns, plus a text by a language model",
    )
    file: Path | None = key(None, "with query.text=file: JSON lines {eval_id, standalone_query}")
    prompt: Path | None = key(
        None, "with query.text=rewrite or expand: a prompt file with {conversation}; null: the shipped prompt"
    )


class PruneKeys(Keys):
    unused_days: float | None = key(None, "delete entries that were not used for this many days", least=0)
    keep_gb: float | None = key(None, "delete least recently used entries until at most this many GB remain", least=0)


class ChunkKeys(Keys):
    splitter: Literal["regex", "kiwi"] = key("regex", "how sentences are found: regex (separator) | kiwi (Korean)")
    separator: str = key("[.!?][\"'”’)\\]]*\\s+|\\n\\s*\\n", "with splitter=regex: the pattern that ends a sentence")
    size: int = key(400, "the maximum number of units per chunk; a sentence is cut only if longer", least=1, most=10**6)
    overlap: int = key(80, "the maximum number of units shared with the previous chunk", least=0, most=10**6)
    unit: Literal["characters", "morphemes", "tokens"] = key(
        "characters", "the unit of size and overlap: characters | morphemes (kiwi) | tokens (tokenizer)"
    )
    tokenizer: str | None = key(None, "with unit=tokens: a tokenizer.json, its folder, or a name on the hub")
    note: Path | None = key(None, "a file with a template for document titles, such as: This text is about {name}.")


class DataKeys(Keys):
    path: Path | None = key(None, "the dataset's folder, if it has moved")
    documents: Path | None = key(None, "the documents file, if it is not in the folder")
    queries: Path | None = key(None, "the queries file, if it is not in the folder")
    qrels: Path | None = key(None, "the labels file, if it is not in the folder")
    corpus: Path | None = key(None, "the documents of dataset=autorag")
    qa: Path | None = key(None, "the queries and labels of dataset=autorag")
    files: tuple[str, ...] | str | None = key(None, "the text files of dataset=chunked", roles=Role.READS)
    testset: Path | None = key(None, "the test set of dataset=chunked")


class PoolKeys(Keys):
    depth: int = key(10, "documents per query from the top of each run's list; gates are ignored", least=1, most=1000)
    sample: int = key(5, "random documents per query from the rest of the runs' lists", least=0, most=1000)


class JudgeKeys(Keys):
    controls: int = key(20, "the number of queries to test the judge with, three requests each", least=0, most=10_000)


class AuditKeys(Keys):
    queries: int = key(40, "the number of queries to draw: first a pilot of ten, and the rest after the pilot", least=1)
    seed: int = seeded(OF_DRAW)


class PromptKeys(Keys):
    fact: Path | None = key(None, "a prompt for factual questions: {questions}, {text}; optional: {note}, {examples}")
    search: Path | None = key(None, "a prompt for keyword queries; placeholders as in `fact`")
    conversation: Path | None = key(
        None, "a prompt for conversations whose last turn is unclear without the first; placeholders as in `fact`"
    )
    none: Path | None = key(
        None, "a prompt for messages that need no search: {questions}, {situation}; optional: {examples}"
    )
    unanswerable: Path | None = key(
        None, "a prompt for questions that the text does not answer; placeholders as in `fact`"
    )


class FilterKeys(Keys):
    copied: float = key(0.7, "the largest copied share of a question's morpheme 4-grams", least=0, most=1)
    duplicate: float = key(0.85, "the similarity at which two questions count as the same", least=0, most=1)


# What several commands share


class CommonConfig(Config):
    outputs: Path = key("outputs", "the folder for everything that the harness writes", roles=WRITES | ASIDE | LOCATES)
    format: str = key("text", "text | json: one JSON document on standard output", roles=ASIDE | ONCE, hint=Format)


class TrackedConfig(CommonConfig):
    """A command that reads or writes runs."""

    tracking: Node = component(ASIDE | LOCATES)


class TaskConfig(TrackedConfig):
    """A command about the runs of one experiment. The task sets some defaults, such as that of `metrics`."""

    task: Node | None = component()
    metrics: tuple[str, ...] | None = key(FROM_GROUP, "measures to compute, such as [map@3,ndcg@10], or all")
    objective: str = key(FROM_GROUP, "the measure that ranks runs and that gates are fitted to", roles=FIXED)
    experiment_name: str = named(FROM_GROUP, "the experiment; its runs are compared together", roles=ASIDE | LOCATES)
    predictions: Path | None = key(IF_GROUP, "for a text task: the predictions file")
    references: Path | None = key(IF_GROUP, "for a text task: the file with the right answers")


class RankingConfig(TaskConfig):
    """A command that ranks the runs of an experiment."""

    metric: str = key(None, BEST, hint=str | None)  # `ranking.settled` replaces null
    select_on: Selection | None = key(None, PARTS)


class SearchingConfig(CommonConfig):
    """A command that retrieves."""

    dataset: Node = component()
    cluster: Node = component(ASIDE)
    tokenizer: Node = component()
    encoder: Node = component()
    index: Node = component()
    llm: Node = component()
    fusion: Node = component()
    retriever: Mapping[str, Node] = component()
    rerank: Node = component()
    gate: Node = component()
    top_k: int = key(3, "the number of documents to return per query", least=1, most=100_000)
    depth: int = key(
        100,
        "the number of documents to retrieve per query, before fusion, reranking, gate and cut",
        least=1,
        most=100_000,
        why="each query keeps this many scores in memory",
    )
    plugins: PluginKeys = inner(ACTS | ASIDE)
    store: StoreKeys = inner(ASIDE)


# The commands


class RunConfig(TaskConfig, SearchingConfig):
    answer: Node = component(ONCE)
    experiment: None = component()
    run_name: str | None = named(None, "the run's name; null: made from the choices", roles=ASIDE | ONCE)
    query: QueryKeys
    public: float = share("the share of the labelled queries in the public part; the rest are private")
    select_on: Selection = key("all", "the labelled queries used to fit gates and to select runs: all | public")
    seed: int = seeded(SPLIT_SEED)
    slices: tuple[str, ...] = key((), SLICES, roles=ASIDE)
    trace: Literal["none", "errors", "all"] = key(
        "none", "queries to trace in MLflow: none | errors (labelled ones that score below 1) | all", roles=ASIDE | ONCE
    )


class GuardingConfig(CommonConfig):
    """A command that compares a run with a baseline. Its exit code says whether the run is worse."""

    margin: float = key(0.02, "the drop to rule out", least=0.0001, most=0.99, roles=ONCE)
    bounds: tuple[str, ...] = key(
        (), 'limits for other numbers of the run, such as ["ms_per_query<20","judged@3>0.9"]', roles=ONCE
    )
    undecided: Literal["fail", "pass"] = key(
        "fail", "if the queries cannot tell: fail (exit code 4) | pass (exit code 0)", roles=ONCE
    )
    format: Literal["text", "json", "markdown"] = key(
        "text", "text | json; markdown: the whole report, for a comment or a job summary", roles=ASIDE | ONCE
    )


class CheckConfig(GuardingConfig, RunConfig):
    """The command `check`, which makes a run or reads one, and compares it with a baseline."""

    run: str | None = key(None, "the id of a finished run to check; null: run the configuration", roles=ONCE)
    baseline: str = key(
        "champion",
        "a baseline file, or the id of a run; champion: the registered model, or else the best comparable run",
        roles=ONCE,
    )
    save: Path | None = key(None, "write this baseline file instead of checking", roles=WRITES | ONCE)
    measures: tuple[str, ...] | None = key(
        None, "measures that may not drop; null: those of the baseline file, or the objective", roles=ONCE
    )
    slice_margin: float | None = key(
        None,
        "the drop to rule out in each of `slices`; null: no slice may regress",
        least=0.0001,
        most=0.99,
        roles=ONCE,
    )
    junit: Path | None = key(None, "also write the answer as a JUnit report to this file", roles=WRITES | ONCE)


class SweepConfig(RunConfig):
    search: Node = component(FIXED)
    sweep: None = component(FIXED)
    dry_run: bool = key(False, "true: print the plan and stop", roles=FIXED | ONCE)
    budget: str | None = key(None, "with sweep=auto: the time limit, such as 90s; null: 10m", roles=FIXED)
    objectives: tuple[str, ...] | None = key(
        None, "measures to optimise, `objective` first, as in [map@3,ms_per_query]; null: only `objective`", roles=FIXED
    )
    trials_per_job: int | None = key(
        None,
        "the most trials per job; null: no limit in one process; in several processes, 25 (1 with a sampler)",
        least=1,
        roles=FIXED | ASIDE,
    )
    trace: Literal["none"] = key("none", "trials are not traced", roles=ASIDE | ONCE)


class SearchConfig(SearchingConfig):
    query: str | None = key(
        None, "the text to search for; null: ask on the terminal, or read one query per line", roles=Role.LINES
    )


class LoadConfig(RunConfig):
    """A command that loads the search that `run` would score, with the same keys."""

    concurrency: tuple[int, ...] = key(
        (1, 2, 4, 8),
        "numbers of workers, each sending its next query when its last one is answered; 1 is always measured",
        least=1,
        most=256,
        why="each worker is a thread",
    )
    rates: tuple[float, ...] = key(
        (),
        "queries per second that arrive at random times, whether or not earlier ones are answered, as in [5,10]",
        least=0.001,
        most=10_000,
        why="one process cannot send more",
    )
    seconds: float = key(5, "the maximum number of seconds in which the queries of a level are sent", least=0.1)
    queries: int = key(1000, "the maximum number of queries per level", least=1, most=1_000_000)
    timeout: float = key(10, "seconds after which an answer no longer counts", least=0.01, most=3600)
    arrivals: int = seeded("the seed of the order of the queries and of their arrivals")
    allow: tuple[str, ...] = key((), "addresses of other machines that may be loaded", roles=ACTS)
    trace: Literal["none"] = key("none", "a load is not traced", roles=ASIDE | ONCE)
    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class PrepareConfig(CommonConfig):
    files: tuple[str, ...] | str | None = key(None, "paths with wildcards, as in 'corpus/**/*'; null: the sample files")
    output: Path = key(
        "${outputs}/documents", "the folder for the documents; an earlier result is replaced", roles=WRITES | ACTS
    )
    unreadable: Literal["stop", "skip"] = key(
        "stop", "files that cannot be read: stop (and list all of them) | skip (and list them)"
    )
    chunk: ChunkKeys


class ScoreConfig(TaskConfig):
    dataset: Node = component()
    predictions: Path = key(
        REQUIRED, "contest JSON lines {eval_id, topk} or a TREC run; for a text task, a file in its format"
    )
    missing: Literal["skip", "zero"] = key("skip", "labelled queries without a prediction: skip | zero: score 0")
    run_name: str | None = named(None, "the run's name; null: the name of the file", roles=ASIDE | ONCE)
    public: float = share("the share of the labelled queries or items in the public part")
    seed: int = seeded(SPLIT_SEED)
    store: StoreKeys = inner(ASIDE)


class RunsConfig(TrackedConfig):
    experiment_name: str | None = named(
        "retrieval", "the experiment to list; null: list all experiments", roles=LOCATES
    )
    run: str | None = key(None, "the id of a sweep, or its first digits, to list its trials")
    top: int = key(20, "the maximum number of rows in each table", least=1)
    format: Literal["text", "json", "markdown"] = key("text", "text | json | markdown", roles=ASIDE | ONCE)


class FilesConfig(RankingConfig):
    """A command that compares logged runs, or files of rankings."""

    dataset: Node | None = component()
    missing: Literal["skip", "zero"] = key("skip", "in files, labelled queries without a ranking: skip | zero: score 0")
    public: float = share("for files: the share of the labelled queries in the public part")
    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class CompareConfig(FilesConfig):
    runs: tuple[str, ...] | None = key(
        None, "run ids, their first digits, or files (with dataset=); null: the best runs"
    )
    top: int = key(5, "without runs=: how many of the best runs to compare, one per configuration", least=2, most=26)
    slices: tuple[str, ...] = key((), SLICES)
    pairs: Literal["best", "all"] = key("best", "best: the best run against every other run | all: every pair")
    fail_if: Literal["worse"] | None = key(None, "worse: for runs=[BASE,NEW], the exit code is 1 if BASE is better")
    resamples: int = key(10_000, "the number of bootstrap samples, and of sign flips", least=100, most=1_000_000)
    seed: int = seeded("the seed of the samples and flips")


class BoardConfig(RankingConfig):
    runs: tuple[str, ...] | None = key(None, "ids of runs or sweeps, or their first digits; null: the best runs")
    output: Path = key("${outputs}/board.html", "the page to write; an earlier board is replaced", roles=WRITES | ACTS)
    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class AdviseConfig(RankingConfig):
    run: str | None = key(None, RUN_ID)
    top: int = key(5, "the maximum number of proposals to list", least=1, most=100)
    store: StoreKeys = inner(ASIDE)


class PowerConfig(FilesConfig):
    runs: tuple[str, ...] | None = key(None, "two run ids or files; null: the two best runs with different scores")
    power: float = key(0.8, "the wanted probability of finding the difference", least=0.5, most=0.99)
    alpha: float = key(0.05, "the largest p at which a difference counts as found", least=0.001, most=0.2)


class ExportConfig(RankingConfig):
    run: str | None = key(None, RUN_ID)
    submission: Path | None = key(None, "the file to write; it must be new; null: a file in outputs", roles=WRITES)
    against: Path | None = key(None, "a sample submission; the new one must have the same ids in the same order")
    model: bool = key(False, "true: register the run as a servable MLflow model with the alias champion")
    model_name: str | None = named(None, "the name of the registered model; null: the experiment's name")
    allow: tuple[str, ...] = key((), "addresses and environment variables that the model may use", roles=ACTS)
    store: StoreKeys = inner(ASIDE)


class RecordConfig(TrackedConfig):
    submission: Path = key(REQUIRED, "the submitted file; it is recognised by its content")
    public: float | None = key(None, "the submission's score on the public leaderboard", least=-1e9, most=1e9)
    private: float | None = key(None, "the submission's score on the private leaderboard", least=-1e9, most=1e9)
    scale: Literal["fraction", "percent"] = key("fraction", "the leaderboard's unit: fraction (0.81) | percent (81)")


class HistoryConfig(TrackedConfig):
    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class RepeatingConfig(TrackedConfig):
    """A command that repeats a logged run from its record."""

    experiment_name: str = named("retrieval", "the experiment of the run", roles=LOCATES)
    metric: str | None = key(None, BEST)
    select_on: Selection | None = key(None, PARTS)
    run: str | None = key(None, RUN_ID)
    allow: tuple[str, ...] = key((), "addresses and environment variables that the run may use", roles=ACTS)
    data: DataKeys
    plugins: PluginKeys = inner(ACTS | ASIDE)
    store: StoreKeys = inner(ASIDE)


class ReproduceConfig(RepeatingConfig):
    verify_only: bool = key(False, "true: check the stored files against the run's hashes and scores; run nothing")
    fresh: bool = key(True, "true: compute everything again, in a temporary cache; false: use the cache")


class WatchConfig(GuardingConfig, RepeatingConfig):
    """The command `watch`, which repeats the champion on today's data, and says what has changed."""

    run: str | None = key(
        None, "the id of the run to repeat; null: the registered model, or else the best run that no watch has made"
    )
    queries: Path | None = key(None, "today's queries: JSON lines {eval_id, msg}, or one text per line; never logged")


class UiConfig(TrackedConfig):
    host: str = key("127.0.0.1", ADDRESS)
    port: int = key(5000, "the port; if it is in use, another port is taken", least=1, most=65535)
    experiment_name: str = named("retrieval", "the experiment whose page address is printed", roles=LOCATES)
    open: bool = key(False, "true: also open the page in the browser", roles=ACTS)


class DoctorConfig(TrackedConfig):
    dataset: Node = component()
    cluster: Node = component(ASIDE)
    tokenizer: Node = component()
    encoder: Node = component()
    index: Node = component()
    retriever: Mapping[str, Node] | None = component()
    plugins: PluginKeys = inner(ACTS | ASIDE)
    store: StoreKeys = inner(ASIDE)


class CacheConfig(CommonConfig):
    sort: Literal["size", "age"] = key("size", "size | age (time since the last use)")
    show: int = key(20, "the maximum number of entries to list; totals include all entries", least=1)
    prune: PruneKeys = inner(ACTS)
    store: StoreKeys = inner(ASIDE)


class SyncConfig(TrackedConfig):
    """A command with only the keys that all commands about runs share."""


class WarmConfig(CommonConfig):
    """A command with only the keys that all commands share."""


class TestSetConfig(CommonConfig):
    """A command about a test set."""

    testset: Path = key(TESTSET, "the folder of the test set", roles=WRITES)


class AskingConfig(TestSetConfig):
    """A command that asks a language model about a test set."""

    llm: Node = component()
    model: str | None = key(
        None, "the model's name; to judge, use a model that neither drafted queries nor ranked documents"
    )
    language: Literal["auto", "ko", "en"] = key(
        "auto", "the language of the shipped prompts; auto: as in the documents"
    )
    dry_run: bool = key(False, "true: show the number of requests, the cost and the prompts; send and write nothing")
    store: StoreKeys = inner(ASIDE)


class DraftConfig(AskingConfig):
    documents: Path = key("${outputs}/documents", "the folder that `harness prepare` wrote")
    limit: int | None = key(5, "the number of documents to draft from, spread over all files; null: all", least=1)
    questions: int = key(2, "the maximum number of queries of each kind per document", least=1, most=50)
    kinds: tuple[Literal["fact", "search", "conversation", "none", "unanswerable"], ...] = key(
        ("fact", "search", "conversation", "none", "unanswerable"),
        "kinds of queries: one request per kind and document",
    )
    examples: Path | None = key(None, "real queries whose style to follow: JSON lines {eval_id, msg}, or a test set")
    prompts: PromptKeys
    filters: FilterKeys
    easiness: bool = key(True, "true: search with BM25 for each drafted query, to mark easy ones")
    seed: int = seeded("the seed for drawing documents and examples")


class PoolConfig(RankingConfig, TestSetConfig):
    documents: Path | None = key(None, "the documents folder; null: the folder that the pool or the test set names")
    runs: tuple[str, ...] | None = key(None, "ids of runs on this test set, or their first digits; null: the best")
    top: int = key(5, "without runs=: how many of the best runs to use, one per configuration", least=1, most=100)
    pool: PoolKeys
    seed: int = seeded(OF_DRAW)


class JudgeConfig(AskingConfig):
    documents: Path | None = key(None, POOLED)
    judge: JudgeKeys
    limit: int | None = key(200, "the maximum number of pairs to judge now, one request each; null: all", least=1)
    prompt: Path | None = key(
        None, "a prompt file with {query}, {document}; optional: {conversation}, {note}; null: the shipped prompt"
    )


class ReviewConfig(TestSetConfig):
    documents: Path | None = key(None, POOLED)
    reviewer: tuple[str, ...] | str | None = key(
        None, "who judges: a name, or several as in [kim,lee]; each gets a link"
    )
    sample: Literal["audit", "repair", "all", "open"] = key(
        "audit",
        "audit: drawn queries | repair: suspect judgements | all: unjudged pairs | open: disagreements to settle",
    )
    audit: AuditKeys
    via: Literal["page", "xlsx"] = key("page", "page: in the browser | xlsx: an Excel workbook for one reviewer")
    output: Path | None = key(None, "with via=xlsx: the workbook to write", roles=WRITES | ACTS)
    from_: Path | None = key(None, "with via=xlsx: the workbook to read; if it has an error, none of it is used")
    host: str = key("127.0.0.1", ADDRESS)
    port: int = key(5050, "the port of the page; if it is in use, another port is taken", least=1, most=65535)


class AuditConfig(TestSetConfig):
    relevant_from: int = key(2, RELEVANT, least=1, most=3)
    metric: str = key("modified_map@3", "the measure whose interval is estimated, now and with 20 more checked queries")


class FreezeConfig(TestSetConfig):
    documents: Path | None = key(None, POOLED)
    version: int = key(1, "the version of the frozen set; raise it if judgements have changed", least=1)
    output: Path | None = key(None, "the folder of this version; null: v1, v2, ... in testset", roles=WRITES | ACTS)
    relevant_from: int = key(2, RELEVANT, least=1, most=3)
    leave_out: bool = key(False, "true: leave out queries with open questions; false: refuse to freeze")
    formats: tuple[Literal["contest", "beir", "autorag", "trec"], ...] = key(
        (), "also write these formats for other tools"
    )


class InitConfig(RunConfig):
    """The command `init`, which writes keys of `run` to harness.yaml."""
