"""Package and register a run as an MLflow model, and load such a model only if all its files are unchanged.

A package has a manifest, the config, the learnt rules of gate and fusion, the documents, the indexes, the random
queries for the gate's signal `background`, and the prompt of a language model that writes the queries.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.canonical import flatten
from harness.config.components import component_identity, reusable, target_class
from harness.data.dataset import Dataset
from harness.data.files import field, json_lines, json_text
from harness.data.source import turns
from harness.errors import BadInput
from harness.experiment import steps
from harness.experiment.cached_parts import link
from harness.experiment.plan import Plan
from harness.experiment.searcher import Searcher
from harness.experiment.session import open_session
from harness.gates.signals import random_queries
from harness.recording import provenance, retrieval_run
from harness.recording.logged_run import ValidRun, read_config, require_allowed_hosts
from harness.storage.cache import Cache
from harness.storage.entries import verify_entry
from harness.tracking.mlflow_client import ALIAS, champion, shown_address
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import Document, IndexedTexts, Query, Turn

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature
    from mlflow.tracking import MlflowClient
    from pandas import DataFrame


NOT_IN_MODEL_NAMES = re.compile(r"""[/:.%"'`]""")  # characters that MLflow refuses in the name of a logged model
COLUMNS = ("query", "messages", "query_id")  # columns of a request
FITTED = {"gate": "gate/fitted", "fusion": "fusion/fitted"}  # group -> the component that applies a learnt rule
PROMPT = "prompt.txt"  # file with the prompt of a language model that writes the queries
UNASKED = "The language model would have to write the queries again. Run the experiment again, and export that run."


@dataclass(frozen=True)
class ServedRun:
    """The contents of a packaged run.

    queries: the queries with which the run searched. cache: holds the run's indexes; missing indexes are built there.
    rules: "gate" or "fusion" -> file of the rule that the run learnt or was given.
    """

    run: LoggedRun
    plan: Plan
    dataset: Dataset
    queries: tuple[Query, ...]
    cache: Cache
    rules: Mapping[str, Path]


@dataclass(frozen=True)
class RegisteredModel:
    """A run as a registered version. before: the version that had the alias before. serve: a command to serve it."""

    name: str
    version: int
    alias: str
    before: str | None
    uri: str
    model_id: str
    bytes: int
    serve: str


@contextmanager
def prepared_model(
    tracker: Tracker, run: LoggedRun, valid: ValidRun, cache: Cache, name: str, allow: Sequence[str]
) -> Iterator[ServedRun]:
    """Create the registered model `name` if it is missing. Yield what `log_model` packages as a new version of it.

    Raise BadInput if the model might not answer as the run did, or if MLflow refuses the name.
    allow: as for `require_allowed_hosts`.
    """
    assert valid.dataset is not None
    plan, dataset, client = Plan.of(valid.config), valid.dataset, tracker.client
    require_allowed_hosts(run, valid.config, allow, plan.asks_model)
    for retriever, node in plan.retriever.items():
        steps.require_search(retriever, node, "A model answers new queries")
        if hasattr(target_class(node, "retriever"), "imports"):
            raise BadInput(f"retriever.{retriever} calls your own function. A model cannot contain that function.")
    if size := plan.deciding_shard:
        raise BadInput(
            f"Run {run.short_id} encoded its documents in shards of about {size:,}, but a model has one index: its "
            "vectors may differ in the last digits. Run the experiment again with cluster.shard=null, and export that "
            "run."
        )
    _require_same_key(run, plan, dataset)
    with tempfile.TemporaryDirectory() as scratch:
        rules = _rule_files(tracker, run, plan, Path(scratch))
        queries = _searched(plan, dataset, cache)
        _register(client, name)
        yield ServedRun(run, plan, dataset, queries, cache, rules)


def log_model(tracker: Tracker, served: ServedRun, name: str) -> RegisteredModel:
    """Package a run, register it as a new version of `name`, and give this version the alias `champion`."""
    from mlflow.entities import LoggedModelOutput

    run, client = served.run, tracker.client
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        packed = _pack(served, folder)
        experiment, plain = client.get_run(run.run_id).info.experiment_id, NOT_IN_MODEL_NAMES.sub("_", name)
        logged = client.create_logged_model(experiment, plain, run.run_id, model_type="retrieval")
        try:
            saved = _save(served, packed, logged, folder / "model")
            client.log_model_artifacts(logged.model_id, str(saved))
        except BaseException:
            client.finalize_logged_model(logged.model_id, "FAILED")
            raise
        size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    client.finalize_logged_model(logged.model_id, "READY")
    before = champion(client, name)
    client.log_outputs(run.run_id, [LoggedModelOutput(logged.model_id, 0)])
    version = client.create_model_version(
        name, logged.artifact_location, run.run_id, description=f"Run {run.name}", model_id=logged.model_id
    )
    client.set_registered_model_alias(name, ALIAS, version.version)  # set last, when the version is complete
    uri, server = f"models:/{name}@{ALIAS}", f"MLFLOW_TRACKING_URI='{shown_address(tracker.uri)}'"
    return RegisteredModel(
        name=name,
        version=int(version.version),
        alias=ALIAS,
        before=before and f"version {before.version}, run {before.run_id}",
        uri=uri,
        model_id=logged.model_id,
        bytes=size,
        serve=f"{server} mlflow models serve -m '{uri}' --env-manager local -p 5001",
    )


def load_model(folder: Path) -> Searcher:
    """Return the searcher of a packaged run. Raise BadInput if a file has changed or is missing, and name it."""
    verify_entry(folder)
    plan = Plan.of(read_config(folder / "config.yaml"))
    plan = _with_rules(plan, {group: file for group in FITTED if (file := folder / f"{group}.json").exists()})
    if (folder / PROMPT).exists():
        plan = replace(plan, query_prompt=str(folder / PROMPT))
    documents = tuple(Document(**row) for _, row in json_lines(folder / "documents.jsonl"))
    drawn = [Query.of(**row) for _, row in json_lines(folder / "background.jsonl")]
    cache = Cache(folder / "store", sealed=True)
    return Searcher(plan, Dataset("served", documents, (), None), cache, lambda: drawn)


def answer(searcher: Searcher, table: DataFrame) -> DataFrame:
    """Return one row per query: query_id, whether to retrieve, the gate's signal, and the documents, the best first.

    table: has a column `query` with texts, or a column `messages` with lists of {role, content}. The column `query_id`
    is optional: its default is the number of the row, counted from 0. Raise BadInput for other input.
    """
    from pandas import DataFrame

    if unknown := [name for name in table.columns if name not in COLUMNS]:
        raise BadInput(f"The column {unknown[0]!r} is unknown. Known: {', '.join(COLUMNS)}.")
    if not len(table):
        raise BadInput("There is no query. Give one row per query, with `query` or `messages`.")
    rows = [{k: v for k, v in row.items() if _has_value(v)} for row in table.to_dict("records")]
    queries = [Query(where := f"row {place}", _turns(row, where)) for place, row in enumerate(rows)]
    outcome, documents = searcher.search(queries), searcher.documents
    signal = outcome.decision.signal
    answers = [
        {
            "query_id": row.get("query_id", str(place)),
            "retrieve": bool(outcome.decision.keep[place]),
            "signal": None if signal is None else float(signal[place]),
            "documents": [
                {"doc_id": doc_id, "score": score, "title": documents[doc_id].title, "text": documents[doc_id].text}
                for doc_id, score in outcome.final.row(place)
            ],
        }
        for place, row in enumerate(rows)
    ]
    return DataFrame(answers)


def _searched(plan: Plan, dataset: Dataset, cache: Cache) -> tuple[Query, ...]:
    return open_session(replace(plan, store=cache.location, cluster={}), dataset, unasked=UNASKED).queries


def _require_same_key(run: LoggedRun, plan: Plan, dataset: Dataset) -> None:
    for name, node in plan.retriever.items():
        if not reusable(node):
            raise BadInput(
                f"Run {run.short_id} has retriever.{name}.cache=false: its results may change at any time, so no "
                "model can answer as the run did."
            )
    if retrieval_run.trial_key_of(plan, dataset) != run.tags.get("trial_key"):
        raise BadInput(
            f"Run {run.short_id} would not be the same run today. One of these has changed: its labels, a file that "
            "its config names, a model, a package, or this program. So the exported model might not answer as the run "
            "did. Run the experiment again, and export that run."
        )


def _register(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code == "INVALID_PARAMETER_VALUE":
            raise BadInput(f"model_name={name!r} cannot name a model: {str(error).splitlines()[0]}") from None
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _pack(served: ServedRun, folder: Path) -> Path:
    documents = served.dataset.documents
    searcher = Searcher(_with_rules(served.plan, served.rules), served.dataset, served.cache, tuple)
    drawn = random_queries(IndexedTexts(documents), served.queries)

    def linked(source: str, target: str) -> None:
        link(Path(source), Path(target))

    def fill(package: Path) -> None:
        files = {
            "config.yaml": provenance.resolved(served.plan.document),
            "documents.jsonl": json_text(
                {"doc_id": one.doc_id, "text": one.text, "title": one.title} for one in documents
            ),
            "background.jsonl": json_text({"query_id": one.query_id, "text": one.text} for one in drawn),
        }
        files |= {f"{group}.json": file.read_text("utf-8") for group, file in served.rules.items()}
        if served.plan.writer:
            files[PROMPT] = served.plan.writer.prompt.text
        for name, text in files.items():
            (package / name).write_text(text, "utf-8")
        for cached in dict.fromkeys(searcher.folders):
            shutil.copytree(cached, package / "store" / cached.parent.name / cached.name, copy_function=linked)

    made = Cache(folder).folder("packages", {"run": served.run.run_id}, fill)
    return made.rename(folder / "package")


def _rule_files(tracker: Tracker, run: LoggedRun, plan: Plan, folder: Path) -> dict[str, Path]:
    learn = {"gate": plan.made("gate").learns, "fusion": plan.fusion_learns}
    found = {}
    for group, learnt in learn.items():
        if learnt:
            found[group] = tracker.download(run, f"{group}.json", folder)
        elif "file" in (node := getattr(plan, group)):
            found[group] = Path(node["file"])
    return found


def _with_rules(plan: Plan, rules: Mapping[str, Path]) -> Plan:
    fitted: dict[str, Any] = {name: {"_target_": FITTED[name], "file": str(file)} for name, file in rules.items()}
    return replace(plan, **fitted)


def _save(served: ServedRun, packed: Path, logged: LoggedModel, path: Path) -> Path:
    import mlflow.pyfunc
    from mlflow.models import Model
    from pandas import DataFrame

    example = served.queries[0]
    mlflow.pyfunc.save_model(
        path=str(path),
        python_model=str(Path(__file__).with_name("model_code.py")),
        artifacts={"package": str(packed)},
        signature=_signature(),
        input_example=DataFrame([{"query": example.text, "query_id": example.query_id}]),
        pip_requirements=_requirements(_with_rules(served.plan, served.rules)),
        mlflow_model=Model(logged.artifact_location, logged.source_run_id, model_id=logged.model_id),
    )
    return path


def _signature() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import Array, DataType, Object, Property

    def rows(**types: str) -> Array:
        return Array(Object([Property(name, DataType[kind]) for name, kind in types.items()]))

    text, messages = DataType.string, rows(role="string", content="string")
    documents = rows(doc_id="string", score="double", title="string", text="string")
    request: dict[str, Any] = {"query": text, "messages": messages, "query_id": text}
    response: dict[str, Any] = {"query_id": text, "retrieve": DataType.boolean, "signal": DataType.double}
    response |= {"documents": documents}
    return ModelSignature(
        Schema([ColSpec(kind, name, required=False) for name, kind in request.items()]),
        Schema([ColSpec(kind, name, required=name != "signal") for name, kind in response.items()]),
    )


def _requirements(plan: Plan) -> list[str]:
    """Return the installed versions of this package, its dependencies, and the packages that decide the results.

    This package is not on PyPI: to rebuild the environment, pip needs its wheel (`PIP_FIND_LINKS=dist`).
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    ours, dense = "retrieval-harness", {"extra": "dense"}
    components = {**plan.retriever, "rerank": plan.rerank}
    if "encoder" in plan.made("gate").parts:
        components["encoder"] = plan.encoder
    identities = flatten({name: component_identity(node) for name, node in components.items()})
    names = {canonicalize_name(name.rpartition(".packages.")[2]) for name in identities if ".packages." in name}
    needed = [Requirement(line) for line in importlib.metadata.requires(ours) or ()]
    base = {canonicalize_name(one.name) for one in needed if one.marker is None}
    extra = {canonicalize_name(one.name) for one in needed if one.marker and one.marker.evaluate(dense)} - base
    neural = bool(names & extra)
    names |= base | (extra if neural else set())
    pins = [f"{name}=={importlib.metadata.version(name)}" for name in sorted(names)]
    return [f"{ours}{'[dense]' if neural else ''}=={importlib.metadata.version(ours)}", *pins]


def _turns(row: Mapping[str, Any], where: str) -> tuple[Turn, ...]:
    if ("query" in row) == ("messages" in row):
        raise BadInput(f"{where}: give either `query` (a text) or `messages` (a list of {{role, content}}).")
    if "query" in row:
        return (Turn("user", field(row, "query", str, where)),)
    messages = row["messages"]
    return turns({"messages": messages if isinstance(messages, str) else list(messages)}, where, "messages")


def _has_value(value: Any) -> bool:
    """Return whether a cell has a value: pandas fills empty cells with None or NaN."""
    return not (value is None or (isinstance(value, float) and value != value))
