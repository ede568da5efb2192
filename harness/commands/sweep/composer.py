"""Composes the configs of a sweep's trials with Hydra, once for each set of choices."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.config import canonical
from harness.config.check import with_metrics
from harness.config.hydra_app import chosen
from harness.config.manual import is_inner

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig


@dataclass
class Composed:
    """Hydra's config for a set of choices.

    plain: the resolved config. choices: config group -> choice. keys: the dotted keys of all its nodes.
    interpolations: the values that refer to other keys, as they are written.
    """

    config: DictConfig
    plain: dict[str, Any]
    choices: dict[str, str | None]
    keys: set[str]
    interpolations: list[str]

    @classmethod
    def of(cls, config: DictConfig) -> Composed:
        """config: the whole one, with Hydra's own section, which is removed."""
        from omegaconf import open_dict

        choices = config.hydra.runtime.choices
        with open_dict(config):
            del config["hydra"]
        made = cls._resolved(config, {})
        return replace(made, choices=chosen(made.plain, choices))

    @classmethod
    def _resolved(cls, config: DictConfig, choices: dict[str, str | None]) -> Composed:
        from omegaconf import OmegaConf

        unresolved: Any = OmegaConf.to_container(config, resolve=False)
        texts = [value for value in canonical.flatten(unresolved).values() if isinstance(value, str) and "${" in value]
        plain: Any = OmegaConf.to_container(config, resolve=True)
        return cls(config, with_metrics(plain), choices, set(_keys(unresolved)), texts)

    def refers_to(self, keys: Iterable[str]) -> bool:
        """Whether other values may refer to one of these keys."""
        return any("${" + key.partition(".")[0] in text for key in keys for text in self.interpolations)

    def changed(self, values: Mapping[str, Any]) -> Composed:
        """With other values of keys that it has; what refers to these follows."""
        config = copy.deepcopy(self.config)
        for key, value in values.items():  # before resolving
            _set_in(config, key, value)
        return self._resolved(config, self.choices)


class Composer:
    """Makes the configs of trials. Hydra composes once for each set of choices; plain values are set in copies.

    compose: overrides -> Hydra's whole config.
    is_group: whether a key is a config group.
    """

    def __init__(self, compose: Callable[[list[str]], DictConfig], is_group: Callable[[str], bool]) -> None:
        self._compose, self._is_group = compose, functools.cache(is_group)
        self._composed: dict[tuple[str, ...], Composed] = {}
        self._with_shared: dict[tuple[tuple[str, ...], tuple[str, ...]], Composed] = {}
        self._parse = functools.cache(_parsed)

    def __call__(self, fixed: Sequence[str], overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, str | None]]:
        """(resolved config, choices) of a trial. Raises Hydra's exceptions.

        fixed: the overrides that all trials share. overrides: those of the trial, which come last.
        """
        hydras = [one for one in (*fixed, *overrides) if not self._sets_value(self._parse(one))]
        composed = self._shared(hydras, [one for one in fixed if one not in hydras])
        values = self._values([one for one in overrides if one not in hydras], composed)
        if composed.refers_to(values):
            return composed.changed(values).plain, composed.choices
        config = copy.deepcopy(composed.plain)
        for key, value in values.items():
            _set_in(config, key, value)
        return config, composed.choices

    def applicable(self, overrides: Sequence[str]) -> list[str]:
        """The overrides of a trial without the keys inside groups that its choices do not have.

        So gate.threshold applies to gate=score, and not to gate=none. Raises Hydra's exceptions.
        """
        inner = {one for one in overrides if is_inner(one, self._is_group)}
        if not inner:
            return list(overrides)
        keys = self._hydras(
            [one for one in overrides if one not in inner and not self._sets_value(self._parse(one))]
        ).keys
        return [one for one in overrides if one not in inner or _key(one) in keys]

    def partial(self, fixed: Sequence[str], swept: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Key that not all swept choices have -> those that have it, as group=choice.

        swept: key -> its overrides. Raises Hydra's exceptions, also for a key inside a group that no choice has.
        """
        first = {key: overrides[0] for key, overrides in swept.items()}
        inner = [_key(one) for one in (*fixed, *first.values()) if is_inner(one, self._is_group)]
        known = set(self._keys_of([*fixed, *first.values()]))
        found: dict[str, list[str]] = {}
        for group in filter(self._is_group, swept if inner else ()):
            having = {one: self._keys_of([*fixed, *(first | {group: one}).values()]) for one in swept[group]}
            known.update(*having.values())
            for key in inner:
                choices = [one for one, keys in having.items() if key in keys]
                if 0 < len(choices) < len(having):
                    found.setdefault(key, []).extend(choices)
        if unknown := next((key for key in inner if key not in known), None):
            raise _unknown(unknown)
        return found

    def _keys_of(self, overrides: Sequence[str]) -> list[str]:
        return [_key(one) for one in self.applicable(overrides)]

    def _hydras(self, overrides: Sequence[str]) -> Composed:
        """As Hydra composes these overrides."""
        if (words := tuple(overrides)) not in self._composed:
            self._composed[words] = Composed.of(self._compose(list(words)))
        return self._composed[words]

    def _shared(self, hydras: Sequence[str], others: Sequence[str]) -> Composed:
        """As Hydra composes `hydras`, with the plain values of `others` set."""
        if (place := (tuple(hydras), tuple(others))) not in self._with_shared:
            composed = self._hydras(hydras)
            self._with_shared[place] = composed.changed(self._values(others, composed)) if others else composed
        return self._with_shared[place]

    def _values(self, overrides: Sequence[str], composed: Composed) -> dict[str, Any]:
        """Key -> plain value. Raises Hydra's exception for a key that the config does not have."""
        values = {_key(one): self._parse(one).value() for one in overrides}
        if unknown := next((key for key in values if key not in composed.keys), None):
            raise _unknown(unknown)
        return values

    def _sets_value(self, override: Override) -> bool:
        """Whether an override only replaces a plain value, so that Hydra need not compose again."""
        value = override.value()
        plain = isinstance(value, bool | int | float | str | None) and not {"$", "\\"} & set(str(value))
        changes = override.type is not None and override.type.name == "CHANGE"
        return plain and changes and not self._is_group(override.key_or_group)


def _unknown(key: str) -> Exception:
    from hydra.errors import ConfigCompositionException

    return ConfigCompositionException(f"Could not override '{key}'.")


def _set_in(config: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value


def _keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _key(override: str) -> str:
    return override.partition("=")[0]


def _parsed(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(text)
