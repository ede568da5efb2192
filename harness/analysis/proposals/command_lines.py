"""Command lines that repeat a logged run with changes, and the next commands that `run` and `init` print."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.proposals.catalogue import COMPONENTS, PLAIN, Proposal, Setup, proposals
from harness.config import manual
from harness.config.canonical import flatten
from harness.config.check import Invocation
from harness.config.commands import RunConfig, SearchConfig
from harness.config.components import SHARED, recorded, with_absolute_paths
from harness.config.composing import compose
from harness.config.defaults import chosen_groups as chosen_defaults
from harness.config.overrides import as_typed
from harness.config.schema import Role, with_role
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.gates.payoff import fixed_mean
from harness.recording.retrieval_run import ELSEWHERE, OPTIONAL
from harness.reports.next_steps import flag

GROUPS = ("dataset", "retriever", "tokenizer", "encoder", "index", "fusion", "rerank", "gate", "llm", "answer")
NAME = re.compile(r"[A-Za-z_][\w@/-]*")  # a text that Hydra reads as text without quotation marks
NOT_TEXTS = ("null", "true", "false", "nan", "inf", "infinity")
FIRST = ("dataset", "retriever")  # groups whose choices may change the choices of other groups
NEGLIGIBLE = 0.01  # a loss below this is not worth another run
ONCE = with_role(RunConfig, Role.ONCE)  # keys that are for a single run
SWEPT = ("retriever", "tokenizer", "encoder", "fusion", "rerank", "gate")  # groups that sweep=auto chooses from
BUDGET = "10m"  # the budget of sweep=auto
MOST = 3  # at most this many commands are printed at once


@dataclass(frozen=True)
class ComposedRun:
    config: Mapping[str, Any]
    invocation: Invocation


@dataclass(frozen=True)
class CommandLine:
    """A command line of `harness run`. choices: group -> choice, without defaults of the working folder."""

    choices: Mapping[str, str]
    values: Mapping[str, Any]
    config_dir: str | None = None

    @property
    def words(self) -> list[str]:
        """The overrides, as typed in a shell."""
        values = (_word(key, value) for key, value in self.values.items())
        return [*(f"{group}={choice}" for group, choice in self.choices.items()), *values]

    def composed(self) -> ComposedRun:
        """Return the config that the words give. Raise BadInput or an error of Hydra if the words are invalid."""
        config, invocation = compose("run", [*flag(self.config_dir), *self.words], silent=True)
        return ComposedRun(with_absolute_paths(config), invocation)

    def changed(self, changes: Mapping[str, str]) -> CommandLine:
        """Return the line with some groups or keys changed, without keys that only the replaced choices had."""
        groups = {key: value for key, value in changes.items() if key in GROUPS}
        choices = {**self.choices, **groups}
        plain = {key: plain_value(value) for key, value in changes.items() if key not in GROUPS}
        kept = {key: value for key, value in self.values.items() if key.partition(".")[0] not in groups}
        if groups and kept:
            known = flatten(CommandLine(choices, _required(choices, kept), self.config_dir).composed().config)
            kept = {key: value for key, value in kept.items() if key.startswith("+") or key in known}
        return CommandLine(choices, {**kept, **plain}, self.config_dir)


def _required(choices: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    entries = (manual.manual_keys(group, choice) for group, choice in choices.items())
    needed = {key for found in entries for key, entry in found.items() if entry.value == "???"}
    return {key: value for key, value in values.items() if key in needed}


def _word(key: str, value: Any) -> str:
    if isinstance(value, str) and NAME.fullmatch(value) and value.lower() not in NOT_TEXTS:
        return f"{key}={value}"
    return as_typed(key, value)


def override_key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def plain_value(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def words_of_run(params: Mapping[str, str], config: Mapping[str, Any], config_dir: str | None = None) -> CommandLine:
    """Return the command line that, in the working folder, repeats a logged run. Raise BadInput if there is none.

    params, config: the logged params and the resolved config of the run.
    """
    wanted = {name: params[name] for name in GROUPS if name in params}
    usual = chosen_defaults("run", flag(config_dir))
    first = {name: wanted[name] for name in FIRST if wanted[name] != usual.get(name)}
    leaves = {key: _short(value) for key, value in flatten(config).items()}
    implied = CommandLine(first, _required(first, leaves), config_dir).composed().invocation.choices
    choices = {name: choice for name, choice in wanted.items() if name in first or choice != implied.get(name)}
    needed = _required(choices, leaves)
    known = CommandLine(choices, needed, config_dir).composed()
    unused = {*ELSEWHERE, *OPTIONAL} - {*Plan.of(config).active, *(name for name in OPTIONAL if name in wanted)}
    values = needed | _differences(_plain(config, unused), _plain(known.config, unused), SHARED)
    if any(key.lstrip("+").partition(".")[0] in SHARED for key in values):  # other components may refer to shared ones
        known = CommandLine(choices, values, config_dir).composed()
    values |= _differences(_plain(config, unused), _plain(known.config, unused))
    words = CommandLine(choices, values, config_dir)
    different = _differences(_plain(config, unused), _plain(words.composed().config, unused))
    if different:
        raise BadInput(f"No command line in this folder gives the run's {', '.join(different)}.")
    return words


def _plain(config: Mapping[str, Any], unused: set[str]) -> dict[str, Any]:
    """Return dotted key -> value for the part of the config that decides results, with recorded component names."""
    return flatten({name: recorded(node) for name, node in config.items() if name not in unused})


def _differences(logged: Mapping[str, Any], now: Mapping[str, Any], groups: Sequence[str] = ()) -> dict[str, Any]:
    """Return key -> logged value for keys whose value now differs. A `+` before a key marks keys that are unknown now.

    groups: compare only these groups; () for all.
    """
    found = {key: value for key, value in logged.items() if key not in now or now[key] != value}
    names = {key: key if key in now else f"+{key}" for key in found if not groups or key.partition(".")[0] in groups}
    return {name: _short(found[key]) for key, name in names.items() if not key.endswith("_target_")}


def _short(value: Any) -> Any:
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    relative = os.path.relpath(value)
    return value if relative.startswith("..") else relative


def search_as(invocation: Invocation, rules: Mapping[str, Path]) -> list[str]:
    """Return [the command that searches as a run did]; [] if the run followed a recipe, which `search` cannot take.

    rules: the groups `gate` and `fusion`, if learnt in the run -> the file of the rule.
    """
    if any(word.startswith("experiment=") for word in (*invocation.overrides, *invocation.defaults)):
        return []
    own, once = manual.manual("search"), with_role(SearchConfig, Role.ONCE)
    words = [
        word
        for word in invocation.overrides
        for key in [override_key(word)]
        if own.has(key) and key not in once and not any(_inside(key, group) for group in rules)
    ]
    for group, file in rules.items():
        words += [f"{group}=fitted", _word(f"{group}.file", _short(str(file)))]
    return [shlex.join(["harness", "search", *flag(invocation.config_dir), *words])]


@dataclass(frozen=True)
class NextCommands:
    """The next commands after a run. Each `run` command is the previous one with one more change."""

    setup: Setup
    invocation: Invocation

    def commands(self, losses: Mapping[str, float] | None = None) -> list[str]:
        """Return at most MOST commands, the best first. losses: kind of loss -> modified_map@3 lost by it."""
        return list(itertools.islice(self._each(losses), MOST))

    def _each(self, losses: Mapping[str, float] | None) -> Iterator[str]:
        def worth(*kinds: str) -> bool:
            return losses is None or any(losses.get(kind, 0.0) >= NEGLIGIBLE for kind in kinds)

        setup, words = self.setup, self._words()
        unfit = setup.writing.better_tokenizer(setup.plan.tokenizer_of(setup.choices))
        kinds = {
            "tokenizer": unfit is not None,
            "retriever": worth("not_found", "misranked"),
            "gate": worth("wrongly_returned", "wrongly_withheld"),
        }
        for kind in (kind for kind, wanted in kinds.items() if wanted):
            if changed := self._changed(words, kind):
                words = changed
                yield self._line("run", words)
        if self._automatic:
            kept = (word for word in self._words() if override_key(word).partition(".")[0] not in SWEPT)
            yield self._line("sweep", [*kept, "sweep=auto", f"budget={BUDGET}"])
        deeper = losses is not None and worth("not_found") and setup.documents >= 2 * setup.plan.depth
        if deeper and (changed := self._changed(words, "depth")):
            yield self._line("run", changed)

    def _changed(self, words: Sequence[str], kind: str) -> list[str] | None:
        """Return the words with a kind's best proposal added; None if there is none, or if a recipe contradicts it."""
        found = (one for one in proposals(self.setup) if one.kind == kind and (kind != "retriever" or self._adds(one)))
        if (best := next(found, None)) is None:
            return None
        changed = list(words)
        for key, [value, *_] in best.changes.items():
            if (with_it := self._with(changed, key, value)) is None:
                return None
            changed = with_it
        scored = kind == "retriever" and self.invocation.choices["gate"] == "score"
        if scored and not any(word.startswith("gate.source=") for word in changed):
            return [*changed, f"gate.source={next(iter(self.setup.plan.retriever))}"]  # keep the gate's source
        return changed

    def _adds(self, one: Proposal) -> bool:
        return one.share > PLAIN and bool(set(COMPONENTS[one.changes["retriever"][0]]) - self.setup.names)

    @property
    def _automatic(self) -> bool:
        given = (*self.invocation.defaults, *self.invocation.overrides)
        own = self.invocation.choices.get("retriever")
        if any(word.startswith("experiment=") for word in given) or own not in ("bm25", *COMPONENTS):
            return False
        try:
            fixed_mean(self.setup.plan.objective)
        except BadInput:
            return False
        return True

    def _with(self, words: Sequence[str], key: str, value: str) -> list[str] | None:
        """Return the words with another value of a key; None if a recipe sets the key."""
        if f"{key}={value}" in words:
            return list(words)
        kept = [word for word in words if not _inside(override_key(word), key)]
        given = (*kept, *self.invocation.defaults)
        recipe = next((word.partition("=")[2] for word in given if word.startswith("experiment=")), None)
        if recipe:
            folders = [Path(one) for one in [self.invocation.config_dir] if one]
            path = manual.choice_files("experiment", folders).get(recipe)
            says = () if path is None else (*manual.read_manual(path).keys, *manual.read_manual(path).groups)
            if path is None or any(_inside(one, key) for one in says):
                return None
        return [*kept, f"{key}={value}"]

    def _line(self, verb: str, words: Sequence[str]) -> str:
        return shlex.join(["harness", verb, *flag(self.invocation.config_dir), *words])

    def _words(self) -> list[str]:
        words = (word for word in self.invocation.overrides if word != "metrics=all")
        return [word for word in words if re.split("[.=]", word)[0] not in ONCE]


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")
