"""The list of commands: what each one does, and where its keys and its function are. Add a new command here.

The list imports no command, to keep `harness --help` fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from harness.config.schema import Config

KEYS = "harness.config.commands"


class Command(NamedTuple):
    """A command.

    keys: the name of its config class in harness.config.commands.
    function: `MODULE:NAME` below harness.commands.
    about: the help text, one sentence.
    example: the arguments of the example command in its help.
    first: the keys at the top of the help. For a word without `KEY=`, the error message suggests the first of them.
    composed: whether the function takes a checked config. Otherwise it takes the request and composes many configs.
    """

    keys: str
    function: str
    about: str
    example: str
    first: tuple[str, ...] = ()
    composed: bool = True

    @property
    def config(self) -> type[Config]:
        found: type[Config] = getattr(importlib.import_module(KEYS), self.keys)
        return found

    def load(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(f"harness.commands.{module}"), name)
        return function


_CHOICES, _FIRST = ("dataset", "retriever", "gate"), ("top_k", "experiment_name", "objective", "metrics")
GROUPS = {  # heading in `harness --help` -> its commands, in the order in which people need them
    "First day": {
        "init": Command(
            "InitConfig",
            "init:init",
            "Write harness.yaml: the defaults of all commands in this folder.",
            "dataset=contest dataset.path=data experiment_name=first",
        ),
        "run": Command(
            "RunConfig",
            "run:run",
            "Run one experiment, from documents and queries to a tracked score that can be exported.",
            "dataset=contest dataset.path=data gate=auto",
            (*_CHOICES, *_FIRST),
        ),
        "search": Command(
            "SearchConfig",
            "search:search",
            "Show the top documents for a query, or for one query after another, and the gate's decision.",
            "query='달은 왜 모양이 변해?'",
            ("query", "dataset", "retriever"),
        ),
        "runs": Command(
            "RunsConfig",
            "runs:runs",
            "List the runs of an experiment (best first), all experiments, or the trials of a sweep.",
            "experiment_name=retrieval top=5",
        ),
        "score": Command(
            "ScoreConfig",
            "score:score_file",
            "Score a predictions file that was made elsewhere.",
            "predictions=my.run dataset=trec dataset.qrels=qrels.txt",
            ("predictions", "dataset"),
        ),
        "ui": Command("UiConfig", "ui:ui", "Serve MLflow's pages of the runs on this machine.", "port=5000"),
        "doctor": Command(
            "DoctorConfig",
            "doctor.command:doctor",
            "Check versions, plug-ins, store, cache, disk, cluster and hub, with a remedy for each problem.",
            "",
        ),
    },
    "Deciding which run is best": {
        "sweep": Command(
            "SweepConfig",
            "sweep:sweep",
            "Run many trials of `run` under one parent run; retrievals that trials share are computed once.",
            "retriever=bm25,hybrid_lexical 'top_k=range(1,4)'",
            (*_CHOICES, "sweep", "budget", "dry_run", *_FIRST),
            composed=False,
        ),
        "compare": Command(
            "CompareConfig",
            "compare:compare",
            "Compare runs: which one is better, by how much, and how certain that is.",
            "experiment_name=retrieval top=3",
        ),
        "check": Command(
            "CheckConfig",
            "check:check",
            "Check that a run is no worse than a baseline, query by query; the exit code says so.",
            "retriever=bm25 baseline=baseline.json",
            (
                "run",
                "baseline",
                "save",
                "measures",
                "margin",
                "slices",
                "slice_margin",
                "bounds",
                "undecided",
                "junit",
                "format",
                *_CHOICES,
            ),
        ),
        "board": Command(
            "BoardConfig",
            "board:board",
            "Write one page of all runs: which one to choose and why, query by query.",
            "experiment_name=retrieval output=board.html",
        ),
        "advise": Command(
            "AdviseConfig",
            "advise:advise_run",
            "List what to try next, with the greatest possible gain, the cost, and the command.",
            "experiment_name=retrieval",
        ),
        "power": Command(
            "PowerConfig",
            "power:power",
            "Compute how many labelled queries are needed to tell two runs apart.",
            "'runs=[3f2a91bc,b07c44d2]'",
        ),
        "load": Command(
            "LoadConfig",
            "load:load",
            "Measure the latency and throughput of a search at several concurrencies and rates.",
            "retriever=hybrid_light 'concurrency=[1,2,4]'",
            ("concurrency", "rates", "seconds", "queries", *_CHOICES),
        ),
        "export": Command(
            "ExportConfig",
            "export.command:export",
            "Write the best run of an experiment as a validated submission, with its provenance.",
            "metric=modified_map@3",
            ("run",),
        ),
    },
    "Labels for your own texts": {
        "prepare": Command(
            "PrepareConfig",
            "prepare:prepare",
            "Turn text files into documents: extract their texts, cut them into chunks, find near-duplicates.",
            "files='corpus/**/*' output=docs chunk.size=400",
            ("files", "output"),
        ),
        "testset draft": Command(
            "DraftConfig",
            "testset.draft:draft",
            "Draft a test set from documents with a language model: queries, answers and evidence.",
            "testset=ts model=gpt-4o-mini limit=5 dry_run=true",
        ),
        "testset pool": Command(
            "PoolConfig",
            "testset.pool:pool",
            "Collect the pairs of query and document that are worth judging, from runs on a test set.",
            "testset=ts experiment_name=first top=5",
        ),
        "testset judge": Command(
            "JudgeConfig",
            "testset.judge:judge",
            "Grade the pooled pairs of a test set with a language model, from 0 to 3, each with a quotation.",
            "testset=ts model=gpt-4o limit=20 dry_run=true",
        ),
        "testset review": Command(
            "ReviewConfig",
            "testset.review:review",
            "Open a local page where reviewers judge the pooled documents blind.",
            "testset=ts reviewer=kim",
        ),
        "testset audit": Command(
            "AuditConfig",
            "testset.audit:audit",
            "Measure how often people agree with the model and with each other.",
            "testset=ts",
        ),
        "testset freeze": Command(
            "FreezeConfig",
            "testset.freeze:freeze",
            "Resolve all judgements of a test set, and write labels that never change.",
            "testset=ts version=1",
        ),
    },
    "Operations": {
        "watch": Command(
            "WatchConfig",
            "watch:watch_champion",
            "Repeat the best run on today's data, and say what has changed; the exit code says if retrieval got worse.",
            "experiment_name=retrieval",
            ("run", "experiment_name", "data.path", "queries", "margin", "bounds", "undecided"),
        ),
        "reproduce": Command(
            "ReproduceConfig",
            "reproduce:reproduce",
            "Repeat a logged run from its record, and check that its predictions are the same.",
            "experiment_name=retrieval",
        ),
        "export record": Command(
            "RecordConfig",
            "export.history:record",
            "Record the leaderboard's scores of a submission in the ledger and on its run.",
            "submission=best.csv public=0.81",
            ("submission",),
        ),
        "export history": Command(
            "HistoryConfig",
            "export.history:history",
            "List all submissions, with local scores beside the leaderboard's.",
            "",
        ),
        "doctor cache": Command(
            "CacheConfig",
            "doctor.command:cache",
            "List the cache by size or age, and prune it; pruned entries are computed again when needed.",
            "prune.unused_days=30",
        ),
        "doctor warm": Command(
            "WarmConfig",
            "doctor.warm:warm",
            "Compile all kernels for this machine, for example in an image; otherwise, they are compiled when needed.",
            "",
        ),
        "doctor sync": Command(
            "SyncConfig",
            "doctor.sync:sync",
            "Upload the runs that were saved in the outputs folder while the tracking server was down.",
            "",
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
PRIMARY = {name.replace(" ", "_"): command for name, command in COMMANDS.items()}  # primary config -> command


def config_class(name: str) -> type[Config]:
    """Return the config class of a primary config or of `common`."""
    from harness.config.commands import CommonConfig

    return PRIMARY[name].config if name in PRIMARY else CommonConfig


def base_class(cls: type[Config]) -> type[Config] | None:
    """Return the config class that a config class extends; None for the class of `common`."""
    known = [config_class(name) for name in ("common", *PRIMARY)]
    return next((one for one in cls.__mro__[1:] if one in known), None)
