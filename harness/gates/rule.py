"""A gate's learnt rule: read from a file, written to one, applied."""

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
    """How many documents a query gets, by a weighted sum of signals.

    features: (source, signal) each, read with `k`. A feature counts as (value - centre) / scale * weight, added to
    `intercept`. embedding: weights of the query's embedding, whose values are centred and scaled likewise by
    `embedding_centre` and `embedding_scale`; empty without one.
    levels: documents shown, from the most to the least confident; thresholds: between neighbours, descending.
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
        """float64 [Q]."""
        columns = np.stack([signal_of(inputs, name, source, self.k) for source, name in self.features], axis=1)
        if self == self.plain():  # one signal as it is
            return columns[:, 0]
        # Row by row: a matrix product rounds by the number of queries, and a query would depend on those beside it.
        found = ((columns - self.centre) / self.scale * self.weights).sum(axis=1) + self.intercept
        if self.embedding:
            vectors = (inputs.embeddings() - np.array(self.embedding_centre)) / self.embedding_scale
            found = found + (vectors * self.embedding).sum(axis=1)
        return found

    def plain(self) -> Rule:
        """The rule with its features as they are."""
        return Rule(self.features, self.k, self.levels, self.thresholds)

    def shown(self, signal: np.ndarray) -> np.ndarray:
        """int64 [Q]."""
        return calibration.decide(signal, np.array(self.thresholds), self.levels)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return found | {"thresholds": [_written(value) for value in self.thresholds]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Rule:
        """Raises TypeError, KeyError or ValueError where it is none."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(content).items()}
        fields["features"] = tuple((source, name) for source, name in content["features"])
        fields["thresholds"] = tuple(float(value) for value in content["thresholds"])
        found = cls(**fields)
        lengths = [len(one) for one in (found.features, found.centre, found.scale, found.weights)]
        embedded = [len(one) for one in (found.embedding, found.embedding_centre, found.embedding_scale)]
        if len({*lengths}) > 1 or len({*embedded}) > 1 or len(found.levels) != len(found.thresholds) + 1:
            raise ValueError("these numbers do not belong together")
        return found

    def check(self, names: Collection[str]) -> None:
        for source, signal in self.features:
            if source is not None:
                check_source(source, names, "gate.source")
            check_signal(signal, self.k)
            check_comparable(signal, names)


class FittedGate:
    """A rule that was learnt before: `file` is the gate.json of a run. It needs no labels."""

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
        return {"rule": _read(file).to_json()}

    def check(self, names: Collection[str]) -> None:
        self.rule.check(names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        signal = self.rule.signal(inputs)
        return Decision(self.rule.shown(signal), signal)


def _read(file: str) -> Rule:
    try:
        return Rule.from_json(json.loads(Path(file).read_text("utf-8"))["rule"])
    except OSError as error:
        raise BadInput(f"file={file} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"file={file} is no gate.json of a run with gate=auto, depth or classifier.") from None


def _written(value: float) -> float | str:
    """JSON has no infinite numbers; float() reads both."""
    return value if math.isfinite(value) else str(value)
