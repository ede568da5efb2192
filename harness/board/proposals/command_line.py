"""The words of a command line that repeat a logged run, and those of a run like it with something changed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import manual
from harness.config.canonical import flatten
from harness.config.check import Invocation
from harness.config.components import SHARED, active_groups, recorded
from harness.config.composing import compose
from harness.config.defaults import chosen as chosen_defaults
from harness.config.overrides import as_typed
from harness.errors import BadInput
from harness.reports.next_steps import flag
from harness.tracking.retrieval_run import ELSEWHERE, OPTIONAL, absolute

GROUPS = ("dataset", "retriever", "tokenizer", "encoder", "index", "fusion", "rerank", "gate", "llm", "answer")
NAME = re.compile(r"[A-Za-z_][\w@/-]*")  # a text that Hydra's lexer reads as one
NOT_TEXTS = ("null", "true", "false", "nan", "inf", "infinity")
FIRST = ("dataset", "retriever")  # whose choices may bring others


@dataclass(frozen=True)
class ComposedRun:
    """A checked config of `harness run`, with absolute paths, and what it was made of."""

    config: Mapping[str, Any]
    invocation: Invocation


@dataclass(frozen=True)
class CommandLine:
    """A command line of `harness run`.

    choices: group -> choice, of those that differ from the defaults of this folder. values: key -> a plain value.
    config_dir: the folder of `--config-dir`.
    """

    choices: Mapping[str, str]
    values: Mapping[str, Any]
    config_dir: str | None = None

    @property
    def words(self) -> list[str]:
        """As they are typed."""
        values = (_word(key, value) for key, value in self.values.items())
        return [*(f"{group}={choice}" for group, choice in self.choices.items()), *values]

    def composed(self) -> ComposedRun:
        """The config that they stand for. BadInput, or Hydra's error, where they stand for none."""
        config, invocation = compose("run", [*flag(self.config_dir), *self.words], silent=True)
        return ComposedRun(absolute(config), invocation)

    def changed(self, changes: Mapping[str, str]) -> CommandLine:
        """With other choices or values; what only a former choice had is left out.

        changes: group or key -> what it is now.
        """
        groups = {key: value for key, value in changes.items() if key in GROUPS}
        choices = {**self.choices, **groups}
        plain = {key: plain_value(value) for key, value in changes.items() if key not in GROUPS}
        kept = {key: value for key, value in self.values.items() if key.partition(".")[0] not in groups}
        if groups and kept:
            known = flatten(CommandLine(choices, _required(choices, kept), self.config_dir).composed().config)
            kept = {key: value for key, value in kept.items() if key.startswith("+") or key in known}
        return CommandLine(choices, {**kept, **plain}, self.config_dir)


def _required(choices: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values without which the choices cannot be composed."""
    entries = (manual.keys_of(group, choice) for group, choice in choices.items())
    needed = {key for found in entries for key, entry in found.items() if entry.value == "???"}
    return {key: value for key, value in values.items() if key in needed}


def _word(key: str, value: Any) -> str:
    """An override; its value in quotation marks where it would be read as something else than this text."""
    if isinstance(value, str) and NAME.fullmatch(value) and value.lower() not in NOT_TEXTS:
        return f"{key}={value}"
    return as_typed(key, value)


def key_of(word: str) -> str:
    """The key of an override."""
    return word.partition("=")[0].lstrip("+~")


def plain_value(text: str) -> int | float | str:
    """A number where the text is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def of_run(params: Mapping[str, str], config: Mapping[str, Any], config_dir: str | None = None) -> CommandLine:
    """The words that repeat a logged run in this folder. BadInput where none do, such as for code of another version.

    params: of the run. config: its resolved config, as it was logged.
    """
    wanted = {name: params[name] for name in GROUPS if name in params}
    usual = chosen_defaults("run", flag(config_dir))
    first = {name: wanted[name] for name in FIRST if wanted[name] != usual.get(name)}
    leaves = {key: _short(value) for key, value in flatten(config).items()}
    implied = CommandLine(first, _required(first, leaves), config_dir).composed().invocation.choices
    choices = {name: choice for name, choice in wanted.items() if name in first or choice != implied.get(name)}
    needed = _required(choices, leaves)
    known = CommandLine(choices, needed, config_dir).composed()
    unused = {*ELSEWHERE, *OPTIONAL} - {*active_groups(config), *(name for name in OPTIONAL if name in wanted)}
    values = needed | _differences(_plain(config, unused), _plain(known.config, unused), SHARED)
    if any(key.lstrip("+").partition(".")[0] in SHARED for key in values):  # components that refer to them follow
        known = CommandLine(choices, values, config_dir).composed()
    values |= _differences(_plain(config, unused), _plain(known.config, unused))
    words = CommandLine(choices, values, config_dir)
    different = _differences(_plain(config, unused), _plain(words.composed().config, unused))
    if different:
        raise BadInput(f"No command line gives the run's {', '.join(different)} here.")
    return words


def _plain(config: Mapping[str, Any], unused: set[str]) -> dict[str, Any]:
    """Dotted key -> value of what decides a run's results, components by their recorded names."""
    return flatten({name: recorded(node) for name, node in config.items() if name not in unused})


def _differences(logged: Mapping[str, Any], now: Mapping[str, Any], groups: Sequence[str] = ()) -> dict[str, Any]:
    """Key -> the logged value where it differs from that of now; a key that is new has a plus sign.

    groups: only keys of these.
    """
    found = {key: value for key, value in logged.items() if key not in now or now[key] != value}
    names = {key: key if key in now else f"+{key}" for key in found if not groups or key.partition(".")[0] in groups}
    return {name: _short(found[key]) for key, name in names.items() if not key.endswith("_target_")}


def _short(value: Any) -> Any:
    """The path of a file as it is called from this folder, where it lies in it; other values as they are."""
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    relative = os.path.relpath(value)
    return value if relative.startswith("..") else relative
