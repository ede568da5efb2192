"""Composes the configs of a sweep's trials with Hydra, once for each set of choices."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.config import canonical
from harness.config.hydra_app import chosen

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


class Composer:
    """Makes the configs of trials. Hydra composes once for each set of choices; plain values are set in copies.

    compose: overrides -> Hydra's whole config.
    is_group: whether a key is a config group.
    """

    def __init__(self, compose: Callable[[list[str]], DictConfig], is_group: Callable[[str], bool]) -> None:
        self._compose, self._is_group = compose, functools.cache(is_group)
        self._composed: dict[tuple[str, ...], Composed] = {}
        self._parse = functools.cache(_parsed)

    def __call__(self, fixed: Sequence[str], overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, str | None]]:
        """(resolved config, choices) of a trial. Raises Hydra's exceptions.

        fixed: the overrides that all trials share. overrides: those of the trial, which come last.
        """
        from hydra.errors import ConfigCompositionException
        from omegaconf import OmegaConf

        parsed = [self._parse(override) for override in overrides]
        values = {one.key_or_group: one.value() for one in parsed if self._sets_value(one)}
        others = tuple(one.input_line or "" for one in parsed if not self._sets_value(one))
        if others not in self._composed:
            self._composed[others] = _composed(self._compose([*fixed, *others]))
        composed = self._composed[others]
        for key in values:
            if key not in composed.keys:
                raise ConfigCompositionException(f"Could not override '{key}'.")
        if any("${" + key.partition(".")[0] in text for key in values for text in composed.interpolations):
            unresolved = copy.deepcopy(composed.config)
            for key, value in values.items():  # before resolving: other values refer to these
                _set_in(unresolved, key, value)
            config: Any = OmegaConf.to_container(unresolved, resolve=True)
        else:
            config = copy.deepcopy(composed.plain)
            for key, value in values.items():
                _set_in(config, key, value)
        return config, composed.choices

    def _sets_value(self, override: Override) -> bool:
        """Whether an override only replaces a plain value, so that Hydra need not compose again."""
        value = override.value()
        plain = isinstance(value, bool | int | float | str | None) and not {"$", "\\"} & set(str(value))
        changes = override.type is not None and override.type.name == "CHANGE"
        return plain and changes and not self._is_group(override.key_or_group)


def _set_in(config: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value


def _composed(config: DictConfig) -> Composed:
    from omegaconf import OmegaConf, open_dict

    found = config.hydra.runtime.choices
    with open_dict(config):
        del config["hydra"]
    unresolved: Any = OmegaConf.to_container(config, resolve=False)
    texts = [value for value in canonical.flatten(unresolved).values() if isinstance(value, str) and "${" in value]
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return Composed(config, plain, chosen(plain, found), set(_keys(unresolved)), texts)


def _keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _parsed(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(text)
