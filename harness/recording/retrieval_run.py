"""The name, params, trial key, metrics and files of a retrieval run, which may be a trial of a sweep."""

from __future__ import annotations

import hashlib
import json
import re
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.config.canonical import digest, digest_texts, flatten
from harness.config.check import Invocation
from harness.config.commands import RunConfig, SweepConfig
from harness.config.components import SHARED, component_identity, recorded_name, reusable, target_class
from harness.config.schema import Node, Role, recipes, with_role
from harness.config.text import short_number, shortest
from harness.data.dataset import Dataset
from harness.data.files import json_line
from harness.data.submissions import bare_text, submission_rows
from harness.experiment import preflight, steps, timing
from harness.experiment.file_scores import lists_digest
from harness.experiment.plan import Plan
from harness.experiment.session import Clock, Session, foreseen_queries, moment, open_dataset
from harness.measures import checked_values, measures
from harness.measures.objective import Objective
from harness.measures.score_table import score_lines
from harness.measures.scores import UNANSWERABLE, UNKNOWN, Scores, Summary
from harness.recording import provenance
from harness.recording.traces import check_traces
from harness.reports.run_note import TABLE
from harness.reports.run_page import write_run_page
from harness.storage.atomic import write_parts, write_text
from harness.storage.typed import encoded
from harness.tracking.mlflow_client import shown_address, without_login
from harness.tracking.tracker import METRICS, NOTE, Input, RunRecord, as_note

# Config keys that decide where output goes and how it looks, but change no result.
ELSEWHERE = with_role(RunConfig, Role.ASIDE)
OPTIONAL = (*SHARED, "fusion", "rerank", "answer")  # config groups that some runs do not use
RUN_FILE = "run.trec"  # file of the full ranked lists before the gate
PREDICTED = "predictions.sha256"  # tag: sha256 of the submission rows without document texts
LISTS = "lists.sha256"  # tag: sha256 of all ranked lists; the same for a run and its exported file
SCORED_IDS = "scored.sha256"  # tag: sha256 of the ids of the scored queries
CHECKED = "checked.queries"  # tag: number of queries that people have checked, if a model made some of the labels
# Name prefixes of the numbers that MLflow charts. Means are charted too, but their names have no prefix.
CHARTED = (
    "loss/", "ceiling/", "gate/threshold", "index_recall/", "ms_per_query/", "latency_", "seconds/", "queries/scored",
    "count/", "slice/",
)  # fmt: skip
UNSAID = recipes(SweepConfig)  # these config groups are not params: they only set other keys, or choose the trials


def prepare_run(plan: Plan, invocation: Invocation, clock: Clock, verb: str = "run") -> tuple[Dataset, RunRecord]:
    """Read the data, check that the run can use them, and return the data and the record to log. verb: the command."""
    with clock.stage("read"):
        dataset = open_dataset(plan, invocation.choices["dataset"])
    facts = preflight.DataFacts.of(dataset, *foreseen_queries(plan, dataset))
    steps.asked_slices(plan, dataset)
    preflight.check_inputs(plan, facts, plan.cache)
    check_traces(plan, labelled=dataset.qrels is not None)
    tags = {"harness.verb": verb, "trial_key": retrieval_trial_key(plan, dataset.fingerprints, facts.texts)}
    record = RunRecord(
        plan.experiment_name,
        plan.run_name or run_name(plan, invocation),
        params=retrieval_params(plan, invocation.choices),
        tags=provenance.provenance(dataset.fingerprints, plan) | tags,
        inputs=retrieval_inputs(dataset, plan.dataset),
    )
    return dataset, record


def retrieval_trial_key(
    plan: Plan, fingerprints: Mapping[str, str | None], texts: str, identify: Callable[[Node], Any] = component_identity
) -> str:
    """Return the sha256 of all that decides a run's numbers: data, versions, and config (without paths and `runtime`).

    texts: digest of the query texts. If a language model writes the queries, the writer's identity is used instead,
        since the key is needed before the model is asked.

    The key includes `answer`, since answers are submitted. It includes the shard size if this may slightly change a
    retriever's scores. With `cache: false` in a retriever, each process has its own key, so it reuses no old numbers.
    """
    read = plan.made("gate").parts
    shared = [group for group in plan.active if group in ("fusion", "rerank", "answer", *read)]
    searched = plan.writer.identity(identify) if plan.writer else texts
    nodes = [*plan.retriever.items(), *((group, plan.document[group]) for group in shared)]
    apart = (*ELSEWHERE, *OPTIONAL, "dataset", "query", "retriever", "gate")
    decides = {key: value for key, value in plan.document.items() if key not in apart}
    decides["gate"] = identify(plan.gate)
    identities = {name: identify(node) for name, node in nodes}
    # The depth is not part of the reranker's identity, since it changes no score of a pair. So it is added here.
    depth = plan.rerank["depth"] if "rerank" in shared else 0
    once = [] if all(map(reusable, plan.retriever.values())) else [moment()]
    cut = [{"shard": plan.deciding_shard}] if plan.deciding_shard else []
    return digest([decides, identities, depth, searched, fingerprints, measures.VERSION, *once, *cut])


def trial_key_of(plan: Plan, dataset: Dataset) -> str:
    """Return the `retrieval_trial_key` that a run with this plan on these data would have today."""
    texts = digest_texts(query.text for query in foreseen_queries(plan, dataset)[0])
    return retrieval_trial_key(plan, dataset.fingerprints, texts)


def run_name(plan: Plan, invocation: Invocation) -> str:
    """Return a name such as `bm25-kiwi-score gate.threshold=5`: the chosen components, then other overrides."""
    groups = ("retriever", *(group for group in plan.active if group not in ("llm", "answer")), "gate")
    chosen = "-".join(invocation.choices[group] for group in groups)
    known = (*ELSEWHERE, *(group for group in invocation.choices if group != "answer"), "metrics", "objective")
    words = [word.partition("=") for word in invocation.overrides]
    others = [f"{key}{sign}{short_number(value)}" for key, sign, value in words if key not in known]
    silent = ("dataset.", "tracking.", "store.", "cluster.", "plugins.", "llm.price.")
    return " ".join([chosen, *(word for word in others if not word.startswith(silent))])


def retrieval_params(plan: Plan, choices: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the choice in each config group, and every plain value that decides a result."""
    found = plain_params(plan.document, choices, set(OPTIONAL) - set(plan.active))
    if plan.deciding_shard:
        found["cluster.shard"] = plan.deciding_shard
    return found


def plain_params(
    document: Mapping[str, Any], choices: Mapping[str, str | None], without: Collection[str] = ()
) -> dict[str, Any]:
    """Return a config's params: each group's choice, and values that decide a result. without: groups to leave out."""
    unused = (*ELSEWHERE, *UNSAID, *without)
    found: dict[str, Any] = {group: choice for group, choice in choices.items() if group not in unused}
    shared = flatten({name: document[name] for name in SHARED if name in document and name not in unused})
    for name, value in flatten({k: v for k, v in document.items() if k not in unused}).items():
        _, _, inner = name.removeprefix("retriever.").partition(".")
        repeated = name.startswith(("retriever.", "gate.", "answer.")) and inner in shared and shared[inner] == value
        decides = ".runtime." not in name and "llm.price." not in name
        if decides and not repeated and not name.endswith("_target_"):
            found[name] = shortest(value)
    return found


def retrieval_inputs(dataset: Dataset, source: Mapping[str, Any]) -> dict[str, Input]:
    """Return "documents", "queries" and "qrels" -> the data to log in MLflow; no entry for absent data."""
    labelled = len(dataset.qrels.grades) if dataset.qrels else 0
    sizes = {"documents": len(dataset.documents), "queries": len(dataset.queries), "qrels": labelled}
    return {
        name: Input(name=f"{dataset.name}-{name}", sha256=sha256, source=place_of_part(source, name), rows=sizes[name])
        for name, sha256 in dataset.fingerprints.items()
        if sha256 and name in sizes
    }


def place_of_part(source: Mapping[str, Any], name: str) -> str:
    """Return where a part of the data was read: its file, the folder of the data, or the name of the data's reader."""
    named = source.get(name) or source.get("path") or source.get("files" if name == "documents" else "testset")
    return ", ".join(named) if isinstance(named, list) else named or recorded_name(target_class(source, "dataset"))


def stored(predictions: str | Path) -> str:
    """Return the name of a run's copy of a predictions file."""
    name = Path(predictions)
    return "predictions" + "".join(name.suffixes[-2:] if name.suffix == ".gz" else [name.suffix])


def log_numbers(
    folder: Path,
    record: RunRecord,
    outcome: steps.Outcome,
    more: Mapping[str, float] | None = None,
    light: bool = False,
) -> None:
    """Put a run's numbers into the record and into `metrics.json`.

    more: numbers that are not scores. light: write no file, and leave out ceilings and counts.
    """
    found = retrieval_numbers(outcome) | dict(more or {})
    if light:
        found = {name: value for name, value in found.items() if not name.startswith(("ceiling/", "queries/"))}
    write_metrics(folder, record, found, outcome.objective, light)
    by_public = outcome.objective is not None and outcome.objective.select_on == "public"
    record.shows_private = outcome.scores is not None and not (light and by_public)


def write_metrics(
    folder: Path, record: RunRecord, found: Mapping[str, float], objective: Objective | None, light: bool = False
) -> None:
    """Put the objective and the charted numbers into the record. Unless `light`, write all numbers to `metrics.json`.

    found: every number of the run by its logged name.
    """
    record.objective = objective
    record.metrics |= charted(found, objective)
    if not light:
        content = {"objective": encoded(objective), "metrics": found}
        write_text(folder / METRICS, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def score_files(scores: Scores, held_out: Scores | None = None) -> tuple[dict[str, Iterable[str]], dict[str, str]]:
    """Return the files of scores and checked values as file name -> parts, and the tags that describe the files."""
    files: dict[str, Iterable[str]] = {"scores.csv": score_lines(scores, held_out)}
    tags = {SCORED_IDS: ids_digest(scores.query_ids)}
    if checked := (held_out or scores).checked:
        files[checked_values.FILE] = (checked_values.checked_table_text(checked),)
        tags[CHECKED] = str(int(checked.checked.sum()))
    return files, tags


def retrieval_numbers(outcome: steps.Outcome) -> dict[str, float]:
    """Return every number of a run by its logged name."""
    if not outcome.scores:
        return dict(outcome.measured)
    found = scores_by_name(outcome.scores)
    held_out = scores_by_name(outcome.held_out) if outcome.held_out else {}
    apart = ("ceiling/", "queries/")
    found |= {f"{measures.OOF}{name}": value for name, value in held_out.items() if not name.startswith(apart)}
    if fitted := outcome.decision.fitted:
        rule = fitted["rule"]
        thresholds = zip(rule["levels"], rule["thresholds"], strict=False)
        found |= {
            f"gate/threshold_{n}": value for n, value in thresholds if not isinstance(value, str)
        }  # infinite thresholds are text
        if len(rule["features"]) > 1:
            named = zip(rule["features"], rule["weights"], strict=True)
            found |= {f"gate/weight/{'.'.join(filter(None, feature))}": weight for feature, weight in named}
    if outcome.fusion:
        terms = outcome.fusion["rule"]["features"]
        found |= {f"fusion/weight/{one['ranking']}.{one['feature']}": one["weight"] for one in terms}
    return found | slice_numbers(outcome) | outcome.measured


def slice_numbers(outcome: steps.Outcome) -> dict[str, float]:
    """Return the value of each slice as `slice/ATTRIBUTE/VALUE/OBJECTIVE`, in characters that MLflow accepts."""
    found: dict[str, float] = {}
    for one in outcome.slices:
        assert outcome.objective is not None
        attribute, value = (re.sub(r"[^\w .-]|^\.+$", "_", text) for text in (one.attribute, one.value))
        while (name := f"slice/{attribute}/{value}/{outcome.objective.name}") in found:
            value += "_"  # different values may look alike without some characters
        found[name] = one.mean
    return {name: value for name, value in found.items() if value == value}


def charted(found: Mapping[str, float], objective: Objective | None) -> dict[str, float]:
    """Return the numbers by which MLflow sorts and charts runs: means, losses, ceilings and costs.

    Out-of-fold scores replace in-sample scores. Of the scores of the public and private parts, only the objective's
    public score is kept.
    """

    def wanted(name: str) -> bool:
        plain = name.removeprefix(measures.OOF)
        if plain == name and f"{measures.OOF}{name}" in found:
            return False
        of_part = objective is not None and plain == f"public/{objective.name}"
        return "/" not in plain or plain.startswith(CHARTED) or of_part

    return {name: value for name, value in found.items() if wanted(name)}


def write_page(
    folder: Path,
    record: RunRecord,
    run_id: str | None,
    plan: Plan,
    dataset: Dataset,
    outcome: steps.Outcome,
    overrides: Sequence[str] | None = None,
) -> None:
    """Write figures, the run's page and installed versions; put the query table and the description into the record.

    overrides: the overrides of the command, to be shown without passwords; None if unknown.
    """
    if overrides is not None:
        parts = (word.partition("=") for word in overrides)
        shown = {"tracking.uri": shown_address}
        overrides = [f"{key}{sign}{shown.get(key, without_login)(value)}" for key, sign, value in parts]
    write_text(folder / "requirements.txt", provenance.requirements())
    table, note = write_run_page(folder, record.name, run_id, plan, dataset, outcome, overrides)
    record.tables[TABLE] = table
    record.end_tags[NOTE] = as_note(note)


def scores_by_name(scores: Scores) -> dict[str, float]:
    values = by_part({"": scores.summary, "public/": scores.public, "private/": scores.private})
    for name, one in scores.estimates.items():
        values |= {f"estimate/{name}": one.value, f"estimate_low/{name}": one.low, f"estimate_high/{name}": one.high}
    values |= {UNANSWERABLE: scores.unanswerable.mean} if scores.unanswerable else {}
    counts = {name: float(value) for name, value in scores.counts.items() if name != UNKNOWN}
    for kind, numbers in {"loss": scores.losses, "ceiling": scores.ceilings, "queries": counts}.items():
        values |= {f"{kind}/{name}": value for name, value in numbers.items()}
    return {name: value for name, value in values.items() if value == value}


@lru_cache(maxsize=8)  # the trials of a sweep have the same queries
def ids_digest(query_ids: tuple[str, ...]) -> str:
    return digest(sorted(query_ids))


def by_part(parts: Mapping[str, Mapping[str, Summary]]) -> dict[str, float]:
    """Return means and ends of intervals by their logged names. parts: name prefix -> measure -> Summary."""
    values: dict[str, float] = {}
    for part, summaries in parts.items():
        for name, one in summaries.items():
            ends = {f"{part}interval_low/{name}": one.low, f"{part}interval_high/{name}": one.high}
            values |= {f"{part}{name}": one.known} | ends
    return values


def cost_numbers(plan: Plan, session: Session) -> dict[str, float]:
    """Return the seconds of each stage, the peak memory of the process in MB, and the sizes of indexes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts kilobytes, macOS bytes
    found = {f"seconds/{name}": value for name, value in session.clock.seconds.items()}
    found["peak_memory_mb"] = round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)
    return found | index_sizes(plan, session)


def index_sizes(plan: Plan, session: Session) -> dict[str, float]:
    """Return the size of each retriever's cached index in MB (0 without an index), and the sum of these sizes."""
    sizes = {name: steps.index_size(node, session) / 1024**2 for name, node in plan.retriever.items()}
    return {"index_mb": sum(sizes.values()), **{f"index_mb/{name}": size for name, size in sizes.items()}}


def write_run_files(
    folder: Path, plan: Plan, dataset: Dataset, outcome: steps.Outcome, light: bool = False
) -> dict[str, str]:
    """Write the run's files; return its tags. light: leave out the TREC run and the texts of documents."""
    bare = hashlib.sha256()
    files: dict[str, Iterable[str]] = {"config.yaml": (provenance.resolved(plan.document),)}
    files["predictions.jsonl"] = _submission(outcome, dataset, light, bare)
    found = {timing.MACHINE: timing.machine(), LISTS: lists_digest(outcome.final)}
    if outcome.scores:
        tables, tags = score_files(outcome.scores, outcome.held_out)
        files, found = files | tables, found | tags
    for name, learnt in {"gate.json": outcome.decision.fitted, "fusion.json": outcome.fusion}.items():
        if learnt:
            files[name] = (json.dumps(learnt, ensure_ascii=False, indent=1), "\n")
    if not light:
        files[RUN_FILE] = outcome.candidates.to_trec("retrieval-harness")
    for name, parts in files.items():
        if light:  # the tracker copies the file, so it need not be synced to disk
            (folder / name).write_text("".join(parts), "utf-8")
        else:
            write_parts(folder / name, parts)
    return found | {PREDICTED: bare.hexdigest()}


def _submission(outcome: steps.Outcome, dataset: Dataset, light: bool, bare: Any) -> Iterator[str]:
    """Yield the lines of a run's predictions, without the documents' texts if `light`. bare: digests such lines."""
    if light and outcome.answers is None:
        text = bare_text(outcome.queries, outcome.candidates, outcome.final.lengths, dataset.by_id)
        bare.update(text.encode())
        yield text
        return
    for row in submission_rows(outcome.queries, outcome.final, dataset.by_id, not light, outcome.answers):
        references = [{"score": one["score"]} for one in row["references"]]
        line = json_line(row | {"references": references})
        bare.update(line.encode())
        yield line if light else json_line(row)
