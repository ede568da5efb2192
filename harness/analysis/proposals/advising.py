"""Proposals after a logged run: untried configurations that can run here, with costs and command lines."""

from __future__ import annotations

import contextlib
import copy
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis import full_lists
from harness.analysis.board.matters import plateau_of
from harness.analysis.board.runs import SCORES
from harness.analysis.board.settings import varied
from harness.analysis.proposals import catalogue
from harness.analysis.proposals.catalogue import Proposal, Setup
from harness.analysis.proposals.command_lines import CommandLine, ComposedRun, plain_value, words_of_run
from harness.analysis.proposals.costs import CostModel, Workload
from harness.analysis.proposals.evidence import Lists, RunEvidence
from harness.analysis.ranking import SCORED, Wanted, best_run, compares, is_same, require_finished, require_labels
from harness.config.check import check_values
from harness.config.commands import AdviseConfig
from harness.config.components import component_identity
from harness.config.messages import explain
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.scripts import Writing
from harness.errors import BadInput
from harness.experiment import preflight, steps
from harness.experiment.plan import Plan
from harness.experiment.session import Session, cache_for, foreseen_queries
from harness.gates.calibration import CLOSE
from harness.measures.measures import SHOWN, grows_with
from harness.measures.score_table import read_score_table
from harness.recording.logged_run import Ahead, load_unchanged, logged_config, recommended
from harness.recording.retrieval_run import retrieval_trial_key
from harness.statistics.significance import ALPHA, sign_flip_test
from harness.storage.cache import Cache, open_cache
from harness.tracking.tracker import RETRIEVAL, LoggedRun, NoFile, Tracker
from retrievers.base import Ranking
from retrievers.dense.models import INSTALL

LEAST = 0.001  # proposals that usually add less are left out
MOST = 100  # the number of best runs whose scores by query are read
KNOWN = ("top_k", "depth", "seed", "public")  # no proposal goes beyond the tried values of these numbers
ELSEWHERE_MADE = "The run is a file made elsewhere: only its scores are known, and no command can repeat the run."
PERFECT = "a ranking with all relevant documents first"
NOT_CACHED = "The run's rankings are not in the cache (store.path): its component rankings are unknown."
NO_LISTS = "Its lists were not logged either (trials of a sweep log none), so bounds come from its scores."


@dataclass(frozen=True)
class Ceiling:
    """The gain if one part were perfect and all other parts were unchanged. of: the part in words."""

    of: str
    bound: float


def part_ceilings(evidence: RunEvidence, elsewhere: np.ndarray | None) -> list[Ceiling]:
    """Return the gain if one part of the pipeline were perfect, for each part in the order of the pipeline.

    elsewhere: float64 [Q], the best value of each query in any other run of the experiment; None without other runs.
    """
    found = [Ceiling(PERFECT, catalogue.ranked(evidence.perfect, evidence))]
    if evidence.lists is not None:
        if len(evidence.lists.rankings) > 1:
            pooled = "the documents of all component rankings in the best order"
            found.append(Ceiling(pooled, catalogue.ranked(evidence.pooled, evidence)))
        best = catalogue.ranked(evidence.reordered(), evidence)
        found.append(Ceiling("the retrieved documents in the best order", best))
        found.append(Ceiling("a gate that is always right", catalogue.perfect_gate(evidence)))
    if elsewhere is not None:
        better = np.fmax(evidence.values, elsewhere)
        count = counted(int((better > evidence.values + CLOSE).sum()), "query")
        name = f"for each query, the best run of the experiment (on {count}, another run beats this one)"
        found.append(Ceiling(name, catalogue.gain(better, evidence)))
    return found


@dataclass(frozen=True, eq=False)
class Situation:
    """The setup of a run, its command line, data, cache and costs. tried: the trial keys of all runs on these data."""

    setup: Setup
    line: CommandLine
    facts: preflight.DataFacts
    cache: Cache
    costs: CostModel
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class OpenTrial:
    """An untried configuration. values: one for each key of `Proposal.changes`. key: the trial key."""

    values: tuple[str, ...]
    line: CommandLine
    plan: Plan
    key: str


def advise(situation: Situation, top: int) -> list[Proposal]:
    """Return at most `top` proposals of different kinds, the greatest usual gain first."""
    found: dict[str, Proposal] = {}
    for proposal in catalogue.proposals(situation.setup):
        if proposal.expected < LEAST or len(found) == top:
            break
        if proposal.kind not in found and (trials := list(open_trials(situation, proposal))):
            found[proposal.kind] = _composed(situation, proposal, trials)
    return list(found.values())


def _composed(situation: Situation, proposal: Proposal, trials: Sequence[OpenTrial]) -> Proposal:
    tried = {key: dict.fromkeys(one.values[place] for one in trials) for place, key in enumerate(proposal.changes)}
    swept = {key: several for key, several in tried.items() if len(several) > 1}
    said = [word for word in trials[0].line.words if word.partition("=")[0] not in swept]
    return replace(
        proposal,
        cost=situation.costs.cost([Workload.of(one.plan, situation.facts) for one in trials]),
        verb="sweep" if swept else "run",
        words=(*said, *(f"{key}={','.join(several)}" for key, several in swept.items())),
    )


def open_trials(situation: Situation, proposal: Proposal) -> Iterator[OpenTrial]:
    """Yield the configurations of a proposal that are untried and can run here."""
    line, facts = situation.line, situation.facts
    groups = {key: values for key, values in proposal.changes.items() if "." not in key}
    plain = {key: values for key, values in proposal.changes.items() if "." in key}
    for chosen in itertools.product(*groups.values()):
        try:
            composed = line.changed(dict(zip(groups, chosen, strict=True))).composed()
        except Exception as error:  # Hydra has many error classes
            if explain(error, "run", ()) is None and not isinstance(error, BadInput):
                raise
            continue
        for values in itertools.product(*plain.values()):
            given = dict(zip([*groups, *plain], [*chosen, *values], strict=True))
            try:
                plan = Plan.of(check_values(_with(composed.config, dict(zip(plain, values, strict=True))), "run"))
                preflight.check_inputs(plan, facts, situation.cache)
                key = retrieval_trial_key(plan, facts.fingerprints, facts.texts)
            except BadInput:
                continue
            if key not in situation.tried:
                yield OpenTrial(tuple(given[name] for name in proposal.changes), line.changed(given), plan, key)


def _with(config: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(config))
    for key, text in values.items():
        *groups, name = key.split(".")
        node = made
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = plain_value(text)
    return made


@dataclass(frozen=True, eq=False)
class OtherRuns:
    """R runs other than the run to improve, the best first.

    values: float64 [R, Q], on the queries of the evidence; NaN if not scored.
    unread: the reason why runs are left out -> the number of these runs.
    """

    runs: Sequence[LoggedRun]
    values: np.ndarray
    unread: Mapping[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        return [f"Left out: {counted(count, 'other run')} {why}." for why, count in self.unread.items()]

    @property
    def best(self) -> np.ndarray | None:
        """The best value of each query in any of these runs, float64 [Q]; None without runs."""
        return np.fmax.reduce(self.values) if len(self.runs) else None


@dataclass(frozen=True, eq=False)
class RunToImprove:
    """A run to improve. situation: None if no command line repeats the run. others: comparable finished runs."""

    run: LoggedRun
    evidence: RunEvidence
    situation: Situation | None
    others: OtherRuns
    notes: Sequence[str] = ()


def read_advised(tracker: Tracker, config: AdviseConfig, config_dir: str | None) -> RunToImprove:
    """Return the named run, or the best of the experiment. Raise BadInput if it has no labels or no scores."""
    if config.run is None:
        run = best_run(tracker, Wanted(config.experiment_name, config.metric, config.select_on))
    else:
        run = recommended(tracker, tracker.run(config.run))
        if (task := run.tags.get("task", RETRIEVAL)) != RETRIEVAL:
            raise BadInput(f"Run {run.named} is of task={task}, but advice is only for retrieval.")
        require_finished(run)
        require_labels(run)
    peers = [one for one in tracker.runs(run.experiment, {}, "FINISHED") if one.run_id != run.run_id]
    peers = [one for one in peers if one.tags.get("harness.verb") in SCORED and compares(one, run)]
    evidence, situation, notes = _known(tracker, run, config, config_dir)
    others = _others(tracker, peers, evidence)
    notes = [*notes, *others.notes]
    reasons = [*catalogue.models("encoder").items(), *catalogue.models("rerank").items()]
    lacking = [choice for choice, why in reasons if why == catalogue.NOT_INSTALLED]
    if lacking:
        notes.append(
            f"Not checked, since their packages are not installed: {lacking[0]} and "
            f"{counted(len(lacking) - 1, 'other model')} ({INSTALL})."
        )
    if situation:
        setup = replace(
            situation.setup,
            varied=tried_values(run.params, (one.params for one in peers if one.has_settings)),
            beyond=beyond(run.params, evidence, others),
        )
        tried = frozenset(one.tags.get("trial_key", "") for one in (run, *peers))
        situation = replace(situation, setup=setup, tried=tried)
    return RunToImprove(run, evidence, situation, others, notes)


def _known(
    tracker: Tracker, run: LoggedRun, config: AdviseConfig, config_dir: str | None
) -> tuple[RunEvidence, Situation | None, list[str]]:
    """Return (the evidence, the situation, notes). The situation is None if no command line repeats the run."""
    logged = logged_config(tracker, run)
    if run.tags["harness.verb"] == "score":
        labels = load_unchanged(run, logged["dataset"], ("qrels",))
        return _of_files(tracker, run, config, labels), None, [ELSEWHERE_MADE]
    dataset = load_unchanged(run, logged["dataset"], ("documents", "queries", "qrels"))
    try:
        line = words_of_run(run.params, logged, config_dir)
        if config.metric != logged["objective"]:
            line = line.changed({"objective": config.metric})
        composed = line.composed()
    except Exception as error:  # Hydra has many error classes
        if (why := explain(error, "run", ())) is None:
            raise
        note = f"No command line can repeat this run with changes: {why}"
        return _of_files(tracker, run, config, dataset), None, [note]
    built = BuiltRun(composed, line, dataset, open_cache(config.store.path))
    evidence = built.evidence() if built.cached else _of_files(tracker, run, config, dataset)
    notes = [] if built.cached else [NOT_CACHED if evidence.lists else f"{NOT_CACHED} {NO_LISTS}"]
    return evidence, built.situation(evidence), notes


@dataclass(frozen=True, eq=False)
class BuiltRun:
    composed: ComposedRun
    line: CommandLine
    dataset: Dataset
    cache: Cache

    @cached_property
    def plan(self) -> Plan:
        return Plan.of(self.composed.config)

    @cached_property
    def facts(self) -> preflight.DataFacts:
        return preflight.DataFacts.of(self.dataset, *foreseen_queries(self.plan, self.dataset))

    @cached_property
    def session(self) -> Session:
        return Session(self.dataset, self.facts.queries, self.cache, timed="never")

    @property
    def cached(self) -> bool:
        """Whether all queries, rankings and scored pairs of the run are in the cache."""
        if self.facts.unwritten:
            return False
        if "rerank" in self.plan.active and not self.cache.holds_pairs(component_identity(self.plan.rerank)):
            return False
        for node in self.plan.retriever.values():
            ranking = steps.ranking_identity(steps.index_identity(node, self.dataset), self.session.queries_digest)
            if not cache_for(node, self.cache).holds_ranking(ranking, self.plan.depth):
                return False
        return True

    def evidence(self) -> RunEvidence:
        return RunEvidence.of_outcome(self.plan, steps.run_steps(self.plan, self.session), self.dataset)

    def situation(self, evidence: RunEvidence) -> Situation:
        setup = Setup(
            plan=self.plan,
            choices=self.composed.invocation.choices,
            writing=Writing.of(self.dataset.documents),
            documents=len(self.dataset.documents),
            encoders=(*catalogue.ENCODERS, *(choice for choice, why in catalogue.models("encoder").items() if not why)),
            rerankers=[choice for choice, why in catalogue.models("rerank").items() if not why],
            evidence=evidence,
        )
        arithmetic = sum(self.session.clock.seconds.values())
        costs = CostModel.of(self.cache, self.dataset, self.facts.indexed, arithmetic)
        return Situation(setup, self.line, self.facts, self.cache, costs)


def _of_files(tracker: Tracker, run: LoggedRun, config: AdviseConfig, dataset: Dataset) -> RunEvidence:
    assert dataset.qrels is not None
    with tempfile.TemporaryDirectory() as folder:
        table = read_score_table(tracker.download(run, SCORES, Path(folder)), config.metric)
        lists = None
        if dataset.queries:
            with contextlib.suppress(NoFile):  # most trials of a sweep have no lists
                [logged] = full_lists.named(tracker, [run.run_id], dataset, Path(folder))
                lists = Lists(_ranking(dataset, logged.lists), {})
    top_k = int(run.params.get("top_k", SHOWN))
    found = RunEvidence.of_table(table, config.metric, config.select_on or run.select_on, dataset.qrels, top_k)
    return replace(found, lists=lists)


def _ranking(dataset: Dataset, lists: Mapping[str, Sequence[str]]) -> Ranking:
    scores = {
        one.query_id: {doc: -float(rank) for rank, doc in enumerate(lists.get(one.query_id, ()))}
        for one in dataset.queries
    }
    return Ranking.from_scores(scores)


def _others(tracker: Tracker, runs: Sequence[LoggedRun], evidence: RunEvidence) -> OtherRuns:
    name, found, values, unread = evidence.measure.name, [], [], Counter[str]()
    ranked = sorted(runs, key=lambda one: -one.objective.value if one.objective else 0.0)
    if len(ranked) > MOST:
        unread[f"that scored lower than the {MOST} best runs"] = len(ranked) - MOST
    wanted = [(run, SCORES) for run in ranked[:MOST]]
    with tempfile.TemporaryDirectory() as folder, Ahead(tracker, wanted, Path(folder)) as files:
        for run in ranked[:MOST]:
            try:
                table = read_score_table(files.download(run, SCORES), name)
            except BadInput:  # damaged
                unread[f"whose {SCORES} is missing or damaged"] += 1
                continue
            if name not in table.values:
                unread[f"without {name} by query"] += 1
                continue
            of = dict(zip(table.query_ids, (table.oof or table.values)[name].tolist(), strict=True))
            found.append(run)
            values.append([of.get(query_id, np.nan) for query_id in evidence.query_ids])
    return OtherRuns(found, np.array(values).reshape(len(found), len(evidence.query_ids)), unread)


def tried_values(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return group or key -> the number of tried values other than the run's. own, others: params of the runs."""
    tried = {(key, value) for params in others for key, value in params.items() if value != own.get(key, value)}
    return Counter(key for key, _ in tried)


def beyond(own: Mapping[str, str], evidence: RunEvidence, others: OtherRuns) -> list[Proposal]:
    """Propose a value beyond the tried ones for each numeric key whose best tried value is the least or greatest."""
    whole = ~np.isnan(others.values).any(axis=1) & np.array([run.has_settings for run in others.runs], bool)
    rows = np.vstack([evidence.values[None], others.values[whole]])
    keys = varied([own, *(run.params for run, kept in zip(others.runs, whole, strict=True) if kept)])
    found = []
    for key in keys:
        grows = grows_with(evidence.measure.name, key.name)
        shape = plateau_of(key, keys, rows, None, grows) if key.places[0] >= 0 and key.name not in KNOWN else None
        if shape and shape.at_end and shape.values[shape.best] == key.values[key.places[0]]:
            beside = shape.values[1] if shape.at_end == "least" else shape.values[-2]
            gated = key.name.startswith("gate.")
            bound = catalogue.perfect_gate(evidence) if gated else catalogue.ranked(evidence.perfect, evidence)
            why, changes = shape.sentence(key.name), {key.name: [_step(shape.values[shape.best], beside)]}
            title = f"Beyond the tried values of {key.name}"
            found.append(Proposal(f"beyond {key.name}", title, why, changes, bound, catalogue.BEYOND))
    return found


def _step(best: str, beside: str) -> str:
    """Continue the series `beside`, `best`: by equal steps if both are integers or one is <= 0, else by a factor."""
    last, before = float(best), float(beside)
    if best.lstrip("-").isdigit() and beside.lstrip("-").isdigit():
        return str(int(2 * last - before))
    return f"{last * last / before if last > 0 and before > 0 else 2 * last - before:.4g}"


@dataclass(frozen=True)
class Untold:
    """A run that does not differ significantly from another run. p: from the test of this pair alone."""

    run: LoggedRun
    p: float


def untold(one: LoggedRun, evidence: RunEvidence, others: OtherRuns) -> Untold | None:
    """Return the best other run with different values by query; None if its difference from `one` is significant."""
    by_id = sorted(range(len(evidence.query_ids)), key=evidence.query_ids.__getitem__)  # p depends on query order
    for run, values in zip(others.runs, others.values, strict=True):
        gaps = np.nan_to_num(evidence.values - values)[by_id]
        if gaps.any() and not is_same(one, run):
            (p,), _ = sign_flip_test(gaps[None])
            return Untold(run, float(p)) if p > ALPHA else None
    return None
