"""What a sweep is going to do: its trials, what each of them needs, and which of them share a Hydra job.

A trial's expensive part is what the store keeps for it: the raw rankings it reads and its reranker, known by their
identities. Trials that need the same are run by one job; whatever else they differ in is free.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.sweep.search import Interval, axis_of
from harness.config import canonical, check
from harness.config.canonical import digest, digest_texts
from harness.config.components import active_groups, build, identity
from harness.data.dataset import load, search_queries
from harness.evaluation import measures
from harness.pipeline import steps
from harness.pipeline.cache import Cache
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import queries_digest
from harness.tasks import scored_file
from harness.tracking import retrieval_run, task_run
from retrievers.base import BadInput

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig


NO_RESULT = (
    *retrieval_run.ELSEWHERE,
    "dry_run",
    "objective",
    "objectives",
    "search",
    "sweep",
)  # keys that none can sweep


@dataclass
class Trial:
    """One point of a sweep.

    words:  the swept overrides, key=value. config: the resolved config of its run, {} where there is none.
    choices: config group -> choice. key: its trial key. needs: digests of the raw rankings that it reads.
    part:   digest of everything expensive. error: why it cannot run.
    """

    number: int
    words: tuple[str, ...]
    config: dict[str, Any] = field(default_factory=dict)
    choices: Mapping[str, str | None] = field(default_factory=dict)
    fingerprints: Mapping[str, str | None] = field(default_factory=dict)
    key: str = ""
    needs: tuple[str, ...] = ()
    part: str = ""
    error: Exception | None = None


@dataclass
class Job:
    """Trials with the same expensive part. depths: at which each of their rankings is retrieved, once for all."""

    trials: list[Trial]
    depths: tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """What a plan must know of a data set. asked: digest of the queries. texts: digest of their texts alone."""

    fingerprints: Mapping[str, str | None]
    asked: str
    texts: str
    notes: tuple[str, ...]


@dataclass
class Composed:
    """What Hydra composed for a set of choices. plain: it resolved. keys: of all nodes. texts: interpolations."""

    config: DictConfig
    plain: dict[str, Any]
    choices: dict[str, str | None]
    keys: set[str]
    texts: list[str]


class Composer:
    """Configs of trials. Hydra composes once for each set of choices; plain values are set in what it gave.

    compose: words -> Hydra's whole config. group: whether a key is a config group.
    """

    def __init__(self, compose: Callable[[list[str]], DictConfig], group: Callable[[str], bool]) -> None:
        self._compose, self._group = compose, functools.cache(group)
        self._composed: dict[tuple[str, ...], Composed] = {}
        self._parse = functools.cache(_parsed)

    def __call__(self, fixed: Sequence[str], words: Sequence[str]) -> tuple[dict[str, Any], dict[str, str | None]]:
        """(resolved config, choices) of the words, those of a sweep last. Raises Hydra's exceptions."""
        from hydra.errors import ConfigCompositionException
        from omegaconf import OmegaConf

        parsed = [self._parse(word) for word in words]
        values = {one.key_or_group: one.value() for one in parsed if self._sets_value(one)}
        rest = tuple(one.input_line or "" for one in parsed if not self._sets_value(one))
        if rest not in self._composed:
            self._composed[rest] = _composed(self._compose([*fixed, *rest]))
        found = self._composed[rest]
        for key in values:
            if key not in found.keys:
                raise ConfigCompositionException(f"Could not override '{key}'.")
        if any("${" + key.partition(".")[0] in text for key in values for text in found.texts):
            whole = copy.deepcopy(found.config)
            for key, value in values.items():  # other values follow these
                _set_in(whole, key, value)
            config: Any = OmegaConf.to_container(whole, resolve=True)
        else:
            config = copy.deepcopy(found.plain)
            for key, value in values.items():
                _set_in(config, key, value)
        return config, found.choices

    def _sets_value(self, one: Override) -> bool:
        """Whether an override sets one plain value, which every trial with the same choices sets anew."""
        value = one.value()
        plain = isinstance(value, bool | int | float | str | None) and not {"$", "\\"} & set(str(value))
        return plain and one.type is not None and one.type.name == "CHANGE" and not self._group(one.key_or_group)


def _set_in(config: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value


def _composed(config: DictConfig) -> Composed:
    from omegaconf import OmegaConf, open_dict

    choices = {name: value for name, value in config.hydra.runtime.choices.items() if "/" not in name}
    with open_dict(config):
        del config["hydra"]
    raw: Any = OmegaConf.to_container(config, resolve=False)
    texts = [value for value in canonical.flatten(raw).values() if isinstance(value, str) and "${" in value]
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return Composed(config, plain, choices, set(_paths(raw)), texts)


def _paths(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")


class Planner:
    """Makes trials of words. Data is read and identities are worked out once for all trials."""

    def __init__(self, composer: Composer, fixed: Sequence[str]) -> None:
        self.composer, self.fixed = composer, tuple(fixed)
        self.settings: dict[str, Any] = {}  # a whole config of the sweep: that of the first trial
        self.rankings: dict[str, dict[str, Any]] = {}  # digest -> identity of a raw ranking
        self._data: dict[str, Data | Exception] = {}
        self._identities: dict[str, dict[str, Any]] = {}
        self._run_keys = (*check.shipped_keys("run"), "retriever")

    def trial(self, number: int, words: Sequence[str]) -> Trial:
        """The trial of these words; bad input is kept as its error. Raises Hydra's errors: unknown keys and choices."""
        trial = Trial(number, tuple(words))
        try:
            config, choices = self.composer(self.fixed, words)
        except Exception as error:
            error.add_note(f"(That is of the trial {' '.join(words)})")
            raise
        self.settings = self.settings or config
        try:
            check.check(config, "sweep")
            keys = (*self._run_keys, *task_run.KEYS) if "task" in config else self._run_keys
            run = retrieval_run.absolute({name: value for name, value in config.items() if name in keys})
            for node, name in ((run, "outputs"), (run["store"], "path")):  # a worker may run in another folder
                node[name] = str(Path(node[name]).absolute())
            self._fill(trial, run, choices)
        except (BadInput, OSError) as error:
            trial.error = error
        return trial

    def _fill(self, trial: Trial, config: dict[str, Any], choices: Mapping[str, str | None]) -> None:
        trial.config, trial.choices = config, choices
        if "task" in config:
            trial.config = scored_file.absolute(config)
            scored_file.measures(scored_file.task_of(config), config)
            trial.key, trial.part = task_run.trial_key(trial.config), "text"
            return
        data = self._read(config, choices)
        _check_objective(config, data)
        for node in config["retriever"].values():
            index = {"retriever": self._identity(node), "documents": data.fingerprints["documents"]}
            found = steps.ranking_identity(index, data.asked)
            self.rankings[digest(found)] = found
            trial.needs += (digest(found),)
        reranked = "rerank" in active_groups(config)
        trial.fingerprints = data.fingerprints
        trial.part = digest([data.fingerprints, trial.needs, self._identity(config["rerank"]) if reranked else None])
        trial.key = retrieval_run.trial_key(RunConfig.of(config), data.fingerprints, data.texts, self._identity)

    def _read(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> Data:
        name = json.dumps([config["dataset"], config["query"]], sort_keys=True)
        if name not in self._data:
            try:
                dataset = load(build(config["dataset"], where="dataset"), choices["dataset"] or "")
                queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
                texts = digest_texts(query.text for query in queries)
                self._data[name] = Data(dataset.fingerprints, queries_digest(queries), texts, dataset.notes)
            except (BadInput, OSError) as error:
                self._data[name] = error
        found = self._data[name]
        if isinstance(found, Exception):
            raise found
        return found

    def _identity(self, node: Mapping[str, Any]) -> dict[str, Any]:
        name = json.dumps(node, sort_keys=True)
        if name not in self._identities:
            self._identities[name] = identity(node)
        return self._identities[name]


def split(overrides: Sequence[Override]) -> tuple[list[str], dict[str, Override]]:
    """(words that all trials share, key -> swept override); of several for a key the last counts."""
    last = {override.get_key_element(): override for override in overrides}
    fixed = [override.input_line or "" for override in last.values() if not override.is_sweep_override()]
    swept = {key: override for key, override in last.items() if override.is_sweep_override()}
    for key in swept:
        if key.partition(".")[0] in NO_RESULT:
            raise BadInput(
                f"{key} decides no result, and so cannot be swept. Give it one value; one with a comma goes in quotes: "
                f"\"{key}='a,b'\"."
            )
    return fixed, swept


def said(override: Override) -> str:
    return (override.input_line or "").partition("=")[2]


def _words(override: Override) -> list[str]:
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def lists(swept: Mapping[str, Override]) -> dict[str, list[str]]:
    for key, override in swept.items():
        if not override.is_discrete_sweep():
            raise BadInput(
                f"{key}={said(override)} has no end of values, and a grid needs a list: "
                f"{key}=range(0,10,0.5). Or let a sampler choose: search=tpe search.trials=50."
            )
    return {key: _words(override) for key, override in swept.items()}


def corner(override: Override, last: bool = False) -> str:
    """The first or the last value of an axis, as a word."""
    axis = axis_of(override)
    ends = (
        (axis.word(axis.low), axis.word(axis.high)) if isinstance(axis, Interval) else (axis.words[0], axis.words[-1])
    )
    return f"{override.get_key_element()}={ends[last]}"


def combinations(axes: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Every combination of the axes' words, the last axis changing fastest."""
    return list(itertools.product(*axes.values()))


def jobs(trials: Iterable[Trial], depths: Mapping[str, int], most: int | None) -> list[Job]:
    """The trials, grouped by their expensive part, at most `most` in a job. depths: of each raw ranking."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.part, []).append(trial)
    found = []
    for group in groups.values():
        places: dict[str, int] = {}  # trials that order their candidates alike come one after the other
        group.sort(
            key=lambda one: places.setdefault(
                json.dumps(vars(steps.Ordering.of(RunConfig.of(one.config)))), len(places)
            )
        )
        wanted = tuple(depths[need] for need in group[0].needs)
        size = most or len(group)
        found += [Job(group[first : first + size], wanted) for first in range(0, len(group), size)]
    return found


def depths(trials: Iterable[Trial]) -> dict[str, int]:
    """digest of a raw ranking -> the greatest depth at which a trial reads it: one retrieval serves all."""
    found: dict[str, int] = {}
    for trial in trials:
        for need in trial.needs:
            found[need] = max(found.get(need, 0), trial.config["depth"])
    return found


def kept(rankings: Mapping[str, Mapping[str, Any]], depths: Mapping[str, int], cache: Cache) -> set[str]:
    """Those of the raw rankings that the store holds at their depth."""
    return {need for need, depth in depths.items() if cache.holds_ranking(rankings[need], depth)}


def kinds_of_keys(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """The swept keys of a grid: `expensive` ones change what must be computed, all else equal, `free` ones not."""
    keys = list(dict.fromkeys(_key(word) for trial in trials for word in trial.words))
    found: dict[str, list[str]] = {"expensive": [], "free": []}
    for key in keys:
        parts: dict[tuple[str, ...], set[str]] = {}
        for trial in trials:
            if not trial.error:
                others = tuple(word for word in trial.words if _key(word) != key)
                parts.setdefault(others, set()).add(trial.part)
        found["expensive" if any(len(some) > 1 for some in parts.values()) else "free"].append(key)
    return found


def cache_of(trial: Trial) -> Cache:
    return Cache(Path(trial.config["store"]["path"]))


def _key(word: str) -> str:
    return word.partition("=")[0]


def _parsed(word: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(word)


def _check_objective(config: Mapping[str, Any], data: Data) -> None:
    for name in [*config["metrics"], config["objective"]]:
        measures.parse(name)
    if config["objective"] not in config["metrics"]:
        raise BadInput(f"objective={config['objective']} is not among the metrics: add it to metrics=[...].")
    steps.check_gate(RunConfig.of(config), bool(data.fingerprints["qrels"]))
    if not data.fingerprints["qrels"]:
        raise BadInput("There are no labels, so that no trial is better than another. Give them with dataset.qrels.")


def spoken(counts: Mapping[str, Any]) -> Iterator[str]:
    """The plan in words."""
    retrievals = counts["retrievals"]
    needed = f", {retrievals['compute']} retrievals to compute, {retrievals['cached']} cached"
    yield f"{counts['trials']} trials{needed if any(retrievals.values()) else ''}"
    if counts["finished_before"]:
        yield f"{counts['finished_before']} trials finished before and are skipped"
    if counts["same"]:
        yield f"{counts['same']} trials are the same as others: what they differ in is not made use of"
    if counts["cannot_run"]:
        yield f"{counts['cannot_run']} trials cannot run and will be recorded as failed"
    keys = "; ".join(f"{kind}: {', '.join(counts[kind])}" for kind in ("expensive", "free") if counts.get(kind))
    yield f"{len(counts['jobs'])} jobs of {', '.join(map(str, counts['jobs'][:8])) or 'no'} trials" + (
        f" ({keys})" if keys else ""
    )
