"""The harness from Python. Each function does what the command of its name does, and returns what it found.

    import harness

    result = harness.run("retriever=hybrid_lexical", "dataset=contest", "dataset.path=data")
    result.metrics["ndcg@10"], result.per_query

Overrides are those of the command line, one text each, as the shell passes them on; `harness.yaml` counts too. What is
wrong with them or with files is BadInput; a run that fails for a known reason is Failed; the messages are those of the
commands. Nothing of the process changes: arguments, working folder, logging, signals, Hydra's own state. Notebooks and
several threads may call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from harness.commands.compare import Compared, compare_and_log
from harness.commands.run import Result, experiment
from harness.commands.search import Hits, search_once
from harness.config.check import Invocation
from harness.config.commands import COMMANDS, CompareConfig, RunConfig
from harness.config.components import build
from harness.config.composing import compose
from harness.config.manual import shipped
from harness.config.messages import check_words, explain, failure
from harness.config.schema import Key, Role, check_value, keys, schema_groups
from harness.data import given
from harness.data.dataset import Dataset, conversations
from harness.data.predictions import read_predictions
from harness.errors import BadInput, Failed
from harness.experiment import session
from harness.experiment.file_scores import labels_alone
from harness.experiment.plan import Plan
from harness.measures import scores
from harness.measures.measures import parse_measure, requested
from harness.measures.objective import objective_of
from harness.measures.scores import ShownLists
from harness.reports.evaluation import Evaluation
from retrievers.base import Predictions, Ranking
from retrievers.external.function import Search

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")


def run(*overrides: str) -> Result:
    """Run one experiment, as `harness run`: retrieve, gate, score, log."""
    return _called("run", overrides, experiment)


def search(*overrides: str) -> Hits:
    """Search for one query, as `harness search`: `harness.search("query=달은 왜 모양이 변해?")`."""
    return _called("search", overrides, search_once)


def load_dataset(*overrides: str) -> Dataset:
    """Documents, queries and labels: `harness.load_dataset("dataset=contest", "dataset.path=data")`.

    Labels alone, such as `"dataset=trec", "dataset.qrels=FILE"`, are enough to `evaluate` lists.
    """
    return _called("run", overrides, _dataset)


def compare(*runs: str | Result) -> Compared:
    """Compare runs, as `harness compare`: `compare("experiment_name=first", "top=3")`, or `compare(first, second)`.

    runs: overrides, results of `run`, and ids of runs or their first digits. Runs are looked for where the first result
    was logged, unless overrides say where.
    """
    results = [one for one in runs if isinstance(one, Result)]
    words = [one for one in runs if not isinstance(one, Result)]
    ids = [_logged_id(one) if isinstance(one, Result) else one for one in runs if not _is_override(one)]
    where = [word for word in results[0].invocation.overrides if _is_where(word)] if results else []
    named = [f"runs=[{','.join(ids)}]"] if ids else []
    others = [word for word in words if _is_override(word)]
    return _called("compare", [*where, *named, *others], compare_and_log)


def evaluate(
    predictions: Mapping[Any, Any] | DataFrame | Predictions | Ranking | Search | str | os.PathLike[str],
    dataset: Dataset,
    metrics: Sequence[str] | None = None,
    *,
    missing: Literal["skip", "zero"] = "skip",
    k: int = 100,
) -> Evaluation:
    """Score ranked lists against the labels of a dataset, as `harness score` does; nothing is logged.

    predictions: {query_id: [doc_id, ...]}; {query_id: {doc_id: score}}; a table with the columns query_id, doc_id and
        score; the path of a file; or a function search(queries, k), which gets the texts of all queries and returns for
        each at most k pairs (doc_id, score).
    metrics: names of measures, the first of which ranks; None: those of `harness run`.
    missing: labelled queries without a list: "skip", or "zero": scored as wrong.
    k: documents asked of a function.

    A measure that reads deeper than lists that may have been cut has no value, and `absent` says why.
    """
    return _explained("score", (), lambda: _evaluated(predictions, dataset, metrics, missing, k))


def _called(command: str, words: Sequence[str], function: Callable[[Any, Invocation], T]) -> T:
    """What a function finds by the config that the overrides of a command stand for."""

    def call() -> T:
        for word in words:
            if not isinstance(word, str):
                raise BadInput(f"{word!r:.60} is a {type(word).__name__}. Give each override as a text: 'KEY=VALUE'.")
        check_words(command, words, ())
        session.ask_anew()
        document, invocation = compose(command, words)
        return function(COMMANDS[command].config.of(document), invocation)

    return _explained(command, words, call)


def _explained(command: str, words: Sequence[str], call: Callable[[], T]) -> T:
    """The result of a call, whose errors have the messages of the command line."""
    try:
        return call()
    except (BadInput, Failed):
        raise
    except Exception as error:
        if message := explain(error, command, words):
            raise BadInput(message) from error
        if message := failure(error):
            raise Failed(message) from error
        raise


def _dataset(config: RunConfig, invocation: Invocation) -> Dataset:
    source, name = config.dataset, invocation.choices["dataset"]
    if labels_alone(source):  # enough for `evaluate`, as for `harness score`
        return Dataset(name, (), (), build(source, where="dataset").qrels())
    return session.open_dataset(Plan.of(config.document), name)


def _is_override(one: str | Result) -> bool:
    return isinstance(one, str) and ("=" in one or one.startswith(("-", "~")))


def _is_where(word: str) -> bool:
    name = word.partition("=")[0].partition(".")[0]
    about = keys(RunConfig).get(name) or schema_groups(RunConfig).get(name)
    return about is not None and Role.LOCATES in about.roles


def _logged_id(result: Result) -> str:
    if result.run_id is None:
        raise BadInput(f"{result.name} is not in MLflow, so that it cannot be compared. Run it with tracking=mlflow.")
    return result.run_id


def _evaluated(predictions: Any, dataset: Dataset, metrics: Any, missing: Any, k: Any) -> Evaluation:
    check_value(missing, keys(CompareConfig)["missing"], "missing")
    check_value(k, keys(RunConfig)["depth"], "k")
    check_value(metrics, Key(list[str] | None), "metrics")
    if metrics == []:
        raise BadInput("metrics is empty. Name at least one measure, or leave it out.")
    for name in metrics or ():
        parse_measure(name)
    if not isinstance(dataset, Dataset):
        raise BadInput(f"dataset is {dataset!r:.60}. Give what harness.load_dataset returns.")
    if dataset.qrels is None:
        raise BadInput("There are no labels to score with. Name the file that has them: dataset.qrels=FILE.")
    names = requested(shipped("task", "retrieval")["metrics"], dataset.qrels) if metrics is None else metrics
    lists = _shown(predictions, dataset, k)
    found = scores.score_lists(lists, dataset.qrels, names, multi_turn=conversations(dataset.queries), missing=missing)
    return Evaluation(found, None, objective_of(names[0], found, None, "all"))


def _shown(predictions: Any, dataset: Dataset, k: int) -> ShownLists:
    """Predictions in any of their forms as lists, which may have been cut unless they tell otherwise."""
    if isinstance(predictions, str | os.PathLike):
        predictions = read_predictions(Path(predictions))
    elif isinstance(predictions, Mapping):
        predictions = given.from_mapping(predictions)
    elif hasattr(predictions, "columns"):
        predictions = given.from_table(predictions)
    elif callable(predictions):
        found = given.searched(predictions, dataset, k)
        return ShownLists(found, complete=found.docs.shape[1] < k)
    elif not isinstance(predictions, Predictions | Ranking):
        raise BadInput(f"predictions are {predictions!r:.60}. Give {given.FORMS}.")
    return ShownLists(predictions, complete=isinstance(predictions, Predictions) and predictions.whole)
