"""The commands and all their keys. Add a new key here.

The config of the command `a b` is composed from `conf/a_b.yaml`, which lists its groups, and from the defaults here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.config.schema import (
    FROM_GROUP,
    IF_GROUP,
    REQUIRED,
    Config,
    Key,
    Keys,
    Node,
    Role,
    component,
    inner,
    key,
    keys,
)

ASIDE, FIXED, ONCE, ACTS, WRITES, LOCATES = Role.ASIDE, Role.FIXED, Role.ONCE, Role.ACTS, Role.WRITES, Role.LOCATES
CACHE = "${oc.env:HARNESS_CACHE,${outputs}/cache}"
NAME, NAMES = 250, "the limit of MLflow"
SEED, SEEDS = 2**32 - 1, "random generators take 32 bits"
TESTSET = "${outputs}/testset"
OF_DRAW = "seed of the random draw"
SPLIT_SEED = "seed of the split and of the bootstrap"
RUN_ID = "the id of a run, or its first digits; null: the best finished run by `metric`"
BEST = "the measure to rank runs by; null: the one that ranks most of them"
PARTS = "labelled queries that `metric` averages: all | public; null: as the runs were ranked"
PASTED = "text | json; markdown | latex | csv: only the table, to paste elsewhere"
POOLED = "the folder that harness prepare wrote; null: the pooled one"
RELEVANT = "grades of at least this count as relevant, 1 to 3; lower ones as not relevant"
ADDRESS = "address to listen on; 0.0.0.0 opens it to the whole network, without encryption"
Selection = Literal["all", "public"]
Format = Literal["text", "json"]
TableFormat = Literal["text", "json", "markdown", "latex", "csv"]


# Groups of plain keys


class StoreKeys(Keys):
    path: str = key(CACHE, "cache of all slow results: a folder, or s3://BUCKET/PREFIX", roles=WRITES)


class PluginKeys(Keys):
    allow: tuple[str, ...] = key((), "modules that retriever=python may import; only on the command line")


class QueryKeys(Keys):
    text: Literal["user_turns", "last", "file", "rewrite", "expand"] = key(
        "user_turns",
        "user_turns: all user turns, joined | last: the last user turn | file: queries rewritten elsewhere | rewrite: "
        "written by a language model | expand: all user turns, plus a text by a language model",
    )
    file: Path | None = key(None, "for text: file: JSON lines {eval_id, standalone_query}")
    prompt: Path | None = key(None, "for text: rewrite and expand: a prompt file with {conversation}; null: shipped")


class PruneKeys(Keys):
    unused_days: float | None = key(None, "delete entries not used for this many days", least=0)
    keep_gb: float | None = key(
        None, "delete the entries unused for longest until at most this many GB are left", least=0
    )


class ChunkKeys(Keys):
    splitter: Literal["regex", "kiwi"] = key("regex", "how sentences are found: regex (separator) | kiwi (Korean)")
    separator: str = key("[.!?][\"'”’)\\]]*\\s+|\\n\\s*\\n", "splitter=regex: the pattern that ends a sentence")
    size: int = key(400, "most units per chunk of whole sentences; only a longer sentence is cut", least=1, most=10**6)
    overlap: int = key(80, "most units that a chunk shares with the previous one", least=0, most=10**6)
    unit: Literal["characters", "morphemes", "tokens"] = key(
        "characters", "unit of size and overlap: characters | morphemes (kiwi) | tokens (tokenizer)"
    )
    tokenizer: str | None = key(None, "unit=tokens: a tokenizer.json, its folder, or a name on the hub")
    note: Path | None = key(None, "file with a sentence for each title, such as: This text is about {name}.")


class DataKeys(Keys):
    path: Path | None = key(None, "the dataset's folder, if it has moved")
    documents: Path | None = key(None, "the documents file, if it is not in the folder")
    queries: Path | None = key(None, "the queries file, likewise")
    qrels: Path | None = key(None, "the labels file, likewise")
    corpus: Path | None = key(None, "the documents of dataset=autorag")
    qa: Path | None = key(None, "the queries and labels of dataset=autorag")
    files: tuple[str, ...] | str | None = key(None, "the text files of dataset=chunked", roles=Role.READS)
    testset: Path | None = key(None, "the test set of dataset=chunked")


class PoolKeys(Keys):
    depth: int = key(10, "first documents of each run's list, before its gate, per query", least=1, most=1000)
    sample: int = key(5, "random documents from the rest of these lists, per query", least=0, most=1000)


class JudgeKeys(Keys):
    controls: int = key(20, "queries with hidden controls, three requests each", least=0, most=10_000)


class AuditKeys(Keys):
    queries: int = key(40, "queries to draw, ten of them as a pilot; raise it later to add more", least=1)
    seed: int = key(0, OF_DRAW, least=0, most=SEED, why=SEEDS)


class PromptKeys(Keys):
    fact: Path | None = key(None, "prompt for questions and answers: {questions}, {text}, maybe {note}, {examples}")
    search: Path | None = key(None, "prompt for keyword queries; placeholders as for fact")
    conversation: Path | None = key(None, "prompt for conversations whose last turn needs the first; as for fact")
    none: Path | None = key(None, "prompt for messages without a search: {questions}, {situation}, maybe {examples}")
    unanswerable: Path | None = key(None, "prompt for questions that the text does not answer; as for fact")


class FilterKeys(Keys):
    copied: float = key(0.7, "largest share of its morpheme 4-grams that a question may copy", least=0, most=1)
    duplicate: float = key(0.85, "similarity at which two questions count as the same", least=0, most=1)


# What several commands share


class CommonConfig(Config):
    outputs: Path = key("outputs", "the folder for everything that the harness writes", roles=WRITES | ASIDE | LOCATES)
    format: str = key(
        "text", "text | json: exactly one JSON document on standard output", roles=ASIDE | ONCE, hint=Format
    )


class TrackedConfig(CommonConfig):
    """A command that reads or writes runs."""

    tracking: Node = component(ASIDE | LOCATES)


class TaskConfig(TrackedConfig):
    """A command about the runs of one experiment; the task decides the defaults of its measures."""

    task: Node | None = component()
    metrics: tuple[str, ...] | None = key(FROM_GROUP, "measures to compute, such as [map@3,ndcg@10], or all")
    objective: str = key(FROM_GROUP, "the measure that ranks runs and that gates are fitted to", roles=FIXED)
    experiment_name: str = key(
        FROM_GROUP, "runs under one name are compared together", most=NAME, why=NAMES, roles=ASIDE | LOCATES
    )
    predictions: Path | None = key(IF_GROUP, "for a text task: the predictions file")
    references: Path | None = key(IF_GROUP, "for a text task: the file of right answers")


class RankingConfig(TaskConfig):
    """A command that ranks the runs of an experiment."""

    metric: str = key(None, BEST, hint=str | None)  # null is replaced by `ranking.settled`
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
    top_k: int = key(3, "documents returned per query", least=1, most=100_000)
    depth: int = key(
        100,
        "documents retrieved per query, before fusion, reranking, gate and cut",
        least=1,
        most=100_000,
        why="each query keeps as many scores in memory",
    )
    plugins: PluginKeys = inner(ACTS | ASIDE)
    store: StoreKeys = inner(ASIDE)


# The commands


class RunConfig(TaskConfig, SearchingConfig):
    """Run one experiment, from documents and queries to a tracked score that can be exported."""

    answer: Node = component(ONCE)
    experiment: None = component()
    run_name: str | None = key(None, "null: made from the choices", most=NAME, why=NAMES, roles=ASIDE | ONCE)
    query: QueryKeys
    public: float = key(0.4, "share of the labelled queries in the public part; the rest is private", least=0, most=1)
    select_on: Selection = key("all", "the labelled queries used to fit gates and to select runs: all | public")
    seed: int = key(0, SPLIT_SEED, least=0, most=SEED, why=SEEDS)
    trace: Literal["none", "errors", "all"] = key(
        "none", "queries traced in MLflow: none | errors (labelled, score below 1) | all", roles=ASIDE | ONCE
    )


class SweepConfig(RunConfig):
    """Run many trials of `run` under one parent run; retrievals that trials share are computed once."""

    search: Node = component(FIXED)
    sweep: None = component(FIXED)
    dry_run: bool = key(False, "true: print the plan and stop", roles=FIXED | ONCE)
    budget: str | None = key(None, "with sweep=auto: the time limit, such as 90s; null: 10m", roles=FIXED)
    objectives: tuple[str, ...] | None = key(
        None, "null: only `objective`; or a list that starts with it: [map@3,ms_per_query]", roles=FIXED
    )
    trials_per_job: int | None = key(
        None, "null: no limit in one process; else 25 in a grid, 1 in a search", least=1, roles=FIXED | ASIDE
    )
    trace: Literal["none"] = key("none", "trials are not traced", roles=ASIDE | ONCE)


class SearchConfig(SearchingConfig):
    """Show the top documents for one query, and the gate's signal and decision."""

    query: str = key(REQUIRED, "the text to search for", roles=Role.LINES)


class PrepareConfig(CommonConfig):
    """Turn text files into documents: extract their texts, cut them into chunks, find near-duplicates."""

    files: tuple[str, ...] | str | None = key(None, "paths with wildcards, such as 'corpus/**/*'; null: the sample's")
    output: Path = key(
        "${outputs}/documents", "the folder for the documents; replaced if prepared", roles=WRITES | ACTS
    )
    unreadable: Literal["stop", "skip"] = key(
        "stop", "files that cannot be read: stop (all are listed) | skip (listed)"
    )
    chunk: ChunkKeys


class ScoreConfig(TaskConfig):
    """Score a predictions file that was made elsewhere."""

    dataset: Node = component()
    predictions: Path = key(REQUIRED, "contest JSON lines {eval_id, topk} or a TREC run; a text task's own file")
    missing: Literal["skip", "zero"] = key(
        "skip", "labelled queries without a prediction: skip (counted) | zero (wrong)"
    )
    run_name: str | None = key(None, "null: the name of the predictions file", most=NAME, why=NAMES, roles=ASIDE | ONCE)
    public: float = key(0.4, "share of the labelled queries or items in the public part", least=0, most=1)
    seed: int = key(0, SPLIT_SEED, least=0, most=SEED, why=SEEDS)
    store: StoreKeys = inner(ASIDE)


class RunsConfig(TrackedConfig):
    """List the runs of an experiment, the best first, or all experiments, or a sweep's trials."""

    experiment_name: str | None = key(
        "retrieval", "lists its runs; null: list all experiments", most=NAME, why=NAMES, roles=LOCATES
    )
    run: str | None = key(None, "id of a sweep, or its first digits: list its trials")
    top: int = key(20, "rows of each table, at most", least=1)
    format: Literal["text", "json", "markdown"] = key("text", "text | json | markdown", roles=ASIDE | ONCE)


class FilesConfig(RankingConfig):
    """A command that compares logged runs, or files of rankings."""

    dataset: Node | None = component()
    missing: Literal["skip", "zero"] = key("skip", "for files: labelled queries without a list: skip | zero (wrong)")
    public: float = key(0.4, "for files: share of the labelled queries in the public part", least=0, most=1)
    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class CompareConfig(FilesConfig):
    """Compare runs: which one is better, by how much, and how certain that is."""

    runs: tuple[str, ...] | None = key(
        None, "ids of runs, their first digits, or files that dataset= scores; null: the best"
    )
    top: int = key(5, "without runs: how many of the best to compare, each configuration once", least=2, most=26)
    pairs: Literal["best", "all"] = key("best", "best: the best run against each other run | all: every pair")
    fail_if: Literal["worse"] | None = key(None, "worse: exit code 1 if BASE of runs=[BASE,NEW] is better, for CI")
    resamples: int = key(10_000, "bootstrap samples, and sign flips", least=100, most=1_000_000)
    seed: int = key(0, "seed of the samples and flips", least=0, most=SEED, why=SEEDS)


class BoardConfig(RankingConfig):
    """Write one page of all runs: which one to choose and why, query by query."""

    runs: tuple[str, ...] | None = key(
        None, "ids of runs, or their first digits; a sweep stands for its trials; null: the best"
    )
    output: Path = key("${outputs}/board.html", "the page to write; an earlier board is replaced", roles=WRITES | ACTS)
    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class AdviseConfig(RankingConfig):
    """List what to try next: the most it can gain, what it costs, and the command."""

    run: str | None = key(None, RUN_ID)
    top: int = key(5, "most things to list", least=1, most=100)
    store: StoreKeys = inner(ASIDE)


class PowerConfig(FilesConfig):
    """Compute how many labelled queries are needed to tell two runs apart."""

    runs: tuple[str, ...] | None = key(None, "ids of two runs or two files; null: the best, and the best that differs")
    power: float = key(0.8, "the chance of finding the difference", least=0.5, most=0.99)
    alpha: float = key(0.05, "a difference counts as found if p is at most this", least=0.001, most=0.2)


class ExportConfig(RankingConfig):
    """Write the best run of an experiment as a validated submission, with its provenance."""

    run: str | None = key(None, RUN_ID)
    submission: Path | None = key(None, "the file to write, which must not exist; null: in outputs", roles=WRITES)
    against: Path | None = key(None, "a sample submission; its ids and their order must be the same")
    model: bool = key(False, "true: register the run as an MLflow model to serve, with the alias champion")
    model_name: str | None = key(None, "null: the experiment's name", most=NAME, why=NAMES)
    allow: tuple[str, ...] = key((), "addresses and environment variables that the model may use", roles=ACTS)
    store: StoreKeys = inner(ASIDE)


class RecordConfig(TrackedConfig):
    """Record the leaderboard's scores of a submission in the ledger and on its run."""

    submission: Path = key(REQUIRED, "the submitted file; it is recognised by its content")
    public: float | None = key(None, "its score on the public leaderboard", least=-1e9, most=1e9)
    private: float | None = key(None, "its score on the private leaderboard", least=-1e9, most=1e9)
    scale: Literal["fraction", "percent"] = key("fraction", "how the leaderboard writes its scores, 0.81 or 81")


class HistoryConfig(TrackedConfig):
    """List all submissions, with local scores beside the leaderboard's."""

    format: TableFormat = key("text", PASTED, roles=ASIDE | ONCE)


class ReproduceConfig(TrackedConfig):
    """Repeat a logged run from its record, and check that its predictions are the same."""

    experiment_name: str = key("retrieval", "the experiment of the run", most=NAME, why=NAMES, roles=LOCATES)
    metric: str | None = key(None, BEST)
    select_on: Selection | None = key(None, PARTS)
    run: str | None = key(None, RUN_ID)
    verify_only: bool = key(False, "true: check the stored files against the run's hashes and scores; run nothing")
    allow: tuple[str, ...] = key((), "addresses and environment variables that may be used", roles=ACTS)
    fresh: bool = key(True, "true: compute everything again, in a temporary cache; false: use the cache")
    data: DataKeys
    plugins: PluginKeys = inner(ACTS | ASIDE)
    store: StoreKeys = inner(ASIDE)


class UiConfig(TrackedConfig):
    """Serve MLflow's pages of the runs on this machine."""

    host: str = key("127.0.0.1", ADDRESS)
    port: int = key(5000, "if it is in use, another one is taken", least=1, most=65535)
    experiment_name: str = key(
        "retrieval", "the experiment whose page address is printed", most=NAME, why=NAMES, roles=LOCATES
    )
    open: bool = key(False, "true: also open the page in the browser", roles=ACTS)


class DoctorConfig(TrackedConfig):
    """Check versions, plug-ins, store, cache, disk, cluster and hub, with a remedy for each problem."""

    dataset: Node = component()
    cluster: Node = component(ASIDE)
    tokenizer: Node = component()
    encoder: Node = component()
    index: Node = component()
    retriever: Mapping[str, Node] | None = component()
    plugins: PluginKeys = inner(ACTS | ASIDE)
    store: StoreKeys = inner(ASIDE)


class CacheConfig(CommonConfig):
    """List the cache by size or age, and prune it; pruned entries are computed again when needed."""

    sort: Literal["size", "age"] = key("size", "size | age: time since the last use")
    show: int = key(20, "entries listed; all are counted", least=1)
    prune: PruneKeys = inner(ACTS)
    store: StoreKeys = inner(ASIDE)


class SyncConfig(TrackedConfig):
    """Upload the runs that were saved in the outputs folder while the tracking server was down."""


class TestSetConfig(CommonConfig):
    """A command about a test set."""

    testset: Path = key(TESTSET, "the folder of the test set", roles=WRITES)


class AskingConfig(TestSetConfig):
    """A command that asks a language model about a test set."""

    llm: Node = component()
    model: str | None = key(
        None, "name of the language model, same as llm.model; best one that neither drafted nor ranked"
    )
    language: Literal["auto", "ko", "en"] = key("auto", "language of the shipped prompts; auto: the documents'")
    dry_run: bool = key(False, "true: show the number of requests, the cost and the prompts; send and write nothing")
    store: StoreKeys = inner(ASIDE)


class DraftConfig(AskingConfig):
    """Draft a test set from documents with a language model: queries, answers and evidence."""

    documents: Path = key("${outputs}/documents", "the folder that harness prepare wrote")
    limit: int | None = key(5, "documents to draft from, a fair share of every file; null: all", least=1)
    questions: int = key(2, "most queries of each kind per document", least=1, most=50)
    kinds: tuple[Literal["fact", "search", "conversation", "none", "unanswerable"], ...] = key(
        ("fact", "search", "conversation", "none", "unanswerable"), "kinds of queries: a request per kind and document"
    )
    examples: Path | None = key(None, "real queries whose style to follow: JSON lines {eval_id, msg}, or a test set")
    prompts: PromptKeys
    filters: FilterKeys
    easiness: bool = key(True, "true: let BM25 search for each draft, to flag easy ones")
    seed: int = key(0, "seed for drawing documents and examples", least=0, most=SEED, why=SEEDS)


class PoolConfig(RankingConfig, TestSetConfig):
    """Collect from runs on a test set the pairs of query and document that are worth judging."""

    documents: Path | None = key(None, "the documents folder; null: named by the pool or the test set")
    runs: tuple[str, ...] | None = key(None, "ids of runs on this test set, or their first digits; null: the best")
    top: int = key(
        5, "without runs: how many of the best finished ones to use, each configuration once", least=1, most=100
    )
    pool: PoolKeys
    seed: int = key(0, OF_DRAW, least=0, most=SEED, why=SEEDS)


class JudgeConfig(AskingConfig):
    """Grade the pooled pairs of a test set with a language model, from 0 to 3, each with a quotation."""

    documents: Path | None = key(None, POOLED)
    judge: JudgeKeys
    limit: int | None = key(200, "pairs to judge now, one request each; null: all that remain", least=1)
    prompt: Path | None = key(
        None, "a prompt file with {query}, {document}, optionally {conversation}, {note}; null: shipped"
    )


class ReviewConfig(TestSetConfig):
    """Open a local page where reviewers judge the pooled documents blind."""

    documents: Path | None = key(None, POOLED)
    reviewer: tuple[str, ...] | str | None = key(
        None, "who judges: a name, or several such as [kim,lee]; each gets a link"
    )
    sample: Literal["audit", "repair", "all", "open"] = key(
        "audit",
        "audit: drawn queries | repair: suspect judgements | all: unjudged pairs | open: disagreements to settle",
    )
    audit: AuditKeys
    via: Literal["page", "xlsx"] = key("page", "page: in the browser | xlsx: an Excel workbook for one reviewer")
    output: Path | None = key(None, "with via=xlsx: the workbook to write", roles=WRITES | ACTS)
    from_: Path | None = key(None, "with via=xlsx: the workbook to read; all of it is taken, or nothing")
    host: str = key("127.0.0.1", ADDRESS)
    port: int = key(5050, "port of the page; if it is in use, another one is taken", least=1, most=65535)


class AuditConfig(TestSetConfig):
    """Measure how far the model's judgements agree with people's, and people's with each other."""

    relevant_from: int = key(2, RELEVANT, least=1, most=3)
    metric: str = key("modified_map@3", "the measure whose gain from 20 more checked queries is estimated")


class FreezeConfig(TestSetConfig):
    """Resolve all judgements of a test set, and write labels that never change."""

    documents: Path | None = key(None, POOLED)
    version: int = key(1, "version of the frozen set; raise it if judgements have changed", least=1)
    output: Path | None = key(
        None, "the folder of this version; null: v1, v2, ... in the test set", roles=WRITES | ACTS
    )
    relevant_from: int = key(2, RELEVANT, least=1, most=3)
    leave_out: bool = key(False, "true: leave out queries with open questions, instead of refusing")
    formats: tuple[Literal["contest", "beir", "autorag", "trec"], ...] = key(
        (), "also write these formats for other tools"
    )


class InitConfig(RunConfig):
    """Write harness.yaml: the defaults of all commands in this folder."""


@dataclass(frozen=True)
class Command:
    """A command.

    config: the class of its values; its docstring is the help text. function: module:name, below harness.commands.
    example: the words after the name of the command.
    first: the keys at the top of its help; messages suggest the first one for a word without a key.
    composed: whether the function takes a checked config; else it takes the request and composes many.
    """

    config: type[Config]
    function: str
    example: str
    first: tuple[str, ...] = ()
    composed: bool = True

    @property
    def about(self) -> str:
        return (self.config.__doc__ or "").strip()

    def load(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(f"harness.commands.{module}"), name)
        return function


_FIRST = ("dataset", "retriever", "gate", "top_k", "objective", "metrics", "experiment_name")
COMMANDS = {
    "init": Command(InitConfig, "init:init", "dataset=contest dataset.path=data experiment_name=first"),
    "run": Command(RunConfig, "run:run", "dataset=contest dataset.path=data gate=auto", _FIRST),
    "sweep": Command(
        SweepConfig,
        "sweep:sweep",
        "retriever=bm25,hybrid_lexical 'top_k=range(1,4)'",
        (*_FIRST, "sweep", "budget", "dry_run"),
        composed=False,
    ),
    "prepare": Command(
        PrepareConfig, "prepare:prepare", "files='corpus/**/*' output=docs chunk.size=400", ("files", "output")
    ),
    "score": Command(
        ScoreConfig,
        "score:score_file",
        "predictions=my.run dataset=trec dataset.qrels=qrels.txt",
        ("predictions", "dataset"),
    ),
    "search": Command(SearchConfig, "search:search", "query='달은 왜 모양이 변해?'", ("query", "dataset", "retriever")),
    "runs": Command(RunsConfig, "runs:runs", "experiment_name=retrieval top=5"),
    "compare": Command(CompareConfig, "compare:compare", "experiment_name=retrieval top=3"),
    "board": Command(BoardConfig, "board:board", "experiment_name=retrieval output=board.html"),
    "advise": Command(AdviseConfig, "advise:advise_run", "experiment_name=retrieval"),
    "power": Command(PowerConfig, "power:power", "'runs=[3f2a91bc,b07c44d2]'"),
    "export": Command(ExportConfig, "export.command:export", "metric=modified_map@3", ("run",)),
    "export record": Command(RecordConfig, "export.history:record", "submission=best.csv public=0.81", ("submission",)),
    "export history": Command(HistoryConfig, "export.history:history", ""),
    "reproduce": Command(ReproduceConfig, "reproduce:reproduce", "experiment_name=retrieval"),
    "testset draft": Command(DraftConfig, "testset.draft:draft", "testset=ts model=gpt-4o-mini limit=5 dry_run=true"),
    "testset pool": Command(PoolConfig, "testset.pool:pool", "testset=ts experiment_name=first top=5"),
    "testset judge": Command(JudgeConfig, "testset.judge:judge", "testset=ts model=gpt-4o limit=20 dry_run=true"),
    "testset review": Command(ReviewConfig, "testset.review:review", "testset=ts reviewer=kim"),
    "testset audit": Command(AuditConfig, "testset.audit:audit", "testset=ts"),
    "testset freeze": Command(FreezeConfig, "testset.freeze:freeze", "testset=ts version=1"),
    "ui": Command(UiConfig, "ui:ui", "port=5000"),
    "doctor": Command(DoctorConfig, "doctor.command:doctor", ""),
    "doctor cache": Command(CacheConfig, "doctor.command:cache", "prune.unused_days=30"),
    "doctor sync": Command(SyncConfig, "doctor.sync:sync", ""),
}
PRIMARY = {name.replace(" ", "_"): command for name, command in COMMANDS.items()}  # by the name of their configs


def config_class(name: str) -> type[Config]:
    """Return the class of a primary config, `common` included."""
    return PRIMARY[name].config if name in PRIMARY else CommonConfig


def base_class(cls: type[Config]) -> type[Config] | None:
    """Return the class that a primary config builds on; None for `common`."""
    known = [command.config for command in PRIMARY.values()]
    return next((one for one in cls.__mro__[1:] if one in known or one is CommonConfig), None)


def keys_by_name() -> Mapping[str, Sequence[Key]]:
    """Return dotted name -> the plain keys with that name in all commands."""
    found: dict[str, list[Key]] = {}
    for command in COMMANDS.values():
        for name, one in keys(command.config).items():
            found.setdefault(name, []).append(one)
    return found
