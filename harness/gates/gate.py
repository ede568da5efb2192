"""The no-retrieval gate: which queries get documents, and how many.

A gate reads signals (`gates.signals`), which cost next to nothing once the rankings are there. The gates of this
module have a fixed threshold; those of `gates.learned` learn it from labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.gates.calibration import Curve
from harness.gates.payoff import Payoff
from harness.gates.signals import GateInputs, kind_of, signal_of
from retrievers.base import BadInput, did_you_mean

ALL = np.iinfo(np.int32).max  # documents shown where a gate sets no number


@dataclass(frozen=True, eq=False)
class Decision:
    """What a gate decides for Q queries.

    shown:       int64 [Q], how many of its documents a query gets at most; 0: they are withheld.
    signal:      float64 [Q], what it decided by, higher = likelier to need retrieval; None where nothing was read.
    fitted:      what was learnt from labels, as plain JSON; None where nothing was.
    out_of_fold: int64 [R, Q], what is shown when a query's own label had no part in the learning, in R repetitions;
                 None where nothing was learnt or held out.
    curve:       the objective at every threshold on the signal, where one was fitted.
    """

    shown: np.ndarray
    signal: np.ndarray | None
    fitted: Mapping[str, Any] | None = None
    out_of_fold: np.ndarray | None = None
    curve: Curve | None = None

    @property
    def keep(self) -> np.ndarray:
        """bool [Q], whether a query gets documents."""
        return self.shown > 0


class Gate(Protocol):
    """learns: whether `decide` needs a payoff. parts: shared parts of a config that it makes use of."""

    learns: bool
    parts: Collection[str]

    def check(self, names: Collection[str]) -> None:
        """BadInput where the gate does not fit raw rankings of these names."""

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision: ...


class NoGate:
    """Every query gets its documents. It decides on nothing, yet has the top score as a signal to look at."""

    recorded_as = "gate/none"
    learns = False
    parts = ()

    def check(self, names: Collection[str]) -> None:
        pass

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        signal = signal_of(inputs, "top_score", next(iter(inputs.rankings)), 1)
        return Decision(np.full(len(signal), ALL, np.int64), signal)


class ScoreGate:
    """A query is kept when its signal is at least the threshold; one without any document is not kept.

    source: name of the raw ranking that is read; None = the only one, or none for a signal of the query alone.
    k:      places that some signals look at.
    """

    recorded_as = "gate/score"
    learns = False

    def __init__(
        self, threshold: float = 0.0, source: str | None = None, signal: str = "top_score", k: int = 10
    ) -> None:
        check_signal(signal, k)
        self.threshold, self.source, self.signal, self.k = threshold, source, signal, k
        self.parts = parts_of([signal])

    def check(self, names: Collection[str]) -> None:
        self._source_of(names)
        check_comparable(self.signal, names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        source = self._source_of(inputs.rankings)
        signal = signal_of(inputs, self.signal, source, self.k)
        found = np.any([ranking.lengths > 0 for name, ranking in inputs.rankings.items() if source in (name, None)], 0)
        return Decision(np.where((signal >= self.threshold) & found, ALL, 0), signal)

    def _source_of(self, names: Collection[str]) -> str | None:
        """The name of the raw ranking that is read; BadInput if it is not clear or not there."""
        if self.source is not None:
            check_source(self.source, names, "gate.source")
            return self.source
        if kind_of(self.signal).reads == "query":
            return None
        if len(names) > 1:
            raise BadInput(f"gate.source is missing: choose one of the raw rankings {', '.join(names)}.")
        return next(iter(names))


def check_signal(name: str, k: int) -> None:
    """BadInput for an unknown signal and for too few places."""
    kind_of(name)
    if k < 2:
        raise BadInput(f"k={k} is too small: a mean or a z-score needs at least 2 documents.")


def check_comparable(signal: str, names: Collection[str]) -> None:
    if kind_of(signal).reads == "rankings" and len(names) < 2:
        raise BadInput(
            f"gate.signal={signal} compares raw rankings, and there is only one. Choose another signal, or a retriever "
            "with several, such as retriever=hybrid_lexical."
        )


def check_source(source: str, names: Collection[str], key: str) -> None:
    """BadInput where `source` is no raw ranking."""
    if source == "fused" and len(names) > 1:
        first = next(iter(names))
        raise BadInput(
            f"{key}=fused is no raw ranking. Fused scores are normalised for each query (by min_max the best "
            "is always 1), so that no threshold tells a good query from a bad one. Write the name of a raw "
            f"ranking, such as {key}={first}: {', '.join(names)}."
        )
    if source not in names:
        raise BadInput(
            f"{key}={source!r} is no raw ranking of this retriever: choose one of {', '.join(names)}."
            f"{did_you_mean(source, names)}"
        )


def parts_of(signals: Collection[str]) -> tuple[str, ...]:
    """The shared parts of a config that signals make use of."""
    return ("tokenizer",) if "coverage" in signals else ()
