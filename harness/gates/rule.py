"""The rule that a gate learns: apply it, write it to JSON, read it back."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.gates import calibration
from harness.gates.gate import Decision, check_comparable, check_signal, check_source, parts_of
from harness.gates.payoff import Payoff
from harness.gates.signals import GateInputs, signal_of
from retrievers.base import BadInput


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
        return calibration.decide(signal, np.array(self.thresholds), self.levels)

    def to_json(self) -> dict[str, Any]:
        """The rule as plain JSON; `from_json` reads it."""
        return asdict(self) | {"thresholds": [json_number(value) for value in self.thresholds]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Rule:
        """The rule that `to_json` wrote; TypeError, KeyError or ValueError if `content` is not a rule."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(content).items()}
        fields["features"] = tuple((source, name) for source, name in content["features"])
        fields["thresholds"] = tuple(float(value) for value in content["thresholds"])
        rule = cls(**fields)
        lengths = {len(column) for column in (rule.features, rule.centre, rule.scale, rule.weights)}
        embedded = {len(column) for column in (rule.embedding, rule.embedding_centre, rule.embedding_scale)}
        if len(lengths) > 1 or len(embedded) > 1 or len(rule.levels) != len(rule.thresholds) + 1:
            raise ValueError("the fields of the rule differ in length")
        return rule

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput if the rule does not fit component rankings with these names."""
        for source, signal in self.features:
            if source is not None:
                check_source(source, names, "gate.source")
            check_signal(signal, self.k)
            check_comparable(signal, names)


class FittedGate:
    """Applies a rule that another run has learnt; needs no labels.

    file: the gate.json of that run.
    """

    recorded_as = "gate/fitted"
    learns = False

    def __init__(self, file: str) -> None:
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
    try:
        return Rule.from_json(json.loads(Path(file).read_text("utf-8"))["rule"])
    except OSError as error:
        raise BadInput(f"file={file} cannot be read: {error.strerror}. Give the gate.json of a run.") from None
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"file={file} is not the gate.json of a run with gate=auto, depth or classifier.") from None
