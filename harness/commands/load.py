"""`harness load`: send queries to a search at several concurrencies and rates, and log latency and throughput."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from harness.config import consent
from harness.config.canonical import flatten
from harness.config.check import Invocation
from harness.config.commands import LoadConfig, RunConfig
from harness.config.components import argument_keys, target_class
from harness.config.schema import Node, top_level
from harness.data.dataset import Dataset
from harness.errors import BadInput
from harness.experiment import loading
from harness.experiment.loading import LevelTimes, LoadBounds, LoadLevel
from harness.experiment.plan import Plan
from harness.experiment.searcher import Searcher
from harness.experiment.session import Clock
from harness.gates.signals import random_queries
from harness.progress import stage
from harness.recording import recording
from harness.recording.load_run import VERB, Loaded, load_average, load_report, load_table, write_load_run
from harness.recording.logged_run import address_of
from harness.recording.retrieval_run import prepare_run
from harness.reports import terminal
from harness.reports.next_steps import Place
from harness.reports.result import CommandAnswer
from harness.storage.typed import encoded
from retrievers.base import IndexedTexts
from retrievers.hosts import is_this_machine
from retrievers.redaction import redacted

SHOWN = 3  # maximum number of error messages that are shown


def load(config: LoadConfig, invocation: Invocation) -> CommandAnswer:
    busy = load_average()
    own = {name: value for name, value in config.document.items() if name not in top_level(RunConfig)}
    plan = Plan.of({name: value for name, value in config.document.items() if name not in own})
    bounds = LoadBounds(config.seconds, config.queries, config.timeout, config.arrivals)
    levels = [LoadLevel(count, None) for count in sorted({1, *config.concurrency})]
    levels += [LoadLevel(None, rate) for rate in sorted({*config.rates})]
    for level in levels:
        level.arrivals(bounds)  # refuses a rate that is too low before anything is loaded
    _check(plan, invocation.choices, config.allow)
    dataset, record = prepare_run(plan, invocation, Clock(), VERB)
    if not dataset.queries:
        raise BadInput("The dataset has no queries to send. Choose a dataset with queries.")
    record.params |= own
    tracker = recording.connect_tracker(plan.made("tracking"), config.outputs)
    found = replace(_measured(_without_retries(plan, bounds), dataset, levels, bounds), load_average=busy)
    target = recording.new_folder(config.outputs.absolute() / "loads")
    with recording.live_run(tracker, record, target) as live, stage("writing files and figures"):
        write_load_run(live.folder, record, {**plan.document, **own}, found, plan.light)
    run = {"run_id": live.run_id, "experiment": record.experiment, "files": {"folder": live.folder}}
    document = run | encoded(found)
    files = terminal.where_logged(live.folder, live.run_id, record.experiment)
    steps = [Place.of(plan, invocation).command("runs")] if live.run_id else []
    shown = replace(load_report(found), files=files, steps=steps)
    failed = "" if record.unsent else None
    return CommandAnswer(document, shown, lambda _: [load_table(found.levels)], failed=failed)


def _measured(plan: Plan, dataset: Dataset, levels: Sequence[LoadLevel], bounds: LoadBounds) -> Loaded:
    """Send queries one by one to the search of a plan, through the path of `harness search`."""
    with stage("loading the search"):
        drawn = lambda: random_queries(IndexedTexts(dataset.documents), dataset.queries)  # noqa: E731
        searcher = Searcher(plan, dataset, plan.cache, drawn)
        searcher.warm()
    queries = plan.given_queries(dataset)
    places = loading.in_turn(len(queries), bounds.seed)

    def ask() -> None:
        searcher.search([queries[next(places)]])

    loading.warm_up(ask, max(one.concurrency or 1 for one in levels), bounds)
    times, errors = list[LevelTimes](), dict[str, None]()
    for level in levels:
        waits = loading.sent_queries(ask, level, bounds, level.name)
        times.append(LevelTimes.of(level, waits))
        errors |= dict.fromkeys(map(redacted, waits.errors))
    return Loaded(loading.keeping_up(times), len(queries), [*errors][:SHOWN])


def _check(plan: Plan, choices: Mapping[str, str], allow: Sequence[str]) -> None:
    """Raise BadInput for a search that must not be loaded, or that cannot answer single queries."""
    learning = {"gate": plan.made("gate").learns, "fusion": plan.fusion_learns}
    for part in (part for part, learns in learning.items() if learns):
        raise BadInput(
            f"{part}={choices[part]} learns from labels in each run, and a load learns nothing. Load a rule that a run "
            f"has learnt: {part}=fitted {part}.file=RUN/{part}.json"
        )
    if plan.asks_model:
        raise BadInput(
            "This search asks a language model about each query, so a load could cost much. Choose a query.text and a "
            "gate that ask none, such as query.text=user_turns gate=none."
        )
    sent = {f"retriever.{key}": value for key, value in flatten(plan.retriever).items() if consent.sends(key)}
    for key, value in sent.items():
        host = urlsplit(str(value)).hostname
        if host and not is_this_machine(host) and (address := address_of(str(value))) not in allow:
            raise BadInput(
                f"{key} is on another machine, {address}. A load can slow down a server for its other users. If you "
                f"may load this one, allow it on the command line: {shlex.quote(f'allow=[{address}]')}"
            )


def _without_retries(plan: Plan, bounds: LoadBounds) -> Plan:
    """Let retrievers that ask a server fail at once, since a load counts errors, and wait no longer than the bounds."""
    found: dict[str, Node] = {}
    for name, node in plan.retriever.items():
        if "retries" in argument_keys(target_class(node, f"retriever.{name}")):
            runtime = dict(node.get("runtime") or {})
            timeout = min(bounds.timeout, runtime.get("timeout", bounds.timeout))
            node = {**node, "runtime": {**runtime, "retries": 0, "timeout": timeout}}
        found[name] = node
    return replace(plan, retriever=found)
