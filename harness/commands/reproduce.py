"""`harness reproduce`: repeat a logged run from its record, and check that its predictions are the same."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from harness.analysis.ranking import chosen_run, settled
from harness.config.check import Invocation
from harness.config.commands import ReproduceConfig, ScoreConfig
from harness.config.components import reusable, with_absolute_paths
from harness.config.text import counted
from harness.data.dataset import Dataset, search_queries
from harness.data.files import field as entry
from harness.data.files import json_text, unique_rows
from harness.data.predictions import Predictions, read_predictions
from harness.data.qrels import Qrels
from harness.data.submissions import submission_rows
from harness.errors import BadInput
from harness.experiment import file_scores, steps
from harness.experiment.plan import Plan
from harness.experiment.session import open_session, read_documents
from harness.experiment.timing import LATENCY
from harness.measures.measures import MeasureFamily, parse_measure, requested
from harness.measures.scores import ShownLists, score_lists
from harness.recording import provenance, retrieval_run
from harness.recording.logged_run import in_full, load_unchanged, logged_config, require_allowed_hosts
from harness.recording.recording import open_store, scratch_folder
from harness.recording.repeating import repeating_config, require_repeatable
from harness.reports import markup
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Table
from harness.storage.cache import Cache, open_cache
from harness.storage.typed import HIDDEN
from harness.tracking.tracker import TIMES, LoggedRun, Tracker, mlflow_name, objective_metrics

TOLERANCE = 1e-12  # Two values of a metric are taken as equal if they differ by at most this.
LISTED = 10  # maximum number of differences in the report
Row = dict[str, Any]  # a row of a submission


@dataclass
class Proof:
    """The results of checking a run, as `format=json` prints them.

    predictions: sha256 of the logged predictions (`then`) and of the new ones (`now`: None if nothing was run).
    rows: the logged submission, without document texts. wrong: a sentence for each fault.
    differences: {queries, first: [{query_id, query, then, now}, ...]}: the number of queries whose predictions differ,
    and the first of these queries. `then` and `now` are [[document, score], ...], or None if the query has no row.
    metrics: {compared, differ: [{name, then, now}, ...], times: [...]}: the number of metrics compared, the metrics
    that differ (under their logged names), and the times that differ (which is not a fault).
    data: name -> fingerprint. versions: name -> {then, now} of changed versions.
    """

    run_id: str
    predictions: dict[str, str | None]
    rows: list[Row] = field(default_factory=list, metadata=HIDDEN)
    wrong: list[str] = field(default_factory=list)
    differences: dict[str, Any] = field(default_factory=lambda: {"queries": 0, "first": []})
    metrics: dict[str, Any] = field(default_factory=lambda: {"compared": 0, "differ": [], "times": []})
    data: Mapping[str, str | None] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seconds: float = 0.0
    json_too: ClassVar = ("reproduced",)

    @property
    def reproduced(self) -> bool | None:
        """Return False if there is a fault; otherwise True, or None if nothing was run."""
        return False if self.wrong else True if self.predictions["now"] else None

    def check_repeated(self, rows: Sequence[Row]) -> None:
        """Compare the rows of the new submission with the logged rows, both without the texts of documents."""
        self.predictions["now"] = rows_sha256(rows)
        before = {str(row["eval_id"]): row for row in self.rows}
        pairs = [(before.get(str(row["eval_id"])), row) for row in rows]
        changed = [(old, new) for old, new in pairs if old != new]
        first = [
            {"query_id": str(new["eval_id"]), "query": new["standalone_query"]}
            | {"then": _listed(old), "now": _listed(new)}
            for old, new in changed[:LISTED]
        ]
        self.differences = {"queries": len(changed), "first": first}
        if self.predictions["now"] != self.predictions["then"]:
            self.wrong.append("The new predictions differ from the ones that the run made.")

    def check_metrics(self, then: Mapping[str, float], now: Mapping[str, float]) -> None:
        """Compare new metrics (now) with logged metrics (then) by their MLflow names. Ignore unlogged metrics."""
        logged = {name: value for ours, value in now.items() if (name := mlflow_name(ours)) in then}
        changed: dict[bool, list[Row]] = {True: [], False: []}  # True: changed times; False: other changed metrics
        for name, value in logged.items():
            if abs(then[name] - value) > TOLERANCE:
                changed[name.startswith(TIMES)].append({"name": name, "then": then[name], "now": value})
        compared = sum(not name.startswith(TIMES) for name in logged)
        self.metrics = {"compared": compared, "differ": changed[False], "times": changed[True]}
        if differ := changed[False]:
            self.wrong.append(f"{len(differ)} of {compared} metrics differ from the ones that the run logged.")


def rows_sha256(rows: Iterable[Row]) -> str:
    return hashlib.sha256(json_text(rows).encode()).hexdigest()


def bare_rows(file: Path) -> list[Row]:
    """Return the rows of a submission, without their document texts. Raise BadInput if the file is damaged."""
    rows = []
    for where, _, _, row in unique_rows(file, "eval_id"):
        entry(row, "topk", list, where)
        references = entry(row, "references", list, where)
        if not all(isinstance(one, dict) for one in references):
            raise BadInput(f"{where}: every entry of references must be an object.")
        bare = [{key: value for key, value in one.items() if key != "content"} for one in references]
        rows.append({**row, "references": bare})
    return rows


def _listed(row: Row | None) -> list[list[Any]] | None:
    if row is None:
        return None
    return [[doc_id, one.get("score")] for doc_id, one in zip(row["topk"], row["references"], strict=False)]


DATA = {"run": ("documents", "queries", "qrels"), "score": ("qrels",)}  # command -> data that must be unchanged
UNASKED = (
    "A language model may reply otherwise if asked again, so it is not asked here. Set store.path=FOLDER to the "
    "cache of the run, check the stored predictions with verify_only=true, or run the experiment again."
)
REMEDY = "Put the data back, or say where the unchanged data are: data.path=FOLDER, data.documents=FILE and so on."


def reproduce(config: ReproduceConfig, invocation: Invocation) -> CommandAnswer:
    """Repeat the run `run`; with `verify_only`, only check its stored predictions. Fail if anything differs."""
    began = time.perf_counter()
    tracker = open_store(config)
    run, command = _reproducible(tracker, config)
    document = repeating_config(run, logged_config(tracker, run), config)
    made = Plan.of(document) if command == "run" else ScoreConfig.of(with_absolute_paths(document))
    if not config.verify_only:
        require_allowed_hosts(run, made.document, config.allow, asks=False)
    with scratch_folder(config.outputs.absolute()) as scratch:
        fresh = config.fresh and not config.verify_only
        place = str(scratch / "cache") if fresh else config.store.path
        plan = made if isinstance(made, Plan) else None
        read = partial(read_documents, shard=plan.workers.shard if plan else None, store=place)
        dataset = load_unchanged(run, made.dataset, DATA[command], REMEDY, read)
        versions = _versions(run, plan, dataset)
        if isinstance(made, ScoreConfig):
            proof = _verified_scores(tracker, run, made, scratch)
        else:
            proof = _verified_run(tracker, run, made, dataset, scratch)
            _require_own(run, made, dataset, versions)
        if plan and not config.verify_only:
            _repeat(run, plan, dataset, open_cache(place), proof)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            tracker.tag(run.run_id, {"reproduced": f"{stamp} {'different' if proof.wrong else 'equal'}"})
    proof.data = {name: dataset.fingerprints[name] for name in DATA[command]}
    proof.versions, proof.seconds = versions, round(time.perf_counter() - began, 3)
    return CommandAnswer(proof, _report(run, proof), failed="" if proof.wrong else None)


def _reproducible(tracker: Tracker, config: ReproduceConfig) -> tuple[LoggedRun, str]:
    settings, _ = settled(tracker, config, verbs=("run",))
    run = in_full(tracker, chosen_run(tracker, settings, verbs=("run",)))
    require_repeatable(run)
    command = run.tags["harness.verb"]
    if command == "score" and not config.verify_only:
        raise BadInput(
            f"Run {run.short_id} scored a file that was made elsewhere: there is nothing to run again. "
            "Use verify_only=true to check the file and its scores."
        )
    return run, command


def _require_own(run: LoggedRun, plan: Plan, dataset: Dataset, versions: Mapping[str, Mapping[str, str]]) -> None:
    """Raise BadInput if the config and the run have different trial keys, and no changed version explains this."""
    explained = any(pair["then"] != pair["now"] for pair in versions.values())
    if explained or not all(map(reusable, plan.retriever.values())):
        return
    if retrieval_run.trial_key_of(plan, dataset) != run.tags.get("trial_key"):
        raise BadInput(
            f"Run {run.named} cannot be repeated as it was: its config is not the one that it ran with, or a file, "
            "a model or this program has changed since then. Run the experiment again."
        )


def _verified_run(tracker: Tracker, run: LoggedRun, plan: Plan, dataset: Dataset, scratch: Path) -> Proof:
    """Read the stored predictions, and check the scores that depend only on these predictions."""
    file = tracker.download(run, "predictions.jsonl", scratch)
    rows = bare_rows(file)
    proof = Proof(run.run_id, {"then": rows_sha256(rows), "now": None}, rows)
    if written := plan.query_file:
        texts = [query.text for query in search_queries(dataset, "file", written)]
        if texts != [row.get("standalone_query") for row in proof.rows]:
            raise BadInput(
                f"query.file={written} has changed since run {run.short_id}: the run searched for other texts. Put the "
                "file back."
            )
    if dataset.qrels:
        proof.check_metrics(run.metrics, _means(read_predictions(file), dataset.qrels, plan))
    return proof


def _means(predictions: Predictions, qrels: Qrels, plan: Plan) -> dict[str, float]:
    families = (MeasureFamily.MODIFIED, MeasureFamily.ABSTENTION)  # computed from the returned documents alone
    measures = map(parse_measure, requested(plan.metrics, qrels, plan.top_k))
    wanted = [one.name for one in measures if one.family in families or (one.reach and one.reach <= plan.top_k)]
    scores = score_lists(ShownLists(predictions), qrels, wanted, detailed=())
    return {name: summary.mean for name, summary in scores.summary.items()}


def _verified_scores(tracker: Tracker, run: LoggedRun, config: ScoreConfig, scratch: Path) -> Proof:
    file = tracker.download(run, retrieval_run.stored(config.predictions), scratch)
    predictions = read_predictions(file)
    proof = Proof(run.run_id, {"then": file_scores.lists_digest(predictions), "now": None})
    scores, *_ = file_scores.file_scores(config, predictions)
    proof.check_metrics(run.metrics, retrieval_run.scores_by_name(scores))
    return proof


def _repeat(run: LoggedRun, plan: Plan, dataset: Dataset, cache: Cache, proof: Proof) -> None:
    plan.check(dataset.qrels)
    session = replace(open_session(plan, dataset, unasked=UNASKED), cache=cache, timed="never")
    outcome = steps.run_steps(plan, session)
    rows = submission_rows(outcome.queries, outcome.final, dataset.by_id, contents=False, answers=outcome.answers)
    proof.check_repeated(list(rows))
    numbers = retrieval_run.retrieval_numbers(outcome) | objective_metrics(outcome.objective)
    proof.check_metrics(run.metrics, numbers)


def _versions(run: LoggedRun, plan: Plan | None, dataset: Dataset) -> dict[str, dict[str, str]]:
    """Return name -> {then, now} for each changed version. Add `git.dirty` if there are uncommitted changes."""
    now = provenance.provenance(dataset.fingerprints, plan)
    known = [name for name in now if name.startswith(("version.", "git.")) and name in run.tags]
    uncommitted = ("git.dirty", "true")
    return {
        name: {"then": run.tags[name], "now": now[name]}
        for name in known
        if run.tags[name] != now[name] or (name, now[name]) == uncommitted
    }


def _report(run: LoggedRun, proof: Proof) -> Report:
    columns = [Column("changed"), Column("then"), Column("now")]
    versions = [[name, pair["then"], pair["now"]] for name, pair in proof.versions.items()]
    queries = [
        [f"{one['query_id']}  {markup.snippet(one['query'])}", *(_in_words(one[when]) for when in ("then", "now"))]
        for one in proof.differences["first"]
    ]
    metrics = [[one["name"], repr(one["then"]), repr(one["now"])] for one in proof.metrics["differ"][:LISTED]]
    named = {"Versions": versions, "Queries with other predictions": queries, "Metrics": metrics}
    tables = [Table(caption, columns, rows) for caption, rows in named.items()]
    return Report(f"Run {run.named}", [_verdict(proof), *proof.wrong], tables)


def _in_words(shown: Sequence[Sequence[Any]] | None) -> str:
    said = ", ".join(f"{doc_id} ({score})" for doc_id, score in shown or ())
    return "no row" if shown is None else said or "no documents"


def _verdict(proof: Proof) -> str:
    predictions, metrics = proof.predictions, proof.metrics
    differ, equal = len(metrics["differ"]), f"{metrics['compared']} metrics equal"
    if predictions["now"] is None:
        found = f"Not verified: {differ} metrics differ" if differ else f"Verified: unchanged files, {equal}"
        return f"{found}. Nothing was run."
    if predictions["now"] != predictions["then"]:
        return f"Not reproduced: {counted(proof.differences['queries'], 'query')} with other predictions."
    medians = [one for one in metrics["times"] if one["name"].startswith(LATENCY)]
    shown = [f"p50{one['name'].removeprefix(LATENCY)} {one['then']:.0f} → {one['now']:.0f} ms" for one in medians]
    named = f" ({', '.join(shown)})" if shown else ""
    times = f" Times differ, as usual{named}." if metrics["times"] else ""
    if differ:
        return f"Not reproduced: equal predictions, but {counted(differ, 'metric')} with other values.{times}"
    return f"Reproduced: equal predictions (sha256 {predictions['now']}), {equal}.{times}"
