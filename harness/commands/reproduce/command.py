"""The verb `reproduce`: a logged run made again from its own record, and whether it predicts the same."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.reproduce.proof import LISTED, Proof
from harness.config.check import Invocation, check, shipped_keys
from harness.config.components import build
from harness.data.dataset import Dataset, load, search_queries
from harness.data.predictions import read_predictions
from harness.data.submissions import submission_rows
from harness.evaluation.measures import Family, parse
from harness.evaluation.scores import ShownLists, score
from harness.pipeline import file_scores, steps
from harness.pipeline.cache import Cache
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import open_session
from harness.reports import markup, terminal
from harness.tracking import provenance, retrieval_run
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import BadInput, Predictions, Qrels, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console


DATA = {"run": ("documents", "queries", "qrels"), "score": ("qrels",)}  # what must be as it was, by the run's verb


def reproduce(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Make `run` again and compare, or with `verify_only` hold what is stored against its hashes and scores.

    Returns the JSON document of `harness reproduce format=json`. Raises SystemExit(1) where something differs.
    """
    began = time.perf_counter()
    outputs = Path(config["outputs"]).absolute()
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(outputs)
    run, verb = _chosen(tracker, config)
    outputs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reproduce-", dir=outputs) as folder:
        scratch = Path(folder)
        rebuilt = _rebuilt(tracker.download(run.run_id, "config.yaml", scratch), run, verb, config)
        dataset = _dataset(run, verb, rebuilt["dataset"])
        if verb == "score":
            proof = _verified_scores(tracker, run, rebuilt, dataset, scratch)
        else:
            proof = _verified_run(tracker, run, rebuilt, dataset, scratch)
        if not config["verify_only"]:
            place = scratch / "cache" if config["fresh"] else Path(config["store"]["path"])
            _repeat(run, rebuilt, dataset, Cache(place), proof)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            tracker.tag(run.run_id, {"reproduced": f"{stamp} {'different' if proof.wrong else 'equal'}"})
    document = {
        "run_id": run.run_id,
        "reproduced": False if proof.wrong else True if proof.now else None,
        "wrong": proof.wrong,
        "predictions": {"then": proof.then, "stored": proof.stored, "now": proof.now},
        "data": {name: dataset.fingerprints[name] for name in DATA[verb]},
        "versions": _versions(run, rebuilt, dataset),
        "differences": proof.differences,
        "metrics": proof.metrics,
        "seconds": round(time.perf_counter() - began, 3),
    }
    terminal.emit(config["format"], document, lambda console: _show(console, run, document))
    if proof.wrong:
        raise SystemExit(1)
    return document


def _chosen(tracker: Tracker, config: Mapping[str, Any]) -> tuple[LoggedRun, str]:
    """The run and its verb; refused unless it is a finished one with predictions."""
    run = tracker.best(config["experiment_name"], config["metric"], config["run"], config["select_on"])
    verb = run.tags.get("harness.verb", "")
    if verb not in DATA:
        maker = f"`harness {verb}`" if verb else "something else than the harness"
        raise BadInput(f"Run {run.run_id} is a record of {maker}, without predictions of its own.")
    if kind := run.tags.get("task"):
        raise BadInput(
            f"Run {run.run_id} scored a file of task={kind}: there is nothing to run again. `harness score task={kind} "
            "predictions=FILE references=FILE` scores it anew, `harness export` checks that neither file has changed."
        )
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.run_id} is {run.status}: only finished runs can be reproduced.")
    if verb == "score" and not config["verify_only"]:
        raise BadInput(
            f"Run {run.run_id} scored a file that was made elsewhere: there is nothing to run again. "
            "verify_only=true checks the file and its scores."
        )
    return run, verb


def _rebuilt(file: Path, run: LoggedRun, verb: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The run's config, checked as its verb checks it. Keys that decide no result are not taken from the run."""
    import yaml

    version, commit = (run.tags.get(name, "unknown") for name in ("version.retrieval-harness", "git.commit"))
    refused = f"The config of run {run.run_id} (version {version}, commit {commit[:12]}) cannot be used here"
    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{refused}: its file is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not isinstance(found.get("retriever", {}), dict):
        raise BadInput(f"{refused}: its file is damaged: it holds no config.")
    shipped = shipped_keys(verb)
    here = {name: config.get(name, shipped[name]) for name in retrieval_run.ELSEWHERE if name in shipped}
    here |= {"experiment_name": run.experiment, "tracking": {"_target_": "harness.tracking.tracker.NoTracker"}}
    found = {name: value for name, value in found.items() if name not in retrieval_run.ELSEWHERE} | here
    try:
        check(found, verb)
        return retrieval_run.absolute(found | {"dataset": _moved(found["dataset"], config["data"])})
    except BadInput as error:
        raise BadInput(f"{refused}: {error}") from None


def _moved(source: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The run's data set with the places that `data` gives anew."""
    given = {name: place for name, place in data.items() if place is not None}
    known = [name for name in source if name in data]
    for name in given:
        if name not in known:
            raise BadInput(
                f"data.{name}: {source['_target_']} reads no such file.{did_you_mean(name, known)} "
                f"It takes: {', '.join(known) or 'none'}."
            )
    return {**source, **given}


def _dataset(run: LoggedRun, verb: str, source: Mapping[str, Any]) -> Dataset:
    """The data of the run, of a `score` run the labels alone. BadInput that names each part which has changed."""
    remedy = "Put them back, or say where they lie as they were: data.path=FOLDER, data.documents=FILE and so on."
    reader = build(source, where="dataset")
    try:
        dataset = load(reader, "") if verb == "run" else Dataset("", (), (), reader.qrels())
    except BadInput as error:
        raise BadInput(f"The data of run {run.run_id} cannot be read any more: {error} {remedy}") from None
    changed = []
    for name in DATA[verb]:
        then, now = run.tags.get(f"data.{name}"), dataset.fingerprints[name]
        if then != now:
            were, are = (f"{sha256[:12]}…" if sha256 else "not there" for sha256 in (then, now))
            changed.append(f"the {name} ({retrieval_run.place(source, name)}) were {were} and are {are}")
    if changed:
        raise BadInput(f"The data have changed since run {run.run_id}: {'; '.join(changed)}. {remedy}")
    return dataset


def _verified_run(
    tracker: Tracker, run: LoggedRun, config: Mapping[str, Any], dataset: Dataset, scratch: Path
) -> Proof:
    """What is stored of a run: its predictions against their hash, and the scores that follow from them alone."""
    file = tracker.download(run.run_id, "predictions.jsonl", scratch)
    proof = Proof(run.tags.get(retrieval_run.PREDICTED))
    proof.hold_rows(file, dataset.by_id)
    if proof.wrong:
        return proof
    texts = [query.text for query in search_queries(dataset, config["query"]["text"], config["query"]["file"])]
    if config["query"]["file"] and texts != [row.get("standalone_query") for row in proof.rows]:
        raise BadInput(
            f"query.file={config['query']['file']} has changed since run {run.run_id}: the run searched for other "
            "texts. Put it back."
        )
    if dataset.qrels:
        proof.hold_metrics(run.metrics, _means(read_predictions(file), dataset.qrels, config))
    return proof


def _means(predictions: Predictions, qrels: Qrels, config: Mapping[str, Any]) -> dict[str, float]:
    """measure -> mean, of the measures of a run that need to know no more than the documents shown."""
    families = (Family.MODIFIED, Family.ABSTENTION)  # they look at these, whatever the cut-off
    measures = map(parse, config["metrics"])
    wanted = [one.name for one in measures if one.family in families or (one.k and one.k <= config["top_k"])]
    found = score(ShownLists(predictions), qrels, wanted, detailed=())
    return {name: summary.mean for name, summary in found.summary.items()}


def _verified_scores(
    tracker: Tracker, run: LoggedRun, config: Mapping[str, Any], dataset: Dataset, scratch: Path
) -> Proof:
    """What is stored of a `score` run: the file against its hash, and its scores."""
    file = tracker.download(run.run_id, f"predictions{Path(config['predictions']).suffix}", scratch)
    proof = Proof(run.tags.get("data.predictions"))
    try:
        predictions = read_predictions(file)
    except BadInput as error:
        proof.wrong.append(f"The stored predictions cannot be read: {error}")
        return proof
    proof.hold_stored(file_scores.lists_digest(predictions))
    proof.hold_metrics(run.metrics, retrieval_run.scored(file_scores.file_scores(config, predictions)[0]))
    return proof


def _repeat(run: LoggedRun, config: Mapping[str, Any], dataset: Dataset, cache: Cache, proof: Proof) -> None:
    """Run the pipeline, and hold its predictions and numbers against those of the run, those of time left out."""
    run_config = RunConfig.of(config)
    steps.check(run_config, labelled=dataset.qrels is not None)
    session = replace(open_session(run_config, dataset), cache=cache)
    outcome = steps.run(run_config, session)
    proof.hold_repeated(list(submission_rows(outcome.queries, outcome.final, dataset.by_id, contents=False)))
    logged = retrieval_run.logged(outcome, run_config)
    proof.hold_metrics(run.metrics, {k: value for k, value in logged.items() if not k.startswith(steps.MS)})


def _versions(run: LoggedRun, config: Mapping[str, Any], dataset: Dataset) -> dict[str, dict[str, str]]:
    """name -> {then, now} of what is another version now, and of a checkout with changes that no commit holds."""
    now = provenance.provenance(dataset.fingerprints, config)
    known = [name for name in now if name.startswith(("version.", "git.")) and name in run.tags]
    unsure = ("git.dirty", "true")
    return {
        name: {"then": run.tags[name], "now": now[name]}
        for name in known
        if run.tags[name] != now[name] or (name, now[name]) == unsure
    }


def _show(console: Console, run: LoggedRun, document: Mapping[str, Any]) -> None:
    """What differs, and last the verdict."""
    if document["versions"]:
        header = ("not as it was", "then", "now")
        table = terminal.bare_table(header, left=header)
        for name, pair in document["versions"].items():
            table.add_row(name, pair["then"], pair["now"])
        console.print(table)
    for one in document["differences"]["first"]:
        console.print(f"{one['query_id']}  {markup.snippet(one['query'])}")
        for when in ("then", "now"):
            console.print(f"  {when:<4}  {_listed(one[when])}")
    for one in document["metrics"]["differ"][:LISTED]:
        console.print(f"{one['name']}  then {one['then']!r}  now {one['now']!r}")
    for sentence in document["wrong"]:
        console.print(sentence)
    console.print(f"Run {run.run_id} ({run.name})")
    console.print(_verdict(document), style="bold")


def _listed(places: Sequence[Sequence[Any]] | None) -> str:
    if places is None:
        return "no row"
    return ", ".join(f"{doc_id} ({value})" for doc_id, value in places) or "no documents"


def _verdict(document: Mapping[str, Any]) -> str:
    predictions, compared = document["predictions"], document["metrics"]["compared"]
    if document["wrong"]:
        hashes = ", ".join(f"{when} {sha256 or 'unknown'}" for when, sha256 in predictions.items())
        return f"not proved: sha256 of the predictions {hashes}"
    if document["reproduced"]:
        return f"reproduced: equal predictions, sha256 {predictions['now']}; {compared} metrics equal"
    known = "" if predictions["then"] else ", with no hash of the run's to hold it against"
    return f"verified, nothing was run: sha256 {predictions['stored']}{known}; {compared} metrics equal"
