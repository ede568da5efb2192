"""Gates decide which queries get documents, and how many. The gates in this module learn nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np

from harness.errors import BadInput, did_you_mean
from harness.gates.calibration import Curve
from harness.gates.payoff import Payoff
from harness.gates.signals import GateInputs, signal_of, signal_spec
from retrievers.base import AtMost

Threshold = Annotated[float, AtMost(1e9, "no signal is as large")]
TopK = Annotated[int, AtMost(100_000, "no ranking is as long")]
ALL = np.iinfo(np.int32).max  # number of documents shown by a gate without a limit


@dataclass(frozen=True, eq=False)
class Decision:
    """The decision of a gate for Q queries. A field is None if the gate does not compute it.

    shown: int64 [Q], the maximum number of documents for each query; 0 for no documents.
    signal: float64 [Q], the basis of the decision; higher if the query more likely needs retrieval.
    fitted: everything learnt from labels, as plain JSON.
    out_of_fold: int64 [R, Q], `shown` as decided by rules learnt without the query's label, in R repetitions.
    folds: int64 [R, n], the fold of each query in `Payoff.rows`, in each repetition.
    curve: the objective at every threshold.
    """

    shown: np.ndarray
    signal: np.ndarray | None
    fitted: Mapping[str, Any] | None = None
    out_of_fold: np.ndarray | None = None
    folds: np.ndarray | None = None
    curve: Curve | None = None

    @property
    def keep(self) -> np.ndarray:
        return self.shown > 0


class Gate(Protocol):
    """Decides which queries get documents. To add a gate, write a class like this, and a file in conf/gate/.

    learns: whether `decide` needs a payoff.
    parts: the shared components of a config that the gate uses, among "tokenizer", "encoder" and "llm".
    """

    learns: bool
    parts: Collection[str]

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput if the gate does not fit component rankings with these names."""

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        """Return the decision for all queries of `inputs`. Gates that learn need `payoff`, made from the labels."""


class NoGate:
    """Gives every query its documents. Its signal is the top score, which is only reported."""

    recorded_as = "gate/none"
    learns = False
    parts = ()

    def check(self, names: Collection[str]) -> None:
        pass

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        signal = signal_of(inputs, "top_score", next(iter(inputs.rankings)), 1)
        return Decision(np.full(len(signal), ALL, np.int64), signal)


@dataclass(eq=False)
class ScoreGate:
    """Gives a query its documents if its signal is at least the threshold and any document was found.

    source: the component ranking to read; None if there is only one. Ignored if the signal reads only the query.
    k: number of top ranks that some signals read, at least 2.
    """

    recorded_as = "gate/score"
    learns = False

    threshold: Threshold = 0.0
    source: str | None = None
    signal: str = "top_score"
    k: TopK = 10

    def __post_init__(self) -> None:
        check_signal(self.signal, self.k)
        self.parts = parts_of([self.signal])

    def check(self, names: Collection[str]) -> None:
        self._source_of(names)
        check_comparable(self.signal, names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        source = self._source_of(inputs.rankings)
        signal = signal_of(inputs, self.signal, source, self.k)
        read = [ranking for name, ranking in inputs.rankings.items() if source in (name, None)]
        found = np.any([ranking.lengths > 0 for ranking in read], axis=0)
        return Decision(np.where((signal >= self.threshold) & found, ALL, 0), signal)

    def _source_of(self, names: Collection[str]) -> str | None:
        if self.source is not None:
            check_source(self.source, names, "gate.source")
            return self.source
        if signal_spec(self.signal).reads == "query":
            return None
        if len(names) > 1:
            raise BadInput(f"gate.source is missing. Choose one of the component rankings {', '.join(names)}.")
        return next(iter(names))


def check_signal(name: str, k: int) -> None:
    signal_spec(name)
    if k < 2:
        raise BadInput(f"k={k} is too small: a mean or a z-score needs at least 2 documents.")


def check_comparable(signal: str, names: Collection[str]) -> None:
    if signal_spec(signal).reads == "rankings" and len(names) < 2:
        raise BadInput(
            f"gate.signal={signal} compares component rankings, and there is only one. Choose another signal, or a "
            "retriever with several rankings, such as retriever=hybrid_lexical."
        )


def check_source(source: str, names: Collection[str], key: str) -> None:
    if source == "fused" and len(names) > 1:
        first = next(iter(names))
        raise BadInput(
            f"{key}=fused is not a component ranking. Fused scores are normalised for each query (min_max makes every "
            "best score 1), so no threshold on them tells which queries need documents. Name a "
            f"component ranking, such as {key}={first}. Choose one of {', '.join(names)}."
        )
    if source not in names:
        raise BadInput(
            f"{key}={source!r:.60} is not a component ranking of this retriever. Choose one of {', '.join(names)}."
            f"{did_you_mean(source, names)}"
        )


def parts_of(signals: Collection[str]) -> tuple[str, ...]:
    return ("tokenizer",) if "coverage" in signals else ()
