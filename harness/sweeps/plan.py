"""The plan of a sweep: its trials, what each trial needs, and which trials share a Hydra job.

The expensive steps of a trial are its component rankings, one for each retriever, and its reranking. Their results are
cached. All other steps are cheap. Trials with the same expensive steps share a job.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.analysis.board.settings import overrides_in_words
from harness.config import check
from harness.config.canonical import canonical, digest
from harness.config.commands import RunConfig, SweepConfig
from harness.config.components import component_identity, with_absolute_paths
from harness.config.composing import Composer
from harness.config.places import full_place
from harness.config.schema import Node, Role, keys, schema_groups, top_level
from harness.config.text import counted, plural
from harness.data.files import sha256_of
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.experiment import preflight, steps
from harness.experiment.plan import Plan
from harness.experiment.preflight import DataFacts
from harness.experiment.session import foreseen_queries, open_dataset
from harness.measures.measures import requested
from harness.recording import retrieval_run, task_run
from harness.recording.run_kind import RunKind
from harness.storage.cache import Cache, open_cache
from harness.sweeps.axes import MOST
from harness.tasks.scored_file import TextPlan
from harness.tracking.tracker import LESS_IS_BETTER

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass
class Trial:
    """One point of a sweep.

    overrides: the swept overrides, key=value. plan: None if no plan could be made. error: why the trial cannot run.
    data, rules: digests of the scoring data and of the scoring rules. Trials are comparable if both are equal.
    ranking_keys: the digests of the component rankings. order_key: digest of all else that orders the candidates.
    unwritten: (number of queries that a language model must still write, digest of the queries).
    job_key: digest of the expensive steps.
    """

    number: int
    overrides: tuple[str, ...]
    plan: Plan | TextPlan | None = None
    choices: Mapping[str, str | None] = field(default_factory=dict)
    fingerprints: Mapping[str, str | None] = field(default_factory=dict)
    key: str = ""
    data: str = ""
    rules: str = ""
    ranking_keys: tuple[str, ...] = ()
    unwritten: tuple[int, str] = (0, "")
    job_key: str = ""
    order_key: str = ""
    error: Exception | None = None

    @property
    def name(self) -> str:
        return overrides_in_words(self.overrides) or "trial"

    @property
    def retrieval(self) -> Plan:
        assert isinstance(self.plan, Plan), "a trial of a text task, or one that cannot run, has no retrieval plan"
        return self.plan

    @property
    def asks_model(self) -> bool:
        return isinstance(self.plan, Plan) and self.plan.asks_model


@dataclass
class Job:
    """Trials with the same expensive steps. depths: the depths of their component rankings, which may be `cached`."""

    trials: list[Trial]
    depths: tuple[int, ...]
    timed: bool = False
    cached: bool = False


class Planner:
    """Makes trials from overrides. Reads each dataset and computes each component's identity once for all trials."""

    def __init__(self, composer: Composer, fixed: Sequence[str]) -> None:
        self.composer, self.fixed = composer, tuple(fixed)
        self.search: Node = {}  # the component that chooses the trials
        self.config: SweepConfig | None = None  # the config of the first trial that can be read
        self.rankings: dict[str, dict[str, Any]] = {}  # digest of a ranking's identity -> this identity
        self._datasets: dict[str, DataFacts | Exception] = {}
        # Digest of what decides whether a trial can run -> why the trial cannot run, None if it can.
        self._refused: dict[str, BadInput | None] = {}
        self._identities: dict[str, dict[str, Any]] = {}
        self._accepted: dict[str, Any] = {}  # see `check_values`
        self._full: dict[tuple[str, int], Any] = {}  # (name, id) of an accepted part -> this part with absolute paths
        self._run_keys = top_level(RunConfig)

    def cached(self, trial: Trial, depths: Mapping[str, int]) -> dict[str, bool]:
        """Return ranking key -> whether the trial's store holds the ranking to this depth. depths: see `depths`."""
        cache = cache_of(trial)
        return {key: cache.holds_ranking(self.rankings[key], depth) for key, depth in depths.items()}

    def words(self, overrides: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
        """Return a trial's fixed and own overrides. Leave out keys that do not fit: gate=none has no gate.threshold."""
        kept = set(self.composer.applicable([*self.fixed, *overrides]))
        return [one for one in self.fixed if one in kept], tuple(one for one in overrides if one in kept)

    def trial(self, number: int, overrides: Sequence[str]) -> Trial:
        """Return the trial of these overrides. If it cannot run, its `error` says why. Raise Hydra's own errors."""
        try:
            fixed, applicable = self.words(overrides)
            trial = Trial(number, applicable)
            config, choices = self.composer(fixed, applicable)
        except Exception as error:
            error.add_note(f"(while composing trial {' '.join(overrides)})")
            raise
        self.search = self.search or config["search"]
        try:
            config = check.check_values(config, "sweep", self._accepted)
            self.config = self.config or SweepConfig.of(config)
            run = self._with_full_paths({name: value for name, value in config.items() if name in self._run_keys})
            (self._describe_text if "task" in run else self._describe_retrieval)(trial, run, choices)
            chosen_by = [run[name] for name in ("public", "seed")] if config["select_on"] == "public" else []
            trial.rules = digest([RunKind(run.get("task")).rules, run["objective"], chosen_by])
        except (BadInput, OSError) as error:
            trial.error = error
        return trial

    def _with_full_paths(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config with absolute paths, since workers may run in other folders. Equal parts are one object."""
        # `_accepted` keeps the parts, so their ids belong to no other object.
        new = {name: value for name, value in config.items() if (name, id(value)) not in self._full}
        full = new | {} if "task" in config else with_absolute_paths(new)
        if "store" in new:
            full["store"] = new["store"] | {"path": full_place(new["store"]["path"])}
        if "outputs" in new:
            full["outputs"] = str(Path(new["outputs"]).absolute())
        self._full |= {(name, id(value)): full[name] for name, value in new.items()}
        return {name: self._full[name, id(value)] for name, value in config.items()}

    def _describe_text(self, trial: Trial, config: dict[str, Any], choices: Mapping[str, str | None]) -> None:
        plan = TextPlan.of(config)
        trial.plan, trial.choices = plan, choices
        trial.key, trial.job_key = task_run.task_trial_key(plan), "text"
        trial.data = sha256_of(plan.references)

    def _describe_retrieval(self, trial: Trial, document: dict[str, Any], choices: Mapping[str, str | None]) -> None:
        plan = Plan.of_full(document)
        dataset = self._facts(plan, choices["dataset"] or "")
        _check_scores(plan, dataset.qrels)
        indexes = [dataset.index(node, self._identity) for node in plan.retriever.values()]
        rankings = [steps.ranking_identity(index, dataset.queries_digest) for index in indexes]
        ranking_keys = tuple(digest(ranking) for ranking in rankings)
        reranker = self._identity(plan.rerank) if "rerank" in plan.active else None
        trial.key = retrieval_run.retrieval_trial_key(plan, dataset.fingerprints, dataset.texts, self._identity)
        trial.plan, trial.choices, trial.fingerprints = plan, choices, dataset.fingerprints
        trial.data = digest([dataset.fingerprints[name] for name in self._shared(plan)])
        trial.ranking_keys = ranking_keys
        trial.unwritten = dataset.unwritten, dataset.queries_digest
        trial.job_key = digest([dataset.fingerprints, ranking_keys, reranker])
        trial.order_key = plan.order_key
        self._check_possible(trial, plan, dataset)
        self.rankings |= dict(zip(ranking_keys, rankings, strict=True))

    def _shared(self, plan: Plan) -> list[str]:
        names = (self.config and self.config.objectives) or [plan.objective]
        scores = [name for name in names if not name.startswith(LESS_IS_BETTER)]
        tags = dict.fromkeys(tag for name in scores for tag in RunKind().shared(name))
        return [tag.removeprefix("data.") for tag in tags if tag.startswith("data.")]

    def _check_possible(self, trial: Trial, plan: Plan, facts: DataFacts) -> None:
        learning = [plan.gate if plan.made("gate").learns else None]
        learning += [plan.fusion] if plan.fusion_learns else []
        split = [plan.split.public, plan.split.seed, plan.split.select_on, plan.objective]
        alike = digest([trial.job_key, plan.depth, learning, split])
        if alike not in self._refused:
            try:
                preflight.check_inputs(plan, facts, cache_of(trial), self._identity)
                self._refused[alike] = None
            except BadInput as error:
                self._refused[alike] = error
        if refused := self._refused[alike]:
            raise refused

    def _facts(self, plan: Plan, name: str) -> DataFacts:
        writes = plan.llm if plan.writer else None
        query = [plan.query_text, plan.query_file, plan.query_prompt, writes]
        wanted = canonical([plan.dataset, plan.cluster, query, plan.store])
        if wanted not in self._datasets:
            try:
                dataset = open_dataset(plan, name)
                steps.asked_slices(plan, dataset)
                self._datasets[wanted] = DataFacts.of(dataset, *foreseen_queries(plan, dataset))
            except (BadInput, OSError) as error:
                self._datasets[wanted] = error
        info = self._datasets[wanted]
        if isinstance(info, Exception):
            raise info
        return info

    def _identity(self, node: Node) -> dict[str, Any]:
        text = canonical(node)
        if text not in self._identities:
            self._identities[text] = component_identity(node)
        return self._identities[text]


def split_overrides(overrides: Sequence[Override]) -> tuple[list[str], dict[str, Override]]:
    """Return the overrides that all trials share, and key -> swept override. The last override of a key counts."""
    last = {override.get_key_element(): override for override in overrides}
    fixed = [override.input_line or "" for override in last.values() if not override.is_sweep_override()]
    swept = {key: override for key, override in last.items() if override.is_sweep_override()}
    for key in swept:
        about = keys(SweepConfig).get(key) or schema_groups(SweepConfig).get(key.partition(".")[0])
        if about and about.roles & (Role.ASIDE | Role.FIXED):
            raise BadInput(
                f"{key} cannot be swept: all trials of a sweep share its value. Give it one value. A value with a "
                f"comma needs quotes: \"{key}='a,b'\"."
            )
    return fixed, swept


def swept_values(overrides: Iterable[str]) -> dict[str, str]:
    """Return swept key -> value without quotes."""
    parts = (override.partition("=") for override in overrides)
    return {key: value.strip("'\"") for key, _, value in parts}


def combinations(axes: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Return all combinations of overrides; the last key varies fastest. Raise BadInput if there are more than MOST."""
    if (count := math.prod(map(len, axes.values()))) > MOST:
        sizes = " x ".join(f"{len(values):,} of {key}" for key, values in axes.items())
        raise BadInput(
            f"This grid has {count:,} trials ({sizes}). The maximum is {MOST:,}: sweep fewer values, or let a sampler "
            "choose: search=tpe search.trials=50."
        )
    return list(itertools.product(*axes.values()))


class SweepObjective(NamedTuple):
    """A number that a sweep optimises. name: the name of a measure or of another logged number."""

    name: str
    direction: Literal["maximize", "minimize"]


def jobs(trials: Iterable[Trial], depths: Mapping[str, int], most: int | None) -> list[Job]:
    """Group trials by their expensive steps. depths: ranking key -> depth. most: the maximum size of a job."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.job_key, []).append(trial)
    made = []
    for group in groups.values():
        places: dict[str, int] = {}  # order key -> rank; trials with the same order key get the same rank
        group.sort(key=lambda trial: places.setdefault(trial.order_key, len(places)))
        job_depths = tuple(depths[key] for key in group[0].ranking_keys)
        size = most or len(group)
        made += [Job(group[first : first + size], job_depths) for first in range(0, len(group), size)]
    return made


def depths(trials: Iterable[Trial]) -> dict[str, int]:
    """Return ranking key -> the greatest depth to which any trial reads the ranking."""
    greatest: dict[str, int] = {}
    for trial in trials:
        for key in trial.ranking_keys:
            greatest[key] = max(greatest.get(key, 0), trial.retrieval.depth)
    return greatest


def keys_by_cost(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """Return the swept keys of a grid: `expensive` keys change retrieval or reranking, `free` keys do not."""
    keys = dict.fromkeys(word.partition("=")[0] for trial in trials for word in trial.overrides)
    expensive = keys_that_change(trials, lambda trial: trial.job_key)
    return {"expensive": expensive, "free": [key for key in keys if key not in expensive]}


def keys_that_change(trials: Iterable[Trial], what: Callable[[Trial], Hashable]) -> list[str]:
    """Return the swept keys that change `what(trial)` while all other keys stay the same."""
    values = [(swept_values(trial.overrides), what(trial)) for trial in trials if not trial.error]
    keys = dict.fromkeys(key for own, _ in values for key in own)
    found = []
    for key in keys:
        apart = {key, *_depending(key, [own for own, _ in values if key in own], keys)}
        different: dict[tuple[tuple[str, str], ...], set[Hashable]] = {}
        for own, result in values:
            if key in own:
                others = tuple(item for item in own.items() if item[0] not in apart)
                different.setdefault(others, set()).add(result)
        if any(len(some) > 1 for some in different.values()):
            found.append(key)
    return found


def _depending(key: str, trials: Sequence[Mapping[str, str]], keys: Iterable[str]) -> list[str]:
    """Return the keys that are absent for some value of `key`: gate.threshold is absent for gate=none."""
    having: dict[str, set[str]] = {}  # value of `key` -> the other keys of its trials
    for own in trials:
        having.setdefault(own[key], set()).update(own)
    return [one for one in keys if not all(one in some for some in having.values())]


def cut_in_different_ways(trials: Iterable[Trial]) -> bool:
    """Return whether the trials cut documents in different ways, but share queries, evidence and scoring rules."""
    given = [{**trial.fingerprints, "rules": trial.rules} for trial in trials if not trial.error]
    same = {(one.get("queries"), one.get("evidence"), one["rules"]) for one in given}
    several = len({one.get("documents") for one in given}) > 1
    return several and len(same) == 1 and all("evidence" in one for one in given)


def cache_of(trial: Trial) -> Cache:
    assert trial.plan is not None
    return open_cache(trial.plan.store)


def plan_lines(counts: Mapping[str, Any], searched: Iterable[str] = ()) -> Iterator[str]:
    """Yield the plan in words. counts: the counts in the sweep's JSON document. searched: the keys of a search."""
    first, retrievals = counted(counts["trials"], "trial"), counts.get("retrievals", {})
    if searched:
        first += f" of a search over {', '.join(searched)}"
    elif any(retrievals.values()):
        first += f", {counted(retrievals['compute'], 'retrieval')} to compute, {retrievals['cached']} cached"
    yield first
    if requests := counts.get("requests"):
        yield f"{counted(requests, 'request')} to a language model to write the texts to search (query.text)"
    if counts["finished_before"]:
        yield f"skipping {counted(counts['finished_before'], 'trial')} that finished before"
    if counts.get("same"):
        yield f"skipping {counted(counts['same'], 'trial')} that differ from others only in keys without effect"
    if counts.get("cannot_run"):
        yield f"{counted(counts['cannot_run'], 'trial')} cannot run"
    partial: dict[str, list[str]] = {}
    for key, choices in counts["only_with"].items():
        partial.setdefault(" or ".join(choices), []).append(key)
    if partial:
        yield "; ".join(f"only with {choices}: {', '.join(own)}" for choices, own in partial.items())
    if not counts.get("jobs", counts["finished_before"] < counts["trials"]):
        yield "nothing to run"
    elif not searched:
        keys = "; ".join(f"{cost}: {', '.join(counts[cost])}" for cost in ("expensive", "free") if counts.get(cost))
        yield f"{counted(len(counts['jobs']), 'job')}{_sizes(counts['jobs'])}{f' ({keys})' if keys else ''}"


def _sizes(jobs: Sequence[int]) -> str:
    if len(jobs) > 1 and len(set(jobs)) == 1:
        return f" of {counted(jobs[0], 'trial')} each"
    sizes = [str(size) for size in jobs[:8]] + ["…"] * (len(jobs) > 8)
    return f" of {', '.join(sizes)} {plural('trial') if jobs != [1] else 'trial'}" if sizes else ""


def _check_scores(plan: Plan, qrels: Qrels | None) -> None:
    plan.check(qrels)
    if "answer" in plan.active:
        raise BadInput(
            "A sweep writes no answers: no score depends on them, and every trial would pay for new ones. Sweep with "
            "answer=none, then run the best trial again with answer=llm."
        )
    if plan.objective not in requested(plan.metrics, qrels, plan.top_k):
        raise BadInput(f"objective={plan.objective} is not among the metrics: add it to metrics=[...].")
    if qrels is None:
        raise BadInput("A sweep needs labels to rank its trials: add dataset.qrels=FILE.")
