"""Read logged runs: their numbers, config and files, and the data that they used, if these are unchanged."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from harness.config import consent, yaml_files
from harness.config.canonical import flatten
from harness.config.components import build, check_component
from harness.data.dataset import Dataset, checked_dataset
from harness.data.files import field, json_file
from harness.data.source import Source
from harness.errors import BadInput
from harness.recording.retrieval_run import ELSEWHERE, place_of_part
from harness.tracking.tracker import METRICS, LoggedRun, NoFile, Tracker, mlflow_name
from retrievers.base import Document

T = TypeVar("T")
CONFIG = "config.yaml"
PUT_BACK = "Put the data back, or run the experiment again."
NAMES = {"qrels": "labels"}  # part of the data -> its name in messages, if different


@dataclass(frozen=True)
class ValidRun:
    """A logged run with unchanged data and valid predictions.

    predictions: text of the file to submit. count: number of queries or items. dataset: None for a text task.
    """

    predictions: str
    config: Mapping[str, Any]
    count: int
    dataset: Dataset | None = None


def in_full(tracker: Tracker, run: LoggedRun) -> LoggedRun:
    """Return the run with the numbers of its `metrics.json` (if it has that file) added to the numbers in MLflow."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            file = tracker.download(run, METRICS, Path(folder))
        except NoFile:
            return run
        metrics = field(json_file(file), "metrics", dict, str(file))
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(
                f"{METRICS} of run {run.short_id} is damaged: {name:.60} is {value!r:.60}, but must be a number."
            )
    return replace(run, metrics={mlflow_name(name): value for name, value in metrics.items()} | run.metrics)


def recommended(tracker: Tracker, run: LoggedRun) -> LoggedRun:
    """Return the run; for a sweep, its recommended trial. Raise BadInput if the sweep recommends none."""
    if run.tags.get("harness.verb") != "sweep":
        return run
    if best := run.tags.get("best.run_id"):
        return tracker.run(best)
    raise BadInput(
        f"Run {run.named} is a sweep without a single best trial. Its description says why, and names "
        "its trials. Give the id of one of these trials."
    )


def logged_config(tracker: Tracker, run: LoggedRun) -> dict[str, Any]:
    """Return the resolved config of a run. Raise BadInput if it is missing or damaged."""
    with tempfile.TemporaryDirectory() as folder:
        return read_config(tracker.download(run, CONFIG, Path(folder)))


def read_config(file: Path) -> dict[str, Any]:
    """Return a config written by `provenance.resolved`. Raise BadInput with the file's name if it is damaged."""
    try:
        config = yaml_files.load_yaml(file)
    except BadInput as error:
        raise BadInput(f"{file.name} of the run is damaged: {str(error).replace(str(file), file.name)}") from None
    if not isinstance(config, dict):
        raise BadInput(f"{file.name} of the run is damaged: it holds no config.")
    try:
        json.dumps(config)
    except TypeError as error:  # YAML has values that JSON lacks, such as dates
        raise BadInput(f"{file.name} of the run is damaged: {error}.") from None
    return config


def require_allowed_hosts(run: LoggedRun, document: Mapping[str, Any], allow: Sequence[str], asks: bool = True) -> None:
    """Raise BadInput unless `allow` contains every address and environment variable in a logged config.

    Anyone with write access to the tracking store can edit the config, so only the command line may decide where data
    are sent. asks: whether the command asks language models.
    """
    used = {name: node for name, node in document.items() if name not in ELSEWHERE}
    sent = {key: value for key, value in flatten(used).items() if value and consent.sends(key)}
    wanted = {key: address_of(str(value)) for key, value in sent.items() if asks or "llm" not in key.split(".")}
    if refused := [f"{key} is {value}" for key, value in wanted.items() if value not in allow]:
        word = f"allow=[{','.join(dict.fromkeys(wanted.values()))}]"
        raise BadInput(
            f"The config of run {run.named} says where queries and secrets are sent: {'; '.join(refused)}. If you "
            f"trust all of these, allow them on the command line: {shlex.quote(word)}"
        )


def address_of(value: str) -> str:
    parts = urlsplit(value)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme and parts.netloc else value


def logged_value(document: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return the value of a dotted key in a logged config. Raise BadInput unless its type is `kind`."""
    value: Any = document
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadInput(f"{CONFIG} of the run is damaged: {key} is {value!r:.60}.")
    return value


def load_unchanged(
    run: LoggedRun,
    source: Mapping[str, Any],
    names: Sequence[str] = ("documents", "queries"),
    remedy: str = PUT_BACK,
    documents: Callable[[Source], Sequence[Document] | None] = lambda _: None,
) -> Dataset:
    """Load the data of a run again. Raise BadInput if they cannot be read or have changed.

    source: the dataset's config node. names: the parts to check; if ("qrels",), only the labels are read.
    remedy: advice for the user. documents: function that reads the documents of the source.
    """
    check_component(source, "dataset")
    reader = build(source, where="dataset")
    name = run.params.get("dataset", "dataset")
    try:
        if tuple(names) == ("qrels",):
            dataset = Dataset(name, (), (), reader.qrels())
        else:
            dataset = checked_dataset(reader, name, documents(reader))
    except BadInput as error:
        raise BadInput(f"The data of run {run.short_id} cannot be read any more: {error} {remedy}") from None
    places = {name: place_of_part(source, name) for name in names}
    require_unchanged(run, {name: dataset.fingerprints[name] for name in names}, places, remedy)
    return dataset


def load_queries(run: LoggedRun, source: Mapping[str, Any], names: Sequence[str], remedy: str = PUT_BACK) -> Dataset:
    """Load the queries and labels of a run again, without documents. See `load_unchanged`.

    names: the parts to check, "queries" and "qrels".
    """
    check_component(source, "dataset")
    try:
        reader = build(source, where="dataset")
        data = Dataset("", (), tuple(reader.queries()), reader.qrels())
    except BadInput as error:
        raise BadInput(f"The queries of run {run.named} cannot be read any more: {error} {remedy}") from None
    places = {name: place_of_part(source, name) for name in names}
    require_unchanged(run, {name: data.fingerprints[name] for name in names}, places, remedy)
    return data


def require_unchanged(
    run: LoggedRun, fingerprints: Mapping[str, str | None], places: Mapping[str, str], remedy: str
) -> None:
    """Raise BadInput with the name of each part of the data that has changed since the run logged it.

    fingerprints: name of a part -> its sha256 today; None if it is missing. places: name -> where the part was read.
    """

    def short(sha256: str | None) -> str:
        return f"{sha256[:12]}…" if sha256 else "none"

    changed = [
        f"the {NAMES.get(name, name)} have changed ({places[name]}: sha256 {short(then)} then, {short(now)} now)"
        for name, now in fingerprints.items()
        if now != (then := run.tags.get(f"data.{name}"))
    ]
    if changed:
        raise BadInput(f"Run {run.short_id} used other data: {'; '.join(changed)}. {remedy}")


AT_ONCE = 8  # number of simultaneous downloads
AHEAD = 64  # the maximum number of files to download ahead of their use


class Ahead:
    """Downloads files before they are needed, unless they are in a local tracking store.

    wanted: (run, file name) in the order of use; some files may never be used. folder: the parent of each run's folder.
    """

    def __init__(self, tracker: Tracker, wanted: Sequence[tuple[LoggedRun, str]], folder: Path) -> None:
        self._tracker, self._folder = tracker, folder
        self._waiting = deque((run, name) for run, name in wanted if tracker.place(run.run_id) is None)
        self._begun: dict[tuple[str, str], Future[Path]] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def download(self, run: LoggedRun, name: str) -> Path:
        while self._waiting and len(self._begun) < AHEAD:
            other, wanted = self._waiting.popleft()
            self._begun[other.run_id, wanted] = self._pool.submit(self._download, other, wanted)
        begun = self._begun.pop((run.run_id, name), None)
        return begun.result() if begun else self._download(run, name)

    def _download(self, run: LoggedRun, name: str) -> Path:
        return self._tracker.download(run, name, self._folder / run.run_id)
