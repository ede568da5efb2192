"""The harness from Python: each command is a function that returns its result and prints nothing.

    import harness

    result = harness.run("retriever=hybrid_lexical", "dataset=contest", "dataset.path=data")
    result.metrics["ndcg@10"], result.per_query

The arguments are the overrides of the command line, one string each. The defaults in `harness.yaml` apply too. Errors
are raised as BadInput or Failed, with the messages of the commands. A call does not change the process's
arguments, working folder, logging and signal handlers, or Hydra's state. Notebooks and threads may call the functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from harness.analysis.guard.checking import CheckResult
from harness.analysis.single_run import Result
from harness.commands.compare import Compared
from harness.commands.search import Hits
from harness.config.check import primary
from harness.config.command_list import COMMANDS
from harness.config.commands import CompareConfig, RunConfig
from harness.config.components import build
from harness.config.composing import Request, check_flags, compose, hydras_state
from harness.config.manual import shipped
from harness.config.messages import check_words, explain, failure
from harness.config.schema import Key, Role, check_value, keys, with_role
from harness.data.dataset import Dataset
from harness.data.predictions import FORMS, Predictions, from_mapping, from_table, read_predictions, searched
from harness.errors import BadInput, Failed
from harness.experiment import session
from harness.experiment.file_scores import labels_alone
from harness.experiment.plan import Plan
from harness.measures import scores
from harness.measures.measures import parse_measure, requested
from harness.measures.objective import objective_of
from harness.measures.scores import ShownLists
from harness.reports.evaluation import Evaluation
from harness.reports.result import CommandAnswer, CommandResult
from retrievers.base import Ranking
from retrievers.external.function import Search

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")


def _function(command: str) -> Callable[..., Any]:

    def call(*words: Any) -> Any:
        overrides = _overrides(command, words)
        answer = _explained(command, overrides, lambda: _answered(command, overrides))
        if answer.serve:
            raise BadInput(f"harness.{call.__name__} does not read standard input. Give {entry.first[0]}=TEXT.")
        return CommandResult(answer) if answer.value is None else answer.value

    entry = COMMANDS[command]
    call.__name__ = call.__qualname__ = primary(command)
    call.__doc__ = f"{entry.about}\n\nOn the command line: harness {command} {entry.example}"
    return call


run: Callable[..., Result] = _function("run")
compare: Callable[..., Compared] = _function("compare")
check: Callable[..., CheckResult] = _function("check")
search: Callable[..., Hits] = _function("search")
advise: Callable[..., CommandResult] = _function("advise")
board: Callable[..., CommandResult] = _function("board")
doctor: Callable[..., CommandResult] = _function("doctor")
doctor_cache: Callable[..., CommandResult] = _function("doctor cache")
doctor_sync: Callable[..., CommandResult] = _function("doctor sync")
doctor_warm: Callable[..., CommandResult] = _function("doctor warm")
export: Callable[..., CommandResult] = _function("export")
export_history: Callable[..., CommandResult] = _function("export history")
export_record: Callable[..., CommandResult] = _function("export record")
init: Callable[..., CommandResult] = _function("init")
load: Callable[..., CommandResult] = _function("load")
power: Callable[..., CommandResult] = _function("power")
prepare: Callable[..., CommandResult] = _function("prepare")
reproduce: Callable[..., CommandResult] = _function("reproduce")
runs: Callable[..., CommandResult] = _function("runs")
score: Callable[..., CommandResult] = _function("score")
sweep: Callable[..., CommandResult] = _function("sweep")
testset_audit: Callable[..., CommandResult] = _function("testset audit")
testset_draft: Callable[..., CommandResult] = _function("testset draft")
testset_freeze: Callable[..., CommandResult] = _function("testset freeze")
testset_judge: Callable[..., CommandResult] = _function("testset judge")
testset_pool: Callable[..., CommandResult] = _function("testset pool")
testset_review: Callable[..., CommandResult] = _function("testset review")
ui: Callable[..., CommandResult] = _function("ui")
watch: Callable[..., CommandResult] = _function("watch")


def load_dataset(*overrides: str) -> Dataset:
    """Read documents, queries and labels: `harness.load_dataset("dataset=contest", "dataset.path=data")`.

    Labels alone (`"dataset=trec", "dataset.qrels=FILE"`) are enough for `evaluate`.
    """

    def read() -> Dataset:
        check_words("run", words, ())
        session.ask_anew()
        document, invocation = compose("run", words)
        name, source = invocation.choices["dataset"], document["dataset"]
        if labels_alone(source):  # like `harness score`, `evaluate` needs no documents
            return Dataset(name, (), (), build(source, where="dataset").qrels())
        return session.open_dataset(Plan.of(document), name)

    words = _overrides("run", overrides)
    return _explained("run", words, read)


def evaluate(
    predictions: Mapping[Any, Any] | DataFrame | Predictions | Ranking | Search | str | os.PathLike[str],
    dataset: Dataset,
    metrics: Sequence[str] | None = None,
    *,
    missing: Literal["skip", "zero"] = "skip",
    k: int = 100,
) -> Evaluation:
    """Score ranked lists against the labels of a dataset, like `harness score`. Nothing is logged.

    predictions: {query_id: [doc_id, ...]}; {query_id: {doc_id: score}}; a table with the columns query_id, doc_id and
        score; the path of a file; or a function search(queries, k). The function gets the texts of all queries, and
        returns at most k pairs (doc_id, score) for each query.
    metrics: names of measures; the first one is the objective. None: the measures of `harness run`.
    missing: "skip": leave out labelled queries without a list. "zero": score them as wrong.
    k: number of documents to request from a function.

    A measure has no value if it reads deeper than the longest list and the lists may have been cut. The result's
    `absent` says why.
    """
    return _explained("score", (), lambda: _evaluated(predictions, dataset, metrics, missing, k))


def _answered(command: str, words: Sequence[str]) -> CommandAnswer:
    check_words(command, words, ())
    session.ask_anew()
    entry = COMMANDS[command]
    if not entry.composed:
        check_flags(words, ("-",))
        with hydras_state():
            return cast(CommandAnswer, entry.load()(Request.of(command, words)))
    document, invocation = compose(command, words)
    return cast(CommandAnswer, entry.load()(entry.config.of(document), invocation))


def _overrides(command: str, words: Sequence[Any]) -> list[str]:
    """Return the overrides of a call. Replace Results by their run ids, and add the first Result's tracking store."""
    results = [one for one in words if isinstance(one, Result)]
    for one in words:
        if not isinstance(one, str | Result):
            raise BadInput(f"{one!r:.60} is a {type(one).__name__}. Give each override as a text: 'KEY=VALUE'.")
    known = keys(COMMANDS[command].config)
    several = "runs" in known
    if not several and "run" not in known:
        if results:
            raise BadInput(f"harness {command} takes no runs: leave out {results[0].name}.")
        return [*words]
    for one in results:
        if one.run_id is None:
            raise BadInput(f"{one.name} is not in MLflow, so no command can read it. Run it with tracking=mlflow.")
    ids = [one.run_id or "" if isinstance(one, Result) else one for one in words if not _is_override(one)]
    if not several and len(ids) > 1:
        raise BadInput(f"harness {command} is about one run: give one of {', '.join(ids)}.")
    named = [f"runs=[{','.join(ids)}]" if several else f"run={ids[0]}"] if ids else []
    first = results[0].invocation.overrides if results else ()
    located = with_role(COMMANDS[command].config, Role.LOCATES)
    where = [word for word in first if word.partition("=")[0].partition(".")[0] in located]
    return [*where, *named, *(one for one in words if _is_override(one))]


def _explained(command: str, words: Sequence[str], call: Callable[[], T]) -> T:
    """Return the result of a call. If the call fails, raise an error with the message of the command line."""
    try:
        return copy_context().run(call)  # so a module that a call imports may make calls that allow other modules
    except (BadInput, Failed):
        raise
    except Exception as error:
        if message := explain(error, command, words):
            raise BadInput(message) from error
        if message := failure(error):
            raise Failed(message) from error
        raise


def _is_override(one: str | Result) -> bool:
    return isinstance(one, str) and ("=" in one or one.startswith(("-", "~")))


def _evaluated(predictions: Any, dataset: Dataset, metrics: Any, missing: Any, k: Any) -> Evaluation:
    check_value(missing, keys(CompareConfig)["missing"], "missing")
    check_value(k, keys(RunConfig)["depth"], "k")
    check_value(metrics, Key(list[str] | None), "metrics")
    if metrics == []:
        raise BadInput("metrics is empty. Name at least one measure, or leave out metrics.")
    for name in metrics or ():
        parse_measure(name)
    if not isinstance(dataset, Dataset):
        raise BadInput(f"dataset is {dataset!r:.60}. Give a result of harness.load_dataset.")
    if dataset.qrels is None:
        raise BadInput("The dataset has no labels to score with. Name a file of labels: dataset.qrels=FILE.")
    names = requested(shipped("task", "retrieval")["metrics"], dataset.qrels) if metrics is None else metrics
    lists = _shown(predictions, dataset, k)
    found = scores.score_lists(lists, dataset.qrels, names, multi_turn=dataset.conversations, missing=missing)
    return Evaluation(found, None, objective_of(names[0], found, None, "all"))


def _shown(predictions: Any, dataset: Dataset, k: int) -> ShownLists:
    if isinstance(predictions, str | os.PathLike):
        predictions = read_predictions(Path(predictions))
    elif isinstance(predictions, Mapping):
        predictions = from_mapping(predictions)
    elif hasattr(predictions, "columns"):
        predictions = from_table(predictions)
    elif callable(predictions):
        found = searched(predictions, dataset, k)
        return ShownLists(found, complete=found.docs.shape[1] < k)
    elif not isinstance(predictions, Predictions | Ranking):
        raise BadInput(f"predictions are {predictions!r:.60}. Give {FORMS}.")
    return ShownLists(predictions, complete=isinstance(predictions, Predictions) and predictions.whole)
