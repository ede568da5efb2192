"""The rule that a gate learns: apply it, write it to JSON, read it back."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.schema import ReadPath
from harness.data.files import field, json_file, required
from harness.errors import BadInput, did_you_mean
from harness.gates import calibration
from harness.gates.gate import ALL, Decision, check_comparable, check_signal, check_source, parts_of
from harness.gates.payoff import Payoff
from harness.gates.signals import GateInputs, signal_of, signal_spec

_OF_EMBEDDING = ("embedding_centre", "embedding_scale")


@dataclass(frozen=True)
class Rule:
    """How many documents a query gets, by thresholds on a weighted sum of signals.

    The sum is `intercept` plus (value - centre) / scale * weight of each feature and of each value of the query's
    embedding.

    features:   (source, signal) each.
    k:          number of top ranks that some signals read.
    levels:     numbers of documents shown, from the most to the least confident.
    thresholds: between neighbouring levels, descending; one fewer than levels.
    centre, scale, weights:     one number per feature.
    intercept:                  added to the sum.
    embedding:                  weights of the embedding's values; empty if the rule reads no embedding.
    embedding_centre, embedding_scale: one number per value of the embedding.
    """

    features: tuple[tuple[str | None, str], ...]
    k: int
    levels: tuple[int, ...]
    thresholds: tuple[float, ...]
    centre: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    weights: tuple[float, ...] = (1.0,)
    intercept: float = 0.0
    embedding: tuple[float, ...] = ()
    embedding_centre: tuple[float, ...] = ()
    embedding_scale: tuple[float, ...] = ()

    def signal(self, inputs: GateInputs) -> np.ndarray:
        """The weighted sum for each query, float64 [Q]."""
        columns = np.stack([signal_of(inputs, name, source, self.k) for source, name in self.features], axis=1)
        if self == self.plain():  # a single signal, unchanged
            return columns[:, 0]
        # Sum each row by itself: the rounding of a matrix product depends on the number of queries.
        total = ((columns - self.centre) / self.scale * self.weights).sum(axis=1) + self.intercept
        if self.embedding:
            vectors = (inputs.embeddings() - np.array(self.embedding_centre)) / self.embedding_scale
            total = total + (vectors * self.embedding).sum(axis=1)
        return total

    def plain(self) -> Rule:
        """The same features and thresholds without coefficients."""
        return Rule(self.features, self.k, self.levels, self.thresholds)

    def shown(self, signal: np.ndarray) -> np.ndarray:
        """How many documents each query gets, int64 [Q]; signal: float64 [Q]."""
        return calibration.counts_at(signal, np.array(self.thresholds), self.levels)

    def to_json(self) -> dict[str, Any]:
        """The rule as plain JSON; `from_json` reads it."""
        plain = asdict(self) | {"thresholds": [json_number(value) for value in self.thresholds]}
        return {name: _lists(value) for name, value in plain.items()}

    @classmethod
    def from_json(cls, content: Any, where: str = "rule") -> Rule:
        """The rule that `to_json` wrote. BadInput, which names the key, if `content` is no rule. where: its place."""
        if not isinstance(content, dict):
            raise BadInput(f"{where} is {content!r:.60}, but must be an object.")
        known = [one.name for one in fields(cls)]
        for name in content:
            if name not in known:
                raise BadInput(f"{where}.{name:.60} is unknown.{did_you_mean(name, known)}")
        values: dict[str, Any] = {
            "features": _features(content, where),
            "k": _whole(required(content, "k", where), f"{where}.k", least=2),
            "levels": tuple(_whole(value, place) for value, place in _items(content, "levels", where)),
            "thresholds": tuple(_number(value, place, True) for value, place in _items(content, "thresholds", where)),
        }
        if "intercept" in content:
            values["intercept"] = _number(content["intercept"], f"{where}.intercept")
        for name in content.keys() - values.keys():
            values[name] = tuple(_number(value, place) for value, place in _items(content, name, where))
        rule = cls(**values)
        rule._check_shape(where)
        return rule

    def _check_shape(self, where: str) -> None:
        """Raise BadInput unless lists that belong together are equally long, and thresholds and scales can be used."""
        for first, others in (("features", ("centre", "scale", "weights")), ("embedding", _OF_EMBEDDING)):
            expected = len(getattr(self, first))
            for name in others:
                if len(getattr(self, name)) != expected:
                    raise BadInput(f"{where}.{name} must be as long as {where}.{first}, which has {expected} values.")
        if len(self.levels) != len(self.thresholds) + 1:
            raise BadInput(f"{where}.levels must have one value more than {where}.thresholds.")
        if any(one < other for one, other in pairwise(self.thresholds)):
            raise BadInput(f"{where}.thresholds must be descending.")
        for name in ("scale", "embedding_scale"):
            if not all(value > 0 for value in getattr(self, name)):
                raise BadInput(f"{where}.{name} must be greater than 0.")

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput if the rule does not fit component rankings with these names."""
        for source, signal in self.features:
            check_signal(signal, self.k)
            if source is not None:
                check_source(source, names, "gate.source")
            elif signal_spec(signal).reads != "query":
                raise BadInput(f"rule.features: the signal {signal} needs a source, one of {', '.join(names)}.")
            check_comparable(signal, names)


class FittedGate:
    """Applies a rule that another run has learnt; needs no labels.

    file: the gate.json of that run.
    """

    recorded_as = "gate/fitted"
    learns = False

    def __init__(self, file: ReadPath) -> None:
        self.rule = _read(file)
        self.parts = (
            *parts_of([name for _, name in self.rule.features]),
            *(("encoder",) if self.rule.embedding else ()),
        )

    @staticmethod
    def identify(file: str) -> dict[str, Any]:
        """The content of the file identifies the gate, not its path."""
        return {"rule": _read(file).to_json()}

    def check(self, names: Collection[str]) -> None:
        self.rule.check(names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        signal = self.rule.signal(inputs)
        return Decision(self.rule.shown(signal), signal)


def json_number(value: float) -> float | str:
    """A number for JSON, which has no infinite ones: these become text that `float` reads."""
    return value if math.isfinite(value) else str(value)


def _read(file: str) -> Rule:
    """The rule in a gate.json."""
    path = Path(file)
    try:
        return Rule.from_json(required(json_file(path), "rule", file), f"{file}: rule")
    except BadInput as error:
        raise BadInput(f"{error} gate.file needs the gate.json of a run with gate=auto, depth or classifier.") from None


def _lists(value: Any) -> Any:
    """A value with lists in place of tuples, as JSON reads it back."""
    return [_lists(one) for one in value] if isinstance(value, tuple | list) else value


def _features(content: Mapping[str, Any], where: str) -> tuple[tuple[str | None, str], ...]:
    found = []
    for value, place in _items(content, "features", where):
        if not isinstance(value, list) or len(value) != 2:
            raise BadInput(f"{place} is {value!r:.60}, but must be [source, signal].")
        source, signal = value
        if not isinstance(signal, str) or not isinstance(source, str | None):
            raise BadInput(f"{place} is {value!r:.60}, but a source is text or null, and a signal is text.")
        found.append((source, signal))
    if not found:
        raise BadInput(f"{where}.features is empty, but a rule reads at least one signal.")
    return tuple(found)


def _items(content: Mapping[str, Any], name: str, where: str) -> list[tuple[Any, str]]:
    """(value, its place) of every item of a list."""
    return [(value, f"{where}.{name}[{i}]") for i, value in enumerate(field(content, name, list, where))]


def _whole(value: Any, place: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= ALL:
        raise BadInput(f"{place} is {value!r:.60}, but must be a whole number from {least} to {ALL}.")
    return value


def _number(value: Any, place: str, endless: bool = False) -> float:
    """A finite number. endless: or an infinite one, as `json_number` writes it."""
    if endless and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise BadInput(f"{place} is {value!r:.60}, but must be a finite number{' or inf or -inf' * endless}.")
    return float(value)
