"""A run as an MLflow model that serves: packed, registered, and loaded where every file is what it was.

The package is one folder with a manifest: the run's config, what its gate learnt, the documents, the indexes, and the
random queries that the gate's signal `background` compares with. What answers is the Searcher, as for `harness search`.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.canonical import digest_texts, flatten
from harness.config.components import build, identity
from harness.data.dataset import Dataset, search_queries
from harness.data.files import field, json_lines, json_text
from harness.data.source import turns
from harness.gates.signals import random_queries
from harness.pipeline.cache import Cache, SealedCache, verify
from harness.pipeline.cached_parts import link
from harness.pipeline.run_config import RunConfig
from harness.pipeline.searcher import Searcher
from harness.tracking import provenance, retrieval_run
from harness.tracking.mlflow_client import redacted
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import BadInput, Document, Query, Turn

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature
    from pandas import DataFrame


ALIAS = "champion"
NOT_IN_MODEL_NAMES = re.compile(r"""[/:.%"'`]""")  # what MLflow takes in no name of a logged model
ASKED = ("query", "messages", "query_id")  # columns of a request


def log_model(
    tracker: Tracker, run: LoggedRun, config: Mapping[str, Any], dataset: Dataset, cache: Cache, name: str
) -> dict[str, Any]:
    """Pack a run, register it under `name` and give the new version the alias `champion`.

    config: the run's, resolved. dataset: its data, as it was. store: where its indexes are, or are built. BadInput
    where the run would not be the same run today: then its model would not answer as it did.
    """
    if not isinstance(tracker, MlflowTracker):
        raise BadInput("tracking=none keeps no models. Leave tracking out, or say tracking=mlflow.")
    queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
    _refuse_changed(run, config, dataset, queries)
    client = tracker.client
    _registered(tracker, name)
    experiment = client.get_run(run.run_id).info.experiment_id
    with tempfile.TemporaryDirectory() as folder:
        packed, requirements = _packed(tracker, run, config, dataset, queries, cache, Path(folder))
        plain = NOT_IN_MODEL_NAMES.sub("_", name)
        logged = client.create_logged_model(experiment, plain, run.run_id, model_type="retrieval")
        try:
            saved = _saved(packed, requirements, queries[0], logged, Path(folder) / "model")
            client.log_model_artifacts(logged.model_id, str(saved))
        except BaseException:
            client.finalize_logged_model(logged.model_id, "FAILED")
            raise
        size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    client.finalize_logged_model(logged.model_id, "READY")
    from mlflow.entities import LoggedModelOutput

    client.log_outputs(run.run_id, [LoggedModelOutput(logged.model_id, 0)])
    version = client.create_model_version(
        name, logged.artifact_location, run.run_id, description=f"Run {run.name}", model_id=logged.model_id
    )
    client.set_registered_model_alias(name, ALIAS, version.version)  # last: it never names what is half there
    uri = f"models:/{name}@{ALIAS}"
    serve = f"MLFLOW_TRACKING_URI='{redacted(tracker.uri)}' mlflow models serve -m '{uri}' --env-manager local -p 5001"
    told = {"name": name, "version": int(version.version), "alias": ALIAS, "uri": uri, "model_id": logged.model_id}
    return told | {"bytes": size, "serve": serve}


def load(folder: Path) -> Searcher:
    """The searcher of a package. BadInput, which names the file, where one has changed or is missing."""
    import yaml

    verify(folder)
    config = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
    if (folder / "gate.json").exists():
        config = _with_rule(config, folder / "gate.json")
    documents = tuple(Document(**row) for _, row in json_lines(folder / "documents.jsonl"))
    drawn = [Query.of(**row) for _, row in json_lines(folder / "background.jsonl")]
    return Searcher(
        RunConfig.of(config), Dataset("served", documents, (), None), SealedCache(folder / "store"), lambda: drawn
    )


def answer(searcher: Searcher, table: DataFrame) -> DataFrame:
    """One row a query: query_id, whether to retrieve, the gate's signal, and its documents, the best first.

    table: columns `query`, a text, or `messages`, a conversation as a list of {role, content}, and `query_id` (left
    out: the row's number from 0). BadInput, which names the row, for anything else.
    """
    from pandas import DataFrame

    if unknown := [name for name in table.columns if name not in ASKED]:
        raise BadInput(f"The column {unknown[0]!r} is unknown. Known: {', '.join(ASKED)}.")
    if not len(table):
        raise BadInput("There is no query. Give a row for each, with `query` or `messages`.")
    rows = [{k: v for k, v in row.items() if _given(v)} for row in table.to_dict("records")]
    queries = [Query(where := f"row {place}", _turns(row, where)) for place, row in enumerate(rows)]
    found, documents = searcher.search(queries), searcher.documents
    signal = found.decision.signal
    answers = [
        {
            "query_id": row.get("query_id", str(place)),
            "retrieve": bool(found.decision.keep[place]),
            "signal": None if signal is None else float(signal[place]),
            "documents": [
                {"doc_id": doc_id, "score": score, "title": documents[doc_id].title, "text": documents[doc_id].text}
                for doc_id, score in found.final.row(place)
            ],
        }
        for place, row in enumerate(rows)
    ]
    return DataFrame(answers)


def _refuse_changed(run: LoggedRun, config: Mapping[str, Any], dataset: Dataset, queries: tuple[Query, ...]) -> None:
    now = retrieval_run.trial_key(
        RunConfig.of(config), dataset.fingerprints, digest_texts(query.text for query in queries)
    )
    if now != run.tags.get("trial_key"):
        raise BadInput(
            f"Run {run.run_id} would not be the same run today: its labels, a file that its config names, a model, a "
            "package or this program has another content or version, and so the model might not answer as the run did. "
            "Run the experiment again, and export that run."
        )


def _registered(tracker: MlflowTracker, name: str) -> None:
    """Make the registered model if there is none of that name; BadInput if none can be called so."""
    from mlflow.exceptions import MlflowException

    try:
        tracker.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code == "INVALID_PARAMETER_VALUE":
            raise BadInput(f"model_name={name!r} cannot name a model: {str(error).splitlines()[0]}") from None
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _packed(
    tracker: Tracker,
    run: LoggedRun,
    config: Mapping[str, Any],
    dataset: Dataset,
    queries: tuple[Query, ...],
    cache: Cache,
    folder: Path,
) -> tuple[Path, list[str]]:
    """(the package, made in `folder`; the requirements of what it serves)."""
    gate = _gate_file(tracker, run, config, folder)
    served = _with_rule(config, gate) if gate else config
    searcher = Searcher(RunConfig.of(served), dataset, cache, tuple)
    drawn = random_queries([document.indexed_text for document in dataset.documents], queries)

    def fill(into: Path) -> None:
        files = {
            "config.yaml": provenance.resolved(config),
            "documents.jsonl": json_text(
                {"doc_id": one.doc_id, "text": one.text, "title": one.title} for one in dataset.documents
            ),
            "background.jsonl": json_text({"query_id": one.query_id, "text": one.text} for one in drawn),
        }
        if gate:
            files["gate.json"] = gate.read_text("utf-8")
        for name, text in files.items():
            (into / name).write_text(text, "utf-8")
        for kept in dict.fromkeys(searcher.folders):
            shutil.copytree(kept, into / "store" / kept.parent.name / kept.name, copy_function=_linked)

    made = Cache(folder).folder("packages", {"run": run.run_id}, fill)
    return made.rename(folder / "package"), _requirements(served)


def _gate_file(tracker: Tracker, run: LoggedRun, config: Mapping[str, Any], folder: Path) -> Path | None:
    """gate.json of a gate that has learnt, in this run or in another; None for others."""
    if build(config["gate"], where="gate").learns:
        return tracker.download(run.run_id, "gate.json", folder)
    return Path(config["gate"]["file"]) if "file" in config["gate"] else None


def _with_rule(config: Mapping[str, Any], gate: Path) -> dict[str, Any]:
    return {**config, "gate": {"_target_": "harness.gates.rule.FittedGate", "file": str(gate)}}


def _linked(source: str, target: str) -> None:
    link(Path(source), Path(target))


def _saved(packed: Path, requirements: list[str], example: Query, logged: LoggedModel, path: Path) -> Path:
    """The folder of an MLflow model, `path`, around a package."""
    import mlflow.pyfunc
    from mlflow.models import Model
    from pandas import DataFrame

    mlflow.pyfunc.save_model(
        path=str(path),
        python_model=str(Path(__file__).with_name("model_code.py")),
        artifacts={"package": str(packed)},
        signature=_signature(),
        input_example=DataFrame([{"query": example.text, "query_id": example.query_id}]),
        pip_requirements=requirements,
        mlflow_model=Model(logged.artifact_location, logged.source_run_id, model_id=logged.model_id),
    )
    return path


def _signature() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import Array, DataType, Object, Property

    def rows(**types: str) -> Array:
        return Array(Object([Property(name, DataType[kind]) for name, kind in types.items()]))

    messages, documents = (
        rows(role="string", content="string"),
        rows(doc_id="string", score="double", title="string", text="string"),
    )
    asked: dict[str, Any] = {"query": DataType.string, "messages": messages, "query_id": DataType.string}
    told: dict[str, Any] = {
        "query_id": DataType.string,
        "retrieve": DataType.boolean,
        "signal": DataType.double,
        "documents": documents,
    }
    return ModelSignature(
        Schema([ColSpec(kind, name, required=False) for name, kind in asked.items()]),
        Schema([ColSpec(kind, name, required=name != "signal") for name, kind in told.items()]),
    )


def _requirements(config: Mapping[str, Any]) -> list[str]:
    """This package, what it needs and what decides the results of a config's parts, each as it is installed here.

    This package lies on no index: to make an environment anew, pip needs its wheel (`PIP_FIND_LINKS=dist`).
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    ours, dense = "retrieval-harness", {"extra": "dense"}
    parts = {**config["retriever"], "rerank": config["rerank"]}
    if "encoder" in build(config["gate"], where="gate").parts:
        parts["encoder"] = config["encoder"]
    said = flatten({name: identity(node) for name, node in parts.items()})
    names = {canonicalize_name(name.rpartition(".packages.")[2]) for name in said if ".packages." in name}
    needed = [Requirement(line) for line in importlib.metadata.requires(ours) or ()]
    base = {canonicalize_name(one.name) for one in needed if one.marker is None}
    extra = {canonicalize_name(one.name) for one in needed if one.marker and one.marker.evaluate(dense)} - base
    neural = bool(names & extra)
    names |= base | (extra if neural else set())
    pins = [f"{name}=={importlib.metadata.version(name)}" for name in sorted(names)]
    return [f"{ours}{'[dense]' if neural else ''}=={importlib.metadata.version(ours)}", *pins]


def _turns(row: Mapping[str, Any], where: str) -> tuple[Turn, ...]:
    """The conversation of a row; one turn of the user for a `query`."""
    if ("query" in row) == ("messages" in row):
        raise BadInput(f"{where}: give either `query`, a text, or `messages`, a list of {{role, content}}.")
    if "query" in row:
        return (Turn("user", field(row, "query", str, where)),)
    said = row["messages"]
    return turns({"messages": said if isinstance(said, str) else list(said)}, where, "messages")


def _given(value: Any) -> bool:
    """Whether a cell holds something: pandas fills columns with None or NaN."""
    return not (value is None or (isinstance(value, float) and value != value))
