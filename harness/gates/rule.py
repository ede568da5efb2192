"""The rule that a gate learns, and its form as JSON."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.schema import ReadPath
from harness.data.files import json_file, required
from harness.errors import BadInput
from harness.gates import calibration
from harness.gates.gate import ALL, Decision, check_comparable, check_signal, check_source, parts_of
from harness.gates.payoff import Payoff
from harness.gates.signals import GateInputs, signal_of, signal_spec
from harness.storage.typed import encoded, row_as

# Field of a rule -> other fields that must have the same number of values.
_PARALLEL = {"features": ("centre", "scale", "weights"), "embedding": ("embedding_centre", "embedding_scale")}
_INFINITE = ("inf", "-inf")  # infinite thresholds, as `json_number` writes them


@dataclass(frozen=True)
class Rule:
    """Decides how many documents a query gets: compares a weighted sum of signals with thresholds.

    The sum is `intercept` plus (value - centre) / scale * weight for each feature and each value of the embedding.

    features: pairs (source, signal). k: number of top ranks that some signals read.
    levels: numbers of documents to show, from the most to the least confident level.
    thresholds: descending thresholds between neighbouring levels.
    embedding: weights of the embedding's values; empty if the rule reads no embedding.
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

    def __post_init__(self) -> None:
        if not self.features or any(len(pair) != 2 or pair[1] is None for pair in self.features):
            raise BadInput(f"features is {self.features!r:.60}, but must list pairs of source and signal.")
        if not 2 <= self.k <= ALL:
            raise BadInput(f"k is {self.k}, but must be a whole number from 2 to {ALL}.")
        if wrong := [level for level in self.levels if not 0 <= level <= ALL]:
            raise BadInput(f"levels has {wrong[0]}, but must have whole numbers from 0 to {ALL}.")
        if len(self.levels) != len(self.thresholds) + 1:
            raise BadInput("levels must have one value more than thresholds.")
        if any(one < other for one, other in pairwise(self.thresholds)):
            raise BadInput("thresholds must be descending.")
        for first, others in _PARALLEL.items():
            count = len(getattr(self, first))
            if wrong_name := next((name for name in others if len(getattr(self, name)) != count), None):
                raise BadInput(f"{wrong_name} must be as long as {first}, which has {count} values.")
        if not all(scale > 0 for scale in (*self.scale, *self.embedding_scale)):
            raise BadInput("scale and embedding_scale must be greater than 0.")

    def signal(self, inputs: GateInputs) -> np.ndarray:
        columns = np.stack([signal_of(inputs, name, source, self.k) for source, name in self.features], axis=1)
        if self.plain:
            return columns[:, 0]
        # Sum each row by itself, since the rounding of a matrix product depends on the number of queries.
        total = ((columns - self.centre) / self.scale * self.weights).sum(axis=1) + self.intercept
        if self.embedding:
            vectors = (inputs.embeddings() - np.array(self.embedding_centre)) / self.embedding_scale
            total = total + (vectors * self.embedding).sum(axis=1)
        return total

    @property
    def plain(self) -> bool:
        """Whether the rule uses one signal as it is, without scaling, weights or an embedding."""
        return self == Rule(self.features[:1], self.k, self.levels, self.thresholds)

    def shown(self, signal: np.ndarray) -> np.ndarray:
        return np.array(self.levels)[calibration.level_at(signal, np.array(self.thresholds))]

    def to_json(self) -> dict[str, Any]:
        return encoded(self) | {"thresholds": [json_number(value) for value in self.thresholds]}

    @classmethod
    def from_json(cls, content: Any, where: str = "rule") -> Rule:
        """Return the rule that `to_json` wrote. For other content, raise BadInput with the name of the wrong field."""
        thresholds = content.get("thresholds") if isinstance(content, dict) else None
        if isinstance(thresholds, list):
            content = content | {"thresholds": [float(one) if one in _INFINITE else one for one in thresholds]}
        return row_as(cls, content, where)

    def check(self, names: Collection[str]) -> None:
        for source, signal in self.features:
            check_signal(signal, self.k)
            if source is not None:
                check_source(source, names, "gate.source")
            elif signal_spec(signal).reads != "query":
                raise BadInput(f"rule.features: the signal {signal} needs a source, one of {', '.join(names)}.")
            check_comparable(signal, names)


class FittedGate:
    """Applies the gate rule of another run. file: the gate.json of that run."""

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
        """Return the rule as the identity of the gate; the path of its file does not matter."""
        return {"rule": _read(file).to_json()}

    def check(self, names: Collection[str]) -> None:
        self.rule.check(names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        signal = self.rule.signal(inputs)
        return Decision(self.rule.shown(signal), signal)


def json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _read(file: str) -> Rule:
    try:
        return Rule.from_json(required(json_file(Path(file)), "rule", file), f"{file}: rule")
    except BadInput as error:
        raise BadInput(f"{error} gate.file needs the gate.json of a run with gate=auto, depth or classifier.") from None
